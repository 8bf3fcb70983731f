//! Runs of messages: several Calls or Replies without chunks, received or sent at once.

use super::config::CallLimits;
use super::{Class, Connection, Phase, Role};
use crate::v1::credit::LentReplies;
use crate::v2::continuation::Kind;
use crate::v2::header::Unchunked;

/// Credits for several messages of one class, all with one credit word. The caller passes the number of messages posted
/// to [`Connection::settle`] before the next input.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lent {
    /// The number of messages that may be posted.
    pub count: u32,
    /// The credit word of each message.
    pub word: u32,
    /// The credits that the peer had before the grant.
    pub granted_before: u32,
}

impl Connection {
    /// Receives a run of Calls or Replies without chunks, or of Calls with one chunk that [`Self::chunk_max`] allows. It
    /// accepts messages only in the ordinary case: the connection is open, the messages are in the forward direction, no error waits to be sent, and the RFC 5666 profile is not
    /// in use. For each accepted message [`Self::handle`] would have reported [`Event::Call`](super::Event::Call) or
    /// [`Event::Reply`](super::Event::Reply) and no other output.
    ///
    /// Returns the number of messages accepted, from the front of the run; all are of this `kind`. The rest of the run
    /// has had no effect. A caller that cannot act on an accepted message undoes it with [`Self::put_back`] and passes
    /// it to `handle`.
    #[doc(hidden)]
    #[inline]
    pub fn take(&mut self, kind: Kind, run: impl IntoIterator<Item = Unchunked>) -> u32 {
        if !self.is_plain(kind) {
            return 0;
        }
        let words = run.into_iter().take_while(|message| message.kind == kind);
        let words = words.map(|message| message.credit);
        match kind {
            // The credit word of a Call is only a wish: our Receives decide how many credits are granted.
            Kind::Call => {
                let count = words.count();
                self.credits.on_calls(u32::try_from(count).unwrap_or(u32::MAX))
            }
            Kind::Reply => self.credits.on_answers(words),
        }
    }

    /// Returns the longest single chunk of a Call, of one segment, that [`Self::take`] accepts at a server: a Read
    /// chunk, and a Write chunk. Zero means that there may be none.
    #[doc(hidden)]
    #[inline]
    pub fn chunk_max(&self) -> [u32; 2] {
        let CallLimits { read_chunks_max, write_chunks_max, segments_max } = self.config.calls;
        let allows = segments_max > 0 && self.config.profile.is_none();
        let longest = |chunks_max| if allows && chunks_max > 0 { u32::MAX } else { 0 };
        [longest(read_chunks_max), longest(write_chunks_max)]
    }

    /// Undoes the receipt of the last `count` messages that [`Self::take`] accepted, except for the effect of their
    /// credit words.
    #[doc(hidden)]
    #[cold]
    pub const fn put_back(&mut self, kind: Kind, count: u32) {
        match kind {
            Kind::Call => self.credits.put_back_calls(count),
            Kind::Reply => self.credits.put_back_answers(count),
        }
    }

    /// Takes credits for at most `count` RPC messages of this class, each under the conditions of
    /// [`Self::try_send`].
    #[doc(hidden)]
    #[inline]
    pub fn lend(&mut self, class: Class, count: u32) -> Lent {
        let is_open = self.phase == Phase::Open && self.errors.is_empty();
        match class {
            //~ R8167-6-1: ` && self.may_call()` -> ``
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

    /// Settles a grant, of which `posted` messages were posted, and returns the credits of the
    /// others.
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

    /// Returns the number of Replies that could be posted now.
    #[inline]
    pub fn replies_left(&self) -> u32 {
        if self.phase == Phase::Open { self.credits.answers_left() } else { 0 }
    }

    /// Returns whether the connection needs no attention: [`poll`](Self::poll) would return `None`,
    /// and no deadline is set.
    #[inline]
    pub fn is_at_rest(&self) -> bool {
        self.outputs.is_empty() && self.errors.is_empty() && self.held.is_none()
    }

    /// Returns whether a message of this kind without chunks has no output except its own event.
    #[inline]
    fn is_plain(&self, kind: Kind) -> bool {
        // Messages of the reverse direction (RFC 8167) need more checks.
        let is_forward = (kind == Kind::Call) == (self.config.role == Role::Server);
        is_forward && self.phase == Phase::Open && self.is_at_rest()
    }
}
