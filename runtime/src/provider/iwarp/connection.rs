//! One connection: its life, and how it ends.
//!
//! # Normal operation
//!
//! A connection lives as [`ConnectionState`] says, once its [`Handshake`] is over. It has four parts: what is about its life ([`Life`]), how its octets
//! come in ([`Intake`]), what arrives ([`Inflow`]) and what leaves ([`Outflow`]). No part knows the connection, which
//! puts them together: `connection/reading.rs` reads octets, `connection/feed.rs` handles them, `connection/in_place.rs`
//! offers messages that need no Receive.
//!
//! # Recovery
//!
//! None. A connection that fails tells its peer if it can (`Terminating`), reports `Disconnected`, the flushed
//! completions and `Quiesced`, and lingers until the peer has closed, too: closing a socket with octets unread would
//! destroy its last octets on their way to the peer.

use haulage_proto::iwarp::Crc32c;
use haulage_proto::iwarp::mpa::handshake::{Agreement, Rtr};
use haulage_proto::iwarp::terminate::Fault;
use haulage_proto::time::Instant;
use haulage_proto::verbs::{Handle, QpNum, WrId};

use super::handshake::{Agreed, Handshake};
use super::inflow::Inflow;
use super::intake::Intake;
use super::life::Life;
use super::nic::Nic;
use super::outflow::{Outflow, Over};
use crate::provider::base::{ConnectionState, Waiting};
use crate::provider::{
    DisconnectReason, Event, Head, Outgoing, PeerUser, QueueFull, Sent, WorkQueue,
};
use crate::sys::crc::crc32c;

mod feed;
mod in_place;
mod reading;

/// A queue pair and its socket.
#[derive(Debug)]
pub(super) struct Connection {
    life: Life,
    intake: Intake,
    inflow: Inflow,
    outflow: Outflow,
}

impl Connection {
    /// Makes the connection that a handshake has agreed on, and reports it. It may be broken already.
    pub(super) fn new(nic: &mut Nic, handshake: Handshake, agreed: Agreed) -> Self {
        let Agreed { agreement, opening, private_data, broken } = agreed;
        let (lane, intake) = handshake.into_parts();
        let (qp, ord, ird) = (lane.qp(), agreement.ord, agreement.ird);
        nic.reports.push(Event::Established { qp, private_data, ord, ird });
        let life = Life::new(nic, lane, opening);
        let mut this = Self { life, intake, inflow: Inflow::new(), outflow: Outflow::new() };
        this.open(nic, &agreement);
        if opening.may_send() && agreement.rtr == Some(Rtr::Write) {
            this.outflow.push_empty_write(nic);
        }
        if let Some(reason) = broken {
            this.end_for(nic, reason);
        }
        this
    }

    /// Closes the connection in order, as the application asks.
    pub(super) fn disconnect(&mut self, nic: &mut Nic) {
        self.life.close(nic);
    }

    /// Takes a prefix of `batch`, and sends as much as can be sent.
    pub(super) fn post(&mut self, nic: &mut Nic, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        let count = self.outflow.take(nic, batch);
        self.pump(nic);
        self.outflow.copy_sources(count);
        if self.outflow.is_blocked() {
            self.life.unsettle(nic);
        }
        if batch.is_empty() { Ok(()) } else { Err(QueueFull) }
    }

    /// Takes a message, which leaves when the connection is settled.
    #[inline]
    pub(super) fn send(
        &mut self,
        nic: &mut Nic,
        head: &Head<'_>,
        message: &mut Outgoing,
        id: WrId,
    ) -> Sent {
        self.outflow.send(nic, &mut self.life, head, message, id)
    }

    /// Goes on, as the socket can be written to.
    pub(super) fn on_writable(&mut self, nic: &mut Nic) {
        self.outflow.on_writable();
        self.life.unsettle(nic);
    }

    /// Goes on, as there may be room for the sink of another Read.
    pub(super) fn on_registrations(&mut self, nic: &mut Nic) {
        self.outflow.on_registrations();
        self.life.unsettle(nic);
    }

    /// Ends the connection because this deadline has passed, or sends a keepalive.
    pub(super) fn on_deadline(&mut self, nic: &mut Nic, deadline: Instant) {
        if !self.life.take_deadline(deadline) {
            return;
        }
        match self.life.state() {
            ConnectionState::Open if self.life.is_keepalive_due(nic) => {
                self.outflow.push_keepalive(nic);
            }
            ConnectionState::Open => {}
            _ => self.end(nic),
        }
    }

    /// Ends the connection if its peer has made no progress for too long.
    pub(super) fn check_progress(&mut self, nic: &mut Nic) {
        let waiting =
            if self.life.is_open() { self.note_progress(nic) } else { Waiting::default() };
        let stall = self.life.progress_mut().check(&waiting);
        if waiting.is_any() {
            self.life.watch(nic);
        }
        if let (Some(stall), Some(timeout)) = (stall, nic.watches.timeout()) {
            nic.wire.stalls += 1;
            self.end_for(nic, DisconnectReason::NoProgress(stall, timeout));
        }
    }

    #[inline]
    pub(super) const fn qp(&self) -> QpNum {
        self.life.qp()
    }

    /// Returns the user at the other end, if the system knows it.
    pub(super) fn peer_user(&self) -> PeerUser {
        self.life.socket().peer_user()
    }

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.life.is_open()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.life.state() == ConnectionState::Closed
    }

    /// Returns whether a Read of the peer's still needs this registration.
    #[inline]
    pub(super) fn is_read(&self, handle: Handle) -> bool {
        self.outflow.is_read(handle)
    }

    /// Begins the stream that both ends agreed on.
    fn open(&mut self, nic: &mut Nic, agreement: &Agreement) {
        let crc: Option<Crc32c> = agreement.crc.then_some(crc32c);
        self.inflow.open(crc);
        self.outflow.open(nic, self.life.socket(), agreement, crc);
    }

    /// Sends as much as can be sent, and ends the connection if that was the last of it.
    fn pump(&mut self, nic: &mut Nic) {
        if !self.life.state().is_live() {
            return;
        }
        match self.outflow.pump(nic, &mut self.life) {
            Ok(Some(read)) => self.inflow.expect_read(read),
            Ok(None) => {}
            Err(Over) => return self.end(nic),
        }
        if self.outflow.is_drained(nic, &self.life) && self.life.shut_down_write(nic) {
            self.report_end(nic);
        }
    }

    /// Ends the connection because the peer broke a rule, and tells the peer which.
    fn fail(&mut self, nic: &mut Nic, fault: Fault) {
        if self.life.fault(nic, fault) {
            self.outflow.end_with(fault.code(), self.inflow.quote(fault).as_ref());
        }
    }

    /// Closes at once and reports everything that is owed.
    fn end(&mut self, nic: &mut Nic) {
        if self.life.end(nic) {
            self.report_end(nic);
        }
    }

    /// Closes at once for this reason.
    fn end_for(&mut self, nic: &mut Nic, reason: DisconnectReason) {
        self.life.set_reason(reason);
        self.end(nic);
    }

    /// Reports `Disconnected`, the flushed completions and `Quiesced`, having dropped every view.
    fn report_end(&mut self, nic: &mut Nic) {
        let qp = self.life.qp();
        nic.reports.disconnected(qp, self.life.reason());
        nic.stags.destroy(qp);
        self.inflow.flush(nic);
        self.outflow.flush(nic, &self.life);
        nic.reports.quiesced(qp);
    }

    /// Notes how far the peer has come. Returns the kinds of work that wait for it: RDMA Reads of ours, output, and a
    /// message that has begun. Calls that wait inside this process are no such work.
    fn note_progress(&mut self, nic: &mut Nic) -> Waiting {
        self.outflow.note_progress(nic, &mut self.life, self.inflow.read_remaining());
        self.life.progress_mut().message.reach(self.inflow.message_position());
        Waiting {
            read: self.outflow.has_reads(),
            output: self.outflow.is_blocked(),
            message: self.inflow.has_message_begun(),
            // A throttled connection continues in every poll, so its peer is not excused.
            is_excused: self.inflow.is_starved(),
        }
    }
}

#[cfg(test)]
impl Connection {
    pub(super) fn outflow(&mut self) -> &mut Outflow {
        &mut self.outflow
    }

    pub(super) fn inflow(&self) -> &Inflow {
        &self.inflow
    }

    pub(super) fn intake(&mut self) -> &mut Intake {
        &mut self.intake
    }

    pub(super) fn life(&self) -> &Life {
        &self.life
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
