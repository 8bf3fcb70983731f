use super::*;
use crate::lent::evidence::fenced;
use crate::tests::{Rng, pool};
use crate::{Exposed, Pool};

const QP: QpNum = QpNum::new(3, 1);
const OTHER: QpNum = QpNum::new(3, 2);
const BASE: u64 = 0x7000;

/// A table of 8 with one registration of 10 octets at `BASE`, writable or readable by the peer.
fn registered(pool: &Pool, write: bool) -> (Stags, Exposed, Handle) {
    let mut stags = Stags::seeded(8, 1);
    let handle = stags.reserve(QP).unwrap();
    let mut lease = pool.lease(10).unwrap();
    lease.bytes_mut().copy_from_slice(b"0123456789");
    let (exposed, memory) = if write {
        let (exposed, sink) = lease.expose_write(handle);
        (exposed, Exposure::RemoteWrite(sink))
    } else {
        let (exposed, source) = lease.expose_read(handle);
        (exposed, Exposure::RemoteRead(source))
    };
    stags.register(handle, QP, BASE, memory).unwrap();
    (stags, exposed, handle)
}

#[test]
fn a_write_lands_where_it_says_and_nowhere_else() {
    let pool = pool(1 << 20);
    let (mut stags, exposed, handle) = registered(&pool, true);
    assert_eq!(stags.place(handle, QP, BASE + 7, b"abc"), Ok(()));
    assert_eq!(stags.place(handle, QP, BASE + 10, b""), Ok(()));
    assert_eq!(stags.place(handle, QP, BASE + 8, b"xyz"), Err(StagFault::BaseOrBounds));
    assert_eq!(stags.place(handle, QP, BASE - 1, b"x"), Err(StagFault::BaseOrBounds));
    assert_eq!(stags.place(handle, QP, 0, b"x"), Err(StagFault::BaseOrBounds));
    assert_eq!(stags.place(handle, QP, u64::MAX, b"xy"), Err(StagFault::OffsetWraps));
    let (sink, at) = stags.sink(handle, QP, BASE + 1, 2).unwrap();
    assert_eq!(at, 1);
    sink.place(at, b"..").unwrap();
    assert_eq!(stags.invalidate(handle, QP), Ok(()));
    assert_eq!(fenced(exposed).bytes(), b"0..3456abc");
}

#[test]
fn a_read_gets_what_it_names_and_nothing_else() {
    let pool = pool(1 << 20);
    let (mut stags, exposed, handle) = registered(&pool, false);
    assert_eq!(stags.source(handle, QP, BASE + 2, 3), Ok(&b"234"[..]));
    assert_eq!(stags.source(handle, QP, BASE, 10), Ok(&b"0123456789"[..]));
    assert_eq!(stags.source(handle, QP, BASE + 1, 10), Err(StagFault::BaseOrBounds));
    assert_eq!(stags.source(handle, QP, BASE, usize::MAX), Err(StagFault::OffsetWraps));
    assert_eq!(stags.destroy(QP), 1);
    drop(fenced(exposed));
}

#[test]
fn every_access_but_the_one_granted_is_refused() {
    let pool = pool(1 << 20);
    for write in [true, false] {
        let (mut stags, exposed, handle) = registered(&pool, write);
        let refused = Err(StagFault::AccessViolation);
        if write {
            assert_eq!(stags.source(handle, QP, BASE, 1).map(|_| ()), refused);
        } else {
            assert_eq!(stags.place(handle, QP, BASE, b"x"), refused);
        }
        assert_eq!(stags.place_response(handle, QP, BASE, b"x"), refused);
        assert_eq!(stags.release(handle, QP), refused);
        assert!(stags.take_read_sink(handle).is_none());
        stags.destroy(QP);
        drop(fenced(exposed));
    }
}

#[test]
fn what_a_peer_places_is_counted() {
    let pool = pool(1 << 20);
    for _ in 0..2 {
        let (mut stags, exposed, handle) = registered(&pool, true);
        assert_eq!(exposed.placed(), 0, "the block was used before, but not by this peer");
        stags.place(handle, QP, BASE, b"four").unwrap();
        stags.place(handle, QP, BASE, b"again").unwrap();
        stags.place(handle, QP, BASE - 1, b"outside").unwrap_err();
        stags.place(handle, OTHER, BASE, b"another's").unwrap_err();
        let (sink, at) = stags.sink(handle, QP, BASE, 2).unwrap();
        assert_eq!((exposed.placed(), at), (9, 0), "nothing was written by asking");
        sink.count_placed(2);
        assert_eq!(exposed.placed(), 11);
        sink.count_placed(usize::MAX);
        stags.place(handle, QP, BASE, b"x").unwrap();
        assert_eq!(exposed.placed(), u32::MAX, "it ends there");
        stags.destroy(QP);
        drop(fenced(exposed));
    }
}

#[test]
fn another_queue_pair_has_no_use_for_a_handle() {
    let pool = pool(1 << 20);
    let (mut stags, exposed, handle) = registered(&pool, true);
    assert_eq!(stags.place(handle, OTHER, BASE, b"x"), Err(StagFault::NotYours));
    assert_eq!(stags.invalidate(handle, OTHER), Err(StagFault::NotYours));
    assert_eq!(stags.destroy(OTHER), 0);
    assert_eq!(stags.place(handle, QP, BASE, b"x"), Ok(()));
    stags.destroy(QP);
    drop(fenced(exposed));
}

#[test]
fn the_whole_handle_is_compared() {
    let pool = pool(1 << 20);
    let (mut stags, exposed, handle) = registered(&pool, true);
    for bit in 0..32 {
        let guess = Handle(handle.0 ^ 1 << bit);
        assert_eq!(stags.place(guess, QP, BASE, b"x"), Err(StagFault::InvalidStag), "bit {bit}");
    }
    stags.destroy(QP);
    drop(fenced(exposed));
}

#[test]
fn a_handle_means_nothing_before_registration_and_after_invalidation() {
    let pool = pool(1 << 20);
    let mut stags = Stags::seeded(1, 1);
    let handle = stags.reserve(QP).unwrap();
    assert_eq!(stags.place(handle, QP, BASE, b""), Err(StagFault::InvalidStag));
    assert_eq!(stags.invalidate(handle, QP), Err(StagFault::InvalidStag));
    let (exposed, sink) = pool.lease(10).unwrap().expose_write(handle);
    stags.register(handle, QP, BASE, Exposure::RemoteWrite(sink)).unwrap();
    assert_eq!(stags.reserve(QP), None);
    assert_eq!(stags.invalidate(handle, QP), Ok(()));
    drop(fenced(exposed));
    // The single slot is reserved again, with another handle and another key.
    let next = stags.reserve(QP).unwrap();
    assert!(next != handle && next.0 & 0xff != handle.0 & 0xff);
    assert_eq!(stags.place(handle, QP, BASE, b""), Err(StagFault::InvalidStag));
    assert_eq!(stags.invalidate(handle, QP), Err(StagFault::InvalidStag));
}

#[test]
fn memory_is_registered_once_and_only_where_no_offset_wraps() {
    let pool = pool(1 << 20);
    let (mut stags, exposed, handle) = registered(&pool, true);
    let mut posted = pool.lease(10).unwrap().into_sink();
    let mut sink = || Exposure::RemoteWrite(posted.sink(0..10).unwrap());
    assert_eq!(stags.register(handle, QP, 0, sink()), Err(StagFault::AccessViolation));
    assert_eq!(stags.register(Handle(0), QP, 0, sink()), Err(StagFault::InvalidStag));
    let second = stags.reserve(QP).unwrap();
    assert_eq!(stags.register(second, OTHER, 0, sink()), Err(StagFault::NotYours));
    assert_eq!(stags.register(second, QP, u64::MAX - 9, sink()), Err(StagFault::OffsetWraps));
    assert_eq!(stags.register(second, QP, u64::MAX - 10, sink()), Ok(()));
    assert_eq!(stags.destroy(QP), 2);
    drop((fenced(exposed), posted.complete().unwrap()));
}

#[test]
fn the_sink_of_a_read_takes_its_response_and_nothing_else() {
    let pool = pool(1 << 20);
    let mut stags = Stags::seeded(4, 1);
    let mut posted = pool.lease(4).unwrap().into_sink();
    let (handle, offset) = stags.read_sink(QP, posted.sink(0..4).unwrap()).unwrap();
    assert_eq!(stags.place(handle, QP, offset, b"x"), Err(StagFault::AccessViolation));
    assert_eq!(stags.invalidate(handle, QP), Err(StagFault::AccessViolation));
    assert_eq!(stags.place_response(handle, OTHER, offset, b"x"), Err(StagFault::NotYours));
    assert_eq!(stags.place_response(handle, QP, offset + 1, b"1234"), Err(StagFault::BaseOrBounds));
    assert_eq!(stags.place_response(handle, QP, offset + 2, b"34"), Ok(()));
    assert_eq!(stags.place_response(handle, QP, offset, b"12"), Ok(()));
    assert_eq!(stags.take_read_sink(handle).map(|sink| sink.len()), Some(4));
    assert_eq!(stags.place_response(handle, QP, offset, b"x"), Err(StagFault::InvalidStag));
    assert!(stags.take_read_sink(handle).is_none());
    assert_eq!((posted.complete().unwrap().bytes(), stags.in_use()), (&b"1234"[..], 0));
}

#[test]
fn a_released_handle_can_no_longer_be_registered() {
    let pool = pool(1 << 20);
    let mut stags = Stags::seeded(2, 1);
    let handle = stags.reserve(QP).unwrap();
    assert_eq!(stags.release(handle, OTHER), Err(StagFault::NotYours));
    assert_eq!(stags.release(handle, QP), Ok(()));
    let posted = pool.lease(1).unwrap().into_source();
    let memory = Exposure::RemoteRead(posted.source(0..1).unwrap());
    assert_eq!(stags.register(handle, QP, 0, memory), Err(StagFault::InvalidStag));
    drop(posted.complete().unwrap());
}

#[test]
fn slots_are_used_in_turn_and_none_is_lost() {
    let mut stags = Stags::seeded(100, 1);
    let queue_pairs: Vec<_> = (0..300).map(|slot| QpNum::new(slot, 0)).collect();
    let mut used: Vec<(QpNum, Handle)> = Vec::new();
    let mut rng = Rng::new(9);
    for _ in 0..20_000 {
        let qp = queue_pairs[rng.below(queue_pairs.len())];
        match rng.below(20) {
            0 => {
                let before = used.len();
                used.retain(|(owner, _)| *owner != qp);
                assert_eq!(stags.destroy(qp), before - used.len());
            }
            1..8 if !used.is_empty() => {
                let (qp, handle) = used.swap_remove(rng.below(used.len()));
                assert_eq!(stags.release(handle, qp), Ok(()));
            }
            _ => match stags.reserve(qp) {
                Some(handle) => used.push((qp, handle)),
                None => assert_eq!(used.len(), 100),
            },
        }
        assert_eq!(stags.in_use(), used.len());
    }
    for qp in queue_pairs {
        stags.destroy(qp);
    }
    assert_eq!(stags.in_use(), 0);
    // A slot given back goes behind all that are free.
    let first = stags.reserve(QP).unwrap();
    stags.release(first, QP).unwrap();
    let slot = |stags: &Stags, handle| stags.handles.slot(handle);
    let next: Vec<_> = (0..100).map(|_| stags.reserve(QP).unwrap()).collect();
    assert_eq!(slot(&stags, next[99]), slot(&stags, first));
    assert_eq!(stags.reserve(QP), None);
}
