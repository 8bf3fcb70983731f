//! The memory of the pool that inbound Calls take: how much each connection may have, and what waits for it.
//!
//! # Normal operation
//! A Call takes memory for a reduced argument, for itself if it is in a Call chunk, for a Reply that may go into a
//! Reply chunk, and for a result that its service leases. The memory is charged to the Call's connection from then
//! on until the Reply has left. A Call takes memory for a chunk when its RDMA Reads can be posted, not before: the
//! granted ORD bounds how many Calls of a connection read at once.
//!
//! A connection that holds nothing may take what there is. One that holds memory may take more while all that it
//! then holds is no more than what is then free. So a connection with several Calls has at most half of the pool,
//! and leaves as much free as it has. A Call that holds memory already may take what there is, to end sooner.
//!
//! # Recovery
//! A Call without memory waits in its connection's queue. Connections with such Calls have their turns before new
//! messages are taken, and before Calls of connections where none waits. A Call is refused only if the memory will
//! not come: it exceeds the pool, no other Call holds memory that could come back, or the Call has waited for
//! [`Limits::memory_timeout`](crate::limits::Limits).

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
    /// Whether memory came home, or was asked for, since those connections were looked at.
    has_changed: bool,
    /// When they are looked at anyway.
    due: Option<Instant>,
    /// The time of this turn.
    now: Instant,
}

/// One connection's part of that.
#[derive(Debug, Default)]
pub(crate) struct Share {
    /// Octets charged to this connection.
    held: usize,
    /// Calls that wait for memory or for the end of other Calls' Reads: those that hold memory, then the others,
    /// oldest first.
    waiting: VecDeque<Waiter>,
    /// Calls whose RDMA Reads are under way.
    reading: u32,
    /// Calls that may read at once: the granted ORD.
    pub(crate) reading_max: u32,
    /// Whether the connection is in [`Memory::waiting`].
    is_queued: bool,
}

/// A Call that waits for memory.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    call: Key<InboundCall>,
    /// When it began to wait.
    since: Instant,
}

/// Octets of the pool charged to a connection. A charge that is not empty goes to [`State::discharge`] before it
/// is dropped.
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
    /// Returns the octets charged.
    pub(crate) const fn octets(&self) -> usize {
        self.octets
    }

    /// Takes over another charge to the same connection.
    pub(crate) fn join(&mut self, other: Self) {
        self.octets += other.octets;
        self.promised += other.promised;
    }
}

impl Memory {
    /// Returns when connections that wait are to be looked at though nothing happens.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Lets the service lease what its Call was promised.
    pub(super) fn keep_promise(&mut self, charge: &mut Charge) {
        self.promised -= std::mem::take(&mut charge.promised);
    }
}

impl Share {
    /// Counts a Call whose Reads begin.
    pub(super) const fn begin_reading(&mut self) {
        self.reading += 1;
    }

    /// Returns the heap memory of the queue, in octets.
    pub(super) fn bytes(&self) -> usize {
        self.waiting.capacity() * size_of::<Waiter>()
    }
}

impl State {
    /// Asks for memory on behalf of a Call of a connection. The Call holds `own` octets already.
    pub(super) fn grant(&mut self, key: Key<Connection>, wanted: &Wanted, own: usize) -> Grant {
        let Some(connection) = self.connections.get_mut(key) else { return Grant::Never };
        let is_up = connection.is_up();
        let share = &mut connection.share;
        // The Calls of a connection that closes end with it.
        let may_read = wanted.purpose != Purpose::Reads || share.reading < share.reading_max;
        if !is_up || !may_read {
            return Grant::Waits(Until::Reads);
        }
        let Some(octets) = wanted.lease.checked_add(wanted.later) else { return Grant::Never };
        let free = self.pool.free_bytes().saturating_sub(self.memory.promised);
        // A Call that holds memory gives it back sooner if it goes on.
        let exceeds_share = own == 0
            && share.held > 0
            && share.held.saturating_add(octets) > free.saturating_sub(octets);
        // Short leases find room in pages that are not free any more.
        let exceeds_rest = wanted.later + self.memory.promised > 0 && octets > free;
        let lease =
            if exceeds_share || exceeds_rest { None } else { self.pool.lease(wanted.lease) };
        // All that other Calls hold may come back; values that a service keeps may not.
        let others = self.memory.held.saturating_sub(own);
        match lease {
            Some(lease) => {
                share.held += octets;
                self.memory.held += octets;
                self.memory.promised += wanted.later;
                Grant::Taken(lease, Charge { octets, promised: wanted.later })
            }
            None if others > 0 && free.saturating_add(others) >= octets => {
                Grant::Waits(Until::Memory)
            }
            None => Grant::Never,
        }
    }

    /// Gives back what a connection was charged, which may be gone.
    #[inline]
    pub(super) fn discharge(&mut self, key: Key<Connection>, charge: Charge) {
        if charge.octets == 0 {
            return;
        }
        self.memory.held -= charge.octets;
        self.memory.promised -= charge.promised;
        self.memory.has_changed = true;
        if let Some(connection) = self.connections.get_mut(key) {
            connection.share.held -= charge.octets;
        }
    }

    /// Returns whether any connection waits for memory.
    #[inline]
    pub(super) fn is_memory_awaited(&self) -> bool {
        !self.memory.waiting.is_empty()
    }

    /// Has a Call, which holds `own` octets already, wait for what it wants, or go on at once if there is that. A
    /// Call that holds nothing goes on at once only if nobody waits; one that holds memory waits in front of
    /// those of its connection that hold none, as they may wait for its memory.
    pub(super) fn await_memory(
        &mut self,
        key: Key<Connection>,
        call: Key<InboundCall>,
        own: usize,
    ) {
        let is_awaited = self.is_memory_awaited();
        let Some(connection) = self.connections.get(key) else { return };
        let is_first = !is_awaited && connection.share.waiting.is_empty();
        if (own > 0 || is_first) && self.supply_call(call) == Supply::Done {
            return;
        }
        let waiter = Waiter { call, since: self.memory.now };
        if let Some(connection) = self.connections.get_mut(key) {
            if own > 0 {
                connection.share.waiting.push_front(waiter);
            } else {
                connection.share.waiting.push_back(waiter);
            }
            self.queue_for_memory(key);
        }
    }

    /// Notes that the Reads of a Call ended, which others may have waited for.
    pub(super) fn end_reading(&mut self, key: Key<Connection>) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.share.reading -= 1;
            if !connection.share.waiting.is_empty() {
                self.queue_for_memory(key);
            }
        }
    }

    /// Lets Calls go on for which there is memory now, connection by connection, and refuses those that have waited
    /// too long. Returns how many Calls went on.
    #[inline]
    pub(crate) fn supply(&mut self, now: Instant) -> usize {
        self.memory.now = now;
        let is_due = self.memory.has_changed || self.memory.due.is_some_and(|due| due <= now);
        if self.memory.waiting.is_empty() || !is_due { 0 } else { self.supply_connections(now) }
    }

    #[inline(never)]
    fn supply_connections(&mut self, now: Instant) -> usize {
        self.memory.has_changed = false;
        self.pool.collect();
        let mut supplied = 0;
        for _ in 0..self.memory.waiting.len() {
            let Some(key) = self.memory.waiting.pop_front() else { break };
            supplied += self.supply_connection(now, key);
        }
        // Leases also come home without an event, dropped by a service or on another thread.
        let is_awaited = self.is_memory_awaited();
        self.memory.due = is_awaited.then(|| now.saturating_add(SUPPLY_INTERVAL));
        supplied
    }

    fn supply_connection(&mut self, now: Instant, key: Key<Connection>) -> usize {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.share.is_queued = false;
        }
        let mut supplied = 0;
        loop {
            let Some(connection) = self.connections.get_mut(key) else { return supplied };
            let Some(waiter) = connection.share.waiting.pop_front() else { return supplied };
            let overdue = waiter.since.saturating_add(self.limits.memory_timeout) <= now;
            match self.supply_call(waiter.call) {
                Supply::Done => supplied += 1,
                Supply::Waits(Until::Memory) if overdue => self.refuse_memory(waiter.call),
                Supply::Waits(until) => {
                    if let Some(connection) = self.connections.get_mut(key) {
                        connection.share.waiting.push_front(waiter);
                    }
                    // The end of a Read brings the connection back by itself.
                    if until == Until::Memory {
                        self.queue_for_memory(key);
                    }
                    return supplied;
                }
            }
        }
    }

    fn queue_for_memory(&mut self, key: Key<Connection>) {
        self.memory.has_changed = true;
        if let Some(connection) = self.connections.get_mut(key)
            && !std::mem::replace(&mut connection.share.is_queued, true)
        {
            self.memory.waiting.push_back(key);
        }
    }
}

/// How often a core that has nothing else to do looks for memory that came home.
const SUPPLY_INTERVAL: Duration = Duration::from_millis(1);

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
