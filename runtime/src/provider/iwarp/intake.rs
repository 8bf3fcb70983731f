//! Reading octets, and keeping those that wait.
//!
//! # Normal operation
//!
//! Octets come from a receive buffer of the ring, or are read here when the connection is hot. When much payload may
//! follow, little else is read with a header, so that little has to be copied.
//!
//! # Limits
//!
//! A Send that finds no Receive stops the connection: octets behind its header wait in `backlog`, the rest in the
//! socket. A connection is read for at most [`OCTETS_PER_POLL`] at a time, and for no more FPDUs than `turn` allows.

use super::connection::{Connection, Found, Intake, StreamEnd};
use super::nic::Nic;
use super::reactor::Reactor;
use crate::provider::base::ConnectionState;
use crate::provider::{ConnectError, DisconnectReason};

impl Connection {
    /// Takes octets that arrived, in any state of the connection.
    pub(super) fn on_octets(&mut self, nic: &mut Nic, mut octets: &[u8]) {
        nic.counters.bytes_system += octets.len() as u64;
        if self.life.is_in_setup() {
            self.on_handshake(nic, &mut octets);
        }
        self.take_octets(nic, octets);
    }

    /// Takes octets of an open connection.
    pub(super) fn take_octets(&mut self, nic: &mut Nic, octets: &[u8]) {
        if octets.is_empty() || !self.life.state().receives() {
            return;
        }
        if self.starved || !self.backlog.is_empty() {
            self.backlog.extend_from_slice(octets);
            return;
        }
        let taken = self.feed(nic, octets);
        if self.life.state().receives() {
            self.backlog.extend_from_slice(octets.get(taken..).unwrap_or_default());
        }
    }

    /// Continues with the Send that waited for a Receive, now that there is one.
    pub(super) fn resume(&mut self, nic: &mut Nic) {
        if !self.starved || nic.receives.is_empty() {
            return;
        }
        self.starved = false;
        self.receive = nic.receives.pop_front();
        if self.check_receive_length(nic) {
            self.feed_backlog(nic);
        }
        self.end_backlog(nic);
    }

    /// Handles the backlog, as far as possible now.
    pub(super) fn feed_backlog(&mut self, nic: &mut Nic) {
        let backlog = std::mem::take(&mut self.backlog);
        let rest = backlog.get(self.backlog_at..).unwrap_or_default();
        let taken = self.feed(nic, rest);
        if taken < rest.len() && self.life.state().receives() {
            self.backlog_at += taken;
            self.backlog = backlog;
        } else {
            self.backlog_at = 0;
        }
    }

    /// Continues with the stream, if there is no backlog any more.
    pub(super) fn end_backlog(&mut self, nic: &mut Nic) {
        if !self.starved && !self.throttled {
            if let Some(end) = self.ended.take() {
                self.on_stream_end(nic, end);
            }
            self.life.unsettle(nic);
        }
    }

    /// Reads the socket until it is empty, or enough octets have come.
    pub(super) fn read(&mut self, nic: &mut Nic) -> Found {
        let mut total = 0;
        while self.intake == Intake::Hot
            && !self.starved
            && self.life.state() != ConnectionState::Closed
        {
            if self.throttled {
                return Found::Some;
            }
            let (result, wanted) = if self.expects_much() {
                self.read_into_place(nic, self.receiver.payload_remaining())
            } else {
                self.read_scratch(nic)
            };
            match result {
                Ok(None) => return if total == 0 { Found::Nothing } else { Found::All },
                Ok(Some(0)) => {
                    self.on_input_end(nic, StreamEnd::Orderly);
                    return Found::All;
                }
                Ok(Some(count)) => {
                    total += count;
                    // A short read has emptied the socket.
                    if count < wanted && !self.throttled {
                        return Found::All;
                    }
                    if total >= OCTETS_PER_POLL {
                        return Found::Some;
                    }
                }
                Err(_) => {
                    self.on_input_end(nic, StreamEnd::Lost);
                    return Found::All;
                }
            }
        }
        Found::All
    }

    /// Returns whether enough payload is to come to receive it into its place.
    ///
    /// The end of a long FPDU is worth it, whatever its length, if the message goes on: the next header is read with
    /// it, and the payload behind that can go to its place as a whole.
    pub(super) fn expects_much(&self) -> bool {
        let remaining = self.receiver.payload_remaining();
        let long = self.receiver.payload_length() >= DIRECT_MIN && !self.receiver.is_last();
        self.life.state().receives() && (remaining >= DIRECT_MIN || (long && remaining > 0))
    }

    /// Handles the end of the socket's input.
    pub(super) fn on_input_end(&mut self, nic: &mut Nic, end: StreamEnd) {
        if self.intake == Intake::Hot {
            self.intake = Intake::Off;
        }
        self.input_over = true;
        self.life.unsettle(nic);
        if self.life.is_in_setup() {
            let why = ConnectError::BadHandshake("closed before it was complete");
            self.life.on_setup_lost(nic, why);
            return;
        }
        self.on_stream_end(nic, end);
    }

    /// Returns how many octets to read when the length of the next payload is unknown.
    pub(super) fn read_ahead(&self) -> usize {
        let long = self.receiver.payload_length() >= DIRECT_MIN && self.receiver.goes_on();
        if long && self.receiver.payload_remaining() == 0 {
            // The message continues, with a header.
            BEHIND
        } else if self.bulk {
            BULK_AHEAD
        } else {
            usize::MAX
        }
    }

    fn read_scratch(&mut self, nic: &mut Nic) -> (std::io::Result<Option<usize>>, usize) {
        let mut scratch = std::mem::take(&mut nic.scratch);
        let wanted = self.read_ahead().min(scratch.len());
        nic.counters.syscalls += 1;
        let result = self.life.socket().receive(scratch.get_mut(..wanted).unwrap_or_default());
        if let Ok(Some(count)) = result {
            self.on_octets(nic, scratch.get(..count).unwrap_or_default());
        }
        nic.scratch = scratch;
        (result, wanted)
    }

    /// Returns whether octets should be read or awaited.
    pub(super) fn wants_input(&self) -> bool {
        let closed =
            matches!(self.life.state(), ConnectionState::Connecting | ConnectionState::Closed);
        // A hot connection is read only when it has no backlog.
        let waits = self.starved || self.throttled && self.intake != Intake::Hot;
        !closed && !waits && !self.input_over
    }

    pub(super) fn heat(&mut self, nic: &mut Nic) {
        self.intake = Intake::Hot;
        self.streak = 0;
        self.looked = None;
        nic.wire.promotions += 1;
    }

    /// Has the reactor report the connection's octets again.
    pub(super) fn cool(&mut self, nic: &mut Nic, reactor: &mut Reactor) {
        self.streak = 0;
        self.intake = Intake::Armed;
        if reactor.receive(self.life.socket().fd(), self.life.qp()).is_err() {
            self.intake = Intake::Off;
            self.life.unsettle(nic);
        }
    }

    /// Ends the connection if its peer sent too many FPDUs that deliver nothing.
    #[inline]
    pub(super) fn end_if_flooded(&mut self, nic: &mut Nic) {
        if self.turn.empty > 0 && self.life.state().receives() && self.turn.is_flood(nic.now) {
            nic.wire.floods += 1;
            self.end_for(nic, DisconnectReason::Flooded);
        }
    }

    /// Leaves the rest of the octets read to the next poll.
    #[cold]
    pub(super) fn throttle(&mut self, nic: &mut Nic) {
        self.throttled = true;
        nic.throttled.push_back(self.life.qp());
        self.life.unsettle(nic);
    }

    /// Continues with the octets that the turn of the last poll left.
    pub(super) fn go_on(&mut self, nic: &mut Nic) {
        if std::mem::take(&mut self.throttled) {
            self.feed_backlog(nic);
            self.end_backlog(nic);
        }
    }
}

/// From this many octets on, payload still to come is received into its place rather than copied there: worth 5 % of
/// the throughput of 1 MiB Writes on loopback. Below, a system call costs more than the copy.
pub(super) const DIRECT_MIN: usize = 16 << 10;

/// Octets read behind such payload: the end of this FPDU and the header of a tagged one, so that the payload of that
/// one can go to its place, too.
pub(super) const BEHIND: usize = 20;

/// Octets read when the next message may be long: payload among them is copied, and a header beyond them costs a system
/// call.
pub(super) const BULK_AHEAD: usize = 16 << 10;

/// Octets read from a connection in one poll, before others have their turn.
const OCTETS_PER_POLL: usize = 2 << 20;
