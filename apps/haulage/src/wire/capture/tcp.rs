//! TCP connections of a capture: which octets each end sent, in order.
//!
//! # Normal operation
//!
//! A connection begins with SYN, or with a segment that begins with an MPA Request. Its octets go to an [`Exchange`] as
//! soon as those before them are there, whatever the order of the packets; repeated ones go once.
//!
//! # Recovery
//!
//! Octets are missing from the capture if the other end acknowledged them and many packets later they are still not
//! there, if too much waits behind them, or if the connection or the capture ends. The line that says so has the number
//! of octets. A connection that began before the capture is told where its port was asked for.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use haulage_proto::iwarp::observe::End;

use super::exchange::Exchange;
use super::lines::{Lines, Way};
use super::packet::TcpSegment;
use super::table::Table;

/// The connections.
#[derive(Debug)]
pub struct Connections {
    table: Table<Ends, Connection>,
    /// Ports of which the user said that they carry iWARP: a connection to one that cannot be read is reported.
    ports: Vec<u16>,
}

/// The two ends of a connection, the lower address first.
type Ends = [SocketAddr; 2];

#[derive(Debug)]
struct Connection {
    /// What each end sends.
    flows: [Flow; 2],
    /// The place of the end that opened the connection.
    active: usize,
    exchange: Exchange,
}

impl Connections {
    /// Creates an empty table.
    pub fn new(ports: &[u16]) -> Self {
        Self { table: Table::default(), ports: ports.to_vec() }
    }

    /// Takes a segment.
    pub fn segment(&mut self, segment: &TcpSegment<'_>, lines: &mut Lines) {
        let ends = [segment.from.min(segment.to), segment.from.max(segment.to)];
        let sender = usize::from(segment.from != ends[0]);
        let is_asked = ends.iter().any(|end| self.ports.contains(&end.port()));
        if let Some(mut begun) = Connection::of_first(segment, sender) {
            if is_asked {
                begun.exchange.tell_foreign();
            }
            let known = self.table.get(&ends);
            if known.as_ref().is_none_or(|known| known.is_replaced_by(&begun, segment)) {
                if let Some(old) = known {
                    old.end(&ends, lines);
                }
                self.table.put(ends, begun);
            }
        }
        let Some(connection) = self.table.get(&ends) else {
            if !segment.payload.is_empty() {
                let unknown = Connection::unreadable(sender);
                self.table.put(ends, unknown);
                if is_asked {
                    lines.error(way(&ends, sender), BEGAN_BEFORE);
                }
            }
            self.forget(lines);
            return;
        };
        connection.segment(segment, (&ends, sender), lines);
        let held = connection.memory();
        self.table.weigh(&ends, held);
        self.forget(lines);
    }

    /// Ends all connections, as the capture ends.
    pub fn end(&mut self, lines: &mut Lines) {
        for (ends, mut connection) in self.table.take() {
            connection.end(&ends, lines);
        }
    }

    fn forget(&mut self, lines: &mut Lines) {
        while let Some((ends, connection)) = self.table.forget() {
            if connection.exchange.is_read() {
                lines.error(way(&ends, connection.active), FORGOTTEN);
            }
        }
    }
}

impl Connection {
    /// Creates the connection that a segment begins, if it begins one.
    fn of_first(segment: &TcpSegment<'_>, sender: usize) -> Option<Self> {
        let other = segment.acknowledged.map_or_else(Flow::default, Flow::at);
        let (own, active) = if segment.syn {
            let is_answer = segment.acknowledged.is_some();
            (Flow::opened(segment.sequence), if is_answer { 1 - sender } else { sender })
        } else if segment.payload.starts_with(REQUEST) {
            (Flow::at(segment.sequence), sender)
        } else {
            return None;
        };
        let flows = if sender == 0 { [own, other] } else { [other, own] };
        Some(Self { flows, active, exchange: Exchange::begun() })
    }

    /// Creates a connection of which nothing can be read.
    fn unreadable(sender: usize) -> Self {
        let flows = [Flow::default(), Flow::default()];
        Self { flows, active: sender, exchange: Exchange::unreadable() }
    }

    /// Returns whether another connection between the same ends has begun with `segment`.
    fn is_replaced_by(&self, begun: &Self, segment: &TcpSegment<'_>) -> bool {
        if !segment.syn {
            return !self.exchange.is_read();
        }
        let sender = if segment.acknowledged.is_some() { 1 - begun.active } else { begun.active };
        let known = self.flows.get(sender).and_then(|flow| flow.opened);
        match known {
            Some(known) => known != segment.sequence,
            // The answer to the SYN that was seen.
            None => segment.acknowledged.is_none() || !self.exchange.is_read(),
        }
    }

    fn segment(
        &mut self,
        segment: &TcpSegment<'_>,
        (ends, sender): (&Ends, usize),
        lines: &mut Lines,
    ) {
        let receiver = 1 - sender;
        if segment.syn {
            if let Some(flow) = self.flows.get_mut(sender).filter(|flow| flow.next.is_none()) {
                *flow = Flow::opened(segment.sequence);
            }
            return;
        }
        if !self.exchange.is_read() {
            return;
        }
        if let Some(flow) = self.flows.get_mut(sender) {
            let piece = flow.take(segment.sequence, segment.payload);
            self.pass(piece, ends, (sender, lines));
            if segment.fin
                && let Some(flow) = self.flows.get_mut(sender)
            {
                flow.finish(segment.sequence, segment.payload.len());
            }
        }
        if let Some((flow, number)) = self.flows.get_mut(receiver).zip(segment.acknowledged) {
            flow.acknowledge(number);
        }
        for side in [sender, receiver] {
            if self.flows.get_mut(side).is_some_and(Flow::is_stuck) {
                self.skip(ends, (side, lines));
            }
        }
        if segment.rst {
            self.end(ends, lines);
        }
    }

    /// Passes on octets of one end, and those that waited for them.
    fn pass(&mut self, piece: Option<&[u8]>, ends: &Ends, (side, lines): (usize, &mut Lines)) {
        let end = if side == self.active { End::Active } else { End::Passive };
        let Some(flow) = self.flows.get_mut(side) else { return };
        if let Some(piece) = piece {
            self.exchange.octets(end, piece, (way(ends, side), lines));
        }
        while let Some(piece) = flow.release() {
            self.exchange.octets(end, &piece, (way(ends, side), lines));
        }
        if !self.exchange.is_read() {
            self.flows = [Flow::default(), Flow::default()];
        }
    }

    /// Goes beyond octets that are missing.
    fn skip(&mut self, ends: &Ends, (side, lines): (usize, &mut Lines)) {
        let end = if side == self.active { End::Active } else { End::Passive };
        let Some(flow) = self.flows.get_mut(side) else { return };
        let count = flow.skip();
        if count > 0 {
            self.exchange.missing(end, count, (way(ends, side), lines));
            self.pass(None, ends, (side, lines));
        }
    }

    /// Reads what is left, as nothing more comes.
    fn end(&mut self, ends: &Ends, lines: &mut Lines) {
        for side in [0, 1] {
            while self.exchange.is_read() && self.flows.get(side).is_some_and(Flow::has_hole) {
                self.skip(ends, (side, lines));
            }
        }
        self.exchange = Exchange::unreadable();
        self.flows = [Flow::default(), Flow::default()];
    }

    fn memory(&self) -> usize {
        let flows: usize = self.flows.iter().map(|flow| flow.held_octets).sum();
        flows + self.exchange.memory()
    }
}

/// The octets that one end sends.
#[derive(Debug, Default)]
struct Flow {
    /// The sequence number of its SYN.
    opened: Option<u32>,
    /// The sequence number of the next octet to pass on, if it is known.
    next: Option<u32>,
    /// The number of octets before that one.
    position: u64,
    /// Octets behind a hole, by position.
    held: BTreeMap<u64, Vec<u8>>,
    held_octets: usize,
    /// The position up to which the other end has acknowledged.
    acknowledged: u64,
    /// The number of packets since octets were acknowledged that are not here.
    waited: u32,
    /// The position at which the flow ends.
    finished: Option<u64>,
}

impl Flow {
    /// Creates a flow whose next octet has this number.
    fn at(next: u32) -> Self {
        Self { next: Some(next), ..Self::default() }
    }

    /// Creates a flow that SYN begins.
    fn opened(sequence: u32) -> Self {
        Self { opened: Some(sequence), ..Self::at(sequence.wrapping_add(1)) }
    }

    /// Takes the payload of a segment. Returns what can be passed on.
    fn take<'a>(&mut self, sequence: u32, payload: &'a [u8]) -> Option<&'a [u8]> {
        let next = *self.next.get_or_insert(sequence);
        // RFC 9293 section 3.4: numbers are compared by their difference.
        let ahead = sequence.wrapping_sub(next).cast_signed();
        if ahead > 0 {
            self.hold(self.position + u64::from(ahead.unsigned_abs()), payload);
            return None;
        }
        let known = usize::try_from(ahead.unsigned_abs()).unwrap_or(usize::MAX);
        let piece = payload.get(known..).filter(|piece| !piece.is_empty())?;
        self.advance(piece.len());
        Some(piece)
    }

    fn hold(&mut self, position: u64, payload: &[u8]) {
        let known = self.held.get(&position).map_or(0, Vec::len);
        if payload.len() > known {
            self.held.insert(position, payload.to_vec());
            self.held_octets += payload.len() - known;
        }
    }

    /// Returns octets that were held, if none are missing before them.
    fn release(&mut self) -> Option<Vec<u8>> {
        loop {
            let first = self.held.first_entry().filter(|first| *first.key() <= self.position)?;
            let (position, mut piece) = first.remove_entry();
            self.held_octets -= piece.len();
            let known = usize::try_from(self.position - position).unwrap_or(usize::MAX);
            if known < piece.len() {
                piece.drain(..known);
                self.advance(piece.len());
                return Some(piece);
            }
        }
    }

    fn advance(&mut self, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.position += count;
        // The number wraps as sequence numbers do.
        let count = u32::try_from(count & u64::from(u32::MAX)).unwrap_or(0);
        self.next = self.next.map(|next| next.wrapping_add(count));
        self.waited = 0;
    }

    /// Notes that the flow ends behind a segment.
    fn finish(&mut self, sequence: u32, length: usize) {
        let length = u32::try_from(length).unwrap_or(0);
        self.finished = self.position_of(sequence.wrapping_add(length));
    }

    /// Notes which number the other end expects next.
    fn acknowledge(&mut self, number: u32) {
        if let Some(position) = self.position_of(number) {
            self.acknowledged = self.acknowledged.max(position);
        }
    }

    /// Returns the position of an octet that was not passed on yet.
    fn position_of(&self, sequence: u32) -> Option<u64> {
        let ahead = sequence.wrapping_sub(self.next?).cast_signed();
        (ahead >= 0).then(|| self.position + u64::from(ahead.unsigned_abs()))
    }

    /// Returns the number of octets that are missing here before the next ones.
    fn hole(&self) -> u64 {
        let acknowledged =
            self.finished.map_or(self.acknowledged, |end| end.min(self.acknowledged));
        let known = self.held.first_key_value().map_or(acknowledged, |(position, _)| *position);
        known.saturating_sub(self.position)
    }

    fn has_hole(&self) -> bool {
        self.hole() > 0
    }

    /// Returns whether it is no use to wait for the octets that are missing. To be asked once a packet.
    fn is_stuck(&mut self) -> bool {
        if !self.has_hole() {
            return false;
        }
        if self.acknowledged > self.position {
            self.waited += 1;
        }
        self.waited > PATIENCE || self.held_octets > HELD_MAX || self.held.len() > PIECES_MAX
    }

    /// Goes beyond the octets that are missing. Returns their number.
    fn skip(&mut self) -> u64 {
        let count = self.hole();
        let mut left = count;
        while left > 0 {
            let step = usize::try_from(left).unwrap_or(usize::MAX);
            self.advance(step);
            left -= u64::try_from(step).unwrap_or(left);
        }
        count
    }
}

fn way(ends: &Ends, sender: usize) -> Way {
    let [low, high] = *ends;
    let (from, to) = if sender == 0 { (low, high) } else { (high, low) };
    Way { from, to, queue_pair: None }
}

/// The start of an MPA Request.
const REQUEST: &[u8] = b"MPA ID Req Frame";

/// Packets of a connection after an acknowledgment of octets that are not here: packets that were captured on several
/// processors are a few places from where they belong.
const PATIENCE: u32 = 64;
/// The most octets held behind a hole.
const HELD_MAX: usize = 1 << 20;
/// The most pieces held behind a hole.
const PIECES_MAX: usize = 1024;

const BEGAN_BEFORE: &str = "the connection began before the capture, so where FPDUs begin is unknown: nothing can be read of it";
const FORGOTTEN: &str =
    "too many connections at once: this one was silent longest and is not followed any more";
