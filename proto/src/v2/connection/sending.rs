//! The gate every RPC message passes on its way out: may it be sent at all, and is it its turn.
//!
//! # Normal operation
//! A message in several pieces leaves only when the credits for all of them are in hand (E12), so it
//! may have to wait while smaller ones would fit. Then they wait as well: of its own kind all that
//! ask later, and all Calls behind a Reply. Replies pass a waiting Call, because its credits may be
//! held by Calls that the peer cannot end without them (P2).
//!
//! # Limits
//! How long a message can be is what the peer's window is sure to allow again. A good receiver tells
//! of free Receives before half of its limit is spent (section 4.2.1.1), so half is what a sender that
//! waits can count on, less the Receives that its own unanswered Calls may hold. That is, unless the
//! window has shrunk meanwhile, which nobody says (P1): after a while without a word from the peer,
//! what is left counts as all there is.

use crate::chunk::Format;
use crate::v2::continuation::Kind;
use crate::v2::credit::{Class, Credits};
use crate::v2::reverse::Level;

/// An RPC message that is ready to leave, as far as the connection has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// What it is.
    pub kind: Kind,
    /// How it is conveyed.
    pub format: Format,
    /// Whether its header has a chunk of any kind.
    pub has_chunks: bool,
    /// Whether it is a Call that gets no Reply.
    pub is_call_only: bool,
}

/// Why an RPC message is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unsent {
    /// Not yet: ask again after the next input, or once a Call of the peer is
    /// [refused](super::Connection::refuse) or [gets no Reply](super::Connection::no_reply), for which a
    /// credit was kept. Or tell that it was given up ([`give_up`](super::Connection::give_up)), which lets
    /// others go.
    Wait,
    /// Not in so many messages: the peer's window is not sure to have room for more than these.
    TooLong {
        /// Messages.
        messages_max: u32,
    },
    /// The peer, or we ourselves, did not announce that in the reverse direction.
    NotAnnounced,
    /// A Call that gets no Reply has chunks.
    ChunksWithoutReply,
    /// The peer has said that it does not support the header type.
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

/// What the gate remembers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gate {
    /// Messages of the Call that waits for credits, if it takes several.
    waiting_call: u32,
    /// The same of a Reply.
    waiting_reply: u32,
    /// Calls of ours that await a Reply.
    unanswered: u32,
    /// Formats the peer refused, as bits.
    refused: u8,
}

impl Gate {
    /// Takes a message through, or says why not.
    pub(super) fn pass(
        &mut self,
        sending: &Sending,
        level: Level,
        credits: &mut Credits,
    ) -> Result<u32, Unsent> {
        self.allow(sending, level)?;
        let (class, messages) = (sending.class(), sending.messages());
        if !self.is_turn(sending.kind, messages) {
            return Err(Unsent::Wait);
        }
        if !credits.may_send_all(class, messages) {
            let messages_max = self.messages_max(sending.kind, credits);
            if messages > messages_max {
                self.give_up(sending.kind);
                return Err(Unsent::TooLong { messages_max });
            }
            if messages > 1 {
                *self.waiting(sending.kind) = messages;
            }
            return Err(Unsent::Wait);
        }
        *self.waiting(sending.kind) = 0;
        if !sending.is_call_only {
            self.on_passed(class, 1);
        }
        Ok(credits.on_all_sent(class, messages))
    }

    /// Returns whether messages in one piece pass as soon as there is credit.
    #[inline]
    pub(super) const fn is_open(&self) -> bool {
        self.waiting_call | self.waiting_reply == 0 && self.refused == 0
    }

    /// Counts messages that have passed.
    #[inline]
    pub(super) const fn on_passed(&mut self, class: Class, messages: u32) {
        if matches!(class, Class::Call) {
            self.unanswered = self.unanswered.saturating_add(messages);
        }
    }

    /// Checks what no waiting changes.
    pub(super) fn allow(&self, sending: &Sending, level: Level) -> Result<(), Unsent> {
        // [V2-4.7-1] nobody would say when they are not used any more.
        if sending.is_call_only && (sending.has_chunks || sending.format == Format::Special) {
            return Err(Unsent::ChunksWithoutReply);
        }
        // [V2-4.6.3-1] not before the other end has announced it, nor more than that.
        let announced =
            if sending.has_chunks { level.allows_chunks() } else { level.allows(sending.format) };
        if !announced {
            return Err(Unsent::NotAnnounced);
        }
        // [V2-7.1.3-3] what was refused is not sent again.
        if sending.kind == Kind::Call && self.refused & bit(sending.format) != 0 {
            return Err(Unsent::NotSupported);
        }
        Ok(())
    }

    /// Returns whether no other message waits that goes first.
    pub(super) const fn is_turn(&self, kind: Kind, messages: u32) -> bool {
        match kind {
            Kind::Reply => self.waiting_reply == 0 || self.waiting_reply == messages,
            Kind::Call => {
                let is_own = self.waiting_call == 0 || self.waiting_call == messages;
                self.waiting_reply == 0 && is_own
            }
        }
    }

    /// Returns whether a message in several pieces waits for its credits.
    pub(super) const fn waits(&self) -> bool {
        self.waiting_call != 0 || self.waiting_reply != 0
    }

    /// Returns how many messages one RPC message may take: one always does.
    pub(super) fn messages_max(&self, kind: Kind, credits: &Credits) -> u32 {
        let half = credits.window().saturating_sub(self.unanswered) / 2;
        // More than half is left whenever the peer falls silent; a Call leaves one (P2).
        match kind {
            Kind::Call => half.max(1),
            Kind::Reply => half.saturating_add(1),
        }
    }

    /// Forgets the message of this kind that waits.
    pub(super) const fn give_up(&mut self, kind: Kind) {
        *self.waiting(kind) = 0;
    }

    /// Counts Calls of ours that have ended.
    #[inline]
    pub(super) const fn on_answered(&mut self, calls: u32) {
        self.unanswered = self.unanswered.saturating_sub(calls);
    }

    /// Takes back that they have.
    pub(super) const fn on_reopened(&mut self, calls: u32) {
        self.unanswered = self.unanswered.saturating_add(calls);
    }

    /// Notes that the peer does not support what a Call in this format is made of.
    pub(super) const fn on_not_supported(&mut self, format: Format) {
        self.refused |= match format {
            // The last message of a continued Call is of the same type.
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

/// The bit of a format in what was refused.
const fn bit(format: Format) -> u8 {
    match format {
        Format::Simple => 1,
        Format::Continued { .. } => 2,
        Format::Special => 4,
    }
}
