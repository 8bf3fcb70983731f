//! The body of `RDMA_ERROR` (RFC 5666 section 4.2).

use core::fmt;

use crate::xdr::{Reader, Truncated, Writer};

/// The body of an `RDMA_ERROR` message: error code and its arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorBody {
    /// `ERR_VERS`: the version is not supported; these versions are.
    Vers {
        /// The lowest supported version.
        low: u32,
        /// The highest supported version.
        high: u32,
    },
    /// `ERR_CHUNK`: any other fault of a transport header. It is sent without further octets (E26).
    Chunk,
}

impl ErrorBody {
    /// Returns the error code on the wire.
    pub const fn code(&self) -> u32 {
        match self {
            Self::Vers { .. } => 1,
            Self::Chunk => 2,
        }
    }

    /// Returns the name of the error code in RFC 5666.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Vers { .. } => "ERR_VERS",
            Self::Chunk => "ERR_CHUNK",
        }
    }

    /// Parses the body. Returns `None` for an unknown error code.
    pub fn decode(r: &mut Reader<'_>) -> Result<Option<Self>, Truncated> {
        Ok(Some(match r.u32()? {
            1 => Self::Vers { low: r.u32()?, high: r.u32()? },
            2 => {
                // RFC 5666 has eight meaningless words here; peers that follow RFC 8166 send none.
                let mut extra = *r;
                if extra.take(EXTRA_LEN).is_ok() {
                    *r = extra;
                }
                Self::Chunk
            }
            _ => return Ok(None),
        }))
    }

    /// Appends the body to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        w.u32(self.code())?;
        match *self {
            Self::Vers { low, high } => {
                w.u32(low)?;
                w.u32(high)
            }
            Self::Chunk => Ok(()),
        }
    }
}

impl fmt::Display for ErrorBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vers { low, high } => write!(f, "it speaks versions {low} to {high}"),
            Self::Chunk => f.write_str("it could not act on the transport header"),
        }
    }
}

/// The length of `rdma_extra` in octets.
const EXTRA_LEN: usize = 32;
