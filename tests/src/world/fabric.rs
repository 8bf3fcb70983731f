//! A reliable connection between two memories, in steps that the caller chooses.
//!
//! # Normal operation
//! A work request waits in its send queue, is carried out in order, and travels; on arrival it acts on the peer's
//! memory and queues. Each of these, and each completion, is a step of its own, so they come in every order that a real
//! pair of queues allows: each send queue and each receive queue completes in order, and there is no order between
//! queues.
//!
//! # Recovery
//! None. An operation that would break a real connection is a bug of the ends under test, and panics.

use std::collections::VecDeque;

use haulage_proto::verbs::{ClaimedSegment, Handle, Operation};

use super::memory::{BlockId, Memory, Part};

/// Two queue pairs that are connected with each other. `T` is the tag of a work request.
#[derive(Debug)]
pub struct Link<T> {
    ends: [QueuePair<T>; 2],
    traits: Traits,
}

/// Traits of a connection, fixed for its life.
#[derive(Clone, Copy, Debug)]
pub struct Traits {
    /// Whether a Send or a Write completes once it is on its way, before it has arrived.
    pub eager: bool,
    /// Maximum number of Reads that one end has on their way.
    pub reads_max: usize,
}

/// A message in a completed Receive.
#[derive(Debug)]
pub struct Received {
    /// The octets of the message.
    pub message: Vec<u8>,
    /// The handle that the message invalidated.
    pub invalidated: Option<Handle>,
}

/// One end's queues, and its memory.
#[derive(Debug)]
pub struct QueuePair<T> {
    /// The blocks of the end.
    pub memory: Memory,
    /// Number of Receives that wait for a message.
    receives: usize,
    receive_size: usize,
    received: VecDeque<Received>,
    /// Work requests that have not completed; the first is number `retired`.
    queue: VecDeque<Entry<T>>,
    retired: usize,
    /// Number of work requests in the queue that have been carried out.
    started: usize,
    /// Number of Reads that wait for their octets.
    reading: usize,
    /// Requests on their way to the peer.
    outbound: VecDeque<Travelling>,
    responses: VecDeque<(usize, Vec<u8>)>,
}

#[derive(Debug)]
struct Entry<T> {
    tag: T,
    /// The operation, until it is carried out.
    operation: Option<Operation<Part, Part>>,
    /// The block that the operation uses.
    block: Option<BlockId>,
    sink: Option<Part>,
    done: bool,
}

/// A work request on its way.
#[derive(Debug)]
enum Travelling {
    Send { number: usize, message: Vec<u8>, invalidate: Option<Handle> },
    Write { number: usize, bytes: Vec<u8>, target: ClaimedSegment },
    Read { number: usize, source: ClaimedSegment },
}

impl<T: Clone> Link<T> {
    /// Connects two ends with Receives of `receive_sizes` octets.
    pub fn new(traits: Traits, receive_sizes: [usize; 2]) -> Self {
        Self { ends: receive_sizes.map(QueuePair::new), traits }
    }

    /// Returns the queue pair of one end.
    pub fn end(&mut self, at: usize) -> &mut QueuePair<T> {
        &mut self.ends[at]
    }

    /// Carries out the next work request of an end, if it may start. Returns whether it did.
    pub fn transmit(&mut self, at: usize) -> bool {
        let may = self.may_transmit(at);
        if may {
            self.ends[at].transmit(self.traits.eager);
        }
        may
    }

    /// Returns whether an end has a work request that may start.
    pub fn may_transmit(&self, at: usize) -> bool {
        let end = &self.ends[at];
        match end.queue.get(end.started) {
            Some(Entry { operation: Some(Operation::Read { .. }), .. }) => {
                end.reading < self.traits.reads_max
            }
            Some(_) => true,
            None => false,
        }
    }

    /// Returns whether a request is on its way to an end.
    pub fn may_arrive(&self, at: usize) -> bool {
        !self.ends[1 - at].outbound.is_empty()
    }

    /// Delivers the next request on its way to an end. Returns whether there was one.
    pub fn arrive(&mut self, at: usize) -> bool {
        let [first, second] = &mut self.ends;
        let (here, there) = if at == 0 { (first, second) } else { (second, first) };
        let Some(next) = there.outbound.pop_front() else { return false };
        match next {
            Travelling::Send { number, message, invalidate } => {
                here.accept(message, invalidate);
                there.finish(number);
            }
            Travelling::Write { number, bytes, target } => {
                let allowed = here.memory.remote_write(&target, &bytes);
                assert!(allowed, "a Write to memory that is not open to it: {target:?}");
                there.finish(number);
            }
            Travelling::Read { number, source } => {
                let bytes = here.memory.remote_read(&source);
                let bytes = bytes.expect("a Read of memory that is not open to it");
                there.responses.push_back((number, bytes));
            }
        }
        true
    }

    /// Returns whether nothing is under way in either direction.
    pub fn is_quiet(&self) -> bool {
        let quiet = |end: &QueuePair<T>| {
            end.queue.is_empty() && end.received.is_empty() && end.outbound.is_empty()
        };
        self.ends.iter().all(quiet)
    }
}

impl<T: Clone> QueuePair<T> {
    fn new(receive_size: usize) -> Self {
        Self {
            memory: Memory::default(),
            receives: 0,
            receive_size,
            received: VecDeque::new(),
            queue: VecDeque::new(),
            retired: 0,
            started: 0,
            reading: 0,
            outbound: VecDeque::new(),
            responses: VecDeque::new(),
        }
    }

    /// Posts a work request.
    pub fn post(&mut self, tag: T, operation: Operation<Part, Part>) {
        let (block, sink) = match &operation {
            Operation::Send { source, .. } | Operation::Write { source, .. } => {
                (Some(source.block), None)
            }
            Operation::Read { sink, .. } => (Some(sink.block), Some(sink.clone())),
            Operation::LocalInv { .. } => (None, None),
        };
        if let Some(block) = block {
            self.memory.post(block);
        }
        self.queue.push_back(Entry { tag, operation: Some(operation), block, sink, done: false });
    }

    /// Posts Receives.
    pub fn post_receives(&mut self, count: usize) {
        self.receives += count;
    }

    /// Returns the number of Receives that wait for a message.
    pub fn receives(&self) -> usize {
        self.receives
    }

    /// Returns whether the oldest work request has ended.
    pub fn may_complete(&self) -> bool {
        self.queue.front().is_some_and(|entry| entry.done)
    }

    /// Takes the completion of the oldest work request, if it has ended.
    pub fn complete(&mut self) -> Option<T> {
        let entry = self.queue.pop_front_if(|entry| entry.done)?;
        self.retired += 1;
        self.started -= 1;
        if let Some(block) = entry.block {
            self.memory.complete(block);
        }
        Some(entry.tag)
    }

    /// Returns whether a message has arrived.
    pub fn may_receive(&self) -> bool {
        !self.received.is_empty()
    }

    /// Takes the completion of the oldest filled Receive.
    pub fn receive(&mut self) -> Option<Received> {
        self.received.pop_front()
    }

    /// Returns whether octets have come back for a Read.
    pub fn may_respond(&self) -> bool {
        !self.responses.is_empty()
    }

    /// Fills the sink of the oldest Read, if its octets have come back. Returns whether it did.
    pub fn respond(&mut self) -> bool {
        let Some((number, bytes)) = self.responses.pop_front() else { return false };
        let sink = self.queue[number - self.retired].sink.take().expect("a Read has a sink");
        self.memory.fill(&sink, &bytes);
        self.reading -= 1;
        self.finish(number);
        true
    }

    fn transmit(&mut self, eager: bool) {
        let number = self.retired + self.started;
        let entry = &mut self.queue[self.started];
        let operation = entry.operation.take().expect("it is carried out once");
        self.started += 1;
        match operation {
            Operation::Send { source, invalidate } => {
                let message = self.memory.source(&source);
                entry.done = eager;
                self.outbound.push_back(Travelling::Send { number, message, invalidate });
            }
            Operation::Write { source, target } => {
                let bytes = self.memory.source(&source);
                assert_eq!(bytes.len(), target.length() as usize, "a Write as long as its target");
                entry.done = eager;
                self.outbound.push_back(Travelling::Write { number, bytes, target });
            }
            Operation::Read { sink, source } => {
                assert_eq!(sink.range.len(), source.length() as usize, "a Read fills its sink");
                self.reading += 1;
                self.outbound.push_back(Travelling::Read { number, source });
            }
            Operation::LocalInv { handle } => {
                assert!(self.memory.invalidate(handle), "a handle is invalidated that is not open");
                entry.done = true;
            }
        }
    }

    fn accept(&mut self, message: Vec<u8>, invalidate: Option<Handle>) {
        self.receives = self.receives.checked_sub(1).expect("a message found no Receive posted");
        assert!(message.len() <= self.receive_size, "a message is longer than its Receive");
        if let Some(handle) = invalidate {
            assert!(self.memory.invalidate(handle), "a peer invalidates what is not open to it");
        }
        self.received.push_back(Received { message, invalidated: invalidate });
    }

    /// Ends a work request. A request that completed when it was carried out may be gone.
    fn finish(&mut self, number: usize) {
        let at = number.checked_sub(self.retired);
        if let Some(entry) = at.and_then(|at| self.queue.get_mut(at)) {
            entry.done = true;
        }
    }
}

#[cfg(test)]
mod tests;
