//! The shared receive pool: who may fill how much of it.
//!
//! # Limits
//! A Receive is *reserved* for a connection from the moment the peer is told of it until a message
//! used it. The sum of reservations never exceeds what is posted (P4), so no peer within its credit
//! ever finds the queue empty because of another. Reservations are not taken back: a connection
//! shrinks by not being given new ones (P1).
//!
//! Every connection has its *floor* reserved for it from the moment it is admitted. Of what there is beyond the
//! floors it is given more for messages that it sends, up to its share: as much as others have that are busy, however
//! many are idle.
//!
//! Where each connection has a receive queue of its own, the provider is told of reservations, and the same
//! sum shows that it can meet them: see [`Supply`](crate::provider).
//!
//! The floors of idle connections are memory that nobody touches. Where a Send may wait for its Receive,
//! and Receives are shared,
//! only as many are posted as busy connections use, the one used last first, so that these stay in a cache;
//! each turn posts more of the others if that was not enough.

use haulage_mr_pool::{Local, Pool, PostedSink};
use haulage_proto::verbs::Completion;

use crate::core::work::Name;
use crate::limits::{INLINE_SIZE, Limits, RECEIVES_IDLE};
use crate::provider::Receive;

/// The Receives of one core.
#[derive(Debug)]
pub(crate) struct Receives {
    /// Every buffer, in its place from the beginning to the end.
    buffers: Buffers,
    /// Buffers that are not posted, by number, the one used last at the end.
    returned: Vec<u32>,
    /// How many of them were left when the last were posted.
    cold: u32,
    /// Buffers that are posted.
    posted: u32,
    /// How many of them there are to be.
    posted_max: u32,
    /// The same as the provider takes them.
    batch: Vec<Receive>,
    /// Buffers with messages in them.
    held: u32,
    /// Receives posted or to be posted that are reserved for no connection. Negative while Receives hold messages
    /// that a lost connection sent beyond its reservation.
    unreserved: i64,
    /// What all connections hold of their floors, of each as it was when it grew last.
    floors: u32,
    /// What each connection there can be may have whatever the others do, and what it begins with.
    fair: u32,
    /// How many had more than that then.
    busy: u32,
    /// What there is beyond all floors.
    beyond: u32,
    limits: Limits,
}

/// How many of the Receives are posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posting {
    /// All of them, at once.
    All,
    /// As many as busy connections use, and more when those were not enough.
    AsManyAsUsed,
}

/// What a connection had of the Receives when it grew last.
#[derive(Debug)]
pub(crate) struct Part {
    /// Reserved for it.
    reserved: u32,
    /// The same, and those of Calls that were not answered.
    level: u32,
    /// Messages it has sent since it was given one more for the others.
    used: u32,
}

/// The buffers of all Receives. Lent while others work with the [`Receives`].
#[derive(Debug, Default)]
pub(crate) struct Buffers(Box<[PostedSink]>);

/// A message in its Receive buffer, which is not posted again before this is given back. Or one that
/// took none ([`Receives::book`]), but counts as one.
#[derive(Debug)]
pub(crate) struct Filled {
    buffer: u32,
    length: u32,
}

impl Filled {
    /// Returns its octets.
    pub(crate) const fn len(&self) -> usize {
        self.length as usize
    }
}

impl Buffers {
    /// Borrows a message.
    pub(crate) fn bytes(&self, received: &Filled) -> &[u8] {
        let filled = self.0.get(received.buffer as usize).and_then(PostedSink::filled);
        // A view that is left would be a broken provider's: nothing is read then.
        filled.unwrap_or_default().get(..received.len()).unwrap_or_default()
    }
}

/// A received message whose Payload stream is still needed.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) received: Filled,
    /// Where the Payload stream starts.
    pub(crate) payload_at: u32,
}

impl Message {
    /// Returns the Payload stream.
    #[inline]
    pub(crate) fn payload<'a>(&self, buffers: &'a Buffers) -> &'a [u8] {
        buffers.bytes(&self.received).get(self.payload_at as usize..).unwrap_or_default()
    }
}

/// The number of none.
const NO_BUFFER: u32 = u32::MAX;

impl Receives {
    /// Leases every buffer; `None` if the pool is too small.
    pub(crate) fn new(pool: &Pool, limits: &Limits, posting: Posting) -> Option<Self> {
        let count = limits.receives_max;
        let floors = limits.connections_max.saturating_mul(RECEIVES_IDLE);
        let most = (limits.credits_max + 1).max(RECEIVES_IDLE);
        let beyond = count.saturating_sub(floors);
        let shared = beyond.saturating_add(FLOORS_POSTED);
        let posted_max = match posting {
            Posting::All => count,
            Posting::AsManyAsUsed => shared.min(count),
        };
        let buffers = (0..count).map(|_| pool.lease(INLINE_SIZE).map(Local::into_sink));
        Some(Self {
            buffers: Buffers(buffers.collect::<Option<_>>()?),
            returned: (0..count).rev().collect(),
            cold: count,
            posted: 0,
            posted_max,
            batch: Vec::with_capacity(posted_max as usize),
            held: 0,
            unreserved: count.into(),
            floors: 0,
            // Less than its part of all: while all are touched, their floors are kept as well.
            fair: (beyond / limits.connections_max.max(1)).clamp(RECEIVES_IDLE, most),
            busy: 0,
            beyond,
            limits: *limits,
        })
    }

    /// Takes the message that a completed Receive left in this buffer.
    pub(crate) fn take(&mut self, buffer: usize, done: &Completion) -> Filled {
        self.held += 1;
        self.posted -= 1;
        Filled { buffer: u32::try_from(buffer).unwrap_or(u32::MAX), length: done.length }
    }

    /// Counts a message that was taken without a Receive, though one was reserved for it.
    pub(crate) const fn book(&mut self) -> Filled {
        self.held += 1;
        Filled { buffer: NO_BUFFER, length: 0 }
    }

    /// Counts such messages that are done with at once.
    #[inline]
    pub(crate) fn pass(&mut self, messages: u32) {
        self.unreserved += i64::from(messages);
    }

    /// Lends the buffers, until [`Self::restore`].
    pub(crate) fn lend(&mut self) -> Buffers {
        std::mem::take(&mut self.buffers)
    }

    /// Takes back what was lent.
    pub(crate) fn restore(&mut self, buffers: Buffers) {
        let lent = std::mem::replace(&mut self.buffers, buffers);
        debug_assert!(lent.0.is_empty(), "they were lent");
    }

    /// Queues a buffer to be posted again.
    pub(crate) fn give_back(&mut self, received: Filled) {
        self.held -= 1;
        if received.buffer != NO_BUFFER {
            self.returned.push(received.buffer);
        }
        self.unreserved += 1;
    }

    /// Queues the buffer of a message to be posted again, where the message is counted apart from it: by
    /// [`Self::pass`] or [`Self::book`].
    #[inline]
    pub(crate) fn reuse(&mut self, received: &Filled) {
        self.held -= 1;
        self.returned.push(received.buffer);
    }

    /// Returns how many buffers there are: they count as posted leases, with or without messages.
    pub(crate) const fn count(&self) -> usize {
        self.limits.receives_max as usize
    }

    /// Returns how many buffers have messages in them.
    pub(crate) const fn held(&self) -> u32 {
        self.held
    }

    /// Returns how many Receives are reserved for no connection. Negative while messages are held that lost
    /// connections sent beyond their reservations.
    pub(crate) const fn unreserved(&self) -> i64 {
        self.unreserved
    }

    /// Returns the Receives to post now, before any of them is reserved again.
    #[inline]
    pub(crate) fn batch(&mut self) -> &mut Vec<Receive> {
        if self.posted < self.posted_max && !self.returned.is_empty() {
            self.fill_batch();
        }
        &mut self.batch
    }

    fn fill_batch(&mut self) {
        let Buffers(buffers) = &mut self.buffers;
        let unposted = u32::try_from(self.returned.len()).unwrap_or(u32::MAX);
        let count = unposted.min(self.posted_max.saturating_sub(self.posted));
        (self.cold, self.posted) = (unposted - count, self.posted + count);
        for number in self.returned.drain(self.cold as usize..) {
            let buffer = buffers.get_mut(number as usize);
            if let Some(view) = buffer.and_then(|buffer| buffer.sink(0..INLINE_SIZE)) {
                self.batch.push(Receive::single(Name::Receive(number as usize).wr_id(), view));
            }
        }
    }

    /// Returns whether a new connection can have its minimum.
    pub(crate) fn has_minimum(&self) -> bool {
        self.left() >= RECEIVES_IDLE
    }

    /// Reserves the floor for a new connection; `None` if there is not even that.
    pub(crate) fn admit(&mut self) -> Option<Part> {
        self.left().checked_sub(RECEIVES_IDLE)?;
        self.unreserved -= i64::from(RECEIVES_IDLE);
        self.floors += RECEIVES_IDLE;
        Some(Part { reserved: RECEIVES_IDLE, level: self.fair, used: 0 })
    }

    /// Reserves more for a connection that has `reserved` left and awaits `owed` Replies. Of a peer that sent more than
    /// was reserved for it the first is next to 2^32, and it is given none.
    /// So many connections were `touched`, this one or others: what they used of theirs is perhaps not noted yet.
    /// Returns how many.
    #[inline]
    pub(crate) fn grow(
        &mut self,
        part: &mut Part,
        (reserved, owed): (u32, u32),
        touched: usize,
    ) -> u32 {
        let Limits { connections_max, credits_max, .. } = self.limits;
        self.floors -= part.floor();
        self.busy -= u32::from(part.level > self.fair);
        // Every connection there can be gets its floor, whatever the busy ones would like.
        let touched = u32::try_from(touched).unwrap_or(u32::MAX);
        let others = connections_max.saturating_sub(1).saturating_add(touched);
        let floors = others.saturating_mul(RECEIVES_IDLE).saturating_sub(self.floors);
        let left = self.left();
        let spare = left.saturating_sub(floors);
        // Who has sent some may have more in flight than there is room for.
        let used = part.used.saturating_add(part.reserved.saturating_sub(reserved));
        let asked = part.level.saturating_add(used / USED_FOR_ONE).min(credits_max + 1);
        part.used = used % USED_FOR_ONE;
        let level = if asked <= self.fair {
            asked.max(RECEIVES_IDLE)
        } else {
            asked.min(RECEIVES_IDLE + self.beyond / (self.busy + 1)).max(self.fair)
        };
        let busy = level.saturating_sub(reserved.saturating_add(owed)).min(spare);
        // Calls that are not answered hold Receives: who has so many waiting waits too.
        let least = if owed <= level { RECEIVES_IDLE.saturating_sub(reserved) } else { 0 };
        let more = busy.max(least).min(left);
        self.unreserved -= i64::from(more);
        part.reserved = reserved.saturating_add(more);
        part.level = part.reserved.saturating_add(owed);
        self.floors += part.floor();
        self.busy += u32::from(part.level > self.fair);
        more
    }

    /// Returns how many Receives may be reserved: none while messages beyond what was reserved are held.
    fn left(&self) -> u32 {
        u32::try_from(self.unreserved).unwrap_or(0)
    }

    /// Forgets the reservations of a connection that is gone. `reserved` is modulo 2^32: a peer that sent more
    /// than was reserved for it gives back less than nothing.
    pub(crate) fn release(&mut self, part: &Part, reserved: u32) {
        self.unreserved += i64::from(reserved.cast_signed());
        self.floors -= part.floor();
        self.busy -= u32::from(part.level > self.fair);
    }
}

impl Part {
    fn floor(&self) -> u32 {
        self.reserved.min(RECEIVES_IDLE)
    }
}

/// Messages for which a connection is given one Receive more: nobody says how many Calls wait for credit.
const USED_FOR_ONE: u32 = 4;
/// Receives posted for the floors of connections that are idle: what a turn may bring of them at once.
const FLOORS_POSTED: u32 = 512;

impl Drop for Receives {
    fn drop(&mut self) {
        // The provider is gone, and with it every view of what it was given; these are the others.
        self.batch.clear();
        for sink in std::mem::take(&mut self.buffers.0) {
            // Only a provider that outlives its core still has views: its buffers stay out of use.
            drop(sink.complete());
        }
    }
}

#[cfg(test)]
mod tests {
    use haulage_mr_pool::{PagePreference, PoolConfig};
    use haulage_test_support::Rng;

    use super::*;
    use crate::limits::LIMITS_DEFAULT;

    const BEYOND: u32 = 60;

    /// Has a message arrive and be done with.
    fn used(receives: &mut Receives, buffer: u32) {
        receives.held += 1;
        receives.posted -= 1;
        receives.give_back(Filled { buffer, length: 0 });
    }

    /// Connections that use what is reserved for them as they are told to.
    struct Peers {
        receives: Receives,
        parts: Vec<(Part, u32)>,
        touched: Vec<usize>,
    }

    impl Peers {
        fn new(connections_max: u32, receives_max: u32, credits_max: u32) -> Self {
            let limits = Limits { connections_max, receives_max, credits_max, ..LIMITS_DEFAULT };
            let bytes = 2 * receives_max as usize * INLINE_SIZE;
            let pool =
                Pool::new(&PoolConfig { bytes, pages: PagePreference::Best, node: None }).unwrap();
            let mut receives = Receives::new(&pool, &limits, Posting::AsManyAsUsed).unwrap();
            let admit = |_| (receives.admit().unwrap(), RECEIVES_IDLE);
            let parts = (0..connections_max).map(admit).collect();
            Self { receives, parts, touched: Vec::new() }
        }

        /// Has one send as many messages, or as many as it may, which are done with at once.
        fn send(&mut self, peer: usize, messages: u32) {
            let reserved = &mut self.parts[peer].1;
            let sent = messages.min(*reserved);
            *reserved -= sent;
            self.receives.pass(sent);
            if !self.touched.contains(&peer) {
                self.touched.push(peer);
            }
        }

        fn grow(&mut self, peer: usize) -> u32 {
            let (part, reserved) = &mut self.parts[peer];
            *reserved += self.receives.grow(part, (*reserved, 0), self.touched.len());
            *reserved
        }

        /// Ends a turn: all that sent something are given more, each at least its floor.
        fn flush(&mut self) {
            while let Some(peer) = self.touched.pop() {
                let reserved = self.grow(peer);
                assert!(reserved >= RECEIVES_IDLE, "{peer} has {reserved}");
            }
            let reserved: u32 = self.parts.iter().map(|(_, reserved)| reserved).sum();
            let all = self.receives.limits.receives_max;
            assert_eq!(i64::from(reserved) + self.receives.unreserved, i64::from(all));
        }
    }

    #[test]
    fn the_busy_share_what_is_beyond_the_floors_of_all() {
        let mut peers = Peers::new(500, 500 * RECEIVES_IDLE + BEYOND, 40);
        let turns = |peers: &mut Peers, busy: &[usize]| {
            for _ in 0..200 {
                busy.iter().for_each(|peer| peers.send(*peer, u32::MAX));
                peers.flush();
            }
            busy.iter().map(|peer| peers.parts[*peer].1).collect::<Vec<_>>()
        };
        // Alone, it has what one may have; of two, none has more than half, whoever was first.
        assert_eq!(turns(&mut peers, &[3]), [41]);
        let each = RECEIVES_IDLE + BEYOND / 2;
        assert_eq!(turns(&mut peers, &[3, 7]), [each, each]);
        let each = RECEIVES_IDLE + BEYOND / 5;
        assert_eq!(turns(&mut peers, &[3, 7, 8, 9, 400]), [each; 5]);
        let all: Vec<_> = (0..500).collect();
        let most = turns(&mut peers, &all).into_iter().max();
        assert_eq!(most, Some(RECEIVES_IDLE + 1), "there is not one more for each");
        // Those that go give back all.
        for (part, reserved) in std::mem::take(&mut peers.parts) {
            peers.receives.release(&part, reserved);
        }
        let Receives { floors, busy, unreserved, limits, .. } = peers.receives;
        assert_eq!((floors, busy, unreserved), (0, 0, i64::from(limits.receives_max)));
    }

    #[test]
    fn one_that_has_one_message_at_a_time_is_given_more_only_by_and_by() {
        let mut peers = Peers::new(8, 8 * RECEIVES_IDLE + BEYOND / 10, 40);
        for messages in 1..=4 {
            peers.send(0, 1);
            peers.flush();
            let more = messages / USED_FOR_ONE;
            assert_eq!(peers.parts[0].1, RECEIVES_IDLE + more, "after {messages}");
        }
    }

    #[test]
    fn one_that_sent_more_than_it_might_is_given_none() {
        let mut peers = Peers::new(2, 2 * RECEIVES_IDLE + BEYOND, 40);
        for owed in [0, 1, u32::MAX] {
            for reserved in [u32::MAX, u32::MAX - 40] {
                let (part, _) = &mut peers.parts[0];
                assert_eq!(peers.receives.grow(part, (reserved, owed), 1), 0);
            }
        }
    }

    #[test]
    fn receives_that_hold_messages_of_a_peer_that_overran_are_promised_to_nobody() {
        let memory = PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None };
        let limits =
            Limits { connections_max: 2, receives_max: 24, credits_max: 23, ..LIMITS_DEFAULT };
        let mut receives =
            Receives::new(&Pool::new(&memory).unwrap(), &limits, Posting::All).unwrap();
        let mut honest = receives.admit().unwrap();
        let more = receives.grow(&mut honest, (RECEIVES_IDLE, 0), 1);
        let overrunning = receives.admit().unwrap();
        // Messages in all Receives but one, though four were reserved; then the peer is gone. So nothing is left
        // for anybody, not even for the reservations of the honest one.
        let messages: Vec<_> = (0..23).map(|_| receives.book()).collect();
        receives.release(&overrunning, RECEIVES_IDLE.wrapping_sub(23));
        assert!(receives.admit().is_none());
        assert_eq!(receives.grow(&mut honest, (0, 0), 1), 0);
        for message in messages {
            receives.give_back(message);
        }
        receives.release(&honest, RECEIVES_IDLE + more);
        assert_eq!(receives.left(), 24);
    }

    #[test]
    fn the_last_of_those_that_were_touched_has_its_floor() {
        let mut peers = Peers::new(3, 3 * RECEIVES_IDLE + BEYOND, 100);
        for _ in 0..200 {
            peers.send(2, u32::MAX);
            peers.flush();
        }
        // It has all there is for one, and the others would like more than their floors.
        assert_eq!(peers.parts[2].1, RECEIVES_IDLE + BEYOND);
        (0..3).for_each(|peer| peers.send(peer, u32::MAX));
        peers.flush();
    }

    #[test]
    fn each_always_has_its_floor_whatever_others_do() {
        let mut random = Rng::new(1);
        let mut chance = |below: usize| random.below(below);
        for (connections, beyond) in [(1, 0), (1, 50), (3, 1), (9, 40), (40, 200), (40, 3)] {
            let mut peers = Peers::new(connections, connections * RECEIVES_IDLE + beyond, 64);
            let connections = connections as usize;
            for _ in 0..2000 {
                for _ in 0..chance(2 * connections) + 1 {
                    let peer = chance(connections);
                    peers.send(peer, u32::try_from(chance(20)).unwrap());
                    // In the middle of a turn, too.
                    if chance(3) == 0 {
                        peers.grow(peer);
                    }
                }
                peers.flush();
            }
        }
    }

    #[test]
    fn few_are_posted_and_those_used_last_are_used_again() {
        let (connections_max, receives_max) = (1000, 1000 * RECEIVES_IDLE + BEYOND);
        let limits = Limits { connections_max, receives_max, ..LIMITS_DEFAULT };
        let bytes = 2 * receives_max as usize * INLINE_SIZE;
        let pages = PagePreference::Best;
        let pool = Pool::new(&PoolConfig { bytes, pages, node: None }).unwrap();
        let names = |receives: &mut Receives| -> Vec<u64> {
            receives.batch().drain(..).map(|receive| receive.id.0).collect()
        };
        let mut eager = Receives::new(&pool, &limits, Posting::All).unwrap();
        assert_eq!(names(&mut eager).len(), receives_max as usize);
        drop(eager);
        let mut receives = Receives::new(&pool, &limits, Posting::AsManyAsUsed).unwrap();
        let mut posted = names(&mut receives);
        assert_eq!(posted.len(), (FLOORS_POSTED + BEYOND) as usize);
        assert!(names(&mut receives).is_empty(), "there are enough");
        // What is used comes back; what is kept is made up for.
        for buffer in [5, 3] {
            used(&mut receives, buffer);
        }
        receives.held += 1;
        receives.posted -= 1;
        let again = names(&mut receives);
        posted.truncate(0);
        posted.extend([5, 3].map(|buffer| Name::Receive(buffer).wr_id().0));
        assert_eq!(again.len(), 3);
        assert_eq!(again[1..], posted, "the last two are those that were used");
    }
}
