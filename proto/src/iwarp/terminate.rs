//! The Terminate message, which tells a peer the rule of iWARP that it broke.

use super::ddp;
pub use super::fault::{Code, Fault};
use super::rdmap::ReadRequest;
use crate::xdr::{Reader, Truncated, Writer};

/// A Terminate message (RFC 5040 section 4.8).
///
/// Wire: `layer(4) etype(4) code(8) M D R rsvd(13)`, then, if M, the length of the segment at fault;
/// if D, its DDP header; if R, its RDMAP header (only a Read Request has one of its own).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminate {
    /// The reason, as RFC 5040 encodes it. Linux siw swaps the nibbles of the first octet, and the swapped code can be
    /// valid as well: report both readings ([`Code::swapped`]) and act on neither.
    pub code: Code,
}

impl Terminate {
    /// The most octets that [`Self::encode`] writes.
    pub const WIRE_MAX: usize = 4 + 2 + ddp::Header::UNTAGGED_LEN + ReadRequest::WIRE_LEN;
    /// The shortest Terminate, which is its control word, in octets.
    pub const WIRE_MIN: usize = 4;

    /// Parses the control word; the octets after it only repeat a segment of this end.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, Truncated> {
        let [first, code, _, _] = r.array()?;
        Ok(Self { code: Code { layer: first >> 4, etype: first & 0x0f, code } })
    }

    /// Appends a Terminate with `code` that quotes the segment at `fault`, if one is known.
    pub fn encode(
        code: Code,
        fault: Option<&Quote<'_>>,
        w: &mut Writer<'_>,
    ) -> Result<(), Truncated> {
        let header_count = match fault {
            None => 0,
            Some(quote) if quote.rdmap.is_empty() => QUOTES_LENGTH | QUOTES_DDP,
            Some(_) => QUOTES_LENGTH | QUOTES_DDP | QUOTES_RDMAP,
        };
        w.put([code.layer << 4 | code.etype & 0x0f, code.code, header_count, 0])?;
        if let Some(quote) = fault {
            w.put(quote.length.to_be_bytes())?;
            w.put(quote.ddp)?;
            w.put(quote.rdmap)?;
        }
        Ok(())
    }
}

/// The segment that a Terminate is about.
#[derive(Clone, Copy, Debug)]
pub struct Quote<'a> {
    /// The ULPDU length of the DDP segment.
    pub length: u16,
    /// The DDP header of the segment.
    pub ddp: &'a [u8],
    /// The RDMAP header of the segment: the body of a Read Request, else empty.
    pub rdmap: &'a [u8],
}

const QUOTES_LENGTH: u8 = 0x80;
const QUOTES_DDP: u8 = 0x40;
const QUOTES_RDMAP: u8 = 0x20;
