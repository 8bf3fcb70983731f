//! Check of the contract's line 23: sleeping.

use std::time::Duration;

use haulage::provider::{Event, Provider};
use haulage::sys::clock;

use super::connections::{ending, strand};
use crate::bed::{ACTIVE, Bed, PASSIVE, SIGNALED};
use crate::network::{HANG, Network};

/// `sleep` returns when an event may be waiting, when its limit passes, or when a waker of this
/// provider was signaled since the last `sleep`; never later.
pub fn line_23_sleep_ends_for_every_reason<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    a_lost_connection_ends_sleep(&mut bed);
    let link = bed.connect();
    let (receive, _sink) = bed.ends[PASSIVE].receive(link[PASSIVE], 8);
    bed.settle();

    let slept = |bed: &mut Bed<N>, limit| {
        let before = clock::now();
        bed.ends[PASSIVE].provider.sleep(limit);
        clock::now().saturating_since(before)
    };
    // A waker signaled beforehand ends the sleep, and so does a waker signaled from another thread.
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

/// Checks that no sleep lasts until every event of a lost connection was reported, though requests were outstanding and
/// each poll takes one event.
fn a_lost_connection_ends_sleep<N: Network>(bed: &mut Bed<N>) {
    let link = bed.connect();
    let lost = strand(bed, link, 2);
    let is_over = |bed: &Bed<N>| {
        let over = |event: &Event<_>| matches!(event, Event::Quiesced(q) if q.qp() == link[ACTIVE]);
        bed.ends[ACTIVE].log.iter().any(over)
    };
    while !is_over(bed) {
        let now = bed.network.now();
        let active = &mut bed.ends[ACTIVE];
        let due = active.provider.poll_deadline().map(|due| due.saturating_since(now));
        let before = clock::now();
        active.provider.sleep(Some(due.map_or(2 * HANG, |due| due.min(2 * HANG))));
        let slept = clock::now().saturating_since(before);
        assert!(slept < HANG, "events of a lost connection wait: {:?}", active.log);
        let moved = active.poll(bed.network.now(), 1);
        let next = active.provider.poll_deadline();
        bed.network.wait(moved, next);
    }
    assert_eq!(ending(bed, ACTIVE, link[ACTIVE]).failed, lost);
}
