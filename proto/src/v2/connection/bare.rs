//! The short way through a connection, for the messages that most are.

use super::{Connection, Phase, Role};
use crate::time::Instant;
use crate::v2::continuation::Kind;
use crate::v2::header::Bare;

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
        // A client takes Calls in the reverse direction only, where more is to be looked at.
        let is_served = message.kind == Kind::Reply || self.config.role == Role::Server;
        let is_plain = is_served
            && self.phase == Phase::Open
            && self.outputs.is_empty()
            && self.setup.is_over()
            && self.incoming.is_idle()
            && self.extension.is_none()
            && self.credits.is_in_order(message.credit);
        if !is_plain {
            return false;
        }
        let counted = self.credits.on_received(message.credit, false);
        debug_assert!(counted.is_ok(), "it was in order");
        self.heard = now;
        match message.kind {
            Kind::Call => self.credits.owe(),
            Kind::Reply => self.gate.on_answered(),
        }
        true
    }
}
