//! Records that pass from a producer to a consumer.

use haulage_mr_pool::{PagePreference, Pool, PoolConfig};
use haulage_proto::verbs::{
    Handle, HeaderPatch, HeaderTemplate, NamedTemplate, PatchOffsets, TemplateId,
};
use loom::thread;

use super::ends::ring;
use super::ring::{Consumer, Kind, Look, Producer};
use crate::{check, check_deep};

/// A batch becomes visible all at once, with the octets that were written.
pub fn a_batch_is_seen_whole_or_not_at_all() {
    check(|| {
        let (mut producer, mut consumer) = ring(4);
        let sender = thread::spawn(move || {
            for number in 0..2 {
                assert_eq!(producer.push(Kind::Send, Handle(0), &message(number, 56)), Ok(true));
            }
            producer.publish();
            send(&mut producer, 2, 20);
        });
        receive(&mut consumer, 0, 56);
        consumer.look_again();
        assert_ne!(consumer.look(&mut [0; 56]), Look::Nothing, "the other record of the batch");
        receive(&mut consumer, 1, 56);
        receive(&mut consumer, 2, 20);
        sender.join().expect("it sent all");
        assert!(!consumer.has_record());
    });
}

/// A line is not written again before the consumer has released its record, and the remains of an earlier lap are no
/// record.
pub fn a_line_is_written_again_once_it_was_taken() {
    check(|| {
        let (mut producer, mut consumer) = ring(4);
        let sender = thread::spawn(move || {
            for number in 0..MESSAGES {
                send(&mut producer, number, 8 * usize::from(number % 3));
            }
        });
        for number in 0..MESSAGES {
            receive(&mut consumer, number, 8 * usize::from(number % 3));
        }
        sender.join().expect("it sent all");
        assert!(!consumer.has_record());
    });
}

/// A record of several lines is seen whole, and so is a record at the start of the ring that did not fit at its end.
pub fn records_of_several_lines_pass_the_end_of_the_ring() {
    check(|| {
        let (mut producer, mut consumer) = ring(8);
        let lengths = [8, 100, 100, 100, 100];
        let sender = thread::spawn(move || {
            for (number, length) in (0..).zip(lengths) {
                send(&mut producer, number, length);
            }
        });
        for (number, length) in (0..).zip(lengths) {
            receive(&mut consumer, number, length);
        }
        sender.join().expect("it sent all");
        assert!(!consumer.has_record());
    });
}

/// A record is whole when it is copied to a Receive, whether the Receive takes it at once or after a peek.
pub fn a_record_is_whole_in_its_receive() {
    check_deep(|| {
        let (mut producer, mut consumer) = ring(4);
        thread::spawn(move || {
            send(&mut producer, 0, 56);
            send(&mut producer, 1, 56);
        });
        let config = PoolConfig { bytes: 1 << 16, pages: PagePreference::Heap, node: None };
        let pool = Pool::new(&config).expect("a small pool");
        let mut posted = pool.lease(112).expect("room for one").into_sink();
        let mut sink = posted.sink(0..56).expect("the first half");
        let record = loop {
            match consumer.peek().expect("an honest peer") {
                Some(record) => break record,
                None => thread::yield_now(),
            }
        };
        assert!(consumer.copy(&record, 0, &mut sink, 0, record.length));
        consumer.advance(&record);
        let mut other = posted.sink(56..112).expect("the other half");
        while consumer.take_plain(&mut other).is_none() {
            thread::yield_now();
        }
        drop((sink, other));
        let local = posted.complete().expect("no view is left");
        assert_eq!(local.bytes(), [message(0, 56), message(1, 56)].concat());
    });
}

/// The messages of a series are seen with their template and their XIDs, and the template before them.
pub fn a_series_is_seen_whole() {
    check(|| {
        let (mut producer, mut consumer) = ring(4);
        let offsets = PatchOffsets { xid: [0, 20], credit: 8 };
        let template = HeaderTemplate::new(&[5; 44], offsets).expect("whole words");
        let id = TemplateId::new(6).expect("there are sixteen");
        let sender = thread::spawn(move || {
            for xid in 0..3 {
                let body = message(7, 24);
                let like = NamedTemplate { id, template: &template };
                let pushed = producer.push_like(like, HeaderPatch { xid, credit: 9 }, &body);
                assert_eq!(pushed, Ok(true));
            }
            producer.publish();
        });
        let (mut room, mut patches, mut bodies) =
            ([0; 100], [HeaderPatch::default(); 4], [&[][..]; 4]);
        while !consumer.has_record() {
            thread::yield_now();
        }
        assert_eq!(consumer.learn_next(), Ok(true));
        assert_eq!(consumer.template(id), Some(&template));
        consumer.look_again();
        let places = (&mut patches[..], &mut bodies[..]);
        let found = consumer.look_at_series(None, &mut &mut room[..], 200, places);
        assert_eq!(found, Some((id, 3)));
        assert_eq!(patches[..3], [0, 1, 2].map(|xid| HeaderPatch { xid, credit: 9 }));
        assert!(bodies[..3].iter().all(|body| **body == message(7, 24)));
        sender.join().expect("it sent all");
    });
}

/// Sends a message alone, as soon as there is room.
fn send(producer: &mut Producer, number: u8, length: usize) {
    let message = message(number, length);
    while producer.push_alone(Kind::Send, Handle(0), &message).expect("an honest peer").is_none() {
        thread::yield_now();
    }
}

/// Takes the next message, as soon as there is one, and releases its room.
fn receive(consumer: &mut Consumer, number: u8, length: usize) {
    let mut room = [0; 200];
    loop {
        consumer.look_again();
        match consumer.look(&mut room) {
            Look::Plain(found) => {
                assert_eq!(room[..found], message(number, length));
                consumer.pass();
                assert!(consumer.release());
                return;
            }
            Look::Nothing => thread::yield_now(),
            // The consumer skips the rest of the ring.
            Look::Other => assert!(consumer.peek().is_ok()),
            Look::Series => panic!("nobody sent a series"),
        }
    }
}

/// Returns octets that depend on the number of the message and on their place in it.
fn message(number: u8, length: usize) -> Vec<u8> {
    (1..).take(length).map(|at: u8| at.wrapping_mul(7) ^ number << 4).collect()
}

/// Number of messages of one line: more than one lap of a ring of four lines.
const MESSAGES: u8 = 5;
