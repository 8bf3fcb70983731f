//! Why Calls fail.

use std::fmt;

use haulage_proto::negotiate::{CloseReason, Refusal as TransportError};
use haulage_proto::rpc::AcceptStat;

use crate::core::Unsupported;

/// Why a Call of ours failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// No Reply came in time. Whether the Call was carried out is unknown.
    TimedOut,
    /// The connection could not be made.
    Connect(crate::provider::ConnectError),
    /// The connection was lost. Whether the Call was carried out is unknown.
    Disconnected(String),
    /// The server's RPC layer did not accept the Call.
    Rejected(AcceptStat),
    /// The server's RPC layer denied the Call.
    Denied,
    /// The peer's transport could not act on the Call.
    Refused(TransportError),
    /// The Reply breaks this rule.
    BadReply(&'static str),
    /// The caller asked for something the binding does not allow.
    NotEligible,
    /// The arguments fit neither a message nor a Call chunk.
    TooLong,
    /// The longest Reply fits neither a message nor a Reply chunk.
    ReplyTooLong,
    /// Every slot, buffer or registration is in use; try again after a Reply.
    Busy,
    /// The core's pool has no room for a lease that the Call needs; try again when leases have gone home.
    NoMemory,
    /// [`RemoteClient::ended`](crate::remote::RemoteClient::ended) was called while no Call was under way.
    NothingBegun,
    /// This end closed the connection, or the core is shutting down or gone.
    Closed,
    /// The peer made the connection, and Calls go from the end that connects: reverse-direction Calls are not built.
    NoReverse,
    /// The connection's binding declares something that this runtime does not support.
    Unsupported(Unsupported),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str("no reply in time"),
            Self::Connect(reason) => write!(f, "cannot connect: {reason}"),
            Self::Disconnected(reason) => write!(f, "disconnected: {reason}"),
            Self::Rejected(AcceptStat::ProgUnavail) => {
                f.write_str("the server does not serve this program")
            }
            Self::Rejected(AcceptStat::ProgMismatch { low, high }) => {
                write!(f, "the server serves versions {low} to {high} of this program")
            }
            Self::Rejected(AcceptStat::ProcUnavail) => {
                f.write_str("the server does not know this procedure")
            }
            Self::Rejected(AcceptStat::GarbageArgs) => {
                f.write_str("the server could not parse the arguments")
            }
            Self::Rejected(_) => f.write_str("the server failed"),
            Self::Denied => f.write_str("the server denied the call"),
            Self::Refused(error) => write!(f, "the peer's transport refused the call: {error}"),
            Self::BadReply(rule) => write!(f, "bad reply: {rule}"),
            Self::NotEligible => f.write_str("the binding does not allow this item to be reduced"),
            Self::TooLong => f.write_str("the arguments are longer than one message can be"),
            Self::ReplyTooLong => f.write_str("the reply may be longer than can be conveyed"),
            Self::Busy => f.write_str("too many calls in flight"),
            Self::NoMemory => f.write_str("the core's memory pool has no room"),
            Self::NothingBegun => f.write_str("no call is under way"),
            Self::Closed => f.write_str("the connection is closed, or the core is shut down"),
            Self::NoReverse => f.write_str(
                "this end accepted the connection, and only the end that connects makes calls",
            ),
            Self::Unsupported(what) => what.fmt(f),
        }
    }
}

impl std::error::Error for CallError {}

impl From<CloseReason> for CallError {
    fn from(reason: CloseReason) -> Self {
        Self::Disconnected(reason.to_string())
    }
}
