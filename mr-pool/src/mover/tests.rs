use std::collections::BTreeMap;

use super::*;
use crate::lease::Shared;
use crate::size::PAGE;
use crate::tests::{Rng, assert_all_home, pool};
use crate::{Density, PagePreference, PoolConfig, Reservoir};

/// Leases by tag, each full of octets that its number determines.
#[derive(Default)]
struct Kept {
    slots: Vec<Option<(usize, Movable)>>,
    free: Vec<usize>,
    /// Leases that requests read, each with its number. Those dropped meanwhile are in no slot.
    read: Vec<(usize, LeasePlace, Shared)>,
    /// How often a lease was sought in the slot of another.
    missed: usize,
    /// Numbers of the leases that are being moved.
    moving: BTreeMap<u32, usize>,
    /// Leases in whose place there are others, each with its number: other cores may read them.
    replaced: Vec<(usize, Movable)>,
    /// How many more leases may be replaced.
    room: Option<usize>,
}

impl Kept {
    /// Keeps the lease of this number, full of its octets. Returns `None` if there is no room for it.
    fn keep(&mut self, lease: Option<Local>, number: usize) -> Option<()> {
        let mut lease = lease?;
        let length = lease.len();
        lease.bytes_mut().copy_from_slice(&octets(number, length));
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        // Keys and values.
        let lease = if number.is_multiple_of(2) {
            lease.tag(u32::try_from(slot).unwrap());
            Movable::Local(lease)
        } else {
            let lease = lease.into_common();
            lease.tag(u32::try_from(slot).unwrap());
            Movable::Common(lease)
        };
        self.slots[slot] = Some((number, lease));
        Some(())
    }

    fn drop(&mut self, slot: usize) {
        if self.slots[slot].take().is_some() {
            self.free.push(slot);
        }
    }

    /// Asserts that every lease has its own octets, which no other has.
    fn check(&self) {
        let mut places = BTreeMap::new();
        for (number, lease) in self.slots.iter().flatten() {
            assert!(lease.bytes() == octets(*number, lease.bytes().len()), "lease {number}");
            places.insert(lease.bytes().as_ptr().addr(), lease.bytes().len());
        }
        assert_eq!(places.len(), self.slots.iter().flatten().count());
        let ends = places.iter().map(|(start, length)| start + length);
        assert!(
            ends.zip(places.keys().skip(1)).all(|(end, next)| end <= *next),
            "octets lent twice"
        );
    }
}

impl Keeper for Kept {
    fn take(&mut self, tag: u32, place: LeasePlace) -> Option<Movable> {
        let slot = &mut self.slots[tag as usize];
        if !slot.as_ref().is_some_and(|(_, lease)| place_of(lease) == place) {
            self.missed += usize::from(self.read.iter().all(|(_, read, _)| *read != place));
            return None;
        }
        let (number, lease) = slot.take()?;
        self.moving.insert(tag, number);
        Some(lease)
    }

    fn put(&mut self, tag: u32, _: LeasePlace, lease: Movable) {
        let number = self.moving.remove(&tag).expect("it was taken");
        self.slots[tag as usize] = Some((number, lease));
    }

    fn replace(
        &mut self,
        tag: u32,
        place: LeasePlace,
        again: &mut dyn FnMut(&[u8]) -> Option<Local>,
    ) -> Replaced {
        let found = self.slots[tag as usize].as_mut().filter(|(_, kept)| place_of(kept) == place);
        let Some((number, kept)) = found else { return Replaced::Gone };
        if self.room == Some(0) {
            return Replaced::Stays;
        }
        self.room = self.room.map(|room| room - 1);
        let Some(lease) = again(kept.bytes()) else { return Replaced::Stays };
        let lease = match kept {
            Movable::Local(_) => Movable::Local(lease),
            Movable::Common(_) => Movable::Common(lease.into_common()),
        };
        self.replaced.push((*number, std::mem::replace(kept, lease)));
        Replaced::Done
    }
}

fn place_of(lease: &Movable) -> LeasePlace {
    match lease {
        Movable::Local(lease) => lease.place(),
        Movable::Common(lease) => lease.place(),
    }
}

fn octets(number: usize, length: usize) -> Vec<u8> {
    let mut octets = vec![number.to_le_bytes()[0]; length];
    octets.iter_mut().zip(number.to_le_bytes()).for_each(|(octet, of_number)| *octet = of_number);
    octets
}

#[test]
fn leases_keep_their_octets_and_tags_whatever_is_moved() {
    let mut all = 0;
    for seed in 0..if cfg!(miri) { 1 } else { 30 } {
        let mut rng = Rng::new(seed);
        let pool = pool(if cfg!(miri) { 64 << 10 } else { 512 << 10 });
        let (mut mover, mut kept) = (Mover::new(), Kept::default());
        let mut loose = Vec::new();
        let lengths = 6 + rng.below(8);
        for number in 0..if cfg!(miri) { 400 } else { 4000 } {
            let length = rng.length(lengths);
            match rng.below(16) {
                0..13 => {
                    let dense = |pool: &Pool| pool.lease_as(length, Density::Full);
                    let either = |pool: &Pool| pool.lease(length);
                    let lease = if rng.below(4) > 0 { dense(&pool) } else { either(&pool) };
                    if kept.keep(lease, number).is_none() {
                        make_room(&pool, &mut mover, &mut kept, length);
                        kept.check();
                    }
                }
                13 => {
                    // Most of those that lie beside one another, as when values of one kind are deleted.
                    let from = rng.below(kept.slots.len().max(1));
                    let to = kept.slots.len().min(from + 40);
                    (from..to).filter(|_| rng.below(4) > 0).for_each(|slot| kept.drop(slot));
                }
                // A request that reads a lease, and a lease without a tag.
                14 => {
                    if let Some(Some((number, Movable::Common(lease)))) = kept.slots.first() {
                        kept.read.push((*number, lease.place(), lease.here(&pool).unwrap()));
                    }
                    loose.extend(pool.lease(length));
                }
                _ => {
                    loose.truncate(rng.below(4));
                    for (number, _, lease) in kept.read.drain(..) {
                        assert!(lease.bytes() == octets(number, lease.len()));
                    }
                }
            }
        }
        assert_eq!(kept.missed, 0, "{seed}: a tag that names no lease");
        all += mover.moved().leases;
        drop((kept, loose));
        assert_all_home(&pool);
    }
    assert!(all > 0, "nothing was moved");
}

#[test]
fn leases_that_are_in_use_stay_where_they_are() {
    let (pool, mut mover, mut kept) = (pool(1 << 20), Mover::new(), Kept::default());
    while kept.keep(pool.lease_as(1000, Density::Full), 1).is_some() {}
    (0..kept.slots.len()).filter(|slot| slot % 4 != 0).for_each(|slot| kept.drop(slot));
    let here = |slot: &Option<(usize, Movable)>| match slot {
        Some((_, Movable::Common(lease))) => lease.here(&pool),
        _ => None,
    };
    let read: Vec<_> = kept.slots.iter().filter_map(here).collect();
    assert_eq!((pool.free_bytes(), read.len()), (0, 256));
    while mover.step(&pool, &mut kept, 3000) == Step::More {}
    assert_eq!((mover.moved(), pool.free_bytes()), (Moved::default(), 0));
    // Once the readers let go, another lap is worth while when it was asked for often enough, or enough was freed.
    drop(read);
    assert_eq!(mover.step(&pool, &mut kept, 3000), Step::Full);
    let asked = (0..5).take_while(|_| mover.step(&pool, &mut kept, 3000) == Step::Full).count();
    assert!((1..5).contains(&asked), "{asked}");
    make_room(&pool, &mut mover, &mut kept, 3000);
    assert!(pool.lease_as(3000, Density::Full).is_some() && mover.moved().leases > 0);
    kept.check();
}

#[test]
fn a_lease_that_its_owner_does_not_find_stays_where_it_is() {
    let (pool, mut mover, mut kept) = (pool(64 << 10), Mover::new(), Kept::default());
    while kept.keep(pool.lease_as(1000, Density::Full), 1).is_some() {}
    (0..kept.slots.len()).filter(|slot| slot % 4 != 0).for_each(|slot| kept.drop(slot));
    let hidden: Vec<_> = kept.slots.iter_mut().step_by(8).map(Option::take).collect();
    while mover.step(&pool, &mut kept, 3000) == Step::More {}
    assert!(kept.missed > 0 && mover.moved() == Moved::default());
    kept.check();
    for (number, lease) in hidden.into_iter().flatten() {
        assert!(lease.bytes() == octets(number, 1000));
    }
}

#[test]
fn what_moving_would_free_is_counted() {
    let (pool, mut mover, mut kept) = (pool(1 << 20), Mover::new(), Kept::default());
    while kept.keep(pool.lease_as(1000, Density::Full), 1).is_some() {}
    (0..kept.slots.len()).filter(|slot| slot % 4 != 0).for_each(|slot| kept.drop(slot));
    // All but one 64th part of the memory.
    assert_eq!((pool.free_bytes(), pool.room_bytes()), (0, (768 - 16) << 10));
    assert_eq!(make_room(&pool, &mut mover, &mut kept, 512 << 10), Step::Room);
    assert!(pool.free_bytes() >= 512 << 10);
    while mover.step(&pool, &mut kept, 752 << 10) == Step::More {}
    assert_eq!((pool.free_bytes(), pool.room_bytes()), (768 << 10, 768 << 10));
}

#[test]
#[cfg_attr(miri, ignore = "takes long")]
fn scattered_leases_leave_room_for_as_many_others_as_fit_without_them() {
    let lengths = [64, 700, 1100, 2300, 3500, 9000, 18_000];
    let shares = lengths.map(share);
    for (before, first) in lengths.iter().zip(shares) {
        for (after, second) in lengths.iter().zip(shares) {
            let (pool, mut mover, mut kept) = (pool(BYTES), Mover::new(), Kept::default());
            fill(&pool, &mut mover, &mut kept, *before);
            let step = if first < second { 16 } else { 4 };
            (0..kept.slots.len()).filter(|slot| slot % step != 0).for_each(|slot| kept.drop(slot));
            let thinned = kept.slots.iter().flatten().count() as f64 * first;
            let used = thinned + fill(&pool, &mut mover, &mut kept, *after) as f64 * second;
            assert!(used > 0.95, "{before}, then {after}: {used} of the memory is of use");
            kept.check();
        }
    }
}

/// Makes a reservoir, and two pools that take memory from it.
fn pools(bytes: usize) -> (Reservoir, [Pool; 2]) {
    let config = PoolConfig { bytes, pages: PagePreference::Heap, node: None };
    let reservoir = Reservoir::new(&config).unwrap();
    let pools = [(); 2].map(|()| Pool::of(&reservoir).unwrap());
    (reservoir, pools)
}

#[test]
fn leases_that_others_read_keep_their_octets_until_they_are_let_go() {
    let mut all = 0;
    for seed in 0..if cfg!(miri) { 1 } else { 10 } {
        let mut rng = Rng::new(seed);
        let (reservoir, pools) = pools(2 << 20);
        let mut cores = [(); 2].map(|()| (Mover::new(), Kept::default()));
        for number in 0..if cfg!(miri) { 200 } else { 3000 } {
            // Values of one kind for some time, and then of another.
            let (length, who) =
                ([900, 5000, 2000][number / 500 % 3] + rng.below(100), rng.below(2));
            let ((mover, kept), pool) = (&mut cores[who], &pools[who]);
            match rng.below(16) {
                0..13 => {
                    let density = [Density::Full, Density::Any][rng.below(4) / 3];
                    if kept.keep(pool.lease_as(length, density), number).is_none() {
                        _ = mover.step(pool, kept, length);
                    }
                }
                13 if rng.below(4) == 0 => {
                    let from = rng.below(kept.slots.len().max(1));
                    let to = kept.slots.len().min(from + 40);
                    (from..to).filter(|_| rng.below(4) > 0).for_each(|slot| kept.drop(slot));
                }
                13 | 14 => {
                    for (number, lease) in kept.replaced.drain(..) {
                        assert!(lease.bytes() == octets(number, lease.bytes().len()));
                    }
                    // Now and then there is no room for what is to be put in place of a lease.
                    kept.room = [None, Some(rng.below(20))][rng.below(2)];
                }
                _ => _ = pool.give_back(rng.below(2) << 20),
            }
        }
        all += cores.iter().map(|(mover, _)| mover.moved().leases).sum::<u64>();
        cores.iter().for_each(|(_, kept)| kept.check());
        drop(cores);
        let back: usize = pools.iter().map(|pool| pool.give_back(0)).sum();
        assert!(back > 0 && reservoir.free_bytes() == 2 << 20, "{seed}");
    }
    assert!(all > 0, "nothing was moved");
}

#[test]
#[cfg_attr(miri, ignore = "takes long")]
fn what_scattered_leases_leave_free_is_another_cores() {
    for length in [64, 700, 1100, 2300, 3500, 9000, 18_000] {
        let (_, [pool, other]) = pools(BYTES);
        let (mut mover, mut kept) = (Mover::new(), Kept::default());
        while kept.keep(pool.lease_as(length, Density::Full), 1).is_some() {}
        let count = kept.slots.len();
        (0..count).filter(|slot| slot % 8 != 0).for_each(|slot| kept.drop(slot));
        assert!(pool.room_bytes() > BYTES * 5 / 6, "{length}: {}", pool.room_bytes());
        let mut given = 0;
        while mover.step(&pool, &mut kept, usize::MAX) == Step::More {
            kept.replaced.clear();
            given += pool.give_back(0);
        }
        assert!(given > BYTES * 5 / 6, "{length}: {given}");
        assert_eq!(other.leases(given, Density::Any).map(|leases| leases.len()), Some(given));
        kept.check();
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes long")]
fn leases_in_pages_of_their_own_go_to_slabs_when_these_have_room() {
    let (_, [pool, _]) = pools(BYTES);
    let (mut mover, mut kept) = (Mover::new(), Kept::default());
    // Runs of 17 pages, where a slab of four leases, which has 18, finds no room.
    let runs: Vec<_> = std::iter::from_fn(|| pool.lease(17 * PAGE)).collect();
    let apart: Vec<_> = runs.into_iter().skip(1).step_by(2).collect();
    assert!(pool.lease_as(18_000, Density::Full).is_none());
    while kept.keep(pool.lease(18_000), 1).is_some() {}
    let alone = kept.slots.len();
    assert!(alone > 3 * (apart.len() - 1), "{alone} in {}", apart.len());
    drop(apart);
    let free = BYTES - alone.div_ceil(4) * 18 * PAGE;
    assert!(pool.free_bytes() < free && pool.room_bytes() == free, "{}", pool.room_bytes());
    while mover.step(&pool, &mut kept, usize::MAX) == Step::More {
        kept.replaced.clear();
    }
    assert_eq!(pool.free_bytes(), free);
    kept.check();
}

#[test]
fn a_slab_that_its_leases_cannot_leave_has_room_again() {
    let (_, [pool, _]) = pools(2 << 20);
    let (mut mover, mut kept) = (Mover::new(), Kept::default());
    while kept.keep(pool.lease_as(1000, Density::Full), 1).is_some() {}
    let count = kept.slots.len();
    (0..count).filter(|slot| slot % 4 != 0).for_each(|slot| kept.drop(slot));
    kept.room = Some(0);
    assert_eq!(mover.step(&pool, &mut kept, 4096), Step::Full);
    // Some leave, and the others stay: what is free there is of use at once, and what is left when it has been let go.
    kept.room = Some(1);
    _ = mover.step(&pool, &mut kept, 4096);
    assert_eq!((kept.replaced.len(), mover.moved().leases), (1, 1));
    kept.replaced.clear();
    while kept.keep(pool.lease_as(1000, Density::Full), 1).is_some() {}
    assert_eq!(kept.slots.iter().flatten().count(), count);
    kept.check();
}

const BYTES: usize = 4 << 20;

/// Moves leases until there is room for one of `length` octets, or none to be made.
fn make_room(pool: &Pool, mover: &mut Mover, kept: &mut Kept, length: usize) -> Step {
    loop {
        match mover.step(pool, kept, length) {
            Step::More => {}
            done => return done,
        }
    }
}

/// Keeps leases of `length` octets until there is no room; returns how many.
fn fill(pool: &Pool, mover: &mut Mover, kept: &mut Kept, length: usize) -> usize {
    let mut count = 0;
    loop {
        while kept.keep(pool.lease_as(length, Density::Full), count).is_some() {
            count += 1;
        }
        if make_room(pool, mover, kept, length) == Step::Full {
            return count;
        }
    }
}

/// Returns the part of a pool that a lease takes if all leases are alike.
fn share(length: usize) -> f64 {
    let (pool, mut kept) = (pool(BYTES), Kept::default());
    1.0 / fill(&pool, &mut Mover::new(), &mut kept, length) as f64
}
