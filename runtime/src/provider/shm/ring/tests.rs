use std::collections::VecDeque;
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;

use haulage_mr_pool::{PagePreference, Pool, PoolConfig, PostedSink};
use haulage_proto::negotiate::{Heading, Label};
use haulage_proto::verbs::Handle;

use super::super::segment::{Layout, Segment};
use super::*;
use crate::provider::sim::Rng;
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
    // A series: the lower half of its second double word says what heading it has, 1 of Results or 2 of a Call.
    let last = RING_BYTES as usize - LINE;
    for (name, offset, length, which) in [
        ("no Results", 0, 8, 1),
        ("no Calls", 0, 16, 2),
        ("no heading", 0, 100, 0),
        ("no heading either", 0, 100, 3),
        ("past the end", last, 57, 1),
    ] {
        let (producer, mut consumer) = pair(RING_BYTES);
        consumer.head = offset as u64;
        let memory = producer.segment().memory();
        memory.u64_at(RING + offset).store(header(7, length), Ordering::Relaxed);
        memory.u64_at(RING + offset + 8).store(which, Ordering::Relaxed);
        assert_eq!(consumer.peek().map(|_| ()), Err(BadRing), "{name}");
        // It is not passed over as if there were nothing.
        consumer.look_again();
        let (mut room, mut labels, mut bodies) = ([0; 300], [Label::default(); 4], [&[][..]; 4]);
        let places = (&mut labels[..], &mut bodies[..]);
        let found = consumer.look_at_series(None, &mut &mut room[..], 300, places);
        assert_eq!(found, None, "{name}");
        consumer.pass();
        assert_eq!(consumer.head, offset as u64, "{name}");
    }
    // An entry that is longer than any, or than the series.
    for body in [24, 193, u64::from(u32::MAX)] {
        let (producer, mut consumer) = pair(RING_BYTES);
        let memory = producer.segment().memory();
        memory.u64_at(RING).store(header(7, 32), Ordering::Relaxed);
        memory.u64_at(RING + 8).store(1, Ordering::Relaxed);
        memory.u64_at(RING + 16).store(body << 32 | 7, Ordering::Relaxed);
        assert_eq!(consumer.peek().map(|_| ()), Err(BadRing), "{body}");
        memory.u64_at(RING + 16).store(16 << 32 | 7, Ordering::Relaxed);
        assert_eq!(consumer.peek().unwrap().unwrap().length, 60);
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

/// Headings of messages that are sent by turns.
const HEADINGS: [Heading; 3] =
    [Heading::Call([0x2000_0001, 1, 0]), Heading::Call([100_003, 3, 6]), Heading::Results];

/// Returns a message with a heading.
fn headed(heading: &Heading, label: Label, body: &[u8]) -> Vec<u8> {
    let mut whole = vec![0; heading.len()];
    heading.put(&mut whole, label).unwrap();
    whole.extend_from_slice(body);
    whole
}

#[test]
fn messages_with_one_heading_take_few_lines() {
    for (heading, body, lines) in
        [(&HEADINGS[0], 0, 3), (&HEADINGS[1], 20, 9), (&HEADINGS[2], 0, 3)]
    {
        let (mut producer, _consumer) = pair(RING_BYTES);
        for xid in 0..16 {
            let label = Label { xid, credit: 70 };
            assert_eq!(producer.push_headed(heading, label, &vec![1; body]), Ok(true));
        }
        assert_eq!(producer.tail, lines * LINE as u64, "{heading:?} {body}");
    }
}

/// Looks at what is there as a run, and takes some of it. Returns what was taken, and whether all of it was.
fn take_run(consumer: &mut Consumer, random: &mut Rng) -> (Vec<Vec<u8>>, bool) {
    let mut room = vec![0; 1 + usize::try_from(random.below(0..4096)).unwrap()];
    let (mut room, most) = (&mut room[..], usize::try_from(random.below(1..17)).unwrap());
    let length_max = if random.below(0..4) == 0 { 100 } else { 600 };
    let mut messages = [&[][..]; 16];
    let (mut series, mut count) = (Vec::<Vec<u8>>::new(), 0);
    consumer.look_again();
    while count < most {
        let fitting = room.len().min(length_max);
        match consumer.look(&mut room[..fitting]) {
            Look::Plain(length) => {
                (messages[count], room) = std::mem::take(&mut room).split_at_mut(length);
                count += 1;
            }
            Look::Series if count == 0 => {
                let (mut labels, mut bodies) = ([Label::default(); 16], [&[][..]; 16]);
                let mut heading = None;
                while count < most {
                    let places = (&mut labels[count..most], &mut bodies[count..most]);
                    let given = heading.as_ref();
                    match consumer.look_at_series(given, &mut room, length_max, places) {
                        Some((of, new)) if new > 0 => {
                            heading = Some(of);
                            count += new;
                        }
                        _ => break,
                    }
                }
                let Some(heading) = heading else { break };
                let labeled = labels.iter().zip(&bodies).take(count);
                series = labeled.map(|(label, body)| headed(&heading, *label, body)).collect();
                break;
            }
            Look::Nothing | Look::Series | Look::Other => break,
        }
    }
    if series.is_empty() {
        series = messages[..count].iter().map(|message| message.to_vec()).collect();
    }
    assert!(series.iter().all(|message| message.len() <= length_max));
    let wanted = usize::try_from(random.below(0..1 + count as u64)).unwrap();
    if wanted == count {
        consumer.pass()
    } else {
        consumer.pass_some(wanted)
    }
    series.truncate(wanted);
    (series, wanted == count)
}

#[test]
fn messages_arrive_as_they_were_sent_however_they_are_sent_and_taken() {
    let (mut producer, mut consumer) = pair(RING_BYTES);
    let mut random = Rng::new(1);
    let (mut sent, mut visible) = (VecDeque::new(), 0);
    let (pool, mut posted) = buffer(1024);
    let mut ways = [0; 6];
    for number in 0..60_000 {
        let length = usize::try_from(random.below(0..130)).unwrap();
        let way = random.below(0..10);
        match way {
            0..=3 => {
                let heading = &HEADINGS[usize::try_from(random.below(0..60) / 25).unwrap()];
                // Nothing behind it, as often as not, or whatever fits.
                let most = if random.below(0..2) == 0 { 0 } else { JOINING_MAX - heading.len() };
                let (xid, body) = (number * 77, &message(7, length.min(most))[..]);
                let label = Label { xid, credit: 70 + u32::from(random.below(0..4) == 0) };
                if random.below(0..4) == 0 {
                    if producer.push_headed_alone(heading, label, body).unwrap().is_some() {
                        sent.push_back(headed(heading, label, body));
                        visible = sent.len();
                        ways[5] += 1;
                    }
                } else if producer.push_headed(heading, label, body).unwrap() {
                    sent.push_back(headed(heading, label, body));
                    ways[0] += 1;
                }
            }
            4 => {
                let message = message(9, 3 * length);
                if producer.push(Kind::Send, Handle(0), &message).unwrap() {
                    sent.push_back(message);
                    ways[1] += 1;
                }
            }
            5 => {
                producer.publish();
                visible = sent.len();
            }
            6 => {
                let (messages, _) = take_run(&mut consumer, &mut random);
                for message in messages {
                    assert_eq!(Some(message), sent.pop_front());
                    visible -= 1;
                    ways[2] += 1;
                }
            }
            7 if visible > 0 => {
                assert_eq!(Some(take(&mut consumer).2), sent.pop_front());
                visible -= 1;
                ways[3] += 1;
            }
            8 => {
                let mut sink = posted.sink(0..1024).unwrap();
                let taken = consumer.take_plain(&mut sink);
                drop(sink);
                let found = posted.complete().unwrap();
                if let Some(length) = taken {
                    assert_eq!(Some(&found.bytes()[..length]), sent.pop_front().as_deref());
                    visible -= 1;
                    ways[4] += 1;
                }
                posted = found.into_sink();
            }
            _ => {
                consumer.release();
            }
        }
        assert_eq!(consumer.peek().unwrap().is_some(), visible > 0);
    }
    assert!(ways.iter().all(|times| *times > 1000), "{ways:?}");
    drop(posted.complete().unwrap());
    drop(pool);
}

#[test]
fn a_ring_that_changes_while_it_is_read_leads_nowhere_else() {
    let mut random = Rng::new(2);
    for _ in 0..300 {
        let (mut producer, mut consumer) = pair(RING_BYTES);
        for xid in 0..60 {
            let body = vec![1; usize::try_from(random.below(0..40)).unwrap()];
            producer.push_headed(&HEADINGS[1], Label { xid, credit: 70 }, &body).unwrap();
        }
        producer.publish();
        let mut before = 0;
        for _ in 0..40 {
            let at = usize::try_from(random.below(0..u64::from(RING_BYTES) / 8)).unwrap();
            let header = 7 | random.below(0..900) << 11;
            let entry = random.below(0..220) << 32 | random.below(0..4);
            // What is being read, most often.
            let (at, word) = match random.below(0..4) {
                0 => (at, random.next()),
                1 => (at, entry),
                _ => (usize::try_from(consumer.head % u64::from(RING_BYTES)).unwrap() / 8, header),
            };
            producer.segment().memory().u64_at(RING + 8 * at).store(word, Ordering::Relaxed);
            take_run(&mut consumer, &mut random);
            if let Ok(Some(record)) = consumer.peek() {
                let (_pool, mut posted) = buffer(record.length.max(1));
                let mut sink = posted.sink(0..record.length).unwrap();
                consumer.copy(&record, 0, &mut sink, 0, record.length);
                drop(sink);
                drop(posted.complete().unwrap());
                consumer.advance(&record);
            }
            assert!(consumer.head >= before && consumer.head.is_multiple_of(LINE as u64));
            before = consumer.head;
        }
    }
}
