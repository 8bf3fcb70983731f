//! The short way through a connection, for the messages that most are.

use super::{ChunkLimits, Connection, Phase, Role};
use crate::time::Instant;
use crate::v2::continuation::Kind;
use crate::v2::header::{Bare, Message};

impl Connection {
    /// Takes Calls or Replies without chunks, or with one that [`Self::chunk_max`] allows, one behind the
    /// other, if nothing is out of the ordinary: the connection is open, no message is in pieces,
    /// no extension is in use, and their credit words are in order. Then each is what [`Self::handle`] would
    /// have told by [`Event::Call`](super::Event::Call) or [`Event::Reply`](super::Event::Reply), and there
    /// is nothing to [`poll`](Self::poll) because of it, but what waited for credit.
    ///
    /// Returns how many were taken: of the first ones, which are of this kind. With the others nothing has
    /// happened. What cannot be acted upon after all, [`Self::put_back`] and then `handle` are for.
    #[doc(hidden)]
    #[inline]
    pub fn take(&mut self, now: Instant, kind: Kind, run: impl IntoIterator<Item = Bare>) -> u32 {
        if !self.is_plain(kind) {
            return 0;
        }
        let alike = run.into_iter().take_while(|message| message.kind == kind);
        let taken = self.credits.on_run(alike.map(|message| message.credit));
        self.count(now, kind, taken);
        taken
    }

    /// Returns how long the only chunk of a Call may be that a server takes so, if that is of one segment: a
    /// Read chunk, and a Write chunk. Zero if there may be none.
    #[doc(hidden)]
    #[inline]
    pub const fn chunk_max(&self) -> [u32; 2] {
        let ChunkLimits { read_chunks_max, write_chunks_max, segments_max } = self.config.chunks;
        let longest = if segments_max > 0 { self.config.properties.segment_size_max } else { 0 };
        [
            if read_chunks_max > 0 { longest } else { 0 },
            if write_chunks_max > 0 { longest } else { 0 },
        ]
    }

    /// Takes back that the last `count` messages, which [`Self::take`] took, have been received. What their
    /// credit words said remains.
    #[doc(hidden)]
    #[cold]
    pub fn put_back(&mut self, kind: Kind, count: u32) {
        self.credits.put_back(count);
        match kind {
            Kind::Call => self.credits.owed_done(count),
            Kind::Reply => self.gate.on_reopened(count),
        }
    }

    /// Takes a Call or a Reply that is all in one message, whatever its chunks, as [`Self::take`] does:
    /// if those of a Call are served here. Returns which of them it is.
    #[doc(hidden)]
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
        let taken = self.is_plain(kind) && self.credits.on_run([prefix.credit]) == 1;
        self.count(now, kind, u32::from(taken));
        taken.then_some(kind)
    }

    /// Returns whether a message of this kind, all in one piece, is told to nobody but who takes it.
    #[inline]
    fn is_plain(&self, kind: Kind) -> bool {
        // A client takes Calls in the reverse direction only, where more is to be looked at.
        let is_served = kind == Kind::Reply || self.config.role == Role::Server;
        is_served
            && self.phase == Phase::Open
            && self.outputs.is_empty()
            && self.setup.is_over()
            && self.incoming.is_idle()
            && self.extension.is_none()
    }

    #[inline]
    fn count(&mut self, now: Instant, kind: Kind, taken: u32) {
        if taken > 0 {
            self.heard = now;
        }
        match kind {
            Kind::Call => self.credits.owe(taken),
            Kind::Reply => self.gate.on_answered(taken),
        }
    }
}
