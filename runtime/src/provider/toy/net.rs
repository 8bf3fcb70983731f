//! The memory that the [`Toy`](super::Toy)s of a network share, and its operation.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use haulage_mr_pool::{Sink, Source, Stags};
use haulage_proto::iwarp::terminate::{Code, Fault};
use haulage_proto::time::Instant;
use haulage_proto::verbs::{ClaimedSegment, Completion, Handle, Opcode, QpNum, Status, WrId};

use crate::provider::base::Payload;
use crate::provider::{
    ConnectError, DisconnectReason, Done, Operation, Place, Quiesced, Receive, WorkRequest,
};

pub(super) type Event = crate::provider::Event<SocketAddr>;

/// A network of [`Toy`](super::Toy)s.
#[derive(Debug, Default)]
pub struct Net {
    pub(super) nodes: Vec<Node>,
    /// All queue pairs there have been, by slot. The slot of the peer differs in the lowest bit.
    pub(super) qps: Vec<QueuePair>,
    /// The node that listens at an address.
    pub(super) listeners: BTreeMap<SocketAddr, usize>,
    /// Peers that were taken from their listeners and not adopted.
    taken: Vec<(Weak<usize>, Newcomer)>,
}

/// A peer that reached a listener.
#[derive(Debug)]
pub(super) struct Newcomer {
    /// The listener.
    pub(super) at: SocketAddr,
    /// The slot of the queue pair at this end.
    pub(super) slot: usize,
    pub(super) private_data: Box<[u8]>,
}

/// The state of one provider that all its queue pairs use.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) stags: Stags,
    pub(super) receives: VecDeque<Receive>,
    pub(super) reports: VecDeque<Event>,
    /// Peers that were not taken from their listeners, oldest first.
    pub(super) arrivals: VecDeque<Newcomer>,
}

/// One end of a connection.
#[derive(Debug, Default)]
pub(super) struct QueuePair {
    pub(super) node: usize,
    pub(super) state: EndState,
    /// ORD and IRD: the proposal, then the grant.
    pub(super) terms: [u32; 2],
    /// When the handshake or the close must be over.
    pub(super) deadline: Option<Instant>,
    pub(super) entries: VecDeque<Entry>,
}

/// The state of an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum EndState {
    /// The end sent the request.
    Connecting,
    /// A peer has reached the listener, and was not adopted.
    Arriving,
    /// A request has arrived, which the application has to answer.
    Requested,
    /// The end rejected the request.
    Rejected,
    Open,
    /// The end leaves when its posted requests have left.
    Closing,
    /// Nothing of the end is left.
    #[default]
    Gone,
}

/// A request in a send queue.
#[derive(Debug)]
pub(super) struct Entry {
    /// The request's completion; the status is `Flushed` until the request is carried out.
    done: Completion,
    pub(super) report: Report,
    work: Work,
}

/// When the completion of a request is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    Always,
    OnFailure,
    /// The request is a part of a copied message.
    Never,
}

/// The work of a request, and the views that it holds.
#[derive(Debug)]
enum Work {
    Send {
        payload: Payload,
        invalidate: Option<Handle>,
    },
    Write {
        payload: Payload,
        target: ClaimedSegment,
    },
    Read {
        sink: Sink,
        source: ClaimedSegment,
    },
    LocalInv {
        handle: Handle,
    },
    /// No work is left: it failed.
    Nothing,
}

impl QueuePair {
    pub(super) fn new(node: usize, state: EndState, terms: [u32; 2]) -> Self {
        Self { node, state, terms, ..Self::default() }
    }
}

impl Net {
    pub(super) fn report(&mut self, slot: usize, event: Event) {
        self.nodes[self.qps[slot].node].reports.push_back(event);
    }

    /// Takes the next peer from a listener of one provider.
    pub(super) fn next_incoming(&mut self, node: usize) -> Option<(Arc<usize>, SocketAddr)> {
        let arrival = self.nodes[node].arrivals.pop_front()?;
        let slot = Arc::new(arrival.slot);
        // The request has no port of origin.
        let peer = SocketAddr::new(arrival.at.ip(), 0);
        self.taken.push((Arc::downgrade(&slot), arrival));
        Some((slot, peer))
    }

    /// Has one provider take in a peer: reports its request, unless it has given up meanwhile.
    pub(super) fn adopt(&mut self, node: usize, slot: usize, place: Place) {
        let Some(at) = self.taken.iter().position(|(_, arrival)| arrival.slot == slot) else {
            return;
        };
        let (_, Newcomer { at: listener, private_data, .. }) = self.taken.swap_remove(at);
        if self.qps[slot ^ 1].state != EndState::Connecting {
            self.qps[slot] = QueuePair::default();
            return;
        }
        (self.qps[slot].node, self.qps[slot].state) = (node, EndState::Requested);
        // The request has no port of origin.
        let (peer, qp, process) = (SocketAddr::new(listener.ip(), 0), name(slot), None);
        self.report(slot, Event::Request { listener, qp, peer, process, private_data, place });
    }

    /// Forgets the peers that were dropped before they were adopted, and finds that they are gone.
    fn forget_dropped(&mut self) {
        let Self { taken, qps, .. } = self;
        taken.retain(|(held, arrival)| {
            let is_held = held.strong_count() > 0;
            if !is_held {
                qps[arrival.slot] = QueuePair::default();
            }
            is_held
        });
    }

    /// Carries out everything that is due at the ends of one provider.
    pub(super) fn advance(&mut self, node: usize, now: Instant) {
        self.forget_dropped();
        for slot in 0..self.qps.len() {
            if self.qps[slot].node == node {
                self.advance_end(slot, now);
            }
        }
        // A peer that left before its request was reported is never reported.
        let has_left = |qp: &QpNum| self.qps[qp.slot() ^ 1].state == EndState::Gone;
        let reports = &mut self.nodes[node].reports;
        reports.retain(|event| !matches!(event, Event::Request { qp, .. } if has_left(qp)));
    }

    /// Carries out the requests that the peer of an end has posted, or reports the end of the handshake or the
    /// connection.
    fn advance_end(&mut self, slot: usize, now: Instant) {
        let (own, peer) = (&self.qps[slot], self.qps[slot ^ 1].state);
        let is_late = own.deadline.is_some_and(|due| due <= now);
        match (own.state, peer) {
            (EndState::Connecting, EndState::Rejected) => self.fail(slot, ConnectError::Rejected),
            (EndState::Connecting, EndState::Gone) => self.fail(slot, ConnectError::Refused),
            (EndState::Connecting, _) if is_late => self.fail(slot, ConnectError::TimedOut),
            (EndState::Open | EndState::Closing, EndState::Gone) => {
                self.end(slot, DisconnectReason::Lost);
            }
            (EndState::Closing, _) if is_late => self.end(slot, DisconnectReason::Local),
            (EndState::Open | EndState::Closing, _) => self.serve(slot),
            _ => {}
        }
    }

    /// Establishes one end with the ORD and IRD in `terms`.
    pub(super) fn open(&mut self, slot: usize, terms: [u32; 2], private_data: &[u8]) {
        let qp = &mut self.qps[slot];
        (qp.state, qp.deadline, qp.terms) = (EndState::Open, None, terms);
        let (qp, private_data, [ord, ird]) = (name(slot), private_data.into(), terms);
        self.report(slot, Event::Established { qp, private_data, ord, ird });
    }

    /// Ends an active end that is not established.
    pub(super) fn fail(&mut self, slot: usize, reason: ConnectError) {
        self.report(slot, Event::Failed { qp: name(slot), reason });
        self.qps[slot] = QueuePair::default();
    }

    /// Ends one end of a connection: drops every view of it, and reports its posted requests as flushed.
    fn end(&mut self, slot: usize, reason: DisconnectReason) {
        let (qp, QueuePair { node, entries, .. }) = (name(slot), mem::take(&mut self.qps[slot]));
        let Node { stags, reports, .. } = &mut self.nodes[node];
        stags.destroy(qp);
        reports.push_back(Event::Disconnected { qp, reason });
        let flushed = entries.into_iter().filter(|entry| entry.report != Report::Never);
        reports.extend(flushed.map(|Entry { done, .. }| Event::Completion(Done::new(done))));
        reports.push_back(Event::Quiesced(Quiesced::new(qp)));
    }

    /// Carries out the requests that the peer of an end has posted, up to a Send that finds no Receive.
    fn serve(&mut self, to: usize) {
        let (from, node) = (to ^ 1, self.qps[to].node);
        while let Some(entry) = self.qps[from].entries.pop_front() {
            let is_send = matches!(entry.work, Work::Send { .. });
            if is_send && self.nodes[node].receives.is_empty() {
                return self.qps[from].entries.push_front(entry);
            }
            let Entry { mut done, report, work } = entry;
            let result = self.run(from, to, work);
            (done.status, done.invalidated) = match result {
                Ok(invalidated) => (Status::Success, invalidated),
                Err(Fault::Local) => (Status::LocalFault, None),
                Err(Fault::MessageTooLong) => (Status::Flushed, None),
                Err(_) => (Status::RemoteAccess, None),
            };
            if let Err(fault) = result {
                // The completion of the failed request is reported after `Disconnected`.
                self.qps[from].entries.push_front(Entry { done, report, work: Work::Nothing });
                return self.break_off(from, to, fault);
            } else if report == Report::Always {
                self.report(from, Event::Completion(Done::new(done)));
            }
        }
        if self.qps[from].state == EndState::Closing {
            self.end(from, DisconnectReason::Local);
            let has_all = self.qps[to].entries.is_empty();
            self.end(
                to,
                if has_all { DisconnectReason::PeerHasAll } else { DisconnectReason::Peer },
            );
        }
    }

    /// Ends a connection because of a request of `from`.
    fn break_off(&mut self, from: usize, to: usize, fault: Fault) {
        let Code { layer, etype, code } = fault.code();
        let (ours, theirs) = match fault {
            Fault::Local => (DisconnectReason::Local, DisconnectReason::Lost),
            _ => (
                DisconnectReason::Terminated { layer, etype, code },
                DisconnectReason::PeerMisbehaved(fault.rule()),
            ),
        };
        self.end(from, ours);
        self.end(to, theirs);
    }

    /// Carries out one request and drops its views. Returns the handle that it retired.
    fn run(&mut self, from: usize, to: usize, work: Work) -> Result<Option<Handle>, Fault> {
        let (own, ours, theirs) = (&self.qps[from], name(from), name(to));
        let (may_read, own, peer) = (own.terms[0] > 0, own.node, self.qps[to].node);
        match work {
            Work::Send { payload, invalidate } => {
                self.nodes[peer].receive(theirs, payload.bytes(), invalidate)?;
            }
            Work::Write { payload, target }
                if payload.bytes().len() == target.length() as usize =>
            {
                let stags = &mut self.nodes[peer].stags;
                let placed = stags.place(target.handle(), theirs, target.offset(), payload.bytes());
                placed.map_err(|_| Fault::WriteAccess)?;
            }
            Work::Read { mut sink, source }
                if may_read && sink.len() == source.length() as usize =>
            {
                let stags = &self.nodes[peer].stags;
                let found = stags.source(source.handle(), theirs, source.offset(), sink.len());
                let found = found.map_err(|_| Fault::ReadAccess)?;
                sink.place(0, found).map_err(|_| Fault::Local)?;
            }
            Work::LocalInv { handle } => {
                let retired = self.nodes[own].stags.invalidate(handle, ours);
                return retired.map(|()| Some(handle)).map_err(|_| Fault::Local);
            }
            Work::Write { .. } | Work::Read { .. } | Work::Nothing => return Err(Fault::Local),
        }
        Ok(None)
    }
}

impl Node {
    pub(super) fn new(seed: usize, registrations_max: usize) -> Self {
        let stags = Stags::seeded(registrations_max, seed as u64);
        let (receives, reports, arrivals) = Default::default();
        Self { stags, receives, reports, arrivals }
    }

    /// Retires the handle that a message invalidates, and fills the next Receive with the message.
    fn receive(
        &mut self,
        qp: QpNum,
        bytes: &[u8],
        invalidated: Option<Handle>,
    ) -> Result<(), Fault> {
        let sinks = self.receives.front().into_iter().flat_map(Receive::sinks);
        let length = u32::try_from(bytes.len()).map_err(|_| Fault::MessageTooLong)?;
        if bytes.len() > sinks.map(Sink::len).sum() {
            return Err(Fault::MessageTooLong);
        }
        if let Some(handle) = invalidated {
            self.stags.invalidate(handle, qp).map_err(|_| Fault::CannotInvalidate)?;
        }
        let (mut receive, mut rest) = (self.receives.pop_front().ok_or(Fault::NoBuffer)?, bytes);
        for sink in receive.sinks_mut() {
            let (part, after) = rest.split_at(rest.len().min(sink.len()));
            sink.place(0, part).map_err(|_| Fault::Local)?;
            rest = after;
        }
        let id = receive.id;
        drop(receive); // the views, before the completion
        let (opcode, status) = (Opcode::Receive, Status::Success);
        let done = Completion { id, qp, opcode, status, length, invalidated };
        self.reports.push_back(Event::Completion(Done::new(done)));
        Ok(())
    }
}

impl Entry {
    /// Makes the entry of a posted request.
    pub(super) fn new(qp: QpNum, WorkRequest { id, flags, operation }: WorkRequest) -> Self {
        let opcode = operation.opcode();
        let payload = |source: Source| match flags.copied {
            true => Payload::Copied(source.bytes().into()),
            false => Payload::View(source),
        };
        let work = match operation {
            Operation::Send { source, invalidate } => {
                Work::Send { payload: payload(source), invalidate }
            }
            Operation::Write { source, target } => Work::Write { payload: payload(source), target },
            Operation::Read { sink, source } => Work::Read { sink, source },
            Operation::LocalInv { handle } => Work::LocalInv { handle },
        };
        let report = if flags.signaled { Report::Always } else { Report::OnFailure };
        Self { report, ..Self::copied(qp, id, opcode, work) }
    }

    /// Makes the entry of the Send of a copied message.
    pub(super) fn send(qp: QpNum, octets: Vec<u8>, invalidate: Option<Handle>) -> Self {
        let work = Work::Send { payload: Payload::Copied(octets), invalidate };
        Self::copied(qp, WrId(0), Opcode::Send, work)
    }

    /// Makes the entry of a Write ahead of a copied message.
    pub(super) fn write(qp: QpNum, octets: Vec<u8>, target: ClaimedSegment) -> Self {
        let work = Work::Write { payload: Payload::Copied(octets), target };
        Self::copied(qp, WrId(0), Opcode::Write, work)
    }

    const fn copied(qp: QpNum, id: WrId, opcode: Opcode, work: Work) -> Self {
        let (status, report) = (Status::Flushed, Report::Never);
        let done = Completion { id, qp, opcode, status, length: 0, invalidated: None };
        Self { done, report, work }
    }
}

/// Returns the number of the queue pair in a slot.
pub(super) fn name(slot: usize) -> QpNum {
    QpNum::new(u16::try_from(slot).expect("fewer than there are numbers"), 1)
}
