//! One RPC-over-RDMA version 1 connection, either role, without clock, socket or memory.
//!
//! # Normal operation
//! There is no setup: once the queue pair is up the client calls, and the server answers. The caller encodes RPC
//! messages and calls [`Connection::try_send`] before posting each one; the connection decides about control messages
//! and returns them from [`Connection::poll`].
//!
//! A server may call its client, too (RFC 8167), once it has answered a Call and the ULP has announced that the client
//! is ready ([`Connection::announce`]). The transport header does not tell a Call from a Reply: the RPC message after
//! it does.
//!
//! # Errors
//! A bad Call is answered with `RDMA_ERROR`; nothing else is. A bad Reply fails the Call it answers at this end.
//! Which Call a message answers only the caller knows, and says so with [`Connection::ended`]: an answer to no Call of
//! this end changes nothing.
//! Messages without effect are dropped, as Linux does: an error for no waiting Call, an `RDMA_DONE` that releases
//! nothing, a header without a body.
//!
//! # The RFC 5666 profile
//! Between ends configured for it ([`Profile`]) messages may be padded, and a Reply may offer its results in a Read
//! list. The server then keeps them exposed until the client has fetched them and sends an `RDMA_DONE`, or until a
//! timeout.
//!
//! # Limits
//! At most `ERRORS_MAX` errors wait until a credit can be granted with them; a peer that provokes more is closed.

mod accept;
mod alphabet;
mod config;
mod runs;

pub use accept::check_reads;
pub use alphabet::{Class, CloseReason, Control, ControlBody, Event, Input, Output};
pub use config::{CallLimits, Config, Late, Profile, Reverse};
pub use runs::Lent;

use super::VERSION;
use super::credit::{Credits, Release};
use super::error::ErrorBody;
use super::header::{Direction, HeaderFault, MSG, MSGP, Message, NOMSG, Prefix, Rpc};
use super::held::Held;
use crate::engine::{PeerCalls, Role};
use crate::ring::Ring;
use crate::time::Instant;

/// One RPC-over-RDMA version 1 connection.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    phase: Phase,
    credits: Credits,
    held: Option<Held>,
    /// At a server: whether the ULP announced that the client serves Calls.
    announced: bool,
    /// Whether this end has sent a Reply.
    replied: bool,
    /// The meaning of the message just received for the Call that it answers, if it answers one.
    answer: Option<Answer>,
    /// Errors that wait until a credit can be granted with them: XID, version, body.
    errors: Ring<(u32, u32, ErrorBody), ERRORS_MAX>,
    outputs: Ring<Output, OUTPUTS_MAX>,
}

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The queue pair is not up.
    New,
    /// Open for RPC messages.
    Open,
    /// Closed; every input is ignored.
    Closed,
}

/// The meaning of a received message for the Call of this end that it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// The message is a Reply or an error that grants these credits.
    Granting(u32),
    /// The message is a Reply that grants these credits, and whose Read chunks this end has to release.
    Held(u32),
    /// The message says that the peer does not support version 1, but these versions.
    Unsupported { low: u32, high: u32 },
    /// The message is a malformed Reply, whose credit word says nothing.
    Bad,
    /// The message is malformed, and counted as a Call until the caller knows that it is a Reply.
    Malformed,
}

impl Connection {
    /// Makes a connection whose queue pair is not up yet. The caller posts as many Receives as [`Self::reserved`]
    /// returns.
    pub fn new(config: Config) -> Self {
        let client = config.role == Role::Client;
        let calls = match (config.role, config.reverse) {
            (Role::Client, Reverse::None) => PeerCalls::Refused,
            _ => PeerCalls::Served,
        };
        let mut credits = Credits::new(config.credits_wanted, config.credits_max, calls);
        let server = config.profile.filter(|_| !client);
        if client {
            credits.expect_calls();
            credits.reserve(1);
        }
        if server.is_some() {
            credits.expect_dones();
        }
        Self {
            phase: Phase::New,
            credits,
            // RFC 8167 has no Replies that a server reads.
            //~ R5666-3.8-2: `profile.done_timeout))` ->
            //~   `profile.done_timeout)).or_else(|| Some(Held::new(1, core::time::Duration::ZERO)))`
            held: server.map(|profile| Held::new(profile.held_max, profile.done_timeout)),
            announced: false,
            replied: false,
            answer: None,
            errors: Ring::new(),
            outputs: Ring::new(),
            config,
        }
    }

    /// Makes a connection that takes over a queue pair for which `receives` Receives are reserved
    /// and not used.
    pub(crate) fn take_over(config: Config, receives: u32) -> Self {
        let mut connection = Self::new(config);
        let begun_with = connection.reserved();
        connection.reserve(receives.wrapping_sub(begun_with));
        connection
    }

    /// Applies one input. The caller must drain [`Self::poll`] before the next one.
    pub fn handle(&mut self, now: Instant, input: Input<'_>) {
        if self.phase == Phase::Closed {
            if matches!(input, Input::Received(_)) {
                // A message that comes after the end has used a Receive as well, which the caller must still learn.
                let _ = self.credits.on_received();
            }
            return;
        }
        debug_assert!(self.outputs.is_empty(), "drain poll() before handle()");
        match input {
            Input::Established => self.opened(),
            Input::Received(received) => {
                // A peer that sends at once may be faster than the news that the queue pair is up.
                self.opened();
                self.answer = None;
                // [R5666-6-1] on a shared receive queue, only this count notices an overrun.
                if self.credits.on_received().is_err() {
                    return self.close(CloseReason::CreditOverrun);
                }
                match received {
                    Ok(message) => self.on_message(message),
                    Err(fault) => self.on_fault(fault),
                }
            }
            Input::Idle => {}
            Input::Deadline => self.on_deadline(now),
        }
    }

    /// Returns the next output, or `None` once the connection is quiescent.
    ///
    /// A control message takes its credit word here, so Receives reserved since the input count.
    pub fn poll(&mut self) -> Option<Output> {
        self.poll_event().or_else(|| self.next_error().map(Output::Post))
    }

    /// Returns the next output that is no message: [`Self::poll`] for a caller that has no room for one now.
    pub fn poll_event(&mut self) -> Option<Output> {
        self.outputs.pop()
    }

    /// Takes a credit to post one RPC message now. Returns its credit word, or `None` while credits or Receives are
    /// short: call again after the next input or [`Self::reserve`].
    pub fn try_send(&mut self, class: Class) -> Option<u32> {
        if !self.may_send(class) {
            return None;
        }
        Some(match class {
            Class::Call => self.credits.on_call_sent(),
            Class::Reply => {
                self.replied = true;
                self.credits.on_answered(Release::AtOnce)
            }
        })
    }

    /// Returns whether [`Self::try_send`] would let one RPC message be posted now.
    pub fn may_send(&self, class: Class) -> bool {
        let allowed = match class {
            Class::Call => self.may_call() && self.credits.may_call(),
            Class::Reply => self.credits.may_answer(Release::AtOnce),
        };
        self.phase == Phase::Open && allowed
    }

    /// Takes a credit to post a Reply with a Read list now, which requires the profile. Returns its credit word; the
    /// memory in the Read list must stay exposed until [`Event::Released`].
    pub fn try_send_held(&mut self, now: Instant, xid: u32) -> Option<u32> {
        let may_send = self.may_send_held();
        let held = self.held.as_mut().filter(|_| may_send)?;
        // [R5666-3.4-4] [R5666-3.8-3] [R5666-5.2-2]
        held.hold(now, xid);
        self.replied = true;
        Some(self.credits.on_answered(Release::ByDone))
    }

    /// Returns whether [`Self::try_send_held`] would let a Reply with a Read list be posted now.
    pub fn may_send_held(&self) -> bool {
        let open = self.phase == Phase::Open && self.credits.may_answer(Release::ByDone);
        //~ R5666-3.4-4: `open` -> `!open`
        open && self.held.as_ref().is_some_and(Held::has_room)
    }

    /// Returns whether Replies of this end may have a Read list, which requires the profile.
    pub const fn holds_replies(&self) -> bool {
        self.held.is_some()
    }

    /// Reserves `count` more Receives for the peer.
    pub const fn reserve(&mut self, count: u32) {
        self.credits.reserve(count);
    }

    /// Answers a Call that cannot be served with an error instead of a Reply. The error is an
    /// output of [`Self::poll`]; the connection holds only a limited number of them.
    pub fn refuse(&mut self, xid: u32, error: ErrorBody) {
        self.error(xid, VERSION, error);
    }

    /// Counts a Call of this end as answered by the message just received, and takes the credits that it grants. The
    /// caller, which knows the XIDs of its Calls, calls this after an event that says so if the message has the XID of
    /// an unanswered Call, and drains [`Self::poll`].
    pub fn ended(&mut self) {
        match self.answer.take() {
            // [R8167-4.1-1] the credit word of a Reply is ours to spend, whoever opened the connection.
            Some(Answer::Granting(credit)) => self.credits.on_answer(credit),
            Some(Answer::Held(credit)) => {
                self.credits.on_answer(credit);
                // [R5666-3.8-5]
                //~ R5666-3.8-5: `self.credits.on_held()` -> `{}`
                self.credits.on_held();
            }
            Some(Answer::Unsupported { low, high }) => {
                self.close(CloseReason::Unsupported { low, high });
            }
            Some(Answer::Bad) => self.credits.on_ended(),
            Some(Answer::Malformed) => {
                self.credits.owe_nothing();
                self.credits.on_ended();
            }
            None => {}
        }
    }

    /// Returns the `RDMA_DONE` that tells the server that the client no longer needs the Read chunks of its Reply. The
    /// caller posts it now, whatever the credits. Returns `None` if no Reply had Read chunks.
    pub fn done(&mut self, xid: u32) -> Option<Control> {
        //~ R5666-3.5-1: `Phase::Open` -> `Phase::New`
        let owed = self.phase == Phase::Open && self.credits.may_release();
        owed.then(|| {
            // [R5666-3.5-1] [R5666-3.8-5] a DONE uses the credit that its Reply held.
            let credit = self.credits.on_done_sent();
            Control { xid, vers: VERSION, credit, body: ControlBody::Done }
        })
    }

    /// Tells a server that its client serves Calls from now on, as the ULP has learnt.
    pub const fn announce(&mut self) {
        self.announced = true;
        self.credits.expect_calls();
    }

    /// Returns the instant at which to call [`Self::handle`] with [`Input::Deadline`].
    pub fn poll_deadline(&self) -> Option<Instant> {
        let open = self.phase != Phase::Closed;
        self.held.as_ref().filter(|_| open).and_then(Held::deadline)
    }

    /// Returns the number of Receives that are reserved for the peer and not yet used, modulo 2^32. After an overrun
    /// the number is below zero, and wraps.
    pub const fn reserved(&self) -> u32 {
        self.credits.outstanding()
    }

    /// Returns whether every Receive is promised to the peer, so that this end could make no Call although none is
    /// unanswered, or send no Reply with a Read list although none is held: one Receive has to be reserved for the Reply
    /// or the `RDMA_DONE`.
    #[inline]
    pub fn lacks_receive(&self) -> bool {
        self.credits.lacks_receive()
    }

    /// Returns the number of received Calls that await a Reply or an error.
    pub const fn owed(&self) -> u32 {
        self.credits.owed()
    }

    /// Records that the queue pair is up.
    pub(crate) fn opened(&mut self) {
        if self.phase == Phase::New {
            self.phase = Phase::Open;
            self.outputs.push(Output::Event(Event::Ready));
        }
    }

    fn on_message(&mut self, message: &Message<'_>) {
        match message {
            Message::Msg(rpc) | Message::NoMsg(rpc) | Message::MsgP(_, rpc) => {
                // [R8167-2.4.1-1] the XID does not tell the direction, because it may be in use in both.
                match accept::direction(&self.config, rpc) {
                    //~ R8167-2.4.1-1: `` -> `Some(Direction::Call) if self.credits.unanswered() > 0 => {}`
                    Some(Direction::Call) => self.on_call(message, rpc),
                    //~ R8167-2.4.1-1: `` -> `Some(Direction::Reply) if self.credits.owed() > 0 => {}`
                    Some(Direction::Reply) => self.on_reply(message, rpc),
                    // [R8167-4.1-2] a message without a direction is dropped with its credit word.
                    //~ R8167-4.1-2: `{}` -> `self.credits.on_answer(rpc.prefix.credit),`
                    None => {}
                }
            }
            Message::Done { prefix } => self.on_done(prefix.xid),
            Message::Error { prefix, error } => self.on_error(prefix.xid, prefix.credit, *error),
        }
    }

    fn on_call(&mut self, message: &Message<'_>, rpc: &Rpc<'_>) {
        // The credit word of a Call is only a wish: our Receives decide how many credits are granted.
        // [R5666-3.3-5] a Call beyond the grant that found a Receive is served like any other.
        self.credits.owe();
        if accept::is_acceptable(&self.config, message, rpc) {
            self.outputs.push(Output::Event(Event::Call));
        } else {
            // [R5666-4.2-1] [R5666-4.2-2] [R8167-5.3-2] the Call is refused here, without an event.
            //~ R5666-4.2-2: `self.refuse(rpc.prefix.xid, ErrorBody::Chunk)` -> `self.credits.owe_nothing()`
            self.refuse(rpc.prefix.xid, ErrorBody::Chunk);
        }
    }

    fn on_reply(&mut self, message: &Message<'_>, rpc: &Rpc<'_>) {
        if self.credits.unanswered() == 0 {
            // No Call of ours waits for a Reply.
            return;
        }
        let Prefix { xid, credit, .. } = rpc.prefix;
        self.answer = Some(Answer::Granting(credit));
        // [R5666-3.8-2] Replies that need an RDMA_DONE are only for clients that agreed on the profile.
        let known = self.config.profile.is_some() && self.config.role == Role::Client;
        let is_plain = match message {
            // P11: padding is for what is whole in its message.
            Message::MsgP(padding, _) => known && padding.is_usable() && rpc.reads.is_empty(),
            _ => known || rpc.reads.is_empty(),
        };
        if !is_plain {
            let refused = Event::Refused { xid, error: ErrorBody::Chunk };
            return self.outputs.push(Output::Event(refused));
        }
        if !rpc.reads.is_empty() {
            self.answer = Some(Answer::Held(credit));
        }
        self.outputs.push(Output::Event(Event::Reply));
    }

    fn on_done(&mut self, xid: u32) {
        // P11: without the profile there is nothing to release, and its Receive is posted again.
        if self.held.as_mut().is_some_and(|held| held.release(xid)) {
            self.credits.on_released();
            self.outputs.push(Output::Event(Event::Released { xid, done: true }));
        }
    }

    fn on_error(&mut self, xid: u32, credit: u32, error: ErrorBody) {
        if self.credits.unanswered() == 0 {
            // An error is dropped where no Call waits for a Reply, as Linux does.
            return;
        }
        let (answer, event) = match error {
            ErrorBody::Vers { low, high } if !(low..=high).contains(&VERSION) => {
                (Answer::Unsupported { low, high }, Event::Unsupported { xid })
            }
            _ => (Answer::Granting(credit), Event::Refused { xid, error }),
        };
        self.answer = Some(answer);
        self.outputs.push(Output::Event(event));
    }

    fn on_fault(&mut self, fault: &HeaderFault) {
        let Some(prefix) = fault.prefix else { return };
        let rpc = prefix.vers == VERSION && matches!(prefix.proc, MSG | NOMSG | MSGP);
        let waiting = rpc && self.credits.unanswered() > 0;
        // [R8167-4.1-2] the direction of a malformed message is unknown, so its credit word means nothing.
        match fault.report {
            Some(_) if waiting => {
                self.credits.owe();
                //~ R8167-4.1-2: `Answer::Malformed` -> `Answer::Granting(prefix.credit)`
                self.answer = Some(Answer::Malformed);
                self.outputs.push(Output::Event(Event::Malformed { xid: prefix.xid }));
            }
            Some(report) if accept::serves(&self.config) => {
                self.credits.owe();
                //~ R5666-4.2-3: `prefix.vers` -> `VERSION`
                self.error(prefix.xid, prefix.vers, report);
            }
            // A faulty message that no error answers is no Call, so it can only be a bad Reply.
            None if waiting => {
                self.answer = Some(Answer::Bad);
                let refused = Event::Refused { xid: prefix.xid, error: ErrorBody::Chunk };
                self.outputs.push(Output::Event(refused));
            }
            _ => {}
        }
    }

    fn on_deadline(&mut self, now: Instant) {
        let Some(profile) = self.config.profile else { return };
        let Some(xid) = self.held.as_mut().and_then(|held| held.expire(now)) else { return };
        self.credits.on_released();
        // [R5666-3.8-1] [R5666-11-5] [R5666-11-8] a deadline keeps clients from having memory exposed for ever.
        match profile.late {
            Late::Release => {
                self.outputs.push(Output::Event(Event::Released { xid, done: false }));
            }
            //~ R5666-3.8-1: `self.close(CloseReason::DoneTimedOut)` -> `{}`
            Late::Close => self.close(CloseReason::DoneTimedOut),
        }
    }

    /// Returns whether this end may make Calls at all.
    const fn may_call(&self) -> bool {
        match self.config.role {
            Role::Client => true,
            // [R8167-6-1] P14: a server calls only when the ULP knows that the client serves Calls. It also waits for a
            // Reply to have left: before that, a Linux client has no Receive to spare.
            //~ R8167-6-1: `self.announced && self.replied` -> `self.announced`
            Role::Server => self.announced && self.replied,
        }
    }

    fn error(&mut self, xid: u32, vers: u32, error: ErrorBody) {
        if !self.errors.try_push((xid, vers, error)) {
            self.close(CloseReason::TooManyErrors);
        }
    }

    fn next_error(&mut self) -> Option<Control> {
        if self.phase != Phase::Open || !self.credits.may_answer(Release::AtOnce) {
            return None;
        }
        let (xid, vers, error) = self.errors.pop()?;
        // Linux grants credits with errors as with Replies.
        let credit = self.credits.on_answered(Release::AtOnce);
        Some(Control { xid, vers, credit, body: ControlBody::Error(error) })
    }

    fn close(&mut self, reason: CloseReason) {
        if self.phase != Phase::Closed {
            self.phase = Phase::Closed;
            self.outputs.clear();
            self.outputs.push(Output::Close(reason));
        }
    }
}

/// The most errors that wait until a credit can be granted with them.
const ERRORS_MAX: usize = 8;

/// The most outputs of one input, errors excluded: readiness and one event.
const OUTPUTS_MAX: usize = 2;

#[cfg(test)]
mod tests;
