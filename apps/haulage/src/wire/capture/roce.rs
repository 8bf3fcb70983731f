//! RoCEv2: the Sends, Writes and Reads of reliable connections in UDP datagrams.
//!
//! A direction of a connection is known by both addresses and the receiver's queue pair. Packets that were sent again are
//! left out, by their packet sequence numbers (PSN). The invariant CRC is not checked.

use std::net::IpAddr;

use haulage_proto::describe::{Fields, Value};

use super::super::lines::MESSAGE_MAX;
use super::exchange::Messages;
use super::lines::{Lines, Way};
use super::packet::Datagram;
use super::table::Table;

pub mod header;

use header::{Header, Operation, Part, Position};

/// The directions of connections.
#[derive(Debug, Default)]
pub struct Flows {
    table: Table<(IpAddr, IpAddr, u32), Flow>,
}

/// What one queue pair receives.
#[derive(Debug, Default)]
struct Flow {
    messages: Messages,
    requests: Order,
    responses: Order,
    send: Send,
    /// The handle and the offset at which the next part of a Write belongs.
    write: Option<(u32, u64)>,
}

/// The Send that is arriving, or that arrived last.
#[derive(Debug, Default)]
struct Send {
    octets: Vec<u8>,
    /// Whether more of it may come.
    is_open: bool,
}

/// The packet sequence numbers of requests, or of responses.
#[derive(Debug, Default)]
struct Order {
    last: Option<u32>,
}

/// A packet's place in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It follows the one before.
    Next,
    /// Others are missing before it, or it begins anew.
    Apart,
    /// It was there before.
    Again,
}

impl Order {
    fn turn(&mut self, psn: u32) -> Turn {
        let Some(last) = self.last else {
            self.last = Some(psn);
            return Turn::Apart;
        };
        let ahead = psn.wrapping_sub(last) & PSN_MASK;
        if ahead == 0 || ahead > PSN_MASK - AGAIN_MAX {
            return Turn::Again;
        }
        self.last = Some(psn);
        if ahead == 1 { Turn::Next } else { Turn::Apart }
    }
}

impl Flows {
    /// Takes a datagram.
    pub fn datagram(&mut self, datagram: &Datagram<'_>, lines: &mut Lines) {
        let (from, to) = (datagram.from, datagram.to);
        let mut way = Way { from, to, queue_pair: None };
        let (header, payload) = match Header::decode(datagram.payload) {
            Ok(decoded) => decoded,
            Err(refusal) => return lines.refusal(way, &refusal),
        };
        way.queue_pair = Some(header.queue_pair);
        if datagram.is_cut {
            return lines
                .error(way, "the packet was not captured whole: capture with tcpdump -s 0");
        }
        let key = (from.ip(), to.ip(), header.queue_pair);
        if self.table.get(&key).is_none() {
            self.table.put(key, Flow::default());
        }
        let Some(flow) = self.table.get(&key) else { return };
        flow.packet(&header, payload, (way, lines));
        let held = flow.send.octets.capacity();
        self.table.weigh(&key, held);
        while self.table.forget().is_some() {}
    }
}

impl Flow {
    fn packet(&mut self, header: &Header, payload: &[u8], (way, lines): (Way, &mut Lines)) {
        let turn = match header.operation {
            Operation::Send | Operation::Write | Operation::ReadRequest | Operation::Atomic => {
                self.requests.turn(header.psn)
            }
            Operation::ReadResponse => self.responses.turn(header.psn),
            // Datagrams have no order, and an acknowledgment repeats the number of what it acknowledges.
            Operation::Datagram | Operation::Acknowledge | Operation::Other => Turn::Next,
        };
        if turn == Turn::Again || header.is_plain_acknowledgment() {
            return;
        }
        let mut place = None;
        match header.operation {
            Operation::Send => {
                let is_done = match self.send.gather(header.position, turn, payload) {
                    Gathered::Whole => self.messages.show(&self.send.octets, (way, lines)),
                    Gathered::Part => self.messages.may_be(&self.send.octets),
                    Gathered::Broken => {
                        lines.error(way, BROKEN);
                        true
                    }
                };
                if is_done {
                    return;
                }
            }
            Operation::Write => place = self.place(header, turn, payload.len()),
            _ => {}
        }
        lines.fields(way, &describe(header, payload, place));
    }

    /// Returns the handle and the offset at which the payload of a Write belongs, if the packets before it are there.
    fn place(&mut self, header: &Header, turn: Turn, length: usize) -> Option<(u32, u64)> {
        if let Some(target) = header.target {
            self.write = Some((target.handle, target.offset));
        } else if turn != Turn::Next {
            self.write = None;
        }
        let (handle, offset) = self.write?;
        let length = u64::try_from(length).unwrap_or(0);
        self.write = Some((handle, offset.wrapping_add(length)));
        Some((handle, offset))
    }
}

impl Send {
    /// Appends the payload of a packet.
    fn gather(&mut self, position: Position, turn: Turn, payload: &[u8]) -> Gathered {
        if position.first {
            self.octets.clear();
            self.is_open = true;
        } else if turn != Turn::Next {
            self.is_open = false;
        }
        if !self.is_open || self.octets.len() + payload.len() > MESSAGE_MAX {
            *self = Self::default();
            return Gathered::Broken;
        }
        self.octets.extend_from_slice(payload);
        self.is_open = !position.last;
        if position.last { Gathered::Whole } else { Gathered::Part }
    }
}

/// What is there of a Send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gathered {
    /// All of it.
    Whole,
    /// Its start, and more follows.
    Part,
    /// A part is missing, or it is too long.
    Broken,
}

/// Describes a packet with the names that FPDUs have, where they have one.
fn describe<'a>(header: &Header, payload: &'a [u8], place: Option<(u32, u64)>) -> Fields<'a> {
    Fields::new(|line| {
        line.name("frame", "roce").number("psn", header.psn);
        line.add("first", Value::Flag(header.position.first));
        line.add("last", Value::Flag(header.position.last));
        match header.name() {
            Some(name) => line.name("opcode", name),
            None => line.number("opcode", header.opcode),
        };
        if let Some((handle, offset)) = place {
            line.number("stag", handle).add("to", Value::Number(offset));
        } else if let Some(target) = header.target {
            line.number("stag", target.handle).number("to", target.offset);
            line.number("length", target.length);
        }
        match header.part {
            Part::None => {}
            Part::Invalidate(handle) => _ = line.number("inv_stag", handle),
            Part::Immediate(word) => _ = line.number("immediate", word),
            Part::Syndrome(syndrome) => _ = line.number("syndrome", syndrome),
            Part::Source(queue_pair) => _ = line.number("from_qp", queue_pair),
        }
        line.octets("payload", payload);
    })
}

/// The bits of a packet sequence number.
const PSN_MASK: u32 = 0xff_ffff;
/// How far back a packet that is sent again may be; one further back is of a new connection of the same queue pair.
const AGAIN_MAX: u32 = 1 << 16;

const BROKEN: &str =
    "packets of this Send are missing from the capture, or it is longer than any message";
