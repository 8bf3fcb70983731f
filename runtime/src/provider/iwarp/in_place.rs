//! Messages taken without Receives, out of octets just read.
//!
//! # Normal operation
//!
//! Hot connections are read here instead of by the next poll, each at most once between two polls. All share one
//! buffer: the next connection is read once the buffer is empty. Sends that lie whole in the buffer are offered in
//! runs; short Writes between them are placed at once. Other FPDUs, and refused messages, wait for the next poll,
//! which feeds them to the connection before it reads anything.
//!
//! A connection whose message was refused is likely to bring more of that kind: it is left to polls for some rounds, so
//! that these read its octets directly.

use haulage_proto::verbs::QpNum;

use super::state::Iwarp;
use crate::provider::MessageSink;

impl Iwarp {
    /// Takes messages of at most `length_max` octets without Receives from the hot connections.
    #[inline]
    pub(super) fn take_in_place(
        &mut self,
        length_max: usize,
        budget: usize,
        sink: &mut impl MessageSink,
    ) -> usize {
        // Messages that lie in Receives and are not yet reported come before these.
        if !self.nic.reports.is_empty() {
            return 0;
        }
        let mut taken = 0;
        loop {
            if !self.inbox.is_empty() {
                let Self { slots, nic, inbox, .. } = self;
                let owner = slots.get(inbox.owner).filter(|_| !inbox.refused);
                let Some(owner) = owner else { return taken };
                taken += owner.take_in_place(nic, inbox, length_max, budget - taken, sink);
                if !inbox.is_empty() || taken == budget {
                    return taken;
                }
            }
            let Some(at) = self.inbox.next(self.hot.len()) else { return taken };
            if let Some(connection) = self.hot.get(at).and_then(|qp| self.slots.get(*qp))
                && connection.is_plain()
            {
                connection.read_in_place(&mut self.nic, &mut self.inbox);
                self.unread |= connection.has_left_some();
            }
        }
    }

    /// Feeds a connection the octets read from it and not taken, unless more of them can still be taken.
    pub(super) fn end_round(&mut self) {
        if !self.inbox.is_empty() {
            // The caller may not have asked for messages since the last poll.
            let goes_on =
                self.slots.get(self.inbox.owner).is_some_and(|owner| owner.goes_on_in_place());
            if self.inbox.refused || !goes_on {
                self.feed_inbox();
            }
        }
        self.inbox.begin_round(self.hot.len());
    }

    /// Feeds a connection all octets that were read from it.
    pub(super) fn feed_inbox(&mut self) {
        let Self { inbox, slots, nic, .. } = self;
        if let Some(owner) = slots.get(inbox.owner) {
            owner.take_octets(nic, inbox.octets.get(inbox.start..inbox.end).unwrap_or_default());
        }
        (inbox.start, inbox.refused) = (inbox.end, false);
    }

    /// Feeds the octets in the buffer to their connection if that is `qp`, before more of its octets are handled.
    pub(super) fn feed_inbox_of(&mut self, qp: QpNum) {
        if !self.inbox.is_empty() && self.inbox.owner == qp {
            self.feed_inbox();
        }
    }
}
