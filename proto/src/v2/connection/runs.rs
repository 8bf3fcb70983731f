//! The fast path of a connection, for the most common messages.

use super::{ChunkLimits, Connection, Phase, Role};
use crate::v2::continuation::Kind;
use crate::v2::header::{Message, Unchunked};

impl Connection {
    /// Receives a run of Calls or Replies without chunks, or with one chunk that [`Self::chunk_max`] allows. It accepts
    /// messages only in the ordinary case: the connection is open, no message in several is under way, and the credit words
    /// are plausible. For each accepted message [`Self::handle`] would have reported
    /// [`Event::Call`](super::Event::Call) or [`Event::Reply`](super::Event::Reply), and no other output except control
    /// messages that waited for credit.
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
        let alike = run.into_iter().take_while(|message| message.kind == kind);
        let taken = self.credits.on_run(alike.map(|message| message.credit));
        self.count(kind, taken);
        taken
    }

    /// Returns the longest single chunk of a Call, of one segment, that [`Self::take`] accepts at a server: a Read
    /// chunk, and a Write chunk. Zero means that there may be none.
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

    /// Undoes the receipt of the last `count` messages that [`Self::take`] accepted, except for the effect of their
    /// credit words.
    #[doc(hidden)]
    #[cold]
    pub fn put_back(&mut self, kind: Kind, count: u32) {
        self.credits.put_back(count);
        match kind {
            Kind::Call => self.credits.owed_done(count),
            Kind::Reply => self.gate.on_reopened(count),
        }
    }

    /// Receives a Call or a Reply that is complete in one message, whatever its chunks, under the conditions of
    /// [`Self::take`], and if the chunks of a Call are within the limits. Returns the kind of the message, or `None` if
    /// it has to go through [`Self::handle`].
    #[doc(hidden)]
    pub fn take_whole(&mut self, message: &Message<'_>) -> Option<Kind> {
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
        self.count(kind, u32::from(taken));
        taken.then_some(kind)
    }

    /// Returns whether a complete message of this kind has no output except its own event.
    #[inline]
    fn is_plain(&self, kind: Kind) -> bool {
        // A client takes Calls in the reverse direction only, where more is to be looked at.
        let is_served = kind == Kind::Reply || self.config.role == Role::Server;
        is_served
            && self.phase == Phase::Open
            && self.outputs.is_empty()
            && self.setup.is_over()
            && self.incoming.is_idle()
            && self.extension.as_ref().is_none_or(|extension| extension.is_between())
    }

    #[inline]
    fn count(&mut self, kind: Kind, taken: u32) {
        match kind {
            Kind::Call => self.credits.owe(taken),
            Kind::Reply => self.gate.on_answered(taken),
        }
    }
}
