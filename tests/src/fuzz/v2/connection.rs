//! One end of a version 2 connection, with the bytes as the actions of its peer and its caller.
//!
//! A second count of credits is kept from the messages that pass in and out.

use std::time::Duration;

use haulage_proto::exchange::Format;
use haulage_proto::time::Instant;
use haulage_proto::v2::connection::{
    ChunkLimits, Config, Connection, ControlBody, Event, Input, Output, Role, Sending, Unsent,
};
use haulage_proto::v2::continuation::{Kind, Part};
use haulage_proto::v2::credit::Class;
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::v2::header::{self, HeaderFault, Message};
use haulage_proto::v2::properties::Properties;

use super::super::bound::bounded;
use super::super::octets::{Octets, short, spoil, word};
use super::{message, raw};
use crate::world::choices::Choices;

pub(in super::super) fn run(data: &[u8]) {
    let mut choices = Choices::replayed(data);
    let mut end = End::new(&mut choices);
    end.handle(Input::Established);
    while !choices.is_spent() {
        end.step(&mut choices);
    }
}

/// The connection, and the state that its messages reveal.
struct End {
    connection: Connection,
    now: Instant,
    /// Number of messages sent.
    sent: u32,
    /// The credit limit that the peer sent last.
    limit: u32,
    /// Number of Receives reserved for the peer so far.
    reserved: u32,
    /// Number of Receives that the peer may have used without a replacement.
    used: u32,
    /// The last credit word sent.
    told: u32,
    ready: bool,
    closed: bool,
    /// XIDs of Calls that wait for a Reply.
    calls: Vec<u32>,
    continued: Continued,
    continued_max: u32,
    /// The Call and the Reply that arrive in parts: XID, octets so far, octets in all.
    parts: [(u32, u32, u32); 2],
}

/// The continued message that the peer is sending, while octets of it remain.
#[derive(Default)]
struct Continued {
    is_reply: bool,
    xid: u32,
    remaining: u32,
}

impl Continued {
    /// Draws the next message of the continued message.
    fn next(&mut self, choices: &mut Choices, credit: u32) -> Vec<u8> {
        let mut payload = Vec::new();
        if self.remaining == 0 {
            self.is_reply = choices.one_in(2);
            self.xid = choices.pick(&[1, 2, 3, 4]);
            self.remaining = short(choices.of(8..=255));
            payload.extend(self.xid.to_be_bytes());
        }
        let length =
            choices.of(payload.len()..=64).min(usize::try_from(self.remaining).unwrap_or(0));
        payload.resize(length, 0);
        self.remaining -= short(length);
        let (middle, inline): (u32, &[u32]) = match self.is_reply {
            true => (header::REPLY_MIDDLE, &[0]),
            false => (header::CALL_MIDDLE, &[0; 4]),
        };
        let htype = if self.remaining > 0 { middle } else { middle + 1 };
        let prefix = Octets::default().words(&[self.xid, 2, credit, htype]);
        let remaining = [self.remaining];
        prefix.words(if self.remaining > 0 { &remaining } else { inline }).put(&payload).0
    }
}

impl End {
    fn new(choices: &mut Choices) -> Self {
        let role = choices.pick(&[Role::Client, Role::Server]);
        let limits = [0, 1, 2, 16];
        let chunks = ChunkLimits {
            read_chunks_max: choices.pick(&limits),
            write_chunks_max: choices.pick(&limits),
            segments_max: choices.pick(&limits),
        };
        let continued_max = choices.pick(&[0, 64, 1 << 20]);
        let properties = Properties { reverse: short(choices.below(4)), ..Properties::default() };
        let setup_timeout = Duration::from_nanos(SETUP_NS);
        let config = Config {
            role,
            properties,
            first_xid: 1,
            chunks,
            continued_call_max: continued_max,
            continued_reply_max: continued_max,
            shares_credits: false,
            continues_replies: choices.below(2) == 0,
            setup_timeout,
        };
        let connection = Connection::new(config);
        let (sent, limit, reserved, used, told) = (0, 1, 2, 0, 1);
        let (now, calls) = (Instant::ZERO, Vec::new());
        let (ready, closed) = (false, false);
        let (continued, parts) = (Continued::default(), [(0, 0, 0); 2]);
        Self {
            connection,
            now,
            sent,
            limit,
            reserved,
            used,
            told,
            ready,
            closed,
            calls,
            continued,
            continued_max,
            parts,
        }
    }

    fn step(&mut self, choices: &mut Choices) {
        match choices.below(8) {
            0..=3 => self.receive(choices),
            4 => self.send(choices),
            5 => {
                let count = choices.of(0..=4);
                self.connection.reserve(short(count));
                self.reserved = self.reserved.wrapping_add(short(count));
                self.used = self.used.saturating_sub(short(count));
                self.drain();
            }
            6 => match self.calls.pop() {
                Some(xid) if self.connection.owed() > 0 => {
                    self.connection.refuse(xid, ErrorBody::System);
                    self.drain();
                }
                _ => self.handle(Input::Idle),
            },
            _ => {
                self.now = self.now.saturating_add(Duration::from_nanos(word(choices).into()));
                self.handle(Input::Deadline);
            }
        }
    }

    fn receive(&mut self, choices: &mut Choices) {
        let octets = self.draw(choices);
        let decoded = bounded(octets.len(), || header::decode_transport(&octets));
        if let Some(credit) = credit(&decoded) {
            self.limit = credit;
        }
        self.used = self.used.wrapping_add(1);
        if let Ok(Message::CallInline(call)) = &decoded {
            self.calls.push(call.prefix.xid);
        }
        self.handle(Input::Received(&decoded));
    }

    /// Draws a message of the peer: mostly a valid one in this place, so that a schedule makes progress.
    fn draw(&mut self, choices: &mut Choices) -> Vec<u8> {
        if choices.one_in(16) {
            return raw(choices);
        }
        if !choices.one_in(4) && (self.continued.remaining > 0 || choices.one_in(4)) {
            return self.continued.next(choices, self.sent.wrapping_add(3));
        }
        let htype = match choices.below(8) {
            0 if !self.ready => header::CONNPROP_FINAL,
            _ => short(choices.of(4..=13)),
        };
        let xid = choices.pick(&[1, 2, 3, 4]);
        let credit = match choices.below(16) {
            0 => word(choices),
            more => self.sent.wrapping_add(short(more)),
        };
        let mut octets = message(choices, xid, credit, htype);
        if choices.one_in(8) {
            spoil(choices, &mut octets);
        }
        octets
    }

    fn send(&mut self, choices: &mut Choices) {
        let sending = Sending {
            kind: choices.pick(&[Kind::Call, Kind::Reply]),
            format: choices.pick(&FORMATS),
            has_chunks: choices.one_in(2),
            is_call_only: choices.one_in(4),
        };
        if sending.kind == Kind::Reply && self.connection.owed() == 0 {
            return;
        }
        let may = self.connection.may_send(match sending.kind {
            Kind::Call => Class::Call,
            Kind::Reply => Class::Reply,
        });
        let posted = self.connection.try_post(&sending);
        if !matches!(sending.format, Format::Continued { .. }) {
            assert!(may || posted.is_err(), "a message that was said to have to wait");
            assert!(!may || posted != Err(Unsent::Wait), "a message that was said not to");
        }
        match posted {
            Ok(credit) => {
                assert!(self.ready, "only control messages before both ends know each other");
                let messages = match sending.format {
                    Format::Continued { messages } => messages,
                    Format::Simple | Format::Special => 1,
                };
                (0..messages).for_each(|_| self.on_sent(credit, false));
            }
            Err(Unsent::Wait) if choices.one_in(2) => self.connection.give_up(sending.kind),
            Err(_) => {}
        }
    }

    fn handle(&mut self, input: Input<'_>) {
        self.connection.handle(self.now, input);
        self.drain();
    }

    fn drain(&mut self) {
        for count in 0.. {
            assert!(count < OUTPUTS_MAX, "one input asks for a bounded number of things");
            let Some(output) = self.connection.poll() else { break };
            assert!(!self.closed, "nothing comes of a closed connection");
            match output {
                Output::Post(control) => {
                    self.on_sent(control.credit, control.body == ControlBody::Grant);
                }
                Output::Event(Event::Ready(_)) => self.ready = true,
                Output::Event(Event::Part(part)) => self.on_part(part),
                Output::Event(_) => {}
                Output::Close(reason) => {
                    assert!(!reason.to_string().is_empty());
                    self.closed = true;
                }
            }
        }
        if self.closed {
            assert_eq!(self.connection.poll_deadline(), None, "nothing is waited for");
            assert!(
                !self.connection.may_send(Class::Call) && !self.connection.may_send(Class::Reply)
            );
        }
    }

    /// Checks that parts come in order and without gaps, and never beyond the limit.
    fn on_part(&mut self, part: Part) {
        let end = u64::from(part.offset) + u64::from(part.length);
        assert!(end <= part.total.into() && part.total <= self.continued_max, "too long");
        let so_far = match part.kind {
            Kind::Call => &mut self.parts[0],
            Kind::Reply => &mut self.parts[1],
        };
        assert!(!part.is_first || part.offset == 0, "a beginning that is not the first octet");
        assert!(part.is_first || *so_far == (part.xid, part.offset, part.total), "a gap");
        *so_far = (part.xid, part.offset + part.length, part.total);
    }

    fn on_sent(&mut self, credit: u32, is_grant: bool) {
        assert!(!self.closed, "nothing is sent on a closed connection");
        let least = i32::from(!is_grant);
        assert!(distance(self.limit, self.sent) >= least, "a message beyond the peer's credits");
        assert!(distance(credit, self.told) >= 0, "a limit that moves backwards");
        assert!(distance(self.reserved, credit) >= 1, "a limit without a Receive behind it");
        self.sent = self.sent.wrapping_add(1);
        self.told = credit;
    }
}

/// Returns the credit word of a message of version 2.
fn credit(decoded: &Result<Message<'_>, HeaderFault>) -> Option<u32> {
    match decoded {
        Ok(Message::Error { error: ErrorBody::Vers { .. }, .. }) => None,
        Ok(message) => Some(message.prefix().credit),
        Err(fault) => fault.credit,
    }
}

fn distance(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b).cast_signed()
}

const FORMATS: [Format; 4] = [
    Format::Simple,
    Format::Special,
    Format::Continued { messages: 2 },
    Format::Continued { messages: 5 },
];

const SETUP_NS: u64 = 1 << 31;

/// Maximum number of outputs of one input: its own few, and every control message that waited for credit (32 at most).
const OUTPUTS_MAX: u32 = 40;
