//! Tests of the helpers with jobs of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// A job of a test.
#[derive(Debug)]
enum Deed {
    /// Tells its number.
    Tell(u32),
    /// Gives one piece of room back.
    Free(Arc<AtomicUsize>),
    /// Takes one piece of room. Tells whether there was one.
    Take(Arc<AtomicUsize>),
}

/// What became of a deed.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Number(u32),
    Taken(bool),
}

impl Job for Deed {
    type Ended = Told;

    fn run(self, attempt: Attempt) -> Result<Option<Told>, Self> {
        match self {
            Self::Tell(number) => Ok(Some(Told::Number(number))),
            Self::Free(room) => {
                room.fetch_add(1, Ordering::AcqRel);
                Ok(None)
            }
            Self::Take(room) => {
                let is_taken = room.load(Ordering::Acquire) > 0;
                if !is_taken && attempt == Attempt::Repeatable {
                    return Err(Self::Take(room));
                }
                Ok(Some(Told::Taken(is_taken)))
            }
        }
    }

    fn is_dispensable(&self) -> bool {
        matches!(self, Self::Tell(_))
    }
}

fn helpers() -> Helpers<Deed> {
    let helpers = Helpers::default();
    helpers.wake_by(Waker::new().unwrap());
    helpers
}

fn next(helpers: &Helpers<Deed>) -> Told {
    loop {
        if let Some(told) = helpers.next_ended() {
            return told;
        }
        std::thread::yield_now();
    }
}

#[test]
fn without_a_core_to_wake_a_job_is_handed_back() {
    let helpers = Helpers::default();
    let refused = helpers.hand(Deed::Tell(1), (Cost::Little, 0), None);
    assert!(matches!(refused, Some(Deed::Tell(1))), "{refused:?}");
    assert!(!helpers.has_started());
}

#[test]
fn what_waits_for_one_lock_keeps_its_order_and_takes_one_helper() {
    let helpers = helpers();
    let gate = helpers.gate();
    gate.store(true, Ordering::Release);
    let lock = Some(FileId { inode: 1, generation: 1 });
    for number in 0..100 {
        assert!(helpers.hand(Deed::Tell(number), (Cost::Little, 0), lock).is_none());
    }
    assert_eq!(helpers.busy(), 1);
    gate.store(false, Ordering::Release);
    (0..100).for_each(|number| assert_eq!(next(&helpers), Told::Number(number)));
}

#[test]
fn a_job_without_room_is_done_once_more_when_some_has_come_back() {
    for frees in [true, false] {
        let helpers = helpers();
        let (room, gate) = (Arc::new(AtomicUsize::new(0)), helpers.close_gate());
        gate.store(true, Ordering::Release);
        if frees {
            assert!(helpers.free(Deed::Free(Arc::clone(&room))).is_none());
        }
        assert!(helpers.hand(Deed::Take(room), (Cost::Little, 0), None).is_none());
        while frees && helpers.roomless() == 0 {
            assert_eq!(helpers.next_ended(), None);
            std::thread::yield_now();
        }
        gate.store(false, Ordering::Release);
        assert_eq!(next(&helpers), Told::Taken(frees));
    }
}
