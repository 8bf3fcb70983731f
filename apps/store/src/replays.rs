//! The duplicate request cache: a repeated Call gets the Reply of the first.
//!
//! A client without a Reply sends its Call again, from another port if it lost its connection. Executing a REMOVE twice
//! would return NOENT the second time, so the Replies of procedures that are not idempotent are kept for a while.
//!
//! # Normal operation
//! A Call is the same as another if its client's address, XID and procedure are, and if a [`Digester`] finds the caller
//! and all octets of the arguments the same, the data of a WRITE included. What differs in any of them is executed.
//!
//! A client that closes a connection in order, having all its Replies, will not repeat the Calls of that connection:
//! [`Replays::forget_connection`] forgets their Replies, so that a program that numbers its Calls from 1 can be run
//! again at once. A client that breaks a connection off, and repeats the XIDs and the arguments for another purpose, is
//! answered from the cache.
//!
//! # Limits
//! The memory is allocated at the start. Three quarters of it hold the Replies of successful Calls, the rest those of
//! failed Calls, so that a failure never evicts a success. In each part, clients share the room. When it is full, the
//! address with most Replies loses its oldest, so that with room for `n` Replies and `a` addresses each address keeps
//! its latest `n / a`. All addresses of an IPv6 network of 64 bits count as one, since one host may have them all.
//!
//! A Reply older than [`Limits::age_max`] is not used, and is evicted. A Call that is being executed is never
//! forgotten; the number of these is bounded by the server's connections.

use std::collections::BTreeMap;
use std::time::Duration;

use haulage::limits::LIMITS_DEFAULT;
use haulage_proto::time::Instant;

mod call;
mod digest;
mod kept;

use crate::backend::Ticket;
pub use call::{CallKey, Connection, End, Given};
pub use digest::{Digester, Said};
use kept::Kept;

/// The state of a received Call in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen<'a> {
    /// The Call is unknown: execute it, then call [`Replays::keep`] or [`Replays::wait`].
    New,
    /// The Call is being executed, under this ticket.
    Pending(Ticket),
    /// The Call was answered with this Reply.
    Answered(&'a [u8]),
}

/// The limits of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Octets of memory for all Replies and their bookkeeping.
    pub octets_max: usize,
    /// Maximum length of a Reply that is kept, in octets.
    pub reply_max: usize,
    /// How long a Reply is kept.
    pub age_max: Duration,
}

impl Limits {
    /// Returns the limits for a server with `octets` of memory: a 64th of it, but at least enough Replies for twice the
    /// Calls that a connection may have in flight.
    pub const fn of_memory(octets: usize, reply_max: usize) -> Self {
        let minimum = REPLIES_MIN * (reply_max + kept::NOTED);
        let share = octets / MEMORY_SHARE;
        let octets_max = if share < minimum { minimum } else { share };
        Self { octets_max, reply_max, age_max: AGE_MAX }
    }

    /// Returns the number of Replies that the part for this outcome holds.
    pub const fn replies(&self, end: End) -> usize {
        let all = self.octets_max / (self.reply_max + kept::NOTED);
        let failures = all / FAILURES_SHARE;
        match end {
            End::Success => all - failures,
            End::Failure => failures,
        }
    }
}

/// The duplicate request cache.
#[derive(Debug)]
pub struct Replays {
    successes: Kept,
    failures: Kept,
    /// Calls whose execution takes more than one turn.
    pending: BTreeMap<CallKey, Ticket>,
    age_max: Duration,
    digester: Digester,
}

impl Replays {
    /// Creates a cache and allocates its memory. `seed` is random, so that clients cannot choose Calls whose hashes
    /// collide.
    pub fn new(limits: &Limits, seed: u64) -> Self {
        let part = |end| Kept::new(limits.replies(end), limits.reply_max, seed);
        Self {
            successes: part(End::Success),
            failures: part(End::Failure),
            pending: BTreeMap::new(),
            age_max: limits.age_max,
            digester: Digester::new(seed),
        }
    }

    /// Returns what tells Calls apart that have one XID, procedure and client.
    pub const fn digester(&self) -> &Digester {
        &self.digester
    }

    /// Returns the state of a Call received at `now`.
    pub fn begin(&mut self, key: &CallKey, now: Instant) -> Seen<'_> {
        let age_max = self.age_max;
        let is_old = |kept: Instant| now.saturating_since(kept) > age_max;
        self.successes.expire(is_old);
        self.failures.expire(is_old);
        if let Some(ticket) = self.pending.get(key) {
            return Seen::Pending(*ticket);
        }
        let found = self.successes.find(key).or_else(|| self.failures.find(key));
        match found.filter(|(kept, _)| !is_old(*kept)) {
            Some((_, reply)) => Seen::Answered(reply),
            None => Seen::New,
        }
    }

    /// Records that a Call continues in later turns, under a ticket.
    pub fn wait(&mut self, key: CallKey, ticket: Ticket) {
        self.pending.insert(key, ticket);
    }

    /// Keeps the Reply of a Call that ended. A Reply that is too long is not kept.
    pub fn keep(&mut self, key: &CallKey, given: &Given<'_>) {
        self.pending.remove(key);
        let part = match given.end {
            End::Success => &mut self.successes,
            End::Failure => &mut self.failures,
        };
        part.keep(key, given);
    }

    /// Forgets the Replies of a connection that its client closed in order after it had received them all.
    pub fn forget_connection(&mut self, connection: Connection) {
        self.successes.forget(connection);
        self.failures.forget(connection);
    }

    /// Records that a waiting Call ended without a Reply worth keeping.
    pub fn forget(&mut self, key: &CallKey) {
        self.pending.remove(key);
    }
}

/// Minimum number of Replies: the part of successful Calls holds twice the Calls that a connection may have in flight.
const REPLIES_MIN: usize =
    (2 * LIMITS_DEFAULT.credits_max as usize * FAILURES_SHARE).div_ceil(FAILURES_SHARE - 1);
/// The cache takes one part in this many of a server's memory.
const MEMORY_SHARE: usize = 64;
/// Failed Calls take one part in this many of the cache.
const FAILURES_SHARE: usize = 4;
/// How long a Reply is kept. A client without a Reply for this long has reconnected and repeated its Calls several
/// times.
const AGE_MAX: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests;
