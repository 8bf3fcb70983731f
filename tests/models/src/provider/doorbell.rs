//! A consumer that sleeps, and a producer that wakes it.

use haulage_proto::verbs::Handle;
use loom::sync::{Arc, Notify};
use loom::thread;

use super::ends::ring;
use super::ring::{Consumer, Kind, Look};
use crate::check;
use crate::sys::barrier;

/// The next record wakes a consumer that asked for a doorbell, looked once more and went to sleep: either the producer
/// sees the request, or the consumer sees the record.
pub fn nobody_sleeps_while_there_is_a_record() {
    check(|| {
        let (mut producer, mut consumer) = ring(8);
        let bell = Arc::new(Notify::new());
        let sender = {
            let bell = bell.clone();
            thread::spawn(move || {
                for number in 0..MESSAGES {
                    let wants = producer.push_alone(Kind::Send, Handle(0), &[number]);
                    if wants.expect("an honest peer").expect("room for all") {
                        bell.notify();
                    }
                }
            })
        };
        for number in 0..MESSAGES {
            while !consumer.has_record() {
                sleep(&consumer, &bell);
            }
            let mut octets = [0; 1];
            consumer.look_again();
            assert_eq!((consumer.look(&mut octets), octets), (Look::Plain(1), [number]));
            consumer.pass();
        }
        sender.join().expect("it sent all");
    });
}

/// Sleeps until the doorbell rings, in the steps of `Shm::cool` and `Shm::rest`.
fn sleep(consumer: &Consumer, bell: &Notify) {
    consumer.ask_for_doorbell();
    barrier::heavy();
    if !consumer.has_record() {
        bell.wait();
    }
    consumer.need_no_doorbell();
}

const MESSAGES: u8 = 2;
