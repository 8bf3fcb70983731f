//! Peers that make no progress with what waits for them.
//!
//! Output waits for a peer when its ring is full, or when it copies under a handle that is to be closed; a
//! message in parts waits for its last one. Reads and Writes are copied by us and wait for nobody.

use haulage_proto::verbs::WrId;

use super::connection::{Connection, State, Work};
use super::ended::Ended;
use super::nic::Nic;
use crate::provider::progress::Clock;
use crate::provider::{DisconnectReason, Stall};

/// The clocks of a connection.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Whether the connection is on the list of those that are checked.
    watched: bool,
    /// Messages in parts that have begun, modulo 2^32.
    begun: u32,
    output: Clock<OutputMark>,
    /// The number of the message under way: all of it has one deadline.
    message: Clock<u32>,
}

/// How far the oldest request that waits has come.
#[derive(Debug, PartialEq)]
struct OutputMark {
    /// Up to where the peer has made room in our ring, if the request waits for room.
    room: Option<u64>,
    request: WrId,
    /// Octets of that request that were moved.
    moved: usize,
}

impl Connection {
    /// Has the connection checked for progress if output waits.
    #[inline]
    pub(super) fn watch_output(&mut self, nic: &mut Nic) {
        if !self.progress.watched && !self.pending.is_empty() {
            self.watch(nic);
        }
    }

    /// Has the connection checked for progress, as a message in parts has begun.
    pub(super) fn message_begins(&mut self, nic: &mut Nic) {
        self.progress.begun = self.progress.begun.wrapping_add(1);
        if !self.progress.watched {
            self.watch(nic);
        }
    }

    /// Ends the connection if its peer has made no progress for too long.
    pub(super) fn check_progress(&mut self, nic: &mut Nic) {
        self.progress.watched = false;
        let Some(timeout) = nic.watches.timeout().filter(|_| self.state == State::Open) else {
            return;
        };
        let output = self.output_mark();
        let message = self.filling.is_some().then_some(self.progress.begun);
        if output.is_some() || message.is_some() {
            self.watch(nic);
        }
        let overdue = [
            self.progress.output.has_run_out(output).then_some(Stall::Output),
            self.progress.message.has_run_out(message).then_some(Stall::Message),
        ];
        if let Some(stall) = overdue.into_iter().flatten().next() {
            nic.link.stalls += 1;
            self.end(nic, Ended::Closed, DisconnectReason::NoProgress(stall, timeout), None);
        }
    }

    #[cold]
    fn watch(&mut self, nic: &mut Nic) {
        self.progress.watched = nic.watches.add(nic.now, self.qp);
    }

    fn output_mark(&self) -> Option<OutputMark> {
        let (oldest, producer) = (self.pending.front()?, self.producer.as_ref()?);
        // An invalidation waits for a copy alone, whatever the peer takes from the ring meanwhile.
        let copies = matches!(oldest.work, Work::LocalInv { .. });
        let room = (!copies).then(|| producer.room_until());
        Some(OutputMark { room, request: oldest.id, moved: oldest.moved })
    }
}
