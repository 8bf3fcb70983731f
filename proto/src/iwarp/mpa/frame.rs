//! The frames of MPA's connection setup.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::fault::Fault;
use crate::xdr::{Reader, Truncated, Writer};

/// A Request or Reply frame (RFC 5044 section 7.1.1): KFRL.
///
/// Wire: key 16 octets, flags `M C R S rsvd(4)`, revision u8, private data length u16, private data.
/// With S set the private data starts with the Enhanced data: IRD u16, ORD u16 (RFC 6581 section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Whether the frame is a Request or a Reply.
    pub kind: Kind,
    /// The flags M, C and R.
    pub flags: Flags,
    /// The MPA revision.
    pub revision: u8,
    /// The Enhanced data, if S is set.
    pub enhanced: Option<Enhanced>,
    /// The private data of the consumer, after the Enhanced data.
    pub private_data: &'a [u8],
}

/// The two frames of a connection setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The Request of the active end.
    Request,
    /// The Reply of the passive end.
    Reply,
}

/// The flags of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// M: the sender requires markers in the frames it receives.
    pub markers: bool,
    /// C: the sender requires CRCs.
    pub crc: bool,
    /// R: the connection is refused.
    pub rejected: bool,
}

/// The Enhanced data: two words, each with two control bits and a 14-bit depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enhanced {
    /// Control flags A and B, and the number of Reads that the sender serves at once.
    pub ird: u16,
    /// Control flags C and D, and the number of Reads that the sender wants to have outstanding.
    pub ord: u16,
}

/// The first FPDU of an active end that agreed to be ready to receive (RFC 6581 section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rtr {
    /// A zero-length RDMA Write.
    Write,
    /// A zero-length RDMA Read.
    Read,
    /// A zero-length Send, which uses no Receive.
    Send,
}

impl Enhanced {
    /// Returns the depth in `word`; `None` if all its bits are ones, which means that the depth is
    /// not negotiated.
    pub fn depth(self, word: u16) -> Option<u32> {
        let depth = word & DEPTH_MASK;
        (depth != DEPTH_MASK).then(|| u32::from(depth))
    }

    pub(super) fn choose_rtr(self) -> Option<Rtr> {
        if self.ord & RTR_WRITE != 0 {
            Some(Rtr::Write)
        } else if self.ord & RTR_READ != 0 {
            Some(Rtr::Read)
        } else {
            (self.ird & RTR_SEND != 0).then_some(Rtr::Send)
        }
    }
}

impl<'a> Frame<'a> {
    /// Parses a frame of the expected kind. Returns `None` if more octets are needed.
    pub fn decode(kind: Kind, bytes: &'a [u8]) -> Result<Option<Self>, Fault> {
        let key = kind.key();
        if bytes.iter().zip(key).any(|(got, wanted)| got != wanted) {
            return Err(Fault::NotMpa);
        }
        let mut r = Reader::new(bytes);
        let Ok((flags, revision, length)) = Self::fixed(&mut r) else { return Ok(None) };
        if !(REVISION_MIN..=REVISION).contains(&revision) {
            return Err(Fault::Revision);
        }
        if length > FRAME_DATA_MAX {
            return Err(Fault::PrivateData);
        }
        let Ok(mut private_data) = r.take(length) else { return Ok(None) };
        let mut enhanced = None;
        if revision == REVISION && flags & FLAG_ENHANCED != 0 {
            let (words, rest) =
                private_data.split_first_chunk::<ENHANCED_LEN>().ok_or(Fault::PrivateData)?;
            let [a, b, c, d] = *words;
            enhanced =
                Some(Enhanced { ird: u16::from_be_bytes([a, b]), ord: u16::from_be_bytes([c, d]) });
            private_data = rest;
        }
        let flags = Flags {
            markers: flags & FLAG_MARKERS != 0,
            crc: flags & FLAG_CRC != 0,
            // In a Request the bit has no meaning and is not judged (RFC 5044 section 7.1.1).
            rejected: kind == Kind::Reply && flags & FLAG_REJECTED != 0,
        };
        Ok(Some(Self { kind, flags, revision, enhanced, private_data }))
    }

    /// Returns the length of the whole frame in octets.
    pub const fn wire_len(&self) -> usize {
        let enhanced = if self.enhanced.is_some() { ENHANCED_LEN } else { 0 };
        self.private_data.len().saturating_add(enhanced).saturating_add(FIXED_LEN)
    }

    fn fixed(r: &mut Reader<'_>) -> Result<(u8, u8, usize), Truncated> {
        r.take(KEY_LEN)?;
        let [flags, revision, high, low] = r.array()?;
        Ok((flags, revision, usize::from(u16::from_be_bytes([high, low]))))
    }

    pub(super) fn encode(&self) -> Box<[u8]> {
        let mut room = [0; FIXED_LEN + FRAME_DATA_MAX];
        let mut w = Writer::new(&mut room);
        let written = self.write(&mut w);
        debug_assert!(written.is_ok(), "private data was bounded before");
        Box::from(w.written())
    }

    fn write(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        let length = self.wire_len().saturating_sub(FIXED_LEN);
        let length = u16::try_from(length).map_err(|_| Truncated { at: w.position() })?;
        let bit = |on: bool, flag: u8| if on { flag } else { 0 };
        w.put(self.kind.key())?;
        w.put([
            bit(self.flags.markers, FLAG_MARKERS)
                | bit(self.flags.crc, FLAG_CRC)
                | bit(self.flags.rejected, FLAG_REJECTED)
                | bit(self.enhanced.is_some(), FLAG_ENHANCED),
            self.revision,
        ])?;
        w.put(length.to_be_bytes())?;
        if let Some(enhanced) = self.enhanced {
            w.put(enhanced.ird.to_be_bytes())?;
            w.put(enhanced.ord.to_be_bytes())?;
        }
        w.put(self.private_data)
    }
}

impl Kind {
    const fn key(self) -> &'static [u8; KEY_LEN] {
        match self {
            Self::Request => b"MPA ID Req Frame",
            Self::Reply => b"MPA ID Rep Frame",
        }
    }
}

/// Moves octets from `bytes` to `gathered` up to the end of a frame, and parses the frame once it
/// is complete.
pub(in crate::iwarp) fn gather<'a>(
    kind: Kind,
    gathered: &'a mut Vec<u8>,
    bytes: &mut &[u8],
) -> Result<Option<Frame<'a>>, Fault> {
    loop {
        let wanted = match gathered.get(KEY_LEN.saturating_add(2)..FIXED_LEN) {
            Some(&[high, low]) => {
                FIXED_LEN.saturating_add(usize::from(u16::from_be_bytes([high, low])))
            }
            _ => FIXED_LEN,
        };
        let missing = wanted.saturating_sub(gathered.len());
        let taken = bytes.split_at_checked(missing.min(bytes.len()));
        let Some((taken, rest)) = taken else { return Ok(None) };
        gathered.extend_from_slice(taken);
        *bytes = rest;
        // An error here ends the handshake before a length it announced is ever gathered.
        let complete = Frame::decode(kind, gathered)?.is_some();
        if complete || taken.is_empty() {
            break;
        }
    }
    Frame::decode(kind, gathered)
}

/// Limits a depth to 14 bits, below the value that means "not negotiated".
pub(super) fn clamp(depth: u32) -> u16 {
    const MOST: u16 = DEPTH_MASK - 1;
    u16::try_from(depth).map_or(MOST, |d| d.min(MOST))
}

pub(super) const KEY_LEN: usize = 16;
pub(super) const FIXED_LEN: usize = 20;
pub(super) const FRAME_DATA_MAX: usize = 512;
pub(super) const ENHANCED_LEN: usize = 4;

pub(super) const REVISION_MIN: u8 = 1;
pub(super) const REVISION: u8 = 2;

pub(super) const FLAG_MARKERS: u8 = 0x80;
pub(super) const FLAG_CRC: u8 = 0x40;
pub(super) const FLAG_REJECTED: u8 = 0x20;
pub(super) const FLAG_ENHANCED: u8 = 0x10;

/// Control flag A, with the IRD: peer-to-peer model.
pub const PEER_TO_PEER: u16 = 0x8000;
/// Control flag B, with the IRD: zero-length Send.
pub const RTR_SEND: u16 = 0x4000;
/// Control flag C, with the ORD: zero-length RDMA Write.
pub const RTR_WRITE: u16 = 0x8000;
/// Control flag D, with the ORD: zero-length RDMA Read.
pub const RTR_READ: u16 = 0x4000;
pub(super) const DEPTH_MASK: u16 = 0x3fff;
