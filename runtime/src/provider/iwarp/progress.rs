//! Peers that make no progress with what waits for them.
//!
//! # Normal operation
//!
//! Three things wait for a peer: RDMA Reads of ours for their responses, output for room in the peer, and a
//! message that has begun for its end. Each has a clock of its own, so progress with one excuses no other.
//! A request of a Read that is still on its way behind other output counts as progress until it has arrived,
//! or slow paths would look like silent peers. Calls that wait inside us, and connections on which
//! nothing waits, are never too slow.
//!
//! While a Send waits for a Receive of ours, nothing behind it is read. The clocks of Reads and of messages
//! then stand still: they keep the checks that they have counted, so a peer gains no time by sending more
//! than there are Receives for.

use haulage_proto::verbs::Handle;

use super::connection::{Connection, State};
use super::lane::OutstandingRead;
use super::nic::Nic;
use crate::provider::progress::Clock;
use crate::provider::{DisconnectReason, Stall};

/// The clocks of a connection.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Whether the connection is on the list of those that are checked.
    watched: bool,
    read: Clock<ReadMark>,
    /// Octets that the peer's system has acknowledged.
    output: Clock<u64>,
    message: Clock<MessageMark>,
}

/// How far the peer is with the oldest Read.
#[derive(Debug, PartialEq)]
struct ReadMark {
    sink: Handle,
    remaining: usize,
    /// Octets of ours that the peer's system has acknowledged, up to the Read's request.
    request: u64,
}

/// How far the peer is with what has begun.
#[derive(Debug, PartialEq)]
enum MessageMark {
    /// A Send, by its number: all of it has one deadline, whatever comes of it meanwhile.
    Send(u32),
    /// Another FPDU, by its number: placed payload is progress.
    Fpdu { number: u32, remaining: usize },
}

impl Connection {
    /// Has the connection checked for progress, as something waits for its peer.
    #[inline]
    pub(super) fn watch(&mut self, nic: &mut Nic) {
        if !self.progress.watched {
            self.progress.watched = nic.watches.add(nic.now, self.qp);
        }
    }

    /// Has the connection checked for progress if a message has begun.
    #[inline]
    pub(super) fn watch_input(&mut self, nic: &mut Nic) {
        if !self.progress.watched && self.message_mark().is_some() {
            self.watch(nic);
        }
    }

    /// Ends the connection if its peer has made no progress for too long.
    pub(super) fn check_progress(&mut self, nic: &mut Nic) {
        self.progress.watched = false;
        let Some(timeout) = nic.watches.timeout().filter(|_| self.state == State::Open) else {
            return;
        };
        let read = self.lane.as_ref().and_then(|lane| lane.reads.front()).copied();
        let message = self.message_mark();
        if read.is_some() || message.is_some() || self.blocked {
            self.watch(nic);
        }
        // A throttled connection goes on in every poll, so its peer is not excused.
        let listens = !self.starved;
        let acknowledged = self.acknowledged(nic, read.is_some());
        let read = read.map(|read| self.read_mark(&read, acknowledged));
        let output = self.blocked.then_some(acknowledged);
        let progress = &mut self.progress;
        let overdue = [
            (listens && progress.read.has_run_out(read)).then_some(Stall::Read),
            progress.output.has_run_out(output).then_some(Stall::Output),
            (listens && progress.message.has_run_out(message)).then_some(Stall::Message),
        ];
        if let Some(stall) = overdue.into_iter().flatten().next() {
            nic.wire.stalls += 1;
            self.reason = DisconnectReason::NoProgress(stall, timeout);
            self.end(nic);
        }
    }

    /// Returns the octets of ours that the peer's system has acknowledged, if anything waits for that.
    fn acknowledged(&self, nic: &mut Nic, reads: bool) -> u64 {
        if !self.blocked && !reads {
            return 0;
        }
        nic.counters.syscalls += 1;
        self.sent.saturating_sub(self.socket.unacknowledged().unwrap_or(0))
    }

    fn read_mark(&self, read: &OutstandingRead, acknowledged: u64) -> ReadMark {
        let remaining = self.receiver.read_remaining().unwrap_or(0);
        let request = acknowledged.min(read.requested_at);
        ReadMark { sink: read.handle, remaining, request }
    }

    fn message_mark(&self) -> Option<MessageMark> {
        if let Some(number) = self.receiver.send_begun() {
            return Some(MessageMark::Send(number));
        }
        let remaining = self.receiver.payload_remaining();
        let number = self.turn.fpdus;
        (!self.receiver.is_between()).then_some(MessageMark::Fpdu { number, remaining })
    }
}
