//! The four transport properties of the extension (section 8), and the terms that follow from those
//! of both ends.

use alloc::vec;
use alloc::vec::Vec;

use super::structure::Structure;
use super::{CODE_BASE, Malformed, REPTERR, XMTCONT, XMTREQ, XMTRESP};
use crate::v2::properties::{Properties, PropertySet, RBSIZ};
use crate::xdr::{Reader, Writer};

/// The offer of one end; by default, nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// RTR Support: a sum of [`RTRS_XREQ`], [`RTRS_XRESP`] and [`RTRS_XCONT`], each for sending and for receiving such
    /// headers (E16).
    pub support: u32,
    /// Receive Buffer Structure: the segments of every Receive this end posts.
    pub structure: Option<Structure>,
    /// Request Transmission Receive Limit: the most transmissions of a request that the end
    /// accepts.
    pub request_receive_max: u32,
    /// Response Transmission Send Limit: the most transmissions of a response that the end sends.
    pub response_send_max: u32,
}

impl Default for Offer {
    fn default() -> Self {
        // [RTR-8.1-1] the offer of an end that does not announce one.
        //~ RTR-8.1-1: `request_receive_max: 1` -> `request_receive_max: 2`
        Self { support: 0, structure: None, request_receive_max: 1, response_send_max: 1 }
    }
}

impl Offer {
    /// Updates the offer by one received property; a property that does not belong to the extension
    /// is ignored.
    ///
    /// # Errors
    /// If the value does not have the property's XDR type:
    /// [`crate::v2::error::ErrorBody::BadPropval`].
    pub fn apply(&mut self, which: u32, data: &[u8]) -> Result<(), Malformed> {
        let default = Self::default();
        let mut r = Reader::new(data);
        // [V2-5.1-2] an empty value asks for the default, as with version 2's own properties.
        let word =
            |r: &mut Reader<'_>, default| if data.is_empty() { Ok(default) } else { r.u32() };
        match which {
            RTRSUPP => self.support = word(&mut r, default.support)?,
            RBSTRUCT if data.is_empty() => self.structure = None,
            RBSTRUCT => self.structure = Structure::decode(&mut r)?,
            REQRXLIM => self.request_receive_max = word(&mut r, default.request_receive_max)?,
            RESPSXLIM => self.response_send_max = word(&mut r, default.response_send_max)?,
            _ => return Ok(()),
        }
        // [V2-5.1-1]
        let after = Malformed { rule: "octets after the value", at: r.position() };
        if r.is_empty() { Ok(()) } else { Err(after) }
    }

    /// Returns the offer as properties: code points and values. There are none if nothing is
    /// supported.
    pub fn entries(&self) -> Vec<(u32, Vec<u8>)> {
        if self.support == 0 {
            return Vec::new();
        }
        let word = |value: u32| value.to_be_bytes().to_vec();
        let structure = self.structure.as_ref().map(|structure| {
            let mut value = vec![0; structure.wire_len()];
            let encoded = structure.encode(&mut Writer::new(&mut value));
            debug_assert!(encoded.is_ok(), "it is as long as was said");
            (RBSTRUCT, value)
        });
        let words = [
            (RTRSUPP, word(self.support)),
            (REQRXLIM, word(self.request_receive_max)),
            (RESPSXLIM, word(self.response_send_max)),
        ];
        words.into_iter().chain(structure).collect()
    }

    /// Returns the segments of this end's receive buffers, which hold `size` octets.
    fn buffers(&self, size: u32) -> Structure {
        // Section 8.3: one segment, and no target, where nothing else is known.
        self.structure.unwrap_or_else(|| Structure::single(size))
    }
}

/// The offer that a peer has sent so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heard {
    offer: Offer,
    /// Whether the peer has sent the size of its receive buffers.
    is_size_said: bool,
}

impl Heard {
    /// Returns the offer with the properties of one more message.
    ///
    /// # Errors
    /// See [`Offer::apply`].
    pub fn with(mut self, set: &PropertySet<'_>) -> Result<Self, Malformed> {
        for (which, data) in set.entries() {
            self.offer.apply(which, data)?;
            self.is_size_said |= which == RBSIZ && !data.is_empty();
        }
        Ok(self)
    }

    /// Returns the offer, and the `size` of the receive buffers if the peer has sent it.
    pub fn buffers_of(&self, size: u32) -> (&Offer, Option<u32>) {
        (&self.offer, self.is_size_said.then_some(size))
    }
}

/// The terms of two ends: neither sends anything that the other has not offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    support: u32,
    /// The segments of this end's receive buffers.
    pub ours: Structure,
    /// The segments of the peer's receive buffers.
    pub theirs: Structure,
    /// The length of the largest message that this end sends, in octets.
    pub message_max: usize,
    /// The most transmissions of a request that this end sends.
    pub request_send_max: u32,
    /// The most transmissions of a request that this end accepts.
    pub request_receive_max: u32,
    /// The most transmissions of a response that this end sends, if the request permits as many.
    pub response_send_max: u32,
    /// The most transmissions of a response that this end accepts.
    pub response_receive_max: u32,
    /// The length of the largest segment that this end handles, in octets.
    pub segment_size_max: u32,
}

impl Terms {
    /// Computes the terms from the offers and base properties of both ends; this end accepts responses of at most
    /// `responses_max` transmissions. `theirs` has the peer's receive buffer size if the peer sent it.
    pub fn new(
        ours: (&Offer, &Properties),
        theirs: (&Offer, Option<u32>),
        responses_max: u32,
    ) -> Self {
        //~ RTR-3.4-1: `& theirs` -> `| theirs`
        let support = ours.0.support & theirs.0.support;
        // Section 8.3: an end that states no size states it by its structure; of an end that states both, the
        // smaller one holds.
        let default = Properties::default().receive_buffer_size;
        let structure = theirs.0.buffers(theirs.1.unwrap_or(default));
        let size = theirs.1.unwrap_or_else(|| structure.length());
        let sizes = [size, structure.length(), ours.1.send_size_max];
        let message_max = sizes.into_iter().min().unwrap_or_default();
        // [RTR-9.4-2] without continuations every group is one transmission.
        //~ RTR-9.4-2: `support & RTRS_XCONT == 0` -> `support == 0`
        let limit = |max: u32| if support & RTRS_XCONT == 0 { 1 } else { max.max(1) };
        Self {
            support,
            ours: ours.0.buffers(ours.1.receive_buffer_size),
            theirs: structure,
            message_max: usize::try_from(message_max).unwrap_or(usize::MAX),
            request_send_max: limit(theirs.0.request_receive_max),
            request_receive_max: limit(ours.0.request_receive_max),
            response_send_max: limit(ours.0.response_send_max),
            response_receive_max: limit(theirs.0.response_send_max.min(responses_max)),
            segment_size_max: ours.1.segment_size_max,
        }
    }

    /// Returns whether the ends may exchange messages of a header type, in either direction.
    pub const fn allows(&self, htype: u32) -> bool {
        // [RTR-3.4-1] [RTR-5.3-5] only header types that both ends support.
        match htype {
            XMTREQ => self.support & RTRS_XREQ != 0,
            //~ RTR-5.3-5: `RTRS_XRESP` -> `RTRS_XREQ`
            XMTRESP => self.support & RTRS_XRESP != 0,
            XMTCONT => self.support & RTRS_XCONT != 0,
            REPTERR => self.support & (RTRS_XREQ | RTRS_XRESP | RTRS_XCONT) != 0,
            _ => false,
        }
    }
}

/// `RTRS_XREQ`: `ROPT_XMTREQ` is supported.
pub const RTRS_XREQ: u32 = 1;
/// `RTRS_XRESP`: `ROPT_XMTRESP` is supported.
pub const RTRS_XRESP: u32 = 2;
/// `RTRS_XCONT`: `ROPT_XMTCONT` is supported.
pub const RTRS_XCONT: u32 = 4;

/// `XPROP_RTRSUPP`.
pub const RTRSUPP: u32 = CODE_BASE | 3;
/// `XPROP_RBSTRUCT`.
pub const RBSTRUCT: u32 = CODE_BASE | 4;
/// `XPROP_REQRXLIM`.
pub const REQRXLIM: u32 = CODE_BASE | 5;
/// `XPROP_RESPSXLIM`.
pub const RESPSXLIM: u32 = CODE_BASE | 6;

#[cfg(test)]
mod tests;
