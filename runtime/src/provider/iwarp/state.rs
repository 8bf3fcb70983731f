//! One software RNIC: what it consists of, and how it is made.

use std::io;

use haulage_mr_pool::Stags;
use haulage_proto::time::Instant;
use haulage_proto::verbs::QpNum;

use super::config::{BackendReport, Config};
use super::connection::Connection;
use super::crowd::Crowd;
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
    pub(super) listeners: Listeners<Listener>,
    /// When to try again to accept, after the system refused.
    pub(super) accept_retry: Option<Instant>,
    /// Connections read at every poll.
    pub(super) hot: Vec<QpNum>,
    /// What was read of one of them for who takes messages without Receives.
    pub(super) inbox: Inbox,
    pub(super) crowd: Crowd,
    /// One of them may have octets that nobody else will tell of.
    pub(super) unread: bool,
}

impl Iwarp {
    /// Makes an RNIC.
    ///
    /// Fails if the system has no randomness to make handles of, or refuses the descriptors; or, with
    /// [`Backend::Uring`](super::Backend::Uring), if io_uring is not to be had.
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
            nic,
            reactor,
            backend,
            waker,
            woken: false,
            listeners: Listeners::new(),
            accept_retry: None,
            hot: Vec::new(),
            crowd: Crowd::default(),
            unread: false,
        })
    }

    /// Returns how it waits for sockets, and why not better.
    pub const fn backend(&self) -> &BackendReport {
        &self.backend
    }

    /// Returns what the protocols below RDMA saw.
    pub const fn wire_counters(&self) -> WireCounters {
        self.nic.wire
    }

    /// Returns the connections that hold a slot, those being set up and those closing included.
    pub const fn connections(&self) -> usize {
        self.slots.in_use()
    }
}
