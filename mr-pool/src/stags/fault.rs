//! Why an RNIC refuses an access.

use std::fmt;

/// Why an access was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StagFault {
    /// No registration has this handle.
    InvalidStag,
    /// The registration belongs to another queue pair.
    NotYours,
    /// The registration does not grant this access.
    AccessViolation,
    /// The octets are not all in the registration.
    BaseOrBounds,
    /// The end of the octets exceeds 2^64.
    OffsetWraps,
}

impl fmt::Display for StagFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidStag => "no such registration",
            Self::NotYours => "the registration belongs to another queue pair",
            Self::AccessViolation => "the registration does not grant this access",
            Self::BaseOrBounds => "outside the registration",
            Self::OffsetWraps => "the offset wraps",
        })
    }
}

impl std::error::Error for StagFault {}
