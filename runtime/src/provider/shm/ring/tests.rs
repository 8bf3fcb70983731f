use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;

use haulage_mr_pool::{PagePreference, Pool, PoolConfig, PostedSink};
use haulage_proto::verbs::Handle;

use super::super::segment::{Layout, Segment};
use super::*;
use crate::sys::barrier;

const RING_BYTES: u32 = 4096;

fn pair(ring_bytes: u32) -> (Producer, Consumer) {
    let layout = Layout::new(ring_bytes, 1).unwrap();
    let (ours, fd) = Segment::create(layout).unwrap();
    let theirs = Segment::open(fd.as_fd(), layout).unwrap();
    (Producer::new(ours, false), Consumer::new(theirs))
}

fn buffer(length: usize) -> (Pool, PostedSink) {
    let config = PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None };
    let pool = Pool::new(&config).unwrap();
    let lease = pool.lease(length).unwrap();
    (pool, lease.into_sink())
}

/// Returns octets that tell which message they are of, and where.
fn message(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((number * 31 + at * 7) % 251).unwrap()).collect()
}

/// Takes the next record, which must be there, and returns its octets.
fn take(consumer: &mut Consumer) -> (Kind, Handle, Vec<u8>) {
    let record = consumer.peek().unwrap().expect("a record");
    let (_pool, mut posted) = buffer(record.length.max(1));
    let mut sink = posted.sink(0..record.length).unwrap();
    assert!(consumer.copy(&record, 0, &mut sink, 0, record.length));
    drop(sink);
    consumer.advance(&record);
    let found = posted.complete().unwrap();
    (record.kind, record.handle, found.bytes()[..record.length].to_vec())
}

#[test]
fn a_batch_is_seen_whole_and_not_before_it_is_published() {
    let (mut producer, mut consumer) = pair(RING_BYTES);
    assert!(consumer.peek().unwrap().is_none());
    for number in 0..3 {
        let pushed = producer.push(Kind::SendInvalidate, Handle(9), &message(number, 100));
        assert_eq!(pushed, Ok(true));
    }
    assert!(consumer.peek().unwrap().is_none(), "nothing was published");
    assert!(!producer.publish(), "nobody wants a doorbell");
    for number in 0..3 {
        let taken = take(&mut consumer);
        assert_eq!(taken, (Kind::SendInvalidate, Handle(9), message(number, 100)));
    }
    assert!(consumer.peek().unwrap().is_none());
    assert!(!producer.publish(), "nothing is left to publish");
}

#[test]
fn messages_of_every_length_pass_the_end_of_the_ring() {
    let (mut producer, mut consumer) = pair(RING_BYTES);
    let lengths: Vec<_> = (0..2000).map(|n| (n * 37) % (producer.part_max() + 1)).collect();
    let (mut sent, mut taken) = (0, 0);
    while taken < lengths.len() {
        // As many as fit: stale octets of earlier laps are everywhere by then.
        while sent < lengths.len()
            && producer.push(Kind::Send, Handle(0), &message(sent, lengths[sent])).unwrap()
        {
            sent += 1;
        }
        assert!(sent > taken, "an empty ring has room for any record");
        producer.publish();
        while taken < sent {
            assert_eq!(take(&mut consumer).2, message(taken, lengths[taken]), "message {taken}");
            taken += 1;
        }
        assert!(consumer.peek().unwrap().is_none(), "what is stale is no record");
        consumer.release();
    }
}

#[test]
fn what_looks_like_a_header_in_old_octets_is_none() {
    let (mut producer, mut consumer) = pair(RING_BYTES);
    // Octets of which every double word is a header: a Send of one octet.
    let trap: Vec<u8> = (1_u64 << LENGTH_AT | 1).to_ne_bytes().repeat(120);
    for _ in 0..50 {
        assert_eq!(producer.push(Kind::Send, Handle(0), &trap), Ok(true));
        producer.publish();
        assert_eq!(take(&mut consumer).2, trap);
        assert!(consumer.peek().unwrap().is_none());
        assert_eq!(producer.push(Kind::Send, Handle(0), b"x"), Ok(true));
        producer.publish();
        assert_eq!(take(&mut consumer).2, b"x");
        assert!(consumer.peek().unwrap().is_none());
        consumer.release();
    }
}

#[test]
fn a_full_ring_takes_no_more_until_room_is_given_back() {
    let (mut producer, mut consumer) = pair(RING_BYTES);
    let mut count = 0;
    while producer.push(Kind::Send, Handle(0), &[1; 56]).unwrap() {
        count += 1;
    }
    assert_eq!(count, RING_BYTES as usize / LINE - 1, "all lines but the one that ends it");
    producer.publish();
    take(&mut consumer);
    assert_eq!(producer.push(Kind::Send, Handle(0), b"x"), Ok(false), "not given back yet");
    consumer.release();
    assert_eq!(producer.push(Kind::Send, Handle(0), b"x"), Ok(true));
    assert_eq!(producer.push(Kind::Send, Handle(0), b"x"), Ok(false));
}

#[test]
fn a_consumer_that_waits_is_told_once() {
    let (mut producer, consumer) = pair(RING_BYTES);
    consumer.ask_for_doorbell();
    barrier::heavy();
    assert!(!consumer.has_record());
    producer.push(Kind::Send, Handle(0), b"x").unwrap();
    assert!(producer.publish());
    producer.push(Kind::Send, Handle(0), b"x").unwrap();
    assert!(!producer.publish());
    consumer.ask_for_doorbell();
    assert!(consumer.has_record());
    consumer.need_no_doorbell();
    producer.push(Kind::Send, Handle(0), b"x").unwrap();
    assert!(!producer.publish());
}

#[test]
fn no_header_a_peer_can_write_leads_out_of_the_ring() {
    let header = |kind: u64, length: u64| length << LENGTH_AT | kind;
    let part_max = u64::from(RING_BYTES / 4 - 8);
    let bad = [
        ("no kind", 0, header(6, 0)),
        ("no kind either", 0, header(7, 0)),
        ("longer than a record can be", 0, header(1, part_max + 1)),
        ("as long as can be written", 0, header(1, LENGTH_MAX)),
        ("past the end of the ring", RING_BYTES as usize - LINE, header(1, 57)),
        ("a part past the end", RING_BYTES as usize - LINE, header(3, part_max)),
        ("a part that need not be one", 0, header(3, 0)),
        ("a short part", 0, header(3, part_max - 1)),
        ("a whole ring skipped", 0, header(5, 0)),
    ];
    for (name, offset, word) in bad {
        let (producer, mut consumer) = pair(RING_BYTES);
        consumer.head = offset as u64;
        producer.segment().memory().u64_at(RING + offset).store(word, Ordering::Relaxed);
        assert_eq!(consumer.peek().map(|_| ()), Err(BadRing), "{name}");
    }
    // Behind a word that says to skip there must be a record, and then at the start.
    let (producer, mut consumer) = pair(RING_BYTES);
    consumer.head = 64;
    for offset in [0, 64] {
        producer.segment().memory().u64_at(RING + offset).store(header(5, 0), Ordering::Relaxed);
    }
    assert_eq!(consumer.peek().map(|_| ()), Err(BadRing));
}

#[test]
fn a_record_is_copied_no_further_than_it_goes() {
    let (mut producer, mut consumer) = pair(RING_BYTES);
    producer.push(Kind::Send, Handle(0), b"12345").unwrap();
    producer.publish();
    let record = consumer.peek().unwrap().unwrap();
    let (_pool, mut posted) = buffer(64);
    let mut sink = posted.sink(0..64).unwrap();
    assert!(consumer.copy(&record, 2, &mut sink, 61, 3));
    for (from, at, length) in [(0, 0, 6), (3, 0, 3), (usize::MAX, 0, 2), (0, 62, 3)] {
        assert!(!consumer.copy(&record, from, &mut sink, at, length), "{from} {at} {length}");
    }
    drop(sink);
    assert_eq!(&posted.complete().unwrap().bytes()[61..], b"345");
}

#[test]
fn a_consumer_that_lies_about_what_it_took_is_found_out() {
    let lies: [(&str, u64); 4] = [
        ("more than was sent", 1 << 12),
        ("half a line", 32),
        ("less than nothing", u64::MAX - 63),
        ("far too much", 1 << 63),
    ];
    for (name, head) in lies {
        let (mut producer, consumer) = pair(RING_BYTES);
        producer.push(Kind::Send, Handle(0), &[0; 1000]).unwrap();
        producer.publish();
        while producer.limit == u64::from(RING_BYTES) {
            consumer.segment().head().store(head, Ordering::Relaxed);
            match producer.push(Kind::Send, Handle(0), &[0; 1000]) {
                Ok(true) => {}
                other => {
                    assert_eq!(other, Err(BadRing), "{name}");
                    break;
                }
            }
        }
        assert_eq!(producer.limit, u64::from(RING_BYTES), "{name} was believed");
    }
    // One that takes back what it gave.
    let (mut producer, mut consumer) = pair(RING_BYTES);
    for _ in 0..2 {
        while producer.push(Kind::Send, Handle(0), &[0; 1000]).unwrap() {}
        producer.publish();
        while consumer.peek().unwrap().is_some() {
            take(&mut consumer);
        }
        consumer.release();
    }
    consumer.segment().head().store(0, Ordering::Relaxed);
    let mut pushed = Ok(true);
    while pushed == Ok(true) {
        pushed = producer.push(Kind::Send, Handle(0), &[0; 1000]);
    }
    assert_eq!(pushed, Err(BadRing));
}

#[test]
fn two_threads_agree_on_every_octet() {
    let count = if cfg!(debug_assertions) { 20_000 } else { 200_000 };
    let layout = Layout::new(RING_BYTES, 1).unwrap();
    let (ours, fd) = Segment::create(layout).unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let theirs = Segment::open(fd.as_fd(), layout).unwrap();
            let mut consumer = Consumer::new(theirs);
            let (pool, mut posted) = buffer(1024);
            for number in 0..count {
                let record = loop {
                    match consumer.peek().unwrap() {
                        Some(record) => break record,
                        None => std::thread::yield_now(),
                    }
                };
                let mut sink = posted.sink(0..record.length).unwrap();
                assert!(consumer.copy(&record, 0, &mut sink, 0, record.length));
                drop(sink);
                let found = posted.complete().unwrap();
                assert_eq!(&found.bytes()[..record.length], message(number, number % 300));
                posted = found.into_sink();
                consumer.advance(&record);
                consumer.release();
            }
            drop(posted.complete().unwrap());
            drop(pool);
        });
        let mut producer = Producer::new(ours, false);
        for number in 0..count {
            while !producer.push(Kind::Send, Handle(0), &message(number, number % 300)).unwrap() {
                producer.publish();
                std::thread::yield_now();
            }
            if number % 3 == 0 {
                producer.publish();
            }
        }
        producer.publish();
    });
}
