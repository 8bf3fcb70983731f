//! A bounded table of Replies, shared fairly between addresses.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use haulage_proto::time::Instant;

use super::call::{CallKey, Connection, Given};

/// A table of Replies by Call.
#[derive(Debug)]
pub(super) struct Kept {
    slots: Box<[Slot]>,
    /// `reply_max` octets for each slot.
    replies: Box<[u8]>,
    reply_max: usize,
    /// The first slot of each hash bucket's list.
    buckets: Box<[Index]>,
    seed: u64,
    /// The first free slot; free slots are linked by [`Slot::newer`].
    free: Index,
    /// The ends of the list of used slots, ordered by age.
    oldest: Index,
    newest: Index,
    /// The addresses that have slots.
    sharers: BTreeMap<u128, Sharer>,
    /// The number of slots with the address that has them, in rising order.
    by_count: BTreeSet<(usize, u128)>,
    /// The connections on which the Calls of the used slots came.
    connections: BTreeMap<Connection, Came>,
}

/// A slot for one Reply.
#[derive(Clone, Copy, Debug)]
struct Slot {
    key: CallKey,
    /// The connection on which the Call came; `None` of a free slot.
    connection: Option<Connection>,
    kept: Instant,
    length: usize,
    /// The next slot of the same hash bucket.
    alike: Index,
    older: Index,
    newer: Index,
    /// The next newer slot of the same address.
    newer_own: Index,
}

/// The slots of one address, in a list ordered by age.
#[derive(Clone, Copy, Debug)]
struct Sharer {
    oldest: Index,
    newest: Index,
    count: usize,
}

/// The slots of the Calls that came on one connection.
#[derive(Clone, Copy, Debug, Default)]
struct Came {
    count: Index,
    /// Whether the Replies in them are used no more.
    is_forgotten: bool,
}

/// The number of a slot, or [`NONE`].
type Index = u32;

impl Kept {
    /// Creates a table and allocates memory for `replies_max` Replies.
    pub(super) fn new(replies_max: usize, reply_max: usize, seed: u64) -> Self {
        let count = replies_max.min(NONE as usize - 1);
        let mut slots: Box<[Slot]> = vec![Slot::FREE; count].into();
        for (slot, next) in slots.iter_mut().zip(1..) {
            slot.newer = if next as usize == count { NONE } else { next };
        }
        Self {
            slots,
            replies: vec![0; count * reply_max].into(),
            reply_max,
            buckets: vec![NONE; count.max(1)].into(),
            seed,
            free: if count == 0 { NONE } else { 0 },
            oldest: NONE,
            newest: NONE,
            sharers: BTreeMap::new(),
            by_count: BTreeSet::new(),
            connections: BTreeMap::new(),
        }
    }

    /// Returns the Reply to a Call, with the time at which it was added, unless it is forgotten.
    pub(super) fn find(&self, key: &CallKey) -> Option<(Instant, &[u8])> {
        let mut at = self.buckets[self.bucket(key)];
        while at != NONE {
            let slot = &self.slots[at as usize];
            if slot.key == *key && !self.is_forgotten(slot) {
                let start = at as usize * self.reply_max;
                return Some((slot.kept, &self.replies[start..start + slot.length]));
            }
            at = slot.alike;
        }
        None
    }

    /// Adds a Reply, unless it is too long. If the table is full, evicts the oldest Reply of the address with most
    /// Replies; this Call's own address if it is among several with most.
    pub(super) fn keep(&mut self, key: &CallKey, given: &Given<'_>) {
        let Given { connection, now, reply, .. } = *given;
        if reply.len() > self.reply_max || self.slots.is_empty() {
            return;
        }
        let sharer = sharer(key.client);
        if self.free == NONE {
            let own = self.sharers.get(&sharer).map_or(0, |own| own.count);
            if let Some((most, other)) = self.by_count.last().copied() {
                let loser = if own == most { sharer } else { other };
                self.remove(self.sharers[&loser].oldest);
            }
        }
        let at = self.free;
        self.free = self.slots[at as usize].newer;
        let bucket = self.bucket(key);
        self.slots[at as usize] = Slot {
            key: *key,
            connection: Some(connection),
            kept: now,
            length: reply.len(),
            alike: std::mem::replace(&mut self.buckets[bucket], at),
            older: self.newest,
            newer: NONE,
            newer_own: NONE,
        };
        let start = at as usize * self.reply_max;
        self.replies[start..start + reply.len()].copy_from_slice(reply);
        match self.newest {
            NONE => self.oldest = at,
            newest => self.slots[newest as usize].newer = at,
        }
        self.newest = at;
        self.connections.entry(connection).or_default().count += 1;
        self.count_in(sharer, at);
    }

    /// Forgets the Replies of a connection. Their slots are freed when they are the oldest.
    pub(super) fn forget(&mut self, connection: Connection) {
        if let Some(came) = self.connections.get_mut(&connection) {
            came.is_forgotten = true;
        }
    }

    fn is_forgotten(&self, slot: &Slot) -> bool {
        let came = slot.connection.and_then(|connection| self.connections.get(&connection));
        came.is_some_and(|came| came.is_forgotten)
    }

    /// Frees at most [`EXPIRED_MAX`] of the oldest slots for which `is_old` is true. That exceeds the number filled
    /// between two calls.
    pub(super) fn expire(&mut self, is_old: impl Fn(Instant) -> bool) {
        for _ in 0..EXPIRED_MAX {
            if self.oldest == NONE || !is_old(self.slots[self.oldest as usize].kept) {
                break;
            }
            self.remove(self.oldest);
        }
    }

    /// Frees a slot, which is the oldest of its address.
    fn remove(&mut self, at: Index) {
        let Slot { key, connection, alike, older, newer, .. } = self.slots[at as usize];
        let bucket = self.bucket(&key);
        if self.buckets[bucket] == at {
            self.buckets[bucket] = alike;
        } else {
            let mut before = self.buckets[bucket];
            while self.slots[before as usize].alike != at {
                before = self.slots[before as usize].alike;
            }
            self.slots[before as usize].alike = alike;
        }
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
        self.count_out(sharer(key.client), at);
        if let Some(Entry::Occupied(mut came)) = connection.map(|name| self.connections.entry(name))
        {
            came.get_mut().count -= 1;
            if came.get().count == 0 {
                came.remove();
            }
        }
        self.slots[at as usize] = Slot { newer: self.free, ..Slot::FREE };
        self.free = at;
    }

    /// Adds a slot to those of its address.
    fn count_in(&mut self, address: u128, at: Index) {
        let fresh = Sharer { oldest: at, newest: NONE, count: 0 };
        let own = self.sharers.entry(address).or_insert(fresh);
        if own.newest != NONE {
            self.slots[own.newest as usize].newer_own = at;
        }
        own.newest = at;
        own.count += 1;
        // Inserting first keeps the set from becoming empty, which would free its memory.
        self.by_count.insert((own.count, address));
        self.by_count.remove(&(own.count - 1, address));
    }

    /// Removes the oldest slot of an address from its list.
    fn count_out(&mut self, address: u128, at: Index) {
        let Some(own) = self.sharers.get_mut(&address) else { return };
        debug_assert_eq!(own.oldest, at, "whatever goes is the oldest of its address");
        own.count -= 1;
        own.oldest = self.slots[at as usize].newer_own;
        let (left, had) = (own.count, own.count + 1);
        if left == 0 {
            self.sharers.remove(&address);
        } else {
            self.by_count.insert((left, address));
        }
        self.by_count.remove(&(had, address));
    }

    fn bucket(&self, key: &CallKey) -> usize {
        let halves = [key.client >> 64, key.client & u128::from(u64::MAX)];
        let [high, low] = halves.map(|half| u64::try_from(half).unwrap_or_default());
        let numbers = u64::from(key.xid) << 32 | u64::from(key.procedure);
        let mixed = [high, low, numbers, key.digest].into_iter().fold(self.seed, mix);
        usize::try_from(mixed % self.buckets.len() as u64).unwrap_or_default()
    }

    /// Returns the connections that have Replies.
    #[cfg(test)]
    pub(super) fn connections(&self) -> Vec<Connection> {
        self.connections.keys().copied().collect()
    }

    /// Returns the number of Replies kept for the address of `client`.
    #[cfg(test)]
    pub(super) fn count(&self, client: u128) -> usize {
        self.sharers.get(&sharer(client)).map_or(0, |own| own.count)
    }
}

impl Slot {
    const FREE: Self = Self {
        key: CallKey { client: 0, xid: 0, procedure: 0, digest: 0 },
        connection: None,
        kept: Instant::ZERO,
        length: 0,
        alike: NONE,
        older: NONE,
        newer: NONE,
        newer_own: NONE,
    };
}

/// Returns the address under which a client's Replies count: the network, which is the upper half, of an IPv6 address,
/// or an IPv4 address itself.
const fn sharer(client: u128) -> u128 {
    const IPV4: u128 = 0xffff;
    if client >> 32 == IPV4 { client } else { client >> 64 << 64 }
}

/// Mixes a number into a hash, by the finalizer of splitmix64.
const fn mix(hash: u64, number: u64) -> u64 {
    let mixed = (hash ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// No slot.
const NONE: Index = Index::MAX;

/// Maximum number of slots freed at once: more than one, as each Call fills one.
const EXPIRED_MAX: usize = 4;

/// Octets of bookkeeping for each Reply.
pub(super) const NOTED: usize = {
    let mut octets = 0;
    octets += size_of::<Slot>();
    octets += size_of::<Index>(); // its bucket
    octets += 2 * size_of::<(usize, u128)>(); // by_count, in nodes that may be half full
    octets += 2 * size_of::<(u128, Sharer)>(); // sharers, the same, if each address has one Reply
    octets += 2 * size_of::<(Connection, Came)>(); // connections, the same, if each has one Reply
    octets
};
