//! Version negotiation (version 2, section 4.3), and a connection of either version.
//!
//! # Normal operation
//! A client that supports both versions begins with version 2. A server that supports both adopts the version of the
//! first message it receives. [`Connection`] holds the engine of the version in use and offers what both versions have;
//! [`Connection::engine`] gives access to the rest.
//!
//! # Recovery
//! A server without version 2 answers with the versions it supports: if version 1 is among them, the client continues
//! with it on the same connection. A server that does not answer, or that drops the connection, is assumed to support
//! only version 1 (P6): the connection ends, and [`Connection::remembered`] gives the version to begin the next one
//! with.
//!
//! # Limits
//! Once a version is settled it never changes: a later message of another version is answered with
//! an error. Version 1 is not available where host authentication is required (P9).

mod alphabet;
mod grant;
mod message;
mod single_chunks;

use alloc::boxed::Box;

pub use alphabet::{
    Class, CloseReason, Control, Event, Input, Output, Received, Refusal, Remembered,
};
pub use grant::CreditGrant;
pub use message::{
    Call, CallChunks, PlainHeaders, Reply, ReplyChunks, patched, put_call_headers_with,
    put_results_headers, put_unchunked_header, single_chunk_header_len, unchunked,
    unchunked_header_len,
};
pub use single_chunks::SingleChunks;

pub use crate::chunk::Version;

use crate::exchange::Format;
use crate::time::Instant;
use crate::v1;
use crate::v2;
use crate::v2::connection::{Role, Sending, Unsent};
use crate::v2::continuation::Kind;
use crate::v2::header::Unchunked;
use crate::v2::host_auth::{Authenticator, Policy};
use crate::xdr::{Reader, Truncated, Writer};

/// The versions that one end supports, and the configuration of each.
#[derive(Clone, Debug)]
pub struct Config {
    /// The configuration of version 1, if this end supports it.
    pub one: Option<v1::connection::Config>,
    /// The configuration of version 2, if this end supports it.
    pub two: Option<v2::connection::Config>,
    /// The host authentication policy. `Required` excludes version 1, which has no host
    /// authentication.
    pub auth: Policy,
}

/// The error of a configuration that leaves no version to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoVersion;

/// A connection of either version. Until the version is settled it is the one that this end begins
/// with.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    engine: Engine,
    /// The configuration of version 1, while the connection may still fall back to it.
    fallback: Option<Box<v1::connection::Config>>,
    remembered: Remembered,
    /// Whether a grant of Calls, or of Replies, is not settled yet.
    #[cfg(debug_assertions)]
    lent: [bool; 2],
}

/// The engine of one version.
#[derive(Debug)]
pub enum Engine {
    /// Version 1.
    One(Box<v1::connection::Connection>),
    /// Version 2.
    Two(Box<v2::connection::Connection>),
}

impl Connection {
    /// Makes a connection whose queue pair is not up yet. The caller posts as many Receives as [`Self::reserved`]
    /// returns. A client passes as `remembered` the result of its previous connection to this server; a server passes
    /// [`Remembered::Nothing`].
    ///
    /// # Errors
    /// [`NoVersion`] if the configuration leaves no version to use.
    pub fn new(config: Config, remembered: Remembered) -> Result<Self, NoVersion> {
        let Config { one, two, auth } = config;
        // P9: version 1 has no host authentication.
        let one = one.filter(|_| !auth.requires());
        let (role, engine, fallback) = match (one, two, remembered) {
            (Some(one), None, _) | (Some(one), Some(_), Remembered::OnlyVersionOne) => {
                (one.role, Engine::one(v1::connection::Connection::new(one)), None)
            }
            (one, Some(two), _) => {
                let role = two.role;
                let engine = Engine::Two(Box::new(v2::connection::Connection::new(two)));
                (role, engine, one.map(Box::new))
            }
            (None, None, _) => return Err(NoVersion),
        };
        Ok(Self {
            role,
            engine,
            fallback,
            remembered,
            #[cfg(debug_assertions)]
            lent: [false; 2],
        })
    }

    /// Makes the ends authenticate each other during setup, under the policy of the configuration: see
    /// [`v2::connection::Connection::authenticate`]. Version 1 has no host authentication.
    pub fn authenticate(
        &mut self,
        policy: Policy,
        authenticator: Box<dyn Authenticator>,
        client_private_data: &[u8],
        server_private_data: &[u8],
    ) {
        if let Engine::Two(two) = &mut self.engine {
            two.authenticate(policy, authenticator, client_private_data, server_private_data);
        }
    }

    /// Decodes one received message by the rules of the connection's version or, while that is
    /// open, of the message's own.
    pub fn decode<'a>(&self, message: &'a [u8]) -> Received<'a> {
        let version = Reader::new(message.get(4..).unwrap_or_default()).u32();
        match (&self.engine, &self.fallback, self.role) {
            (Engine::One(_), _, _) => alphabet::decode_one(message),
            // [V2-4.3.3-1] the first message of a client decides on the version.
            (Engine::Two(_), Some(_), Role::Server) if version == Ok(v1::VERSION) => {
                alphabet::decode_one(message)
            }
            (Engine::Two(_), Some(_), Role::Client) if version == Ok(v1::VERSION) => {
                alphabet::decode_refusal(message)
            }
            (Engine::Two(_), _, _) => Received::Two(v2::header::decode_transport(message)),
        }
    }

    /// Applies one input. The caller must drain [`Self::poll`] before the next one.
    pub fn handle(&mut self, now: Instant, input: Input<'_>) {
        #[cfg(debug_assertions)]
        debug_assert_eq!(self.lent, [false; 2], "what was lent is not settled");
        match input {
            Input::Established => self.on_established(now),
            Input::Received(received) => self.on_received(now, received),
            Input::Idle => {
                if let Engine::Two(two) = &mut self.engine {
                    two.handle(now, v2::connection::Input::Idle);
                }
            }
            Input::Deadline => self.on_deadline(now),
        }
    }

    /// Receives a run of Calls or Replies without chunks, or with one chunk that [`Self::single_chunks`] recognises, and
    /// returns how many it accepted: see [`v1::connection::Connection::take`] and
    /// [`v2::connection::Connection::take`].
    #[doc(hidden)]
    #[inline]
    pub fn take(&mut self, kind: Kind, run: impl IntoIterator<Item = Unchunked>) -> u32 {
        match (&mut self.engine, &self.fallback) {
            (Engine::Two(two), None) => two.take(kind, run),
            (Engine::Two(_), Some(_)) => 0,
            (Engine::One(one), _) => one.take(kind, run),
        }
    }

    /// Undoes the receipt of the last `count` messages that [`Self::take`] accepted: see
    /// [`v2::connection::Connection::put_back`].
    #[doc(hidden)]
    #[cold]
    pub fn put_back(&mut self, kind: Kind, count: u32) {
        match &mut self.engine {
            Engine::One(one) => one.put_back(kind, count),
            Engine::Two(two) => two.put_back(kind, count),
        }
    }

    /// Receives a decoded Call or Reply without going through [`Self::handle`] and returns its
    /// kind; returns `None` if the message has to go through `handle`. See
    /// [`v2::connection::Connection::take_whole`].
    #[doc(hidden)]
    #[inline]
    pub fn take_whole(&mut self, received: &Received<'_>) -> Option<Kind> {
        match (&mut self.engine, &self.fallback, received) {
            (Engine::Two(two), None, Received::Two(Ok(message))) => two.take_whole(message),
            _ => None,
        }
    }

    /// Returns the next output, or `None` once the connection is quiescent.
    pub fn poll(&mut self) -> Option<Output> {
        match &mut self.engine {
            Engine::One(one) => one.poll().map(Output::from),
            Engine::Two(two) => two.poll().and_then(|output| self.output(output)),
        }
    }

    /// Returns the next output that is no message: [`Self::poll`] for a caller that has no room for one now.
    pub fn poll_event(&mut self) -> Option<Output> {
        match &mut self.engine {
            Engine::One(one) => one.poll_event().map(Output::from),
            Engine::Two(two) => two.poll_event().and_then(|output| self.output(output)),
        }
    }

    fn output(&mut self, two: v2::connection::Output) -> Option<Output> {
        match two {
            v2::connection::Output::Close(reason) => self.on_close(reason),
            v2::connection::Output::Post(control) => Some(Output::Post(self.both_named(control))),
            v2::connection::Output::Event(event) => Some(Output::Event(event.into())),
        }
    }

    /// Takes a credit to post one RPC message, which fits one message, now. Returns its credit word, or `None` while
    /// the message must wait: call again after the next input, [`Self::reserve`] or [`Self::refuse`].
    #[inline]
    pub fn try_send(&mut self, class: Class) -> Option<u32> {
        match &mut self.engine {
            Engine::One(one) => one.try_send(class),
            Engine::Two(two) => two.try_send(alphabet::class(class)),
        }
    }

    /// Takes the credits to post one RPC message in the format that `sending` describes now.
    /// Returns the credit word of each message.
    ///
    /// # Errors
    /// See [`Unsent`]. On version 1 the only error is [`Unsent::Wait`].
    pub fn try_post(&mut self, sending: &Sending) -> Result<u32, Unsent> {
        match &mut self.engine {
            Engine::One(one) => one.try_send(alphabet::of_kind(sending.kind)).ok_or(Unsent::Wait),
            Engine::Two(two) => two.try_post(sending),
        }
    }

    /// Returns whether [`Self::try_post`] would let a message be posted now. If not, it is as if that had been called.
    ///
    /// # Errors
    /// See [`Self::try_post`].
    pub fn may_post(&mut self, sending: &Sending) -> Result<(), Unsent> {
        match &mut self.engine {
            Engine::One(one) if one.may_send(alphabet::of_kind(sending.kind)) => Ok(()),
            Engine::One(_) => Err(Unsent::Wait),
            Engine::Two(two) => two.may_post(sending),
        }
    }

    /// Returns the most transport messages of one RPC message of this kind: see
    /// [`v2::connection::Connection::messages_max`]. It is one on version 1.
    pub fn messages_max(&self, kind: Kind) -> u32 {
        match &self.engine {
            Engine::One(_) => 1,
            Engine::Two(two) => two.messages_max(kind),
        }
    }

    /// Abandons the message of this kind that had to wait ([`Unsent::Wait`]), so that others need not wait for it.
    pub const fn give_up(&mut self, kind: Kind) {
        if let Engine::Two(two) = &mut self.engine {
            two.give_up(kind);
        }
    }

    /// Records that the peer does not support the format of a Call: see
    /// [`v2::connection::Connection::not_supported`].
    pub const fn not_supported(&mut self, format: Format) {
        if let Engine::Two(two) = &mut self.engine {
            two.not_supported(format);
        }
    }

    /// Returns whether [`Self::try_send`] would let one RPC message be posted now.
    #[inline]
    pub fn may_send(&self, class: Class) -> bool {
        match &self.engine {
            Engine::One(one) => one.may_send(class),
            Engine::Two(two) => two.may_send(alphabet::class(class)),
        }
    }

    /// Returns whether [`Self::try_post`] would decide about a message now, that is, return anything but
    /// [`Unsent::Wait`].
    pub fn decides(&self, class: Class) -> bool {
        match &self.engine {
            Engine::One(one) => one.may_send(class),
            Engine::Two(two) => two.decides(alphabet::class(class)),
        }
    }

    /// Returns the number of Replies that could be posted now.
    #[inline]
    pub fn replies_left(&self) -> u32 {
        match &self.engine {
            Engine::One(one) => one.replies_left(),
            Engine::Two(two) => two.replies_left(),
        }
    }

    /// Reserves `count` more Receives for the peer.
    #[inline]
    pub fn reserve(&mut self, count: u32) {
        match &mut self.engine {
            Engine::One(one) => one.reserve(count),
            Engine::Two(two) => two.reserve(count),
        }
    }

    /// Answers a Call that cannot be served with an error instead of a Reply. On version 1 every error is `ERR_CHUNK`.
    /// The answer is an output of [`Self::poll`]; the connection holds only a limited number of them.
    pub fn refuse(&mut self, xid: u32, error: v2::error::ErrorBody) {
        #[cfg(debug_assertions)]
        debug_assert_eq!(self.lent, [false; 2], "what was lent is not settled");
        match &mut self.engine {
            Engine::One(one) => one.refuse(xid, v1::error::ErrorBody::Chunk),
            Engine::Two(two) => two.refuse(xid, error),
        }
    }

    /// Declares that a Call just taken has no Reply, by its procedure: see [`v2::connection::Connection::no_reply`]. On
    /// version 1 every Call has one.
    pub fn no_reply(&mut self) {
        #[cfg(debug_assertions)]
        debug_assert_eq!(self.lent, [false; 2], "what was lent is not settled");
        if let Engine::Two(two) = &mut self.engine {
            two.no_reply();
        }
    }

    /// Returns whether the peer has begun a continued message, and not ended it. Version 1 has none.
    pub fn is_continued(&self) -> bool {
        matches!(&self.engine, Engine::Two(two) if two.is_continued())
    }

    /// Gives up the continued message under way: see [`v2::connection::Connection::break_off`]. Version 1 has none.
    pub fn break_off(
        &mut self,
        error: v2::error::ErrorBody,
    ) -> Option<(Kind, u32, v2::error::ErrorBody)> {
        match &mut self.engine {
            Engine::One(_) => None,
            Engine::Two(two) => two.break_off(error),
        }
    }

    /// Counts a Call of this end as answered by the message just received. The caller, which knows the XIDs of its Calls,
    /// calls this after [`Event::Reply`], [`Event::Refused`] or an event of version 1 that asks for it, if the message
    /// has the XID of an unanswered Call, and drains [`Self::poll`]. Version 2 counts messages, and has nothing to count.
    pub fn ended(&mut self) {
        if let Engine::One(one) = &mut self.engine {
            one.ended();
        }
    }

    /// Encodes a control message that this connection returned from [`Self::poll`].
    ///
    /// # Errors
    /// If `w` has no room for the message.
    pub fn encode(&self, control: &Control, w: &mut Writer<'_>) -> Result<(), Truncated> {
        match (control, &self.engine) {
            (Control::One(control), _) => control.encode(w),
            (Control::Two(control), Engine::Two(two)) => two.encode(control, w),
            // A message of version 2 that was queued before the connection settled on version 1 is not sent.
            (Control::Two(_), Engine::One(_)) => Err(Truncated { at: 0 }),
        }
    }

    /// Returns the instant at which to call [`Self::handle`] with [`Input::Deadline`].
    pub fn poll_deadline(&self) -> Option<Instant> {
        match &self.engine {
            Engine::One(one) => one.poll_deadline(),
            Engine::Two(two) => two.poll_deadline(),
        }
    }

    /// Returns whether the connection needs no attention: [`Input::Idle`] would change nothing, [`poll`](Self::poll)
    /// would return `None`, and no deadline is set.
    #[inline]
    pub fn is_at_rest(&self) -> bool {
        match &self.engine {
            Engine::One(one) => one.is_at_rest(),
            Engine::Two(two) => two.is_at_rest(),
        }
    }

    /// Returns the number of Receives that are reserved for the peer and not yet used, modulo 2^32. After an overrun
    /// the number is below zero, and wraps.
    #[inline]
    pub fn reserved(&self) -> u32 {
        match &self.engine {
            Engine::One(one) => one.reserved(),
            Engine::Two(two) => two.reserved(),
        }
    }

    /// Returns whether one more Receive has to be reserved, whatever the peer's Calls hold: see
    /// [`v1::connection::Connection::lacks_receive`] and
    /// [`v2::connection::Connection::lacks_receive_for_grant`].
    #[inline]
    pub fn lacks_receive(&self) -> bool {
        match &self.engine {
            Engine::One(one) => one.lacks_receive(),
            Engine::Two(two) => two.lacks_receive_for_grant(),
        }
    }

    /// Returns how many Receives the peer should have reserved because of this end's unanswered Calls: see
    /// [`v2::connection::Connection::reserved_for_calls`]. Version 1 counts each direction by itself, and needs none.
    #[inline]
    pub fn reserved_for_calls(&self) -> u32 {
        match &self.engine {
            Engine::One(_) => 0,
            Engine::Two(two) => two.reserved_for_calls(),
        }
    }

    /// Returns the number of received Calls that await a Reply or an error.
    #[inline]
    pub fn owed(&self) -> u32 {
        match &self.engine {
            Engine::One(one) => one.owed(),
            Engine::Two(two) => two.owed(),
        }
    }

    /// Returns the version the connection speaks, if that is settled.
    pub fn version(&self) -> Option<Version> {
        match (&self.engine, &self.fallback) {
            (Engine::One(_), _) => Some(Version::One),
            (Engine::Two(_), None) => Some(Version::Two),
            (Engine::Two(_), Some(_)) => None,
        }
    }

    /// Returns the engine in use, for functions that only one version has. While [`Self::version`] is `None` it is the
    /// engine of version 2 and may be replaced.
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the engine in use, mutably. Inputs and outputs must go through this connection, not
    /// through the engine.
    pub const fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Returns what a client should remember about its server once this connection has ended. If the connection ended
    /// before [`Event::Ready`] and this differs from what the client began with, it should connect again at once.
    pub const fn remembered(&self) -> Remembered {
        self.remembered
    }

    fn on_established(&mut self, now: Instant) {
        match &mut self.engine {
            Engine::One(one) => one.handle(now, v1::connection::Input::Established),
            Engine::Two(two) => two.handle(now, v2::connection::Input::Established),
        }
        if self.role == Role::Client && self.fallback.is_some() {
            // P6: until the server has spoken version 2, it is taken to speak version 1 alone.
            self.remembered = Remembered::OnlyVersionOne;
        }
    }

    fn on_received(&mut self, now: Instant, received: &Received<'_>) {
        match received {
            Received::One(message) => {
                if let (Engine::Two(two), Some(one)) = (&self.engine, self.fallback.take()) {
                    // [V2-4.3.3-1] all later messages have the version of this first one.
                    let receives = two.reserved();
                    self.settle_on_one(*one, receives);
                }
                if let Engine::One(one) = &mut self.engine {
                    one.handle(now, v1::connection::Input::Received(message));
                }
            }
            Received::Two(message) => {
                if alphabet::is_version_two(message) {
                    //~ V2-4.3.3-2: `None` -> `self.fallback.take().filter(|_| self.role == Role::Client)`
                    self.fallback = None;
                    self.remembered = Remembered::Nothing;
                }
                if let Engine::Two(two) = &mut self.engine {
                    two.handle(now, v2::connection::Input::Received(message));
                }
            }
        }
    }

    fn on_deadline(&mut self, now: Instant) {
        match &mut self.engine {
            Engine::One(one) => one.handle(now, v1::connection::Input::Deadline),
            Engine::Two(two) => two.handle(now, v2::connection::Input::Deadline),
        }
    }

    /// Falls back to version 1 if the server asked for it; otherwise closes the connection.
    fn on_close(&mut self, reason: v2::connection::CloseReason) -> Option<Output> {
        let Engine::Two(two) = &self.engine else { return None };
        let receives = two.reserved();
        match (reason, self.fallback.take()) {
            // [V2-7.1.1-3] the client goes on in a version that both ends have, and [V2-4.3.2-1] on this connection.
            (v2::connection::CloseReason::Unsupported { low, high }, Some(one))
                //~ V2-7.1.1-3: `(low..=high).contains(&v1::VERSION)` -> `low <= high`
                if self.role == Role::Client && (low..=high).contains(&v1::VERSION) =>
            {
                self.settle_on_one(*one, receives);
                let Engine::One(one) = &mut self.engine else { return None };
                one.opened();
                one.poll().map(Output::from)
            }
            (v2::connection::CloseReason::Unsupported { low, high }, Some(_)) => {
                Some(Output::Close(CloseReason::Neither { low, high }))
            }
            _ => Some(Output::Close(CloseReason::Two(reason))),
        }
    }

    fn settle_on_one(&mut self, config: v1::connection::Config, receives: u32) {
        self.engine = Engine::one(v1::connection::Connection::take_over(config, receives));
    }

    /// Makes an error that lists the supported versions list both while both are available.
    fn both_named(&self, mut control: v2::connection::Control) -> Control {
        use v2::connection::ControlBody::Error;
        use v2::error::ErrorBody::Vers;
        if let (Error(Vers { high, .. }), Some(_)) = (control.body, &self.fallback) {
            //~ V2-7.1.1-1: `control.body = Error(Vers { low: v1::VERSION, high })` ->
            //~   `_ = high; control.body = Error(v2::error::ErrorBody::VersMismatch)`
            control.body = Error(Vers { low: v1::VERSION, high });
        }
        Control::Two(control)
    }
}

impl Engine {
    fn one(connection: v1::connection::Connection) -> Self {
        Self::One(Box::new(connection))
    }
}

#[cfg(test)]
mod tests;
