//! The memory of the pool that inbound Calls take, and the send buffers of their Replies: how much each origin may have,
//! and which Calls wait for it.
//!
//! # Normal operation
//! A Call takes memory for a reduced argument, for itself if it is in a Call chunk, for a Reply that may go into a
//! Reply chunk, and for a result that its service leases. The memory is charged to the Call's connection from then
//! on until the Reply has left. When the connection is lost, the charge ends as well, or, if Reads fill the memory, when
//! the provider gives them back: a peer that is stopped while it copies keeps none of it. A Call takes memory for a
//! chunk when its RDMA Reads can be posted, not before: the granted ORD bounds how many Calls of a connection read at
//! once.
//!
//! The connections of one origin share what they hold. An origin that holds nothing may take all that is free. An
//! origin that holds memory may take more as long as it then holds no more than is then free. So an origin with several
//! Calls has at most half of the pool, and leaves as much free as it has, on however many connections. A Call that holds
//! memory already may take all that is free, to end sooner.
//!
//! Send buffers that hold Replies are shared in the same way: an origin that holds more than are free gets no more.
//!
//! # Recovery
//! A Call without memory waits in its connection's queue. Connections with waiting Calls have their turns before new
//! messages are taken, and before Calls of connections where none waits. A service that moves its leases together is
//! asked to make room, once a turn, as long as that helps ([`Service::make_room`](crate::core::Service::make_room)).
//! A Call is refused only if the memory will not come: it exceeds the pool, no other Call holds memory that could come
//! back, or the Call has waited for [`Limits::memory_timeout`](crate::limits::Limits).
//!
//! While a Call of one origin waits, peers of origins that hold more have to be quick: a connection with a peer that
//! moves what it is to move, by Reads and Writes, at less than [`RATE_MIN`] is closed. Of several, the one of the origin
//! that holds most goes, and of these the one that is late for longest. What took more than it left free has [`GRACE`] for
//! each [`SEGMENT_SIZE_MAX`] octets, and no more.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use haulage_mr_pool::{Density, Pool};
use haulage_proto::time::Instant;

use crate::key::{CallKey, ConnectionKey};
use crate::limits::SEGMENT_SIZE_MAX;
use crate::origin::Origin;

/// The memory that Calls of all connections hold, and the connections with Calls that wait for some.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Octets charged to connections.
    held: usize,
    /// Octets charged to Calls that services will lease and have not leased yet.
    promised: usize,
    /// What the connections of each origin hold. A vacant entry has no connections.
    holders: Vec<Holder>,
    /// The entries of origins with connections.
    by_origin: BTreeMap<Origin, usize>,
    /// Connections with Calls that wait for memory, in the order of their turns.
    waiting: VecDeque<ConnectionKey>,
    /// Whether memory came home, or was asked for, since those connections were looked at.
    has_changed: bool,
    /// The time at which they are looked at even if nothing has changed.
    due: Option<Instant>,
    /// The time of this turn.
    now: Instant,
    /// When a slow connection is looked for next.
    reclaim_at: Instant,
    pub(super) making: Making,
}

/// The requests to the service to make room for Calls.
#[derive(Debug, Default)]
pub(super) struct Making {
    /// Whether the service can make room.
    pub(super) is_possible: bool,
    /// The octets that it is to make room for in the next turn.
    pub(super) wanted: Option<usize>,
    /// The octets for which it could make no room, as long as nothing is known to have changed since.
    refused: Option<usize>,
}

/// One origin's part of the [`Memory`].
#[derive(Debug)]
struct Holder {
    origin: Origin,
    connections: u32,
    /// Octets charged to the connections.
    held: usize,
    /// Send buffers with messages to the peers that have not left.
    unsent: usize,
}

/// One connection's part of the [`Memory`].
#[derive(Debug, Default)]
pub(crate) struct Share {
    /// The entry of its origin.
    holder: usize,
    /// Octets charged to this connection.
    held: usize,
    /// Send buffers with messages to the peer that have not left.
    unsent: usize,
    /// Transfers under way between the peer and this memory.
    transfers: Transfers,
    /// Calls that wait for memory or for the end of other Calls' Reads: those that hold memory, then the others,
    /// oldest first.
    waiting: VecDeque<Waiter>,
    /// Calls whose RDMA Reads are under way.
    reading: u32,
    /// Calls that may read at once: the granted ORD.
    reading_max: u32,
    /// Whether the connection is in [`Memory::waiting`].
    is_queued: bool,
}

/// The Reads and Writes under way between the memory that a connection holds and its peer, and the time by which the
/// peer must have let all of them end if it moves [`RATE_MIN`].
#[derive(Debug, Default)]
struct Transfers {
    under_way: u32,
    due: Instant,
}

/// A Call that waits for memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) call: CallKey,
    /// When it began to wait.
    pub(super) since: Instant,
}

/// Octets of the pool charged to a connection. A charge that is not empty goes to [`Memory::discharge`]. If it is
/// dropped instead, that is a fault of the core: an assertion, or, where there are none, it is given back later
/// and counted.
#[derive(Debug, Default)]
pub(crate) struct Charge {
    octets: usize,
    /// Octets of the charge that the service will lease when it is called.
    promised: usize,
}

/// Ends the charges of a core that is dropped. It is the last part of the core that is.
#[derive(Debug)]
pub(crate) struct Ending;

thread_local! {
    /// The charges that were dropped although they were not empty. A charge has no room for whose it is: messages carry it
    /// in two registers.
    static LOST: RefCell<Vec<Charge>> = const { RefCell::new(Vec::new()) };
    /// Whether a core is being dropped, with all that is charged.
    static IS_ENDING: Cell<bool> = const { Cell::new(false) };
}

/// Memory that a Call asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Octets to lease now.
    pub(crate) lease: usize,
    /// Further octets that the service will lease while it acts on the Call.
    pub(crate) later: usize,
    /// Octets that the Call holds already.
    pub(crate) own: usize,
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
pub(crate) enum MemoryGrant<L> {
    /// The memory, and the charge for it and for the octets that the service will lease.
    Taken(L, Charge),
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
    /// The Call goes on, or it was refused.
    Done,
    /// The Call keeps waiting.
    Waits(Until),
}

impl Charge {
    /// Returns the octets charged.
    pub(crate) const fn octets(&self) -> usize {
        self.octets
    }

    /// Takes over another charge to the same connection.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.octets += std::mem::take(&mut other.octets);
        self.promised += other.promised;
    }

    /// Takes in that the charge was dropped and is not empty.
    #[cold]
    #[inline(never)]
    fn lose(&mut self) {
        let lost = std::mem::take(self);
        // The panic of a service drops what is under way.
        if IS_ENDING.get() || std::thread::panicking() {
            return std::mem::forget(lost);
        }
        let octets = lost.octets;
        LOST.with_borrow_mut(|all| all.push(lost));
        debug_assert!(false, "a charge of {octets} octets was dropped");
    }
}

impl Ending {
    /// Begins the end of a core: from now on charges may be dropped.
    pub(crate) fn begin() {
        IS_ENDING.set(true);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        IS_ENDING.set(false);
    }
}

impl Drop for Charge {
    #[inline(always)]
    fn drop(&mut self) {
        if self.octets > 0 {
            self.lose();
        }
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

    /// Asks for memory on behalf of a Call of a connection. `lease` takes it from the pool, if there is room of that
    /// density.
    pub(super) fn grant<L>(
        &mut self,
        share: &mut Share,
        pool: &Pool,
        wanted: &Wanted,
        lease: impl FnOnce(&Pool, usize, Density) -> Option<L>,
    ) -> MemoryGrant<L> {
        let own = wanted.own;
        if wanted.purpose == Purpose::Reads && share.reading >= share.reading_max {
            return MemoryGrant::Waits(Until::Reads);
        }
        let Some(octets) = wanted.lease.checked_add(wanted.later) else {
            return MemoryGrant::Never;
        };
        let promised = self.promised;
        // Most grants do not depend on it.
        let free = || pool.free_bytes().saturating_sub(promised);
        let Some(holder) = self.holders.get_mut(share.holder) else { panic!("{NO_HOLDER}") };
        // A Call that already holds memory may exceed its origin's share: the sooner it goes on, the sooner it returns
        // all of it.
        let exceeds_share = own == 0
            && holder.held > 0
            && holder.held.saturating_add(octets) > free().saturating_sub(octets);
        // `free` counts whole free pages. A short lease may fit into a page in use, so `free` decides only where memory
        // is promised.
        let exceeds_rest = wanted.later + promised > 0 && octets > free();
        let makes_room = self.making.can(octets);
        let density = if makes_room { Density::Full } else { Density::Any };
        let lease =
            if exceeds_share || exceeds_rest { None } else { lease(pool, wanted.lease, density) };
        // Other Calls give their memory back, but values that a service keeps may stay leased.
        let others = self.held.saturating_sub(own);
        match lease {
            Some(lease) => {
                share.held += octets;
                holder.held += octets;
                self.held += octets;
                self.promised += wanted.later;
                MemoryGrant::Taken(lease, Charge { octets, promised: wanted.later })
            }
            None if makes_room => {
                self.making.wanted.get_or_insert(octets);
                MemoryGrant::Waits(Until::Memory)
            }
            None if others > 0 && free().saturating_add(others) >= octets => {
                MemoryGrant::Waits(Until::Memory)
            }
            None => MemoryGrant::Never,
        }
    }

    /// Ends the promise to a Call: its service leases the memory now.
    pub(super) fn keep_promise(&mut self, charge: &mut Charge) {
        self.promised -= std::mem::take(&mut charge.promised);
    }

    /// Gives back a charge. `share` is `None` if the connection is gone.
    #[inline]
    pub(super) fn discharge(&mut self, share: Option<&mut Share>, mut charge: Charge) {
        let octets = std::mem::take(&mut charge.octets);
        self.held -= octets;
        self.promised -= charge.promised;
        self.has_changed = true;
        self.making.refused = None;
        if let Some(share) = share {
            share.held -= octets;
            if let Some(holder) = self.holders.get_mut(share.holder) {
                holder.held -= octets;
            }
        }
    }

    /// Takes out a charge that was dropped although it was not empty, to be given back. It stays with the share of its
    /// connection as long as that lives.
    pub(super) fn next_lost() -> Option<Charge> {
        LOST.with_borrow_mut(Vec::pop)
    }

    /// Enters a connection of an origin. Returns its share.
    pub(super) fn enter(&mut self, origin: Origin) -> Share {
        let holder = self.by_origin.get(&origin).copied().unwrap_or_else(|| {
            let vacant = self.holders.iter().position(|holder| holder.connections == 0);
            let new = Holder { origin, connections: 0, held: 0, unsent: 0 };
            let at = vacant.unwrap_or(self.holders.len());
            match self.holders.get_mut(at) {
                Some(place) => *place = new,
                None => self.holders.push(new),
            }
            self.by_origin.insert(origin, at);
            at
        });
        if let Some(holder) = self.holders.get_mut(holder) {
            holder.connections += 1;
        }
        Share { holder, ..Share::default() }
    }

    /// Returns the number of origins with connections.
    pub(super) fn origins(&self) -> usize {
        self.by_origin.len()
    }

    /// Removes a connection that is gone. What it still holds is charged to no origin any more.
    pub(super) fn leave(&mut self, share: &Share) {
        let Some(holder) = self.holders.get_mut(share.holder) else { panic!("{NO_HOLDER}") };
        holder.held -= share.held;
        holder.unsent -= share.unsent;
        holder.connections -= 1;
        if holder.connections == 0 {
            self.by_origin.remove(&holder.origin);
        }
    }

    /// Returns the octets that the connections of a connection's origin hold.
    pub(super) fn held_beside(&self, share: &Share) -> usize {
        self.holders.get(share.holder).map_or(0, |holder| holder.held)
    }

    /// Notes that a message to a peer waits in a send buffer.
    pub(super) fn begin_sending(&mut self, share: &mut Share) {
        share.unsent += 1;
        if let Some(holder) = self.holders.get_mut(share.holder) {
            holder.unsent += 1;
        }
    }

    /// Notes that a message to a peer has left its send buffer.
    pub(super) fn end_sending(&mut self, share: &mut Share) {
        share.unsent -= 1;
        if let Some(holder) = self.holders.get_mut(share.holder) {
            holder.unsent -= 1;
        }
    }

    /// Returns whether a connection may have another send buffer for a Reply, of `free` that are free and at most `each`.
    #[inline]
    pub(super) fn may_send(&self, share: &Share, free: usize, each: usize) -> bool {
        self.leaves_others(share, free) && share.unsent < each
    }

    /// Returns whether the origin of a connection holds fewer send buffers than the `free` that others may have.
    #[inline]
    pub(super) fn leaves_others(&self, share: &Share, free: usize) -> bool {
        self.holders.get(share.holder).is_none_or(|it| it.unsent < free)
    }

    /// Notes that the service did something to make room.
    pub(super) const fn room_may_be_made(&mut self) {
        (self.making.wanted, self.making.refused) = (None, None);
        self.has_changed = true;
    }

    /// Notes that the service can make no room.
    pub(super) const fn no_room_is_made(&mut self) {
        self.making.refused = self.making.wanted.take();
        self.has_changed = true;
    }

    /// Notes that the peer begins to move `octets` to or from memory that is charged to its connection, when `free`
    /// octets are free.
    pub(super) fn begin_transfer(&self, share: &mut Share, octets: usize, free: usize) {
        let earliest = self.now.saturating_add(GRACE);
        // The cap keeps a peer that was fast at first from using the time it saved to be slow later.
        let latest = earliest.saturating_add(time_for(share.held));
        let Transfers { under_way, due } = &mut share.transfers;
        let from = if *under_way == 0 { earliest } else { *due };
        let time = if octets > free { grace_for(octets) } else { time_for(octets) };
        *due = from.saturating_add(time).min(latest);
        *under_way += 1;
    }

    /// Returns whether it is time to look for a slow connection. The next look is a while later: all connections are
    /// looked at, and what one held comes home before another is closed.
    pub(super) fn reclaims(&mut self) -> bool {
        let reclaims = self.reclaim_at <= self.now;
        if reclaims {
            self.reclaim_at = self.now.saturating_add(RECLAIM_INTERVAL);
        }
        reclaims
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
        let is_past = self.due.is_some_and(|due| due <= now);
        if is_past || !self.is_awaited() {
            self.making.refused = None;
        }
        self.is_awaited() && (self.has_changed || is_past)
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

impl Making {
    /// Returns whether to ask the service to make room for `octets`: it makes room, and has not just failed to make as much.
    fn can(&self, octets: usize) -> bool {
        self.is_possible && self.refused.is_none_or(|refused| octets < refused)
    }
}

impl Share {
    /// Returns the number of the origin, which no other origin has that has connections.
    pub(super) const fn origin(&self) -> usize {
        self.holder
    }

    /// Lets Calls read: `most` of them at once.
    pub(super) const fn allow_reads(&mut self, most: u32) {
        self.reading_max = most;
    }

    /// Returns whether the peer serves RDMA Reads.
    #[inline]
    pub(super) const fn may_read(&self) -> bool {
        self.reading_max > 0
    }

    /// Counts a Call whose Reads begin.
    pub(super) const fn begin_reading(&mut self) {
        self.reading += 1;
    }

    /// Notes that a transfer ended.
    pub(super) const fn end_transfer(&mut self) {
        self.transfers.under_way -= 1;
    }

    /// Returns when the peer should have moved everything under way, if it is late.
    pub(super) fn late_since(&self, now: Instant) -> Option<Instant> {
        Some(self.transfers.due).filter(|due| self.transfers.under_way > 0 && *due <= now)
    }

    /// Returns whether a Call has waited for memory for longer than others may take their time.
    pub(super) fn has_waited_long(&self, now: Instant) -> bool {
        let first = self.waiting.front().filter(|_| self.is_queued);
        first.is_some_and(|waiter| waiter.since.saturating_add(GRACE) <= now)
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

    /// Returns how many Calls wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
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

/// Returns the time that moving `octets` takes at [`RATE_MIN`].
fn time_for(octets: usize) -> Duration {
    Duration::from_micros(u64::try_from(octets).unwrap_or(u64::MAX) / (RATE_MIN / 1_000_000))
}

/// Returns the time that moving `octets` takes beyond [`GRACE`] if that is enough for each [`SEGMENT_SIZE_MAX`] of them: none
/// for most.
fn grace_for(octets: usize) -> Duration {
    let more = octets.saturating_sub(1) / SEGMENT_SIZE_MAX as usize;
    GRACE.saturating_mul(u32::try_from(more).unwrap_or(u32::MAX))
}

/// An invariant: the entry of an origin stays while it has connections.
const NO_HOLDER: &str = "a share names the entry of its origin";
/// Octets a second that a peer has to move while others wait for the memory.
const RATE_MIN: u64 = 1_000_000;
/// How long a Call waits before slow peers of others are closed, and how long each peer has beside the time for the
/// octets. One that left little free has to move [`SEGMENT_SIZE_MAX`] octets in that time.
const GRACE: Duration = Duration::from_millis(500);
/// Interval between two looks for a slow connection.
const RECLAIM_INTERVAL: Duration = Duration::from_millis(10);
/// Interval at which an idle core looks for memory that came home.
const SUPPLY_INTERVAL: Duration = Duration::from_millis(1);

#[cfg(test)]
impl Share {
    /// Returns the octets that Calls of the connection hold, and how many Calls wait.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.held, self.waiting.len())
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use haulage_mr_pool::{PagePreference, PoolConfig};

    use super::*;
    use crate::limits::{ITEM_MAX, SEGMENTS_MAX_WIRE};

    const MIB: usize = 1 << 20;

    /// Begins transfers of a share that holds `held` octets, which leave all free, and returns when it is late.
    fn due(held: usize, began: &[(u64, usize)]) -> Duration {
        due_of(held, usize::MAX, began)
    }

    /// Like [`due`], where `free` octets are left free.
    fn due_of(held: usize, free: usize, began: &[(u64, usize)]) -> Duration {
        let mut memory = Memory::default();
        let mut share = memory.enter(Origin::Ours);
        share.held = held;
        for (at, octets) in began {
            memory.now = Instant::ZERO.saturating_add(Duration::from_millis(*at));
            memory.begin_transfer(&mut share, *octets, free);
        }
        let due = share.transfers.due;
        assert_eq!((share.late_since(due), share.late_since(Instant::ZERO)), (Some(due), None));
        for _ in began {
            share.end_transfer();
        }
        assert_eq!(share.late_since(due), None, "nothing is under way");
        due.saturating_since(Instant::ZERO)
    }

    #[test]
    fn new_transfers_give_slow_ones_no_more_time_than_their_own() {
        let one = GRACE + time_for(MIB);
        assert_eq!(due(MIB, &[(0, MIB)]), one);
        assert_eq!(due(2 * MIB, &[(0, MIB), (400, 1), (800, 1)]), one + time_for(2));
        // The cap allows the time for the 2 MiB that the connection holds, not for all 3 MiB that it moved.
        let most = Duration::from_millis(10) + GRACE + time_for(2 * MIB);
        assert_eq!(due(2 * MIB, &[(0, MIB), (5, MIB), (10, MIB)]), most);
    }

    #[test]
    fn the_time_for_the_longest_item_is_in_proportion_to_its_octets() {
        let [one, all] = [SEGMENT_SIZE_MAX as usize, ITEM_MAX];
        let at_least = Duration::from_micros(all as u64);
        assert_eq!(due(all, &[(0, all)]), GRACE + at_least);
        assert_eq!(due_of(all, all, &[(0, all)]), GRACE + at_least, "as much is left free");
        // What leaves less free has to be quicker: an item of one segment has the grace alone.
        assert_eq!(due_of(one, one - 1, &[(0, one)]), GRACE);
        assert_eq!(due_of(one + 1, one, &[(0, one + 1)]), 2 * GRACE);
        assert_eq!(due_of(all, all - 1, &[(0, all)]), GRACE * SEGMENTS_MAX_WIRE);
        assert_eq!(due_of(all, 0, &[(0, all), (400, all)]), 2 * GRACE * SEGMENTS_MAX_WIRE - GRACE);
    }

    #[test]
    fn a_charge_that_is_dropped_is_told_of_and_can_be_given_back() {
        let mut memory = Memory::default();
        let mut share = memory.enter(Origin::Ours);
        let pool = PoolConfig { bytes: MIB, pages: PagePreference::Heap, node: None };
        let pool = Pool::new(&pool).unwrap();
        let take = |memory: &mut Memory, share: &mut Share, octets| {
            let wanted = Wanted { lease: octets, later: 7, own: 1, purpose: Purpose::Reply };
            match memory.grant(share, &pool, &wanted, |_, _, _| Some(())) {
                MemoryGrant::Taken((), charge) => charge,
                other => panic!("{other:?}"),
            }
        };
        let mut joined = take(&mut memory, &mut share, 100);
        joined.join(take(&mut memory, &mut share, 20));
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(joined)));
        assert_eq!(dropped.is_err(), cfg!(debug_assertions), "an assertion where there are any");
        assert_eq!((memory.held(), memory.promised), (134, 14));
        let charge = Memory::next_lost().unwrap();
        memory.discharge(None, charge);
        assert_eq!((memory.held(), memory.promised, share.held), (0, 0, 134));
        assert!(Memory::next_lost().is_none());
        memory.leave(&share);
        assert!(memory.holders.iter().all(|holder| holder.held == 0));
        // The end of a core drops what it holds.
        let mut share = memory.enter(Origin::Ours);
        let taken = take(&mut memory, &mut share, 5);
        Ending::begin();
        drop(taken);
        drop(Ending);
        assert!(Memory::next_lost().is_none());
    }
}
