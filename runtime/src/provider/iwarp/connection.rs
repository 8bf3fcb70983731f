//! One connection: its life, and how it ends.
//!
//! # Normal operation
//!
//! A connection lives as [`ConnectionState`] says. `intake` reads octets, `arrive` handles them, `depart` sends.
//!
//! # Recovery
//!
//! None. A connection that fails tells its peer if it can (`Terminating`), reports `Disconnected`, the flushed
//! completions and `Quiesced`, and lingers until the peer has closed, too: closing a socket with octets unread would
//! destroy its last octets on their way to the peer.

use haulage_proto::iwarp::Crc32c;
use haulage_proto::iwarp::mpa::handshake::{Agreement, Rtr};
use haulage_proto::iwarp::receive::Receiver;
use haulage_proto::iwarp::terminate::Fault;
use haulage_proto::verbs::{Handle, QpNum, WrId};

use super::life::Life;
use super::nic::Nic;
use super::outflow::{Outflow, Over};
use super::setup::Setup;
use super::turn::Turn;
use crate::provider::base::{ConnectionState, Waiting};
use crate::provider::{
    ConnectError, ConnectionParams, DisconnectReason, Head, Outgoing, QueueFull, Receive, Sent,
    WorkQueue,
};
use crate::sys::crc::crc32c;
use crate::sys::socket::Socket;

/// A queue pair and its socket.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) life: Life,
    pub(super) outflow: Outflow,
    pub(super) receiver: Receiver,
    /// Where the payload of the current FPDU goes next.
    pub(super) target: Target,
    /// Octets of payload of the tagged message under way, so far.
    pub(super) tagged: usize,
    /// Whether the last tagged message was long. If so, the next one is expected to be, and goes where it belongs.
    pub(super) bulk: bool,
    /// The Receive being filled.
    pub(super) receive: Option<Receive>,
    pub(super) intake: Intake,
    /// A Send waits for a Receive; `backlog` holds the octets behind its header.
    pub(super) starved: bool,
    /// Its turn of a poll is over; `backlog` holds the octets left for the next one.
    pub(super) throttled: bool,
    pub(super) backlog: Vec<u8>,
    /// Octets of the backlog that were handled already.
    pub(super) backlog_at: usize,
    pub(super) turn: Turn,
    /// The socket has nothing more for us, ever.
    pub(super) input_over: bool,
    /// The end of the stream, if it was seen while there was a backlog.
    pub(super) ended: Option<StreamEnd>,
    /// Receives in a row, from a ring, or, when hot, polls in a row that found nothing.
    pub(super) streak: u32,
    /// The result of reading since the last poll, if the connection was read for messages without Receives and none was
    /// refused.
    pub(super) looked: Option<Found>,
    /// Rounds in which the connection is not read for messages without Receives.
    pub(super) in_place_backoff: u8,
}

/// The way a connection's octets come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intake {
    /// The connection is not read: not yet, no more, or it is starved.
    Off,
    /// The reactor reports octets.
    Armed,
    /// The reactor was asked to stop; its remaining news comes first.
    Pausing,
    /// The socket is read at every poll.
    Hot,
}

/// The place of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// There is no payload to place.
    None,
    /// Memory that the peer may write.
    Registration { handle: Handle, offset: u64 },
    /// The sink of a Read.
    Response { handle: Handle, offset: u64 },
    /// The current Receive, from this octet.
    Receive { at: usize },
}

/// The result of reading a hot connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing.
    Nothing,
    /// Octets, and then nothing more.
    All,
    /// Octets, and perhaps more.
    Some,
}

/// The way a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// The peer closed in order.
    Orderly,
    /// The connection is gone.
    Lost,
}

impl Connection {
    pub(super) fn new(qp: QpNum, socket: Socket, state: ConnectionState, setup: Setup) -> Self {
        Self {
            outflow: Outflow::new(state),
            life: Life::new(qp, socket, state, setup),
            receiver: Receiver::new(None),
            target: Target::None,
            tagged: 0,
            bulk: false,
            receive: None,
            intake: Intake::Off,
            starved: false,
            throttled: false,
            backlog: Vec::new(),
            backlog_at: 0,
            turn: Turn::default(),
            input_over: false,
            ended: None,
            streak: 0,
            looked: None,
            in_place_backoff: 0,
        }
    }

    /// Takes octets of connection setup; those behind it stay in `octets`.
    pub(super) fn on_handshake(&mut self, nic: &mut Nic, octets: &mut &[u8]) {
        let Some(agreement) = self.life.on_handshake(nic, octets) else { return };
        self.open(nic, &agreement);
        if agreement.rtr == Some(Rtr::Write) {
            self.outflow.push_empty_write(nic);
        }
    }

    /// Accepts the peer, as the application asks.
    pub(super) fn accept(&mut self, nic: &mut Nic, params: &ConnectionParams<'_>) {
        let Some((agreement, broken)) = self.life.accept(nic, params) else { return };
        self.open(nic, &agreement);
        if let Some(reason) = broken {
            self.end_for(nic, reason);
        }
    }

    /// Begins the stream that both ends agreed on.
    fn open(&mut self, nic: &mut Nic, agreement: &Agreement) {
        let crc: Option<Crc32c> = agreement.crc.then_some(crc32c);
        self.receiver = Receiver::new(crc);
        self.outflow.open(nic, self.life.socket(), agreement, crc);
    }

    /// Sends as much as can be sent, and ends the connection if that was the last of it.
    pub(super) fn pump(&mut self, nic: &mut Nic) {
        if !self.life.state().is_live() {
            return;
        }
        match self.outflow.pump(nic, &mut self.life) {
            Ok(Some(read)) => self.receiver.expect_read(read.handle, read.offset, read.length),
            Ok(None) => {}
            Err(Over) => return self.end(nic),
        }
        if self.outflow.is_drained(nic, &self.life) && self.life.shut_down_write(nic) {
            self.report_end(nic);
        }
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

    /// Takes a message, which leaves with the next [`Self::pump`].
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

    /// Ends the connection because the peer broke a rule, and tells the peer which.
    pub(super) fn fail(&mut self, nic: &mut Nic, fault: Fault) {
        if !self.life.fault(nic, fault) {
            return;
        }
        // RFC 5040 section 4.8: a fault of the lower layer has no segment to quote.
        let quote = self.receiver.quote().filter(|_| fault.code().layer < 2);
        self.outflow.end_with(fault.code(), quote.as_ref());
    }

    /// Ends the connection, or its setup, because a deadline has passed; or sends a keepalive.
    pub(super) fn on_deadline(&mut self, nic: &mut Nic) {
        match self.life.state() {
            ConnectionState::Connecting | ConnectionState::Requesting => {
                self.life.fail_setup(nic, ConnectError::TimedOut);
            }
            ConnectionState::Awaiting => self.life.on_setup_lost(nic, ConnectError::TimedOut),
            ConnectionState::Open if self.life.is_keepalive_due(nic) => {
                self.outflow.push_keepalive(nic);
            }
            ConnectionState::Open => {}
            _ => self.end(nic),
        }
    }

    /// Notes that the stream has ended, or that there will be none.
    pub(super) fn on_stream_end(&mut self, nic: &mut Nic, end: StreamEnd) {
        if self.starved || self.throttled {
            // The end is handled after the octets that wait, which may complete a message.
            self.ended = Some(end);
            return;
        }
        if self.life.is_open() {
            let has_sent = self.outflow.has_left();
            self.life.set_reason(match end {
                StreamEnd::Orderly if !self.receiver.is_between() => DisconnectReason::Lost,
                StreamEnd::Orderly if has_sent && self.life.socket().has_left() => {
                    DisconnectReason::PeerHasAll
                }
                StreamEnd::Orderly => DisconnectReason::Peer,
                StreamEnd::Lost => DisconnectReason::Lost,
            });
        }
        self.end(nic);
    }

    /// Closes at once and reports everything that is owed.
    pub(super) fn end(&mut self, nic: &mut Nic) {
        if self.life.end(nic) {
            self.report_end(nic);
        }
    }

    /// Closes at once for this reason.
    pub(super) fn end_for(&mut self, nic: &mut Nic, reason: DisconnectReason) {
        self.life.set_reason(reason);
        self.end(nic);
    }

    /// Reports `Disconnected`, the flushed completions and `Quiesced`, having dropped every view.
    pub(super) fn report_end(&mut self, nic: &mut Nic) {
        nic.reports.disconnected(self.life.qp(), self.life.reason());
        nic.stags.destroy(self.life.qp());
        if let Some(receive) = self.receive.take() {
            nic.receives.push_front(receive);
        }
        self.target = Target::None;
        self.outflow.flush(nic, &self.life);
        (self.starved, self.throttled) = (false, false);
        (self.backlog, self.backlog_at) = (Vec::new(), 0);
        nic.reports.quiesced(self.life.qp());
    }

    /// Has the connection checked for progress if a message has begun.
    #[inline]
    pub(super) fn watch_input(&mut self, nic: &mut Nic) {
        if !self.life.is_watched() && self.has_message_begun() {
            self.life.watch(nic);
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

    /// Notes how far the peer has come. Returns the kinds of work that wait for it: RDMA Reads of ours, output, and a
    /// message that has begun. Calls that wait inside this process are no such work.
    fn note_progress(&mut self, nic: &mut Nic) -> Waiting {
        let remaining = self.receiver.read_remaining().unwrap_or(0);
        self.outflow.note_progress(nic, &mut self.life, remaining);
        let position = self.message_position();
        self.life.progress_mut().message.reach(position);
        Waiting {
            read: self.outflow.has_reads(),
            output: self.outflow.is_blocked(),
            message: self.has_message_begun(),
            // A throttled connection continues in every poll, so its peer is not excused.
            is_excused: self.starved,
        }
    }

    /// Returns whether a message, or another FPDU, has begun.
    fn has_message_begun(&self) -> bool {
        self.receiver.has_send_begun() || !self.receiver.is_between()
    }

    /// Returns how far the peer has come with FPDUs: their number, and the octets of payload that have arrived of the
    /// one under way, of which an FPDU has fewer than 2^16. A whole Send has one deadline, whatever part of it has
    /// come, and counts as no more than the FPDUs ahead of it.
    fn message_position(&self) -> u64 {
        if self.receiver.has_send_begun() {
            return self.turn.send_begun_at << 16;
        }
        (self.turn.fpdus << 16) + self.receiver.payload_arrived() as u64
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
