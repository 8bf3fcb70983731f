//! Reports of a provider: completions, the life of connections, and the user at their other end.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use haulage_proto::iwarp::terminate::Code;
use haulage_proto::verbs::QpNum;
use thiserror::Error;

use crate::cores::deal::Place;
use crate::sys::process;
use crate::work::{Done, Quiesced};

/// A peer that reached a listener.
pub trait Arrival: Send + fmt::Debug + 'static {
    /// Returns the address of the peer.
    fn peer(&self) -> SocketAddr;

    /// Returns the process at the other end, if it is on this machine and the provider knows it.
    fn process(&self) -> Option<u32> {
        None
    }
}

/// An event that a provider reports.
#[derive(Debug)]
pub enum Event<L> {
    /// A work request ended.
    Completion(Done),
    /// A peer that was adopted requests a connection; answer it with [`Provider::answer`](super::Provider::answer).
    Request {
        /// The listener that the peer reached, as it is named by the provider that took the peer from it.
        listener: L,
        /// The queue pair of the connection, if it is accepted.
        qp: QpNum,
        /// The address of the peer.
        peer: SocketAddr,
        /// The process at the other end, if it is on this machine and the provider knows it.
        process: Option<u32>,
        /// The private data of the peer's request.
        private_data: Box<[u8]>,
        /// The place that the peer was adopted with.
        place: Place,
    },
    /// The connection carries messages now.
    Established {
        /// The queue pair.
        qp: QpNum,
        /// The private data of the passive end's answer; empty at the passive end itself.
        private_data: Box<[u8]>,
        /// RDMA Reads we may have outstanding.
        ord: u32,
        /// RDMA Reads the peer may have outstanding.
        ird: u32,
    },
    /// Connection setup failed. No other event of `qp` follows.
    Failed {
        /// The queue pair that `connect` returned.
        qp: QpNum,
        /// The reason of the failure.
        reason: ConnectError,
    },
    /// The connection is gone; flushed completions and `Quiesced` follow.
    Disconnected {
        /// The queue pair.
        qp: QpNum,
        /// The reason of the end.
        reason: DisconnectReason,
    },
    /// The provider holds nothing of the connection any more.
    Quiesced(Quiesced),
}

/// The reason that a connection could not be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConnectError {
    /// Nothing listens at the address.
    #[error("connection refused")]
    Refused,
    /// The peer did not finish the handshake in time.
    #[error("connection setup timed out")]
    TimedOut,
    /// The peer rejected the connection.
    #[error("the peer rejected the connection")]
    Rejected,
    /// The peer broke the rules of the handshake: this one.
    #[error("bad handshake: {0}")]
    BadHandshake(&'static str),
    /// The system reported an error.
    #[error("{0}")]
    System(io::ErrorKind),
    /// All queue pairs are in use.
    #[error("no queue pair is free")]
    NoQueuePair,
    /// The system does not allow this many octets of memory to be registered for the connection.
    #[error("cannot register {} bytes of memory for one more connection{}", .0, memlock())]
    Memory(u64),
}

/// The reason that a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisconnectReason {
    /// We asked for it.
    Local,
    /// The peer closed in order. Whether it has all messages that were sent to it is unknown.
    Peer,
    /// The peer closed in order, and has all messages that were sent to it: its end of the network has acknowledged
    /// them, and nothing waited to be sent.
    PeerHasAll,
    /// The peer, or the network to it, failed.
    Lost,
    /// The peer broke the RDMA protocol; we told it which rule.
    PeerMisbehaved(&'static str),
    /// The peer says we broke the RDMA protocol: layer, error type and code of its Terminate.
    Terminated {
        /// RDMAP, DDP or MPA.
        layer: u8,
        /// Error type within the layer.
        etype: u8,
        /// Error code within the type.
        code: u8,
    },
    /// The peer made no progress for this long with work that waits for it.
    NoProgress(Stall, Duration),
    /// The peer sent too many FPDUs that deliver nothing (RFC 5042 section 6.4).
    Flooded,
}

/// Work that waits for a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// An RDMA Read of ours is unanswered.
    Read,
    /// Our output is not taken.
    Output,
    /// A message, or an FPDU, has begun and is not complete.
    Message,
}

impl fmt::Display for DisconnectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("closed by us"),
            Self::Peer | Self::PeerHasAll => f.write_str("closed by the peer"),
            Self::Lost => f.write_str("connection lost"),
            Self::PeerMisbehaved(rule) => write!(f, "the peer broke the protocol: {rule}"),
            Self::NoProgress(stall, limit) => {
                let what = match stall {
                    Stall::Read => "the peer does not answer an RDMA Read",
                    Stall::Output => "the peer does not take our output",
                    Stall::Message => "the peer does not complete a message",
                };
                write!(f, "no progress for {} s: {what}", limit.as_secs_f64())
            }
            Self::Flooded => f.write_str("the peer floods us with messages that deliver nothing"),
            Self::Terminated { layer, etype, code } => {
                let told = Code { layer: *layer, etype: *etype, code: *code };
                write!(f, "terminated by the peer ({told})")?;
                // The message does not tell whether its sender swaps layer and error type, as Linux siw does.
                match told.swapped().filter(|meant| meant.rule().is_some()) {
                    Some(meant) => write!(f, ", by which Linux siw means {meant}"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// Returns how to lift the limit of locked memory, for the end of a message; empty without a limit.
fn memlock() -> String {
    process::memlock_limit().map_or_else(String::new, |limit| {
        format!(
            "; memlock allows {limit} in all: `prlimit --pid $$ --memlock=unlimited:unlimited` as \
             root lifts that"
        )
    })
}
