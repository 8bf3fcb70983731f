//! Credits: the number of messages that each end may send.
//!
//! # Normal operation
//! A credit word announces a *limit*: the number of messages that the peer may ever have sent. The peer may post while
//! its count of sent messages is below the limit. This end computes the limit it announces from the Receives ever
//! reserved for the peer, not from the traffic, so that the limit never moves backwards (P1) and every message within
//! it finds a Receive. All arithmetic is modulo 2^32.
//!
//! # Limits
//! A grant shrinks by not advancing the limit: Receives that are not reserved again are not
//! announced.
//!
//! A grant uses a Receive itself, and replacing that Receive must not cause another grant, or two idle ends would never
//! stop. But a peer that has spent its credits on grants could wait forever with a continued message or a Call. So once
//! half of its credits are spent, grants are answered anyway ([`ANSWERS_MAX`], [`ANSWER_MIN`]): an end that waits can
//! rely on more than half of its credits.

pub use crate::engine::PeerCalls;

/// The credit accounts of one connection (version 2, section 4.2.1).
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(PartialEq, Eq, Hash))]
pub struct Credits {
    /// The number of sent messages.
    sent: u32,
    /// The number of received messages.
    received: u32,
    /// The received credits: the last limit that the peer announced.
    peer_limit: u32,
    /// The number of Receives ever reserved for the peer. One of them is for an asynchronous grant
    /// (E3).
    reserved: u32,
    /// The last limit that this end announced.
    announced: u32,
    /// The number of received Calls that await a Reply or an error.
    owed: u32,
    /// The credits that Calls leave for messages that must not wait, besides one for each owed Reply (P2).
    call_spare: u32,
    /// The number of Receives used by messages other than grants and not reserved again.
    used: u32,
    /// The number of Receives used by grants and not reserved again.
    used_by_grants: u32,
    /// The kind of the last received message.
    last: Arrived,
    /// Whether the limit has risen since it was announced, by more than the Receives that grants
    /// used.
    news: bool,
    /// The number of consecutive grants sent only because grants arrived.
    answers: u32,
    /// The most messages that the peer's limit has allowed, since it was forgotten.
    window: u32,
}

/// The classes of messages that credits distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// An RPC Call.
    Call,
    /// An RPC Reply.
    Reply,
    /// An error, or properties of this end.
    Control,
    /// `RDMA2_GRANT`.
    Grant,
}

/// The kinds of received messages that the accounting of Receives distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arrived {
    /// `RDMA2_GRANT`.
    Grant,
    /// Any other message.
    Other,
}

/// A violation of the credit rules by the peer. The connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CreditFault {
    /// The peer's limit is implausibly far from the number of messages sent.
    Implausible,
    /// The peer sent more messages than Receives were ever reserved for it: its last message used a
    /// Receive that was meant for another connection.
    Overrun,
}

impl Credits {
    /// The number of Receives reserved before the first credit word is sent: for one message, and
    /// for one grant.
    pub const RESERVED_AT_START: u32 = 2;

    /// Makes the accounts of a new connection. Only where `calls` are served do Calls of this end leave a credit for
    /// what else this end has to send.
    pub const fn new(calls: PeerCalls) -> Self {
        Self {
            // [V2-4.2.1-1]
            //~ V2-4.2.1-1: `0` -> `1`
            sent: 0,
            // [V2-4.2.1-2]
            //~ V2-4.2.1-2: `0` -> `1`
            received: 0,
            // [V2-4.2.1-3]
            //~ V2-4.2.1-3: `1` -> `2`
            peer_limit: 1,
            // [V2-4.2.1.1-2]
            reserved: Self::RESERVED_AT_START,
            announced: 1,
            owed: 0,
            call_spare: match calls {
                PeerCalls::Served => CALL_SPARE,
                PeerCalls::Refused => 0,
            },
            used: 0,
            used_by_grants: 0,
            last: Arrived::Other,
            news: false,
            answers: 0,
            window: 1,
        }
    }

    /// Returns whether a message of this class may be posted now.
    #[inline]
    pub fn may_send(&self, class: Class) -> bool {
        self.may_send_all(class, 1)
    }

    /// Returns whether `messages` messages of this class may be posted now, one after the other.
    #[inline]
    pub fn may_send_all(&self, class: Class, messages: u32) -> bool {
        let (left, messages) = (self.left(), i64::from(messages));
        match class {
            Class::Call => left >= messages.saturating_add(self.kept()),
            // [V2-4.2.1-5] E2: never post beyond the peer's credits.
            //~ V2-4.2.1-5: `left` -> `left.saturating_add(1)`
            Class::Reply | Class::Control => left >= messages,
            // E3: the Receive beyond the limit is for this.
            Class::Grant => left >= 0,
        }
    }

    /// Counts a message that is posted now. Returns its credit word.
    #[inline]
    pub const fn on_sent(&mut self, class: Class) -> u32 {
        self.on_all_sent(class, 1)
    }

    /// Counts as many messages of this class as may be posted now, at most `count`, as posted. Returns their number,
    /// and the credit word of each. The caller passes the number really posted to [`Self::settle`].
    #[doc(hidden)]
    #[inline]
    pub fn lend(&mut self, class: Class, count: u32) -> (u32, u32) {
        let kept = match class {
            Class::Call => self.kept(),
            Class::Reply | Class::Control | Class::Grant => 0,
        };
        let most = u32::try_from(self.left().saturating_sub(kept)).unwrap_or_default();
        let count = at_most(count, most);
        self.sent = self.sent.wrapping_add(count);
        if class == Class::Reply {
            self.owed_done(count);
        }
        (count, self.limit())
    }

    /// Settles the `lent` messages of this class, of which `posted` were posted.
    #[doc(hidden)]
    #[inline]
    pub fn settle(&mut self, class: Class, lent: u32, posted: u32) {
        let left = lent.saturating_sub(posted);
        self.sent = self.sent.wrapping_sub(left);
        if class == Class::Reply {
            self.owe(left);
        }
        if posted > 0 {
            (self.answers, self.news, self.announced) = (0, false, self.limit());
        }
    }

    /// Counts all transport messages of one RPC message, which are posted now. Returns the credit word of each.
    #[inline]
    pub const fn on_all_sent(&mut self, class: Class, messages: u32) -> u32 {
        self.sent = self.sent.wrapping_add(messages);
        self.answers = match class {
            Class::Grant if !self.news => self.answers.saturating_add(1),
            _ => 0,
        };
        if matches!(class, Class::Reply) {
            self.owed_done(1);
        }
        self.announced = self.limit();
        self.news = false;
        // [V2-4.2.1-4] E1: the credit word is the number of received messages plus that of advertised credits.
        self.announced
    }

    /// Counts a message that was received with this credit word.
    ///
    /// A peer that reads section 4.2.1 literally uses the one Receive beyond its limit for any
    /// message. This does no harm, so only a message beyond that Receive is a fault.
    ///
    /// # Errors
    /// See [`CreditFault`]. The message is counted all the same.
    #[inline]
    pub const fn on_received(&mut self, credit: u32, arrived: Arrived) -> Result<(), CreditFault> {
        let counted = self.on_ignored(arrived);
        if counted.is_err() {
            return counted;
        }
        if distance(credit, self.sent).unsigned_abs() > PLAUSIBLE_MAX {
            return Err(CreditFault::Implausible);
        }
        self.on_limit(Some(credit));
        Ok(())
    }

    /// Counts messages received in a row with these credit words, up to the first fault. Returns the number counted.
    #[doc(hidden)]
    #[inline]
    pub fn on_run(&mut self, run: impl IntoIterator<Item = u32>) -> u32 {
        let room = u32::try_from(distance(self.reserved, self.received)).unwrap_or_default();
        let mut count = 0_u32;
        // Most messages repeat the credit word of the message before, which needs no second look.
        let mut limit = None;
        for credit in run {
            if count == room {
                break;
            }
            if limit != Some(credit) {
                if distance(credit, self.sent).unsigned_abs() > PLAUSIBLE_MAX {
                    break;
                }
                self.on_limit(limit);
                limit = Some(credit);
            }
            count = count.wrapping_add(1);
        }
        self.on_limit(limit);
        if count > 0 {
            self.last = Arrived::Other;
        }
        self.received = self.received.wrapping_add(count);
        self.used = self.used.saturating_add(count);
        count
    }

    /// Records the limit, if there is one, that messages announced.
    #[inline]
    const fn on_limit(&mut self, limit: Option<u32>) {
        let Some(limit) = limit else { return };
        self.peer_limit = limit;
        let left = distance(limit, self.sent);
        let left = if left > 0 { left.unsigned_abs() } else { 0 };
        if left > self.window {
            self.window = left;
        }
    }

    /// Undoes the counting of the last `count` messages of [`Self::on_run`].
    #[doc(hidden)]
    pub const fn put_back(&mut self, count: u32) {
        self.received = self.received.wrapping_sub(count);
        self.used = self.used.saturating_sub(count);
    }

    /// Counts a message whose credit word is ignored.
    ///
    /// # Errors
    /// [`CreditFault::Overrun`] if the peer had no credit for the message.
    #[inline]
    pub const fn on_ignored(&mut self, arrived: Arrived) -> Result<(), CreditFault> {
        self.received = self.received.wrapping_add(1);
        self.last = arrived;
        let used = match arrived {
            Arrived::Grant => &mut self.used_by_grants,
            Arrived::Other => &mut self.used,
        };
        *used = used.saturating_add(1);
        if distance(self.reserved, self.received) < 0 {
            return Err(CreditFault::Overrun);
        }
        Ok(())
    }

    /// Reserves `count` more Receives for the peer.
    #[inline]
    pub const fn reserve(&mut self, count: u32) {
        self.reserved = self.reserved.wrapping_add(count);
        // E3: a Receive in place of one that a grant used need not be announced alone. All other Receives are news,
        // however late they come.
        let replaces_used = at_most(count, self.used);
        self.used = self.used.saturating_sub(replaces_used);
        let rest = count.saturating_sub(replaces_used);
        let replaces_grants = at_most(rest, self.used_by_grants);
        self.used_by_grants = self.used_by_grants.saturating_sub(replaces_grants);
        self.news |= replaces_grants < count;
    }

    /// Returns whether an `RDMA2_GRANT` should announce the new limit although there is nothing
    /// else to send.
    #[inline]
    pub fn wants_grant(&self) -> bool {
        let window = i64::from(distance(self.limit(), self.received));
        let untold = distance(self.limit(), self.announced);
        let remaining = i64::from(distance(self.announced, self.received));
        // P5: section 4.2.1.1 wants a grant before half the limit is spent.
        let due = remaining.saturating_mul(2) <= window;
        // E3: where only grants arrived, grants are not answered with grants without end.
        let worth = self.news || untold >= ANSWER_MIN || self.answers < ANSWERS_MAX;
        due && worth && untold > 0 && self.may_send(Class::Grant)
    }

    /// Returns the number of Receives that are reserved for the peer and not used, modulo 2^32.
    /// After an overrun the number is below zero, and wraps.
    #[inline]
    pub const fn reserved_outstanding(&self) -> u32 {
        self.reserved.wrapping_sub(self.received)
    }

    /// Returns whether a grant used the last reserved Receive. That Receive must be reserved again even for a peer whose
    /// Calls hold too many: without it the peer cannot tell of its credits, for which the Replies to these Calls may wait
    /// (E3). What other messages used beyond the limit is no claim of theirs.
    #[inline]
    pub const fn lacks_receive_for_grant(&self) -> bool {
        self.reserved_outstanding() == 0 && matches!(self.last, Arrived::Grant)
    }

    /// Counts received Calls, each of which a Reply or an error must answer.
    #[inline]
    pub const fn owe(&mut self, calls: u32) {
        self.owed = self.owed.saturating_add(calls);
    }

    /// Returns the number of received Calls that await a Reply or an error.
    #[inline]
    pub const fn owed(&self) -> u32 {
        self.owed
    }

    /// Removes Calls that were answered, or never will be, from the count of those to be answered.
    #[inline]
    pub const fn owed_done(&mut self, calls: u32) {
        self.owed = self.owed.saturating_sub(calls);
    }

    /// Returns the last limit that the peer announced.
    pub const fn peer_limit(&self) -> u32 {
        self.peer_limit
    }

    /// Forgets how many messages the peer's limit used to allow: until the peer announces more,
    /// only those that it allows now count.
    pub fn forget_window(&mut self) {
        self.window = self.left_max();
    }

    /// Returns the number of messages that the peer's limit allows now.
    #[inline]
    pub fn left_max(&self) -> u32 {
        u32::try_from(self.left()).unwrap_or_default()
    }

    /// Returns the most messages that the peer's limit has allowed, since [`Self::forget_window`] at the latest: the
    /// window that the peer keeps. What is left of it now says nothing about that, because messages of this end are on
    /// their way, and those that the peer sent meanwhile, however many they are, do not count them.
    pub const fn window(&self) -> u32 {
        self.window
    }

    /// Returns the most unanswered Calls of this end where the peer calls, too (P2): with half of the smaller window for
    /// each end's Calls, there is credit for the Replies to them and for the next Call.
    pub fn calls_max(&self) -> u32 {
        let theirs = u32::try_from(distance(self.limit(), self.received)).unwrap_or_default();
        let theirs = theirs.saturating_add(self.owed);
        (self.window.min(theirs).saturating_sub(1) / 2).max(1)
    }

    /// Returns the number of messages that the peer's limit still allows; negative if the limit was
    /// lowered.
    #[inline]
    fn left(&self) -> i64 {
        i64::from(distance(self.peer_limit, self.sent))
    }

    /// Returns the number of credits that Calls leave: one for each Reply this end owes, and one more where the peer
    /// may call (P2).
    #[inline]
    fn kept(&self) -> i64 {
        i64::from(self.owed).saturating_add(self.call_spare.into())
    }

    /// Returns the limit that can be announced: every reserved Receive except the one for a grant.
    #[inline]
    const fn limit(&self) -> u32 {
        // [V2-4.2.1-7] [V2-4.2.1.1-1] the limit follows the reserved Receives, even if it does not grow.
        //~ V2-4.2.1.1-1: `wrapping_sub(1)` -> `wrapping_sub(if self.reserved_outstanding() > 1 { 1 } else { 0 })`
        self.reserved.wrapping_sub(1)
    }
}

const fn at_most(count: u32, most: u32) -> u32 {
    if count < most { count } else { most }
}

/// Returns the signed distance from `b` to `a`, modulo 2^32.
#[expect(clippy::cast_possible_wrap, reason = "the signed difference modulo 2^32 is wanted")]
const fn distance(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b) as i32
}

/// The fewest credits with which a peer can be served: two for a Call, and one that a grant may have used.
pub const WINDOW_MIN: u32 = 3;

/// Returns the fewest Receives that a peer which makes Calls, too, should have reserved while `unanswered` Calls of this end
/// await its Replies; none while no Call does.
///
/// Before it answers them, the peer may make a Call of its own, as a service does that is called and asks back. That Call
/// leaves a credit for each Reply and another one (P2), so the peer needs two more credits than it owes Replies. It may have
/// used some for grants: but with twice as many credits, what is left suffices, or half of them are spent and it is granted
/// more (P5). One Receive is for a grant (E3).
#[inline]
pub const fn reserved_for(unanswered: u32) -> u32 {
    if unanswered == 0 { 0 } else { unanswered.saturating_mul(2).saturating_add(3) }
}

/// The most consecutive grants that only answer grants and announce fewer than [`ANSWER_MIN`] credits.
///
/// Such grants come from an end that gives too few credits, or whose Receives are reserved again one by one. Any number
/// would stop two ends from answering each other forever.
pub const ANSWERS_MAX: u32 = 16;

/// The fewest credits that an answer to grants announces whatever was answered before.
///
/// The answer gives the peer two credits or more, and uses one of this end's. So both ends together have more credits
/// after each, and there is an end to it. An end that gives [`WINDOW_MIN`] credits or more never has to announce fewer:
/// once half of them are spent and all Receives are reserved again, two or more are to be announced.
pub const ANSWER_MIN: i32 = 2;

/// The credits that Calls leave for messages that must not wait, Replies excluded, where the peer may call: an end that
/// both calls and serves has errors to send, too. An end that only calls has nothing that Calls could keep from leaving,
/// and uses the one credit of a peer that gives one at a time (P2).
const CALL_SPARE: u32 = 1;

/// The largest plausible credit limit: [V2-4.2.1-6] it is less than 2^31 - 1.
//~ V2-4.2.1-6: `- 2` -> `- 1`
const PLAUSIBLE_MAX: u32 = (1 << 31) - 2;

#[cfg(test)]
const fn arrived(class: Class) -> Arrived {
    match class {
        Class::Grant => Arrived::Grant,
        Class::Call | Class::Reply | Class::Control => Arrived::Other,
    }
}

#[cfg(test)]
mod deadlocks;
#[cfg(test)]
mod tests;
