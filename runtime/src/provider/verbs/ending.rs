//! Connections that wait for something until a deadline, and connections that are ending.

use std::io;
use std::time::Duration;

use haulage_proto::time::Instant;
use haulage_proto::verbs::{QpNum, Status};

use super::connection::{Connection, Objects, Phase};
use super::state::Verbs;
use crate::provider::{ConnectError, DisconnectReason, Event, Quiesced};
use crate::sys::ibverbs::Arrival;

impl Verbs {
    /// Adds a connection to those that wait for something, unless it is among them.
    pub(super) fn attend_to(&mut self, qp: QpNum) {
        if !self.pending.contains(&qp) {
            self.pending.push(qp);
        }
    }

    /// Returns whether a connection waits for the first message of a peer that may need a keepalive.
    fn is_unheard(&self, qp: QpNum) -> bool {
        self.slots.peek(qp).is_some_and(|connection| connection.inbound.is_unheard())
    }

    /// Sends a keepalive, an RDMA Write of no octets, which names no memory, to a peer that has sent nothing.
    ///
    /// Soft-iWARP, accepting a connection, may not notice octets that arrive just behind its answer before more come.
    fn nudge(&mut self, now: Instant, qp: QpNum) {
        let Some(connection) = self.slots.get(qp) else { return };
        // The entry that is kept for a mark must stay free.
        if connection.pair().is_some_and(|pair| pair.is_idle()) {
            connection.inbound.hear();
            self.mark(qp);
        } else {
            connection.wait_until(now.saturating_add(NUDGE_AFTER));
        }
    }

    /// Attends to the connections that wait for something: their deadlines, and empty queues.
    pub(super) fn attend(&mut self, now: Instant) {
        let mut at = 0;
        while let Some(qp) = self.pending.get(at).copied() {
            let waits = self.slots.get(qp).map(|c| (c.phase(), now >= c.deadline()));
            let connection = self.slots.get(qp);
            let closed = connection.as_ref().is_none_or(|connection| connection.is_idle());
            let idle = connection.and_then(Connection::pair).is_none_or(|pair| pair.is_idle());
            match waits {
                Some((Phase::Closing, late)) if closed || late => {
                    self.pending.swap_remove(at);
                    self.end(now, qp, DisconnectReason::Local);
                    continue;
                }
                Some((Phase::Flushing, late)) if idle || late => {
                    self.pending.swap_remove(at);
                    self.dismantle(now, qp);
                    continue;
                }
                Some((Phase::Resolving | Phase::Connecting, true)) => {
                    self.pending.swap_remove(at);
                    self.failed(qp, ConnectError::TimedOut);
                    continue;
                }
                Some((Phase::Accepting, true)) => {
                    self.pending.swap_remove(at);
                    self.end(now, qp, DisconnectReason::Lost);
                    continue;
                }
                Some((Phase::Established, late)) if self.is_unheard(qp) => {
                    if late {
                        self.nudge(now, qp);
                    }
                    at += 1;
                }
                Some((phase, _)) if phase.is_pending() => at += 1,
                _ => {
                    self.pending.swap_remove(at);
                }
            }
        }
    }

    /// Ends a connection: reports it, fails the queue pair, and waits for its flushed work.
    pub(super) fn end(&mut self, now: Instant, qp: QpNum, reason: DisconnectReason) {
        let Some(connection) = self.slots.get(qp) else { return };
        let reason = match connection.phase() {
            Phase::Flushing | Phase::Requested | Phase::Gone => return,
            Phase::Resolving | Phase::Connecting => {
                let error = match reason {
                    // The device or its port failed, or was removed.
                    DisconnectReason::Lost => ConnectError::System(io::ErrorKind::NetworkDown),
                    DisconnectReason::PeerMisbehaved(rule) => ConnectError::BadHandshake(rule),
                    _ => ConnectError::Refused,
                };
                return self.failed(qp, error);
            }
            // We are closing; a failure that comes first does not matter.
            Phase::Closing => DisconnectReason::Local,
            Phase::Accepting | Phase::Established => reason,
        };
        connection.enter(Phase::Flushing);
        connection.wait_until(now.saturating_add(FLUSH_TIMEOUT));
        if let Some(id) = connection.id() {
            // `disconnect` fails if the peer was faster. The queue pair has failed then, or does when it is destroyed.
            let _ = id.disconnect();
        }
        self.mark(qp);
        self.attend_to(qp);
        self.reports.push_back(Event::Disconnected { qp, reason });
    }

    /// Takes down a connection whose queue pair has failed.
    pub(super) fn dismantle(&mut self, now: Instant, qp: QpNum) {
        self.reap(now, usize::MAX);
        // Windows first: soft-RoCE keeps a queue pair alive while a window is bound to it. The queue pair has failed,
        // so the peer reaches nothing by the others, either.
        let Some(connection) = self.slots.get(qp) else { return };
        connection.outbound.drop_bindings();
        self.registrations.release(qp);
        connection.enter(Phase::Gone);
        let objects = std::mem::replace(&mut connection.objects, Objects::Nothing);
        if let Objects::Pair(pair) = objects {
            let mut left = Vec::new();
            self.destroy(now, qp, pair, |ended| left.push(ended));
            left.iter().for_each(|ended| self.on_ended(qp, ended, Status::Flushed));
        }
        let Some(connection) = self.slots.get(qp) else { return };
        let waiting = connection.outbound.take_all();
        waiting.into_iter().for_each(|chained| self.on_unposted(qp, chained));
        self.reports.push_back(Event::Quiesced(Quiesced::new(qp)));
    }

    /// Reports that connection setup failed.
    pub(super) fn failed(&mut self, qp: QpNum, reason: ConnectError) {
        self.dissolve(qp);
        self.reports.push_back(Event::Failed { qp, reason });
    }

    /// Removes a connection about which the core gets no more reports.
    pub(super) fn forget(&mut self, qp: QpNum) {
        self.dissolve(qp);
        self.remove(qp);
    }

    /// Destroys the libraries' objects of a connection. Its slot is freed once the core has the report.
    fn dissolve(&mut self, qp: QpNum) {
        let Some(connection) = self.slots.get(qp) else { return };
        connection.enter(Phase::Gone);
        for polled in connection.inbound.take_kept() {
            Arrival::of(polled.name).into_iter().for_each(|arrival| self.unused(arrival, &polled));
        }
        let Some(connection) = self.slots.get(qp) else { return };
        let objects = std::mem::replace(&mut connection.objects, Objects::Nothing);
        if let Objects::Pair(pair) = objects {
            self.destroy(self.now, qp, pair, drop);
        }
    }

    /// Frees the slot of a connection that is gone.
    pub(super) fn remove(&mut self, qp: QpNum) {
        let Some(connection) = self.slots.remove(qp) else { return };
        self.memory.let_go(connection.regions);
    }
}

/// The time without a message after which a peer of an iWARP device is sent a keepalive. Soft-iWARP was seen to
/// overlook no octets that came later than that.
pub(super) const NUDGE_AFTER: Duration = Duration::from_millis(100);

/// The time a failed queue pair has to give back its work. After that it is destroyed all the same, and the work it
/// still holds counts as lost.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(200);
