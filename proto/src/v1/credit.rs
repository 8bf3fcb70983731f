//! Credits: how many Calls each end may have unanswered at the other.
//!
//! # Normal operation
//! A Requester asks for a number of credits in every Call and is granted one in every Reply; until the
//! first Reply it has one. The two directions of a connection are counted apart (RFC 8167), which
//! here takes nothing: what we may send is our Requester's account, what the peer may send our
//! Responder's, whichever of the two ends opened the connection.
//!
//! # Limits
//! Nothing is promised that no Receive stands behind ([R5666-6-2]). With *r* Receives reserved and not used, *f* Calls
//! of ours unanswered and *d* `RDMA_DONE` awaited, and the peer having *g* credits of which *o* are
//! with us as unanswered Calls,
//!
//! ```text
//! r >= f + d + (g - o)
//! ```
//!
//! holds whenever every used Receive has been reserved again, and each grant is computed so that it
//! goes on to hold; `connection::tests::traffic` holds two ends to it. A grant is never zero (P1): a
//! Reply waits until one can be given.

/// The accounts of one end of a connection.
#[derive(Clone, Debug)]
pub(super) struct Credits {
    /// Receives ever reserved for the peer.
    reserved: u32,
    /// Messages ever received.
    received: u32,
    /// Whether we make Calls: while none is unanswered, a Receive is kept back for the next one's Reply.
    calls: bool,
    requester: Requester,
    responder: Responder,
}

/// What we may send.
#[derive(Clone, Debug)]
struct Requester {
    /// How many credits we ask for, and use at most.
    wanted: u32,
    /// How many we have.
    granted: u32,
    /// Our Calls that are not answered.
    unanswered: u32,
    /// Replies whose Read chunks we have not released: each keeps a credit for its `RDMA_DONE`.
    unreleased: u32,
}

/// What the peer may send.
#[derive(Clone, Debug)]
struct Responder {
    /// The most we grant.
    grant_max: u32,
    /// How many credits the peer has.
    granted: u32,
    /// Its Calls that await a Reply or an error.
    owed: u32,
    /// `RDMA_DONE` messages it has yet to send.
    awaited: u32,
}

/// The peer sent more messages than Receives were ever reserved for it; this one used another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overrun;

/// Whether Calls of the peer are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerCalls {
    /// They are served.
    Served,
    /// None may be sent.
    Refused,
}

/// When the peer has taken all that a Reply or an error carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// With the message itself.
    AtOnce,
    /// With the `RDMA_DONE` that it sends after reading the Read list.
    ByDone,
}

impl Release {
    /// Returns how many `RDMA_DONE`s it takes.
    const fn dones(self) -> u32 {
        match self {
            Self::AtOnce => 0,
            Self::ByDone => 1,
        }
    }
}

/// Replies that may be sent with one credit word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LentReplies {
    /// How many.
    pub(super) count: u32,
    /// The credit word of each.
    pub(super) word: u32,
    /// The credits that the peer had before.
    pub(super) granted_before: u32,
}

impl Credits {
    /// Makes the accounts of a new connection, on which one Receive is reserved for the first Call of a
    /// peer whose `calls` are served. Nothing is granted to another peer.
    pub(super) fn new(wanted: u32, grant_max: u32, calls: PeerCalls) -> Self {
        let wanted = wanted.max(1);
        // [R5666-6.1-2] one credit each way, until more is granted.
        let requester = Requester { wanted, granted: 1, unanswered: 0, unreleased: 0 };
        let granted = u32::from(calls == PeerCalls::Served);
        let responder = Responder { grant_max: grant_max.max(1), granted, owed: 0, awaited: 0 };
        Self { reserved: granted, received: 0, calls: false, requester, responder }
    }

    /// Provides for Calls of ours from now on.
    pub(super) const fn expect_calls(&mut self) {
        self.calls = true;
    }

    /// Returns whether a Call may be sent: a credit is left, and a Receive for the Reply.
    pub(super) fn may_call(&self) -> bool {
        let Requester { granted, unanswered, unreleased, .. } = self.requester;
        // [R5666-3.3-4] [R5666-4.1-5] never beyond the grant. [R5666-3.8-5] A Reply that is not
        // released yet still holds its credit: its DONE will use it.
        unanswered.saturating_add(unreleased) < granted && self.spare() > self.promised()
    }

    /// Counts a Call that is sent now. Returns its credit word.
    pub(super) const fn on_call_sent(&mut self) -> u32 {
        self.requester.unanswered = self.requester.unanswered.saturating_add(1);
        // [R5666-3.3-1]
        self.requester.wanted
    }

    /// Returns whether a Call can be answered with a Reply that is released so: one more Call could then
    /// arrive, or is with us already.
    pub(super) fn may_answer(&self, release: Release) -> bool {
        // [R5666-3.3-2] [R5666-3.3-6] [R5666-11-7] withheld until at least one credit can be granted.
        let grantable = self.grantable(self.responder.owed.saturating_sub(1), release);
        // [R5666-3.8-4] what is held takes a Receive more, and not one that is promised already: its
        // `RDMA_DONE` finds one.
        match release {
            Release::AtOnce => grantable >= 1,
            Release::ByDone => grantable >= self.least(),
        }
    }

    /// Counts a Reply or an error that answers one owed Call now. Returns its credit word.
    pub(super) fn on_answered(&mut self, release: Release) -> u32 {
        let owed = self.responder.owed.saturating_sub(1);
        let most = i64::from(self.responder.grant_max).max(self.least());
        let granted = self.grantable(owed, release).clamp(self.least(), most);
        let awaited = self.responder.awaited.saturating_add(release.dones());
        // [R5666-3.3-3] whatever Receives there are for it.
        self.responder.granted = u32::try_from(granted).unwrap_or(1);
        (self.responder.owed, self.responder.awaited) = (owed, awaited);
        self.responder.granted
    }

    /// Lends Replies to at most `count` owed Calls, all with one credit word: as many as leave a word of at least
    /// one. Counts those Calls as answered, until [`Self::settle_replies`] is told how many Replies were sent.
    pub(super) fn lend_replies(&mut self, count: u32) -> LentReplies {
        let Responder { granted, owed, grant_max, .. } = self.responder;
        let most = self.grantable(owed, Release::AtOnce).saturating_sub(1);
        // [R5666-3.3-2] [R5666-3.3-6] [R5666-11-7] each leaves with a grant of at least one.
        let count = count.min(owed).min(u32::try_from(most).unwrap_or_default());
        // After the last of them the peer may have used all it has, less these.
        let least = i64::from(granted).saturating_sub(i64::from(count)).max(1);
        let rest = owed.saturating_sub(count);
        let word =
            self.grantable(rest, Release::AtOnce).clamp(least, i64::from(grant_max).max(least));
        let word = u32::try_from(word).unwrap_or(1);
        if count > 0 {
            (self.responder.granted, self.responder.owed) = (word, rest);
        }
        LentReplies { count, word, granted_before: granted }
    }

    /// Counts the lent Replies that were not sent, all but the first `sent`, as owed again.
    pub(super) fn settle_replies(&mut self, lent: LentReplies, sent: u32) {
        let left = lent.count.saturating_sub(sent);
        if left == 0 {
            return;
        }
        let Responder { granted, owed, .. } = &mut self.responder;
        *owed = owed.saturating_add(left);
        // Those that were not sent would have told of less.
        *granted = match sent {
            0 => lent.granted_before,
            _ => lent.word.max(lent.granted_before.saturating_sub(sent)),
        };
    }

    /// Returns how many of `count` Calls of ours may be sent now, and counts them as sent. [`Self::take_back_calls`]
    /// is to be told how many were not.
    pub(super) fn lend_calls(&mut self, count: u32) -> u32 {
        let Requester { granted, unanswered, unreleased, .. } = self.requester;
        // [R5666-3.3-4] [R5666-4.1-5] [R5666-3.8-5] as of one.
        let credits = granted.saturating_sub(unanswered.saturating_add(unreleased));
        let receives = self.spare().saturating_sub(self.promised());
        let count = count.min(credits).min(u32::try_from(receives).unwrap_or_default());
        self.requester.unanswered = unanswered.saturating_add(count);
        count
    }

    /// Takes back that `count` Calls of ours were sent.
    pub(super) const fn take_back_calls(&mut self, count: u32) {
        self.requester.unanswered = self.requester.unanswered.saturating_sub(count);
    }

    /// Returns the credit word of our Calls.
    pub(super) const fn wanted(&self) -> u32 {
        self.requester.wanted
    }

    /// Counts at most `count` received Calls, as many as Receives are reserved for. Returns how many.
    pub(super) fn on_calls(&mut self, count: u32) -> u32 {
        let count = count.min(u32::try_from(self.outstanding().cast_signed()).unwrap_or_default());
        self.received = self.received.wrapping_add(count);
        self.responder.owed = self.responder.owed.saturating_add(count);
        count
    }

    /// Counts received Replies with these credit words, as many as Calls of ours are unanswered and Receives are
    /// reserved for. Returns how many.
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

    /// Takes back that `count` Calls were received.
    pub(super) const fn put_back_calls(&mut self, count: u32) {
        self.received = self.received.wrapping_sub(count);
        self.responder.owed = self.responder.owed.saturating_sub(count);
    }

    /// Takes back that `count` Replies were received. What their credit words granted remains.
    pub(super) const fn put_back_answers(&mut self, count: u32) {
        self.received = self.received.wrapping_sub(count);
        self.requester.unanswered = self.requester.unanswered.saturating_add(count);
    }

    /// Returns how many Replies could leave now, each with a grant of at least one.
    pub(super) fn answers_left(&self) -> u32 {
        u32::try_from(self.grantable(self.responder.owed, Release::AtOnce).saturating_sub(1))
            .unwrap_or_default()
    }

    /// Counts a received message.
    ///
    /// # Errors
    /// See [`Overrun`].
    pub(super) const fn on_received(&mut self) -> Result<(), Overrun> {
        let overrun = self.outstanding() == 0;
        self.received = self.received.wrapping_add(1);
        if overrun { Err(Overrun) } else { Ok(()) }
    }

    /// Counts a received Call: a Reply or an error is owed.
    pub(super) const fn owe(&mut self) {
        self.responder.owed = self.responder.owed.saturating_add(1);
    }

    /// Counts an owed answer that nobody waits for after all.
    pub(super) const fn owe_nothing(&mut self) {
        self.responder.owed = self.responder.owed.saturating_sub(1);
    }

    /// Counts a Call of ours that is answered, and takes what was granted with the answer.
    pub(super) fn on_answer(&mut self, credit: u32) {
        self.on_ended();
        // A grant of zero would stop us for good, and more than we asked for is of no use.
        self.requester.granted = credit.clamp(1, self.requester.wanted);
    }

    /// Counts a Call of ours whose answer could not be read: its credit word says nothing.
    pub(super) const fn on_ended(&mut self) {
        self.requester.unanswered = self.requester.unanswered.saturating_sub(1);
    }

    /// Counts a Reply with Read chunks.
    pub(super) const fn on_held(&mut self) {
        self.requester.unreleased = self.requester.unreleased.saturating_add(1);
    }

    /// Returns whether a Reply awaits our `RDMA_DONE`.
    pub(super) const fn may_release(&self) -> bool {
        self.requester.unreleased > 0
    }

    /// Counts an `RDMA_DONE` that is sent now. Returns its credit word.
    pub(super) const fn on_done_sent(&mut self) -> u32 {
        self.requester.unreleased = self.requester.unreleased.saturating_sub(1);
        self.requester.wanted
    }

    /// Counts an `RDMA_DONE` that has come, or is not awaited any more.
    pub(super) const fn on_released(&mut self) {
        self.responder.awaited = self.responder.awaited.saturating_sub(1);
    }

    /// Reserves `count` more Receives for the peer.
    pub(super) const fn reserve(&mut self, count: u32) {
        self.reserved = self.reserved.wrapping_add(count);
    }

    /// Returns the Receives that are reserved for the peer and not used, modulo 2^32: after an overrun
    /// it is less than nothing.
    pub(super) const fn outstanding(&self) -> u32 {
        self.reserved.wrapping_sub(self.received)
    }

    /// Returns how many received Calls await a Reply or an error.
    pub(super) const fn owed(&self) -> u32 {
        self.responder.owed
    }

    /// Returns how many of our Calls are not answered.
    pub(super) const fn unanswered(&self) -> u32 {
        self.requester.unanswered
    }

    /// Returns the Receives that no Reply to us is to use.
    fn spare(&self) -> i64 {
        let outstanding = i64::from(self.outstanding());
        outstanding.saturating_sub(i64::from(self.requester.unanswered))
    }

    /// Returns the Receives that the peer's Calls and `RDMA_DONE`s may still use.
    const fn promised(&self) -> i64 {
        let Responder { granted, owed, awaited, .. } = self.responder;
        (granted.saturating_sub(owed) as i64).saturating_add(awaited as i64)
    }

    /// Returns the least that can be granted with one answer: the peer may have used all it has, and
    /// hears of a lower grant only with the answer.
    fn least(&self) -> i64 {
        i64::from(self.responder.granted).saturating_sub(1).max(1)
    }

    /// Returns what could be granted with an answer that leaves so many owed. [R5666-11-6] what awaits
    /// an `RDMA_DONE`, this Reply included if one releases it, is not granted to Calls.
    fn grantable(&self, owed: u32, release: Release) -> i64 {
        let dones = i64::from(release.dones());
        let awaited = i64::from(self.responder.awaited).saturating_add(dones);
        let kept = i64::from(self.calls && self.requester.unanswered == 0);
        let promised = awaited.saturating_add(kept);
        self.spare().saturating_sub(promised).saturating_add(i64::from(owed))
    }
}

#[cfg(test)]
mod deadlocks;
