//! Line 23.

use std::time::Duration;

use haulage::provider::Provider;
use haulage::sys::clock;

use crate::bed::{ACTIVE, Bed, PASSIVE, SIGNALED};
use crate::network::{HANG, Network};

/// `sleep` returns when an event may be waiting, when its limit passes, or when a waker of this
/// provider was signaled since the last `sleep`; never later.
pub fn line_23_sleep_ends_for_every_reason<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    let link = bed.connect();
    let (receive, _sink) = bed.ends[PASSIVE].receive(link[PASSIVE], 8);
    bed.settle();

    let slept = |bed: &mut Bed<N>, limit| {
        let before = clock::now();
        bed.ends[PASSIVE].provider.sleep(limit);
        clock::now().saturating_since(before)
    };
    // A waker signaled beforehand counts, and so does one from another thread.
    let waker = bed.ends[PASSIVE].provider.waker();
    waker.wake();
    assert!(slept(&mut bed, Some(2 * HANG)) < HANG, "a waker was signaled");
    let asleep = waker.clone();
    std::thread::scope(|threads| {
        threads.spawn(move || asleep.wake());
        assert!(slept(&mut bed, Some(2 * HANG)) < HANG, "another thread signaled the waker");
    });
    assert!(slept(&mut bed, Some(Duration::from_millis(1))) < HANG, "the limit passed");

    let (_, _source) = bed.ends[ACTIVE].send(link[ACTIVE], b"wake up", None, SIGNALED);
    let now = bed.network.now();
    bed.ends[ACTIVE].poll(now, 64);
    assert!(slept(&mut bed, Some(2 * HANG)) < HANG, "a message is waiting");
    bed.succeeded(PASSIVE, receive);
}
