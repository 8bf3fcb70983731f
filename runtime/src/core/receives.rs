//! The shared receive pool: who may fill how much of it.
//!
//! # Limits
//! A Receive is *reserved* for a connection from the moment the peer is told of it until a message
//! used it. The sum of reservations never exceeds what is posted (P4), so no peer within its credit
//! ever finds the queue empty because of another. Reservations are not taken back: a connection
//! shrinks by not being given new ones (P1).
//!
//! Every connection has its *floor*, reserved for it or held by its Calls, from the moment it is
//! admitted. What is beyond all floors is shared by those that are busy, the idle ones having no part
//! in it: thousands of idle connections cost their floors, and take no credit from the others.
//!
//! The floors of idle connections are memory that nobody touches. Where a Send may wait for its Receive,
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
    /// Posted or to be posted, and reserved for nobody.
    unreserved: u32,
    /// Those of them that came back in this turn: the floors of whom they came from may need them.
    fresh: u32,
    /// Those that came back without a buffer since Receives were posted.
    freed: u32,
    /// How many connections there are, and what each has if all are busy.
    connections: u32,
    share: u32,
    limits: Limits,
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

/// The number of none.
const NO_BUFFER: u32 = u32::MAX;

impl Receives {
    /// Leases every buffer; `None` if the pool is too small. All are posted at once unless `sends_wait`.
    pub(crate) fn new(pool: &Pool, limits: &Limits, sends_wait: bool) -> Option<Self> {
        let count = limits.receives_max;
        let floors = limits.connections_max.saturating_mul(RECEIVES_IDLE);
        let shared = count.saturating_sub(floors).saturating_add(FLOORS_POSTED);
        let posted_max = if sends_wait { shared.min(count) } else { count };
        let buffers = (0..count).map(|_| pool.lease(INLINE_SIZE).map(Local::into_sink));
        Some(Self {
            buffers: Buffers(buffers.collect::<Option<_>>()?),
            returned: (0..count).rev().collect(),
            cold: count,
            posted: 0,
            posted_max,
            batch: Vec::with_capacity(posted_max as usize),
            held: 0,
            unreserved: count,
            fresh: 0,
            freed: 0,
            connections: 0,
            share: count,
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

    /// Borrows the buffers.
    pub(crate) const fn buffers(&self) -> &Buffers {
        &self.buffers
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
        self.unreserved += 1;
        if received.buffer == NO_BUFFER {
            self.freed += 1;
        } else {
            self.returned.push(received.buffer);
        }
    }

    /// Returns how many buffers there are: they count as posted leases, with or without messages.
    pub(crate) const fn count(&self) -> usize {
        self.limits.receives_max as usize
    }

    /// Returns how many buffers have messages in them.
    #[cfg(test)]
    pub(crate) const fn held(&self) -> u32 {
        self.held
    }

    /// Returns the Receives to post now, before any of them is reserved again.
    pub(crate) fn batch(&mut self) -> &mut Vec<Receive> {
        let Buffers(buffers) = &mut self.buffers;
        let unposted = u32::try_from(self.returned.len()).unwrap_or(u32::MAX);
        self.fresh = unposted.saturating_sub(self.cold) + std::mem::take(&mut self.freed);
        let count = unposted.min(self.posted_max.saturating_sub(self.posted));
        (self.cold, self.posted) = (unposted - count, self.posted + count);
        for number in self.returned.drain(self.cold as usize..) {
            let buffer = buffers.get_mut(number as usize);
            if let Some(view) = buffer.and_then(|buffer| buffer.sink(0..INLINE_SIZE)) {
                self.batch.push(Receive::single(Name::Receive(number as usize).wr_id(), view));
            }
        }
        &mut self.batch
    }

    /// Reserves the floor for a new connection; false if there is not even that.
    pub(crate) fn admit(&mut self) -> bool {
        let fits = self.unreserved >= RECEIVES_IDLE;
        if fits {
            self.unreserved -= RECEIVES_IDLE;
        }
        fits
    }

    /// Takes note of how many connections share what there is.
    pub(crate) fn divide(&mut self, connections: u32) {
        self.connections = connections;
        self.share = self.limits.receives_max / connections.max(1);
    }

    /// Reserves more for a connection that has `reserved` left and awaits `owed` Replies. Returns how
    /// many.
    #[inline]
    pub(crate) fn grow(&mut self, reserved: u32, owed: u32) -> u32 {
        // Calls that are not answered hold Receives: who has so many waiting waits too.
        let has = reserved.saturating_add(owed);
        let floor = RECEIVES_IDLE.saturating_sub(has);
        let spare = self.unreserved.saturating_sub(self.floors_due());
        // Beyond its floor as much as is left to others after it: the fewer are busy, the more each has.
        let even = has.saturating_add(spare + RECEIVES_IDLE) / 2;
        let fair = even.max(self.share);
        let target = fair.min(self.limits.credits_max + 1);
        let busy = target.saturating_sub(has).min(spare);
        let more = busy.max(floor).min(self.unreserved);
        self.unreserved -= more;
        more
    }

    /// Returns the floors that unreserved Receives are kept for: those of connections to come, and those
    /// that may be short of what has just come back.
    const fn floors_due(&self) -> u32 {
        let Self { connections, limits: Limits { connections_max, .. }, .. } = *self;
        let others = connections.saturating_sub(1) * RECEIVES_IDLE;
        let fresh = self.fresh + self.freed;
        let short = if fresh < others { fresh } else { others };
        connections_max.saturating_sub(connections) * RECEIVES_IDLE + short
    }

    /// Forgets the reservations of a connection that is gone. Modulo 2^32: a peer that sent more than
    /// was reserved for it gives back less than nothing.
    pub(crate) fn release(&mut self, reserved: u32) {
        self.unreserved = self.unreserved.wrapping_add(reserved);
    }
}

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

    use super::*;
    use crate::limits::LIMITS_DEFAULT;

    const CONNECTIONS: u32 = 100;
    const BEYOND: u32 = 60;

    /// Makes Receives with every floor there can be reserved.
    fn admitted() -> (Receives, Pool) {
        let (connections_max, credits_max) = (CONNECTIONS, 32);
        let receives_max = CONNECTIONS * RECEIVES_IDLE + BEYOND;
        let limits = Limits { connections_max, receives_max, credits_max, ..LIMITS_DEFAULT };
        let bytes = 2 * receives_max as usize * INLINE_SIZE;
        let pages = PagePreference::Best;
        let pool = Pool::new(&PoolConfig { bytes, pages, node: None }).unwrap();
        let mut receives = Receives::new(&pool, &limits, true).unwrap();
        receives.batch().clear();
        for _ in 0..CONNECTIONS {
            assert!(receives.admit());
        }
        receives.divide(CONNECTIONS);
        // Nothing of a turn is left.
        receives.batch();
        (receives, pool)
    }

    /// Has a message arrive and be done with.
    fn used(receives: &mut Receives, buffer: u32) {
        receives.held += 1;
        receives.posted -= 1;
        receives.give_back(Filled { buffer, length: 0 });
    }

    #[test]
    fn the_fewer_are_busy_the_more_each_has_and_idle_ones_cost_nothing_more() {
        for (busy, least) in [(1, 20), (2, 15), (10, 4), (60, 0)] {
            let (mut receives, _pool) = admitted();
            let mut reserved = vec![RECEIVES_IDLE; busy];
            for _ in 0..50 {
                // Each uses the half of what it has, and is given more.
                for has in &mut reserved {
                    let half = *has / 2;
                    (0..half).for_each(|buffer| used(&mut receives, buffer));
                    *has -= half;
                    receives.batch().clear();
                    *has += receives.grow(*has, 0);
                }
            }
            let beyond = reserved.iter().map(|has| has.checked_sub(RECEIVES_IDLE).unwrap());
            assert!(beyond.clone().all(|more| more >= least), "{busy} busy: {reserved:?}");
            assert!(beyond.sum::<u32>() <= BEYOND, "{busy} busy: {reserved:?}");
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
        let mut eager = Receives::new(&pool, &limits, false).unwrap();
        assert_eq!(names(&mut eager).len(), receives_max as usize);
        drop(eager);
        let mut receives = Receives::new(&pool, &limits, true).unwrap();
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

    #[test]
    fn no_greed_keeps_a_floor_from_its_owner() {
        let (mut receives, _pool) = admitted();
        // Some have taken all there is.
        let mut greedy = [RECEIVES_IDLE; 40];
        for _ in 0..40 {
            for has in &mut greedy {
                *has += receives.grow(*has, 0);
            }
        }
        // In one turn messages of the others use up their floors, and the greedy are served first.
        let others = CONNECTIONS - 40;
        (0..others * RECEIVES_IDLE).for_each(|buffer| used(&mut receives, buffer));
        receives.batch();
        for has in &mut greedy {
            *has += receives.grow(*has, 0);
        }
        for _ in 0..others {
            assert_eq!(receives.grow(0, 0).min(RECEIVES_IDLE), RECEIVES_IDLE);
        }
    }

    #[test]
    fn calls_that_are_not_answered_are_part_of_the_floor() {
        let (mut receives, _pool) = admitted();
        receives.unreserved = 2;
        assert_eq!(receives.grow(RECEIVES_IDLE - 3, 1), 2);
        receives.unreserved = 2;
        assert_eq!(receives.grow(0, RECEIVES_IDLE), 1);
        receives.unreserved = 0;
        assert_eq!(receives.grow(0, 0), 0);
    }
}
