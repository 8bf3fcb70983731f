//! Any provider whose queue pairs share their Receives, with messages that may be taken without one, for tests.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use haulage_mr_pool::{Local, Pool, PostedSink};
use haulage_proto::time::Instant;
use haulage_proto::verbs::{Access, Completion, Handle, Opcode, QpNum, WrId};

use super::corrupting::{Corrupting, Fate};
use super::pass_on::pass_on;
use super::sim::Rng;
use super::{
    Done, Event, Head, MessageSink, OpenResult, Outgoing, Port, Provider, QueueFull, RUN_MAX,
    Receive, Run, RunKind, Sent, WorkQueue, sealed,
};
use crate::sys::complete;

/// Wraps a provider and delivers its messages without Receives, as far as the core takes them so.
///
/// # Normal operation
/// Each Receive of the core stays here, and one of the wrapper's own is posted in its place. A message that fills one
/// is offered to the core once, together with the messages behind it of the same queue pair. A message that the core
/// does not take is copied into its next Receive and reported by the poll after that.
///
/// Where each queue pair has its own Receives, the wrapper passes everything on unchanged.
///
/// # Memory ownership
/// A message lies in a lease of the wrapper's own pool, which is posted again once the message was taken or
/// copied.
#[derive(Debug)]
pub struct Lending<P: Provider> {
    /// First, so that its views are dropped before the memory is.
    inner: P,
    is_on: bool,
    /// The core's Receives, in the order they were posted.
    receives: VecDeque<Receive>,
    /// The wrapper's own Receives, by id.
    posted: Posted,
    next: u64,
    /// Events of the inner provider that have not been passed on.
    held: VecDeque<Held<P::Listener>>,
    arrived: Vec<Event<P::Listener>>,
    rng: Rng,
    percent: u8,
    /// Changes the messages that arrive, if present.
    corrupting: Option<Corrupting>,
    /// Queue pairs whose connections are lost.
    lost: Vec<QpNum>,
    pool: Pool,
}

/// The wrapper's own Receives, whose memory goes home with the wrapper: the provider is gone by then.
#[derive(Debug, Default)]
struct Posted(BTreeMap<u64, PostedSink>);

impl Drop for Posted {
    fn drop(&mut self) {
        for (_, sink) in std::mem::take(&mut self.0) {
            let back = sink.complete();
            debug_assert!(back.is_ok(), "a provider that is gone keeps no view");
        }
    }
}

#[derive(Debug)]
enum Held<L> {
    Event(Event<L>),
    Message(Message),
}

/// A message that is in no Receive of the core's.
#[derive(Debug)]
struct Message {
    lease: Local,
    done: Done,
}

impl Message {
    fn octets(&self) -> &[u8] {
        self.lease.bytes().get(..self.done.length as usize).unwrap_or_default()
    }
}

impl<P: Provider> Lending<P> {
    /// Wraps `inner` so that about `percent` of a hundred chances to deliver messages without Receives are taken.
    /// `pool` holds as many Receives as the core posts.
    pub fn new(inner: P, pool: Pool, seed: u64, percent: u8) -> Self {
        let is_on = inner.caps().receives_each.is_none();
        Self {
            inner,
            is_on,
            receives: VecDeque::new(),
            posted: Posted::default(),
            next: 0,
            held: VecDeque::new(),
            arrived: Vec::new(),
            rng: Rng::new(seed),
            percent,
            corrupting: None,
            lost: Vec::new(),
            pool,
        }
    }

    /// Has `corrupting` change the messages that arrive, where queue pairs share their Receives.
    #[must_use]
    pub fn with(mut self, corrupting: Corrupting) -> Self {
        self.corrupting = Some(corrupting);
        self
    }

    /// Posts a Receive of the wrapper's own for each of the core's that has none yet.
    fn replenish(&mut self) {
        let messages = self.held.iter().filter(|held| matches!(held, Held::Message(_))).count();
        let mut batch = Vec::new();
        for receive in self.receives.iter().skip(self.posted.0.len() + messages) {
            let length = receive.sinks().map(haulage_mr_pool::Sink::len).sum();
            let Some(lease) = self.pool.lease(length) else { break };
            let mut posted = lease.into_sink();
            let Some(sink) = posted.sink(0..length) else { break };
            batch.push(Receive::single(WrId(self.next), sink));
            self.posted.0.insert(self.next, posted);
            self.next += 1;
        }
        let refused = self.inner.post_receives(&mut batch);
        debug_assert!(refused.is_ok(), "the core knows how many Receives there can be");
    }

    /// Notes an event of the provider; a Receive is turned into the message that filled it.
    fn hold(&mut self, event: Event<P::Listener>) {
        let held = match event {
            Event::Completion(done) if self.is_on && done.opcode == Opcode::Receive => {
                let posted = self.posted.0.remove(&done.id.0);
                let Some(mut lease) = posted.and_then(|posted| complete::sink(posted, &done))
                else {
                    return debug_assert!(false, "a Receive that was posted completes");
                };
                if let Some(corrupting) = &mut self.corrupting {
                    let octets = lease.bytes_mut().get_mut(..done.length as usize);
                    if corrupting.befall(octets.unwrap_or_default()) == Fate::Lost {
                        self.lost.push(done.qp);
                    }
                }
                Held::Message(Message { lease, done })
            }
            other => Held::Event(other),
        };
        self.held.push_back(held);
    }

    /// Fills the core's next Receive with a message, and returns its completion.
    fn fill(&mut self, message: &Message) -> Option<Event<P::Listener>> {
        let mut receive = self.receives.pop_front()?;
        let mut rest = message.octets();
        for sink in receive.sinks_mut() {
            let (part, after) = rest.split_at(rest.len().min(sink.len()));
            let placed = sink.place(0, part);
            debug_assert!(placed.is_ok(), "the part is no longer than the sink");
            rest = after;
        }
        let id = receive.id;
        drop(receive); // the views, before the completion
        Some(Event::Completion(Done::new(Completion { id, ..*message.done })))
    }
}

/// Sends on the queue pair of the messages that a core is offered.
struct LendingPort<O> {
    inner: O,
    qp: QpNum,
    /// Handles that the messages of the run invalidate and that the core has not retired.
    retired: Vec<Handle>,
}

impl<O: Port> Port for LendingPort<O> {
    fn send(&mut self, head: &Head<'_>, message: &mut Outgoing, id: WrId) -> Sent {
        self.inner.send(head, message, id)
    }

    fn open(&mut self, lease: Local, access: Access) -> OpenResult {
        self.inner.open(lease, access)
    }

    /// Returns the proof that came with the message.
    fn retire(&mut self, handle: Handle) -> Option<Done> {
        let at = self.retired.iter().position(|retired| *retired == handle)?;
        self.retired.swap_remove(at);
        Some(Done::invalidating(self.qp, handle))
    }

    fn post(&mut self, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        self.inner.post(batch)
    }
}

impl<P: Provider> sealed::Sealed for Lending<P> {}

impl<P: Provider> Provider for Lending<P> {
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
        for _ in 0..budget {
            match self.held.pop_front() {
                None => break,
                Some(Held::Event(event)) => events.push(event),
                Some(Held::Message(message)) => match self.fill(&message) {
                    Some(event) => events.push(event),
                    // The message waits for a Receive, and so does everything behind it.
                    None => {
                        self.held.push_front(Held::Message(message));
                        break;
                    }
                },
            }
        }
        let room = budget.min(HELD_MAX.saturating_sub(self.held.len()));
        let mut arrived = std::mem::take(&mut self.arrived);
        self.inner.poll(now, room, &mut arrived);
        if self.is_on {
            arrived.drain(..).for_each(|event| self.hold(event));
            self.lost.drain(..).for_each(|qp| self.inner.disconnect(now, qp));
            self.replenish();
        } else {
            events.append(&mut arrived);
        }
        self.arrived = arrived;
    }

    /// Returns a time in the past while events are held: they may be passed on at once.
    fn poll_deadline(&self) -> Option<Instant> {
        if self.held.is_empty() { self.inner.poll_deadline() } else { Some(Instant::ZERO) }
    }

    fn sleep(&mut self, limit: Option<Duration>) {
        self.inner.sleep(if self.held.is_empty() { limit } else { Some(Duration::ZERO) });
    }

    /// Offers the messages that are held, of each queue pair that has no other event to be reported first.
    fn receive_in_place(
        &mut self,
        _: &mut [u8],
        length_max: usize,
        budget: usize,
        sink: &mut impl MessageSink,
    ) -> usize {
        let mut asked: Vec<QpNum> = Vec::new();
        let mut total = 0;
        let mut at = 0;
        while total < budget && at < self.held.len() {
            let qp = match self.held.get(at) {
                Some(Held::Message(message)) => message.done.qp,
                Some(Held::Event(event)) => {
                    asked.extend(queue_pair(event));
                    at += 1;
                    continue;
                }
                None => break,
            };
            at += 1;
            if asked.contains(&qp) {
                continue;
            }
            asked.push(qp);
            if self.rng.below(0..100) >= u64::from(self.percent) {
                continue;
            }
            let taken = self.offer(qp, length_max, (budget - total).min(RUN_MAX), sink);
            total += taken;
            // The messages behind have moved up.
            at = if taken > 0 { 0 } else { at };
        }
        total
    }

    fn post_receives(&mut self, batch: &mut Vec<Receive>) -> Result<(), QueueFull> {
        if !self.is_on {
            return self.inner.post_receives(batch);
        }
        let room = self.inner.caps().receive_queue_max.saturating_sub(self.receives.len());
        self.receives.extend(batch.drain(..room.min(batch.len())));
        self.replenish();
        if batch.is_empty() { Ok(()) } else { Err(QueueFull) }
    }
}

impl<P: Provider> Lending<P> {
    /// Offers the first messages held of a queue pair, either all with an invalidation, or all without. Returns how
    /// many the core took.
    fn offer(
        &mut self,
        qp: QpNum,
        length_max: usize,
        count_max: usize,
        sink: &mut impl MessageSink,
    ) -> usize {
        let Self { inner, held, .. } = self;
        let of_qp = held.iter().enumerate().filter_map(|(at, held)| match held {
            Held::Message(message) if message.done.qp == qp => Some((at, Some(message))),
            Held::Event(event) if queue_pair(event) == Some(qp) => Some((at, None)),
            _ => None,
        });
        let run: Vec<_> = of_qp
            .map_while(|(at, message)| Some((at, message?)))
            .take_while(|(_, message)| message.octets().len() <= length_max)
            .take(count_max)
            .collect();
        let invalidates = |message: &Message| message.done.invalidated.is_some();
        let Some(first) = run.first().map(|(_, message)| invalidates(message)) else { return 0 };
        let run = run.into_iter().take_while(|(_, message)| invalidates(message) == first);
        let (places, run): (Vec<_>, Vec<_>) = run.unzip();
        let octets: Vec<_> = run.iter().map(|message| message.octets()).collect();
        let handles: Vec<_> = run.iter().filter_map(|message| message.done.invalidated).collect();
        let Some(port) = inner.port(qp) else { return 0 };
        let mut way = LendingPort { inner: port, qp, retired: handles.clone() };
        let kind = if first { RunKind::Invalidating(&handles) } else { RunKind::Whole };
        let taken = sink.messages(qp, &Run { octets: &octets, kind }, &mut way);
        drop(way);
        for at in places.into_iter().take(taken).rev() {
            held.remove(at);
        }
        self.replenish();
        taken
    }
}

/// Returns the queue pair of an event.
fn queue_pair<L>(event: &Event<L>) -> Option<QpNum> {
    match event {
        Event::Completion(done) => Some(done.qp),
        Event::Request { qp, .. }
        | Event::Established { qp, .. }
        | Event::Failed { qp, .. }
        | Event::Disconnected { qp, .. } => Some(*qp),
        Event::Quiesced(quiesced) => Some(quiesced.qp()),
    }
}

/// The most events held at once.
const HELD_MAX: usize = 256;
