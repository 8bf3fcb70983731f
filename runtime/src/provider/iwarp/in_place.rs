//! Messages taken without Receives, out of octets just read.
//!
//! # Normal operation
//!
//! Hot connections are read here instead of by the next poll, each at most once between two polls. All share one
//! buffer: the next connection is read once the buffer is empty. Sends that lie whole in the buffer are offered in
//! runs; short Writes between them are placed at once. Other FPDUs, and refused messages, wait for the next poll,
//! which feeds them to the connection before it reads anything.
//!
//! A connection whose message was refused is likely to bring more of that kind: it is left to polls for some rounds, so
//! that these read its octets directly.

use haulage_proto::iwarp::receive::{Carried, Whole};
use haulage_proto::verbs::QpNum;

use super::connection::{Connection, Found, Intake, StreamEnd};
use super::inbox::Inbox;
use super::nic::Nic;
use super::port::LanePort;
use super::state::Iwarp;
use crate::provider::{MessageSink, RUN_MAX, Run, RunKind};

impl Iwarp {
    /// Takes messages of at most `length_max` octets without Receives from the hot connections.
    #[inline]
    pub(super) fn take_in_place(
        &mut self,
        length_max: usize,
        budget: usize,
        sink: &mut impl MessageSink,
    ) -> usize {
        // Messages that lie in Receives and are not yet reported come before these.
        if !self.nic.reports.is_empty() {
            return 0;
        }
        let mut taken = 0;
        loop {
            if !self.inbox.is_empty() {
                let Self { slots, nic, inbox, .. } = self;
                let owner = slots.get(inbox.owner).filter(|_| !inbox.refused);
                let Some(owner) = owner else { return taken };
                taken += owner.take_in_place(nic, inbox, length_max, budget - taken, sink);
                if !inbox.is_empty() || taken == budget {
                    return taken;
                }
            }
            let Some(at) = self.inbox.next(self.hot.len()) else { return taken };
            if let Some(connection) = self.hot.get(at).and_then(|qp| self.slots.get(*qp))
                && connection.is_plain()
            {
                connection.read_in_place(&mut self.nic, &mut self.inbox);
                self.unread |= connection.looked == Some(Found::Some);
            }
        }
    }

    /// Feeds a connection the octets read from it and not taken, unless more of them can still be taken.
    pub(super) fn end_round(&mut self) {
        if !self.inbox.is_empty() {
            // The caller may not have asked for messages since the last poll.
            let goes_on = self.slots.get(self.inbox.owner).is_some_and(|owner| {
                owner.looked.is_some() && owner.intake == Intake::Hot && owner.life.is_open()
            });
            if self.inbox.refused || !goes_on {
                self.feed_inbox();
            }
        }
        self.inbox.begin_round(self.hot.len());
    }

    /// Feeds a connection all octets that were read from it.
    pub(super) fn feed_inbox(&mut self) {
        let Self { inbox, slots, nic, .. } = self;
        if let Some(owner) = slots.get(inbox.owner) {
            owner.take_octets(nic, inbox.octets.get(inbox.start..inbox.end).unwrap_or_default());
        }
        (inbox.start, inbox.refused) = (inbox.end, false);
    }

    /// Feeds the octets in the buffer to their connection if that is `qp`, before more of its octets are handled.
    pub(super) fn feed_inbox_of(&mut self, qp: QpNum) {
        if !self.inbox.is_empty() && self.inbox.owner == qp {
            self.feed_inbox();
        }
    }
}

impl Connection {
    /// Returns whether messages of the connection may be taken without Receives now. During a backoff they may not, and
    /// one round of the backoff is over.
    fn is_plain(&mut self) -> bool {
        if self.in_place_backoff > 0 {
            self.in_place_backoff -= 1;
            return false;
        }
        self.intake == Intake::Hot
            && self.life.is_open()
            && self.is_at_ease()
            && self.receiver.is_between()
            && self.read_ahead() == usize::MAX
            && !self.starved
            && self.backlog.is_empty()
    }

    /// Reads the socket once, and notes the result for the next poll.
    fn read_in_place(&mut self, nic: &mut Nic, inbox: &mut Inbox) {
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
        self.looked = Some(found);
    }

    /// Offers at most `budget` messages of the octets read. Returns how many were taken.
    fn take_in_place(
        &mut self,
        nic: &mut Nic,
        inbox: &mut Inbox,
        length_max: usize,
        budget: usize,
        sink: &mut impl MessageSink,
    ) -> usize {
        let mut count = 0;
        self.turn.begin(nic.polls);
        while !inbox.is_empty() && count < budget {
            if self.turn.is_over() {
                self.leave_in_place(inbox, 0);
                break;
            }
            let octets = inbox.octets.get(inbox.start..inbox.end).unwrap_or_default();
            let whole = self.receiver.whole(octets, 0).filter(|_| self.life.is_open());
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
                    let placed = self.place_whole(nic, handle, offset, payload);
                    if placed && last {
                        self.on_write_ended();
                    }
                    placed.then(|| Passed::one(whole))
                }
                Carried::Send { invalidate: None } if fits => {
                    let most = RUN_MAX.min(budget - count);
                    let (messages, run) = self.run(octets, whole, length_max, most);
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
            let Passed { last, fpdus, octets } = passed;
            self.receiver.pass(&last);
            nic.wire.fpdus_received += u64::from(fpdus);
            self.turn.fpdus += u64::from(fpdus);
            inbox.start += octets;
            self.looked = Some(inbox.found);
        }
        self.end_if_flooded(nic);
        count
    }

    /// Returns the Sends that `octets` begin with, at most `most` of `length_max` octets each. `first` is the first of
    /// them.
    fn run<'a>(
        &self,
        octets: &'a [u8],
        first: Whole<'a>,
        length_max: usize,
        most: usize,
    ) -> ([&'a [u8]; RUN_MAX], Passed<'a>) {
        let mut messages = [&[][..]; RUN_MAX];
        let mut run = Passed::one(first);
        let (before, places) = messages.split_at_mut(1);
        before[0] = first.payload();
        for (place, behind) in places.iter_mut().zip(1..).take(most.saturating_sub(1)) {
            let rest = octets.get(run.octets..).unwrap_or_default();
            let next = self.receiver.whole(rest, behind).filter(|next| {
                next.payload().len() <= length_max
                    && next.carried() == Some(Carried::Send { invalidate: None })
            });
            let Some(next) = next else { break };
            *place = next.payload();
            run = Passed { last: next, fpdus: run.fpdus + 1, octets: run.octets + next.wire_len() };
        }
        (messages, run)
    }

    /// Passes the first `count` FPDUs of the octets read, which were looked at.
    #[cold]
    fn pass_some(&mut self, nic: &mut Nic, inbox: &mut Inbox, count: usize) {
        for _ in 0..count {
            let octets = inbox.octets.get(inbox.start..inbox.end).unwrap_or_default();
            let Some(whole) = self.receiver.whole(octets, 0) else { return };
            self.receiver.pass(&whole);
            nic.wire.fpdus_received += 1;
            self.turn.fpdus += 1;
            inbox.start += whole.wire_len();
            self.looked = Some(inbox.found);
        }
    }

    /// Leaves the next message, and all that come in the next `rounds` rounds, to polls.
    const fn leave_in_place(&mut self, inbox: &mut Inbox, rounds: u8) {
        inbox.refused = true;
        (self.looked, self.in_place_backoff) = (None, rounds);
    }
}

/// Consecutive FPDUs at the start of the octets read.
struct Passed<'a> {
    last: Whole<'a>,
    /// The number of FPDUs.
    fpdus: u32,
    /// The octets of all FPDUs on the wire.
    octets: usize,
}

impl<'a> Passed<'a> {
    const fn one(whole: Whole<'a>) -> Self {
        Self { last: whole, fpdus: 1, octets: whole.wire_len() }
    }
}

/// Rounds in which a connection is left to polls after a message of it was refused.
const SHY_ROUNDS: u8 = 32;
