//! The gate that every outgoing RPC message passes: it checks that the message is allowed and that
//! it is its turn.
//!
//! # Normal operation
//! A continued message is posted only once credits for all its parts are available (E12), so it may have to wait while
//! shorter messages would not. Then later messages of its own kind wait as well, and all Calls wait behind a Reply.
//! Replies pass a waiting Call, because its credits may be held by Calls that the peer cannot end without these Replies
//! (P2).
//!
//! # Limits
//! The longest message is bounded by the credits that are sure to become available. A well-behaved receiver advertises
//! free Receives before half of its limit is spent (section 4.2.1.1), so a waiting sender can rely on half of the
//! credits. Unanswered Calls of this end may hold Receives: a Call waits until the peer has answered enough of them, but a
//! Reply cannot, because the answers may depend on it. The peer may reduce its grant without notice
//! (P1). What is left while messages are on their way does not show that, nor does a peer that goes on to send: only
//! once the peer has allowed no more for [`PATIENCE`], the credits that are left count.

use core::time::Duration;

use crate::chunk::Format;
use crate::time::Instant;
use crate::v2::connection::config::Config;
use crate::v2::continuation::Kind;
use crate::v2::credit::{Class, Credits, reserved_for};
use crate::v2::reverse::Level;

/// The description of an RPC message that is ready to be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// Whether the message is a Call or a Reply.
    pub kind: Kind,
    /// The format of the message.
    pub format: Format,
    /// Whether the header has any chunk.
    pub has_chunks: bool,
    /// Whether the message is a Call that gets no Reply.
    pub is_call_only: bool,
}

/// Why an RPC message cannot be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unsent {
    /// The message must wait. Call again after the next input, or once a Call of the peer, for whose Reply a credit was
    /// kept, is [refused](super::Connection::refuse) or [gets no Reply](super::Connection::no_reply); or abandon the
    /// message with [`give_up`](super::Connection::give_up), so that others need not wait for it.
    Wait,
    /// The RPC message takes more transport messages than the peer is sure to grant credits for.
    TooLong {
        /// The most transport messages of one RPC message.
        messages_max: u32,
    },
    /// The receiving end did not announce support for this message in the reverse direction.
    NotAnnounced,
    /// The message is a Call that gets no Reply, and has chunks.
    ChunksWithoutReply,
    /// The peer reported that it does not support the header type.
    NotSupported,
}

impl Sending {
    /// A Call in Simple format, without chunks.
    pub const CALL: Self =
        Self { kind: Kind::Call, format: Format::Simple, has_chunks: false, is_call_only: false };

    /// A Reply in Simple format, without chunks.
    pub const REPLY: Self = Self { kind: Kind::Reply, ..Self::CALL };

    const fn messages(&self) -> u32 {
        match self.format {
            Format::Continued { messages } if messages > 0 => messages,
            _ => 1,
        }
    }

    pub(super) const fn class(&self) -> Class {
        match self.kind {
            Kind::Call => Class::Call,
            Kind::Reply => Class::Reply,
        }
    }
}

/// The state of the gate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gate {
    /// The number of transport messages of the continued Call that waits for credits; zero if none
    /// waits.
    waiting_call: u32,
    /// The number of transport messages of the continued Reply that waits for credits; zero if none
    /// waits.
    waiting_reply: u32,
    /// The most credits that were left while a continued message has waited, less those that other messages have used
    /// meanwhile.
    left_most: u32,
    /// The time since which no more were left; `None` if that is still to be seen.
    stalled_since: Option<Instant>,
    /// The number of this end's Calls that await a Reply.
    unanswered: u32,
    /// The formats that the peer refused, as bits.
    refused: u8,
    /// Whether Calls leave half of the credits.
    is_shared: bool,
}

impl Gate {
    /// Makes the gate of an end that has passed nothing, and whose Calls leave half of the credits if it `shares` them.
    pub(super) fn new(config: &Config) -> Self {
        Self { is_shared: config.shares_credits, ..Self::default() }
    }

    /// Takes the credits of a message and returns its credit word, or the reason why it cannot be
    /// posted.
    pub(super) fn pass(
        &mut self,
        sending: &Sending,
        level: Level,
        credits: &mut Credits,
    ) -> Result<u32, Unsent> {
        self.allow(sending, level)?;
        let (class, messages) = (sending.class(), sending.messages());
        let is_turn = self.is_turn(sending.kind, messages);
        if !is_turn || !sending.is_call_only && !self.has_room(sending.kind, credits) {
            return Err(Unsent::Wait);
        }
        //~ V2-4.2.1-5: `messages` -> `1`
        if !credits.may_send_all(class, messages) {
            let messages_max = self.messages_max(sending.kind, credits);
            if messages > messages_max {
                self.give_up(sending.kind);
                return Err(Unsent::TooLong { messages_max });
            }
            if messages > 1 && *self.waiting(sending.kind) == 0 {
                *self.waiting(sending.kind) = messages;
                (self.left_most, self.stalled_since) = (credits.left_max(), None);
            }
            return Err(Unsent::Wait);
        }
        *self.waiting(sending.kind) = 0;
        self.left_most = self.left_most.saturating_sub(messages);
        if !sending.is_call_only {
            self.on_passed(class, 1);
        }
        Ok(credits.on_all_sent(class, messages))
    }

    /// Returns whether messages in Simple format may be posted as soon as there is credit.
    #[inline]
    pub(super) const fn is_open(&self) -> bool {
        //~ V2-7.1.3-3: ` && self.refused == 0` -> ``
        self.waiting_call | self.waiting_reply == 0 && self.refused == 0
    }

    /// Counts messages that were posted.
    #[inline]
    pub(super) const fn on_passed(&mut self, class: Class, messages: u32) {
        if matches!(class, Class::Call) {
            self.unanswered = self.unanswered.saturating_add(messages);
        }
    }

    /// Checks the conditions that do not change by waiting.
    pub(super) fn allow(&self, sending: &Sending, level: Level) -> Result<(), Unsent> {
        // [V2-4.7-1] without a Reply, nothing tells when the chunks are no longer in use.
        if sending.is_call_only && (sending.has_chunks || sending.format == Format::Special) {
            return Err(Unsent::ChunksWithoutReply);
        }
        // [V2-4.6.3-1] send nothing that the other end has not announced to take.
        let announced =
            if sending.has_chunks { level.allows_chunks() } else { level.allows(sending.format) };
        //~ V2-4.6.3-1: `!announced` -> `false`
        if !announced {
            return Err(Unsent::NotAnnounced);
        }
        // [V2-7.1.3-3] a header type that was refused is not sent again.
        if sending.kind == Kind::Call && self.refused & bit(sending.format) != 0 {
            return Err(Unsent::NotSupported);
        }
        Ok(())
    }

    /// Returns whether [`Self::pass`] would decide about the message of this kind that waits for credits, or, if none does,
    /// about one in one transport message.
    pub(super) fn decides(&self, kind: Kind, credits: &Credits) -> bool {
        let (class, waiting) = match kind {
            Kind::Call => (Class::Call, self.waiting_call),
            Kind::Reply => (Class::Reply, self.waiting_reply),
        };
        let messages = waiting.max(1);
        let is_possible =
            credits.may_send_all(class, messages) || messages > self.messages_max(kind, credits);
        self.is_turn(kind, messages) && self.has_room(kind, credits) && is_possible
    }

    /// Returns whether no waiting message has to be posted first.
    pub(super) const fn is_turn(&self, kind: Kind, messages: u32) -> bool {
        match kind {
            Kind::Reply => self.waiting_reply == 0 || self.waiting_reply == messages,
            Kind::Call => {
                let is_own = self.waiting_call == 0 || self.waiting_call == messages;
                self.waiting_reply == 0 && is_own
            }
        }
    }

    /// Returns whether this end has few enough unanswered Calls for another one. Where both ends call, Calls that took all
    /// credits would never let the peer's pass, because these leave credits for the Replies (P2).
    pub(super) fn has_room(&self, kind: Kind, credits: &Credits) -> bool {
        kind == Kind::Reply || !self.is_shared || self.unanswered < credits.calls_max()
    }

    /// Returns the fewest Receives that the peer should have because of the unanswered Calls, where both ends call.
    #[inline]
    pub(super) const fn reserved_for_calls(&self) -> u32 {
        if self.is_shared { reserved_for(self.unanswered) } else { 0 }
    }

    /// Returns whether a continued message waits for its credits.
    pub(super) const fn waits(&self) -> bool {
        self.waiting_call != 0 || self.waiting_reply != 0
    }

    /// Notes, while a continued message waits, how many credits are left.
    pub(super) const fn on_left(&mut self, now: Instant, left: u32) {
        if left > self.left_most || self.stalled_since.is_none() {
            self.stalled_since = Some(now);
        }
        if left > self.left_most {
            self.left_most = left;
        }
    }

    /// Begins to wait anew for more credits.
    pub(super) const fn restart(&mut self) {
        self.stalled_since = None;
    }

    /// Returns the time at which a continued message that waits has waited too long; at once, if its time has not begun.
    pub(super) fn deadline(&self) -> Instant {
        self.stalled_since.map_or(Instant::ZERO, |since| since.saturating_add(PATIENCE))
    }

    /// Returns whether a continued message has waited too long.
    pub(super) fn has_stalled(&self, now: Instant) -> bool {
        self.waits() && self.stalled_since.is_some() && self.deadline() <= now
    }

    /// Returns the most transport messages of one RPC message, at least one.
    pub(super) fn messages_max(&self, kind: Kind, credits: &Credits) -> u32 {
        // When the peer falls silent, more than half of the credits are left; a Call leaves one of them (P2).
        match kind {
            Kind::Call => (credits.window() / 2).max(1),
            Kind::Reply => (credits.window().saturating_sub(self.unanswered) / 2).saturating_add(1),
        }
    }

    /// Forgets the waiting message of this kind.
    pub(super) const fn give_up(&mut self, kind: Kind) {
        *self.waiting(kind) = 0;
    }

    /// Counts Calls of this end that have ended.
    #[inline]
    pub(super) const fn on_answered(&mut self, calls: u32) {
        self.unanswered = self.unanswered.saturating_sub(calls);
    }

    /// Undoes the counting of Calls of this end as ended.
    pub(super) const fn on_reopened(&mut self, calls: u32) {
        self.unanswered = self.unanswered.saturating_add(calls);
    }

    /// Records that the peer does not support the header type of a Call in this format.
    pub(super) const fn on_not_supported(&mut self, format: Format) {
        //~ V2-7.1.3-3: `|=` -> `&=`
        self.refused |= match format {
            // The last message of a continued Call is of the same header type as a simple Call.
            Format::Simple => bit(format) | bit(Format::Continued { messages: 2 }),
            _ => bit(format),
        };
    }

    const fn waiting(&mut self, kind: Kind) -> &mut u32 {
        match kind {
            Kind::Call => &mut self.waiting_call,
            Kind::Reply => &mut self.waiting_reply,
        }
    }
}

/// The time that a continued message waits although the peer allows no more messages. A peer that has credits to grant does
/// so within a round trip.
const PATIENCE: Duration = Duration::from_secs(1);

/// Returns the bit of a format among the refused ones.
const fn bit(format: Format) -> u8 {
    match format {
        Format::Simple => 1,
        Format::Continued { .. } => 2,
        Format::Special => 4,
    }
}
