//! One end of a connection: a Requester and a Responder above the connection under test.
//!
//! # Normal operation
//! [`Peer::receive`] gives the connection what a Receive held and carries out what it asks for. The
//! other steps belong to the [`Requester`] (a Call is made, its memory comes home) and the
//! [`Responder`] (Reads complete, a Reply is made).
//!
//! # Memory ownership
//! The Receive of a Call may be kept until the Call is answered, as a Responder does that works in
//! place. Everything else is free again at once, but posted again only in a step of its own.

use haulage_proto::chunk::Segments;
use haulage_proto::exchange::Format;
use haulage_proto::time::Instant;
use haulage_proto::v2::connection::{Connection, Event, Input, Output};
use haulage_proto::v2::continuation::{Kind, Part as Fragment};
use haulage_proto::v2::credit::{Class, Credits, WINDOW_MIN};
use haulage_proto::v2::header::{self, Message};
use haulage_proto::v2::properties::Properties;
use haulage_proto::verbs::{Operation, Segment};
use haulage_proto::xdr::Writer;

use super::choices::Choices;
use super::fabric::QueuePair;
use super::ledger::Ledger;
use super::memory::{BlockId, Part};
use super::settings::Settings;

mod requester;
mod responder;

pub use requester::{Ended, Requester};
pub use responder::Responder;

/// One end of a connection.
#[derive(Debug)]
pub struct Peer {
    /// What both roles use.
    pub line: Line,
    /// Our Calls.
    pub requester: Requester,
    /// The peer's Calls.
    pub responder: Responder,
    /// The Payload stream of which parts are arriving.
    assembly: Vec<u8>,
    receives: Receives,
}

/// A connection, and how its end behaves.
#[derive(Debug)]
pub struct Line {
    /// The connection under test.
    pub engine: Connection,
    /// How this end behaves.
    pub settings: Settings,
    /// What the peer said about itself, once it did.
    pub theirs: Option<Properties>,
    /// What counts the messages.
    pub ledger: Ledger,
    /// Whether the peer may refuse a Call that expects enough.
    pub may_refuse: bool,
    /// Whether something happened since the connection last heard that nothing does.
    restless: bool,
    /// Whether a Call, or a Reply, waits for the connection to hear something new.
    blocked: [bool; 2],
}

/// What an end calls its work requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// A message, whose block is released.
    Message(BlockId),
    /// The last message of the Reply with this XID.
    Reply(BlockId, u32),
    /// Memory is open.
    Opened,
    /// Memory of this Call of ours is closed.
    Closed(usize),
    /// Octets of this Call of the peer's have come.
    Fetched(usize),
    /// Octets were written; the block is released by the last of its Writes.
    Written(Option<BlockId>),
}

/// Where this end's Receives are.
#[derive(Debug)]
struct Receives {
    /// How many may be posted at a time. Of these one is for a grant.
    most: usize,
    /// Posted, or holding a message nobody has looked at.
    out: usize,
    /// Kept by Calls.
    kept: usize,
}

impl Peer {
    /// Makes an end whose Receives are posted, and whose connection is not up.
    pub fn new(settings: Settings, queue: &mut QueuePair<Tag>) -> Self {
        let most = settings.window + 1;
        let mut engine = Connection::new(settings.config());
        queue.post_receives(most);
        engine.reserve(u32::try_from(most).expect("few") - Credits::RESERVED_AT_START);
        Self {
            requester: Requester::new(&settings),
            responder: Responder::default(),
            assembly: Vec::new(),
            receives: Receives { most, out: most, kept: 0 },
            line: Line {
                engine,
                settings,
                theirs: None,
                ledger: Ledger::default(),
                may_refuse: false,
                restless: false,
                blocked: [false; 2],
            },
        }
    }

    /// Tells the connection something, and carries out what it asks for.
    pub fn tell(&mut self, now: Instant, queue: &mut QueuePair<Tag>, input: Input<'_>) {
        self.line.handle(now, input);
        self.drain(queue, None, None);
    }

    /// Takes the completion of a Receive.
    pub fn receive(&mut self, now: Instant, queue: &mut QueuePair<Tag>, choices: &mut Choices) {
        let received = queue.receive().expect("a message has arrived");
        self.receives.out -= 1;
        let decoded = header::decode_transport(&received.message);
        self.line.ledger.on_received(&received.message);
        self.line.handle(now, Input::Received(&decoded));
        let message = decoded.expect("the peer sends nothing malformed");
        if self.drain(queue, Some(&message), received.invalidated) {
            let keeps = self.line.settings.keeps_receives && choices.one_in(2);
            self.receives.kept += usize::from(self.responder.keep_receive(keeps));
        }
    }

    /// Carries out what the connection asks for after a message. Returns whether that was a Call.
    fn drain(
        &mut self,
        queue: &mut QueuePair<Tag>,
        message: Option<&Message<'_>>,
        mut invalidated: Option<haulage_proto::verbs::Handle>,
    ) -> bool {
        let (mut is_call, mut is_part) = (false, false);
        while let Some(output) = self.line.engine.poll() {
            match output {
                Output::Post(control) => {
                    let engine = &self.line.engine;
                    let bytes = encoded(CONTROL_MAX, |w| engine.encode(&control, w));
                    self.line.send(queue, bytes, None, Tag::Message);
                }
                Output::Event(Event::Ready(properties)) => self.line.theirs = Some(properties),
                Output::Event(Event::Part(part)) => {
                    is_part = true;
                    self.assemble(&part, message.map_or(&[], payload));
                }
                Output::Event(Event::Call) => {
                    let message = message.expect("a Call is a message");
                    let stream = self.whole(is_part, message);
                    self.responder.on_call(queue, message, &stream);
                    is_call = true;
                }
                Output::Event(Event::Reply) => {
                    let message = message.expect("a Reply is a message");
                    let stream = self.whole(is_part, message);
                    let handle = invalidated.take();
                    self.requester.on_reply(&self.line, queue, message, stream, handle);
                }
                Output::Event(Event::Refused { xid, error }) => {
                    if self.responder.is_replying(xid) {
                        self.line.engine.refused_both_ways(error);
                    }
                    self.requester.on_refused(&self.line, queue, xid, error);
                }
                // It was refused, whole or not.
                Output::Event(Event::Abandoned { .. }) => self.assembly.clear(),
                Output::Event(event @ (Event::Transmission | Event::Reported(_))) => {
                    panic!("neither end offers an extension: {event:?}")
                }
                Output::Close(reason) => panic!("the connection closes itself: {reason}"),
            }
        }
        assert_eq!(invalidated, None, "a message that is no Reply invalidates memory");
        is_call
    }

    /// Takes a part of a continued message.
    fn assemble(&mut self, part: &Fragment, payload: &[u8]) {
        let offset = part.offset as usize;
        assert_eq!((payload.len(), offset), (part.length as usize, self.assembly.len()));
        self.assembly.extend(payload);
        assert!(self.assembly.len() <= part.total as usize);
    }

    /// Returns the inline Payload stream of a message that is whole, or completes one.
    fn whole(&mut self, is_part: bool, message: &Message<'_>) -> Vec<u8> {
        if is_part { std::mem::take(&mut self.assembly) } else { payload(message).to_vec() }
    }

    /// Takes the completion of a work request.
    pub fn complete(&mut self, queue: &mut QueuePair<Tag>) {
        match queue.complete().expect("a work request has ended") {
            Tag::Message(block) => drop(queue.memory.release(block)),
            Tag::Reply(block, xid) => {
                queue.memory.release(block);
                self.responder.on_reply_sent(xid);
            }
            Tag::Opened => {}
            Tag::Closed(slot) => self.requester.on_closed(&self.line, queue, slot),
            Tag::Fetched(call) => self.responder.on_fetched(call),
            Tag::Written(block) => {
                if let Some(block) = block {
                    queue.memory.release(block);
                }
            }
        }
    }

    /// Returns how many Receives could be posted again.
    pub fn free_receives(&self) -> usize {
        self.receives.most.saturating_sub(self.receives.out + self.receives.kept)
    }

    /// Posts Receives again, and lets the connection announce them.
    pub fn repost(&mut self, queue: &mut QueuePair<Tag>, count: usize) {
        self.receives.out += count;
        queue.post_receives(count);
        self.line.engine.reserve(u32::try_from(count).expect("few"));
        self.line.restless = true;
    }

    /// Gives the peer more credits or fewer from now on.
    pub fn resize(&mut self, choices: &mut Choices) {
        self.receives.most = 1 + choices.of(WINDOW_MIN as usize..=24);
    }

    /// Makes one of the Replies that are due, or finds out that it cannot be made.
    pub fn serve(&mut self, queue: &mut QueuePair<Tag>, choices: &mut Choices) {
        let freed = self.responder.serve(&mut self.line, queue, choices);
        self.receives.kept -= usize::from(freed);
        self.drain(queue, None, None);
    }

    /// Sends what waits: a Call or a Reply. Returns whether one was sent.
    pub fn send(&mut self, queue: &mut QueuePair<Tag>, choices: &mut Choices, kind: Kind) {
        match kind {
            Kind::Call => self.requester.send(&mut self.line, queue, choices),
            Kind::Reply => {
                let freed = self.responder.send(&mut self.line, queue, choices);
                self.receives.kept -= usize::from(freed);
                // It may have turned into an error.
                self.drain(queue, None, None);
            }
        }
    }

    /// Returns whether something of this kind can be tried to be sent.
    pub fn may_send(&self, kind: Kind) -> bool {
        let waits = match kind {
            Kind::Call => self.requester.waits(),
            Kind::Reply => self.responder.waits(),
        };
        waits && !self.line.blocked[kind as usize]
    }

    /// Returns whether the connection was not told yet that nothing more happens.
    pub const fn is_restless(&self) -> bool {
        self.line.restless
    }

    /// Lets the connection know that nothing more happens for the moment.
    pub fn idle(&mut self, now: Instant, queue: &mut QueuePair<Tag>) {
        self.tell(now, queue, Input::Idle);
        self.line.restless = false;
    }

    /// Says what matters when an end is stuck.
    pub fn state(&self) -> String {
        let (engine, receives) = (&self.line.engine, &self.receives);
        let role = self.line.settings.role;
        let calls = self.requester.in_use();
        let sends = [Kind::Call, Kind::Reply].map(|kind| self.may_send(kind));
        let may = [Class::Call, Class::Reply, Class::Control].map(|class| engine.may_send(class));
        let (owed, reserved) = (engine.owed(), engine.reserved());
        format!(
            "{role:?}: {calls} calls, {owed} owed, {reserved} reserved, {receives:?}, to send \
             {sends:?}, credits allow {may:?}, waiting {:?}",
            [self.requester.waits(), self.responder.waits()]
        )
    }

    /// Checks that nothing is left of anything.
    pub fn check_home(&self, queue: &QueuePair<Tag>) {
        assert_eq!(queue.memory.in_use(), (0, 0), "blocks or handles are still in use");
        self.requester.check_home();
        self.responder.check_home();
        assert_eq!(self.line.engine.owed(), 0, "a Call is still owed a Reply");
        assert_eq!(self.receives.kept, 0, "a Receive is still kept");
        assert_eq!(self.line.engine.reserved() as usize, queue.receives(), "Receives are lost");
    }
}

impl Line {
    fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.engine.handle(now, input);
        self.blocked = [false; 2];
        self.restless = true;
    }

    /// Posts a message.
    fn send(
        &mut self,
        queue: &mut QueuePair<Tag>,
        bytes: Vec<u8>,
        invalidate: Option<haulage_proto::verbs::Handle>,
        tag: impl FnOnce(BlockId) -> Tag,
    ) {
        self.ledger.on_sent(&bytes);
        self.restless = true;
        let range = 0..bytes.len();
        let block = queue.memory.lease(bytes);
        let source = Part { block, range };
        queue.post(tag(block), Operation::Send { source, invalidate });
    }
}

/// Encodes a message of at most so many octets.
fn encoded<E: std::fmt::Debug>(
    most: usize,
    encode: impl FnOnce(&mut Writer<'_>) -> Result<(), E>,
) -> Vec<u8> {
    let mut bytes = vec![0; most];
    let mut w = Writer::new(&mut bytes);
    encode(&mut w).expect("it fits");
    let length = w.position();
    bytes.truncate(length);
    bytes
}

/// Returns the inline Payload stream of a message.
const fn payload<'a>(message: &Message<'a>) -> &'a [u8] {
    match message {
        Message::CallInline(call) => call.payload,
        Message::ReplyInline(reply) => reply.payload,
        Message::CallMiddle(part) | Message::ReplyMiddle(part) => part.payload,
        _ => &[],
    }
}

const fn messages(format: Format) -> u32 {
    match format {
        Format::Continued { messages } => messages,
        Format::Simple | Format::Special => 1,
    }
}

fn owned(segments: Segments<'_>) -> Vec<Segment> {
    segments.collect()
}

/// Octets of the largest control message.
const CONTROL_MAX: usize = 4096;
