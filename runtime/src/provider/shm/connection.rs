//! One connection: its life, and how it ends.
//!
//! # Normal operation
//!
//! A connection lives as [`ConnectionState`] says, once its [`Handshake`](super::handshake::Handshake) is over. `arrive`
//! handles arrivals, `depart` departures.
//!
//! # Recovery
//!
//! None. The end that ends a connection writes the reason into its segment and closes the socket, which the other end
//! notices; messages sent before lie in the ring until then, even if their sender is gone.
//!
//! # Memory ownership
//!
//! At its end every registration is taken from the peer. Where the peer is copying at that moment, the
//! connection is quarantined: it keeps the views, and is not reported `Quiesced`, until the peer is done
//! or its process is gone.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use haulage_proto::iwarp::terminate::Fault;
use haulage_proto::time::Instant;
use haulage_proto::verbs::{Opcode, QpNum, Status, WrId};

use super::ended::{BAD_RING, Ended, MEMORY_LOST};
use super::entry::Entry;
use super::handshake::{Agreed, Joint};
use super::nic::Nic;
use super::port::Outflow;
use super::receives::Filling;
use super::regions::Mapped;
use super::ring::{Consumer, Producer};
use super::setup::Exposure;
use super::table::Registrations;
use crate::provider::base::{ConnectionState, Progress, Step, Waiting};
use crate::provider::{DisconnectReason, Event};
use crate::sys::barrier::Barrier;
use crate::sys::shared::Shared;
use crate::sys::unix::{Process, Stream};

/// A queue pair, and the memory it shares with the peer.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) qp: QpNum,
    pub(super) state: ConnectionState,
    /// The ring is read in every poll; else the peer rings a doorbell.
    pub(super) hot: bool,
    /// The records in the ring now are left to be taken without Receives.
    pub(super) left_in_place: bool,
    /// The last messages taken were one message, and the ring was empty behind it.
    pub(super) came_alone: bool,
    /// The peer has closed the socket: nothing comes that is not in the ring yet.
    pub(super) over: bool,
    /// A message waits for a Receive.
    pub(super) starved: bool,
    /// The connection is on the provider's list of those that are heated again with the next Receive.
    pub(super) listed: bool,
    /// What we send with, until the connection is over.
    pub(super) outflow: Option<Outflow>,
    /// The peer's ring and table.
    pub(super) consumer: Option<Consumer>,
    /// The Receive that a message in parts fills.
    pub(super) filling: Option<Filling>,
    pub(super) progress: Progress,
    pub(super) socket: Option<Stream>,
    /// The peer's process, in quarantine: it tells when the peer is gone.
    process: Option<Process>,
    pub(super) deadline: Option<Instant>,
    /// The time of the last arrival.
    pub(super) heard: Instant,
}

impl Connection {
    /// Makes the connection that a handshake has agreed on, and reports it. It may be lost already.
    pub(super) fn new(nic: &mut Nic, agreed: Agreed) -> Self {
        let Agreed { qp, socket, over, private_data, joint } = agreed;
        let (ord, ird) = joint.as_ref().map_or((0, 0), |joint| (joint.ord, joint.ird));
        nic.reports.push(Event::Established { qp, private_data, ord, ird });
        let mut this = Self {
            qp,
            state: ConnectionState::Open,
            hot: false,
            left_in_place: false,
            came_alone: false,
            over,
            starved: false,
            listed: false,
            outflow: None,
            consumer: None,
            filling: None,
            progress: Progress::default(),
            socket,
            process: None,
            deadline: None,
            heard: nic.now,
        };
        match joint {
            Some(joint) => this.join(nic, joint),
            None => this.end(nic, Ended::Closed, DisconnectReason::Lost, None),
        }
        this
    }

    /// Begins to use the memory of both ends.
    fn join(&mut self, nic: &Nic, joint: Joint) {
        let Joint { segment, theirs, barriers, exposure, ord, .. } = joint;
        let barrier = if nic.barriers && barriers { Barrier::Light } else { Barrier::Full };
        self.outflow = Some(Outflow {
            qp: self.qp,
            producer: Producer::new(segment, barrier),
            region: theirs.region,
            exposes: exposure == Exposure::Whole,
            registrations: Registrations::default(),
            pending: VecDeque::new(),
            ord,
            rings: false,
        });
        self.consumer = Some(Consumer::new(theirs.segment));
    }

    /// Sets the deadline `after` from now.
    pub(super) fn set_deadline(&mut self, nic: &mut Nic, after: Duration) {
        let deadline = nic.now.saturating_add(after);
        self.deadline = Some(deadline);
        nic.deadlines.add(deadline, self.qp);
    }

    /// Starts to close in order.
    pub(super) fn close(&mut self, nic: &mut Nic) {
        if self.state.step(Step::Close) {
            self.set_deadline(nic, nic.config.close_timeout);
            self.pump(nic);
        }
    }

    /// Ends a connection whose deadline has passed.
    pub(super) fn on_deadline(&mut self, nic: &mut Nic) {
        self.deadline = None;
        self.end(nic, Ended::Closed, DisconnectReason::Local, None);
    }

    /// Ends the connection because the peer broke a rule, and tells the peer which.
    #[cold]
    pub(super) fn fault(&mut self, nic: &mut Nic, fault: Fault) {
        nic.link.faults += 1;
        self.end(
            nic,
            Ended::YouBroke(fault.code()),
            DisconnectReason::PeerMisbehaved(fault.rule()),
            None,
        );
    }

    /// Ends the connection if memory that it shares with the peer lost pages.
    #[cold]
    pub(super) fn end_if_broken(&mut self, nic: &mut Nic) {
        if self.state.is_live() && self.is_broken() {
            nic.link.faults += 1;
            let reason = DisconnectReason::PeerMisbehaved(MEMORY_LOST);
            self.end(nic, Ended::YouBroke(BAD_RING.code()), reason, None);
        }
    }

    /// Returns whether the next poll is likely to do something for this connection.
    pub(super) fn may_go_on(&self, nic: &Nic) -> bool {
        let record = self.consumer.as_ref().is_some_and(|consumer| consumer.has_record());
        let takes = !nic.receives.is_empty() || self.filling.is_some();
        if record { takes } else { self.over }
    }

    fn is_broken(&self) -> bool {
        let ours = self.outflow.as_ref().map(|outflow| outflow.producer.segment().memory());
        let theirs = self.consumer.as_ref().map(|consumer| consumer.segment().memory());
        let region =
            self.outflow.as_ref().and_then(|outflow| outflow.region.as_ref().map(Mapped::memory));
        [ours, theirs, region].into_iter().flatten().any(Shared::is_broken)
    }

    /// Ends the connection: tells the peer, drops every view but those of memory that the peer is copying from or to,
    /// and reports the end. `failed` is the result of the oldest request that was not carried out, if it was not just
    /// flushed.
    #[cold]
    pub(super) fn end(
        &mut self,
        nic: &mut Nic,
        word: Ended,
        reason: DisconnectReason,
        failed: Option<(WrId, Opcode, Status)>,
    ) {
        if !self.state.is_live() {
            return;
        }
        nic.reports.disconnected(self.qp, reason);
        if let Some(filling) = self.filling.take() {
            nic.receives.put_back(filling);
        }
        if let Some((id, opcode, status)) = failed {
            nic.reports.ended(self.qp, id, opcode, status);
        }
        if let Some(Outflow { pending, region, .. }) = &mut self.outflow {
            for Entry { id, work, .. } in std::mem::take(pending) {
                let opcode = work.opcode();
                drop(work);
                nic.reports.ended(self.qp, id, opcode, Status::Flushed);
            }
            // The peer's memory is no longer needed; in quarantine its process tells when it is gone.
            *region = None;
        }
        let released = self.withdraw(nic, word);
        self.consumer = None;
        if let Some(socket) = self.socket.take() {
            if !released {
                self.process = socket.peer_process().ok();
            }
            socket.shutdown();
        }
        (self.hot, self.over, self.deadline) = (false, false, None);
        if released {
            self.release(nic);
        } else {
            self.state.step(Step::Held);
            nic.link.quarantines += 1;
            nic.quarantined.push(self.qp);
        }
    }

    /// Takes our registrations from the peer; returns whether it was not copying.
    fn withdraw(&mut self, nic: &mut Nic, word: Ended) -> bool {
        let Some(outflow) = &mut self.outflow else { return true };
        // The reason is written first: a peer that is refused after this knows it.
        outflow.producer.segment().ended().store(word.encode(), Ordering::SeqCst);
        let (freed, all) = outflow.registrations.retire_all(outflow.producer.segment());
        nic.registrations -= freed;
        all
    }

    /// Checks whether a quarantined connection can go; returns whether it did.
    pub(super) fn try_release(&mut self, nic: &mut Nic) -> bool {
        if self.state != ConnectionState::Quarantined {
            return true;
        }
        if let Some(Outflow { producer, registrations, .. }) = &mut self.outflow {
            let (freed, all) = registrations.retire_all(producer.segment());
            nic.registrations -= freed;
            if !all {
                if !self.process.as_ref().is_some_and(Process::is_gone) {
                    return false;
                }
                nic.registrations -= registrations.abandon();
            }
        }
        self.release(nic);
        true
    }

    fn release(&mut self, nic: &mut Nic) {
        self.state.step(Step::Ended);
        (self.outflow, self.process) = (None, None);
        nic.reports.quiesced(self.qp);
        nic.closed.push(self.qp);
    }

    /// Has the connection checked for progress if output waits.
    #[inline]
    pub(super) fn watch_output(&mut self, nic: &mut Nic) {
        if !self.progress.is_watched() && self.has_pending() {
            self.watch(nic);
        }
    }

    /// Notes that a message in parts has begun, and has the connection checked for progress.
    pub(super) fn message_begins(&mut self, nic: &mut Nic) {
        self.progress.message.count();
        self.watch(nic);
    }

    /// Ends the connection if its peer has made no progress for too long.
    pub(super) fn check_progress(&mut self, nic: &mut Nic) {
        let waiting = self.waiting();
        let stall = self.progress.check(&waiting);
        if waiting.is_any() {
            self.watch(nic);
        }
        if let (Some(stall), Some(timeout)) = (stall, nic.watches.timeout()) {
            nic.link.stalls += 1;
            self.end(nic, Ended::Closed, DisconnectReason::NoProgress(stall, timeout), None);
        }
    }

    /// Returns the kinds of work that wait for the peer. Output waits for a peer when its ring is full, or when it
    /// copies under a handle that is to be closed. A message in parts waits for its last part, with one deadline for
    /// the whole. We copy Reads and Writes, which wait for no peer: they count as output while they wait for their
    /// turn.
    fn waiting(&self) -> Waiting {
        if self.state != ConnectionState::Open {
            return Waiting::default();
        }
        let (output, message) = (self.has_pending(), self.filling.is_some());
        Waiting { output, message, ..Waiting::default() }
    }

    #[cold]
    fn watch(&mut self, nic: &mut Nic) {
        self.progress.watch(&mut nic.watches, nic.now, self.qp);
    }

    /// Drops the remaining views when the provider is dropped. Memory that the peer is copying from or to is leaked.
    pub(super) fn abandon(&mut self, nic: &mut Nic) {
        if !self.withdraw(nic, Ended::Closed)
            && let Some(outflow) = &mut self.outflow
        {
            outflow.registrations.leak();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        assert!(size_of::<Connection>() <= 1024, "{}", size_of::<Connection>());
    }
}
