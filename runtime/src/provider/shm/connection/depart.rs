//! Departures on an open connection: work requests, carried out in the order they were posted.
//!
//! # Normal operation
//!
//! A Send that fits into the ring is copied there as it is posted, and the messages of one `post` become visible to the
//! peer at once. A Write is copied straight to its place, one copy, as it is posted; a Read is, as the next `poll`
//! begins. A request that cannot be carried out (the ring is full; a handle's memory is being copied; enough octets
//! were moved for one call) waits in order, and everything behind it waits, too.
//!
//! What is not posted leaves through the port (`shm/outflow/port.rs`).

use haulage_proto::iwarp::terminate::Code;
use haulage_proto::verbs::{Handle, Status};

use super::Connection;
use crate::provider::shm::ended::{BAD_RING, Ended};
use crate::provider::shm::entry::{Entry, Work};
use crate::provider::shm::leaving::MOVED_PER_CALL;
use crate::provider::shm::nic::Nic;
use crate::provider::shm::outflow::{Peer, Ran, RingPort, Terms};
use crate::provider::{DisconnectReason, QueueFull, WorkQueue, WorkRequest};

impl Connection {
    /// Returns the port of the connection while no messages are taken, if it is open.
    #[inline(always)]
    pub(in crate::provider::shm) fn port<'a>(
        &'a mut self,
        nic: &'a mut Nic,
    ) -> Option<RingPort<'a>> {
        let Self { outflow: Some(outflow), inflow: Some(inflow), life, .. } = self else {
            return None;
        };
        life.is_open().then(|| outflow.port(nic, inflow.segment(), Terms::ORDINARY))
    }

    /// Returns whether requests wait.
    #[inline]
    pub(in crate::provider::shm) fn has_pending(&self) -> bool {
        self.outflow.as_ref().is_some_and(|outflow| outflow.has_pending())
    }

    /// Takes the requests that there is room for, and carries them out as far as possible now.
    #[inline]
    pub(in crate::provider::shm) fn post(
        &mut self,
        nic: &mut Nic,
        batch: &mut WorkQueue,
    ) -> Result<(), QueueFull> {
        if self.has_pending() {
            self.pump(nic);
        }
        if batch.is_empty() {
            // Messages may have been copied into the ring and not yet shown to the peer.
            self.publish(nic);
            return Ok(());
        }
        let mut budget = MOVED_PER_CALL;
        while self.life.is_open()
            && !nic.is_choked()
            && let Some(outflow) = &mut self.outflow
        {
            outflow.send_first(nic, batch);
            if nic.is_choked() || !outflow.has_room(nic) {
                break;
            }
            let Some(request) = batch.pop_front() else { break };
            self.post_other(nic, request, &mut budget);
        }
        self.publish(nic);
        if batch.is_empty() { Ok(()) } else { Err(QueueFull) }
    }

    /// Carries out any request, or has it wait.
    #[inline(never)]
    fn post_other(&mut self, nic: &mut Nic, request: WorkRequest, budget: &mut usize) {
        let mut entry = Entry::from(request);
        // A Read waits for `poll`, or a batch of them would keep the caller for long.
        let waits = self.has_pending() || matches!(entry.work, Work::Read { .. });
        if waits || !self.run(nic, &mut entry, budget) {
            if self.life.is_open() {
                entry.copy_source();
            }
            if let Some(outflow) = &mut self.outflow {
                outflow.push(entry);
            }
        }
    }

    /// Carries out waiting requests, as far as possible now; returns whether there was any progress.
    pub(in crate::provider::shm) fn pump(&mut self, nic: &mut Nic) -> bool {
        let (mut any, mut budget) = (false, MOVED_PER_CALL);
        while self.life.is_live()
            && !nic.is_choked()
            && let Some(outflow) = &mut self.outflow
            && let Some(mut entry) = outflow.pop()
        {
            let before = outflow.position(&entry);
            if !self.run(nic, &mut entry, &mut budget) {
                if let Some(outflow) = &mut self.outflow {
                    any |= outflow.position(&entry) != before;
                    outflow.put_back(entry);
                }
                break;
            }
            any = true;
        }
        if any {
            // No request leaves the queue of those that wait, and none goes on, anywhere but here.
            self.life.output_moves();
        }
        self.finish_if_drained(nic);
        self.publish(nic);
        any
    }

    /// Continues a request; false if it has to wait. A request that fails ends the connection.
    fn run(&mut self, nic: &mut Nic, entry: &mut Entry, budget: &mut usize) -> bool {
        let (id, opcode) = (entry.id, entry.work.opcode());
        let failed = |status| (id, opcode, status);
        let Self { life, inflow: Some(inflow), outflow: Some(outflow), .. } = self else {
            return false;
        };
        let peer = Peer { segment: inflow.segment(), life };
        let (word, reason, failed) = match outflow.carry_out(nic, &peer, entry, budget) {
            Ran::Waits => return false,
            Ran::Done => {
                if entry.flags.signaled {
                    nic.complete(life.qp(), entry.id, opcode);
                }
                return true;
            }
            Ran::Invalidated(handle) => {
                if entry.flags.signaled {
                    nic.complete_invalidation(life.qp(), entry.id, handle);
                }
                return true;
            }
            // A request of ours that cannot be carried out ends the connection, as on any RNIC.
            Ran::Wrong => (Ended::Closed, DisconnectReason::Local, failed(Status::LocalFault)),
            Ran::Refused(fault) => {
                let Code { layer, etype, code } = fault.code();
                let told = DisconnectReason::Terminated { layer, etype, code };
                (Ended::WeBroke(fault.code()), told, failed(Status::RemoteAccess))
            }
            Ran::BadRing => {
                nic.link.faults += 1;
                let reason = DisconnectReason::PeerMisbehaved(BAD_RING.rule());
                (Ended::YouBroke(BAD_RING.code()), reason, failed(Status::Flushed))
            }
            Ran::Over => {
                // We saw this before the socket closed; records in the ring still come first.
                life.be_over();
                return false;
            }
        };
        // The views of the request are dropped before its end is reported.
        entry.work = Work::LocalInv { handle: Handle(0) };
        self.end(nic, word, reason, Some(failed));
        true
    }

    /// Shows the peer the records put into the ring, and rings if it sleeps.
    #[inline]
    fn publish(&mut self, nic: &mut Nic) {
        if let Some(outflow) = &mut self.outflow {
            outflow.publish(nic, &self.life);
        }
    }

    /// Tells the peer that nothing follows, if we are closing and nothing is left to be sent.
    fn finish_if_drained(&mut self, nic: &mut Nic) {
        if !self.life.is_draining() || self.has_pending() {
            return;
        }
        // The peer learns what was taken from it before it learns that nothing follows.
        if let Some(inflow) = &mut self.inflow {
            inflow.release_room();
        }
        let Some(outflow) = &mut self.outflow else { return };
        match outflow.push_close() {
            Ok(false) => return,
            Ok(true) => self.publish(nic),
            Err(_) => {}
        }
        self.end(nic, Ended::Closed, DisconnectReason::Local, None);
    }
}
