//! The short way through a connection, for the messages that most are.

use super::{Connection, Phase, Role};
use crate::time::Instant;
use crate::v2::continuation::Kind;
use crate::v2::header::{Bare, Message};

impl Connection {
    /// Takes a Call or a Reply without chunks if nothing is out of the ordinary: the connection is
    /// open, no message is in pieces, no extension is in use, and its credit word is in order. Then it
    /// is what [`Self::handle`] would have told by [`Event::Call`](super::Event::Call) or
    /// [`Event::Reply`](super::Event::Reply), and there is nothing to [`poll`](Self::poll) because of
    /// it, but what waited for credit.
    ///
    /// Returns whether it was taken; if not, nothing has happened, and the message goes to `handle`.
    #[inline]
    pub fn take(&mut self, now: Instant, message: &Bare) -> bool {
        self.take_in_order(now, message.kind, message.credit)
    }

    /// Takes a Call or a Reply that is all in one message, whatever its chunks, as [`Self::take`] does:
    /// if those of a Call are served here. Returns which of them it is.
    pub fn take_whole(&mut self, now: Instant, message: &Message<'_>) -> Option<Kind> {
        let is_whole = matches!(
            message,
            Message::CallInline(_)
                | Message::CallExternal(_)
                | Message::ReplyInline(_)
                | Message::ReplyExternal(_)
        );
        let prefix = message.prefix();
        let kind = Kind::of(prefix).filter(|_| is_whole && self.serves_whole(message).is_ok())?;
        self.take_in_order(now, kind, prefix.credit).then_some(kind)
    }

    #[inline]
    fn take_in_order(&mut self, now: Instant, kind: Kind, credit: u32) -> bool {
        // A client takes Calls in the reverse direction only, where more is to be looked at.
        let is_served = kind == Kind::Reply || self.config.role == Role::Server;
        let is_plain = is_served
            && self.phase == Phase::Open
            && self.outputs.is_empty()
            && self.setup.is_over()
            && self.incoming.is_idle()
            && self.extension.is_none()
            && self.credits.is_in_order(credit);
        if !is_plain {
            return false;
        }
        let counted = self.credits.on_received(credit, false);
        debug_assert!(counted.is_ok(), "it was in order");
        self.heard = now;
        match kind {
            Kind::Call => self.credits.owe(),
            Kind::Reply => self.gate.on_answered(),
        }
        true
    }
}
