//! One RPC-over-RDMA version 2 connection, either role, without clock, socket or memory.
//!
//! # Normal operation
//! The client sends first: its properties under a fresh XID, and nothing else until the server has
//! sent its own (decision P6). From then on both ends may send whatever their credits allow. The
//! caller encodes RPC messages and calls [`Connection::try_post`] before posting each one; the
//! connection decides about control messages and returns them from [`Connection::poll`].
//!
//! # Recovery
//! There is none at this level: an error that cannot be reported, an impossible credit word or a
//! missed deadline closes the connection, and everything registered for it is destroyed.
//!
//! # Limits
//! At most `CONTROLS_MAX` control messages wait for credit; the connection to a peer that provokes
//! more without granting credit is closed.

mod alphabet;
mod config;
mod extended;
mod receive;
mod runs;
mod sending;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

pub use self::alphabet::{CloseReason, Control, ControlBody, Event, Input, Output};
pub use self::config::{ChunkLimits, Config, Role};
pub use self::sending::{Sending, Unsent};

use self::sending::Gate;
use super::VERSION;
use super::continuation::{Incoming, Kind};
use super::credit::{Arrived, Class, Credits, PeerCalls};
use super::error::ErrorBody;
use super::header::{CONNPROP_FINAL, CONNPROP_MIDDLE, Prefix, encode_error, encode_grant};
use super::host_auth::{Authenticator, Policy};
use super::properties::Properties;
use super::reverse::Level;
use super::setup::Setup;
use super::thresholds::Thresholds;
use crate::chunk::Format;
use crate::ring::Ring;
use crate::rtrext::extension::{Extension, encode_report};
use crate::time::Instant;
use crate::xdr::{Truncated, Writer};

/// One RPC-over-RDMA version 2 connection.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    phase: Phase,
    credits: Credits,
    setup: Setup,
    /// The XID of the peer's last CONNPROP message, or of our own.
    setup_xid: u32,
    incoming: Incoming,
    extension: Option<Box<Extension>>,
    gate: Gate,
    /// The class of RPC messages about which, with the gate open, credits alone decide.
    plain: Option<Class>,
    /// Whether the peer has sent a version 2 message.
    is_version_settled: bool,
    deadline: Option<Instant>,
    /// Control messages that wait for credit, at most [`CONTROLS_MAX`]. They are rare: the queue holds memory only
    /// while it is not empty.
    controls: VecDeque<(u32, u32, ControlBody)>,
    /// Whether the caller has nothing else to send, so that a grant may leave by itself.
    is_idle: bool,
    outputs: Ring<Output, OUTPUTS_MAX>,
}

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The queue pair is not up.
    New,
    /// The two ends exchange their properties.
    Setup,
    /// Open for RPC messages.
    Open,
    /// Closed; every input is ignored.
    Closed,
}

impl Connection {
    /// Makes a connection whose queue pair is not up yet.
    pub fn new(config: Config) -> Self {
        let reverse = Level::of(config.properties.reverse);
        let continues = Level::allows(reverse, Format::Continued { messages: 2 });
        // A client takes Calls in the reverse direction only.
        let calls_max = match config.role {
            Role::Client if !continues => 0,
            _ => config.continued_call_max,
        };
        let calls = match (config.role, reverse) {
            (Role::Client, Level::None) => PeerCalls::Refused,
            _ => PeerCalls::Served,
        };
        Self {
            phase: Phase::New,
            credits: Credits::new(calls),
            setup: Setup::new(config.role, &config.properties),
            setup_xid: config.first_xid,
            incoming: Incoming::new(calls_max, config.continued_reply_max),
            extension: None,
            gate: Gate::new(&config),
            plain: match config.role {
                Role::Client if config.shares_credits => None,
                Role::Client => Some(Class::Call),
                //~ V2-4.6.3-1: `Class::Reply` -> `Class::Call`
                Role::Server => Some(Class::Reply),
            },
            is_version_settled: false,
            deadline: None,
            controls: VecDeque::new(),
            is_idle: false,
            outputs: Ring::new(),
            config,
        }
    }

    /// Makes the ends authenticate each other during setup, according to `policy`. Call it before
    /// [`Input::Established`], with the private data that each end sent when the queue pair was set
    /// up.
    pub fn authenticate(
        &mut self,
        policy: Policy,
        mut authenticator: Box<dyn Authenticator>,
        client_private_data: &[u8],
        server_private_data: &[u8],
    ) {
        if policy.offers() {
            let role = self.config.role;
            authenticator.bind(role, VERSION, client_private_data, server_private_data);
            self.setup.authenticate(policy, authenticator);
        }
    }

    /// Adds a property of an extension, by its code point, to those that this end sends during
    /// setup. Call it before [`Input::Established`]. Returns whether the property is short enough.
    pub fn announce(&mut self, which: u32, data: &[u8]) -> bool {
        self.setup.announce(which, data)
    }

    /// Applies one input. The caller must drain [`Self::poll`] before the next one.
    pub fn handle(&mut self, now: Instant, input: Input<'_>) {
        if self.phase == Phase::Closed {
            if matches!(input, Input::Received(_)) {
                // A message that comes after the end has used a Receive as well, which the caller must still learn.
                let _ = self.credits.on_ignored(Arrived::Other);
            }
            return;
        }
        debug_assert!(self.outputs.is_empty(), "drain poll() before handle()");
        self.is_idle = matches!(input, Input::Idle);
        match input {
            Input::Established => self.on_established(now),
            Input::Received(Ok(message)) => self.on_message(message),
            Input::Received(Err(fault)) => self.on_fault(fault),
            Input::Idle => {}
            Input::Deadline => self.on_deadline(now),
        }
        self.watch(now);
    }

    /// Returns the next output, or `None` once the connection is quiescent.
    ///
    /// A control message takes its credit word here, so Receives reserved since the input count.
    pub fn poll(&mut self) -> Option<Output> {
        self.poll_event().or_else(|| self.next_control().map(Output::Post))
    }

    /// Returns the next output that is no message: [`Self::poll`] for a caller that has no room for one now.
    pub fn poll_event(&mut self) -> Option<Output> {
        self.outputs.pop()
    }

    /// Takes the credits to post one RPC message now, all its transport messages one after the other. Returns the
    /// credit word of each.
    ///
    /// Call it for RPC messages of one kind in the order in which they became ready. Only the last transport message
    /// has chunks and may invalidate a handle ([`invalidates`](super::invalidation::invalidates)).
    ///
    /// # Errors
    /// See [`Unsent`].
    pub fn try_post(&mut self, sending: &Sending) -> Result<u32, Unsent> {
        // [V2-4.3-1] an end sends only its first message before it knows the peer's properties.
        if !self.is_open_to_send() {
            return Err(Unsent::Wait);
        }
        let level = self.level(sending.kind);
        // [V2-4.2.1-5] never post beyond the peer's credits.
        self.gate.pass(sending, level, &mut self.credits)
    }

    /// Returns whether [`Self::try_post`] would let an RPC message be posted now. If not, it is as if that had been
    /// called.
    ///
    /// # Errors
    /// See [`Unsent`].
    pub fn may_post(&mut self, sending: &Sending) -> Result<(), Unsent> {
        let (gate, credits) = (self.gate, self.credits.clone());
        self.try_post(sending)?;
        (self.gate, self.credits) = (gate, credits);
        Ok(())
    }

    /// Returns the formats in which this end may send messages of a kind: all in the forward direction; in the reverse
    /// direction those that the receiving end announced.
    fn level(&self, kind: Kind) -> Level {
        match (self.config.role, kind) {
            (Role::Client, Kind::Call) | (Role::Server, Kind::Reply) => Level::General,
            (Role::Client, Kind::Reply) => Level::of(self.config.properties.reverse),
            (Role::Server, Kind::Call) => Level::of(self.setup.theirs().reverse),
        }
    }

    /// Takes a credit to post one RPC message in Simple format now. Returns its credit word, or
    /// `None` while the message must wait: see [`Unsent::Wait`]. Use [`Self::try_post`] for a
    /// message in another format, or in the reverse direction with chunks.
    #[inline]
    pub fn try_send(&mut self, class: Class) -> Option<u32> {
        if self.is_plain_class(class) && self.gate.is_open() {
            // With the gate open, no message waits and no format was refused.
            let may = self.is_open_to_send() && self.credits.may_send(class);
            return may.then(|| {
                self.gate.on_passed(class, 1);
                self.credits.on_sent(class)
            });
        }
        self.try_send_by_gate(class)
    }

    /// Takes credits for at most `count` RPC messages of this class, each under the conditions of [`Self::try_send`].
    /// Returns the number of messages that may be posted, and the credit word of each. The caller passes the number
    /// posted to [`Self::settle`] before the next input.
    #[doc(hidden)]
    #[inline]
    pub fn lend(&mut self, class: Class, count: u32) -> (u32, u32) {
        if !self.is_plain_class(class) || !self.gate.is_open() || !self.is_open_to_send() {
            return (0, 0);
        }
        let (lent, credit) = self.credits.lend(class, count);
        self.gate.on_passed(class, lent);
        (lent, credit)
    }

    /// Settles the `lent` credits, of which `posted` were used, and returns the others.
    #[doc(hidden)]
    #[inline]
    pub fn settle(&mut self, class: Class, lent: u32, posted: u32) {
        self.credits.settle(class, lent, posted);
        if class == Class::Call {
            self.gate.on_answered(lent.saturating_sub(posted));
        }
    }

    /// Returns whether credits alone decide about RPC messages of this class: Replies of the server, and Calls of a client
    /// unless it shares the credits.
    #[inline]
    fn is_plain_class(&self, class: Class) -> bool {
        self.plain == Some(class)
    }

    fn try_send_by_gate(&mut self, class: Class) -> Option<u32> {
        let sending = match class {
            Class::Call => Sending::CALL,
            Class::Reply => Sending::REPLY,
            Class::Control | Class::Grant => return None,
        };
        self.try_post(&sending).ok()
    }

    /// Returns whether [`Self::try_send`] would let one RPC message be posted now; for a control message, whether
    /// credits allow it.
    #[inline]
    pub fn may_send(&self, class: Class) -> bool {
        let may_be_next = |sending: &Sending| {
            let is_allowed = self.gate.allow(sending, self.level(sending.kind)).is_ok();
            let is_next = self.gate.is_turn(sending.kind, 1);
            is_allowed && is_next && self.gate.has_room(sending.kind, &self.credits)
        };
        let may_be_next = match class {
            Class::Call => may_be_next(&Sending::CALL),
            Class::Reply => may_be_next(&Sending::REPLY),
            Class::Control | Class::Grant => true,
        };
        self.is_open_to_send() && may_be_next && self.credits.may_send(class)
    }

    /// Returns whether [`Self::try_post`] would decide about an RPC message now, that is, return anything but
    /// [`Unsent::Wait`]: about the one that had to wait, or else about one in one transport message.
    pub fn decides(&self, class: Class) -> bool {
        let decides = match class {
            Class::Call => self.gate.decides(Kind::Call, &self.credits),
            Class::Reply => self.gate.decides(Kind::Reply, &self.credits),
            Class::Control | Class::Grant => self.credits.may_send(class),
        };
        self.is_open_to_send() && decides
    }

    /// Returns the number of Replies that credits allow to be posted now.
    #[inline]
    pub fn replies_left(&self) -> u32 {
        if self.is_open_to_send() { self.credits.left_max() } else { 0 }
    }

    /// Returns the most transport messages of one RPC message: credits for more may never be
    /// available at once.
    pub fn messages_max(&self, kind: Kind) -> u32 {
        self.gate.messages_max(kind, &self.credits)
    }

    /// Abandons the message of this kind that had to wait ([`Unsent::Wait`]), so that others need not wait for it.
    pub const fn give_up(&mut self, kind: Kind) {
        self.gate.give_up(kind);
    }

    /// Reserves `count` more Receives for the peer.
    #[inline]
    pub const fn reserve(&mut self, count: u32) {
        self.credits.reserve(count);
    }

    /// Answers a Call that cannot be served with an error instead of a Reply. The error is an
    /// output of [`Self::poll`]; the connection holds only a limited number of them.
    pub fn refuse(&mut self, xid: u32, error: ErrorBody) {
        self.credits.owed_done(1);
        //~ V2-7-2: `xid` -> `xid ^ 1`
        //~ V2-7-3: `VERSION` -> `1`
        self.control(xid, VERSION, ControlBody::Error(error));
    }

    /// Returns whether the peer has begun a continued message, or one in several transmissions, and not ended it.
    pub fn is_continued(&self) -> bool {
        self.incoming.current().is_some() || self.is_grouped()
    }

    /// Gives up the continued message under way, or the one in several transmissions, of which this end cannot take the
    /// rest: what still comes of it is dropped. The caller of a continued Call is told of `error`, that of a Call in several
    /// transmissions that their header type is not supported. So is the caller at this end of a Call whose Reply it was, by
    /// the next output. Returns the kind and the XID of the message, and the error, if there was one.
    pub fn break_off(&mut self, error: ErrorBody) -> Option<(Kind, u32, ErrorBody)> {
        let (kind, xid, error) = match self.incoming.current() {
            Some((kind, xid)) => {
                self.incoming.refuse(kind, xid);
                (kind, xid, error)
            }
            None => {
                // It says that nothing was carried out, so any Call can go again by the base protocol.
                let (kind, xid) = self.give_up_group()?;
                (kind, xid, ErrorBody::InvalHtype)
            }
        };
        match kind {
            Kind::Call => self.control(xid, VERSION, ControlBody::Error(error)),
            Kind::Reply => self.fail(xid, error),
        }
        Some((kind, xid, error))
    }

    /// Declares that a Call that was reported has no Reply, by its procedure (section 4.7).
    pub const fn no_reply(&mut self) {
        self.credits.owed_done(1);
    }

    /// Records the format of the Call that [`Event::NotSupported`] is about: from now on [`Self::try_post`] returns
    /// [`Unsent::NotSupported`] for Calls in this format.
    pub const fn not_supported(&mut self, format: Format) {
        self.gate.on_not_supported(format);
    }

    /// Reports that the XID just refused is also that of a Reply that this end has sent and whose
    /// Send has not completed: the error does not say whether it means the Call or the Reply (E13).
    pub fn refused_both_ways(&mut self, error: ErrorBody) {
        if matches!(error, ErrorBody::BadXdr | ErrorBody::InvalCont) {
            self.close(CloseReason::Ambiguous);
        }
    }

    /// Encodes a control message that this connection returned from [`Self::poll`].
    ///
    /// # Errors
    /// If `w` has no room for the message. The largest control message is as long as the default
    /// inline threshold.
    pub fn encode(&self, control: &Control, w: &mut Writer<'_>) -> Result<(), Truncated> {
        let Control { xid, vers, credit, body } = *control;
        match body {
            ControlBody::Grant => encode_grant(w, credit),
            // [V2-7-2] [V2-7-3] the answer names the request and echoes its version.
            //~ V2-7-2: `xid` -> `self.setup_xid`
            //~ V2-7-3: `vers` -> `VERSION`
            ControlBody::Error(error) => encode_error(w, xid, vers, credit, &error),
            ControlBody::Report(report) => encode_report(w, credit, &report),
            ControlBody::Properties { last } => {
                let htype = if last { CONNPROP_FINAL } else { CONNPROP_MIDDLE };
                Prefix { xid, vers, credit, htype }.encode(w)?;
                w.put(self.setup.message())
            }
        }
    }

    /// Returns the instant at which to call [`Self::handle`] with [`Input::Deadline`].
    pub fn poll_deadline(&self) -> Option<Instant> {
        // P1: a peer may have shrunk its window without telling.
        let waits = self.phase == Phase::Open && self.gate.waits();
        self.deadline.or_else(|| waits.then(|| self.gate.deadline()))
    }

    /// Returns whether the connection needs no attention: [`Input::Idle`] would change nothing, [`poll`](Self::poll)
    /// would return `None`, and no deadline is set.
    #[inline]
    pub fn is_at_rest(&self) -> bool {
        self.phase == Phase::Open
            && self.outputs.is_empty()
            && self.controls.is_empty()
            && self.deadline.is_none()
            && !self.gate.waits()
            && !self.credits.wants_grant()
    }

    /// Returns the number of Receives that are reserved for the peer and not yet used, modulo 2^32. After an overrun
    /// the number is below zero, and wraps.
    #[inline]
    pub const fn reserved(&self) -> u32 {
        self.credits.reserved_outstanding()
    }

    /// Returns whether a grant used the last reserved Receive, which must be reserved again whatever the peer's Calls
    /// hold (E3).
    #[inline]
    pub const fn lacks_receive_for_grant(&self) -> bool {
        self.credits.lacks_receive_for_grant()
    }

    /// Returns the fewest Receives that the peer should have reserved because of this end's unanswered Calls, where both
    /// ends call: the peer may make Calls of its own before it answers these (P13).
    #[inline]
    pub const fn reserved_for_calls(&self) -> u32 {
        self.gate.reserved_for_calls()
    }

    /// Returns the number of received Calls that await a Reply or an error.
    #[inline]
    pub const fn owed(&self) -> u32 {
        self.credits.owed()
    }

    /// Returns the properties of this end.
    pub const fn properties(&self) -> &Properties {
        &self.config.properties
    }

    /// Returns the properties that the peer has announced so far, with defaults for the others.
    pub const fn peer_properties(&self) -> &Properties {
        self.setup.theirs()
    }

    /// Returns the inline thresholds of both directions, which apply once the connection is open.
    pub fn thresholds(&self) -> Thresholds {
        Thresholds::new(self.properties(), self.peer_properties())
    }

    /// Returns the identity that the peer has proved, in the authenticator's format.
    pub fn peer_identity(&self) -> Option<&[u8]> {
        self.setup.peer()
    }

    /// Returns the identity that the peer claims, in the authenticator's format. It is not proved unless
    /// [`Self::peer_identity`] returns it: it serves reports.
    pub fn claimed_identity(&self) -> Option<&[u8]> {
        self.setup.claimed()
    }

    /// Returns whether RPC messages may be posted, if credits allow.
    #[inline]
    fn is_open_to_send(&self) -> bool {
        // [V2-6.3.3-1] only CONNPROP messages follow a MIDDLE of ours.
        self.phase == Phase::Open && !self.setup.is_speaking()
    }

    /// Watches, if a continued message waits for its credits, whether the peer allows more of them. What messages allow that
    /// [`Self::take`] took is seen with the next input.
    fn watch(&mut self, now: Instant) {
        if self.gate.waits() {
            self.gate.on_left(now, self.credits.left_max());
        }
    }

    fn control(&mut self, xid: u32, vers: u32, body: ControlBody) {
        if self.controls.len() == CONTROLS_MAX {
            // [V2-7.4-2] an answer for which there is no room ends the connection.
            //~ V2-7.4-2: `return self.close(CloseReason::TooManyErrors)` -> `return`
            return self.close(CloseReason::TooManyErrors);
        }
        self.controls.push_back((xid, vers, body));
    }

    fn next_control(&mut self) -> Option<Control> {
        // P5: refresh before half the limit is spent, unless another message carried it already.
        let is_idle = core::mem::take(&mut self.is_idle);
        if is_idle && self.is_open_to_send() && self.credits.wants_grant() {
            let credit = self.credits.on_sent(Class::Grant);
            // [V2-6.3.2-1] a Grant has no XID.
            return Some(Control { xid: 0, vers: VERSION, credit, body: ControlBody::Grant });
        }
        let (_, _, body) = self.controls.front()?;
        let class = match body {
            ControlBody::Grant => Class::Grant,
            _ => Class::Control,
        };
        if self.phase == Phase::Closed || !self.credits.may_send(class) {
            return None;
        }
        let (xid, vers, body) = self.controls.pop_front()?;
        if self.controls.is_empty() {
            self.controls = VecDeque::new();
        }
        let credit = self.credits.on_sent(class);
        if matches!(body, ControlBody::Properties { .. }) {
            self.open_if_over();
        }
        Some(Control { xid, vers, credit, body })
    }

    fn close(&mut self, reason: CloseReason) {
        if self.phase != Phase::Closed {
            self.phase = Phase::Closed;
            self.deadline = None;
            self.outputs.clear();
            self.outputs.push(Output::Close(reason));
        }
    }
}

/// The most control messages that wait for credit: this end's properties and errors about bad messages. A well-behaved
/// peer with few Receives and many Calls, all of which are refused, grants credit for the errors only as it reads them;
/// until then as many wait as it has more Calls than Receives.
const CONTROLS_MAX: usize = 32;

/// The most outputs of one input, control messages excluded: a part, the message that it completes,
/// or a close; and those that a caller's other calls add before it polls.
const OUTPUTS_MAX: usize = 3;

#[cfg(test)]
mod tests;
