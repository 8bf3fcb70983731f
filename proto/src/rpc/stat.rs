//! What becomes of a Call, as a Reply says it (RFC 5531 section 9).

/// What came of an accepted Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptStat {
    /// Results follow.
    Success,
    /// The program is not served.
    ProgUnavail,
    /// The program is served in other versions.
    ProgMismatch {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// The procedure is unknown.
    ProcUnavail,
    /// The arguments make no sense.
    GarbageArgs,
    /// The server failed.
    SystemErr,
}

/// Why a Call was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectStat {
    /// RPC is spoken in other versions.
    RpcMismatch {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// The caller is not believed: `auth_stat`.
    AuthError(u32),
}
