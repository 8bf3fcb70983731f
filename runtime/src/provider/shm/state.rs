//! A software RNIC on shared memory: its parts, and how it is made.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use haulage_mr_pool::{Handles, Pool};
use haulage_proto::time::Instant;
use haulage_proto::verbs::QpNum;

use super::config::Config;
use super::connection::Connection;
use super::handshake::Handshake;
use super::names::WAKER;
use super::nic::{LinkCounters, Nic, Region};
use super::round::Round;
use super::segment::Layout;
use crate::provider::base::{Listeners, Slots};
use crate::provider::{Caps, Waker};
use crate::sys::bus_error;
use crate::sys::epoll::{Epoll, Ready};
use crate::sys::unix::Listener;

/// A software RNIC on shared memory. It stays on the thread that made it.
#[derive(Debug)]
pub struct Shm {
    pub(super) caps: Caps,
    pub(super) nic: Nic,
    pub(super) epoll: Epoll,
    /// Room for the events of `epoll`.
    pub(super) news: Vec<Ready>,
    pub(super) waker: Waker,
    /// The waker was signaled since the last sleep.
    pub(super) woken: bool,
    pub(super) slots: Slots<Connection>,
    /// Connections that are being set up, each of which has a slot.
    pub(super) handshakes: BTreeMap<QpNum, Handshake>,
    pub(super) listeners: Listeners<Listening>,
    /// Connections whose listener had no room for them.
    pub(super) connecting: Vec<QpNum>,
    /// Connections whose ring is read in every poll.
    pub(super) hot: Vec<QpNum>,
    /// Connections that are not hot, although a message of theirs waits for a Receive.
    pub(super) starved: Vec<QpNum>,
    /// The index of the hot connection that is read first next time.
    pub(super) turn: usize,
    pub(super) round: Round,
    /// The times when something last happened, when the sockets were last listened to, and when sockets and deadlines
    /// are to be checked again.
    pub(super) moved: Instant,
    pub(super) looked: Instant,
    pub(super) chores_at: Instant,
    /// When to accept again where peers wait.
    pub(super) accept_at: Instant,
    /// The number of faults in shared memory mended so far, when connections were last checked for theirs.
    pub(super) faults_seen: u64,
}

/// A place where peers ask for connections.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) socket: Listener,
    pub(super) ip: IpAddr,
}

impl Shm {
    /// Makes an RNIC for the memory of `pool`. Memory can be exposed if the pool was made with
    /// [`PagePreference::Shared`](haulage_mr_pool::PagePreference::Shared). Without it, everything works that exposes
    /// no memory.
    ///
    /// # Errors
    ///
    /// The system has no randomness for handles, or refuses the descriptors.
    ///
    /// # Panics
    ///
    /// If `connections_max` is above 65,536, `registrations_max` not 1 to 65,536, or `ring_bytes` not a
    /// power of two from 4 KiB to 8 MiB.
    pub fn new(config: &Config, pool: &Pool) -> io::Result<Self> {
        let layout = Layout::new(config.ring_bytes, config.registrations_max);
        assert!(
            layout.is_some(),
            "no ring of {} octets and table of {} entries",
            config.ring_bytes,
            config.registrations_max
        );
        let entries = config.registrations_max as usize;
        let handles = match config.seed {
            Some(seed) => Handles::seeded(entries, seed),
            None => Handles::new(entries).map_err(io::Error::other)?,
        };
        let mut epoll = Epoll::new()?;
        let waker = Waker::new()?;
        epoll.watch(waker.fd(), WAKER)?;
        let nic = Nic::new(config.clone(), Region::of(pool)?, handles);
        Ok(Self {
            caps: nic.caps(),
            slots: Slots::new(config.connections_max),
            handshakes: BTreeMap::new(),
            nic,
            epoll,
            news: Vec::new(),
            waker,
            woken: false,
            listeners: Listeners::new(),
            connecting: Vec::new(),
            hot: Vec::new(),
            starved: Vec::new(),
            turn: 0,
            round: Round::default(),
            moved: Instant::ZERO,
            looked: Instant::ZERO,
            chores_at: Instant::ZERO,
            accept_at: Instant::ZERO,
            faults_seen: bus_error::faults(),
        })
    }

    /// Returns the counters of events below RDMA.
    pub const fn link_counters(&self) -> LinkCounters {
        self.nic.link
    }

    /// Returns the number of connections that hold a slot, including those being set up and those closing.
    pub const fn connections(&self) -> usize {
        self.slots.in_use()
    }
}
