//! Calls that come twice: what was answered to the first is answered to the second.
//!
//! A client that hears nothing sends its Call again, over another connection and from another port if
//! it lost the first. To remove a name twice is to find it gone, so for procedures that are not
//! idempotent the Reply is kept until others take its place.
//!
//! # Limits
//! So many Replies of bounded length, in memory taken at the start. A Call has few places it may be
//! remembered in; there, the oldest Reply makes room. A Call that is being carried out is never
//! forgotten: where there are only such, a new one is not remembered, and not protected.

/// Names a Call, whatever connection it comes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallKey {
    /// Who calls: the address, without the port.
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
    sets: Box<[[Slot; WAYS]]>,
    /// A stretch of `reply_max` octets for each slot.
    replies: Box<[u8]>,
    reply_max: usize,
    /// Makes it unknown to clients which Calls share a set.
    seed: u64,
    /// Counts the Replies that were kept.
    age: u64,
}

/// Room for one Call.
#[derive(Clone, Copy, Debug)]
enum Slot {
    Free,
    Pending(CallKey),
    Answered { key: CallKey, length: usize, age: u64 },
}

impl Replays {
    /// Makes room for at least `calls_max` Replies of at most `reply_max` octets each. `seed` is chance.
    pub fn new(calls_max: usize, reply_max: usize, seed: u64) -> Self {
        let sets = calls_max.div_ceil(WAYS).max(1);
        Self {
            sets: vec![[Slot::Free; WAYS]; sets].into(),
            replies: vec![0; sets * WAYS * reply_max].into(),
            reply_max,
            seed,
            age: 0,
        }
    }

    /// Notes that a Call came.
    pub fn begin(&mut self, key: CallKey) -> Seen<'_> {
        let set = self.set(&key);
        let slots = &mut self.sets[set];
        if let Some(way) = slots.iter().position(|slot| slot.key() == Some(&key)) {
            return match slots[way] {
                Slot::Answered { length, .. } => {
                    let start = self.start(set, way);
                    Seen::Answered(&self.replies[start..start + length])
                }
                Slot::Pending(_) | Slot::Free => Seen::Pending,
            };
        }
        let oldest = slots.iter_mut().filter(|slot| !matches!(slot, Slot::Pending(_)));
        if let Some(slot) = oldest.min_by_key(|slot| slot.age()) {
            *slot = Slot::Pending(key);
        }
        Seen::New
    }

    /// Notes what a Call was answered with. A Reply that is too long to be kept is forgotten, and so
    /// is one to a Call that was not carried out after all, which is `None`.
    pub fn end(&mut self, key: CallKey, reply: Option<&[u8]>) {
        let set = self.set(&key);
        let pending = |slot: &Slot| matches!(slot, Slot::Pending(held) if *held == key);
        let Some(way) = self.sets[set].iter().position(pending) else { return };
        let start = self.start(set, way);
        self.sets[set][way] = match reply.filter(|reply| reply.len() <= self.reply_max) {
            Some(reply) => {
                self.age += 1;
                self.replies[start..start + reply.len()].copy_from_slice(reply);
                Slot::Answered { key, length: reply.len(), age: self.age }
            }
            None => Slot::Free,
        };
    }

    /// Returns the number of the set that a Call is remembered in.
    fn set(&self, key: &CallKey) -> usize {
        let halves = [key.client >> 64, key.client & u128::from(u64::MAX)];
        let [high, low] = halves.map(|half| u64::try_from(half).unwrap_or_default());
        let numbers = u64::from(key.xid) << 32 | u64::from(key.procedure);
        let mixed = [high, low, numbers, key.digest].into_iter().fold(self.seed, mix);
        usize::try_from(mixed % self.sets.len() as u64).unwrap_or_default()
    }

    /// Returns where the Reply of a slot starts.
    const fn start(&self, set: usize, way: usize) -> usize {
        (set * WAYS + way) * self.reply_max
    }
}

impl Slot {
    const fn key(&self) -> Option<&CallKey> {
        match self {
            Self::Free => None,
            Self::Pending(key) | Self::Answered { key, .. } => Some(key),
        }
    }

    /// Orders those that may go: the free ones first, then by when they were answered.
    const fn age(&self) -> u64 {
        match self {
            Self::Answered { age, .. } => *age,
            Self::Free | Self::Pending(_) => 0,
        }
    }
}

/// Returns a hash of a Call's arguments. Nothing rests on it but that a Call is told from another that
/// has its XID by chance, so the first octets and the length do.
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
/// Places that a Call may be remembered in.
const WAYS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(xid: u32) -> CallKey {
        CallKey { client: 1, xid, procedure: 12, digest: 99 }
    }

    #[test]
    fn a_call_is_carried_out_once() {
        let mut replays = Replays::new(4, 8, 0);
        assert_eq!(replays.begin(key(1)), Seen::New);
        assert_eq!(replays.begin(key(1)), Seen::Pending);
        replays.end(key(1), Some(b"done"));
        assert_eq!(replays.begin(key(1)), Seen::Answered(b"done"));
        // A second end is none of a Call that runs, and neither is that of one that never came.
        replays.end(key(1), Some(b"again"));
        replays.end(key(7), Some(b"none"));
        assert_eq!(replays.begin(key(1)), Seen::Answered(b"done"));
        assert_eq!(replays.begin(key(7)), Seen::New);
    }

    #[test]
    fn every_part_of_the_key_tells_calls_apart() {
        let mut replays = Replays::new(8, 8, 0);
        let first = key(1);
        for other in [
            first,
            CallKey { client: 2, ..first },
            CallKey { client: 1 << 64, ..first },
            CallKey { xid: 2, ..first },
            CallKey { procedure: 13, ..first },
            CallKey { digest: 98, ..first },
        ] {
            assert_eq!(replays.begin(other), Seen::New);
        }
    }

    #[test]
    fn the_oldest_reply_goes_first_and_no_call_that_runs() {
        // One set.
        let mut replays = Replays::new(WAYS, 8, 0);
        assert_eq!(replays.begin(key(0)), Seen::New);
        for xid in 1..8 {
            replays.begin(key(xid));
            replays.end(key(xid), Some(&xid.to_be_bytes()));
        }
        assert_eq!(replays.begin(key(8)), Seen::New);
        for xid in 2..8 {
            assert_eq!(replays.begin(key(xid)), Seen::Answered(&xid.to_be_bytes()));
        }
        for pending in [0, 8] {
            assert_eq!(replays.begin(key(pending)), Seen::Pending);
        }
        for xid in 9..15 {
            assert_eq!(replays.begin(key(xid)), Seen::New);
        }
        // Now all that are remembered run, and one more is not.
        assert_eq!(replays.begin(key(15)), Seen::New);
        assert_eq!(replays.begin(key(15)), Seen::New);
        replays.end(key(15), Some(b"done"));
        assert_eq!(replays.begin(key(15)), Seen::New);
        assert_eq!(replays.begin(key(0)), Seen::Pending);
    }

    #[test]
    fn arguments_that_differ_hash_differently() {
        let long = [7; HASHED_MAX + 1];
        let all = [&b""[..], b"\0", b"\0\0", b"a", b"b", &long[1..], &long];
        let hashes: std::collections::BTreeSet<_> = all.iter().map(|bytes| hash(bytes)).collect();
        assert_eq!((hashes.len(), hash(b"a")), (all.len(), hash(b"a")));
    }

    #[test]
    fn what_cannot_be_kept_is_forgotten() {
        let mut replays = Replays::new(2, 4, 0);
        replays.begin(key(1));
        replays.end(key(1), Some(b"too long"));
        replays.begin(key(2));
        replays.end(key(2), None);
        assert_eq!(replays.begin(key(1)), Seen::New);
        assert_eq!(replays.begin(key(2)), Seen::New);
        replays.end(key(1), Some(b"fits"));
        assert_eq!(replays.begin(key(1)), Seen::Answered(b"fits"));
    }

    #[test]
    fn most_of_the_latest_are_remembered_and_where_depends_on_the_seed() {
        let remembered = |seed| -> Vec<u32> {
            let mut replays = Replays::new(1024, 8, seed);
            for xid in 0..2048 {
                assert_eq!(replays.begin(key(xid)), Seen::New);
                replays.end(key(xid), Some(&xid.to_be_bytes()));
            }
            let known = |xid: &u32| {
                let seen = replays.sets[replays.set(&key(*xid))];
                seen.iter().any(|slot| slot.key() == Some(&key(*xid)))
            };
            (0..2048).filter(known).collect()
        };
        let (first, second) = (remembered(1), remembered(2));
        assert_ne!(first, second);
        for latest in [first, second] {
            assert!(latest.len() > 1000);
            // The last half of what there is room for is all but there.
            assert!(latest.iter().filter(|xid| **xid >= 1536).count() > 500);
        }
    }
}
