//! Credits: the number of Calls that each end may have unanswered at the other.
//!
//! # Normal operation
//! A Requester requests a number of credits in every Call and is granted a number in every Reply; until the first Reply
//! it has one credit. The two directions of a connection are counted separately (RFC 8167): the Requester's account
//! limits the Calls of this end, the Responder's account those of the peer, whichever end opened the connection.
//!
//! # Limits
//! Every grant is backed by Receives ([R5666-6-2]). If *r* Receives are reserved and not used, *f* Calls of this end
//! are unanswered, *d* `RDMA_DONE` messages are awaited, and *o* of the peer's *g* credits are in use by Calls that
//! this end has not answered, then
//!
//! ```text
//! r >= f + d + (g - o)
//! ```
//!
//! holds whenever every used Receive has been reserved again, and each grant is computed so that it continues to hold;
//! `connection::tests::traffic` checks it on two ends. A grant is never zero (P1): a Reply waits until it can grant a
//! credit.
//!
//! An end keeps one Receive for what it may need next: a Reply if it makes Calls and none is unanswered, an `RDMA_DONE` if
//! its Replies may be read and none is awaited. So whatever the peer was granted, a Call can leave, and so can a Reply that
//! is to be read as soon as any other could: it never waits for a Receive that the Calls behind it hold.

use crate::engine::PeerCalls;

/// The credit accounts of one end of a connection.
#[derive(Clone, Debug)]
pub(super) struct Credits {
    /// The number of Receives ever reserved for the peer.
    reserved: u32,
    /// The number of messages ever received.
    received: u32,
    /// Whether this end makes Calls: while none is unanswered, one Receive is kept for the Reply to the next one.
    calls: bool,
    /// Whether Replies of this end may be read: while no `RDMA_DONE` is awaited, one Receive is kept for the next one.
    holds: bool,
    requester: Requester,
    responder: Responder,
}

/// The account of the Calls of this end.
#[derive(Clone, Debug)]
struct Requester {
    /// The number of credits that this end requests, and uses at most.
    wanted: u32,
    /// The number of credits that the peer has granted.
    granted: u32,
    /// The number of unanswered Calls of this end.
    unanswered: u32,
    /// The number of Replies whose Read chunks this end has not released: each keeps a credit for
    /// its `RDMA_DONE`.
    unreleased: u32,
}

/// The account of the peer's Calls.
#[derive(Clone, Debug)]
struct Responder {
    /// The most credits that this end grants.
    grant_max: u32,
    /// The number of credits that the peer has.
    granted: u32,
    /// The number of the peer's Calls that await a Reply or an error.
    owed: u32,
    /// The number of `RDMA_DONE` messages that the peer has yet to send.
    awaited: u32,
}

/// The fault of a peer that sent more messages than Receives were ever reserved for it: its last
/// message used a Receive that was meant for another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overrun;

/// The event after which the peer has read all the results of a Reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// The arrival of the Reply or error itself.
    AtOnce,
    /// The `RDMA_DONE` that the peer sends after it has fetched the Read list.
    ByDone,
}

impl Release {
    /// Returns the number of `RDMA_DONE` messages that the release takes.
    const fn dones(self) -> u32 {
        match self {
            Self::AtOnce => 0,
            Self::ByDone => 1,
        }
    }
}

/// Credits for several Replies, all with one credit word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LentReplies {
    /// The number of Replies.
    pub(super) count: u32,
    /// The credit word of each Reply.
    pub(super) word: u32,
    /// The credits that the peer had before the grant.
    pub(super) granted_before: u32,
}

impl Credits {
    /// Makes the accounts of a new connection. If `calls` are served, one Receive is reserved for the peer's first
    /// Call; otherwise nothing is granted.
    pub(super) fn new(wanted: u32, grant_max: u32, calls: PeerCalls) -> Self {
        let wanted = wanted.max(1);
        // [R5666-6.1-2] each direction has one credit until more are granted.
        //~ R5666-6.1-2: `granted: 1` -> `granted: 2`
        let requester = Requester { wanted, granted: 1, unanswered: 0, unreleased: 0 };
        let granted = u32::from(calls == PeerCalls::Served);
        let responder = Responder { grant_max: grant_max.max(1), granted, owed: 0, awaited: 0 };
        Self { reserved: granted, received: 0, calls: false, holds: false, requester, responder }
    }

    /// Keeps a Receive for the Replies to Calls of this end from now on.
    pub(super) const fn expect_calls(&mut self) {
        self.calls = true;
    }

    /// Keeps a Receive for the `RDMA_DONE` to a Reply of this end from now on.
    pub(super) const fn expect_dones(&mut self) {
        self.holds = true;
    }

    /// Returns whether a Call may be sent: a credit is left, and a Receive for the Reply.
    pub(super) fn may_call(&self) -> bool {
        let Requester { granted, unanswered, unreleased, .. } = self.requester;
        // [R5666-3.3-4] [R5666-4.1-5] never call beyond the grant. [R5666-3.8-5] A Reply that is not released yet still
        // holds its credit: its DONE will use it.
        //~ R5666-3.3-4: `< granted` -> `<= granted`
        //~ R5666-3.8-5: `unanswered.saturating_add(unreleased)` -> `unanswered.max(unreleased)`
        //~ R8167-4.1-1: `unreleased` -> `self.responder.owed + unreleased` together
        unanswered.saturating_add(unreleased) < granted && self.spare() > self.promised()
    }

    /// Counts a Call that is posted now. Returns its credit word.
    pub(super) const fn on_call_sent(&mut self) -> u32 {
        self.requester.unanswered = self.requester.unanswered.saturating_add(1);
        // [R5666-3.3-1]
        //~ R5666-3.3-1: `wanted` -> `granted`
        self.requester.wanted
    }

    /// Returns whether a received Call can be answered now with a Reply of this `release`: the answer must grant the
    /// peer at least one credit (E33).
    pub(super) fn may_answer(&self, release: Release) -> bool {
        // [R5666-3.3-2] [R5666-3.3-6] [R5666-11-7] a Reply is withheld until it can grant at least one credit.
        let grantable = self.grantable(self.responder.owed.saturating_sub(1), release);
        // [R5666-3.8-4] a held Reply needs one more Receive for its `RDMA_DONE`, beside those promised to the peer
        // already.
        match release {
            Release::AtOnce => grantable >= 1,
            //~ R5666-11-7: `self.least()` -> `0`
            Release::ByDone => grantable >= self.least(),
        }
    }

    /// Counts a Reply or an error that answers one owed Call now. Returns its credit word.
    pub(super) fn on_answered(&mut self, release: Release) -> u32 {
        let owed = self.responder.owed.saturating_sub(1);
        let most = i64::from(self.responder.grant_max).max(self.least());
        let granted = self.grantable(owed, release).clamp(self.least(), most);
        let awaited = self.responder.awaited.saturating_add(release.dones());
        // [R5666-3.3-3] the grant follows the number of free Receives, up or down.
        self.responder.granted = u32::try_from(granted).unwrap_or(1);
        (self.responder.owed, self.responder.awaited) = (owed, awaited);
        self.responder.granted
    }

    /// Takes credits for Replies to at most `count` received Calls, all with one credit word, which is at least one.
    /// Counts these Calls as answered until [`Self::settle_replies`] learns the number of Replies sent.
    pub(super) fn lend_replies(&mut self, count: u32) -> LentReplies {
        let Responder { granted, owed, grant_max, .. } = self.responder;
        let most = self.grantable(owed, Release::AtOnce).saturating_sub(1);
        // [R5666-3.3-2] [R5666-3.3-6] [R5666-11-7] each Reply leaves with a grant of at least one.
        let count = count.min(owed).min(u32::try_from(most).unwrap_or_default());
        // The peer may use all its credits before these Replies arrive: each of them lowers the grant by at most one.
        let least = i64::from(granted).saturating_sub(i64::from(count)).max(1);
        let rest = owed.saturating_sub(count);
        let word =
            //~ R5666-3.3-3: `grant_max` -> `granted`
            self.grantable(rest, Release::AtOnce).clamp(least, i64::from(grant_max).max(least));
        //~ R5666-3.3-2: `u32::try_from(word).unwrap_or(1)` ->
        //~   `if rest == 0 { 0 } else { u32::try_from(word).unwrap_or(1) }`
        let word = u32::try_from(word).unwrap_or(1);
        if count > 0 {
            (self.responder.granted, self.responder.owed) = (word, rest);
        }
        LentReplies { count, word, granted_before: granted }
    }

    /// Settles a grant, of which the first `sent` Replies were sent, and counts the other Calls as
    /// unanswered again.
    pub(super) fn settle_replies(&mut self, lent: LentReplies, sent: u32) {
        let left = lent.count.saturating_sub(sent);
        if left == 0 {
            return;
        }
        let Responder { granted, owed, .. } = &mut self.responder;
        *owed = owed.saturating_add(left);
        // A Reply that was not sent lowers no grant: the peer's grant falls by at most one for each Reply sent.
        *granted = match sent {
            0 => lent.granted_before,
            _ => lent.word.max(lent.granted_before.saturating_sub(sent)),
        };
    }

    /// Counts as many of `count` Calls of this end as may be sent now as sent, and returns their number. The caller
    /// passes the number of those not sent to [`Self::take_back_calls`].
    pub(super) fn lend_calls(&mut self, count: u32) -> u32 {
        let Requester { granted, unanswered, unreleased, .. } = self.requester;
        // [R5666-3.3-4] [R5666-4.1-5] [R5666-3.8-5] the same bounds as in `may_call`.
        //~ R8167-4.1-1: `unreleased` -> `unreleased + self.responder.owed` together
        let credits = granted.saturating_sub(unanswered.saturating_add(unreleased));
        let receives = self.spare().saturating_sub(self.promised());
        let count = count.min(credits).min(u32::try_from(receives).unwrap_or_default());
        self.requester.unanswered = unanswered.saturating_add(count);
        count
    }

    /// Undoes the counting of `count` Calls of this end as sent.
    pub(super) const fn take_back_calls(&mut self, count: u32) {
        self.requester.unanswered = self.requester.unanswered.saturating_sub(count);
    }

    /// Returns the credit word of Calls of this end.
    pub(super) const fn wanted(&self) -> u32 {
        self.requester.wanted
    }

    /// Counts at most `count` received Calls, as many as Receives are reserved for. Returns the number counted.
    pub(super) fn on_calls(&mut self, count: u32) -> u32 {
        let count = count.min(u32::try_from(self.outstanding().cast_signed()).unwrap_or_default());
        self.received = self.received.wrapping_add(count);
        self.responder.owed = self.responder.owed.saturating_add(count);
        count
    }

    /// Counts received Replies with these credit words, as long as Calls of this end are unanswered and Receives are
    /// reserved. Returns the number counted.
    pub(super) fn on_answers(&mut self, words: impl IntoIterator<Item = u32>) -> u32 {
        let reserved = u32::try_from(self.outstanding().cast_signed()).unwrap_or_default();
        let most = reserved.min(self.requester.unanswered);
        let mut count = 0_u32;
        for word in words.into_iter().take(usize::try_from(most).unwrap_or(usize::MAX)) {
            self.on_answer(word);
            count = count.saturating_add(1);
        }
        self.received = self.received.wrapping_add(count);
        count
    }

    /// Undoes the counting of `count` received Calls.
    pub(super) const fn put_back_calls(&mut self, count: u32) {
        self.received = self.received.wrapping_sub(count);
        self.responder.owed = self.responder.owed.saturating_sub(count);
    }

    /// Undoes the counting of `count` received Replies, except for the credits that they granted.
    pub(super) const fn put_back_answers(&mut self, count: u32) {
        self.received = self.received.wrapping_sub(count);
        self.requester.unanswered = self.requester.unanswered.saturating_add(count);
    }

    /// Returns the number of Replies that could be posted now, each with a grant of at least one
    /// credit.
    pub(super) fn answers_left(&self) -> u32 {
        u32::try_from(self.grantable(self.responder.owed, Release::AtOnce).saturating_sub(1))
            .unwrap_or_default()
    }

    /// Counts a received message.
    ///
    /// # Errors
    /// See [`Overrun`].
    pub(super) const fn on_received(&mut self) -> Result<(), Overrun> {
        //~ R5666-3.3-5: `== 0` -> `== 0 || self.responder.owed > self.responder.granted`
        let overrun = self.outstanding() == 0;
        self.received = self.received.wrapping_add(1);
        if overrun { Err(Overrun) } else { Ok(()) }
    }

    /// Counts a received Call, which a Reply or an error must answer.
    pub(super) const fn owe(&mut self) {
        self.responder.owed = self.responder.owed.saturating_add(1);
    }

    /// Removes a received Call from the count of those to be answered.
    pub(super) const fn owe_nothing(&mut self) {
        self.responder.owed = self.responder.owed.saturating_sub(1);
    }

    /// Counts a Call of this end as answered, and takes the credits granted by the answer.
    pub(super) fn on_answer(&mut self, credit: u32) {
        self.on_ended();
        // A grant of zero would stop us for good, and more than we asked for is of no use.
        //~ R5666-4.1-5: `clamp(1, self.requester.wanted)` -> `max(self.requester.wanted)`
        self.requester.granted = credit.clamp(1, self.requester.wanted);
    }

    /// Counts a Call of this end whose answer could not be decoded: its credit word is ignored.
    pub(super) const fn on_ended(&mut self) {
        self.requester.unanswered = self.requester.unanswered.saturating_sub(1);
    }

    /// Counts a received Reply whose Read chunks this end has yet to release with an `RDMA_DONE`.
    pub(super) const fn on_held(&mut self) {
        self.requester.unreleased = self.requester.unreleased.saturating_add(1);
    }

    /// Returns whether a Reply awaits the `RDMA_DONE` of this end.
    pub(super) const fn may_release(&self) -> bool {
        self.requester.unreleased > 0
    }

    /// Counts an `RDMA_DONE` that is posted now. Returns its credit word.
    pub(super) const fn on_done_sent(&mut self) -> u32 {
        self.requester.unreleased = self.requester.unreleased.saturating_sub(1);
        self.requester.wanted
    }

    /// Counts an `RDMA_DONE` that has arrived or is no longer awaited.
    pub(super) const fn on_released(&mut self) {
        self.responder.awaited = self.responder.awaited.saturating_sub(1);
    }

    /// Reserves `count` more Receives for the peer.
    pub(super) const fn reserve(&mut self, count: u32) {
        self.reserved = self.reserved.wrapping_add(count);
    }

    /// Returns the number of Receives that are reserved for the peer and not used, modulo 2^32. After an overrun the
    /// number is below zero, and wraps.
    pub(super) const fn outstanding(&self) -> u32 {
        self.reserved.wrapping_sub(self.received)
    }

    /// Returns the number of received Calls that await a Reply or an error.
    pub(super) const fn owed(&self) -> u32 {
        self.responder.owed
    }

    /// Returns the number of unanswered Calls of this end.
    pub(super) const fn unanswered(&self) -> u32 {
        self.requester.unanswered
    }

    /// Returns whether fewer Receives are left than are promised to the peer or kept, so that this end could make no Call
    /// although none is unanswered, or send no Reply that is read although no `RDMA_DONE` is awaited. Nothing else may
    /// happen that changes this.
    pub(super) fn lacks_receive(&self) -> bool {
        self.spare() < self.promised().saturating_add(self.kept_for_reply())
    }

    /// Returns the number of Receives that no Reply to this end will use.
    fn spare(&self) -> i64 {
        let outstanding = i64::from(self.outstanding());
        outstanding.saturating_sub(i64::from(self.requester.unanswered))
    }

    /// Returns the number of Receives that the peer's Calls and `RDMA_DONE` messages may still use.
    fn promised(&self) -> i64 {
        let Responder { granted, owed, awaited, .. } = self.responder;
        i64::from(granted.saturating_sub(owed)).saturating_add(self.for_dones(awaited))
    }

    /// Returns the number of Receives for `awaited` `RDMA_DONE` messages, or for the next one.
    fn for_dones(&self, awaited: u32) -> i64 {
        awaited.max(self.holds.into()).into()
    }

    /// Returns the number of Receives that are kept for the Reply to the next Call of this end.
    fn kept_for_reply(&self) -> i64 {
        i64::from(self.calls && self.requester.unanswered == 0)
    }

    /// Returns the fewest credits that one answer can grant: the peer may have used all its credits, and learns of a
    /// lower grant only from the answer.
    fn least(&self) -> i64 {
        i64::from(self.responder.granted).saturating_sub(1).max(1)
    }

    /// Returns the number of credits that an answer could grant if `owed` Calls remain unanswered. [R5666-11-6]
    /// Receives for awaited `RDMA_DONE` messages, that of this Reply included, are not granted to Calls.
    fn grantable(&self, owed: u32, release: Release) -> i64 {
        let dones = release.dones();
        //~ R5666-3.8-4: `saturating_add(dones)` -> `saturating_sub(dones)`
        let awaited = self.responder.awaited.saturating_add(dones);
        //~ R5666-11-6: `self.for_dones(awaited)` -> `0_i64`
        let promised = self.for_dones(awaited).saturating_add(self.kept_for_reply());
        self.spare().saturating_sub(promised).saturating_add(i64::from(owed))
    }
}

#[cfg(test)]
mod deadlocks;
