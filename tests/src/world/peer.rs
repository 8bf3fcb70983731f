//! One end of a connection: a Requester and a Responder above the connection under test.
//!
//! # Normal operation
//! [`Peer::receive`] passes a received message to the connection and carries out the connection's outputs. The other
//! steps belong to the [`Requester`] (a Call is made, its memory comes home) and the [`Responder`] (Reads complete, a
//! Reply is made).
//!
//! # Memory ownership
//! The Receive of a Call may be kept until the Call is answered, as by a Responder that works in place, but enough
//! Receives stay free to announce credits (E3). Every other Receive is free at once, and posted again in a step of its
//! own.

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
    /// The connection, which both roles use.
    pub line: Line,
    /// The Calls of this end.
    pub requester: Requester,
    /// The Calls of the peer.
    pub responder: Responder,
    /// The parts of a continued message received so far.
    assembly: Vec<u8>,
    receives: Receives,
}

/// The tag of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// A message, whose block is released.
    Message(BlockId),
    /// The last message of the Reply with this XID, whose block is released.
    Reply(BlockId, u32),
    /// An invalidation of a handle of the Call in this slot.
    Closed(usize),
    /// A Read for this Call of the peer.
    Fetched(usize),
    /// A Write; the last one of a chunk releases the block.
    Written(Option<BlockId>),
}

/// The Receives of this end.
#[derive(Debug)]
struct Receives {
    /// Maximum number posted at a time. One of them is for a grant.
    most: usize,
    /// Number posted, or holding a message that was not taken.
    out: usize,
    /// Number kept by Calls.
    kept: usize,
}

impl Peer {
    /// Builds an end whose Receives are posted, and whose connection is not up. `peer` is the other end's settings, as
    /// far as a ULP or a network would know them.
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

    /// Passes an input to the connection, and carries out its outputs.
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

    /// Returns the number of Receives that could be posted again.
    pub fn free_receives(&self) -> usize {
        self.receives.most.saturating_sub(self.receives.out + self.receives.kept)
    }

    /// Posts Receives again, and lets the connection announce them.
    pub fn repost(&mut self, queue: &mut QueuePair<Tag>, count: usize) {
        self.receives.out += count;
        queue.post_receives(count);
        self.line.reserve(u32::try_from(count).expect("few"));
    }

    /// Changes the credits granted to the peer from now on. In version 1 a granted credit outlasts the use of its
    /// Receive, so there they never become fewer.
    pub fn resize(&mut self, choices: &mut Choices) {
        let most = 1 + choices.of(WINDOW_MIN as usize..=24);
        let most = most.max(self.receives.kept + CIRCULATING);
        self.receives.most = match self.line.engine.engine() {
            Engine::One(_) => self.receives.most.max(most),
            Engine::Two(_) => most,
        };
    }

    /// Makes one of the Replies that are due, or refuses its Call.
    pub fn serve(&mut self, queue: &mut QueuePair<Tag>, choices: &mut Choices) {
        let freed = self.responder.serve(&mut self.line, queue, choices);
        self.receives.kept -= usize::from(freed);
        self.drain(queue, None, None);
    }

    /// Tries to send the Call or the Reply that waits longest.
    pub fn send(&mut self, queue: &mut QueuePair<Tag>, choices: &mut Choices, kind: Kind) {
        match kind {
            Kind::Call => {
                let answering = |xid| self.responder.is_answering(xid);
                self.requester.send(&mut self.line, queue, choices, answering);
            }
            Kind::Reply => {
                let freed = self.responder.send(&mut self.line, queue, choices);
                self.receives.kept -= usize::from(freed);
                // The Reply may have turned into an error.
                self.drain(queue, None, None);
            }
        }
    }

    /// Returns whether a message of this kind waits and is not blocked.
    pub fn may_send(&self, kind: Kind) -> bool {
        let waits = match kind {
            Kind::Call => self.requester.waits(),
            Kind::Reply => self.responder.waits(),
        };
        waits && !self.line.blocked[kind as usize]
    }

    /// Returns whether the connection has not been told yet that nothing more happens for now.
    pub const fn is_restless(&self) -> bool {
        self.line.restless
    }

    /// Tells the connection that nothing more happens for now.
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

    /// Describes the state of an end that is stuck.
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

    /// Checks that no Call, block, handle or Receive is left.
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

    /// Carries out the connection's outputs after a message. Returns whether the message was a Call.
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
                    self.line.engine.ended();
                    self.requester.on_reply(&self.line, queue, received, stream, handle);
                }
                (Output::Event(Event::Refused { xid, error }), _) => {
                    if self.responder.is_replying(xid) {
                        self.line.refused_both_ways(error);
                    }
                    self.line.engine.ended();
                    self.requester.on_refused(&self.line, queue, xid, in_two(error));
                }
                // A continued Call was refused, whether it was complete or not.
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

    /// Allows Calls. In version 1 a server learns from its ULP whether it may make them.
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

    /// Appends a part of a continued message.
    fn assemble(&mut self, part: &Part, payload: &[u8]) {
        let offset = part.offset as usize;
        assert_eq!((payload.len(), offset), (part.length as usize, self.assembly.len()));
        self.assembly.extend(payload);
        assert!(self.assembly.len() <= part.total as usize);
    }

    /// Returns the inline Payload stream of a message, with the parts before it if it completes a continued one.
    fn whole(&mut self, is_part: bool, received: &Received<'_>) -> Vec<u8> {
        if is_part { std::mem::take(&mut self.assembly) } else { payload(received).to_vec() }
    }
}

/// Number of Receives that Calls never keep: one for a message, and one for a grant.
const CIRCULATING: usize = 2;
