//! Why setup fails.

use crate::v2::host_auth::Refused;

/// Why setup fails. The connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::v2) enum Fault {
    /// Host authentication is required and the peer does not offer it.
    Unauthenticated,
    /// Host authentication failed.
    Refused(Refused),
    /// The exchange takes too many messages or octets.
    TooLong,
}
