//! Why Calls fail.

use std::fmt;

use haulage_proto::negotiate::{CloseReason, Refusal as TransportError};
use haulage_proto::rpc::AcceptStat;
use haulage_proto::{v1, v2};
use thiserror::Error;

use super::unsupported::Unsupported;
use crate::hosts::HostRefusal;

/// Why a Call of ours failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CallError {
    /// No Reply came in time. Whether the Call was carried out is unknown.
    #[error("no reply in time")]
    TimedOut,
    /// The connection could not be made.
    #[error("cannot connect: {0}")]
    Connect(crate::provider::ConnectError),
    /// The connection was lost. Whether the Call was carried out is unknown.
    #[error("disconnected: {0}")]
    Disconnected(String),
    /// The connection was lost before it was ready: the peer is no such peer, or does not let this host in. No Call was
    /// carried out.
    #[error("disconnected before the connection was ready: {0}")]
    Unready(String),
    /// The server's RPC layer did not accept the Call.
    #[error(fmt = rejected)]
    Rejected(AcceptStat),
    /// The server's RPC layer denied the Call.
    #[error("the server denied the call")]
    Denied,
    /// The peer's transport could not act on the Call. On version 2 this is its last error, after as many tries in other
    /// forms as its errors, the binding and the memory of the pool allow: four at most.
    #[error("the peer's transport refused the call: {0}")]
    Refused(TransportError),
    /// The Reply breaks this rule.
    #[error("bad reply: {0}")]
    BadReply(&'static str),
    /// The connection ended because of the host at the other end: who it is, or that it does not prove that.
    #[error(transparent)]
    Host(HostRefusal),
    /// Host authentication is required, and no version with it is to be spoken.
    #[error("host authentication is required, and version 1, the only one to be spoken, has none")]
    NoVersion,
    /// The caller asked for something the binding does not allow.
    #[error("the binding does not allow this item to be reduced")]
    NotEligible,
    /// An argument with a lease of its own is not where the request says: the others are not in order, or the word that stays
    /// does not describe it.
    #[error("an argument with a lease of its own is not where the request says")]
    Misplaced,
    /// The arguments beside those to be reduced are longer than this end's buffer for one message.
    #[error("the arguments are longer than one message can be")]
    TooLong,
    /// The arguments are longer than one message, and than the segments that the peer takes.
    #[error("the arguments are longer than the segments that the peer takes")]
    Segments,
    /// The longest Reply fits neither a message nor a Reply chunk.
    #[error("the reply may be longer than can be conveyed")]
    ReplyTooLong,
    /// Every slot, buffer or registration is in use; try again after a Reply.
    #[error("too many calls in flight")]
    Busy,
    /// The core's pool has no room for a lease that the Call needs; try again when leases have gone home.
    #[error("the core's memory pool has no room")]
    NoMemory,
    /// The provider exposes no memory to this peer: over `shm`, a server to its clients unless it is configured to.
    #[error("the call needs memory that the provider does not expose to this peer")]
    NotExposed,
    /// [`RemoteClient::ended`](crate::remote::RemoteClient::ended) was called while no Call was under way.
    #[error("no call is under way")]
    NothingBegun,
    /// This end closed the connection, or the core is shutting down or gone.
    #[error("the connection is closed, or the core is shut down")]
    Closed,
    /// The connection is another core's. Post to the service of that core, which can make the Call.
    #[error("the connection belongs to core {0}: post to it, and have it make the call")]
    Elsewhere(crate::core_number::CoreNumber),
    /// The peer made the connection, and the service has no [`callbacks`](crate::core::Service::callbacks).
    #[error("this end accepted the connection, and its service declares no calls to clients")]
    NoReverse,
    /// The peer made the connection, and announced that it serves no Calls, or none that take chunks or several messages
    /// as this one does. Version 1 has no announcement, and no Call of a server that takes chunks.
    #[error("the client announced that it does not take such calls")]
    NotAnnounced,
    /// The procedure never has a Reply, and the connection is of version 1, where every Call has one.
    #[error("this procedure has no reply, and version 1 has no such calls")]
    CallOnly,
    /// The binding of the connection, or of a program to be served on it, declares something that this runtime does not support.
    #[error(transparent)]
    Unsupported(Unsupported),
    /// The connection was to serve one version of a program twice.
    #[error("version {version} of program {program} is to be served twice: serve it once")]
    Twice {
        /// Program number.
        program: u32,
        /// Program version.
        version: u32,
    },
}

impl From<CloseReason> for CallError {
    fn from(reason: CloseReason) -> Self {
        match reason {
            CloseReason::Two(v2::connection::CloseReason::Unauthenticated) => {
                Self::Host(HostRefusal::Unproven)
            }
            CloseReason::Two(v2::connection::CloseReason::HostAuth(why)) => {
                Self::Host(HostRefusal::Refused { why, claimed: None })
            }
            CloseReason::Neither { .. }
            | CloseReason::One(v1::connection::CloseReason::Unsupported { .. }) => {
                Self::Unready(reason.to_string())
            }
            _ => Self::Disconnected(reason.to_string()),
        }
    }
}

/// Says that the server's RPC layer did not accept a Call.
fn rejected(why: &AcceptStat, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match why {
        AcceptStat::ProgUnavail => f.write_str("the server does not serve this program"),
        AcceptStat::ProgMismatch { low, high } => {
            write!(f, "the server serves versions {low} to {high} of this program")
        }
        AcceptStat::ProcUnavail => f.write_str("the server does not know this procedure"),
        AcceptStat::GarbageArgs => f.write_str("the server could not parse the arguments"),
        _ => f.write_str("the server failed"),
    }
}
