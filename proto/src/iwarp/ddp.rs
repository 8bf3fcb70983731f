//! DDP segment headers (RFC 5041 section 4).
//!
//! Every segment starts with one control octet: `T L rsvd(4) DV(2)`. A tagged segment names its
//! place by STag and offset; an untagged one by queue, message number and offset in the message.

use super::fault::Fault;
use crate::verbs::Handle;
use crate::xdr::{Reader, Truncated, Writer};

/// The DDP version (RFC 5041 section 4.1).
pub const VERSION: u8 = 1;

/// The header of a DDP segment.
///
/// Wire, tagged: control u8, ULP u8, STag u32, TO u64.
/// Wire, untagged: control u8, ULP u8 + u32, QN u32, MSN u32, MO u32. All big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// This segment is the last of its message (the L flag).
    pub last: bool,
    /// The octet reserved for RDMAP.
    pub ulp: u8,
    /// The placement of the payload.
    pub placement: SegmentPlacement,
}

/// The placement of a segment's payload: by which of the two buffer models of DDP, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentPlacement {
    /// Tagged: the payload belongs into a buffer that the receiver advertised.
    Tagged {
        /// The STag of that buffer.
        handle: Handle,
        /// The tagged offset (TO).
        offset: u64,
    },
    /// Untagged: the payload belongs into the buffer that the receiver posted for this message.
    Untagged {
        /// The four octets reserved for RDMAP.
        ulp: u32,
        /// Queue number (QN).
        queue: u32,
        /// Message sequence number (MSN), from 1.
        msn: u32,
        /// The message offset (MO): the number of octets of the message before this segment.
        offset: u32,
    },
}

impl Header {
    /// The length of a tagged header in octets.
    pub const TAGGED_LEN: usize = 14;
    /// The length of an untagged header in octets.
    pub const UNTAGGED_LEN: usize = 18;

    /// Returns the length of the header that starts with `control`.
    pub const fn length(control: u8) -> usize {
        if control & TAGGED != 0 { Self::TAGGED_LEN } else { Self::UNTAGGED_LEN }
    }

    /// Parses a header. Reserved bits are ignored (RFC 5041 section 4.2).
    #[inline]
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let short = |_: Truncated| Fault::UlpduLength;
        let [control, ulp] = r.array().map_err(short)?;
        let tagged = control & TAGGED != 0;
        if control & VERSION_MASK != VERSION {
            return Err(if tagged { Fault::DdpVersionTagged } else { Fault::DdpVersionUntagged });
        }
        let placement = if tagged {
            SegmentPlacement::Tagged {
                handle: Handle(r.u32().map_err(short)?),
                offset: r.u64().map_err(short)?,
            }
        } else {
            SegmentPlacement::Untagged {
                ulp: r.u32().map_err(short)?,
                queue: r.u32().map_err(short)?,
                msn: r.u32().map_err(short)?,
                offset: r.u32().map_err(short)?,
            }
        };
        Ok(Self { last: control & LAST != 0, ulp, placement })
    }

    /// Appends the header to `w`.
    #[inline]
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        let last = if self.last { LAST } else { 0 };
        match self.placement {
            SegmentPlacement::Tagged { handle, offset } => {
                w.put([TAGGED | last | VERSION, self.ulp])?;
                w.u32(handle.0)?;
                w.u64(offset)
            }
            SegmentPlacement::Untagged { ulp, queue, msn, offset } => {
                w.put([last | VERSION, self.ulp])?;
                w.u32(ulp)?;
                w.u32(queue)?;
                w.u32(msn)?;
                w.u32(offset)
            }
        }
    }
}

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const VERSION_MASK: u8 = 0x03;
