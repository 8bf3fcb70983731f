//! One end of a version 1 connection, with the bytes as the actions of its peer and its caller.
//!
//! A second count of the credits of our Calls is kept from the messages that pass in and out.

use std::time::Duration;

use haulage_proto::time::Instant;
use haulage_proto::v1::connection::{
    CallLimits, Class, Config, Connection, Control, ControlBody, Event, Input, Late, Output,
    Profile, Reverse,
};
use haulage_proto::v1::error::ErrorBody;
use haulage_proto::v1::header;
use haulage_proto::v2::connection::Role;

use super::super::bound::bounded;
use super::super::octets::{short, spoil, word};
use super::message;
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
    credits_wanted: u32,
    now: Instant,
    /// Number of our Calls that have not ended.
    unanswered: u32,
    closed: bool,
    /// XIDs of Calls that wait for a Reply.
    calls: Vec<u32>,
}

impl End {
    fn new(choices: &mut Choices) -> Self {
        let limits = [0, 1, 2, 16];
        let calls = CallLimits {
            read_chunks_max: choices.pick(&limits),
            write_chunks_max: choices.pick(&limits),
            segments_max: choices.pick(&limits),
        };
        let profile = Profile {
            held_max: choices.pick(&[0, 1, 3]),
            done_timeout: Duration::from_nanos(1 << 20),
            late: choices.pick(&[Late::Release, Late::Close]),
        };
        let credits_wanted = choices.pick(&[1, 2, 32]);
        let config = Config {
            role: choices.pick(&[Role::Client, Role::Server]),
            credits_wanted,
            credits_max: choices.pick(&[1, 2, 32]),
            calls,
            reverse: choices.pick(&[Reverse::None, Reverse::Inline]),
            profile: choices.one_in(2).then_some(profile),
        };
        let connection = Connection::new(config);
        let (now, unanswered, closed, calls) = (Instant::ZERO, 0, false, Vec::new());
        Self { connection, credits_wanted, now, unanswered, closed, calls }
    }

    fn step(&mut self, choices: &mut Choices) {
        match choices.below(8) {
            0..=2 => self.receive(choices),
            3 => self.send(choices),
            4 => {
                self.connection.reserve(short(choices.of(0..=4)));
                self.drain();
            }
            5 => match self.calls.pop() {
                Some(xid) if self.connection.owed() > 0 => {
                    self.connection.refuse(xid, ErrorBody::Chunk);
                    self.drain();
                }
                _ => self.connection.announce(),
            },
            6 => {
                let xid = choices.pick(&XIDS);
                if choices.one_in(2) {
                    let done = self.connection.done(xid);
                    assert!(done.is_none_or(|done| !self.closed && done.body == ControlBody::Done));
                } else if self.connection.owed() > 0 {
                    let credit = self.connection.try_send_held(self.now, xid);
                    assert!(credit.is_none_or(|credit| !self.closed && credit > 0));
                }
            }
            _ => {
                self.now = self.now.saturating_add(Duration::from_nanos(word(choices).into()));
                self.handle(Input::Deadline);
            }
        }
    }

    fn receive(&mut self, choices: &mut Choices) {
        let credit = if choices.one_in(8) { word(choices) } else { short(choices.below(40)) };
        let kind = choices.pick(&[0, 0, 0, 1, 2, 3, 4]);
        let mut octets = message(choices, choices_xid(kind), credit, kind);
        if choices.one_in(8) {
            spoil(choices, &mut octets);
        }
        let decoded = bounded(octets.len(), || header::decode(&octets));
        self.handle(Input::Received(&decoded));
    }

    fn send(&mut self, choices: &mut Choices) {
        let class = choices.pick(&[Class::Call, Class::Reply]);
        if class == Class::Reply && self.connection.owed() == 0 {
            return;
        }
        let may = self.connection.may_send(class);
        let credit = self.connection.try_send(class);
        assert_eq!(may, credit.is_some(), "what may be sent is sent");
        let Some(credit) = credit else { return };
        assert!(!self.closed, "nothing is sent on a closed connection");
        assert!(credit > 0, "neither a wish nor a grant is ever nothing");
        if class == Class::Call {
            self.unanswered += 1;
            assert!(self.unanswered <= self.credits_wanted, "more Calls than were asked for");
        }
    }

    fn handle(&mut self, input: Input<'_>) {
        self.connection.handle(self.now, input);
        self.drain();
    }

    fn drain(&mut self) {
        let mut malformed = None;
        for count in 0.. {
            assert!(count < OUTPUTS_MAX, "one input asks for a bounded number of things");
            let Some(output) = self.connection.poll() else { break };
            assert!(!self.closed, "nothing comes of a closed connection");
            match output {
                Output::Post(Control { credit, body, .. }) => {
                    assert!(credit > 0, "no grant is ever nothing");
                    assert_ne!(body, ControlBody::Done, "that is for the caller to ask for");
                }
                Output::Event(Event::Call) => self.calls.push(XIDS[0]),
                // An answer to no Call of ours.
                Output::Event(Event::Refused { xid, .. } | Event::Unsupported { xid })
                    if xid == XIDS[2] => {}
                Output::Event(Event::Reply | Event::Refused { .. }) => {
                    assert!(self.unanswered > 0, "an end of a Call there is none of");
                    self.connection.ended();
                    self.unanswered -= 1;
                }
                Output::Event(Event::Unsupported { .. }) => self.connection.ended(),
                Output::Event(Event::Malformed { xid }) => malformed = Some(xid),
                Output::Event(Event::Ready | Event::Released { .. }) => {}
                Output::Close(reason) => {
                    assert!(!reason.to_string().is_empty());
                    self.closed = true;
                }
            }
        }
        if let Some(xid) = malformed {
            assert!(self.unanswered > 0, "else it is a bad Call");
            if xid == XIDS[0] {
                self.connection.ended();
                self.unanswered -= 1;
            } else {
                self.connection.refuse(xid, ErrorBody::Chunk);
            }
            self.drain();
        }
        if self.closed {
            assert_eq!(self.connection.poll_deadline(), None, "nothing is waited for");
        }
    }
}

fn choices_xid(kind: u32) -> u32 {
    XIDS[usize::try_from(kind).unwrap_or(0) % XIDS.len()]
}

const XIDS: [u32; 3] = [1, 2, 3];

/// Maximum number of outputs of one input: its own, and every error that waited.
const OUTPUTS_MAX: u32 = 16;
