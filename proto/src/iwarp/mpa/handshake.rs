//! Opening an MPA stream: one Request, one Reply (RFC 5044 section 7.1, RFC 6581 section 4).
//!
//! # Normal operation
//!
//! The active end sends a Request and waits; the passive end accepts or rejects it. Both use revision 2 with Enhanced
//! data, which negotiates the number of outstanding RDMA Reads of each end; a peer that uses revision 1, or no Enhanced
//! data, gets an answer of the same form, and the local values apply. In RFC 5044 the passive end may not send before
//! it has received an FPDU; to let it send, the active end offers to open the stream with a zero-length RDMA Write (the
//! ready-to-receive indication, RTR).
//!
//! # Limits
//!
//! A frame is at most 20 + 512 octets. Invalid input is detected at its first wrong octet; nothing beyond the frame is
//! consumed. Deadlines are the caller's responsibility.

use alloc::boxed::Box;
use alloc::vec::Vec;

pub use super::fault::Fault;
pub use super::frame::Rtr;
use super::frame::{
    DEPTH_MASK, ENHANCED_LEN, Enhanced, FRAME_DATA_MAX, Flags, Frame, Kind, PEER_TO_PEER, REVISION,
    REVISION_MIN, RTR_READ, RTR_SEND, RTR_WRITE, clamp, gather,
};

/// The most octets of consumer private data in a frame: 512 less the Enhanced data.
pub const PRIVATE_DATA_MAX: usize = FRAME_DATA_MAX - ENHANCED_LEN;

/// The parameters that one end offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Whether this end requires CRCs. They are used if either end requires them.
    pub crc: bool,
    /// The number of RDMA Reads that this end wants to have outstanding.
    pub ord: u32,
    /// The number of RDMA Reads that this end serves at once.
    pub ird: u32,
    /// Whether the active end offers the peer-to-peer model, in which the passive end may send
    /// first.
    pub rtr: bool,
}

/// The parameters that both ends agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Whether CRCs are used.
    pub crc: bool,
    /// The number of RDMA Reads that this end may have outstanding.
    pub ord: u32,
    /// The number of RDMA Reads that the peer may have outstanding.
    pub ird: u32,
    /// The message with which the active end opens the stream, if any.
    pub rtr: Option<Rtr>,
}

/// The active end, which waits for the Reply.
#[derive(Debug)]
pub struct Active {
    offer: Offer,
    /// The revision of the Request.
    revision: u8,
    gathered: Vec<u8>,
}

/// The answer of a Reply to the Request.
#[derive(Debug, PartialEq, Eq)]
pub enum MpaReply {
    /// The stream is open.
    Accepted {
        /// The agreed parameters.
        agreement: Agreement,
        /// The private data of the passive end.
        private_data: Box<[u8]>,
    },
    /// The passive end rejected the Request.
    Rejected {
        /// The private data of the passive end.
        private_data: Box<[u8]>,
    },
}

impl Active {
    /// Creates an active end. The second value returned is the Request to send.
    ///
    /// Fails if `private_data` exceeds [`PRIVATE_DATA_MAX`].
    pub fn new(offer: Offer, private_data: &[u8]) -> Result<(Self, Box<[u8]>), Fault> {
        if private_data.len() > PRIVATE_DATA_MAX {
            return Err(Fault::OurPrivateData);
        }
        let control = if offer.rtr { PEER_TO_PEER } else { 0 };
        let rtr = if offer.rtr { RTR_WRITE } else { 0 };
        let frame = Frame {
            kind: Kind::Request,
            flags: Flags { crc: offer.crc, ..Flags::default() },
            revision: REVISION,
            enhanced: Some(Enhanced {
                ird: clamp(offer.ird) | control,
                ord: clamp(offer.ord) | rtr,
            }),
            private_data,
        };
        Ok((Self { offer, revision: REVISION, gathered: Vec::new() }, frame.encode()))
    }

    /// Creates an active end that uses revision 1, for RNICs that support no other: the number of
    /// Reads is not negotiated and no ready-to-receive indication is offered.
    ///
    /// Fails if `private_data` exceeds [`PRIVATE_DATA_MAX`].
    pub fn with_revision_one(
        offer: Offer,
        private_data: &[u8],
    ) -> Result<(Self, Box<[u8]>), Fault> {
        if private_data.len() > PRIVATE_DATA_MAX {
            return Err(Fault::OurPrivateData);
        }
        let offer = Offer { rtr: false, ..offer };
        let flags = Flags { crc: offer.crc, ..Flags::default() };
        let (kind, revision) = (Kind::Request, REVISION_MIN);
        let frame = Frame { kind, flags, revision, enhanced: None, private_data };
        Ok((Self { offer, revision, gathered: Vec::new() }, frame.encode()))
    }

    /// Consumes the octets of the frame from `bytes`. Returns `None` if more octets are needed.
    ///
    /// The octets after the Reply stay in `bytes`: they are the start of the FPDU stream.
    pub fn handle(&mut self, bytes: &mut &[u8]) -> Result<Option<MpaReply>, Fault> {
        let Some(frame) = gather(Kind::Reply, &mut self.gathered, bytes)? else {
            return Ok(None);
        };
        if frame.revision > self.revision {
            return Err(Fault::Revision);
        }
        let private_data = Box::from(frame.private_data);
        if frame.flags.rejected {
            return Ok(Some(MpaReply::Rejected { private_data }));
        }
        if frame.flags.markers {
            return Err(Fault::Markers);
        }
        let mut agreement = Agreement {
            crc: self.offer.crc || frame.flags.crc,
            ord: self.offer.ord,
            ird: self.offer.ird,
            rtr: None,
        };
        if let Some(enhanced) = frame.enhanced {
            // RFC 6581 section 4.1: what the peer wants outstanding must not exceed what we serve.
            match enhanced.depth(enhanced.ord) {
                Some(wanted) if wanted > self.offer.ird => return Err(Fault::InsufficientIrd),
                Some(wanted) => agreement.ird = wanted,
                None => {}
            }
            if let Some(served) = enhanced.depth(enhanced.ird) {
                agreement.ord = agreement.ord.min(served);
            }
            if self.offer.rtr && enhanced.ird & PEER_TO_PEER != 0 {
                if enhanced.ord & RTR_WRITE == 0 {
                    return Err(Fault::NoRtr);
                }
                agreement.rtr = Some(Rtr::Write);
            }
        }
        Ok(Some(MpaReply::Accepted { agreement, private_data }))
    }
}

/// The passive end, which waits for a Request.
#[derive(Debug, Default)]
pub struct Passive {
    gathered: Vec<u8>,
}

impl Passive {
    /// Creates a passive end.
    pub const fn new() -> Self {
        Self { gathered: Vec::new() }
    }

    /// Consumes the octets of the frame from `bytes`. Returns `None` if more octets are needed.
    ///
    /// A peer must send nothing between its Request and the Reply (RFC 5044 section 7.1.2), so
    /// further octets are a fault.
    pub fn handle(&mut self, bytes: &mut &[u8]) -> Result<Option<Asked>, Fault> {
        let Some(frame) = gather(Kind::Request, &mut self.gathered, bytes)? else {
            return Ok(None);
        };
        if frame.flags.markers {
            return Err(Fault::Markers);
        }
        if !bytes.is_empty() {
            return Err(Fault::Early);
        }
        let rtr = match frame.enhanced {
            Some(enhanced) if enhanced.ird & PEER_TO_PEER != 0 => {
                Some(enhanced.choose_rtr().ok_or(Fault::NoRtr)?)
            }
            _ => None,
        };
        Ok(Some(Asked {
            crc: frame.flags.crc,
            revision: frame.revision,
            enhanced: frame.enhanced,
            rtr,
            private_data: Box::from(frame.private_data),
        }))
    }

    /// Returns the Reply to send before closing, for a fault that is answered with one.
    ///
    /// A frame that could not be parsed is not answered (RFC 5044 section 7.1.3).
    pub fn refusal(&self, fault: Fault) -> Option<Box<[u8]>> {
        let parsed = matches!(fault, Fault::Markers | Fault::NoRtr);
        let frame =
            Frame::decode(Kind::Request, &self.gathered).ok().flatten().filter(|_| parsed)?;
        let flags = Flags { rejected: true, ..Flags::default() };
        let refusal =
            Frame { kind: Kind::Reply, flags, enhanced: None, private_data: &[], ..frame };
        Some(refusal.encode())
    }
}

/// A received Request, which the passive end has to answer.
#[derive(Debug)]
pub struct Asked {
    crc: bool,
    revision: u8,
    enhanced: Option<Enhanced>,
    rtr: Option<Rtr>,
    private_data: Box<[u8]>,
}

impl Asked {
    /// Returns the private data of the active end.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Returns whether the active end requires CRCs.
    pub const fn asks_crc(&self) -> bool {
        self.crc
    }

    /// Accepts the Request: returns the Reply to send and the agreed parameters.
    ///
    /// Fails if `private_data` exceeds [`PRIVATE_DATA_MAX`].
    pub fn accept(
        &self,
        offer: &Offer,
        private_data: &[u8],
    ) -> Result<(Box<[u8]>, Agreement), Fault> {
        if private_data.len() > PRIVATE_DATA_MAX {
            return Err(Fault::OurPrivateData);
        }
        let mut agreement =
            Agreement { crc: self.crc || offer.crc, ord: offer.ord, ird: offer.ird, rtr: self.rtr };
        let enhanced = self.enhanced.map(|asked| {
            let least = |ours: u32, theirs: Option<u32>| theirs.map_or(ours, |t| ours.min(t));
            agreement.ord = least(offer.ord, asked.depth(asked.ird));
            agreement.ird = least(offer.ird, asked.depth(asked.ord));
            let (model, rtr) = match self.rtr {
                None => (0, 0),
                Some(Rtr::Write) => (PEER_TO_PEER, RTR_WRITE),
                Some(Rtr::Read) => (PEER_TO_PEER, RTR_READ),
                Some(Rtr::Send) => (PEER_TO_PEER | RTR_SEND, 0),
            };
            // A depth that the peer does not negotiate here is not negotiated by us either.
            let word = |depth: u32, asked: Option<u32>| asked.map_or(DEPTH_MASK, |_| clamp(depth));
            let ird = word(agreement.ird, asked.depth(asked.ord));
            let ord = word(agreement.ord, asked.depth(asked.ird));
            Enhanced { ird: ird | model, ord: ord | rtr }
        });
        let flags = Flags { crc: agreement.crc, ..Flags::default() };
        let revision = self.revision;
        let frame = Frame { kind: Kind::Reply, flags, revision, enhanced, private_data };
        Ok((frame.encode(), agreement))
    }

    /// Rejects the Request: returns the Reply to send, with as much of `private_data` as fits.
    pub fn reject(&self, private_data: &[u8]) -> Box<[u8]> {
        let fits = private_data.len().min(PRIVATE_DATA_MAX);
        Frame {
            kind: Kind::Reply,
            flags: Flags { crc: self.crc, rejected: true, ..Flags::default() },
            revision: self.revision,
            enhanced: self.enhanced.map(|_| Enhanced { ird: 0, ord: 0 }),
            private_data: private_data.get(..fits).unwrap_or_default(),
        }
        .encode()
    }
}

#[cfg(test)]
mod tests;
