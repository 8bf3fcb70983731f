//! In steady state neither core allocates.

use haulage::provider::iwarp::Backend;
use haulage::sys::alloc::allocations_on_this_thread;
use haulage::sys::clock;

use crate::pair::Pair;

/// Overwrites and fetches 16 values of 4 KiB, each lease used again and again.
fn rounds(pair: &mut Pair, keys: &[String], count: usize) {
    let mut leases: Vec<_> = keys.iter().map(|_| pair.lease(4096)).collect();
    for round in 0..count {
        for (at, key) in (0..).zip(keys) {
            let lease = leases.pop().unwrap();
            if round % 2 == 0 { pair.put(0, at, key, lease) } else { pair.get(0, at, key, lease) }
        }
        pair.until(|pair| pair.client.service().ended.len() == keys.len());
        let (_, caller) = pair.client.cx(clock::now());
        for ended in caller.ended.drain(..) {
            assert_eq!(ended.status, Ok(0));
            leases.push(ended.lease.unwrap());
        }
    }
}

fn allocates_nothing(backend: Backend) {
    let mut pair = Pair::new(backend, 1);
    let keys: Vec<_> = (0..16).map(|key| format!("key-{key}")).collect();
    rounds(&mut pair, &keys, 64);
    let before = allocations_on_this_thread();
    rounds(&mut pair, &keys, 200);
    // The vector of leases that the test itself keeps.
    let own = 1;
    assert_eq!(allocations_on_this_thread() - before, own);
}

#[test]
fn a_steady_core_allocates_nothing_over_io_uring_or_what_replaces_it() {
    allocates_nothing(Backend::Auto);
}

#[test]
fn a_steady_core_allocates_nothing_over_plain_sockets() {
    allocates_nothing(Backend::Sockets);
}
