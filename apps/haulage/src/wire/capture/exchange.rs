//! MPA, DDP and RDMAP on one connection of a capture.

use haulage::sys::crc::crc32c;
use haulage_proto::describe;
use haulage_proto::iwarp::mpa::handshake::Fault as FrameFault;
use haulage_proto::iwarp::observe::{End, Fpdu, Message, Observer, Seen, Unreadable};
use haulage_proto::iwarp::terminate::Fault;

use super::super::lines::MESSAGE_MAX;
use super::lines::{Lines, Way};

/// What is known of one connection.
#[derive(Debug)]
pub struct Exchange {
    /// Nothing where neither direction can be read.
    observer: Option<Box<Observer>>,
    /// Whether what the active and the passive end send can be read.
    is_read: [bool; 2],
    messages: Messages,
    tells_foreign: bool,
}

/// What is known of the messages of one connection.
#[derive(Debug, Default)]
pub struct Messages {
    /// Whether the connection is of RPC-over-RDMA.
    is_rpc: bool,
}

impl Messages {
    /// Notes the private data of a connection: RFC 8797 is for RPC-over-RDMA alone.
    fn private_data(&mut self, octets: &[u8]) {
        self.is_rpc |= octets.starts_with(&PRIVATE_DATA);
    }

    /// Returns whether octets that begin a message may be one of RPC-over-RDMA.
    pub fn may_be(&self, octets: &[u8]) -> bool {
        let version = octets.get(4..).and_then(|rest| rest.first_chunk());
        let version = version.map(|version| u32::from_be_bytes(*version));
        self.is_rpc || matches!(version, Some(1 | 2))
    }

    /// Adds the line of a message, if it is one of RPC-over-RDMA. Returns whether it is.
    pub fn show(&mut self, octets: &[u8], (way, lines): (Way, &mut Lines)) -> bool {
        // Octets too few for a header may be those of any protocol.
        if !self.may_be(octets) || octets.len() < PREFIX_LEN {
            return false;
        }
        match describe::message(octets) {
            Ok(message) => {
                self.is_rpc = true;
                lines.message(way, &message);
            }
            Err(refusal) if self.is_rpc => lines.refusal(way, &refusal),
            Err(_) => return false,
        }
        true
    }
}

impl Exchange {
    /// Begins a connection.
    pub fn begun() -> Self {
        Self {
            observer: Some(Box::new(Observer::new(crc32c, MESSAGE_MAX))),
            is_read: [true; 2],
            messages: Messages::default(),
            tells_foreign: false,
        }
    }

    /// Begins a connection of which nothing can be read.
    pub fn unreadable() -> Self {
        Self { observer: None, is_read: [false; 2], ..Self::begun() }
    }

    /// Has a line say so if the connection does not begin with an MPA frame.
    pub fn tell_foreign(&mut self) {
        self.tells_foreign = true;
    }

    /// Returns whether any direction can be read.
    pub fn is_read(&self) -> bool {
        self.observer.is_some()
    }

    /// Returns the octets of memory that the connection holds.
    pub fn memory(&self) -> usize {
        self.observer.as_ref().map_or(0, |observer| observer.memory())
    }

    /// Takes the next octets of one end.
    pub fn octets(&mut self, end: End, octets: &[u8], (way, lines): (Way, &mut Lines)) {
        let side = usize::from(end == End::Passive);
        let mut rest = octets;
        while let (Some(observer), true) = (&mut self.observer, self.is_read[side]) {
            match observer.next(end, &mut rest) {
                Ok(None) => return,
                Ok(Some(Seen::Frame(frame))) => {
                    self.messages.private_data(frame.private_data);
                    lines.fields(way, &describe::iwarp::frame(&frame));
                }
                Ok(Some(Seen::Fpdu(fpdu, message))) => {
                    show(&fpdu, message, &mut self.messages, (way, lines));
                }
                Err(why) => {
                    let is_foreign = why == Unreadable::Frame(FrameFault::NotMpa);
                    if !is_foreign || self.tells_foreign {
                        let text =
                            format!("{why}: nothing more can be read of what this end sends");
                        lines.error(way, &text);
                    }
                    // Where one end does not speak MPA, neither does the other.
                    self.is_read = [!is_foreign && self.is_read[0], !is_foreign && self.is_read[1]];
                    self.is_read[side] = false;
                    if self.is_read == [false; 2] {
                        self.observer = None;
                    }
                }
            }
        }
    }

    /// Notes that octets of one end are missing from the capture.
    pub fn missing(&mut self, end: End, count: u64, (way, lines): (Way, &mut Lines)) {
        let side = usize::from(end == End::Passive);
        let (Some(observer), true) = (&mut self.observer, self.is_read[side]) else { return };
        let text = match observer.missing(end, count) {
            Ok(()) => format!(
                "{count} bytes are missing from the capture, all of one FPDU: what it belongs to is not shown"
            ),
            Err(_) => {
                self.is_read[side] = false;
                if self.is_read == [false; 2] {
                    self.observer = None;
                }
                format!(
                    "{count} bytes are missing from the capture, so where the next FPDU begins is unknown: nothing more \
                     can be read of what this end sends on this connection"
                )
            }
        };
        lines.error(way, &text);
    }
}

/// Adds the line of an FPDU or of the message that it completes.
fn show(
    fpdu: &Fpdu<'_>,
    message: Message<'_>,
    messages: &mut Messages,
    (way, lines): (Way, &mut Lines),
) {
    let is_shown = match message {
        Message::Whole(octets) => messages.show(octets, (way, lines)),
        Message::Part(octets) => messages.may_be(octets),
        Message::None | Message::Broken(_) | Message::Incomplete => false,
    };
    if is_shown {
        return;
    }
    match describe::iwarp::fpdu(fpdu) {
        Ok(fields) => lines.fields(way, &fields),
        Err(refusal) => lines.refusal(way, &refusal),
    }
    match message {
        Message::Broken(Fault::MessageTooLong) => lines.error(way, TOO_LONG),
        Message::Broken(fault) => {
            lines.error(way, &format!("{}: the Send is not delivered", fault.rule()));
        }
        _ => {}
    }
}

/// The first octets of the private data of RFC 8797.
const PRIVATE_DATA: [u8; 4] = 0xf6ab_0e18_u32.to_be_bytes();
/// The octets that every message of RPC-over-RDMA has.
const PREFIX_LEN: usize = 16;

const TOO_LONG: &str = "the Send is longer than any message and is not put together";
