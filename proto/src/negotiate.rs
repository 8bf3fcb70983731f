//! Which version a connection speaks (version 2, section 4.3), and a connection that speaks either.
//!
//! # Normal operation
//! A client that has both versions begins with version 2. A server that has both takes up the version of
//! the first message it gets. [`Connection`] holds the engine of whichever it is; what both versions
//! have goes through it, and [`Connection::engine`] leads to the rest.
//!
//! # Recovery
//! A server without version 2 says which versions it has: if version 1 is among them, the client goes on
//! with that on the same connection. A server that says nothing, or that drops the connection, is taken
//! for one of version 1 (P6): the connection ends, and [`Connection::remembered`] tells what to begin the
//! next one with.
//!
//! # Limits
//! A version that is settled is never changed: what comes in another one later is answered with an
//! error. Where host authentication is required there is no version 1 (P9).

mod alphabet;
mod grant;
mod message;

use alloc::boxed::Box;

pub use alphabet::{
    Class, CloseReason, Control, Event, Input, Output, Received, Refusal, Remembered,
};
pub use grant::Grant;
pub use message::{
    Call, CallChunks, PlainHeaders, Reply, ReplyChunks, bare, bare_header_len, labeled,
    put_bare_header, put_call_headers_with, put_results_headers, put_results_headers_one,
    put_results_headers_with,
};

pub use crate::chunk::Version;

use crate::exchange::Format;
use crate::time::Instant;
use crate::v1;
use crate::v2;
use crate::v2::connection::{Role, Sending, Unsent};
use crate::v2::continuation::Kind;
use crate::v2::header::Bare;
use crate::v2::host_auth::Policy;
use crate::xdr::{Reader, Truncated, Writer};

/// The versions one end has, and how a connection behaves in each.
#[derive(Clone, Debug)]
pub struct Config {
    /// Version 1, if it is spoken.
    pub one: Option<v1::connection::Config>,
    /// Version 2, if it is spoken.
    pub two: Option<v2::connection::Config>,
    /// Whether the peer has to authenticate itself, which version 1 cannot.
    pub auth: Policy,
}

/// The configuration leaves no version to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoVersion;

/// A connection of the version that one of its ends has chosen, or of the one we begin with.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    engine: Engine,
    /// Version 1, while that may still be what the connection comes to speak.
    fallback: Option<Box<v1::connection::Config>>,
    remembered: Remembered,
    /// Whether Calls, and Replies, are lent.
    #[cfg(debug_assertions)]
    lent: [bool; 2],
}

/// A connection of one version.
#[derive(Debug)]
pub enum Engine {
    /// Version 1.
    One(Box<v1::connection::Connection>),
    /// Version 2.
    Two(Box<v2::connection::Connection>),
}

impl Connection {
    /// Makes a connection whose queue pair is not up yet. [`Self::reserved`] says how many Receives it
    /// takes to begin with. `remembered` is what a client knows of this server; a server knows nothing.
    ///
    /// # Errors
    /// [`NoVersion`]
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

    /// Decodes one received message by the rules of the version it is to be taken for.
    pub fn decode<'a>(&self, message: &'a [u8]) -> Received<'a> {
        let version = Reader::new(message.get(4..).unwrap_or_default()).u32();
        match (&self.engine, &self.fallback, self.role) {
            (Engine::One(_), _, _) => alphabet::decode_one(message),
            // [V2-4.3.3-1] the first message of a client decides.
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

    /// Takes Calls or Replies without chunks in a run, as far as that goes: see
    /// [`v1::connection::Connection::take`] and [`v2::connection::Connection::take`].
    #[doc(hidden)]
    #[inline]
    pub fn take(&mut self, now: Instant, kind: Kind, run: impl IntoIterator<Item = Bare>) -> u32 {
        match (&mut self.engine, &self.fallback) {
            (Engine::Two(two), None) => two.take(now, kind, run),
            (Engine::Two(_), Some(_)) => 0,
            (Engine::One(one), _) => one.take(kind, run),
        }
    }

    /// Returns how long the only chunk of a Call may be that goes that way: see
    /// [`v2::connection::Connection::chunk_max`].
    #[doc(hidden)]
    #[inline]
    pub const fn chunk_max(&self) -> [u32; 2] {
        match &self.engine {
            Engine::One(_) => [0; 2],
            Engine::Two(two) => two.chunk_max(),
        }
    }

    /// Takes back that the last `count` of them have been received: see
    /// [`v2::connection::Connection::put_back`].
    #[doc(hidden)]
    #[cold]
    pub fn put_back(&mut self, kind: Kind, count: u32) {
        match &mut self.engine {
            Engine::One(one) => one.put_back(kind, count),
            Engine::Two(two) => two.put_back(kind, count),
        }
    }

    /// Takes a Call or a Reply of any form the short way, if that goes: as
    /// [`v2::connection::Connection::take_whole`].
    #[doc(hidden)]
    #[inline]
    pub fn take_whole(&mut self, now: Instant, received: &Received<'_>) -> Option<Kind> {
        match (&mut self.engine, &self.fallback, received) {
            (Engine::Two(two), None, Received::Two(Ok(message))) => two.take_whole(now, message),
            _ => None,
        }
    }

    /// Returns the next output, or `None` once the connection is quiescent.
    pub fn poll(&mut self) -> Option<Output> {
        let two = match &mut self.engine {
            Engine::One(one) => return one.poll().map(Output::from),
            Engine::Two(two) => two,
        };
        match two.poll()? {
            v2::connection::Output::Close(reason) => self.on_close(reason),
            v2::connection::Output::Post(control) => Some(Output::Post(self.both_named(control))),
            v2::connection::Output::Event(event) => Some(Output::Event(event.into())),
        }
    }

    /// Asks to post one RPC message now, in one message. Returns its credit word, or `None` while it may
    /// not go: ask again after the next input, [`Self::reserve`] or [`Self::refuse`].
    #[inline]
    pub fn try_send(&mut self, class: Class) -> Option<u32> {
        match &mut self.engine {
            Engine::One(one) => one.try_send(class),
            Engine::Two(two) => two.try_send(alphabet::class(class)),
        }
    }

    /// Asks to post one RPC message now, in one message of this format. Returns its credit word.
    ///
    /// # Errors
    /// See [`Unsent`]; on version 1 it can only wait.
    pub fn try_post(&mut self, sending: &Sending) -> Result<u32, Unsent> {
        match &mut self.engine {
            Engine::One(one) => {
                let class = match sending.kind {
                    Kind::Call => Class::Call,
                    Kind::Reply => Class::Reply,
                };
                one.try_send(class).ok_or(Unsent::Wait)
            }
            Engine::Two(two) => two.try_post(sending),
        }
    }

    /// Takes note that the peer does not support the format of a Call: see
    /// [`v2::connection::Connection::not_supported`].
    pub const fn not_supported(&mut self, format: Format) {
        if let Engine::Two(two) = &mut self.engine {
            two.not_supported(format);
        }
    }

    /// Returns whether one RPC message could be posted now.
    #[inline]
    pub fn may_send(&self, class: Class) -> bool {
        match &self.engine {
            Engine::One(one) => one.may_send(class),
            Engine::Two(two) => two.may_send(alphabet::class(class)),
        }
    }

    /// Returns whether [`Self::try_post`] decides about a message now: it posts the message, or says why that
    /// never goes.
    pub fn decides(&self, class: Class) -> bool {
        match &self.engine {
            Engine::One(one) => one.may_send(class),
            Engine::Two(two) => two.decides(alphabet::class(class)),
        }
    }

    /// Returns how many Replies could be posted now.
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

    /// Answers a Call that cannot be acted upon, in place of its Reply. Version 1 has one word for all
    /// errors. The answer waits for [`Self::poll`], and only so many may wait: poll soon.
    pub fn refuse(&mut self, xid: u32, error: v2::error::ErrorBody) {
        #[cfg(debug_assertions)]
        debug_assert_eq!(self.lent, [false; 2], "what was lent is not settled");
        match &mut self.engine {
            Engine::One(one) => one.refuse(xid, v1::error::ErrorBody::Chunk),
            Engine::Two(two) => two.refuse(xid, error),
        }
    }

    /// Encodes a control message this connection asked to post.
    ///
    /// # Errors
    /// If `w` has not room for the largest control message.
    pub fn encode(&self, control: &Control, w: &mut Writer<'_>) -> Result<(), Truncated> {
        match (control, &self.engine) {
            (Control::One(control), _) => control.encode(w),
            (Control::Two(control), Engine::Two(two)) => two.encode(control, w),
            // What was asked for before the version was settled is not sent after.
            (Control::Two(_), Engine::One(_)) => Err(Truncated { at: 0 }),
        }
    }

    /// Returns when to call [`Self::handle`] with [`Input::Deadline`].
    pub fn poll_deadline(&self) -> Option<Instant> {
        match &self.engine {
            Engine::One(one) => one.poll_deadline(),
            Engine::Two(two) => two.poll_deadline(),
        }
    }

    /// Returns whether [`Input::Idle`] would change nothing, there is nothing to [`poll`](Self::poll), and no
    /// deadline.
    #[inline]
    pub fn is_at_rest(&self) -> bool {
        match &self.engine {
            Engine::One(one) => one.is_at_rest(),
            Engine::Two(two) => two.is_at_rest(),
        }
    }

    /// Returns the Receives that are reserved for the peer and not yet used, modulo 2^32: a peer that
    /// was closed for an overrun has used more than that.
    #[inline]
    pub fn reserved(&self) -> u32 {
        match &self.engine {
            Engine::One(one) => one.reserved(),
            Engine::Two(two) => two.reserved(),
        }
    }

    /// Returns how many received Calls await a Reply or an error.
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

    /// Returns the engine in use, for what only one version has. While [`Self::version`] is `None` it is
    /// version 2's, and may be replaced.
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the engine in use. Not for its inputs and outputs, which pass through here.
    pub const fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Returns what a client should remember of its server once this connection has ended. If it ended
    /// before [`Event::Ready`], and this is not what it began with, connect again at once.
    pub const fn remembered(&self) -> Remembered {
        self.remembered
    }

    fn on_established(&mut self, now: Instant) {
        match &mut self.engine {
            Engine::One(one) => one.handle(now, v1::connection::Input::Established),
            Engine::Two(two) => two.handle(now, v2::connection::Input::Established),
        }
        if self.role == Role::Client && self.fallback.is_some() {
            // P6: until the server has spoken version 2, it does not.
            self.remembered = Remembered::OnlyVersionOne;
        }
    }

    fn on_received(&mut self, now: Instant, received: &Received<'_>) {
        match received {
            Received::One(message) => {
                if let (Engine::Two(two), Some(one)) = (&self.engine, self.fallback.take()) {
                    // [V2-4.3.3-1] it is the version of all that follows.
                    let receives = two.reserved();
                    self.settle_on_one(*one, receives);
                }
                if let Engine::One(one) = &mut self.engine {
                    one.handle(now, v1::connection::Input::Received(message));
                }
            }
            Received::Two(message) => {
                if alphabet::is_version_two(message) {
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

    /// Goes on with version 1 where the server asks for it, else closes.
    fn on_close(&mut self, reason: v2::connection::CloseReason) -> Option<Output> {
        let Engine::Two(two) = &self.engine else { return None };
        let receives = two.reserved();
        match (reason, self.fallback.take()) {
            // [V2-7.1.1-3] in a version both have, and [V2-4.3.2-1] on this connection.
            (v2::connection::CloseReason::Unsupported { low, high }, Some(one))
                if self.role == Role::Client && (low..=high).contains(&v1::VERSION) =>
            {
                self.settle_on_one(*one, receives);
                let Engine::One(one) = &mut self.engine else { return None };
                one.opened();
                one.poll().map(Output::from)
            }
            _ => Some(Output::Close(CloseReason::Two(reason))),
        }
    }

    fn settle_on_one(&mut self, config: v1::connection::Config, receives: u32) {
        self.engine = Engine::one(v1::connection::Connection::take_over(config, receives));
    }

    /// Names both versions in an error that says which there are, while there are two.
    fn both_named(&self, mut control: v2::connection::Control) -> Control {
        use v2::connection::ControlBody::Error;
        use v2::error::ErrorBody::Vers;
        if let (Error(Vers { high, .. }), Some(_)) = (control.body, &self.fallback) {
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
