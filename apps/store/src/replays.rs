//! The duplicate request cache: a Call that comes twice is answered as it was the first time.
//!
//! A client that hears nothing sends its Call again, over another connection and from another port if
//! it lost the first. To remove a name twice is to find it gone, so the Replies of procedures that are
//! not idempotent are kept for a while.
//!
//! # Limits
//! The memory is taken at the start. Three quarters of it keep Replies of Calls that succeeded, the rest
//! those of Calls that failed: a failure never takes the place of a success. In either part the room
//! goes to the addresses that ask for it. When it is used up, the address that has most of it loses its
//! oldest Reply, so that with room for `n` Replies and `a` addresses each address keeps its latest
//! `n / a`, whatever the others do. All addresses of an IPv6 network of 64 bits count as one, since one
//! host has them all.
//!
//! A Reply that is older than [`Limits::age_max`] is not used any more, and makes room. A Call that is
//! being carried out is never forgotten; the Calls that one server works on at a time are bounded by
//! its connections.

use std::collections::BTreeMap;
use std::time::Duration;

use haulage::limits::LIMITS_DEFAULT;
use haulage_proto::time::Instant;

mod kept;

use crate::backend::Ticket;
use kept::Kept;

/// Names a Call, whatever connection it comes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallKey {
    /// The client's address, without the port. IPv4 addresses are mapped to IPv6.
    pub client: u128,
    /// The Call's XID.
    pub xid: u32,
    /// Its procedure number.
    pub procedure: u32,
    /// A [`hash`] of its arguments: a client that starts again may use an XID again.
    pub digest: u64,
}

/// What is known of a Call that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen<'a> {
    /// It is not known: carry it out, then tell [`Replays::keep`] or [`Replays::wait`].
    New,
    /// It is being carried out, under this ticket.
    Pending(Ticket),
    /// It was answered with this.
    Answered(&'a [u8]),
}

/// Whether a Call did what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It did.
    Success,
    /// It did not, and changed nothing.
    Failure,
}

/// What is kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Octets of memory for all Replies and what is noted of them.
    pub octets_max: usize,
    /// Octets of the longest Reply that is kept.
    pub reply_max: usize,
    /// How long a Reply is kept.
    pub age_max: Duration,
}

impl Limits {
    /// Returns the limits of a server that has so much memory: a 64th of it, but no less than the Replies
    /// to twice the Calls that a connection may have under way take.
    pub const fn of_memory(octets: usize, reply_max: usize) -> Self {
        let minimum = REPLIES_MIN * (reply_max + kept::NOTED);
        let share = octets / MEMORY_SHARE;
        let octets_max = if share < minimum { minimum } else { share };
        Self { octets_max, reply_max, age_max: AGE_MAX }
    }

    /// Returns how many Replies of Calls that ended so there is room for.
    pub const fn replies(&self, end: End) -> usize {
        let all = self.octets_max / (self.reply_max + kept::NOTED);
        let failures = all / FAILURES_SHARE;
        match end {
            End::Success => all - failures,
            End::Failure => failures,
        }
    }
}

/// The Replies that were sent lately.
#[derive(Debug)]
pub struct Replays {
    successes: Kept,
    failures: Kept,
    /// Calls that are being carried out in more than one turn.
    pending: BTreeMap<CallKey, Ticket>,
    age_max: Duration,
}

impl Replays {
    /// Takes the memory for the Replies. `seed` is chance; it makes it unknown to clients which Calls
    /// take long to be told from each other.
    pub fn new(limits: &Limits, seed: u64) -> Self {
        let part = |end| Kept::new(limits.replies(end), limits.reply_max, seed);
        Self {
            successes: part(End::Success),
            failures: part(End::Failure),
            pending: BTreeMap::new(),
            age_max: limits.age_max,
        }
    }

    /// Returns what is known of a Call that came at `now`.
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

    /// Notes that a Call goes on in later turns, under a ticket.
    pub fn wait(&mut self, key: CallKey, ticket: Ticket) {
        self.pending.insert(key, ticket);
    }

    /// Keeps the Reply of a Call that ended at `now`. A Reply that is too long is not kept.
    pub fn keep(&mut self, key: &CallKey, now: Instant, end: End, reply: &[u8]) {
        self.pending.remove(key);
        let part = match end {
            End::Success => &mut self.successes,
            End::Failure => &mut self.failures,
        };
        part.keep(key, now, reply);
    }

    /// Notes that a Call which was waited for ended without a Reply that is worth keeping.
    pub fn forget(&mut self, key: &CallKey) {
        self.pending.remove(key);
    }
}

/// Returns a hash of a Call's arguments. It only has to tell a Call from another that has its XID by
/// chance, so it covers the first octets and the length.
pub fn hash(arguments: &[u8]) -> u64 {
    let head = arguments.get(..HASHED_MAX).unwrap_or(arguments);
    let words = head.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_be_bytes(word)
    });
    words.fold(arguments.len() as u64, mix)
}

/// Mixes a number into a hash, by the finalizer of splitmix64.
const fn mix(hash: u64, number: u64) -> u64 {
    let mixed = (hash ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Octets of arguments that are hashed.
const HASHED_MAX: usize = 512;
/// Replies that are kept at the least: so many that those of Calls that succeeded are twice as many as the
/// Calls that a connection may have under way.
const REPLIES_MIN: usize =
    (2 * LIMITS_DEFAULT.credits_max as usize * FAILURES_SHARE).div_ceil(FAILURES_SHARE - 1);
/// The part of a server's memory that keeps Replies.
const MEMORY_SHARE: usize = 64;
/// The part of the Replies that are of Calls that failed.
const FAILURES_SHARE: usize = 4;
/// How long a Reply is kept: a client that has not heard for so long has given up its connection, and
/// sent its Calls on another, several times.
const AGE_MAX: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests;
