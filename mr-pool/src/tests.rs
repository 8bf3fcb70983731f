//! The pool as its users see it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use haulage_proto::verbs::{Access, Handle};
pub(crate) use haulage_test_support::Rng;

use crate::lent::evidence::{fenced, invalidated};
use crate::*;

mod sequences;

pub(crate) fn pool(bytes: usize) -> Pool {
    Pool::new(&PoolConfig { bytes, pages: PagePreference::Heap, node: None }).unwrap()
}

/// Asserts that every block of a pool without orphans is home and all its memory one run again.
pub(crate) fn assert_all_home(pool: &Pool) {
    let gauges = pool.gauges();
    assert_eq!((gauges.local, gauges.shared, gauges.posted, gauges.exposed), (0, 0, 0, 0));
    assert_eq!((gauges.leased_bytes, gauges.orphans), (0, 0));
    assert_eq!((gauges.free_bytes, gauges.largest_run), (gauges.bytes, gauges.bytes));
    assert_eq!(pool.classes().map(|class| class.leases).sum::<u32>(), 0);
}

macro_rules! stays_on_its_thread {
    ($($kind:ty),*) => {$(
        // Ambiguous, and so refused by the compiler, if the type is `Send`.
        const _: fn() = || {
            trait Unless<A> { fn holds() {} }
            impl<T> Unless<()> for T {}
            struct IfSend;
            impl<T: Send> Unless<IfSend> for T {}
            let _ = <$kind as Unless<_>>::holds;
        };
    )*};
}

stays_on_its_thread!(
    Pool,
    Shared,
    PostedSource<Local>,
    PostedSource<Shared>,
    PostedSink,
    Exposed,
    Invalidated<'_>,
    Source,
    Sink,
    Stags
);

const _: fn() = || {
    fn goes_anywhere<T: Send>() {}
    goes_anywhere::<Local>();
};

#[test]
fn a_lease_has_the_length_asked_for_and_room_for_little_more() {
    let pool = pool(128 << 20);
    for length in [0, 1, 64, 65, 4096, 65536, 65537, 1 << 20, 64 << 20] {
        let mut lease = pool.lease(length).unwrap();
        assert_eq!(
            (lease.len(), lease.bytes().len(), lease.is_empty()),
            (length, length, length == 0)
        );
        assert!(lease.capacity() <= (length.max(56) * 115 / 100).next_multiple_of(8), "{length}");
        lease.set_len(lease.capacity());
        assert_eq!(lease.bytes_mut().len(), lease.capacity());
    }
    assert!(pool.lease(128 << 20).is_some() && pool.lease((128 << 20) + 1).is_none());
    assert!(pool.lease(usize::MAX).is_none());
    assert_all_home(&pool);
}

#[test]
#[should_panic(expected = "exceeds the lease's capacity")]
fn a_length_beyond_the_capacity_is_refused() {
    pool(1 << 20).lease(64).unwrap().set_len(65);
}

#[test]
fn every_lease_is_in_the_region() {
    let pool = pool(1 << 20);
    let region = pool.region();
    assert_eq!(region.len(), pool.usable());
    let start = region.cast::<u8>().addr().get();
    let mut leases = Vec::new();
    while let Some(lease) = pool.lease(5000) {
        let octets = lease.bytes().as_ptr_range();
        assert!(octets.start.addr() >= start && octets.end.addr() <= start + region.len());
        leases.push(lease);
    }
    assert!(leases.len() > 100);
}

#[test]
fn a_source_is_read_by_the_rnic_and_comes_back_by_its_completion() {
    let pool = pool(1 << 20);
    let mut lease = pool.lease(6).unwrap();
    lease.bytes_mut().copy_from_slice(b"source");
    let posted = lease.into_source();
    let (whole, part) = (posted.source(0..6).unwrap(), posted.source(1..3).unwrap());
    assert_eq!((whole.bytes(), part.bytes()), (&b"source"[..], &b"ou"[..]));
    assert_eq!(part.address(), whole.address() + 1);
    assert!(posted.source(0..7).is_none() && posted.source(7..7).is_none());
    #[allow(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    let reversed = posted.source(3..2);
    assert!(reversed.is_none());
    assert_eq!((pool.gauges().local, pool.gauges().posted), (0, 1));
    drop((whole, part));
    assert_eq!(posted.complete().unwrap().bytes(), b"source");
    assert_all_home(&pool);
}

#[test]
fn a_sink_is_written_by_the_rnic_within_its_bounds() {
    let pool = pool(1 << 20);
    let mut lease = pool.lease(8).unwrap();
    lease.bytes_mut().fill(b'.');
    let mut posted = lease.into_sink();
    let mut sink = posted.sink(2..6).unwrap();
    assert_eq!(sink.place(1, b"abc"), Ok(()));
    assert_eq!(sink.place(2, b"abc"), Err(OutOfBounds));
    assert_eq!(sink.place(usize::MAX, b"abc"), Err(OutOfBounds));
    assert_eq!(sink.place(4, b""), Ok(()));
    let (at, length) = sink.raw(1, 3).unwrap();
    assert_eq!((at.addr().get() as u64, length), (sink.address() + 1, 3));
    assert!(sink.raw(1, 4).is_none() && sink.raw(1, usize::MAX).is_none());
    assert!(posted.sink(4..9).is_none());
    drop(sink);
    assert_eq!(posted.complete().unwrap().bytes(), b"...abc..");
    assert_all_home(&pool);
}

#[test]
fn a_posted_lease_comes_back_only_when_no_view_of_it_is_left() {
    // Counts in the tail of a slab, with a slab's page, and with a run.
    for length in [64, 5000, 100_000] {
        let pool = pool(1 << 20);
        let posted = pool.lease(length).unwrap().into_source();
        let views = [0..length, 1..2, 3..3].map(|range| posted.source(range).unwrap());
        let posted = views.into_iter().fold(posted, |posted, view| {
            let posted = posted.complete().unwrap_err();
            drop(view);
            posted
        });
        let mut posted = posted.complete().unwrap().into_sink();
        let views = [0..length, 1..2, 3..3].map(|range| posted.sink(range).unwrap());
        let posted = views.into_iter().fold(posted, |posted, view| {
            let posted = posted.complete().unwrap_err();
            drop(view);
            posted
        });
        assert_eq!((pool.gauges().local, pool.gauges().posted), (0, 1));
        assert_eq!(posted.complete().unwrap().len(), length);
        assert_all_home(&pool);
    }
}

#[test]
fn an_exposed_lease_comes_back_only_when_its_view_is_gone() {
    let pool = pool(1 << 20);
    let (exposed, source) = pool.lease(10).unwrap().expose_read(Handle(1));
    let (exposed, proof) = exposed.fence(invalidated(Handle(1))).unwrap_err();
    assert_eq!((pool.gauges().exposed, pool.gauges().fenced), (1, 0));
    drop(source);
    let (exposed, sink) = exposed.fence(proof).unwrap().expose_write(Handle(2));
    let (exposed, proof) = exposed.fence(invalidated(Handle(2))).unwrap_err();
    drop(sink);
    assert!(exposed.fence(proof).is_ok());
    assert_all_home(&pool);
}

#[test]
fn a_view_left_behind_forever_keeps_its_lease_lent() {
    let pool = pool(1 << 20);
    let mut posted = pool.lease(10).unwrap().into_sink();
    std::mem::forget(posted.sink(0..10));
    drop(posted.complete().unwrap_err());
    assert_eq!((pool.gauges().posted, pool.gauges().orphans), (0, 1));
    assert!(pool.gauges().leased_bytes > 0);
}

#[test]
fn a_shared_block_stays_while_only_a_view_of_it_is_left() {
    for length in [64, 5000, 100_000] {
        let pool = pool(1 << 20);
        let mut lease = pool.lease(length).unwrap();
        lease.bytes_mut().fill(7);
        let posted = lease.share().into_source();
        let views = [0..length, 1..3].map(|range| posted.source(range).unwrap());
        drop(posted.complete());
        assert_eq!((pool.gauges().shared, pool.gauges().posted), (0, 0));
        for view in views {
            assert!(pool.gauges().leased_bytes > 0);
            assert!(view.bytes().iter().all(|&byte| byte == 7));
        }
        assert_all_home(&pool);
    }
}

#[test]
fn a_view_of_a_shared_block_outlives_its_pool() {
    let pool = pool(1 << 20);
    let mut lease = pool.lease(4).unwrap();
    lease.bytes_mut().copy_from_slice(b"here");
    let posted = lease.share().into_source();
    let view = posted.source(0..4).unwrap();
    drop((posted.complete(), pool));
    assert_eq!(view.bytes(), b"here");
}

#[test]
fn an_exposed_lease_comes_back_only_by_the_proof_of_its_handle() {
    let pool = pool(1 << 20);
    let (exposed, sink) = pool.lease(10).unwrap().expose_write(Handle(1));
    assert_eq!(
        (exposed.handle(), exposed.access(), exposed.len()),
        (Handle(1), Access::RemoteWrite, 10)
    );
    drop(sink);
    let (exposed, proof) = exposed.fence(invalidated(Handle(2))).unwrap_err();
    assert_eq!(proof.handle(), Handle(2));
    assert_eq!((pool.gauges().exposed, pool.gauges().fenced), (1, 0));
    assert!(exposed.fence(invalidated(Handle(1))).is_ok());
    assert_eq!((pool.gauges().registrations, pool.gauges().fenced), (1, 1));
    assert_all_home(&pool);
}

#[test]
fn a_shared_block_goes_home_with_its_last_reference_wherever_its_count_is_kept() {
    // Counts in the tail of a slab, with a slab's page, and with a run.
    for length in [64, 3000, 5000, 65536, 100_000] {
        let pool = pool(1 << 20);
        let mut leases: Vec<_> = (0..5).map(|_| pool.lease(length).unwrap()).collect();
        leases.iter_mut().for_each(|lease| lease.bytes_mut().fill(7));
        let shared: Vec<_> = leases.into_iter().map(Local::share).collect();
        let clones = shared.clone();
        assert_eq!(pool.gauges().shared, 10);
        let posted: Vec<_> = clones.into_iter().map(Shared::into_source).collect();
        drop(shared);
        assert_eq!((pool.gauges().shared, pool.gauges().posted), (0, 5));
        for posted in posted {
            assert!(pool.gauges().leased_bytes > 0);
            assert!(posted.complete().bytes().iter().all(|&byte| byte == 7));
        }
        assert_all_home(&pool);
    }
}

#[test]
fn a_lent_lease_that_is_dropped_is_an_orphan_and_its_memory_stays_out_of_use() {
    let pool = pool(1 << 20);
    let free = pool.free_bytes();
    let whole_page = || pool.lease(100_000).unwrap();
    drop(whole_page().into_source());
    drop(whole_page().into_sink());
    drop(whole_page().expose_read(Handle(1)));
    drop(whole_page().expose_write(Handle(2)));
    let shared = whole_page().share();
    drop(shared.clone().into_source());
    drop(shared);
    let gauges = pool.gauges();
    assert_eq!((gauges.local, gauges.shared, gauges.posted, gauges.exposed), (0, 0, 0, 0));
    assert_eq!(gauges.orphans, 5);
    assert_eq!((pool.free_bytes(), gauges.leased_bytes), (free - 5 * 102_400, 5 * 102_400));
}

#[test]
fn a_view_outlives_the_pool_of_its_orphan() {
    let pool = pool(1 << 20);
    let mut lease = pool.lease(4).unwrap();
    lease.bytes_mut().copy_from_slice(b"here");
    let (exposed, source) = lease.expose_read(Handle(1));
    drop((exposed, pool));
    assert_eq!(source.bytes(), b"here");
}

#[test]
fn a_lease_dropped_on_another_thread_comes_home_when_collected() {
    let pool = pool(1 << 20);
    let leases = [10, 10, 5000, 200_000].map(|length| pool.lease(length).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut leases = leases;
            leases[0].bytes_mut().fill(1);
        });
    });
    assert_eq!(pool.gauges().local, 4);
    pool.collect();
    assert_all_home(&pool);
}

#[test]
fn a_pool_that_runs_short_collects_by_itself() {
    let pool = pool(1 << 20);
    let all = pool.lease(1 << 20).unwrap();
    assert!(pool.lease(1).is_none());
    std::thread::scope(|scope| drop(scope.spawn(move || drop(all))));
    assert!(pool.lease(1 << 20).is_some());
}

#[test]
fn threads_that_free_at_once_lose_nothing() {
    const THREADS: usize = 4;
    const TURNS: usize = if cfg!(miri) { 50 } else { 20_000 };
    let pool = pool(64 << 10);
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..THREADS)
            .map(|_| {
                let (sender, receiver) = mpsc::sync_channel::<Local>(64);
                scope.spawn(move || {
                    for mut lease in receiver {
                        // The octets are not zero if another holder has the same lease.
                        assert!(lease.bytes().iter().all(|&byte| byte == 0));
                        lease.bytes_mut().fill(0xff);
                        lease.bytes_mut().fill(0);
                    }
                });
                sender
            })
            .collect();
        let mut rng = Rng::new(1);
        for turn in 0..TURNS {
            let Some(mut lease) = pool.lease(rng.length(12)) else { continue };
            lease.bytes_mut().fill(0);
            senders[turn % THREADS].send(lease).unwrap();
        }
    });
    pool.collect();
    assert_all_home(&pool);
}

#[test]
fn a_lease_elsewhere_survives_its_pool() {
    let pool = pool(1 << 20);
    let mut lease = pool.lease(4).unwrap();
    lease.bytes_mut().copy_from_slice(b"kept");
    std::thread::scope(|scope| {
        let (go, wait) = mpsc::channel::<()>();
        let reader = scope.spawn(move || {
            wait.recv().unwrap();
            assert_eq!(lease.bytes(), b"kept");
        });
        drop(pool);
        go.send(()).unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn a_lease_changes_its_state_only_at_home() {
    let pool = pool(1 << 20);
    let changes: [fn(Local); 5] = [
        |lease| drop(lease.share()),
        |lease| drop(lease.into_source()),
        |lease| drop(lease.into_sink()),
        |lease| drop(lease.expose_read(Handle(1))),
        |lease| drop(lease.expose_write(Handle(1))),
    ];
    for change in changes {
        let lease = pool.lease(100).unwrap();
        std::thread::scope(|scope| {
            let changed = scope.spawn(move || catch_unwind(AssertUnwindSafe(|| change(lease))));
            assert!(changed.join().unwrap().is_err());
        });
    }
    // The panic dropped the leases on the other thread, so they come home.
    pool.collect();
    assert_all_home(&pool);
}

#[test]
fn classes_count_their_own_leases() {
    let pool = pool(1 << 20);
    let leases = [100, 100, 64, 100_000].map(|length| pool.lease(length).unwrap());
    let out: BTreeMap<_, _> =
        pool.classes().filter(|c| c.leases > 0).map(|c| (c.capacity, c.leases)).collect();
    assert_eq!(out, BTreeMap::from([(None, 1), (Some(64), 1), (Some(104), 2)]));
    drop(leases);
    assert_all_home(&pool);
}
