//! The body of `RDMA2_ERROR` (version 2, sections 6.3.1 and 7).

use core::fmt;

use crate::rpc::Violation;
use crate::xdr::{Reader, Truncated, Writer};

/// The body of an `RDMA2_ERROR` message: HEA, error code and its arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorBody {
    /// `RDMA2_ERR_VERS`: the version is not supported; these versions are.
    Vers {
        /// The lowest supported version.
        low: u32,
        /// The highest supported version.
        high: u32,
    },
    /// `RDMA2_ERR_BAD_XDR`: the transport header could not be decoded.
    BadXdr,
    /// `RDMA2_ERR_BAD_PROPVAL`: a known property has an impossible value.
    BadPropval,
    /// `RDMA2_ERR_INVAL_HTYPE`: the header type is unknown or not supported.
    InvalHtype,
    /// `RDMA2_ERR_INVAL_CONT`: the message does not continue the current continued message.
    InvalCont,
    /// `RDMA2_ERR_READ_CHUNKS`: the Call has more Read chunks than the Responder accepts.
    ReadChunks {
        /// The number that it accepts.
        max: u32,
    },
    /// `RDMA2_ERR_WRITE_CHUNKS`: the Call has more Write chunks than the Responder accepts.
    WriteChunks {
        /// The number that it accepts.
        max: u32,
    },
    /// `RDMA2_ERR_SEGMENTS`: a chunk has more segments than the Responder accepts.
    Segments {
        /// The number that it accepts.
        max: u32,
    },
    /// `RDMA2_ERR_WRITE_RESOURCE`: a Write chunk is too short for its result.
    WriteResource {
        /// The number of the first such chunk, from 1; 0 if it is unknown.
        chunk_index: u32,
        /// The length that the result needs, in octets.
        length_needed: u32,
    },
    /// `RDMA2_ERR_REPLY_RESOURCE`: the Reply does not fit the resources offered.
    ReplyResource {
        /// The length that the Reply chunk needs, in octets.
        length_needed: u32,
    },
    /// `RDMA2_ERR_VERS_MISMATCH`: the version is not the one that the connection has settled on.
    VersMismatch,
    /// `RDMA2_ERR_SYSTEM`: any other error.
    System,
}

impl ErrorBody {
    /// Returns the error code on the wire (E8: one word).
    pub const fn code(&self) -> u32 {
        match self {
            Self::Vers { .. } => 1,
            Self::BadXdr => 2,
            Self::BadPropval => 3,
            Self::InvalHtype => 4,
            Self::InvalCont => 5,
            Self::ReadChunks { .. } => 6,
            Self::WriteChunks { .. } => 7,
            Self::Segments { .. } => 8,
            Self::WriteResource { .. } => 9,
            Self::ReplyResource { .. } => 10,
            Self::VersMismatch => 11,
            Self::System => 100,
        }
    }

    /// Returns the name of the error code in the draft.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Vers { .. } => "RDMA2_ERR_VERS",
            Self::BadXdr => "RDMA2_ERR_BAD_XDR",
            Self::BadPropval => "RDMA2_ERR_BAD_PROPVAL",
            Self::InvalHtype => "RDMA2_ERR_INVAL_HTYPE",
            Self::InvalCont => "RDMA2_ERR_INVAL_CONT",
            Self::ReadChunks { .. } => "RDMA2_ERR_READ_CHUNKS",
            Self::WriteChunks { .. } => "RDMA2_ERR_WRITE_CHUNKS",
            Self::Segments { .. } => "RDMA2_ERR_SEGMENTS",
            Self::WriteResource { .. } => "RDMA2_ERR_WRITE_RESOURCE",
            Self::ReplyResource { .. } => "RDMA2_ERR_REPLY_RESOURCE",
            Self::VersMismatch => "RDMA2_ERR_VERS_MISMATCH",
            Self::System => "RDMA2_ERR_SYSTEM",
        }
    }

    /// Parses the body. Returns `None` for an unknown error code.
    pub fn decode(r: &mut Reader<'_>) -> Result<Option<Self>, Truncated> {
        Ok(Some(match r.u32()? {
            1 => Self::Vers { low: r.u32()?, high: r.u32()? },
            2 => Self::BadXdr,
            3 => Self::BadPropval,
            4 => Self::InvalHtype,
            5 => Self::InvalCont,
            6 => Self::ReadChunks { max: r.u32()? },
            7 => Self::WriteChunks { max: r.u32()? },
            8 => Self::Segments { max: r.u32()? },
            9 => Self::WriteResource { chunk_index: r.u32()?, length_needed: r.u32()? },
            10 => Self::ReplyResource { length_needed: r.u32()? },
            11 => Self::VersMismatch,
            100 => Self::System,
            //~ V2-7-5: `return Ok(None)` -> `Self::System`
            _ => return Ok(None),
        }))
    }

    /// Appends the body to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        w.u32(self.code())?;
        match *self {
            Self::Vers { low: a, high: b }
            | Self::WriteResource { chunk_index: a, length_needed: b } => {
                w.u32(a)?;
                w.u32(b)
            }
            Self::ReadChunks { max: word }
            | Self::WriteChunks { max: word }
            | Self::Segments { max: word }
            | Self::ReplyResource { length_needed: word } => w.u32(word),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for ErrorBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vers { low, high } => write!(f, "it speaks versions {low} to {high}"),
            Self::BadXdr => f.write_str("it could not parse the transport header"),
            Self::BadPropval => f.write_str("it found an impossible property"),
            Self::InvalHtype => f.write_str("it does not know the header type"),
            Self::InvalCont => f.write_str("the message was out of sequence"),
            Self::ReadChunks { max } => write!(f, "it takes {max} Read chunks"),
            Self::WriteChunks { max } => write!(f, "it takes {max} Write chunks"),
            Self::Segments { max } => write!(f, "it takes {max} segments a chunk"),
            Self::WriteResource { length_needed, .. } => {
                write!(f, "the result needs {length_needed} bytes of room")
            }
            Self::ReplyResource { length_needed } => {
                write!(f, "the reply needs {length_needed} bytes of room")
            }
            Self::VersMismatch => f.write_str("the version changed on the connection"),
            Self::System => f.write_str("a problem of its own"),
        }
    }
}

impl Violation {
    /// Returns the error to answer with on version 2. The answer on version 1 is always
    /// `ERR_CHUNK`.
    pub const fn report(self) -> ErrorBody {
        match self {
            // [V2-7.3.1-1] [V2-7.3.1-2] the maximum is zero for a procedure without an eligible argument.
            //~ V2-7.3.1-1: `ReadChunks { max }` -> `ReadChunks { max: max.saturating_add(1) }`
            Self::Arguments { max } => ErrorBody::ReadChunks { max },
            // [V2-7.3.2-1] [V2-7.3.2-3] the maximum is zero for a procedure without an eligible result: a Responder that has
            // read the RPC header can continue its Reply.
            //~ V2-7.3.2-3: `` -> `Self::Results { max: 0 } => ErrorBody::ReplyResource { length_needed: 0 },`
            //~ V2-7.3.2-1: `WriteChunks { max }` -> `WriteChunks { max: max.saturating_add(1) }`
            Self::Results { max } => ErrorBody::WriteChunks { max },
            Self::TooLong { .. } => ErrorBody::System,
        }
    }
}
