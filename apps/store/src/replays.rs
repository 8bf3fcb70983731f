//! Calls that come twice: what was answered to the first is answered to the second.
//!
//! A client that hears nothing sends its Call again, over another connection and from another port if
//! it lost the first. To remove a name twice is to find it gone, so for procedures that are not
//! idempotent the Reply is kept until others take its place.
//!
//! # Limits
//! So many Replies of bounded length; the oldest goes first. A Call that is being carried out is
//! never forgotten: when there are only such, a new one is not remembered, and not protected.

use std::collections::{BTreeMap, VecDeque};

/// Names a Call, whatever connection it comes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallKey {
    /// Who calls: the address, without the port.
    pub client: u128,
    /// The Call's XID.
    pub xid: u32,
    /// Its procedure number.
    pub procedure: u32,
    /// A hash of its arguments: a client that starts again may use an XID again.
    pub digest: u64,
}

/// What is known of a Call that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen<'a> {
    /// It is the first: carry it out, then tell [`Replays::end`].
    New,
    /// It is being carried out: say nothing.
    Pending,
    /// It was answered with this.
    Answered(&'a [u8]),
}

/// The Replies that were sent last.
#[derive(Debug)]
pub struct Replays {
    replies: BTreeMap<CallKey, Option<Box<[u8]>>>,
    /// Those that were answered, oldest first.
    answered: VecDeque<CallKey>,
    calls_max: usize,
    reply_max: usize,
}

impl Replays {
    /// Keeps at most `calls_max` Replies of at most `reply_max` octets.
    pub const fn new(calls_max: usize, reply_max: usize) -> Self {
        Self { replies: BTreeMap::new(), answered: VecDeque::new(), calls_max, reply_max }
    }

    /// Notes that a Call came.
    pub fn begin(&mut self, key: CallKey) -> Seen<'_> {
        if !self.replies.contains_key(&key) {
            if self.replies.len() >= self.calls_max
                && let Some(oldest) = self.answered.pop_front()
            {
                self.replies.remove(&oldest);
            }
            if self.replies.len() < self.calls_max {
                self.replies.insert(key, None);
            }
            return Seen::New;
        }
        match self.replies.get(&key) {
            Some(Some(reply)) => Seen::Answered(reply),
            Some(None) | None => Seen::Pending,
        }
    }

    /// Notes what a Call was answered with. A Reply that is too long to be kept is forgotten, and so
    /// is one to a Call that was not carried out after all, which is `None`.
    pub fn end(&mut self, key: CallKey, reply: Option<&[u8]>) {
        let Some(kept) = self.replies.get_mut(&key).filter(|kept| kept.is_none()) else { return };
        match reply.filter(|reply| reply.len() <= self.reply_max) {
            Some(reply) => {
                *kept = Some(reply.into());
                self.answered.push_back(key);
            }
            None => {
                self.replies.remove(&key);
            }
        }
    }

    /// Returns how many Calls are remembered.
    pub fn len(&self) -> usize {
        self.replies.len()
    }

    /// Returns whether none is.
    pub fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(xid: u32) -> CallKey {
        CallKey { client: 1, xid, procedure: 12, digest: 99 }
    }

    #[test]
    fn a_call_is_carried_out_once() {
        let mut replays = Replays::new(4, 8);
        assert_eq!(replays.begin(key(1)), Seen::New);
        assert_eq!(replays.begin(key(1)), Seen::Pending);
        replays.end(key(1), Some(b"done"));
        assert_eq!(replays.begin(key(1)), Seen::Answered(b"done"));
        // A second end is none of a Call that runs.
        replays.end(key(1), Some(b"again"));
        replays.end(key(7), Some(b"none"));
        assert_eq!(replays.begin(key(1)), Seen::Answered(b"done"));
        assert_eq!(replays.len(), 1);
    }

    #[test]
    fn every_part_of_the_key_tells_calls_apart() {
        let mut replays = Replays::new(8, 8);
        let first = key(1);
        for other in [
            first,
            CallKey { client: 2, ..first },
            CallKey { xid: 2, ..first },
            CallKey { procedure: 13, ..first },
            CallKey { digest: 98, ..first },
        ] {
            assert_eq!(replays.begin(other), Seen::New);
        }
    }

    #[test]
    fn the_oldest_reply_goes_first_and_no_call_that_runs() {
        let mut replays = Replays::new(3, 8);
        assert_eq!(replays.begin(key(1)), Seen::New);
        for xid in [2, 3] {
            replays.begin(key(xid));
            replays.end(key(xid), Some(b"done"));
        }
        assert_eq!(replays.begin(key(4)), Seen::New);
        assert_eq!(replays.begin(key(3)), Seen::Answered(b"done"));
        assert_eq!(replays.begin(key(1)), Seen::Pending);
        assert_eq!(replays.begin(key(2)), Seen::New);
        // Now all that are remembered run.
        assert_eq!(replays.begin(key(5)), Seen::New);
        assert_eq!(replays.begin(key(5)), Seen::New);
        assert_eq!(replays.len(), 3);
        replays.end(key(5), Some(b"done"));
        assert_eq!(replays.begin(key(1)), Seen::Pending);
        assert_eq!(replays.len(), 3);
    }

    #[test]
    fn what_cannot_be_kept_is_forgotten() {
        let mut replays = Replays::new(2, 4);
        replays.begin(key(1));
        replays.end(key(1), Some(b"too long"));
        replays.begin(key(2));
        replays.end(key(2), None);
        assert!(replays.is_empty());
        assert_eq!(replays.begin(key(1)), Seen::New);
    }
}
