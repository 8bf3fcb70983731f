//! One connection: its life, and how it ends.
//!
//! # Normal operation
//!
//! A connection has four parts: its life ([`Life`]), when its ring is read ([`Heat`]), what it takes from ([`Inflow`]) and
//! what it sends with ([`Outflow`]). No part knows the connection, which puts them together: `connection/arrive.rs`
//! handles arrivals, `connection/depart.rs` departures.
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

use haulage_proto::iwarp::terminate::Fault;
use haulage_proto::time::Instant;
use haulage_proto::verbs::{Opcode, Status, WrId};

use super::ended::{BAD_RING, Ended, MEMORY_LOST};
use super::handshake::Agreed;
use super::heat::Heat;
use super::inflow::Inflow;
use super::life::Life;
use super::nic::Nic;
use super::outflow::Outflow;
use crate::provider::base::Waiting;
use crate::provider::{DisconnectReason, Event};
use crate::sys::unix::Stream;

mod arrive;
mod depart;

/// A queue pair, and the memory it shares with the peer.
#[derive(Debug)]
pub(super) struct Connection {
    life: Life,
    heat: Heat,
    /// What we take from, until the connection has ended.
    inflow: Option<Inflow>,
    /// What we send with, until the connection has ended and its peer is done copying.
    outflow: Option<Outflow>,
}

impl Connection {
    /// Makes the connection that a handshake has agreed on, and reports it. It may be lost already.
    pub(super) fn new(nic: &mut Nic, agreed: Agreed) -> Self {
        let Agreed { qp, socket, over, private_data, joint } = agreed;
        let (ord, ird) = joint.as_ref().map_or((0, 0), |joint| (joint.ord, joint.ird));
        nic.reports.push(Event::Established { qp, private_data, ord, ird });
        let (life, heat) = (Life::new(qp, socket), Heat::new(nic.now));
        let mut this = Self { life, heat, inflow: None, outflow: None };
        if over {
            this.life.be_over();
        }
        match joint {
            Some(joint) => {
                let (outflow, theirs) = Outflow::join(nic, qp, joint);
                (this.inflow, this.outflow) = (Some(Inflow::new(theirs)), Some(outflow));
            }
            None => this.end(nic, Ended::Closed, DisconnectReason::Lost, None),
        }
        this
    }

    /// Starts to close in order.
    pub(super) fn close(&mut self, nic: &mut Nic) {
        if self.life.close(nic) {
            self.pump(nic);
        }
    }

    /// Ends the connection if this deadline of it has passed.
    pub(super) fn on_deadline(&mut self, nic: &mut Nic, deadline: Instant) {
        if self.life.take_deadline(deadline) {
            self.end(nic, Ended::Closed, DisconnectReason::Local, None);
        }
    }

    /// Hears the doorbells that have rung, and notes whether the peer is gone.
    pub(super) fn on_readable(&mut self, nic: &mut Nic) {
        if self.life.is_live() {
            self.life.hear_doorbells(nic);
        }
    }

    /// Ends the connection because the peer broke a rule, and tells the peer which.
    #[cold]
    fn fault(&mut self, nic: &mut Nic, fault: Fault) {
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
        if self.life.is_live() && self.is_broken() {
            nic.link.faults += 1;
            let reason = DisconnectReason::PeerMisbehaved(MEMORY_LOST);
            self.end(nic, Ended::YouBroke(BAD_RING.code()), reason, None);
        }
    }

    /// Ends the connection: tells the peer, drops every view but those of memory that the peer is copying from or to,
    /// and reports the end. `failed` is the result of the oldest request that was not carried out, if it was not just
    /// flushed.
    #[cold]
    fn end(
        &mut self,
        nic: &mut Nic,
        word: Ended,
        reason: DisconnectReason,
        failed: Option<(WrId, Opcode, Status)>,
    ) {
        if !self.life.is_live() {
            return;
        }
        let qp = self.life.qp();
        nic.reports.disconnected(qp, reason);
        if let Some(inflow) = &mut self.inflow {
            inflow.give_back(nic);
        }
        if let Some((id, opcode, status)) = failed {
            nic.reports.ended(qp, id, opcode, status);
        }
        if let Some(outflow) = &mut self.outflow {
            outflow.flush(nic);
        }
        let is_released = self.withdraw(nic, word);
        self.inflow = None;
        self.heat.fall();
        if is_released {
            self.life.shut();
            self.release(nic);
        } else {
            self.life.hold(nic);
        }
    }

    /// Takes our registrations from the peer; returns whether it was not copying.
    fn withdraw(&mut self, nic: &mut Nic, word: Ended) -> bool {
        self.outflow.as_mut().is_none_or(|outflow| outflow.withdraw(nic, word))
    }

    /// Checks whether a quarantined connection can go; returns whether it did.
    pub(super) fn try_release(&mut self, nic: &mut Nic) -> bool {
        if !self.life.is_quarantined() {
            return true;
        }
        if let Some(outflow) = &mut self.outflow
            && !outflow.retire_all(nic)
        {
            if !self.life.is_peer_gone() {
                return false;
            }
            outflow.abandon(nic);
        }
        self.release(nic);
        true
    }

    fn release(&mut self, nic: &mut Nic) {
        self.outflow = None;
        self.life.release(nic);
    }

    /// Drops the remaining views when the provider is dropped. Memory that the peer is copying from or to is leaked.
    pub(super) fn abandon(&mut self, nic: &mut Nic) {
        if !self.withdraw(nic, Ended::Closed)
            && let Some(outflow) = &mut self.outflow
        {
            outflow.leak();
        }
    }

    /// Carries out the requests that wait, if any do, and closes if that was the last of it. Returns whether there was
    /// any progress.
    #[inline]
    pub(super) fn go_on(&mut self, nic: &mut Nic) -> bool {
        if !self.has_pending() && !self.life.is_draining() {
            return false;
        }
        let moved = self.pump(nic);
        if !self.life.is_watched() && self.has_pending() {
            self.life.watch(nic);
        }
        moved
    }

    /// Ends the connection if its peer has made no progress for too long.
    pub(super) fn check_progress(&mut self, nic: &mut Nic) {
        let waiting = self.waiting();
        let stall = self.life.check(nic, &waiting);
        if let (Some(stall), Some(timeout)) = (stall, nic.watches.timeout()) {
            nic.link.stalls += 1;
            self.end(nic, Ended::Closed, DisconnectReason::NoProgress(stall, timeout), None);
        }
    }

    /// Has the ring read in every poll from now on. Returns whether it was not, and the connection has not ended.
    pub(super) fn warm(&mut self, now: Instant) -> bool {
        let is_new = self.life.is_live() && self.heat.rise(now);
        if let Some(inflow) = self.inflow.as_ref().filter(|_| is_new) {
            inflow.need_no_doorbell();
        }
        is_new
    }

    /// Has the peer ring a doorbell for its next message. Returns whether there is one to be asked.
    pub(super) fn ask_for_doorbell(&self) -> bool {
        self.inflow.as_ref().map(Inflow::ask_for_doorbell).is_some()
    }

    /// Has the ring no longer read in every poll, once the peer was asked for a doorbell.
    pub(super) fn cool(&mut self, nic: &mut Nic) -> Cooled {
        let Some(inflow) = &self.inflow else { return Cooled::Ended };
        let mut cooled = Cooled::Silent;
        if inflow.has_record() {
            if inflow.has_receive(nic) {
                inflow.need_no_doorbell();
                return Cooled::Not;
            }
            // The doorbell may have rung already. The connection waits for a Receive.
            if self.heat.list() {
                cooled = Cooled::Starved;
            }
        }
        nic.link.demotions += 1;
        self.heat.fall();
        cooled
    }

    /// Notes that the connection has left the list of those that are heated with the next Receive.
    pub(super) const fn unlist(&mut self) {
        self.heat.unlist();
    }

    #[inline]
    pub(super) fn is_hot(&self) -> bool {
        self.heat.is_hot()
    }

    /// Returns whether nothing of ours waits for the peer, which has not ended the connection.
    pub(super) fn is_idle(&self) -> bool {
        !self.has_pending() && !self.life.is_over()
    }

    /// Returns how long nothing has arrived.
    pub(super) fn silence(&self, now: Instant) -> std::time::Duration {
        self.heat.silence(now)
    }

    /// Returns whether the next poll is likely to do something for this connection.
    pub(super) fn may_go_on(&self, nic: &Nic) -> bool {
        match &self.inflow {
            Some(inflow) if inflow.has_record() => inflow.has_receive(nic),
            _ => self.life.is_over(),
        }
    }

    /// Returns the socket, until the connection has ended.
    pub(super) const fn socket(&self) -> Option<&Stream> {
        self.life.socket()
    }

    fn is_broken(&self) -> bool {
        let theirs = self.inflow.as_ref().map(Inflow::segment);
        theirs.is_some_and(|theirs| theirs.memory().is_broken())
            || self.outflow.as_ref().is_some_and(Outflow::is_broken)
    }

    /// Returns the kinds of work that wait for the peer. Output waits for a peer when its ring is full, or when it
    /// copies under a handle that is to be closed. A message in parts waits for its last part, with one deadline for
    /// the whole. We copy Reads and Writes, which wait for no peer: they count as output while they wait for their
    /// turn.
    fn waiting(&self) -> Waiting {
        if !self.life.is_open() {
            return Waiting::default();
        }
        let message = self.inflow.as_ref().is_some_and(Inflow::has_begun);
        Waiting { output: self.has_pending(), message, ..Waiting::default() }
    }
}

/// The outcome of an attempt to cool a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cooled {
    /// A doorbell rings for the next message.
    Silent,
    /// As [`Silent`](Self::Silent), and the connection is to be listed: a message waits for a Receive.
    Starved,
    /// A message has come: the ring stays hot.
    Not,
    /// The connection has ended.
    Ended,
}

#[cfg(test)]
impl Connection {
    pub(super) const fn inflow(&mut self) -> Option<&mut Inflow> {
        self.inflow.as_mut()
    }

    pub(super) const fn outflow(&mut self) -> Option<&mut Outflow> {
        self.outflow.as_mut()
    }

    pub(super) fn is_open(&self) -> bool {
        self.life.is_open()
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
