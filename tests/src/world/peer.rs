//! One end of a connection: a Requester and a Responder above the connection under test.
//!
//! # Normal operation
//! [`Peer::receive`] gives the connection what a Receive held and carries out what it asks for. The
//! other steps belong to the [`Requester`] (a Call is made, its memory comes home) and the
//! [`Responder`] (Reads complete, a Reply is made).
//!
//! # Memory ownership
//! The Receive of a Call may be kept until the Call is answered, as a Responder does that works in
//! place, but never so many that credits could not be told of any more (E3). Everything else is free
//! again at once, but posted again only in a step of its own.

use haulage_proto::negotiate::{Class, Connection, Engine, Event, Input, Output, Received};
use haulage_proto::time::Instant;
use haulage_proto::v2;
use haulage_proto::v2::connection::Role;
use haulage_proto::v2::continuation::{Kind, Part};
use haulage_proto::v2::credit::WINDOW_MIN;
use haulage_proto::v2::reverse::Level;
use haulage_proto::verbs::Handle;

use super::choices::Choices;
use super::exercise::{ECHO, ONCE, SWAP, TELL};
use super::fabric::{self, QueuePair};
use super::ledger::Ledger;
use super::memory::BlockId;
use super::settings::Settings;

mod heard;
mod line;
mod requester;
mod responder;
mod terms;

pub use line::Line;
pub use requester::Requester;
pub use responder::Responder;

use heard::payload;
use line::in_two;

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

/// What an end calls its work requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// A message, whose block is released.
    Message(BlockId),
    /// The last message of the Reply with this XID.
    Reply(BlockId, u32),
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
    /// Makes an end whose Receives are posted, and whose connection is not up. `peer` says how the
    /// other end behaves, as far as an ULP or a network would.
    pub fn new(settings: Settings, peer: &Settings, queue: &mut QueuePair<Tag>) -> Self {
        let most = settings.window + 1;
        let known = settings.opening.known(settings.role);
        let mut engine = Connection::new(settings.config(), known).expect("a version is spoken");
        queue.post_receives(most);
        engine.reserve(u32::try_from(most).expect("few") - engine.reserved());
        Self {
            requester: Requester::new(&settings),
            responder: Responder::default(),
            assembly: Vec::new(),
            receives: Receives { most, out: most, kept: 0 },
            line: Line {
                engine,
                agreed: settings.agreement(peer),
                ledger: Ledger::default(),
                is_ready: false,
                may_refuse: peer.is_stingy,
                reverse_one: peer.reverse_one(),
                restless: false,
                blocked: [false; 2],
                settings,
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
        let fabric::Received { message, invalidated } = queue.receive().expect("one has arrived");
        self.receives.out -= 1;
        let received = self.line.engine.decode(&message);
        self.line.ledger.on_received(&message);
        self.line.handle(now, Input::Received(&received));
        if self.drain(queue, Some(&received), invalidated) {
            let Receives { most, kept, .. } = self.receives;
            let may_keep = self.line.settings.keeps_receives && kept + CIRCULATING < most;
            let keeps = may_keep && choices.one_in(2);
            self.receives.kept += usize::from(self.responder.keep_receive(keeps));
        }
    }

    /// Takes the completion of a work request.
    pub fn complete(&mut self, queue: &mut QueuePair<Tag>) {
        match queue.complete().expect("a work request has ended") {
            Tag::Message(block) => drop(queue.memory.release(block)),
            Tag::Reply(block, xid) => {
                queue.memory.release(block);
                self.responder.on_reply_sent(xid);
            }
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
        self.line.reserve(u32::try_from(count).expect("few"));
    }

    /// Gives the peer more credits or fewer from now on. Version 1 promises its Receives for longer
    /// than until they are used, so there they do not become fewer.
    pub fn resize(&mut self, choices: &mut Choices) {
        let most = 1 + choices.of(WINDOW_MIN as usize..=24);
        let most = most.max(self.receives.kept + CIRCULATING);
        self.receives.most = match self.line.engine.engine() {
            Engine::One(_) => self.receives.most.max(most),
            Engine::Two(_) => most,
        };
    }

    /// Makes one of the Replies that are due, or finds out that it cannot be made.
    pub fn serve(&mut self, queue: &mut QueuePair<Tag>, choices: &mut Choices) {
        let freed = self.responder.serve(&mut self.line, queue, choices);
        self.receives.kept -= usize::from(freed);
        self.drain(queue, None, None);
    }

    /// Tries to send what waits longest: a Call or a Reply.
    pub fn send(&mut self, queue: &mut QueuePair<Tag>, choices: &mut Choices, kind: Kind) {
        match kind {
            Kind::Call => {
                let answering = |xid| self.responder.is_answering(xid);
                self.requester.send(&mut self.line, queue, choices, answering);
            }
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

    /// Returns the procedures that this end calls. Version 1 has a Reply to every Call.
    pub fn procedures(&self) -> &'static [u32] {
        match self.line.engine.engine() {
            Engine::One(_) => &[ECHO, SWAP, SWAP, SWAP, ONCE],
            Engine::Two(_) => &[ECHO, SWAP, SWAP, SWAP, ONCE, TELL],
        }
    }

    /// Says what matters when an end is stuck.
    pub fn state(&self) -> String {
        let (engine, receives) = (&self.line.engine, &self.receives);
        let role = self.line.settings.role;
        let calls = self.requester.in_use();
        let may = [Class::Call, Class::Reply].map(|class| engine.may_send(class));
        let waiting = [self.requester.waits(), self.responder.waits()];
        let (owed, reserved) = (engine.owed(), engine.reserved());
        format!(
            "{role:?}: {calls} calls, {owed} owed, {reserved} reserved, {receives:?}, waiting \
             {waiting:?}, credits allow {may:?}"
        )
    }

    /// Checks that nothing is left of anything.
    pub fn check_home(&self, queue: &QueuePair<Tag>) {
        let Settings { opening, role, .. } = self.line.settings;
        assert_eq!(self.line.engine.version(), Some(opening.version()));
        assert_eq!(self.line.engine.remembered(), opening.learnt(role));
        assert_eq!(queue.memory.in_use(), (0, 0), "blocks or handles are still in use");
        self.requester.check_home();
        self.responder.check_home();
        assert_eq!(self.line.engine.owed(), 0, "a Call is still owed a Reply");
        assert_eq!(self.receives.kept, 0, "a Receive is still kept");
        assert_eq!(self.line.engine.reserved() as usize, queue.receives(), "Receives are lost");
    }

    /// Carries out what the connection asks for after a message. Returns whether that was a Call.
    fn drain(
        &mut self,
        queue: &mut QueuePair<Tag>,
        received: Option<&Received<'_>>,
        mut invalidated: Option<Handle>,
    ) -> bool {
        let (mut is_call, mut is_part) = (false, false);
        while let Some(output) = self.line.engine.poll() {
            match (output, received) {
                (Output::Post(control), _) => self.line.send_control(queue, &control),
                (Output::Event(Event::Ready(_)), _) => self.on_ready(),
                (Output::Event(Event::Two(v2::connection::Event::Part(part))), Some(received)) => {
                    is_part = true;
                    self.assemble(&part, payload(received));
                }
                (Output::Event(Event::Call), Some(received)) => {
                    is_call = true;
                    let stream = self.whole(is_part, received);
                    self.responder.on_call(&self.line, queue, received, &stream);
                }
                (Output::Event(Event::Reply), Some(received)) => {
                    let stream = self.whole(is_part, received);
                    let handle = invalidated.take();
                    self.requester.on_reply(&self.line, queue, received, stream, handle);
                }
                (Output::Event(Event::Refused { xid, error }), _) => {
                    if self.responder.is_replying(xid) {
                        self.line.refused_both_ways(error);
                    }
                    self.requester.on_refused(&self.line, queue, xid, in_two(error));
                }
                // It was refused, whole or not.
                (Output::Event(Event::Two(v2::connection::Event::Abandoned { .. })), _) => {
                    self.assembly.clear();
                }
                (Output::Close(reason), _) => panic!("the connection closes itself: {reason}"),
                (output, _) => panic!("nothing here leads to {output:?}"),
            }
        }
        assert_eq!(invalidated, None, "a message that is no Reply invalidates memory");
        is_call
    }

    /// Notes that Calls may be made. A server of version 1 learns from its ULP whether it may, too.
    fn on_ready(&mut self) {
        self.line.is_ready = true;
        let may_reverse = self.line.level() > Level::None;
        if let Engine::One(one) = self.line.engine.engine_mut()
            && self.line.settings.role == Role::Server
            && may_reverse
        {
            one.announce();
        }
    }

    /// Takes a part of a continued message.
    fn assemble(&mut self, part: &Part, payload: &[u8]) {
        let offset = part.offset as usize;
        assert_eq!((payload.len(), offset), (part.length as usize, self.assembly.len()));
        self.assembly.extend(payload);
        assert!(self.assembly.len() <= part.total as usize);
    }

    /// Returns the inline Payload stream of a message that is whole, or completes one.
    fn whole(&mut self, is_part: bool, received: &Received<'_>) -> Vec<u8> {
        if is_part { std::mem::take(&mut self.assembly) } else { payload(received).to_vec() }
    }
}

/// Receives that Calls never keep: one for a message, and one for a grant.
const CIRCULATING: usize = 2;
