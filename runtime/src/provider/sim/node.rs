//! One simulated RNIC: its queue pairs, Receives, registrations and reports.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};

use haulage_mr_pool::{StagFault, Stags};
use haulage_proto::time::Instant;
use haulage_proto::verbs::{ClaimedSegment, Completion, Handle, Opcode, QpNum, Status};

use super::queue_pair::{Entry, QueuePair};
use super::schedule::{End, Proposal};
use crate::provider::base::Slots;
use crate::provider::supply::{Given, Supply};
use crate::provider::{Caps, Counters, Done, Event, Quiesced, Receive};

/// The name of a listener of a [`Sim`](super::Sim).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener(u32);

/// A peer that reached a listener: the end that connects, its address, and its request, which nobody has read.
#[derive(Debug)]
pub(super) struct Newcomer {
    pub(super) listener: Listener,
    pub(super) from: End,
    pub(super) peer: SocketAddr,
    pub(super) proposal: Proposal,
}

/// An RNIC of the fabric.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) address: IpAddr,
    gone: bool,
    /// Whether its messages are swallowed.
    pub(super) muted: bool,
    /// Acknowledgements that were swallowed: of which queue pair, to whom, and of which request.
    pub(super) unheard: Vec<(QpNum, End, u64)>,
    /// Whether it stands still in the middle of copying from and to the memory that its peers opened to it.
    pub(super) copies: bool,
    /// Queue pairs that are over and whose peer stands still so.
    pub(super) held: Vec<QpNum>,
    pub(super) stags: Stags,
    pub(super) counters: Counters,
    /// Receives that all queue pairs share.
    receives: VecDeque<Receive>,
    /// Queue pairs whose next Send waits for a Receive, longest waiting first.
    pub(super) starved: VecDeque<QpNum>,
    caps: Caps,
    receives_unpolled: usize,
    /// Receives for queue pairs that have queues of their own.
    supply: Supply<Receive>,
    listeners: Vec<(Listener, SocketAddr)>,
    listened: u32,
    /// Peers that reached a listener and were not taken from it, oldest first.
    pub(super) arrivals: VecDeque<Newcomer>,
    slots: Slots<QueuePair>,
    reports: VecDeque<(Instant, Report)>,
}

/// A report that waits to be polled.
#[derive(Debug)]
enum Report {
    Event(Event<Listener>),
    /// The flushed completions of a queue pair. They are made when polled: the consumer may post until it has seen the
    /// end.
    Flush(QpNum),
    /// The flushed completions of a queue pair that are left, and its `Quiesced`.
    End(QpNum),
}

/// The outcome of a message at the RNIC it was for.
#[derive(Debug)]
pub(super) enum Arrival {
    Done,
    /// A Send met no Receive.
    NoReceive,
    Refused(Refusal),
}

/// The reason that an RNIC ended a connection: the rule that its peer broke, and the Terminate for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    pub(super) rule: &'static str,
    pub(super) layer: u8,
    pub(super) etype: u8,
    pub(super) code: u8,
}

impl Node {
    pub(super) fn new(address: IpAddr, caps: Caps, qps_max: u16, stags: Stags) -> Self {
        Self {
            address,
            gone: false,
            muted: false,
            unheard: Vec::new(),
            copies: false,
            held: Vec::new(),
            stags,
            counters: Counters::default(),
            receives: VecDeque::with_capacity(caps.receive_queue_max),
            starved: VecDeque::with_capacity(usize::from(qps_max)),
            supply: Supply::new(caps.receives_each.map_or(0, |_| caps.receive_queue_max)),
            caps,
            receives_unpolled: 0,
            listeners: Vec::new(),
            listened: 0,
            arrivals: VecDeque::new(),
            slots: Slots::new(usize::from(qps_max)),
            reports: VecDeque::new(),
        }
    }

    /// Drops everything; this node is not used again.
    pub(super) fn retire(&mut self) {
        (self.gone, self.copies) = (true, false);
        self.held.clear();
        self.listeners.clear();
        self.receives.clear();
        self.supply.clear();
        self.reports.clear();
    }

    pub(super) fn is_at(&self, address: IpAddr) -> bool {
        !self.gone && self.address == address
    }

    // Queue pairs.

    pub(super) fn add(&mut self, qp: QueuePair) -> Option<QpNum> {
        self.slots.insert(|_| qp)
    }

    /// Removes a queue pair and drops its registrations.
    pub(super) fn remove(&mut self, qp: QpNum) {
        self.stags.destroy(qp);
        let left = self.slots.remove(qp).map(|qp| qp.receives);
        left.into_iter().flatten().for_each(|receive| self.supply.unused(receive));
        self.supply.forget(qp);
        self.deal();
    }

    pub(super) fn qp(&mut self, qp: QpNum) -> Option<&mut QueuePair> {
        self.slots.get(qp)
    }

    pub(super) fn qps(&self) -> impl Iterator<Item = QpNum> + '_ {
        self.slots.all()
    }

    /// Returns how many more requests the send queue takes.
    pub(super) fn room(&mut self, qp: QpNum) -> usize {
        let max = self.caps.send_queue_max;
        self.qp(qp).map_or(0, |qp| max.saturating_sub(qp.occupied()))
    }

    // Receives.

    /// Returns how many more Receives fit.
    pub(super) fn receives_room(&self) -> usize {
        if self.caps.receives_each.is_some() {
            return self.supply.room();
        }
        let taken = self.receives.len() + self.receives_unpolled;
        self.caps.receive_queue_max.saturating_sub(taken)
    }

    pub(super) fn post_receives(&mut self, receives: impl Iterator<Item = Receive>) {
        if self.caps.receives_each.is_some() {
            receives.for_each(|receive| self.supply.post(receive));
            self.deal();
        } else {
            self.receives.extend(receives);
        }
    }

    pub(super) fn reserve_receives(&mut self, qp: QpNum, count: u32) {
        if self.caps.receives_each.is_some() && self.qp(qp).is_some() {
            self.supply.reserve(qp, count);
            self.deal();
        }
    }

    /// Takes a queue pair whose next Send waits for a Receive and can have one now.
    pub(super) fn next_starved(&mut self) -> Option<QpNum> {
        if self.caps.receives_each.is_none() {
            return if self.receives.is_empty() { None } else { self.starved.pop_front() };
        }
        let has = |qp: &QpNum| {
            // A queue pair that is gone must leave the list, too.
            self.slots.peek(*qp).is_none_or(|qp| !qp.receives.is_empty())
        };
        let at = self.starved.iter().position(has)?;
        self.starved.remove(at)
    }

    /// Gives queue pairs the Receives that are reserved for them.
    fn deal(&mut self) {
        let Self { supply, slots, caps, .. } = self;
        let depth = caps.receives_each.unwrap_or(0);
        supply.deal(|qp, receive| match slots.get(qp) {
            None => Given::Never(receive),
            Some(qp) if qp.receives.len() >= depth => Given::Later(receive),
            Some(qp) => {
                qp.receives.push_back(receive);
                Given::Taken
            }
        });
    }

    /// Returns the queue of Receives for a queue pair.
    fn receives_of(&mut self, qp: QpNum) -> Option<&mut VecDeque<Receive>> {
        if self.caps.receives_each.is_some() {
            self.qp(qp).map(|qp| &mut qp.receives)
        } else {
            Some(&mut self.receives)
        }
    }

    // Listeners.

    pub(super) fn listen(&mut self, at: SocketAddr) -> io::Result<(Listener, SocketAddr)> {
        if !at.ip().is_unspecified() && at.ip() != self.address {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let taken = |port| self.listeners.iter().any(|(_, bound)| bound.port() == port);
        let port = match at.port() {
            0 => (EPHEMERAL..=u16::MAX).find(|port| !taken(*port)),
            port => Some(port).filter(|port| !taken(*port)),
        };
        let port = port.ok_or(io::ErrorKind::AddrInUse)?;
        self.listened += 1;
        let listener = Listener(self.listened);
        let bound = SocketAddr::new(self.address, port);
        self.listeners.push((listener, bound));
        Ok((listener, bound))
    }

    pub(super) fn unlisten(&mut self, listener: Listener) {
        self.listeners.retain(|(own, _)| *own != listener);
    }

    pub(super) fn listener(&self, at: SocketAddr) -> Option<Listener> {
        self.listeners.iter().find(|(_, bound)| *bound == at).map(|(listener, _)| *listener)
    }

    /// Returns whether a listener is still there.
    pub(super) fn has_listener(&self, listener: Listener) -> bool {
        self.listeners.iter().any(|(own, _)| *own == listener)
    }

    // Reports.

    pub(super) fn report(&mut self, due: Instant, event: Event<Listener>) {
        self.reports.push_back((due, Report::Event(event)));
    }

    pub(super) fn report_flush(&mut self, due: Instant, qp: QpNum) {
        self.reports.push_back((due, Report::Flush(qp)));
    }

    pub(super) fn report_end(&mut self, due: Instant, qp: QpNum) {
        self.reports.push_back((due, Report::End(qp)));
    }

    /// Reports the end of a request, except the success of an unsignaled one.
    pub(super) fn report_entry(&mut self, due: Instant, qp: QpNum, entry: &Entry) {
        if !entry.flags.signaled && entry.status == Some(Status::Success) {
            return;
        }
        if let Some(qp) = self.qp(qp) {
            qp.unpolled += 1;
        }
        self.report(due, Event::Completion(done(qp, entry)));
    }

    /// Returns whether something waits to be polled or adopted.
    pub(super) fn has_news(&self) -> bool {
        !self.reports.is_empty() || !self.arrivals.is_empty()
    }

    /// Moves at most `budget` events that are due by `now`.
    pub(super) fn poll(&mut self, now: Instant, budget: usize, events: &mut Vec<Event<Listener>>) {
        for _ in 0..budget {
            match self.reports.front().filter(|(due, _)| *due <= now) {
                None => return,
                Some((_, Report::Flush(qp))) => {
                    let qp = *qp;
                    match self.poll_flushed(qp) {
                        Some(event) => events.push(event),
                        None => _ = self.reports.pop_front(),
                    }
                }
                Some((_, Report::End(qp))) => {
                    let qp = *qp;
                    events.push(self.poll_end(qp));
                }
                Some(_) => {
                    let Some((_, Report::Event(event))) = self.reports.pop_front() else { return };
                    self.polled(&event);
                    events.push(event);
                }
            }
        }
    }

    /// Reports the next flushed completion of `qp`, if there is one.
    fn poll_flushed(&mut self, qp: QpNum) -> Option<Event<Listener>> {
        while let Some(entry) = self.qp(qp).and_then(QueuePair::pop) {
            if entry.counts {
                return Some(Event::Completion(done(qp, &entry)));
            }
        }
        None
    }

    /// Reports the next flushed completion of `qp`, or `Quiesced` after the last.
    fn poll_end(&mut self, qp: QpNum) -> Event<Listener> {
        if let Some(event) = self.poll_flushed(qp) {
            return event;
        }
        self.reports.pop_front();
        self.remove(qp);
        Event::Quiesced(Quiesced::new(qp))
    }

    fn polled(&mut self, event: &Event<Listener>) {
        let Event::Completion(done) = event else { return };
        if done.opcode == Opcode::Receive {
            self.receives_unpolled -= 1;
            self.supply.used();
            self.deal();
        } else if let Some(qp) = self.qp(done.qp) {
            qp.unpolled -= 1;
        }
    }

    // Requests of the peer.

    /// Fills the next Receive with a Send, retiring the handle it names.
    pub(super) fn on_send(
        &mut self,
        now: Instant,
        qp: QpNum,
        bytes: &[u8],
        invalidate: Option<Handle>,
    ) -> Arrival {
        let receive = self.receives_of(qp).and_then(|receives| receives.front());
        let Some(receive) = receive else { return Arrival::NoReceive };
        let room: usize = receive.sinks().map(haulage_mr_pool::Sink::len).sum();
        let Some(length) = u32::try_from(bytes.len()).ok().filter(|_| bytes.len() <= room) else {
            return Arrival::Refused(TOO_LONG);
        };
        if let Some(handle) = invalidate {
            let may = self.caps.promises.remote_invalidation;
            let done = if may {
                self.stags.invalidate(handle, qp)
            } else {
                Err(StagFault::AccessViolation)
            };
            if let Err(fault) = done {
                return Arrival::Refused(invalidate_refusal(fault));
            }
            self.counters.invalidated_remote += 1;
        }
        let receive = self.receives_of(qp).and_then(VecDeque::pop_front);
        let Some(mut receive) = receive else { return Arrival::NoReceive };
        let mut rest = bytes;
        for sink in receive.sinks_mut() {
            let (part, after) = rest.split_at(rest.len().min(sink.len()));
            if sink.place(0, part).is_err() {
                return Arrival::Refused(TOO_LONG);
            }
            rest = after;
        }
        let id = receive.id;
        drop(receive); // the views, before the completion
        self.counters.receives += 1;
        self.counters.bytes_copied += u64::from(length);
        self.receives_unpolled += 1;
        let completion = Completion {
            id,
            qp,
            opcode: Opcode::Receive,
            status: Status::Success,
            length,
            invalidated: invalidate,
        };
        self.report(now, Event::Completion(Done::new(completion)));
        Arrival::Done
    }

    /// Carries out the peer's Write.
    pub(super) fn on_write(&mut self, qp: QpNum, target: &ClaimedSegment, bytes: &[u8]) -> Arrival {
        match self.stags.place(target.handle(), qp, target.offset(), bytes) {
            Ok(()) => {
                self.counters.tagged_received += bytes.len() as u64;
                self.counters.tagged_copied += bytes.len() as u64;
                self.counters.bytes_copied += bytes.len() as u64;
                Arrival::Done
            }
            Err(fault) => Arrival::Refused(write_refusal(fault)),
        }
    }

    /// Copies the octets that the peer's Read asks for into `bytes`.
    pub(super) fn on_read(
        &mut self,
        qp: QpNum,
        source: &ClaimedSegment,
        bytes: &mut Vec<u8>,
    ) -> Arrival {
        let (handle, length) = (source.handle(), source.length());
        match self.stags.source(handle, qp, source.offset(), length as usize) {
            Ok(found) => {
                bytes.extend_from_slice(found);
                self.counters.tagged_sent += u64::from(length);
                Arrival::Done
            }
            Err(fault) => Arrival::Refused(read_refusal(fault)),
        }
    }
}

fn done(qp: QpNum, entry: &Entry) -> Done {
    Done::new(Completion {
        id: entry.id,
        qp,
        opcode: entry.opcode,
        status: entry.status.unwrap_or(Status::Flushed),
        length: 0,
        invalidated: entry.invalidated,
    })
}

/// The first of the ports that the system chooses from.
pub(super) const EPHEMERAL: u16 = 49152;

// Terminate codes: RFC 5040 section 4.8 (layer 0), RFC 5041 section 8 (layer 1).

const TOO_LONG: Refusal =
    Refusal { rule: "a Send longer than the Receive it met", layer: 1, etype: 2, code: 5 };

pub(super) const NO_RECEIVE: Refusal =
    Refusal { rule: "a Send that finds no Receive", layer: 1, etype: 2, code: 2 };

pub(super) const TOO_MANY_READS: Refusal =
    Refusal { rule: "more Reads outstanding than were granted", layer: 1, etype: 2, code: 2 };

const fn write_refusal(fault: StagFault) -> Refusal {
    let (layer, code) = match fault {
        StagFault::InvalidStag => (1, 0),
        StagFault::BaseOrBounds => (1, 1),
        StagFault::NotYours => (1, 2),
        StagFault::OffsetWraps => (1, 3),
        StagFault::AccessViolation => (0, 2),
    };
    Refusal { rule: "a Write to memory it was not granted", layer, etype: 1, code }
}

const fn read_refusal(fault: StagFault) -> Refusal {
    let code = match fault {
        StagFault::InvalidStag => 0,
        StagFault::BaseOrBounds => 1,
        StagFault::AccessViolation => 2,
        StagFault::NotYours => 3,
        StagFault::OffsetWraps => 4,
    };
    Refusal { rule: "a Read of memory it was not granted", layer: 0, etype: 1, code }
}

const fn invalidate_refusal(fault: StagFault) -> Refusal {
    let code = match fault {
        StagFault::InvalidStag => 0,
        StagFault::NotYours => 3,
        StagFault::AccessViolation | StagFault::BaseOrBounds | StagFault::OffsetWraps => 9,
    };
    Refusal { rule: "an invalidation of a handle it was not granted", layer: 0, etype: 1, code }
}
