//! The faults of an MPA handshake.

use core::fmt;

use crate::iwarp::fault::{self as iwarp, Code};

/// Why a handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The octets are not an MPA frame of the expected kind.
    NotMpa,
    /// The MPA revision is not supported, or higher than this end requested.
    Revision,
    /// The peer requires markers.
    Markers,
    /// The private data is longer than 512 octets, or too short for the Enhanced data announced.
    PrivateData,
    /// The peer sent further octets before this end's Reply.
    Early,
    /// The peer asks for more outstanding Reads than this end offered.
    InsufficientIrd,
    /// The ends have no ready-to-receive (RTR) message in common.
    NoRtr,
    /// The private data of this end is too long.
    OurPrivateData,
}

impl Fault {
    /// Returns the fault in words.
    pub const fn rule(self) -> &'static str {
        match self {
            Self::NotMpa => "not an MPA frame",
            Self::Revision => "MPA revision",
            Self::Markers => "MPA markers are not supported",
            Self::PrivateData => "MPA private data length",
            Self::Early => "octets before our MPA Reply",
            Self::InsufficientIrd => "more Reads asked for than offered",
            Self::NoRtr => "no ready-to-receive indication in common",
            Self::OurPrivateData => "our private data is too long",
        }
    }

    /// Returns the code of the Terminate that an active end sends for a fault in a Reply.
    pub const fn code(self) -> Option<Code> {
        match self {
            Self::InsufficientIrd => Some(iwarp::Fault::InsufficientIrd.code()),
            Self::NoRtr => Some(Code { layer: 2, etype: 0, code: 7 }),
            _ => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.rule())
    }
}

impl core::error::Error for Fault {}
