//! The memory of the pool that inbound Calls take: how much each connection may have, and what waits for it.
//!
//! # Normal operation
//! A Call takes memory for a reduced argument, for itself if it is in a Call chunk, for a Reply that may go into a
//! Reply chunk, and for a result that its service leases. The memory is charged to the Call's connection from then
//! on until the Reply has left. A Call takes memory for a chunk when its RDMA Reads can be posted, not before: the
//! granted ORD bounds how many Calls of a connection read at once.
//!
//! A connection that holds nothing may take what there is. One that holds memory may take more while all that it
//! holds is no more than what is left free. So a single connection has at most half of the pool, and there is as
//! much free memory for the others as the largest holder has.
//!
//! # Recovery
//! A Call without memory waits in its connection's queue. Connections with such Calls have their turns before new
//! messages are taken. A Call is refused only if the memory will not come: it exceeds the pool, no Call holds
//! memory that could come back, or it has waited for [`Limits::memory_timeout`](crate::limits::Limits).

use std::collections::VecDeque;
use std::time::Duration;

use haulage_mr_pool::Local;
use haulage_proto::time::Instant;

use super::connection::Connection;
use super::inbound::InboundCall;
use super::state::State;
use super::table::Key;

/// The memory that Calls of all connections hold, and the connections with Calls that wait for some.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Octets charged to connections.
    held: usize,
    /// Of these, octets that services will lease and have not leased yet.
    promised: usize,
    /// Connections with Calls that wait for memory, in the order of their turns.
    waiting: VecDeque<Key<Connection>>,
}

/// One connection's part of that.
#[derive(Debug, Default)]
pub(crate) struct Share {
    /// Octets charged to this connection.
    held: usize,
    /// Calls that wait for memory or for the end of other Calls' Reads, oldest first.
    waiting: VecDeque<Key<InboundCall>>,
    /// Calls whose RDMA Reads are under way.
    reading: u32,
    /// Calls that may read at once: the granted ORD.
    pub(crate) reading_max: u32,
    /// Whether the connection is in [`Memory::waiting`].
    is_queued: bool,
    /// When the first Call of `waiting` found no memory for the first time.
    since: Option<Instant>,
}

/// Octets of the pool charged to a connection. Whoever drops a charge that is not empty gives it to
/// [`State::discharge`] first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Charge {
    octets: usize,
    /// Of these, octets that the service will lease when it is called.
    promised: usize,
}

/// Memory that a Call asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Octets to lease now.
    pub(crate) lease: usize,
    /// Further octets that the service will lease while it acts on the Call.
    pub(crate) later: usize,
    /// Whether RDMA Reads fill the lease.
    pub(crate) purpose: Purpose,
}

/// What a lease is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// RDMA Reads of ours fill it.
    Reads,
    /// A Reply goes into it.
    Reply,
}

/// What became of a request for memory.
#[derive(Debug)]
pub(crate) enum Grant {
    /// The lease, and what the connection is charged for it and for what the service will lease.
    Taken(Local, Charge),
    /// There is none now.
    Waits(Until),
    /// There is none, and none is to be expected.
    Never,
}

/// What a Call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Memory comes home.
    Memory,
    /// Reads of the same connection end.
    Reads,
}

/// Whether a Call that waited goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Supply {
    /// It does.
    Done,
    /// It does not.
    Waits(Until),
}

impl Charge {
    /// Takes over another charge to the same connection.
    pub(crate) fn join(&mut self, other: Self) {
        self.octets += other.octets;
        self.promised += other.promised;
    }
}

impl Memory {
    /// Lets the service lease what its Call was promised.
    pub(super) fn keep_promise(&mut self, charge: &mut Charge) {
        self.promised -= std::mem::take(&mut charge.promised);
    }
}

impl Share {
    /// Returns whether Calls wait.
    fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Counts a Call whose Reads begin.
    pub(super) const fn begin_reading(&mut self) {
        self.reading += 1;
    }

    /// Returns the heap memory of the queue, in octets.
    pub(super) fn bytes(&self) -> usize {
        self.waiting.capacity() * size_of::<Key<InboundCall>>()
    }
}

impl State {
    /// Asks for memory on behalf of a Call of a connection.
    pub(super) fn grant(&mut self, key: Key<Connection>, wanted: &Wanted) -> Grant {
        let Some(connection) = self.connections.get_mut(key) else { return Grant::Never };
        let share = &mut connection.share;
        if wanted.purpose == Purpose::Reads && share.reading >= share.reading_max {
            return Grant::Waits(Until::Reads);
        }
        let Some(octets) = wanted.lease.checked_add(wanted.later) else { return Grant::Never };
        let free = self.pool.free_bytes().saturating_sub(self.memory.promised);
        let exceeds_share = share.held > 0 && share.held.saturating_add(octets) > free;
        // Short leases find room in pages that are not free any more.
        let exceeds_rest = wanted.later + self.memory.promised > 0 && octets > free;
        let lease =
            if exceeds_share || exceeds_rest { None } else { self.pool.lease(wanted.lease) };
        match lease {
            Some(lease) => {
                share.held += octets;
                self.memory.held += octets;
                self.memory.promised += wanted.later;
                Grant::Taken(lease, Charge { octets, promised: wanted.later })
            }
            // All that Calls hold may come back; values that a service keeps may not.
            None if self.memory.held > 0 && free.saturating_add(self.memory.held) >= octets => {
                Grant::Waits(Until::Memory)
            }
            None => Grant::Never,
        }
    }

    /// Gives back what a connection was charged, which may be gone.
    pub(super) fn discharge(&mut self, key: Key<Connection>, charge: Charge) {
        self.memory.held -= charge.octets;
        self.memory.promised -= charge.promised;
        if let Some(connection) = self.connections.get_mut(key) {
            connection.share.held -= charge.octets;
        }
    }

    /// Has a Call wait for what it wants, or go on at once if there is that already and no other Call of its
    /// connection waits.
    pub(super) fn await_memory(&mut self, key: Key<Connection>, call: Key<InboundCall>) {
        let is_first =
            self.connections.get(key).is_some_and(|connection| !connection.share.has_waiting());
        if is_first && self.supply_call(call) == Supply::Done {
            return;
        }
        if let Some(connection) = self.connections.get_mut(key) {
            connection.share.waiting.push_back(call);
            self.queue_for_memory(key);
        }
    }

    /// Notes that the Reads of a Call ended, which others may have waited for.
    pub(super) fn end_reading(&mut self, key: Key<Connection>) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.share.reading -= 1;
            if connection.share.has_waiting() {
                self.queue_for_memory(key);
            }
        }
    }

    /// Lets Calls go on for which there is memory now, connection by connection, and refuses those that have waited
    /// too long. Returns how many Calls went on.
    pub(crate) fn supply(&mut self, now: Instant) -> usize {
        let mut supplied = 0;
        for _ in 0..self.memory.waiting.len() {
            let Some(key) = self.memory.waiting.pop_front() else { break };
            supplied += self.supply_connection(now, key);
        }
        if !self.memory.waiting.is_empty() {
            // Leases also come home without an event, dropped by a service or on another thread.
            self.wake_by(now.saturating_add(SUPPLY_INTERVAL));
        }
        supplied
    }

    fn supply_connection(&mut self, now: Instant, key: Key<Connection>) -> usize {
        let mut supplied = 0;
        loop {
            let Some(connection) = self.connections.get_mut(key) else { return supplied };
            connection.share.is_queued = false;
            let Some(&call) = connection.share.waiting.front() else { return supplied };
            match self.supply_call(call) {
                Supply::Done => supplied += 1,
                Supply::Waits(Until::Reads) => return supplied,
                Supply::Waits(Until::Memory) if self.has_waited_long(now, key) => {
                    self.refuse_memory(call);
                }
                Supply::Waits(Until::Memory) => {
                    self.queue_for_memory(key);
                    return supplied;
                }
            }
            if let Some(connection) = self.connections.get_mut(key) {
                connection.share.waiting.pop_front();
                connection.share.since = None;
            }
        }
    }

    /// Returns whether the first Call of a connection has waited for memory as long as it may.
    fn has_waited_long(&mut self, now: Instant, key: Key<Connection>) -> bool {
        let timeout = self.limits.memory_timeout;
        self.connections.get_mut(key).is_some_and(|connection| {
            let since = *connection.share.since.get_or_insert(now);
            since.saturating_add(timeout) <= now
        })
    }

    fn queue_for_memory(&mut self, key: Key<Connection>) {
        if let Some(connection) = self.connections.get_mut(key)
            && !std::mem::replace(&mut connection.share.is_queued, true)
        {
            self.memory.waiting.push_back(key);
        }
    }
}

/// How often a core that has nothing else to do looks for memory that came home.
const SUPPLY_INTERVAL: Duration = Duration::from_millis(1);

#[cfg(test)]
impl Memory {
    /// Returns the octets that Calls hold.
    pub(crate) const fn held(&self) -> usize {
        self.held
    }
}

#[cfg(test)]
impl Share {
    /// Returns the octets that Calls of the connection hold, and how many Calls wait.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.held, self.waiting.len())
    }
}
