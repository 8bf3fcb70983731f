//! Memory stays of use whatever lengths keys and values had.

use std::collections::BTreeMap;

use haulage_test_support::Rng;

use super::*;

/// A server, and what is stored there: the length of each value by the number of its key.
struct Stored {
    world: World,
    lengths: BTreeMap<usize, usize>,
    next: usize,
    steps: usize,
    /// Octets in free pages of the empty server.
    room: usize,
    costs: Costs,
}

impl Stored {
    fn new(keys_max: u32, memory: u64) -> Self {
        let mut world = World::with(1, memory, keys_max);
        let room = world.server.cx(world.now).0.pool().free_bytes();
        let costs = Costs::new();
        Self { world, lengths: BTreeMap::new(), next: 0, steps: 0, room, costs }
    }

    /// Leases client memory and fills it with the value of a key.
    fn value(&mut self, length: usize, key: usize) -> Local {
        let (cx, _) = self.world.client.cx(self.world.now);
        let mut lease = cx.pool().lease(length).expect("the client has room");
        lease.bytes_mut().copy_from_slice(&octets(length, key));
        lease
    }

    /// Stores a value of `length` octets; returns false if it is refused.
    fn put(&mut self, length: usize) -> bool {
        let key = self.next;
        let value = self.value(length, key);
        self.world.put(0, &key.to_string(), value);
        self.steps += 1;
        match self.world.done(0) {
            DONE => {
                self.lengths.insert(key, length);
                self.next += 1;
                true
            }
            outcome => {
                assert_eq!(outcome, refused(Refusal::NoSpace));
                false
            }
        }
    }

    /// Stores a value of `length` octets that travels in the message.
    fn put_unreduced(&mut self, length: usize) -> bool {
        let key = self.next;
        self.world.ask(0, request(Procedure::Put), |w| {
            w.opaque(key.to_string().as_bytes())?;
            w.opaque(&octets(length, key))
        });
        let is_done = self.world.done(0) == DONE;
        if is_done {
            self.lengths.insert(key, length);
            self.next += 1;
        }
        is_done
    }

    /// Stores values until one is refused. Returns its length.
    fn fill(&mut self, mut length: impl FnMut() -> usize) -> usize {
        loop {
            let length = length();
            if !self.put(length) {
                return length;
            }
        }
    }

    /// Deletes every key for which `keeps` returns false.
    fn thin(&mut self, mut keeps: impl FnMut(usize) -> bool) {
        let gone: Vec<_> = self.lengths.keys().copied().filter(|key| !keeps(*key)).collect();
        for key in gone {
            self.world.ask(0, request(Procedure::Del), |w| w.opaque(key.to_string().as_bytes()));
            assert_eq!(self.world.done(0), DONE);
            self.lengths.remove(&key);
            self.steps += 1;
        }
    }

    fn check(&mut self) {
        for (key, length) in &self.lengths {
            let room = self.world.client.cx(self.world.now).0.pool().lease(*length).expect("room");
            self.world.get(0, &key.to_string(), room);
            assert!(self.world.got(0).bytes() == octets(*length, *key), "key {key}");
        }
    }

    /// Returns the part of the memory that keys and values take in a server that never had others.
    fn used(&mut self) -> f64 {
        let Self { costs, lengths, room, .. } = self;
        let key = costs.of(1);
        lengths.values().map(|length| key + costs.of(*length)).sum::<f64>() / *room as f64
    }

    /// Returns the part of the memory that a value takes.
    fn part(&mut self, length: usize) -> f64 {
        self.costs.of(length) / self.room as f64
    }
}

/// The octets that a lease takes where all are alike, by its capacity.
struct Costs {
    pool: Pool,
    known: BTreeMap<usize, f64>,
}

impl Costs {
    fn new() -> Self {
        let config = PoolConfig { bytes: 4 << 20, pages: PagePreference::Heap, node: None };
        Self { pool: Pool::new(&config).expect("heap"), known: BTreeMap::new() }
    }

    fn of(&mut self, length: usize) -> f64 {
        if length > LONGEST_IN_SLABS {
            return length.next_multiple_of(PAGE) as f64;
        }
        let Self { pool, known } = self;
        let capacity = pool.lease(length).expect("it is empty").capacity();
        *known.entry(capacity).or_insert_with(|| {
            let leases: Vec<_> =
                std::iter::from_fn(|| pool.lease_as(length, Density::Full)).collect();
            pool.usable() as f64 / leases.len() as f64
        })
    }
}

/// Returns the value of a key: its number, and then one octet over and over.
fn octets(length: usize, key: usize) -> Vec<u8> {
    let mut octets = vec![key.to_le_bytes()[0]; length];
    octets.iter_mut().zip(key.to_le_bytes()).for_each(|(octet, of_key)| *octet = of_key);
    octets
}

/// Octets of a page.
const PAGE: usize = 4096;
/// The longest value that shares pages with others.
const LONGEST_IN_SLABS: usize = 64 << 10;

/// The maximum lengths of the values, in turns; a value has at least half of its maximum.
const MIXES: [&[usize]; 8] = [
    &[4096, 1000],
    &[3500, 1 << 20],
    &[2300, 1100, 3300],
    &[700, 100_000],
    &[20_000, 1400, 2600],
    &[1100, 300_000, 1800],
    &[3000, 500, 64 << 10, 2000],
    &[900, 6000, 1300, 12_000],
];

#[test]
fn a_value_fits_if_its_octets_are_free_whatever_lengths_there_were() {
    mixed(0);
    mixed(3);
}

/// The test above for two other mixes. They are tests apart, so that both run at once.
#[test]
fn a_value_fits_if_its_octets_are_free_where_two_lengths_were_alike_or_far_apart() {
    mixed(1);
    mixed(4);
}

#[test]
#[ignore = "it takes a minute: tests/check --full runs it"]
fn a_value_fits_if_its_octets_are_free_in_every_mix_of_lengths() {
    (0..MIXES.len()).for_each(mixed);
}

/// Stores values of the lengths of one mix and deletes many of them, again and again.
fn mixed(seed: usize) {
    const STEPS: usize = 1_500;
    let mix = MIXES[seed];
    let mut rng = Rng::new(seed as u64);
    let mut stored = Stored::new(100_000, 8 << 20);
    for (turn, most) in mix.iter().cycle().enumerate() {
        let refused =
            stored.fill(|| if rng.below(2) == 0 { *most } else { most / 2 + rng.below(most / 2) });
        let used = stored.used() + stored.part(refused);
        assert!(used > 0.95, "mix {seed} is refused when {used} of the memory is of use");
        let part = [2, 8, 64][rng.below(3)];
        stored.thin(|_| rng.below(part) == 0);
        stored.check();
        if stored.steps >= STEPS && turn >= 2 * mix.len() {
            break;
        }
    }
}

#[test]
fn few_short_values_that_are_left_of_many_keep_no_long_one_out() {
    for (length, part) in [(3500, 64), (3500, 16), (3500, 8), (100, 40)] {
        let mut stored = Stored::new(60_000, 4 << 20);
        stored.fill(|| length);
        stored.thin(|key| key % part == 0);
        for long in [1 << 20, 100_000, 8192] {
            assert!(stored.put(long), "{long} octets where one of {part} of {length} is left");
        }
        let stat = stored.world.stat();
        assert!(stat.usable_unmoved_bytes <= stat.usable_bytes, "{stat:?}");
        // Values can use the octets that the server calls usable.
        let used = stored.used();
        stored.fill(|| PAGE);
        let more = (stored.used() - used) * stored.room as f64;
        assert!(more > stat.usable_bytes as f64 * 0.97, "{more} octets of {stat:?}");
        stored.check();
    }
}

#[test]
fn what_is_read_listed_and_overwritten_meanwhile_stays_right() {
    const READS: usize = 12;
    let mut stored = Stored::new(20_000, 2 << 20);
    let mut rng = Rng::new(1);
    let (mut at, mut listed_ever) = (0, 0);
    for turn in 0..40 {
        let length = [700, 1100, 1800, 3500][turn % 4];
        stored.fill(|| length);
        stored.thin(|_| rng.below(4) == 0);
        // Reads are under way while values are stored that others have to make room for, one of them under a key that
        // is being read.
        let keys: Vec<_> = stored.lengths.iter().map(|(key, length)| (*key, *length)).collect();
        let mut reads = Vec::new();
        for read in 0..READS {
            let (key, length) = keys[rng.below(keys.len())];
            let room = stored.world.value(length, 0);
            stored.world.get(1 + read, &key.to_string(), room);
            reads.push(key);
        }
        stored.world.ask(1 + READS, request(Procedure::Keys), |w| w.u32(at));
        let (key, _) = keys[rng.below(keys.len())];
        let value = stored.value(4000, key);
        stored.world.put(2 + READS, &key.to_string(), value);
        for _ in 0..20 {
            assert!(stored.put(4000), "turn {turn}");
        }
        assert_eq!(stored.world.done(2 + READS), DONE);
        let was = stored.lengths.insert(key, 4000);
        for (read, key_read) in reads.into_iter().enumerate() {
            let value = stored.world.got(1 + read);
            let length = if key_read == key { was } else { stored.lengths.get(&key_read).copied() };
            let is_old = Some(value.len()) == length;
            assert!(is_old || key_read == key && value.len() == 4000, "turn {turn}");
            assert!(value.bytes() == octets(value.len(), key_read), "turn {turn}");
        }
        let Ok(Answer::Keys(list)) = stored.world.answer(1 + READS) else { panic!("no keys") };
        at = list.next.unwrap_or(0);
        let listed: Vec<_> = list.keys().map(|key| key.to_string()).collect();
        let is_known = |key: &String| key.parse().is_ok_and(|key: usize| key < stored.next);
        assert!(listed.iter().all(is_known), "turn {turn}");
        listed_ever += listed.len();
        stored.check();
    }
    assert!(stored.world.stat().moved_bytes > 0 && listed_ever > 0);
}

#[test]
fn values_in_messages_find_room_as_well() {
    let mut stored = Stored::new(100_000, 4 << 20);
    stored.fill(|| 100);
    stored.thin(|key| key % 40 == 0);
    assert!(stored.put_unreduced(2000), "an unreduced value");
    let many = (0..500).filter(|_| stored.put_unreduced(1500)).count();
    assert_eq!(many, 500);
    assert!(stored.world.stat().moved_bytes > 0);
    stored.check();
}
