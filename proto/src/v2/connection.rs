//! One RPC-over-RDMA version 2 connection, either role, without clock, socket or memory.
//!
//! # Normal operation
//! The client speaks first: one `RDMA2_CONNPROP_FINAL` with a fresh XID, and nothing else until the
//! server answered with its own (decision P6). From then on both ends may send whatever their
//! credits allow. RPC messages are encoded by the caller, who asks [`Connection::try_send`] before
//! posting each one; control messages are decided here and come out of [`Connection::poll`].
//!
//! # Recovery
//! There is none at this level: an answer that cannot be given, an impossible credit or a missed
//! deadline closes the connection, and everything registered on it is destroyed.
//!
//! # Limits
//! At most `CONTROLS_MAX` control messages wait for credit; a peer that provokes more without
//! granting any is closed.

use core::fmt;
use core::time::Duration;

use super::VERSION;
use super::credit::{Class, CreditFault, Credits};
use super::error::ErrorBody;
use super::header::{CallInline, ConnProp, HeaderFault, Message};
use super::properties::Properties;
use crate::time::Instant;

/// Who opened the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// We did.
    Client,
    /// The peer did.
    Server,
}

/// How a connection behaves, fixed for its life.
#[derive(Clone, Debug)]
pub struct Config {
    /// Who opened the connection.
    pub role: Role,
    /// What we tell the peer about ourselves.
    pub properties: Properties,
    /// The XID of a client's first message; never zero.
    pub first_xid: u32,
    /// What a Call may carry.
    pub chunks: ChunkLimits,
    /// How long the peer may take until the first message of it has arrived.
    pub setup_timeout: Duration,
}

/// What we accept in the chunk lists of one Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLimits {
    /// Read chunks.
    pub read_chunks_max: u32,
    /// Write chunks.
    pub write_chunks_max: u32,
    /// Segments in any one chunk.
    pub segments_max: u32,
}

impl ChunkLimits {
    /// Returns what to answer to a Call that asks for more.
    fn check(&self, call: &CallInline<'_>) -> Result<(), ErrorBody> {
        // [V2-7.3.1-1] [V2-7.3.1-2] [V2-7.3.2-1] [V2-7.3.3-1] say how much there may be, even if it is
        // nothing.
        if call.reads.chunk_count() > self.read_chunks_max {
            return Err(ErrorBody::ReadChunks { max: self.read_chunks_max });
        }
        if call.writes.chunk_count() > 0 && self.write_chunks_max == 0 {
            // [V2-7.3.2-3] but where no Write chunk can be handled at all, the Reply is what does not
            // fit. How long it would be is not known.
            return Err(ErrorBody::ReplyResource { length_needed: 0 });
        }
        if call.writes.chunk_count() > self.write_chunks_max {
            return Err(ErrorBody::WriteChunks { max: self.write_chunks_max });
        }
        let reads = call.reads.chunks().map(|chunk| chunk.segment_count());
        let mut counts = reads.chain(call.writes.chunks().map(|chunk| chunk.segments().len()));
        if counts.any(|count| u32::try_from(count).is_ok_and(|c| c > self.segments_max)) {
            return Err(ErrorBody::Segments { max: self.segments_max });
        }
        Ok(())
    }
}

/// Everything that can happen to a connection.
#[derive(Debug)]
pub enum Input<'a> {
    /// The queue pair carries messages now.
    Established,
    /// A Receive completed; this is what it held.
    Received(&'a Result<Message<'a>, HeaderFault>),
    /// The caller has no more messages for the moment: what waits for company may leave alone.
    Idle,
    /// The deadline last returned by [`Connection::poll_deadline`] has passed.
    Deadline,
}

/// Everything a connection can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Encode and post this control message, in this order, before any message asked for later.
    Post(Control),
    /// Tell the application.
    Event(Event),
    /// Close the connection and destroy every registration of it.
    Close(CloseReason),
}

/// A message without RPC payload, ready to be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Names the message it answers; zero for a Grant.
    pub xid: u32,
    /// The version word: ours, except where the peer's must be echoed.
    pub vers: u32,
    /// The credit word.
    pub credit: u32,
    /// What it says.
    pub body: ControlBody,
}

/// What a control message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlBody {
    /// `RDMA2_GRANT`.
    Grant,
    /// `RDMA2_ERROR`.
    Error(ErrorBody),
    /// `RDMA2_CONNPROP_FINAL` with our own properties, which the caller configured.
    Properties,
}

/// Something the application wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Calls may be made; these are the peer's properties.
    Ready(Properties),
    /// The message just received is an acceptable Call; a Reply or an error is owed.
    Call,
    /// The message just received is a Reply.
    Reply,
    /// The Call with this XID, if it is ours, gets no Reply.
    Refused {
        /// Of the Call.
        xid: u32,
        /// What the peer said, or `BadXdr` where its Reply could not be parsed.
        error: ErrorBody,
    },
}

/// Why a connection closes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The peer did not send its first message in time.
    SetupTimedOut,
    /// The peer does not speak version 2; it named the versions it speaks.
    Unsupported {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// The peer's credit word is beyond anything it can mean.
    ImplausibleCredit,
    /// The peer sends more messages than it has credits for.
    CreditOverrun,
    /// The peer provokes errors and grants no credit to report them.
    TooManyErrors,
    /// The peer refused our first message.
    SetupRefused,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetupTimedOut => f.write_str("the peer did not send its properties in time"),
            Self::Unsupported { low, high } => {
                write!(f, "the peer speaks RPC-over-RDMA version {low} to {high}, we speak 2")
            }
            Self::ImplausibleCredit => f.write_str("the peer sent an implausible credit limit"),
            Self::CreditOverrun => {
                f.write_str("the peer sent more messages than it has credits for")
            }
            Self::TooManyErrors => f.write_str("the peer provokes errors without granting credit"),
            Self::SetupRefused => f.write_str("the peer refused our properties"),
        }
    }
}

/// One RPC-over-RDMA version 2 connection.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    phase: Phase,
    credits: Credits,
    /// Whether the peer's `RDMA2_CONNPROP_FINAL` has arrived.
    properties_received: bool,
    deadline: Option<Instant>,
    /// Control messages that wait for credit.
    controls: Ring<(u32, u32, ControlBody), CONTROLS_MAX>,
    outputs: Ring<Output, OUTPUTS_MAX>,
}

/// How far setup has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The queue pair is not up.
    New,
    /// Waiting for the peer's first message.
    Setup,
    /// Open for RPC messages.
    Open,
    /// Closed; every input is ignored.
    Closed,
}

impl From<CreditFault> for CloseReason {
    fn from(fault: CreditFault) -> Self {
        match fault {
            CreditFault::Implausible => Self::ImplausibleCredit,
            CreditFault::Overrun => Self::CreditOverrun,
        }
    }
}

impl Connection {
    /// Makes a connection whose queue pair is not up yet.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            phase: Phase::New,
            credits: Credits::new(),
            properties_received: false,
            deadline: None,
            controls: Ring::new(),
            outputs: Ring::new(),
        }
    }

    /// Applies one input. The caller must drain [`Self::poll`] before the next one.
    pub fn handle(&mut self, now: Instant, input: Input<'_>) {
        if self.phase == Phase::Closed {
            if matches!(input, Input::Received(_)) {
                // It used a Receive like any other, which the caller is still to be told of.
                let _ = self.credits.on_ignored(false);
            }
            return;
        }
        debug_assert!(self.outputs.is_empty(), "drain poll() before handle()");
        match input {
            Input::Established => self.on_established(now),
            Input::Received(Ok(message)) => self.on_message(message),
            Input::Received(Err(fault)) => self.on_fault(fault),
            Input::Idle => self.on_idle(),
            Input::Deadline => self.on_deadline(now),
        }
    }

    /// Returns the next output, or `None` once the connection is quiescent.
    ///
    /// A control message takes its credit word here, so Receives reserved since the input count.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop().or_else(|| self.next_control().map(Output::Post))
    }

    /// Asks to post one RPC message now. Returns its credit word, or `None` while credits are short:
    /// ask again after the next input.
    pub fn try_send(&mut self, class: Class) -> Option<u32> {
        // [V2-4.3-1] nothing but the first message before both ends know each other.
        // [V2-4.2.1-5] never post beyond the peer's credits.
        self.may_send(class).then(|| self.credits.on_sent(class))
    }

    /// Returns whether one RPC message could be posted now.
    pub fn may_send(&self, class: Class) -> bool {
        self.phase == Phase::Open && self.credits.may_send(class)
    }

    /// Reserves `count` more Receives for the peer.
    pub const fn reserve(&mut self, count: u32) {
        self.credits.reserve(count);
    }

    /// Answers a Call that cannot be acted upon, in place of its Reply. The answer waits for
    /// [`Self::poll`], and only so many may wait: poll soon.
    pub fn refuse(&mut self, xid: u32, error: ErrorBody) {
        self.credits.owed_done();
        self.control(xid, VERSION, ControlBody::Error(error));
    }

    /// Returns when to call [`Self::handle`] with [`Input::Deadline`].
    pub const fn poll_deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns the Receives that are reserved for the peer and not yet used, modulo 2^32: a peer that
    /// was closed for an overrun has used more than that.
    pub const fn reserved(&self) -> u32 {
        self.credits.reserved_outstanding()
    }

    /// Returns how many received Calls await a Reply or an error.
    pub const fn owed(&self) -> u32 {
        self.credits.owed()
    }

    /// Returns what we tell the peer about ourselves.
    pub const fn properties(&self) -> &Properties {
        &self.config.properties
    }

    fn on_established(&mut self, now: Instant) {
        self.phase = Phase::Setup;
        self.deadline = Some(now.saturating_add(self.config.setup_timeout));
        if self.config.role == Role::Client {
            // [V2-4.3-2] it has 80 octets. [V2-4.3.3-2] its version is that of all that follow.
            self.control(self.config.first_xid, VERSION, ControlBody::Properties);
        }
    }

    fn on_message(&mut self, message: &Message<'_>) {
        if let Message::Error { error: ErrorBody::Vers { low, high }, .. } = *message {
            // P6: its credit word is not version 2's. [V2-7.1.1-3] a version the peer does not speak
            // is not used again.
            let _ = self.credits.on_ignored(false);
            return self.close(CloseReason::Unsupported { low, high });
        }
        let is_grant = matches!(message, Message::Grant { .. });
        if let Err(fault) = self.credits.on_received(message.prefix().credit, is_grant) {
            return self.close(fault.into());
        }
        match message {
            Message::Grant { .. } => self.opened(None),
            Message::ConnProp(ConnProp { prefix, last: true, set }) => {
                self.on_properties(prefix.xid, &set.properties());
            }
            Message::Error { prefix, error } => self.on_error(prefix.xid, *error),
            Message::CallInline(call) => {
                self.opened(None);
                self.credits.owe();
                match self.config.chunks.check(call) {
                    Ok(()) => self.outputs.push(Output::Event(Event::Call)),
                    // [V2-7.3.1-3] the caller hears nothing of it.
                    Err(error) => self.refuse(call.prefix.xid, error),
                }
            }
            Message::ReplyInline(_) => self.outputs.push(Output::Event(Event::Reply)),
            Message::ReplyExternal(_) | Message::ReplyMiddle(_) => {
                let refused =
                    Event::Refused { xid: message.prefix().xid, error: ErrorBody::BadXdr };
                self.outputs.push(Output::Event(refused));
            }
            Message::ConnProp(_) | Message::CallExternal(_) | Message::CallMiddle(_) => {
                let invalid = ControlBody::Error(ErrorBody::InvalHtype);
                self.control(message.prefix().xid, VERSION, invalid);
            }
        }
    }

    fn on_properties(&mut self, xid: u32, theirs: &Properties) {
        if self.properties_received {
            // [V2-6.3.4-1] nothing follows a FINAL.
            return self.control(xid, VERSION, ControlBody::Error(ErrorBody::InvalCont));
        }
        self.properties_received = true;
        if self.config.role == Role::Server {
            // [V2-4.3.3-1] in the version the client spoke, as all that follows.
            self.control(xid, VERSION, ControlBody::Properties);
        }
        self.opened(Some(*theirs));
    }

    fn on_error(&mut self, xid: u32, error: ErrorBody) {
        if self.phase == Phase::Setup {
            self.close(CloseReason::SetupRefused);
        } else {
            // [V2-7.3.1-4] [V2-7.3.2-2] [V2-7.3.3-2] [V2-7.3.4-4] [V2-7.3.5-3] [V2-7.4.1-3] the Call
            // ends; nothing is sent again.
            self.outputs.push(Output::Event(Event::Refused { xid, error }));
        }
    }

    fn on_fault(&mut self, fault: &HeaderFault) {
        // A Receive was used up whatever it held; its credit word counts if it is version 2's.
        let counted = match fault.credit {
            Some(credit) => self.credits.on_received(credit, false),
            None => self.credits.on_ignored(false),
        };
        if let Err(fault) = counted {
            return self.close(fault.into());
        }
        if let Some(xid) = fault.failed_call() {
            // E13: a malformed Reply fails the Call here; the peer is not told.
            let refused = Event::Refused { xid, error: ErrorBody::BadXdr };
            return self.outputs.push(Output::Event(refused));
        }
        let (Some(prefix), Some(report)) = (fault.prefix, fault.report) else { return };
        let report = match report {
            // [V2-7.1.2-1] another version than the one this connection has settled on.
            ErrorBody::Vers { .. } if self.phase == Phase::Open => ErrorBody::VersMismatch,
            other => other,
        };
        // [V2-7.1.1-2] [V2-7.1.2-2] [V2-7.1.3-2] [V2-7.2.1-2] [V2-7.2.2-2] nothing but this answer comes
        // of it. [V2-7-2] [V2-7-3] the answer names the request and echoes its version.
        self.control(prefix.xid, prefix.vers, ControlBody::Error(report));
    }

    fn on_idle(&mut self) {
        // P5: refresh before half the limit is spent, unless another message carried it already.
        if self.phase == Phase::Open && self.credits.wants_grant() {
            let credit = self.credits.on_sent(Class::Grant);
            // [V2-6.3.2-1] a Grant has no XID.
            let grant = Control { xid: 0, vers: VERSION, credit, body: ControlBody::Grant };
            self.outputs.push(Output::Post(grant));
        }
    }

    fn on_deadline(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.close(CloseReason::SetupTimedOut);
        }
    }

    /// Opens the connection at the peer's first acceptable message. A client waits for properties.
    fn opened(&mut self, theirs: Option<Properties>) {
        let settled = theirs.is_some() || self.config.role == Role::Server;
        if self.phase == Phase::Setup && settled {
            self.phase = Phase::Open;
            self.deadline = None;
            // [V2-4.2.2-1] defaults hold where the peer said nothing.
            self.outputs.push(Output::Event(Event::Ready(theirs.unwrap_or_default())));
        } else if let Some(theirs) = theirs {
            self.outputs.push(Output::Event(Event::Ready(theirs)));
        }
    }

    fn control(&mut self, xid: u32, vers: u32, body: ControlBody) {
        if !self.controls.try_push((xid, vers, body)) {
            // [V2-7.4-2] what can be neither answered nor kept ends the connection.
            self.close(CloseReason::TooManyErrors);
        }
    }

    fn next_control(&mut self) -> Option<Control> {
        if self.phase == Phase::Closed || !self.credits.may_send(Class::Control) {
            return None;
        }
        let (xid, vers, body) = self.controls.pop()?;
        let credit = self.credits.on_sent(Class::Control);
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

/// A first-in, first-out queue of fixed capacity, held in place.
#[derive(Debug)]
struct Ring<T, const N: usize> {
    items: [Option<T>; N],
    head: usize,
    count: usize,
}

impl<T: Copy, const N: usize> Ring<T, N> {
    const fn new() -> Self {
        Self { items: [None; N], head: 0, count: 0 }
    }

    fn try_push(&mut self, item: T) -> bool {
        if self.is_full() {
            return false;
        }
        let at = self.head.wrapping_add(self.count).checked_rem(N).unwrap_or_default();
        if let Some(place) = self.items.get_mut(at) {
            *place = Some(item);
            self.count = self.count.saturating_add(1);
        }
        true
    }

    fn push(&mut self, item: T) {
        let pushed = self.try_push(item);
        debug_assert!(pushed, "one input asks for no more than fits");
    }

    fn pop(&mut self) -> Option<T> {
        let item = self.items.get_mut(self.head)?.take()?;
        self.head = self.head.wrapping_add(1).checked_rem(N).unwrap_or_default();
        self.count = self.count.saturating_sub(1);
        Some(item)
    }

    fn clear(&mut self) {
        while self.pop().is_some() {}
    }

    const fn is_empty(&self) -> bool {
        self.count == 0
    }

    const fn is_full(&self) -> bool {
        self.count >= N
    }
}

/// Control messages that may wait for credit: our properties, and answers to bad messages.
const CONTROLS_MAX: usize = 8;

/// Outputs of one input, control messages apart: an event and a grant, or a close.
const OUTPUTS_MAX: usize = 2;

#[cfg(test)]
mod tests;
