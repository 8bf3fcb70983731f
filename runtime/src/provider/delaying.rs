//! Any provider, with its events held back for a while, for tests.

use std::collections::VecDeque;
use std::time::Duration;

use haulage_proto::time::Instant;

use super::pass_on::pass_on;
use super::sim::Rng;
use super::{Event, MessageSink, Provider, QueueFull, Receive, sealed};

/// Wraps a provider and withholds its events, in order, for a few polls chosen by a seed.
///
/// The contract allows every provider to be this slow, so code that works with a provider must work with this around
/// it. At most [`HELD_MAX`] events are held; past that the inner provider is not polled.
#[derive(Debug)]
pub struct Delaying<P: Provider> {
    inner: P,
    held: VecDeque<Event<P::Listener>>,
    arrived: Vec<Event<P::Listener>>,
    rng: Rng,
    percent: u8,
}

/// Events that may be held back at once.
pub const HELD_MAX: usize = 256;

impl<P: Provider> Delaying<P> {
    /// Wraps `inner` so that about `percent` of a hundred events make those behind them wait for another poll.
    pub fn new(inner: P, seed: u64, percent: u8) -> Self {
        let held = VecDeque::with_capacity(HELD_MAX);
        Self { inner, held, arrived: Vec::with_capacity(HELD_MAX), rng: Rng::new(seed), percent }
    }
}

impl<P: Provider> Delaying<P> {
    /// Returns the provider within, to set it up.
    pub const fn inner_mut(&mut self) -> &mut P {
        &mut self.inner
    }
}

impl<P: Provider> sealed::Sealed for Delaying<P> {}

impl<P: Provider> Provider for Delaying<P> {
    type Listener = P::Listener;
    type Incoming = P::Incoming;
    type Port<'a>
        = P::Port<'a>
    where
        Self: 'a;

    pass_on! {
        caps, listen, unlisten, next_incoming, adopt, connect, answer, peer_user, disconnect, port,
        reserve_receives, waker, counters,
    }

    fn poll(&mut self, now: Instant, budget: usize, events: &mut Vec<Event<P::Listener>>) {
        let room = budget.min(HELD_MAX.saturating_sub(self.held.len()));
        self.inner.poll(now, room, &mut self.arrived);
        self.held.extend(self.arrived.drain(..));
        for _ in 0..budget {
            if self.held.is_empty() || self.rng.below(0..100) < u64::from(self.percent) {
                return;
            }
            events.extend(self.held.pop_front());
        }
    }

    /// Returns a time in the past while events are held back: the next poll must not wait.
    fn poll_deadline(&self) -> Option<Instant> {
        if self.held.is_empty() { self.inner.poll_deadline() } else { Some(Instant::ZERO) }
    }

    fn sleep(&mut self, limit: Option<Duration>) {
        self.inner.sleep(if self.held.is_empty() { limit } else { Some(Duration::ZERO) });
    }

    /// Takes nothing while events are held back, which come first.
    fn receive_in_place(
        &mut self,
        room: &mut [u8],
        length_max: usize,
        budget: usize,
        sink: &mut impl MessageSink,
    ) -> usize {
        if !self.held.is_empty() || self.rng.below(0..100) < u64::from(self.percent) {
            return 0;
        }
        self.inner.receive_in_place(room, length_max, budget, sink)
    }

    fn post_receives(&mut self, batch: &mut Vec<Receive>) -> Result<(), QueueFull> {
        self.inner.post_receives(batch)
    }
}
