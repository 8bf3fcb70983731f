//! Reports every change of a connection's state, and every refusal, to operators.
//!
//! # Normal operation
//! Each event is one `tracing` event of the target `haulage` whose message is a static name, such as
//! `connection.ready`, and whose field `core` is the number of the core. Messages in order cause no event. Without a subscriber an event costs a comparison.
//!
//! A server reports at level WARN the events that its operator may want to act on: connections turned away, connections
//! that broke, and Calls that it could not act on. Everything else has level INFO: at the connecting end, the caller
//! learns of a failure anyway.
//!
//! # Limits
//! A peer that connects and fails without end, or makes one Call after the other that is refused, must not fill a disk:
//! each kind of event has a [`Bucket`], of which each core of a group has a part, and the field `left_out` of an event counts the events of its kind
//! that were left out before it.

use std::fmt::{Debug, Display};
use std::net::SocketAddr;

use haulage_proto::negotiate::Version;
use haulage_proto::time::Instant;
use haulage_proto::v2::connection::Role;
use haulage_proto::v2::error::ErrorBody;
use tracing::Level;

use self::bucket::Bucket;
use crate::core_number::CoreNumber;
use crate::provider::{Accepts, HINT, Seldom};

mod bucket;

/// The event reporter of a core.
#[derive(Debug)]
pub(crate) struct Trace {
    /// The time of the turn.
    now: Instant,
    /// The number of the core.
    core: CoreNumber,
    /// Cores that share the limits.
    cores: u32,
    /// The provider's name.
    provider: &'static str,
    accepted: Bucket,
    ready: Bucket,
    renewed: Bucket,
    refused: Bucket,
    lost: Bucket,
    call_refused: Bucket,
    unaccepted: Seldom,
    replaced: Seldom,
}

/// Reports an event if a subscriber wants it and the bucket has a token.
macro_rules! tell {
    ($trace:ident.$bucket:ident, $level:expr, $name:literal, $($fields:tt)+) => {
        if tracing::enabled!(target: "haulage", $level)
            && let Some(left_out) = $trace.$bucket.take($trace.now, $trace.cores)
        {
            let left_out = (left_out > 0).then_some(left_out);
            let core = $trace.core.get();
            tracing::event!(target: "haulage", $level, $($fields)+, core, left_out, $name);
        }
    };
}

impl Trace {
    /// Makes a reporter whose buckets are full.
    pub(crate) const fn new(core: CoreNumber, provider: &'static str) -> Self {
        Self {
            now: Instant::ZERO,
            core,
            cores: 1,
            provider,
            accepted: Bucket::FULL,
            ready: Bucket::FULL,
            renewed: Bucket::FULL,
            refused: Bucket::FULL,
            lost: Bucket::FULL,
            call_refused: Bucket::FULL,
            unaccepted: Seldom::NEW,
            replaced: Seldom::NEW,
        }
    }

    /// Shares the limits with the other cores of a group: each reports its part.
    pub(crate) fn share_limits(&mut self, cores: usize) {
        self.cores = u32::try_from(cores).unwrap_or(u32::MAX);
    }

    /// Sets the time for the events of a turn.
    #[inline]
    pub(crate) const fn begin_turn(&mut self, now: Instant) {
        self.now = now;
    }

    /// Returns the time of the turn.
    pub(crate) const fn now(&self) -> Instant {
        self.now
    }

    /// Reports that a newcomer was accepted; its setup goes on.
    #[cold]
    pub(crate) fn accepted(&mut self, Subject { conn, peer, .. }: Subject<'_>) {
        let provider = self.provider;
        tell!(self.accepted, Level::INFO, "connection.accepted", ?conn, %peer, provider);
    }

    /// Reports that a newcomer was turned away.
    #[cold]
    pub(crate) fn rejected(&mut self, peer: SocketAddr, reason: &str) {
        let provider = self.provider;
        tell!(self.refused, Level::WARN, "connection.refused", %peer, provider, reason);
    }

    /// Reports that a connection gave way to a newcomer, since there are as many as `most` says, of one origin or of all.
    #[cold]
    pub(crate) fn replaced(&mut self, peer: SocketAddr, of: &'static str, most: u32) {
        let (core, provider) = (self.core.get(), self.provider);
        if self.replaced.passes(self.now, self.cores) {
            tracing::warn!(
                target: "haulage", %peer, provider, of, most, core, hint = MORE_CONNECTIONS, "connection.replaced"
            );
        }
    }

    /// Reports that the machine lacked descriptors or memory for a newcomer.
    #[cold]
    pub(crate) fn unaccepted(&mut self, Accepts { descriptors, memory, .. }: &Accepts) {
        let (core, provider) = (self.core.get(), self.provider);
        if self.unaccepted.passes(self.now, self.cores) {
            tracing::warn!(target: "haulage", provider, descriptors, memory, core, hint = HINT, "accept.failed");
        }
    }

    /// Reports that a connection is ready for Calls.
    #[cold]
    pub(crate) fn ready(
        &mut self,
        Subject { conn, peer, role, host }: Subject<'_>,
        agreed: &Agreed,
    ) {
        let Agreed { version, send_max, receive_max, receives } = *agreed;
        let version = match version {
            Version::One => 1,
            Version::Two => 2,
        };
        let role = match role {
            Role::Client => "client",
            Role::Server => "server",
        };
        let provider = self.provider;
        tell!(
            self.ready, Level::INFO, "connection.ready",
            ?conn, %peer, host, role, version, provider, send_max, receive_max, receives
        );
    }

    /// Reports that a server did not answer version 2, and that its connection begins anew.
    #[cold]
    pub(crate) fn renewed(&mut self, Subject { conn, peer, .. }: Subject<'_>) {
        let provider = self.provider;
        tell!(self.renewed, Level::INFO, "connection.renewed", ?conn, %peer, provider);
    }

    /// Reports that this end could not connect.
    #[cold]
    pub(crate) fn unmade(&mut self, Subject { conn, peer, .. }: Subject<'_>, reason: &dyn Display) {
        let provider = self.provider;
        tell!(self.refused, Level::INFO, "connection.refused", ?conn, %peer, provider, %reason);
    }

    /// Reports that a connection has ended.
    #[cold]
    pub(crate) fn ended(
        &mut self,
        Subject { conn, peer, role, host }: Subject<'_>,
        Traffic { calls_received, replies_received }: Traffic,
        (manner, reason): (Manner, &dyn Display),
    ) {
        match (role, manner) {
            (Role::Server, Manner::Broken) => tell!(
                self.lost, Level::WARN, "connection.lost",
                ?conn, %peer, host, %reason, calls_received, replies_received
            ),
            _ => tell!(
                self.lost, Level::INFO, "connection.lost",
                ?conn, %peer, host, %reason, calls_received, replies_received
            ),
        }
    }

    /// Reports that a Call of the peer was answered with a transport error.
    #[cold]
    pub(crate) fn call_refused(
        &mut self,
        Subject { conn, peer, host, .. }: Subject<'_>,
        (xid, error): (u32, &ErrorBody),
    ) {
        match error {
            // These errors tell a Requester how much room a result needs.
            ErrorBody::WriteResource { .. } | ErrorBody::ReplyResource { .. } => {
                tell!(self.call_refused, Level::INFO, "call.refused", ?conn, %peer, host, xid, %error);
            }
            _ => {
                tell!(self.call_refused, Level::WARN, "call.refused", ?conn, %peer, host, xid, %error)
            }
        }
    }

    /// Reports that a charge for memory was lost: a fault of this runtime, told once.
    #[cold]
    pub(crate) fn charge_lost(&self, octets: usize) {
        let (core, provider) = (self.core.get(), self.provider);
        tracing::error!(target: "haulage", provider, octets, core, "memory.charge_lost");
    }

    /// Reports a message whose transport header is malformed, or of a version that this core does not speak. The latter
    /// is ordinary: the answer tells a client which version to go on with.
    #[cold]
    pub(crate) fn message_refused(
        &mut self,
        Subject { conn, peer, host, .. }: Subject<'_>,
        (manner, error): (Manner, &dyn Display),
    ) {
        match manner {
            Manner::Broken => {
                tell!(self.call_refused, Level::WARN, "call.refused", ?conn, %peer, host, %error);
            }
            Manner::Ordinary => {
                tell!(self.call_refused, Level::INFO, "call.refused", ?conn, %peer, host, %error);
            }
        }
    }
}

/// What an operator may do about connections that give way.
const MORE_CONNECTIONS: &str =
    "have clients make fewer connections, or raise --connections, of which one address has half";

/// The connection that an event is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    /// The name of the connection in this core.
    pub(crate) conn: &'a dyn Debug,
    pub(crate) peer: SocketAddr,
    pub(crate) role: Role,
    /// The host that the other end proved to be, if it did.
    pub(crate) host: Option<&'a str>,
}

/// The terms that both ends of a connection agreed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    pub(crate) version: Version,
    /// Octets of the longest message that we send.
    pub(crate) send_max: u32,
    /// Octets of the longest message that we receive.
    pub(crate) receive_max: u32,
    /// Receives that are reserved for the peer.
    pub(crate) receives: u32,
}

/// Whether the end of a connection, or a refused message, is ordinary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Manner {
    /// A failure of the peer, of the network or of this end.
    #[default]
    Broken,
    /// The ordinary course: an end closed the connection, it was idle for too long, or the version is being settled.
    Ordinary,
}

/// Counts of the RPC messages received on a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) calls_received: u64,
    pub(crate) replies_received: u64,
}
