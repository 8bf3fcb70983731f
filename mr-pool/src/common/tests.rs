use std::thread;

use super::*;
use crate::tests::{assert_all_home, pool};

fn common(pool: &Pool, octets: &[u8]) -> Common {
    let mut lease = pool.lease(octets.len()).unwrap();
    lease.bytes_mut().copy_from_slice(octets);
    lease.into_common()
}

fn counts(pool: &Pool) -> (u64, u64) {
    let gauges = pool.gauges();
    (gauges.local, gauges.shared)
}

fn elsewhere(act: impl FnOnce() + Send) {
    thread::scope(|scope| _ = scope.spawn(act));
}

#[test]
fn a_core_sends_what_another_has_after_that_let_go_of_it() {
    let (owner, here) = (pool(64 << 10), pool(64 << 10));
    let value = common(&owner, b"value");
    let one = value.here(&here).unwrap();
    let (other, view) = (one.clone(), one.source(1..3).unwrap());
    assert_eq!((counts(&owner), counts(&here)), ((0, 1), (0, 2)));
    drop(value);
    drop((one, other));
    assert_eq!((view.bytes(), counts(&here)), (&b"al"[..], (0, 0)));
    assert!(owner.gauges().leased_bytes > 0, "a view keeps the block in use");
    drop(view);
    assert_all_home(&owner);
    assert_all_home(&here);
}

#[test]
fn what_is_dropped_on_another_thread_comes_home() {
    let owner = pool(64 << 10);
    let values: Vec<_> =
        [&b"one"[..], b"two", &[3; 5000]].map(|value| common(&owner, value)).into();
    let lease = owner.lease(3).unwrap();
    elsewhere(move || {
        let here = pool(64 << 10);
        assert_eq!(values[1].bytes(), b"two");
        let sent: Vec<_> = values.iter().map(|value| value.here(&here).unwrap()).collect();
        drop((values, lease));
        assert_eq!((sent[2].bytes(), counts(&here)), (&[3; 5000][..], (0, 3)));
    });
    assert_eq!(counts(&owner), (1, 3), "not collected yet");
    owner.collect();
    assert_eq!(counts(&owner), (0, 0));
    assert_all_home(&owner);
    // A block that was common is any other's now.
    let again: Vec<_> = (0..8).map(|_| owner.lease(3).unwrap()).collect();
    assert_eq!(counts(&owner), (8, 0));
    elsewhere(move || drop(again));
    owner.collect();
    assert_all_home(&owner);
}

#[test]
fn references_of_a_core_are_bounded_and_used_again() {
    let (owner, here) = (pool(64 << 10), pool(64 << 10));
    let value = common(&owner, b"value");
    let mut all: Vec<_> = std::iter::from_fn(|| value.here(&here)).collect();
    assert_eq!(all.len(), 1 << 16);
    assert!(value.here(&owner).is_some(), "the bound is a core's");
    all.swap_remove(7);
    all.push(value.here(&here).unwrap());
    assert!(value.here(&here).is_none() && all.iter().all(|one| one.bytes() == b"value"));
    drop((all, value));
    assert_all_home(&owner);
    assert_all_home(&here);
}

#[test]
fn an_item_in_several_leases_is_sent_from_all_of_them() {
    let (owner, here) = (pool(64 << 10), pool(64 << 10));
    let leases: Vec<_> = [&b"one"[..], b"and", b"two"]
        .map(|part| {
            let mut lease = owner.lease(3).unwrap();
            lease.bytes_mut().copy_from_slice(part);
            lease
        })
        .into();
    let parts = Leases::Several(leases).into_commons().unwrap();
    let pieces = Pieces::here(&parts, &here).unwrap();
    drop(parts);
    assert_eq!(
        pieces.iter().flat_map(|piece| piece.bytes().to_vec()).collect::<Vec<_>>(),
        b"oneandtwo"
    );
    drop(pieces);
    assert_all_home(&owner);
}

#[test]
fn a_pool_outlives_what_its_core_still_sends() {
    let owner = pool(64 << 10);
    let value = common(&owner, b"value");
    let here = pool(64 << 10);
    let view = value.here(&here).unwrap().source(0..5).unwrap();
    // The memory of either is not given back, and what is left can be read and dropped.
    drop(here);
    drop(value);
    assert_eq!(view.bytes(), b"value");
    drop(view);
    assert_all_home(&owner);
}
