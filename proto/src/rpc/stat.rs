//! The status of a Call in its Reply (RFC 5531 section 9).

/// The status of an accepted Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptStat {
    /// The Call was executed, and its results follow.
    Success,
    /// The server does not have the program.
    ProgUnavail,
    /// The server has other versions of the program.
    ProgMismatch {
        /// The lowest version.
        low: u32,
        /// The highest version.
        high: u32,
    },
    /// The program does not have the procedure.
    ProcUnavail,
    /// The arguments could not be decoded.
    GarbageArgs,
    /// The server failed.
    SystemErr,
}

/// Why a Call was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectStat {
    /// The server has other versions of RPC.
    RpcMismatch {
        /// The lowest version.
        low: u32,
        /// The highest version.
        high: u32,
    },
    /// The caller is not authenticated; the value is `auth_stat`.
    AuthError(u32),
}
