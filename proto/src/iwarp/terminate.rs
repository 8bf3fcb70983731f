//! The Terminate that tells a peer which of iWARP's rules it broke.

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
    /// Why, as RFC 5040 reads it. Linux siw swaps the nibbles of the first octet, and the swapped form
    /// can be a legal one: report both readings ([`Code::swapped`]), act on neither.
    pub code: Code,
}

impl Terminate {
    /// Most octets [`Self::encode`] writes.
    pub const WIRE_MAX: usize = 4 + 2 + ddp::Header::UNTAGGED_LEN + ReadRequest::WIRE_LEN;
    /// Fewest octets of a Terminate: its control word.
    pub const WIRE_MIN: usize = 4;

    /// Parses the control word; what follows it only repeats our own segment.
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

/// The segment a Terminate is about.
#[derive(Clone, Copy, Debug)]
pub struct Quote<'a> {
    /// Octets of the DDP segment: its ULPDU length.
    pub length: u16,
    /// Its DDP header.
    pub ddp: &'a [u8],
    /// Its RDMAP header: the body of a Read Request, else empty.
    pub rdmap: &'a [u8],
}

const QUOTES_LENGTH: u8 = 0x80;
const QUOTES_DDP: u8 = 0x40;
const QUOTES_RDMAP: u8 = 0x20;
