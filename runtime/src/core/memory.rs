//! The memory of the pool that inbound Calls take: how much each connection may have, and which Calls wait for it.
//!
//! # Normal operation
//! A Call takes memory for a reduced argument, for itself if it is in a Call chunk, for a Reply that may go into a
//! Reply chunk, and for a result that its service leases. The memory is charged to the Call's connection from then
//! on until the Reply has left. When the connection is lost, the charge ends as well, or, if Reads fill the memory, when
//! the provider gives them back: a peer that is stopped while it copies keeps none of it. A Call takes memory for a
//! chunk when its RDMA Reads can be posted, not before: the granted ORD bounds how many Calls of a connection read at
//! once.
//!
//! A connection that holds nothing may take all that is free. A connection that holds memory may take more as long as
//! it then holds no more than is then free. So a connection with several Calls has at most half of the pool, and leaves
//! as much free as it has. A Call that holds memory already may take all that is free, to end sooner.
//!
//! # Recovery
//! A Call without memory waits in its connection's queue. Connections with waiting Calls have their turns before new
//! messages are taken, and before Calls of connections where none waits. A Call is refused only if the memory will not
//! come: it exceeds the pool, no other Call holds memory that could come back, or the Call has waited for
//! [`Limits::memory_timeout`](crate::limits::Limits).

use std::collections::VecDeque;
use std::time::Duration;

use haulage_mr_pool::{Local, Pool};
use haulage_proto::time::Instant;

use super::table::{CallKey, ConnectionKey};

/// The memory that Calls of all connections hold, and the connections with Calls that wait for some.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Octets charged to connections.
    held: usize,
    /// Of these, octets that services will lease and have not leased yet.
    promised: usize,
    /// Connections with Calls that wait for memory, in the order of their turns.
    waiting: VecDeque<ConnectionKey>,
    /// Whether memory came home, or was asked for, since those connections were looked at.
    has_changed: bool,
    /// The time at which they are looked at even if nothing has changed.
    due: Option<Instant>,
    /// The time of this turn.
    now: Instant,
}

/// One connection's part of the [`Memory`].
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
pub(super) struct Waiter {
    pub(super) call: CallKey,
    /// When it began to wait.
    pub(super) since: Instant,
}

/// Octets of the pool charged to a connection. A charge that is not empty goes to [`Memory::discharge`] before it
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
    /// The purpose of the lease.
    pub(crate) purpose: Purpose,
}

/// The purpose of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// RDMA Reads of ours fill it.
    Reads,
    /// A Reply goes into it.
    Reply,
}

/// The answer to a request for memory.
#[derive(Debug)]
pub(crate) enum Grant {
    /// The lease, and the charge for it and for the octets that the service will lease.
    Taken(Local, Charge),
    /// There is not enough memory now.
    Waits(Until),
    /// There is not enough memory, and none is to be expected.
    Never,
}

/// The event that a Call waits for.
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
    /// It goes on, or it was refused.
    Done,
    /// It waits on.
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
    /// Returns the time at which waiting connections are looked at even if nothing happens.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Returns the octets that Calls hold.
    pub(super) const fn held(&self) -> usize {
        self.held
    }

    /// Returns whether any connection waits for memory.
    #[inline]
    pub(super) fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Asks for memory on behalf of a Call of a connection. The Call holds `own` octets already.
    pub(super) fn grant(
        &mut self,
        share: &mut Share,
        pool: &Pool,
        wanted: &Wanted,
        own: usize,
    ) -> Grant {
        if wanted.purpose == Purpose::Reads && share.reading >= share.reading_max {
            return Grant::Waits(Until::Reads);
        }
        let Some(octets) = wanted.lease.checked_add(wanted.later) else { return Grant::Never };
        let free = pool.free_bytes().saturating_sub(self.promised);
        // A Call that holds memory gives it back sooner if it goes on.
        let exceeds_share = own == 0
            && share.held > 0
            && share.held.saturating_add(octets) > free.saturating_sub(octets);
        // Short leases find room in pages that are not free any more.
        let exceeds_rest = wanted.later + self.promised > 0 && octets > free;
        let lease = if exceeds_share || exceeds_rest { None } else { pool.lease(wanted.lease) };
        // All that other Calls hold may come back; values that a service keeps may not.
        let others = self.held.saturating_sub(own);
        match lease {
            Some(lease) => {
                share.held += octets;
                self.held += octets;
                self.promised += wanted.later;
                Grant::Taken(lease, Charge { octets, promised: wanted.later })
            }
            None if others > 0 && free.saturating_add(others) >= octets => {
                Grant::Waits(Until::Memory)
            }
            None => Grant::Never,
        }
    }

    /// Ends the promise to a Call: its service leases the memory now.
    pub(super) fn keep_promise(&mut self, charge: &mut Charge) {
        self.promised -= std::mem::take(&mut charge.promised);
    }

    /// Gives back a charge. `share` is `None` if the connection is gone.
    #[inline]
    pub(super) fn discharge(&mut self, share: Option<&mut Share>, charge: &Charge) {
        self.held -= charge.octets;
        self.promised -= charge.promised;
        self.has_changed = true;
        if let Some(share) = share {
            share.held -= charge.octets;
        }
    }

    /// Has a Call wait. A Call that holds memory waits in front of the Calls of its connection that hold none, as these
    /// may wait for its memory.
    pub(super) fn wait(
        &mut self,
        key: ConnectionKey,
        share: &mut Share,
        call: CallKey,
        own: usize,
    ) {
        let waiter = Waiter { call, since: self.now };
        if own > 0 {
            share.waiting.push_front(waiter);
        } else {
            share.waiting.push_back(waiter);
        }
        self.queue(key, share);
    }

    /// Notes that the Reads of a Call ended, for which other Calls may have waited.
    pub(super) fn end_reading(&mut self, key: ConnectionKey, share: &mut Share) {
        share.reading -= 1;
        if !share.waiting.is_empty() {
            self.queue(key, share);
        }
    }

    /// Begins a turn. Returns whether connections that wait are to be looked at.
    #[inline]
    pub(super) fn begin_turn(&mut self, now: Instant) -> bool {
        self.now = now;
        let is_due = self.has_changed || self.due.is_some_and(|due| due <= now);
        self.is_awaited() && is_due
    }

    /// Begins to look at the connections that wait. Returns how many there are.
    pub(super) fn begin_supply(&mut self) -> usize {
        self.has_changed = false;
        self.waiting.len()
    }

    /// Takes the next connection that waits.
    pub(super) fn next_waiting(&mut self) -> Option<ConnectionKey> {
        self.waiting.pop_front()
    }

    /// Ends a look at the connections that wait, and sets the time of the next one: leases also come home without an
    /// event, dropped by a service or on another thread.
    pub(super) fn end_supply(&mut self) {
        self.due = self.is_awaited().then(|| self.now.saturating_add(SUPPLY_INTERVAL));
    }

    /// Queues a connection for its turn.
    pub(super) fn queue(&mut self, key: ConnectionKey, share: &mut Share) {
        self.has_changed = true;
        if !std::mem::replace(&mut share.is_queued, true) {
            self.waiting.push_back(key);
        }
    }
}

impl Share {
    /// Counts a Call whose Reads begin.
    pub(super) const fn begin_reading(&mut self) {
        self.reading += 1;
    }

    /// Notes that the connection is not queued any more.
    pub(super) const fn leave_queue(&mut self) {
        self.is_queued = false;
    }

    /// Takes the Call that waits first.
    pub(super) fn next(&mut self) -> Option<Waiter> {
        self.waiting.pop_front()
    }

    /// Puts a Call that still waits back in front of all others.
    pub(super) fn put_back(&mut self, waiter: Waiter) {
        self.waiting.push_front(waiter);
    }

    /// Returns whether no Call waits.
    pub(super) fn is_free(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the heap memory of the queue, in octets.
    pub(super) fn bytes(&self) -> usize {
        self.waiting.capacity() * size_of::<Waiter>()
    }
}

/// Interval at which an idle core looks for memory that came home.
const SUPPLY_INTERVAL: Duration = Duration::from_millis(1);

#[cfg(test)]
impl Share {
    /// Returns the octets that Calls of the connection hold, and how many Calls wait.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.held, self.waiting.len())
    }
}
