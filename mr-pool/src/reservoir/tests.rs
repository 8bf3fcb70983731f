use std::thread;

use super::*;
use crate::tests::Rng;
use crate::{Density, Local, PagePreference, Pool};

fn reservoir(tracts: usize) -> Reservoir {
    let bytes = tracts * TRACT;
    Reservoir::new(&PoolConfig { bytes, pages: PagePreference::Heap, node: None }).unwrap()
}

fn filled(mut lease: Local, octet: u8) -> Local {
    lease.bytes_mut().fill(octet);
    lease
}

#[test]
fn one_pool_can_have_all_memory_and_gives_back_what_is_free() {
    let reservoir = reservoir(8);
    let pools = [(); 2].map(|()| Pool::of(&reservoir).unwrap());
    assert!(pools.iter().all(|pool| (pool.own_free_bytes(), pool.free_bytes()) == (0, 8 * TRACT)));
    let small = pools[1].lease(100).unwrap();
    let leases: Vec<_> = std::iter::from_fn(|| pools[0].lease(300_000)).collect();
    assert!(leases.len() >= 7 * (TRACT / 300_000), "{}", leases.len());
    assert!(pools[0].lease(300_000).is_none() && reservoir.free_bytes() == 0);
    // What is left of the other's tract is the other's.
    assert!(pools[1].lease(300_000).is_some());
    drop(leases);
    assert_eq!((pools[0].give_back(TRACT), reservoir.free_bytes()), (6 * TRACT, 6 * TRACT));
    assert_eq!(pools[0].own_free_bytes(), TRACT);
    // All but the page of the lease.
    assert_eq!((pools[1].give_back(0), pools[1].own_free_bytes()), (TRACT - PAGE, 0));
    drop(small);
    assert_eq!((pools[1].give_back(0), pools[0].give_back(0)), (PAGE, TRACT));
    assert!(
        pools.iter().all(|pool| pool.own_free_bytes() == 0) && reservoir.free_bytes() == 8 * TRACT
    );
    assert!(pools[1].lease(8 * TRACT).is_some(), "it is one run again");
}

#[test]
fn long_leases_have_pages_in_a_row_and_longer_ones_any() {
    let reservoir = reservoir(8);
    let pools = [(); 2].map(|()| Pool::of(&reservoir).unwrap());
    let long = pools[0].lease(3 * TRACT).unwrap();
    assert_eq!((pools[0].own_free_bytes(), reservoir.free_bytes()), (0, 5 * TRACT));
    // The other pool has the fifth tract: what is free lies on both sides.
    let between = pools[1].lease(2 * TRACT).unwrap();
    drop(long);
    assert_eq!(pools[0].give_back(0), 3 * TRACT);
    assert!(pools[0].lease(4 * TRACT).is_none());
    let leases = pools[0].leases(6 * TRACT, Density::Any).unwrap();
    assert_eq!((leases.len(), leases.as_slice().len()), (6 * TRACT, 2));
    assert!(pools[0].leases(1, Density::Any).is_none());
    drop((leases, between));
    assert_eq!(pools.map(|pool| pool.give_back(0)), [6 * TRACT, 2 * TRACT]);
}

#[test]
fn pages_between_leases_of_one_core_are_another_cores() {
    let reservoir = reservoir(4);
    let pools = [(); 2].map(|()| Pool::of(&reservoir).unwrap());
    let leases: Vec<_> = std::iter::from_fn(|| pools[0].lease(100_000)).collect();
    let kept: Vec<_> = leases.into_iter().step_by(2).collect();
    let free = pools[0].give_back(0);
    assert!(free > 2 * TRACT - 200_000 && pools[0].own_free_bytes() == 0, "{free}");
    let taken = pools[1].leases(free, Density::Any).unwrap();
    assert_eq!((taken.len(), reservoir.free_bytes()), (free, 0));
    drop((kept, taken));
    assert_eq!(pools.map(|pool| pool.give_back(0)).into_iter().sum::<usize>(), 4 * TRACT);
}

#[test]
fn no_octets_are_lent_twice_whatever_changes_hands() {
    let reservoir = reservoir(6);
    let pools = [(); 3].map(|()| Pool::of(&reservoir).unwrap());
    let mut rng = Rng::new(1);
    let mut held: Vec<(u8, usize, Local)> = Vec::new();
    for round in 0..if cfg!(miri) { 60_u32 } else { 20_000 } {
        let who = rng.below(3);
        match rng.below(8) {
            0..4 => {
                let octet = (round % 251).to_le_bytes()[0];
                let length = rng.length(20);
                if let Some(lease) = pools[who].lease(length) {
                    held.push((octet, who, filled(lease, octet)));
                }
            }
            4..7 if !held.is_empty() => {
                let (octet, _, lease) = held.swap_remove(rng.below(held.len()));
                assert!(lease.bytes().iter().all(|other| *other == octet));
            }
            _ => _ = pools[who].give_back(rng.below(2) * TRACT),
        }
    }
    for (octet, _, lease) in held {
        assert!(lease.bytes().iter().all(|other| *other == octet));
    }
    pools.iter().for_each(|pool| _ = pool.give_back(0));
    assert_eq!(reservoir.free_bytes(), 6 * TRACT);
}

#[test]
fn pools_of_one_reservoir_are_on_threads_of_their_own() {
    let reservoir = reservoir(4);
    let here = Pool::of(&reservoir).unwrap();
    let lease = filled(here.lease(1000).unwrap(), 7);
    thread::scope(|scope| {
        let reservoir = reservoir.clone();
        scope.spawn(move || {
            let there = Pool::of(&reservoir).unwrap();
            let leases: Vec<_> = std::iter::from_fn(|| there.lease(TRACT)).collect();
            assert_eq!((leases.len(), lease.bytes()), (3, &[7; 1000][..]));
        });
    });
    // The memory of a pool that is gone stays with it.
    assert_eq!((here.give_back(0), reservoir.free_bytes()), (TRACT, TRACT));
}

#[test]
fn a_reservoir_has_whole_tracts_and_no_more_than_a_pool_manages() {
    let of = |bytes| Reservoir::new(&PoolConfig { bytes, pages: PagePreference::Heap, node: None });
    assert_eq!(of(1).unwrap().free_bytes(), TRACT);
    assert!(matches!(of(usize::MAX), Err(PoolError::TooLarge { .. })));
    assert!(matches!(of(usize::MAX / 2), Err(PoolError::TooLarge { .. })));
}
