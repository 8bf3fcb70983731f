//! Messages in runs: several Calls or Replies without chunks, counted at once.

use super::{Class, Connection, Phase, Role};
use crate::v1::credit::LentReplies;
use crate::v2::continuation::Kind;
use crate::v2::header::Bare;

/// Messages of one class that may be posted now, all with one credit word. [`Connection::settle`] is to be told how
/// many were, before anything else is made known to the connection.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lent {
    /// Messages that may be posted.
    pub count: u32,
    /// The credit word of each.
    pub word: u32,
    /// The credits that the peer had before.
    pub granted_before: u32,
}

impl Connection {
    /// Takes Calls or Replies without chunks, one behind the other, if nothing is out of the ordinary: the connection
    /// is open, they go the usual way, no answer to an earlier Call waits, and the profile of RFC 5666 is not in use.
    /// Then each is what [`Self::handle`] would have told by [`Event::Call`](super::Event::Call) or
    /// [`Event::Reply`](super::Event::Reply), and there is nothing to [`poll`](Self::poll) because of it.
    ///
    /// Returns how many were taken: of the first ones, which are of this kind. With the others nothing has happened.
    /// What cannot be acted upon after all, [`Self::put_back`] and then `handle` are for.
    #[doc(hidden)]
    #[inline]
    pub fn take(&mut self, kind: Kind, run: impl IntoIterator<Item = Bare>) -> u32 {
        if !self.is_plain(kind) {
            return 0;
        }
        let words = run.into_iter().take_while(|message| message.kind == kind);
        let words = words.map(|message| message.credit);
        match kind {
            // What a Call asks for is a wish; what it is granted follows our Receives.
            Kind::Call => {
                let count = words.count();
                self.credits.on_calls(u32::try_from(count).unwrap_or(u32::MAX))
            }
            Kind::Reply => self.credits.on_answers(words),
        }
    }

    /// Takes back that the last `count` messages, which [`Self::take`] took, have been received. What their credit
    /// words said remains.
    #[doc(hidden)]
    #[cold]
    pub const fn put_back(&mut self, kind: Kind, count: u32) {
        match kind {
            Kind::Call => self.credits.put_back_calls(count),
            Kind::Reply => self.credits.put_back_answers(count),
        }
    }

    /// Asks to post at most `count` RPC messages of this class now, each as of [`Self::try_send`].
    #[doc(hidden)]
    #[inline]
    pub fn lend(&mut self, class: Class, count: u32) -> Lent {
        let is_open = self.phase == Phase::Open && self.errors.is_empty();
        match class {
            Class::Call if is_open && self.may_call() => {
                let (count, word) = (self.credits.lend_calls(count), self.credits.wanted());
                Lent { count, word, granted_before: 0 }
            }
            Class::Reply if is_open => {
                let LentReplies { count, word, granted_before } = self.credits.lend_replies(count);
                Lent { count, word, granted_before }
            }
            _ => Lent { count: 0, word: 0, granted_before: 0 },
        }
    }

    /// Tells how many of the lent messages were posted.
    #[doc(hidden)]
    #[inline]
    pub fn settle(&mut self, class: Class, lent: Lent, posted: u32) {
        let Lent { count, word, granted_before } = lent;
        match class {
            Class::Call => self.credits.take_back_calls(count.saturating_sub(posted)),
            Class::Reply => {
                self.replied |= posted > 0;
                self.credits.settle_replies(LentReplies { count, word, granted_before }, posted);
            }
        }
    }

    /// Returns how many Replies could be posted now.
    #[inline]
    pub fn replies_left(&self) -> u32 {
        if self.phase == Phase::Open { self.credits.answers_left() } else { 0 }
    }

    /// Returns whether there is nothing to [`poll`](Self::poll), and no deadline.
    #[inline]
    pub fn is_at_rest(&self) -> bool {
        self.outputs.is_empty() && self.errors.is_empty() && self.held.is_none()
    }

    /// Returns whether a message of this kind without chunks is told to nobody but who takes it.
    #[inline]
    fn is_plain(&self, kind: Kind) -> bool {
        // The other direction is of RFC 8167, where more is to be looked at.
        let is_forward = (kind == Kind::Call) == (self.config.role == Role::Server);
        is_forward && self.phase == Phase::Open && self.is_at_rest()
    }
}
