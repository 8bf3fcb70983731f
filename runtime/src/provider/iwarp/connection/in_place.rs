//! Reading a hot connection for messages that need no Receive, and offering them.

use haulage_proto::iwarp::receive::Carried;

use super::Connection;
use crate::provider::iwarp::inbox::Inbox;
use crate::provider::iwarp::inflow::{Passed, StreamEnd};
use crate::provider::iwarp::intake::Found;
use crate::provider::iwarp::nic::Nic;
use crate::provider::iwarp::port::LanePort;
use crate::provider::{MessageSink, RUN_MAX, Run, RunKind};

impl Connection {
    /// Returns whether messages of the connection may be taken without Receives now. During a backoff they may not, and
    /// one round of the backoff is over.
    pub(in crate::provider::iwarp) fn is_plain(&mut self) -> bool {
        self.intake.may_look()
            && self.life.is_open()
            && self.life.opening().is_over()
            && self.inflow.is_between()
            && self.inflow.read_ahead() == usize::MAX
            && !self.inflow.waits()
    }

    /// Returns whether more messages of the octets that were read may be taken without Receives.
    pub(in crate::provider::iwarp) fn goes_on_in_place(&self) -> bool {
        self.intake.has_looked() && self.intake.is_hot() && self.life.is_open()
    }

    /// Returns whether reading the connection has left octets in its socket, perhaps.
    pub(in crate::provider::iwarp) fn has_left_some(&self) -> bool {
        self.intake.has_left_some()
    }

    /// Reads the socket once, and notes the result for the next poll.
    pub(in crate::provider::iwarp) fn read_in_place(&mut self, nic: &mut Nic, inbox: &mut Inbox) {
        nic.counters.syscalls += 1;
        let found = match self.life.socket().receive(&mut inbox.octets) {
            Ok(None) => Found::Nothing,
            Ok(Some(0)) => {
                self.on_input_end(nic, StreamEnd::Orderly);
                return;
            }
            Ok(Some(count)) => {
                nic.counters.bytes_system += count as u64;
                nic.counters.receive_batches += 1;
                // A short read has emptied the socket.
                let found = if count < inbox.octets.len() { Found::All } else { Found::Some };
                (inbox.start, inbox.end) = (0, count);
                (inbox.owner, inbox.found, inbox.refused) = (self.life.qp(), found, false);
                found
            }
            Err(_) => return self.on_input_end(nic, StreamEnd::Lost),
        };
        self.intake.on_looked(found);
    }

    /// Offers at most `budget` messages of the octets read. Returns how many were taken.
    pub(in crate::provider::iwarp) fn take_in_place(
        &mut self,
        nic: &mut Nic,
        inbox: &mut Inbox,
        length_max: usize,
        budget: usize,
        sink: &mut impl MessageSink,
    ) -> usize {
        let mut count = 0;
        self.inflow.begin_turn(nic);
        while !inbox.is_empty() && count < budget {
            if self.inflow.is_turn_over() {
                self.leave_in_place(inbox, 0);
                break;
            }
            let octets = inbox.octets.get(inbox.start..inbox.end).unwrap_or_default();
            let whole = self.inflow.whole(octets).filter(|_| self.life.is_open());
            let Some((whole, carried)) = whole.and_then(|whole| Some((whole, whole.carried()?)))
            else {
                // The FPDU may simply be incomplete: the connection is read again in the next round.
                self.leave_in_place(inbox, 0);
                break;
            };
            let payload = whole.payload();
            let fits = payload.len() <= length_max;
            let passed = match carried {
                Carried::Write { handle, offset, last } => {
                    let placed = self.inflow.place_whole(nic, &self.life, handle, offset, payload);
                    if placed && last {
                        self.inflow.on_tagged_end();
                    }
                    placed.then(|| Passed::one(whole))
                }
                Carried::Send { invalidate: None } if fits => {
                    let most = RUN_MAX.min(budget - count);
                    let (messages, run) = self.inflow.run(octets, whole, length_max, most);
                    let fpdus = run.fpdus as usize;
                    let (qp, messages) = (self.life.qp(), &messages[..fpdus]);
                    let offered = Run { octets: messages, kind: RunKind::Whole };
                    let mut port = LanePort { connection: self, nic };
                    let taken = sink.messages(qp, &offered, &mut port);
                    count += taken;
                    nic.counters.receives += taken as u64;
                    if taken == fpdus {
                        Some(run)
                    } else {
                        self.pass_some(nic, inbox, taken);
                        None
                    }
                }
                Carried::Send { invalidate: Some(handle) } if fits => {
                    let qp = self.life.qp();
                    // A Write of a result precedes most of these Sends, so each is offered as a run of one.
                    let kind = RunKind::Invalidating(&[handle]);
                    let offered = Run { octets: &[payload], kind };
                    let mut port = LanePort { connection: self, nic };
                    let taken = sink.messages(qp, &offered, &mut port);
                    count += taken;
                    nic.counters.receives += taken as u64;
                    (taken > 0).then(|| Passed::one(whole))
                }
                Carried::Send { .. } => None,
            };
            let Some(passed) = passed else {
                self.leave_in_place(inbox, SHY_ROUNDS);
                break;
            };
            self.inflow.pass(&passed);
            nic.wire.fpdus_received += u64::from(passed.fpdus);
            inbox.start += passed.octets;
            self.intake.on_looked(inbox.found);
        }
        self.end_if_flooded(nic);
        count
    }

    /// Passes the first `count` FPDUs of the octets read, which were looked at.
    #[cold]
    fn pass_some(&mut self, nic: &mut Nic, inbox: &mut Inbox, count: usize) {
        for _ in 0..count {
            let octets = inbox.octets.get(inbox.start..inbox.end).unwrap_or_default();
            let Some(whole) = self.inflow.whole(octets) else { return };
            self.inflow.pass(&Passed::one(whole));
            nic.wire.fpdus_received += 1;
            inbox.start += whole.wire_len();
            self.intake.on_looked(inbox.found);
        }
    }

    /// Leaves the next message, and all that come in the next `rounds` rounds, to polls.
    const fn leave_in_place(&mut self, inbox: &mut Inbox, rounds: u8) {
        inbox.refused = true;
        self.intake.back_off(rounds);
    }
}

/// Rounds in which a connection is left to polls after a message of it was refused.
const SHY_ROUNDS: u8 = 32;
