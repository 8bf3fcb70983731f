//! The shared receive pool: who may fill how much of it.
//!
//! # Limits
//! A Receive is *reserved* for a connection from the moment the peer is told of it until a message
//! used it. The sum of reservations never exceeds what is posted (P4), so no peer within its credit
//! ever finds the queue empty because of another. Reservations are not taken back: a connection
//! shrinks by not being given new ones (P1).

use haulage_mr_pool::{Local, Pool, PostedSink};

use crate::core::work::Name;
use crate::limits::{INLINE_SIZE, Limits, RECEIVES_IDLE};
use crate::provider::{Done, Receive};
use crate::sys::complete;

/// The Receives of one core.
#[derive(Debug)]
pub(crate) struct Receives {
    posted: Box<[Option<PostedSink>]>,
    /// Buffer numbers that are not posted: free, or held by a message in progress.
    idle: Vec<usize>,
    /// To be posted before the next Send.
    batch: Vec<Receive>,
    /// Posted or about to be, and reserved for nobody.
    unreserved: u32,
    limits: Limits,
}

impl Receives {
    /// Leases every buffer and prepares to post them all; `None` if the pool is too small.
    pub(crate) fn new(pool: &Pool, limits: &Limits) -> Option<Self> {
        let count = limits.receives_max as usize;
        let mut receives = Self {
            posted: std::iter::repeat_with(|| None).take(count).collect(),
            idle: (0..count).rev().collect(),
            batch: Vec::with_capacity(count),
            unreserved: 0,
            limits: *limits,
        };
        for _ in 0..count {
            receives.give_back(pool.lease(INLINE_SIZE)?);
        }
        Some(receives)
    }

    /// Queues a buffer to be posted (again).
    pub(crate) fn give_back(&mut self, mut buffer: Local) {
        let capacity = buffer.capacity().min(INLINE_SIZE);
        buffer.set_len(capacity);
        let Some(number) = self.idle.pop() else {
            debug_assert!(false, "more buffers came back than were taken");
            return;
        };
        let sink = buffer.into_sink();
        if let Some(view) = sink.sink(0..INLINE_SIZE) {
            self.batch.push(Receive::single(Name::Receive(number).wr_id(), view));
        }
        if let Some(place) = self.posted.get_mut(number) {
            *place = Some(sink);
        }
        self.unreserved += 1;
    }

    /// Takes the buffer a completed Receive filled.
    pub(crate) fn take(&mut self, number: usize, done: &Done) -> Option<Local> {
        let posted = self.posted.get_mut(number)?.take()?;
        self.idle.push(number);
        complete::sink(posted, done)
    }

    /// Returns how many buffers are posted, or about to be.
    pub(crate) fn posted(&self) -> usize {
        self.posted.len() - self.idle.len()
    }

    /// Returns the Receives to post now.
    pub(crate) fn batch(&mut self) -> &mut Vec<Receive> {
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

    /// Reserves more for a connection that has `reserved` left and awaits `owed` Replies, one of
    /// `connections`. Returns how many.
    pub(crate) fn grow(&mut self, reserved: u32, owed: u32, connections: u32) -> u32 {
        let fair = self.limits.receives_max / connections.max(1);
        let target = fair.clamp(RECEIVES_IDLE, self.limits.credits_max + 1);
        // Every connection there can be keeps its floor, whatever the busy ones would like.
        let floors = self.limits.connections_max * RECEIVES_IDLE;
        let spare = self.unreserved.saturating_sub(floors);
        let busy = target.saturating_sub(reserved.saturating_add(owed)).min(spare);
        // Calls that are not answered hold Receives: who has so many waiting waits too.
        let floor = if owed <= target { RECEIVES_IDLE.saturating_sub(reserved) } else { 0 };
        let more = busy.max(floor).min(self.unreserved);
        self.unreserved -= more;
        more
    }

    /// Forgets the reservations of a connection that is gone. Modulo 2^32: a peer that sent more than
    /// was reserved for it gives back less than nothing.
    pub(crate) fn release(&mut self, reserved: u32) {
        self.unreserved = self.unreserved.wrapping_add(reserved);
    }
}

impl Drop for Receives {
    fn drop(&mut self) {
        // The provider is gone, and with it every view of what it was given; these are the others.
        self.batch.clear();
        for sink in self.posted.iter_mut().filter_map(Option::take) {
            // Only a provider that outlives its core still has views: its buffers stay out of use.
            drop(sink.complete());
        }
    }
}
