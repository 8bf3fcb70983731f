//! Any provider, with its requests and events recorded, for tests.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use haulage_mr_pool::Local;
use haulage_proto::time::Instant;
use haulage_proto::verbs::{Access, ClaimedSegment, Handle, Opcode, QpNum, Status, WrId};

use super::pass_on::pass_on;
use super::{
    ConnectError, ConnectionAnswer, ConnectionParams, Done, Event, Head, MessageSink, OpenResult,
    Operation, Outgoing, Port, Provider, QueueFull, Receive, Refused, Run, Sent, WorkQueue,
    WorkRequest, sealed,
};

/// Wraps a provider and records each verb, completion and event in a [`Trace`].
///
/// The wrapper changes nothing. Octets of messages are recorded as a digest, so that two traces are equal only if every
/// message was.
#[derive(Debug)]
pub struct Tracing<P: Provider> {
    inner: P,
    trace: Trace,
    node: u32,
    now: Instant,
}

impl<P: Provider> Tracing<P> {
    /// Wraps `inner`, whose lines in `trace` bear the number `node`.
    pub const fn new(inner: P, trace: Trace, node: u32) -> Self {
        Self { inner, trace, node, now: Instant::ZERO }
    }

    fn note(&self, qp: QpNum, step: Step) {
        let Self { trace, node, now, .. } = self;
        Pen { trace, node: *node, now: *now }.note(qp, step);
    }
}

/// Lines in the order of their events, of any number of providers. Clones are the same trace.
#[derive(Clone, Debug)]
pub struct Trace(Rc<RefCell<Lines>>);

#[derive(Debug)]
struct Lines {
    last: VecDeque<Line>,
    kept_max: usize,
    count: u64,
    /// The number of lines with each kind of step.
    kinds: BTreeMap<u64, u64>,
    digest: u64,
}

impl Trace {
    /// Makes an empty trace that keeps the last `kept_max` lines, and a digest of all.
    pub fn new(kept_max: usize) -> Self {
        let (last, kinds) = (VecDeque::new(), BTreeMap::new());
        let lines = Lines { last, kept_max, count: 0, kinds, digest: DIGEST_START };
        Self(Rc::new(RefCell::new(lines)))
    }

    /// Returns a digest of all lines so far: equal traces have equal digests.
    pub fn digest(&self) -> u64 {
        self.0.borrow().digest
    }

    /// Returns the number of lines so far.
    pub fn count(&self) -> u64 {
        self.0.borrow().count
    }

    /// Returns the number of lines so far whose step is of the same kind as `step`, whatever its values.
    pub fn count_like(&self, step: &Step) -> u64 {
        let [kind, ..] = step.words();
        self.0.borrow().kinds.get(&kind).copied().unwrap_or_default()
    }

    /// Returns the lines that are kept, oldest first.
    pub fn lines(&self) -> Vec<Line> {
        self.0.borrow().last.iter().copied().collect()
    }

    fn push(&self, line: Line) {
        let mut lines = self.0.borrow_mut();
        lines.count += 1;
        let [kind, ..] = line.step.words();
        *lines.kinds.entry(kind).or_default() += 1;
        lines.digest = line.words().into_iter().fold(lines.digest, mix);
        if lines.last.len() == lines.kept_max {
            lines.last.pop_front();
        }
        if lines.kept_max > 0 {
            lines.last.push_back(line);
        }
    }
}

/// One event between a core and its provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The time of the provider's latest poll.
    pub at: Instant,
    /// The number of the provider.
    pub node: u32,
    /// The queue pair.
    pub qp: QpNum,
    /// The event.
    pub step: Step,
}

/// A kind of event between a core and its provider, with its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The core connects.
    Connect,
    /// The core accepts.
    Accept,
    /// The core rejects.
    Reject,
    /// The core disconnects.
    Disconnect,
    /// The core posts a request.
    Post {
        /// The request's kind.
        opcode: Opcode,
        /// The request's name.
        id: u64,
        /// The digest of the octets sent or written, or the length of a Read.
        octets: u64,
        /// The handle that the request names.
        handle: u32,
    },
    /// The core sends a message that the provider copies.
    SendCopied {
        /// The digest of the message.
        octets: u64,
        /// The handle that the message invalidates, or zero.
        handle: u32,
    },
    /// The core sends a message that the provider takes.
    SendTaken {
        /// The name of its completion.
        id: u64,
        /// The digest of the message, and of what goes ahead of it.
        octets: u64,
        /// The handle that the message invalidates, or zero.
        handle: u32,
    },
    /// The core takes a message that used no Receive.
    Taken {
        /// The digest of the message.
        octets: u64,
    },
    /// The core leaves messages that it was offered without Receives.
    Left {
        /// The number of messages.
        count: usize,
    },
    /// The provider copies what goes ahead of a message to the peer's memory.
    WriteCopied {
        /// The digest of the octets written.
        octets: u64,
        /// The handle of the memory written to.
        handle: u32,
    },
    /// The core opens a lease.
    Open {
        /// The handle of the lease.
        handle: u32,
    },
    /// The core retires a handle that a message it takes invalidates.
    Retire {
        /// The handle.
        handle: u32,
    },
    /// The core posts Receives.
    PostReceives {
        /// The number of Receives.
        count: usize,
    },
    /// The core reserves Receives for the queue pair.
    Reserve {
        /// The number of Receives.
        count: u32,
    },
    /// The provider reports a completion.
    Completed {
        /// The request's kind.
        opcode: Opcode,
        /// The request's name.
        id: u64,
        /// The status of the request.
        status: Status,
        /// Octets received.
        length: u32,
        /// The handle that was retired, or zero.
        handle: u32,
    },
    /// The provider reports a peer's request for a connection.
    Request,
    /// The provider reports that the connection carries messages.
    Established,
    /// The provider reports that connection setup failed.
    Failed,
    /// The provider reports that the connection is gone.
    Disconnected,
    /// The provider reports that it holds nothing of the connection.
    Quiesced,
}

impl Line {
    fn of_event<L>(event: &Event<L>) -> (QpNum, Step) {
        match event {
            Event::Completion(done) => {
                let step = Step::Completed {
                    opcode: done.opcode,
                    id: done.id.0,
                    status: done.status,
                    length: done.length,
                    handle: done.invalidated.map_or(0, |handle| handle.0),
                };
                (done.qp, step)
            }
            Event::Request { qp, .. } => (*qp, Step::Request),
            Event::Established { qp, .. } => (*qp, Step::Established),
            Event::Failed { qp, .. } => (*qp, Step::Failed),
            Event::Disconnected { qp, .. } => (*qp, Step::Disconnected),
            Event::Quiesced(quiesced) => (quiesced.qp(), Step::Quiesced),
        }
    }

    /// Returns the line as numbers, for a digest.
    fn words(&self) -> [u64; 9] {
        let Self { at, node, qp, step } = *self;
        let [a, b, c, d, e] = step.words();
        let (slot, generation) = (qp.slot() as u64, u64::from(qp.generation()));
        [at.as_nanos(), u64::from(node), slot, generation, a, b, c, d, e]
    }
}

impl Step {
    /// Returns the step as numbers, that of its kind first.
    fn words(&self) -> [u64; 5] {
        match *self {
            Self::Connect => [0; 5],
            Self::Accept => [1, 0, 0, 0, 0],
            Self::Reject => [2, 0, 0, 0, 0],
            Self::Disconnect => [3, 0, 0, 0, 0],
            Self::Post { opcode, id, octets, handle } => {
                [4, opcode as u64, id, octets, u64::from(handle)]
            }
            Self::SendCopied { octets, handle } => [5, octets, u64::from(handle), 0, 0],
            Self::SendTaken { id, octets, handle } => [19, octets, u64::from(handle), id, 0],
            Self::Taken { octets } => [6, octets, 0, 0, 0],
            Self::PostReceives { count } => [7, count as u64, 0, 0, 0],
            Self::Reserve { count } => [8, u64::from(count), 0, 0, 0],
            Self::Completed { opcode, id, status, length, handle } => {
                let status = digest(format!("{status:?}").as_bytes());
                [9 + opcode as u64, id, status, u64::from(length), u64::from(handle)]
            }
            Self::Left { count } => [15, count as u64, 0, 0, 0],
            Self::WriteCopied { octets, handle } => [16, octets, u64::from(handle), 0, 0],
            Self::Open { handle } => [17, u64::from(handle), 0, 0, 0],
            Self::Retire { handle } => [18, u64::from(handle), 0, 0, 0],
            Self::Request => [20, 0, 0, 0, 0],
            Self::Established => [21, 0, 0, 0, 0],
            Self::Failed => [22, 0, 0, 0, 0],
            Self::Disconnected => [23, 0, 0, 0, 0],
            Self::Quiesced => [24, 0, 0, 0, 0],
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, node, qp, step } = self;
        write!(f, "{at} node {node} qp {}.{} {step:x?}", qp.slot(), qp.generation())
    }
}

/// Returns a digest of octets.
fn digest(octets: &[u8]) -> u64 {
    let mut words = octets.chunks_exact(8);
    let mut sum = mix(DIGEST_START, octets.len() as u64);
    for word in words.by_ref() {
        sum = mix(sum, word.try_into().map_or(0, u64::from_le_bytes));
    }
    words.remainder().iter().fold(sum, |sum, octet| mix(sum, u64::from(*octet)))
}

/// Adds a number to a digest (FNV-1a, a word at a time, with the high half brought down).
const fn mix(sum: u64, word: u64) -> u64 {
    let mixed = (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3);
    mixed ^ mixed >> 29
}

const DIGEST_START: u64 = 0xcbf2_9ce4_8422_2325;

fn posted(request: &WorkRequest) -> Step {
    let (octets, handle) = match &request.operation {
        Operation::Send { source, invalidate } => {
            (digest(source.bytes()), invalidate.map_or(0, |handle| handle.0))
        }
        Operation::Write { source, target } => (digest(source.bytes()), target.handle().0),
        Operation::Read { source, .. } => (u64::from(source.length()), source.handle().0),
        Operation::LocalInv { handle } => (0, handle.0),
    };
    Step::Post { opcode: request.operation.opcode(), id: request.id.0, octets, handle }
}

/// Records the messages that a core takes without Receives.
struct Watched<'a, I> {
    sink: &'a mut I,
    pen: Pen<'a>,
}

/// Records lines of one provider.
#[derive(Clone, Copy, Debug)]
struct Pen<'a> {
    trace: &'a Trace,
    node: u32,
    now: Instant,
}

impl Pen<'_> {
    fn note(&self, qp: QpNum, step: Step) {
        self.trace.push(Line { at: self.now, node: self.node, qp, step });
    }

    fn note_run(&self, qp: QpNum, run: &Run<'_>, taken: usize) {
        for message in run.octets.iter().take(taken) {
            self.note(qp, Step::Taken { octets: digest(message) });
        }
        if taken < run.octets.len() {
            self.note(qp, Step::Left { count: run.octets.len() - taken });
        }
    }
}

impl<I: MessageSink> MessageSink for Watched<'_, I> {
    fn messages(&mut self, qp: QpNum, run: &Run<'_>, port: &mut impl Port) -> usize {
        let pen = self.pen;
        let taken = self.sink.messages(qp, run, &mut TracingPort { inner: port, pen, qp });
        pen.note_run(qp, run, taken);
        taken
    }
}

/// Records the operations of a core on one queue pair.
#[derive(Debug)]
pub struct TracingPort<'a, O> {
    inner: O,
    pen: Pen<'a>,
    qp: QpNum,
}

impl<O: Port> Port for TracingPort<'_, O> {
    fn send(&mut self, head: &Head<'_>, message: &mut Outgoing, id: WrId) -> Sent {
        let handle = head.invalidated().map_or(0, |handle| handle.0);
        let octets = digest(message.message(head));
        let (mut written, mut to) = (mix(DIGEST_START, message.written() as u64), 0);
        message.copy_writes(|parts, target| {
            written = parts.iter().fold(written, |sum, part| mix(sum, digest(part)));
            to = target.handle().0;
            true
        });
        let has_writes = message.has_writes();
        let sent = self.inner.send(head, message, id);
        match sent {
            Sent::Copied => {
                if has_writes {
                    self.pen.note(self.qp, Step::WriteCopied { octets: written, handle: to });
                }
                self.pen.note(self.qp, Step::SendCopied { octets, handle });
            }
            Sent::Taken => {
                let octets = if has_writes { mix(octets, written) } else { octets };
                self.pen.note(self.qp, Step::SendTaken { id: id.0, octets, handle });
            }
            Sent::Full | Sent::Gone => {}
        }
        sent
    }

    fn read(&mut self, source: &ClaimedSegment, octets: &mut [u8]) -> Result<(), Refused> {
        self.inner.read(source, octets)
    }

    fn open(&mut self, lease: Local, access: Access) -> OpenResult {
        let (exposed, segment) = self.inner.open(lease, access)?;
        self.pen.note(self.qp, Step::Open { handle: segment.handle.0 });
        Ok((exposed, segment))
    }

    fn retire(&mut self, handle: Handle) -> Option<Done> {
        let done = self.inner.retire(handle)?;
        self.pen.note(self.qp, Step::Retire { handle: handle.0 });
        Some(done)
    }

    fn post(&mut self, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        let steps: Vec<_> = batch.iter().map(posted).collect();
        let result = self.inner.post(batch);
        let taken = steps.len() - batch.len();
        steps.into_iter().take(taken).for_each(|step| self.pen.note(self.qp, step));
        result
    }
}

impl<P: Provider> sealed::Sealed for Tracing<P> {}

impl<P: Provider> Provider for Tracing<P> {
    type Listener = P::Listener;
    type Incoming = P::Incoming;
    type Port<'a>
        = TracingPort<'a, P::Port<'a>>
    where
        Self: 'a;

    pass_on! { caps, listen, unlisten, next_incoming, adopt, peer_user, waker, counters }

    fn poll(&mut self, now: Instant, budget: usize, events: &mut Vec<Event<P::Listener>>) {
        self.now = now;
        let before = events.len();
        self.inner.poll(now, budget, events);
        for event in events.iter().skip(before) {
            let (qp, step) = Line::of_event(event);
            self.note(qp, step);
        }
    }

    fn poll_deadline(&self) -> Option<Instant> {
        self.inner.poll_deadline()
    }

    fn sleep(&mut self, limit: Option<Duration>) {
        self.inner.sleep(limit);
    }

    fn connect(
        &mut self,
        now: Instant,
        to: SocketAddr,
        params: &ConnectionParams<'_>,
    ) -> Result<QpNum, ConnectError> {
        let qp = self.inner.connect(now, to, params)?;
        self.note(qp, Step::Connect);
        Ok(qp)
    }

    fn answer(&mut self, now: Instant, qp: QpNum, answer: &ConnectionAnswer<'_>) {
        let step = match answer {
            ConnectionAnswer::Accept(_) => Step::Accept,
            ConnectionAnswer::Reject(_) => Step::Reject,
        };
        self.note(qp, step);
        self.inner.answer(now, qp, answer);
    }

    fn disconnect(&mut self, now: Instant, qp: QpNum) {
        self.note(qp, Step::Disconnect);
        self.inner.disconnect(now, qp);
    }

    fn port(&mut self, qp: QpNum) -> Option<Self::Port<'_>> {
        let Self { inner, trace, node, now } = self;
        let pen = Pen { trace, node: *node, now: *now };
        Some(TracingPort { inner: inner.port(qp)?, pen, qp })
    }

    fn receive_in_place(
        &mut self,
        room: &mut [u8],
        length_max: usize,
        budget: usize,
        sink: &mut impl MessageSink,
    ) -> usize {
        let Self { inner, trace, node, now } = self;
        let mut watched = Watched { sink, pen: Pen { trace, node: *node, now: *now } };
        inner.receive_in_place(room, length_max, budget, &mut watched)
    }

    fn post_receives(&mut self, batch: &mut Vec<Receive>) -> Result<(), QueueFull> {
        let before = batch.len();
        let result = self.inner.post_receives(batch);
        let count = before - batch.len();
        if count > 0 {
            // The Receives are for any queue pair.
            self.note(QpNum::new(0, 0), Step::PostReceives { count });
        }
        result
    }

    fn reserve_receives(&mut self, qp: QpNum, count: u32) {
        self.note(qp, Step::Reserve { count });
        self.inner.reserve_receives(qp, count);
    }
}
