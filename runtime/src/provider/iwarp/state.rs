//! A software RNIC: its parts, and how it is made.

use std::io;

use haulage_mr_pool::Stags;
use haulage_proto::time::Instant;
use haulage_proto::verbs::QpNum;

use super::config::{BackendReport, Config};
use super::connection::Connection;
use super::contention::Contention;
use super::handshakes::Handshakes;
use super::inbox::Inbox;
use super::nic::{Nic, WireCounters};
use super::reactor::Reactor;
use crate::provider::base::{Listeners, Slots};
use crate::provider::{Caps, Waker};
use crate::sys::socket::Listener;

/// A software RNIC. It stays on the thread that made it.
#[derive(Debug)]
pub struct Iwarp {
    pub(super) caps: Caps,
    pub(super) nic: Nic,
    pub(super) reactor: Reactor,
    pub(super) backend: BackendReport,
    pub(super) waker: Waker,
    /// The waker was signaled since the last sleep.
    pub(super) woken: bool,
    pub(super) slots: Slots<Connection>,
    /// Connections that are being set up, each of which has a slot.
    pub(super) handshakes: Handshakes,
    pub(super) listeners: Listeners<Listener>,
    /// When to accept again, after the system refused.
    pub(super) accept_retry: Option<Instant>,
    /// Connections read at every poll.
    pub(super) hot: Vec<QpNum>,
    /// Octets read from one hot connection, to take its messages without Receives.
    pub(super) inbox: Inbox,
    pub(super) contention: Contention,
    /// A hot connection may have octets that the reactor does not report.
    pub(super) unread: bool,
}

impl Iwarp {
    /// Makes an RNIC.
    ///
    /// # Errors
    ///
    /// The system has no randomness for handles, or refuses the descriptors; or, with
    /// [`Backend::Uring`](super::Backend::Uring), io_uring is not available.
    ///
    /// # Panics
    ///
    /// If `registrations_max` is not 1 to 65,536, or `connections_max` is more than that, or
    /// `receive_buffers` is not a power of two.
    pub fn new(config: &Config) -> io::Result<Self> {
        let stags = match config.seed {
            Some(seed) => Stags::seeded(config.registrations_max, seed),
            None => Stags::new(config.registrations_max).map_err(io::Error::other)?,
        };
        let (mut reactor, backend) = Reactor::new(config)?;
        let waker = Waker::new()?;
        reactor.woken(waker.fd())?;
        let nic = Nic::new(config.clone(), stags);
        Ok(Self {
            caps: nic.caps(),
            inbox: Inbox::new(nic.scratch.len()),
            slots: Slots::new(config.connections_max),
            handshakes: Handshakes::default(),
            nic,
            reactor,
            backend,
            waker,
            woken: false,
            listeners: Listeners::new(),
            accept_retry: None,
            hot: Vec::new(),
            contention: Contention::default(),
            unread: false,
        })
    }

    /// Returns the backend in use, and the reason if it is not io_uring.
    pub const fn backend(&self) -> &BackendReport {
        &self.backend
    }

    /// Returns the counters of the protocols below RDMA.
    pub const fn wire_counters(&self) -> WireCounters {
        self.nic.wire
    }

    /// Returns the number of connections that hold a slot, including those being set up and those closing.
    pub const fn connections(&self) -> usize {
        self.slots.in_use()
    }
}
