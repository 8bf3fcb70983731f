use std::collections::VecDeque;
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;

use haulage_mr_pool::{PagePreference, Pool, PoolConfig, PostedSink};
use haulage_proto::verbs::{
    Handle, HeaderPatch, HeaderTemplate, NamedTemplate, PatchOffsets, TemplateId,
};

use super::super::segment::{Layout, Segment};
use super::*;
use crate::provider::sim::Rng;
use crate::sys::barrier::{self, Barrier};

const RING_BYTES: u32 = 4096;

fn pair(ring_bytes: u32) -> (Producer, Consumer) {
    let layout = Layout::new(ring_bytes, 1).unwrap();
    let (ours, fd) = Segment::create(layout).unwrap();
    let theirs = Segment::open(fd.as_fd(), layout).unwrap();
    (Producer::new(ours, Barrier::Full), Consumer::new(theirs))
}

fn buffer(length: usize) -> (Pool, PostedSink) {
    let config = PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None };
    let pool = Pool::new(&config).unwrap();
    let lease = pool.lease(length).unwrap();
    (pool, lease.into_sink())
}

/// Returns octets that differ by message and by place.
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
    // Every double word of these octets is a header: a Send of one octet.
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
    // A series, of the template that was introduced or of another.
    let last = RING_BYTES as usize - LINE;
    let known = u64::from(ID.number());
    for (name, offset, length, template) in [
        ("no entry", 0, 0, known),
        ("a template of nobody", 0, 100, known + 1),
        ("no template", 0, 100, 16),
        ("no template either", 0, 100, 31),
        ("past the end", last, 57, known),
    ] {
        let (producer, mut consumer) = introduced(&SHAPE);
        consumer.head = offset as u64;
        let memory = producer.segment().memory();
        let word = header(7, length) | template << 22;
        memory.u64_at(RING + offset).store(word, Ordering::Relaxed);
        memory.u64_at(RING + offset + 8).store(1, Ordering::Relaxed);
        assert_eq!(consumer.peek().map(|_| ()), Err(BadRing), "{name}");
        // It is not passed over as if there were nothing.
        consumer.look_again();
        let (mut room, mut patches, mut bodies) =
            ([0; 300], [HeaderPatch::default(); 4], [&[][..]; 4]);
        let places = (&mut patches[..], &mut bodies[..]);
        let found = consumer.look_at_series(None, &mut &mut room[..], 300, places);
        assert_eq!(found, None, "{name}");
        consumer.pass();
        assert_eq!(consumer.head, offset as u64, "{name}");
    }
    // An entry that is longer than any can be, or longer than the series.
    for body in [24, 193, u64::from(u32::MAX)] {
        let (producer, mut consumer) = introduced(&SHAPE);
        consumer.head = 0;
        let memory = producer.segment().memory();
        let word = header(7, 24) | known << 22;
        memory.u64_at(RING).store(word, Ordering::Relaxed);
        memory.u64_at(RING + 8).store(body << 32 | 7, Ordering::Relaxed);
        assert_eq!(consumer.peek().map(|_| ()), Err(BadRing), "{body}");
        memory.u64_at(RING + 8).store(16 << 32 | 7, Ordering::Relaxed);
        assert_eq!(consumer.peek().unwrap().unwrap().length, SHAPE.octets.len() + 16);
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
    // A consumer that takes back its position.
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
        let mut producer = Producer::new(ours, Barrier::Full);
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

/// The contents of a template.
struct Shape {
    octets: [u8; 44],
    offsets: PatchOffsets,
}

const SHAPE: Shape = Shape { octets: [7; 44], offsets: PatchOffsets { xid: [0, 20], credit: 8 } };
const ID: TemplateId = match TemplateId::new(5) {
    Some(id) => id,
    None => panic!("there are sixteen"),
};

/// Makes a ring, whose producer has introduced a template.
fn introduced(shape: &Shape) -> (Producer, Consumer) {
    let (mut producer, mut consumer) = pair(RING_BYTES);
    let template = HeaderTemplate::new(&shape.octets, shape.offsets).unwrap();
    let like = NamedTemplate { id: ID, template: &template };
    assert_eq!(producer.push_like(like, HeaderPatch::default(), &[]), Ok(true));
    producer.publish();
    assert_eq!(consumer.template(ID), None);
    assert_eq!(consumer.learn_next(), Ok(true));
    assert_eq!(consumer.template(ID), Some(&template));
    assert_eq!(consumer.learn_next(), Ok(false), "the message is next");
    (producer, consumer)
}

/// Templates of messages that are sent by turns: of three sizes, with the XID once and twice.
fn templates() -> [(TemplateId, HeaderTemplate); 3] {
    let offsets = |xid| PatchOffsets { xid, credit: 8 };
    let made = |number: u8, length, offsets| {
        let octets = message(usize::from(number), length);
        let template = HeaderTemplate::new(&octets, offsets).unwrap();
        (TemplateId::new(number).unwrap(), template)
    };
    [
        made(0, 72, offsets([0, 32])),
        made(15, HeaderTemplate::LEN_MAX, offsets([92, 92])),
        made(3, 44, offsets([0, 20])),
    ]
}

/// Returns a message made of a template, a patch and a body.
fn whole(template: &HeaderTemplate, patch: HeaderPatch, body: &[u8]) -> Vec<u8> {
    let mut whole = vec![0; template.len()];
    template.put(&mut whole, patch).unwrap();
    whole.extend_from_slice(body);
    whole
}

#[test]
fn messages_with_one_template_take_few_lines_and_the_template_is_sent_once() {
    for ((id, template), body, introduction, lines) in templates()
        .iter()
        .zip([0, 20, 0])
        .zip([2, 2, 1])
        .zip([3, 9, 3])
        .map(|(((named, body), introduction), lines)| (named, body, introduction, lines))
    {
        let (mut producer, mut consumer) = pair(RING_BYTES);
        let like = NamedTemplate { id: *id, template };
        let mut before = 0;
        for (round, lines) in [introduction + lines, lines].into_iter().enumerate() {
            for xid in 0..16 {
                let patch = HeaderPatch { xid, credit: 70 };
                assert_eq!(producer.push_like(like, patch, &vec![1; body]), Ok(true));
            }
            assert_eq!(producer.tail - before, lines * LINE as u64, "{id:?} round {round}");
            before = producer.tail;
            producer.publish();
            assert_eq!(consumer.learn_next(), Ok(round == 0));
            for xid in 0..16 {
                let patch = HeaderPatch { xid, credit: 70 };
                assert_eq!(take(&mut consumer).2, whole(template, patch, &vec![1; body]));
            }
            assert!(consumer.peek().unwrap().is_none());
        }
    }
}

#[test]
fn a_template_alone_in_a_line_is_shown_with_the_message_behind_it() {
    let (id, template) = &templates()[2];
    let like = NamedTemplate { id: *id, template };
    let (mut producer, mut consumer) = pair(RING_BYTES);
    for (xid, tail) in [(1, 2), (2, 3)] {
        let patch = HeaderPatch { xid, credit: 4 };
        assert_eq!(producer.push_like_alone(like, patch, b"alone"), Ok(Some(false)));
        assert_eq!(producer.tail, tail * LINE as u64);
        assert_eq!(consumer.learn_next(), Ok(xid == 1));
        assert_eq!(take(&mut consumer).2, whole(template, patch, b"alone"));
    }
}

#[test]
fn what_is_no_template_is_not_learned() {
    let described =
        |number, first, second, credit| Handle(u32::from_be_bytes([number, first, second, credit]));
    let good = described(0, 0, 20, 8);
    let introduce = |producer: &mut Producer, described, octets: &[u8]| {
        assert_eq!(producer.push(Kind::Template, described, octets), Ok(true));
        producer.publish();
    };
    let bad = [
        ("no such number", described(16, 0, 20, 8), 44),
        ("no such number either", described(255, 0, 20, 8), 44),
        ("the first XID out of bounds", described(0, 44, 20, 8), 44),
        ("the second XID out of bounds", described(0, 0, 44, 8), 44),
        ("the credit word out of bounds", described(0, 0, 20, 44), 44),
        ("the last octets out of bounds", described(0, 0, 20, 255), 96),
        ("between two words", described(0, 0, 22, 8), 44),
        ("one word for both", described(0, 8, 20, 8), 44),
        ("two words of one pair", described(0, 0, 20, 4), 44),
        ("no octets", described(0, 0, 0, 0), 0),
        ("half a word", good, 42),
        ("a word too long", good, 100),
        ("as long as a record can be", good, RING_BYTES as usize / 4 - 8),
    ];
    for (name, described, length) in bad {
        let (mut producer, mut consumer) = pair(RING_BYTES);
        let octets = vec![1; length.max(8)];
        introduce(&mut producer, described, &octets[..length]);
        if length == 0 {
            // This is an empty word, except for the upper half.
            producer.segment().memory().u64_at(RING).store(1 << 32, Ordering::Relaxed);
        }
        assert_eq!(consumer.learn_next(), Err(BadRing), "{name}");
        assert_eq!((consumer.head, consumer.template(ID)), (0, None), "{name}");
        // The record is not passed over as if it were nothing, or something else.
        consumer.look_again();
        assert_eq!(consumer.look(&mut [0; 2000]), Look::Other, "{name}");
        assert_eq!(consumer.glance(), Look::Other, "{name}");
    }
    let (mut producer, mut consumer) = pair(RING_BYTES);
    for number in 0..16 {
        introduce(&mut producer, described(number, 0, 20, 8), &[number; 44]);
        assert_eq!(consumer.learn_next(), Ok(true));
    }
    for number in 0..17 {
        introduce(&mut producer, described(number, 0, 20, 8), &[9; 44]);
        assert_eq!(consumer.learn_next(), Err(BadRing), "a number twice, or a seventeenth");
        consumer.head += LINE as u64;
    }
    for number in 0..16 {
        let octets = consumer.template(TemplateId::new(number).unwrap()).unwrap().octets();
        assert_eq!(octets[4..8], [number; 4], "it is as it was introduced");
    }
}

/// Looks at the next records as a run, and takes some of it. Returns the messages taken, and whether all were taken.
fn take_run(consumer: &mut Consumer, random: &mut Rng) -> (Vec<Vec<u8>>, bool) {
    let mut room = vec![0; 1 + usize::try_from(random.below(0..4096)).unwrap()];
    let (mut room, most) = (&mut room[..], usize::try_from(random.below(1..17)).unwrap());
    let length_max = if random.below(0..4) == 0 { 100 } else { 600 };
    let mut messages = [&[][..]; 16];
    let (mut series, mut count) = (Vec::<Vec<u8>>::new(), 0);
    while consumer.learn_next() == Ok(true) {}
    consumer.look_again();
    while count < most {
        let fitting = room.len().min(length_max);
        match consumer.look(&mut room[..fitting]) {
            Look::Plain(length) => {
                (messages[count], room) = std::mem::take(&mut room).split_at_mut(length);
                count += 1;
            }
            Look::Series if count == 0 => {
                let (mut patches, mut bodies) = ([HeaderPatch::default(); 16], [&[][..]; 16]);
                let mut template = None;
                while count < most {
                    let places = (&mut patches[count..most], &mut bodies[count..most]);
                    match consumer.look_at_series(template, &mut room, length_max, places) {
                        Some((of, new)) if new > 0 => {
                            template = Some(of);
                            count += new;
                        }
                        _ => break,
                    }
                }
                let Some(template) = template.and_then(|of| consumer.template(of)) else { break };
                let patched = patches.iter().zip(&bodies).take(count);
                series = patched.map(|(patch, body)| whole(template, *patch, body)).collect();
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
    let templates = templates();
    let (pool, mut posted) = buffer(1024);
    let mut ways = [0; 6];
    for number in 0..60_000 {
        let length = usize::try_from(random.below(0..130)).unwrap();
        let way = random.below(0..10);
        if visible > 0 && way > 6 {
            while consumer.learn_next() == Ok(true) {}
        }
        match way {
            0..=3 => {
                let (id, template) = &templates[usize::try_from(random.below(0..60) / 25).unwrap()];
                let like = NamedTemplate { id: *id, template };
                // Half of the messages have no body; the others have any that fits.
                let most = if random.below(0..2) == 0 { 0 } else { JOINING_MAX - template.len() };
                let (xid, body) = (number * 77, &message(7, length.min(most))[..]);
                let patch = HeaderPatch { xid, credit: 70 + u32::from(random.below(0..4) == 0) };
                if random.below(0..4) == 0 {
                    if producer.push_like_alone(like, patch, body).unwrap().is_some() {
                        sent.push_back(whole(template, patch, body));
                        visible = sent.len();
                        ways[5] += 1;
                    }
                } else if producer.push_like(like, patch, body).unwrap() {
                    sent.push_back(whole(template, patch, body));
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
        let next = consumer.peek().unwrap().filter(|record| record.kind != Kind::Template);
        assert!(visible > 0 || next.is_none(), "nothing more was shown");
        assert!(visible == 0 || consumer.peek().unwrap().is_some(), "something was shown");
    }
    assert!(ways.iter().all(|times| *times > 1000), "{ways:?}");
    drop(posted.complete().unwrap());
    drop(pool);
}

#[test]
fn a_ring_that_changes_while_it_is_read_leads_nowhere_else() {
    let mut random = Rng::new(2);
    let templates = templates();
    for _ in 0..300 {
        let (mut producer, mut consumer) = pair(RING_BYTES);
        for xid in 0..60 {
            let body = vec![1; usize::try_from(random.below(0..40)).unwrap()];
            let (id, template) = &templates[usize::from(xid > 40)];
            let like = NamedTemplate { id: *id, template };
            producer.push_like(like, HeaderPatch { xid, credit: 70 }, &body).unwrap();
        }
        producer.publish();
        // Of the templates, the second is introduced among the changes.
        assert_eq!(consumer.learn_next(), Ok(true));
        let mut before = 0;
        for _ in 0..40 {
            let at = usize::try_from(random.below(0..u64::from(RING_BYTES) / 8)).unwrap();
            // A series or a template, of either number or of any.
            let number = [0, 15, random.below(0..32)][usize::try_from(random.below(0..3)).unwrap()];
            let header = match random.below(0..4) {
                0 => number << 56 | 8 << 32 | random.below(0..30) << 13,
                _ => 7 | number << 22 | random.below(0..900) << 11,
            };
            let entry = random.below(0..220) << 32 | random.below(0..4);
            // Most often the word that is being read.
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
