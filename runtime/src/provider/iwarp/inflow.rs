//! Arrivals on an open connection: the stream's receiver, the places of payload, and the octets that wait.
//!
//! # Limits
//!
//! A Send that finds no Receive stops the connection: octets behind its header wait in the backlog, the rest in the
//! socket. A poll handles no more FPDUs than `turn` allows; octets beyond wait in the backlog, too.

use haulage_proto::iwarp::Crc32c;
use haulage_proto::iwarp::receive::Receiver;
use haulage_proto::iwarp::terminate::{Fault, Quote};
use haulage_proto::verbs::Handle;

use super::life::Life;
use super::nic::Nic;
use super::transmit_queue::OutstandingRead;
use super::turn::Turn;
use crate::provider::Receive;

mod arrive;
mod whole;

pub(super) use arrive::Read;
pub(super) use whole::Passed;

/// Everything that arrives at a connection, and how far it has come.
#[derive(Debug)]
pub(super) struct Inflow {
    receiver: Receiver,
    /// Where the payload of the current FPDU goes next.
    target: Target,
    /// Octets of payload of the tagged message under way, so far.
    tagged: usize,
    /// Whether the last tagged message was long. If so, the next one is expected to be, and goes where it belongs.
    bulk: bool,
    /// The Receive being filled.
    receive: Option<Receive>,
    turn: Turn,
    wait: Wait,
    backlog: Backlog,
    /// The end of the stream, if it was seen while octets waited.
    ended: Option<StreamEnd>,
}

/// What the octets in the backlog, and those still to come, wait for.
///
/// | from | to | when |
/// |---|---|---|
/// | `Nothing` | `Receive` | a Send has begun, and there is no Receive |
/// | `Nothing` | `Turn` | as many FPDUs were handled in this poll as may be, and octets are left |
/// | `Receive` | `Nothing` | a Receive was posted |
/// | `Turn` | `Nothing` | the next poll begins |
/// | any | `Nothing` | the queue pair has reported its end |
///
/// Nothing is handled while octets wait, so no state follows another but by way of `Nothing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Nothing waits, and the backlog is empty.
    Nothing,
    /// A Send waits for a Receive. The backlog holds the octets behind its header, if any came.
    Receive,
    /// The connection has had its turn of this poll. The backlog holds octets for the next.
    Turn,
}

/// Octets that wait.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    octets: Vec<u8>,
    /// The number of octets that were handled already.
    at: usize,
}

/// The place of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// There is no payload to place.
    None,
    /// Memory that the peer may write.
    Registration { handle: Handle, offset: u64 },
    /// The sink of a Read.
    Response { handle: Handle, offset: u64 },
    /// The current Receive, from this octet.
    Receive { at: usize },
}

/// The way a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// The peer closed in order.
    Orderly,
    /// The connection is gone.
    Lost,
}

impl Backlog {
    /// Returns the octets that wait.
    pub(super) fn rest(&self) -> &[u8] {
        self.octets.get(self.at..).unwrap_or_default()
    }
}

impl Inflow {
    pub(super) fn new() -> Self {
        Self {
            receiver: Receiver::new(None),
            target: Target::None,
            tagged: 0,
            bulk: false,
            receive: None,
            turn: Turn::default(),
            wait: Wait::Nothing,
            backlog: Backlog::default(),
            ended: None,
        }
    }

    /// Begins the stream that both ends agreed on.
    pub(super) fn open(&mut self, crc: Option<Crc32c>) {
        self.receiver = Receiver::new(crc);
    }

    /// Begins a turn, if there was another poll since the last one. Returns the number of FPDUs received so far.
    #[inline]
    pub(super) fn begin_turn(&mut self, nic: &Nic) -> u64 {
        self.turn.begin(nic.polls);
        self.turn.fpdus
    }

    /// Ends a turn. Octets that it left, `rest`, are to wait for the next poll, unless they wait for a Receive.
    pub(super) fn end_turn(&mut self, nic: &mut Nic, life: &mut Life, rest: &[u8]) {
        if !life.state().receives() || self.is_starved() {
            return;
        }
        if !rest.is_empty() {
            self.throttle(nic, life);
        }
        if !life.is_watched() && self.has_message_begun() {
            life.watch(nic);
        }
    }

    /// Leaves the rest of the octets read to the next poll.
    #[cold]
    fn throttle(&mut self, nic: &mut Nic, life: &mut Life) {
        debug_assert!(!self.waits(), "octets that wait are not handled");
        self.wait = Wait::Turn;
        nic.throttled.push_back(life.qp());
        life.unsettle(nic);
    }

    /// Has the Send that has begun wait for a Receive.
    fn starve(&mut self, nic: &mut Nic, life: &mut Life) {
        debug_assert!(!self.waits(), "octets that wait are not handled");
        self.wait = Wait::Receive;
        nic.starved.push_back(life.qp());
        nic.wire.starvations += 1;
        life.unsettle(nic);
    }

    /// Adds octets that were read to the backlog.
    pub(super) fn keep(&mut self, octets: &[u8]) {
        self.backlog.octets.extend_from_slice(octets);
    }

    /// Takes the backlog out, to be handled.
    pub(super) fn take_backlog(&mut self) -> Backlog {
        std::mem::take(&mut self.backlog)
    }

    /// Puts a backlog back, of whose rest `count` more octets were handled.
    pub(super) fn put_back(&mut self, backlog: Backlog, count: usize) {
        self.backlog = Backlog { at: backlog.at + count, ..backlog };
    }

    /// Takes a Receive for the Send that waits for one. Returns whether there was one, and a Send waited.
    pub(super) fn take_receive(&mut self, nic: &mut Nic) -> bool {
        if !self.is_starved() || nic.receives.is_empty() {
            return false;
        }
        self.wait = Wait::Nothing;
        self.receive = nic.receives.pop_front();
        true
    }

    /// Ends the wait for the next poll. Returns whether octets waited for it.
    pub(super) fn take_turn(&mut self) -> bool {
        let has_waited = self.wait == Wait::Turn;
        if has_waited {
            self.wait = Wait::Nothing;
        }
        has_waited
    }

    /// Keeps the end of the stream if octets wait, which may complete a message. Returns whether they do.
    pub(super) fn defers(&mut self, end: StreamEnd) -> bool {
        if self.waits() {
            self.ended = Some(end);
        }
        self.waits()
    }

    /// Returns the end of the stream that was kept, if there is one.
    pub(super) const fn take_end(&mut self) -> Option<StreamEnd> {
        self.ended.take()
    }

    /// Declares which Read of ours is answered next.
    pub(super) fn expect_read(&mut self, read: OutstandingRead) {
        self.receiver.expect_read(read.handle, read.offset, read.length);
    }

    /// Gives up what waits or has begun, and gives a Receive back.
    pub(super) fn flush(&mut self, nic: &mut Nic) {
        if let Some(receive) = self.receive.take() {
            nic.receives.push_front(receive);
        }
        self.target = Target::None;
        (self.wait, self.backlog) = (Wait::Nothing, Backlog::default());
    }

    /// Returns whether the peer has sent too many FPDUs that deliver nothing.
    #[inline]
    pub(super) fn is_flooded(&mut self, nic: &Nic, life: &Life) -> bool {
        self.turn.empty > 0 && life.state().receives() && self.turn.is_flood(nic.now)
    }

    /// Returns whether the connection has had its turn of this poll.
    #[inline]
    pub(super) fn is_turn_over(&self) -> bool {
        self.turn.is_over()
    }

    /// Returns the number of FPDUs received.
    #[inline]
    pub(super) const fn fpdus(&self) -> u64 {
        self.turn.fpdus
    }

    /// Returns whether octets wait, for a Receive or for the next poll.
    #[inline]
    pub(super) fn waits(&self) -> bool {
        self.wait != Wait::Nothing
    }

    /// Returns whether a Send waits for a Receive.
    #[inline]
    pub(super) fn is_starved(&self) -> bool {
        self.wait == Wait::Receive
    }

    /// Returns whether octets wait for the next poll.
    #[inline]
    pub(super) fn is_throttled(&self) -> bool {
        self.wait == Wait::Turn
    }

    /// Returns whether the stream is between two FPDUs.
    #[inline]
    pub(super) fn is_between(&self) -> bool {
        self.receiver.is_between()
    }

    /// Returns the segment that a Terminate about `fault` quotes.
    pub(super) fn quote(&self, fault: Fault) -> Option<Quote<'_>> {
        // RFC 5040 section 4.8: a fault of the lower layer has no segment to quote.
        self.receiver.quote().filter(|_| fault.code().layer < 2)
    }

    /// Returns whether enough payload is to come to receive it into its place.
    ///
    /// The end of a long FPDU is worth it, whatever its length, if the message goes on: the next header is read with
    /// it, and the payload behind that can go to its place as a whole.
    pub(super) fn expects_much(&self) -> bool {
        let remaining = self.receiver.payload_remaining();
        let long = self.receiver.payload_length() >= DIRECT_MIN && !self.receiver.is_last();
        remaining >= DIRECT_MIN || (long && remaining > 0)
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

    /// Returns the octets that the oldest Read of ours still waits for.
    pub(super) fn read_remaining(&self) -> usize {
        self.receiver.read_remaining().unwrap_or(0)
    }

    /// Returns whether a message, or another FPDU, has begun.
    pub(super) fn has_message_begun(&self) -> bool {
        self.receiver.has_send_begun() || !self.receiver.is_between()
    }

    /// Returns how far the peer has come with FPDUs: their number, and the octets of payload that have arrived of the
    /// one under way, of which an FPDU has fewer than 2^16. A whole Send has one deadline, whatever part of it has
    /// come, and counts as no more than the FPDUs ahead of it.
    pub(super) fn message_position(&self) -> u64 {
        if self.receiver.has_send_begun() {
            return self.turn.send_begun_at << 16;
        }
        (self.turn.fpdus << 16) + self.receiver.payload_arrived() as u64
    }
}

#[cfg(test)]
impl Inflow {
    /// Returns the octets that the backlog has room for.
    pub(super) fn backlog_capacity(&self) -> usize {
        self.backlog.octets.capacity()
    }

    /// Returns whether the next tagged message is expected to be long.
    pub(super) fn expects_bulk(&self) -> bool {
        self.bulk
    }
}

/// From this many octets on, payload still to come is received into its place rather than copied there: worth 5 % of
/// the throughput of 1 MiB Writes on loopback. Below, a system call costs more than the copy.
const DIRECT_MIN: usize = 16 << 10;

/// Octets read behind such payload: the end of this FPDU and the header of a tagged one, so that the payload of that
/// one can go to its place, too.
const BEHIND: usize = 20;

/// Octets read when the next message may be long: payload among them is copied, and a header beyond them costs a system
/// call.
const BULK_AHEAD: usize = 16 << 10;
