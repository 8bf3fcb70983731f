//! Atomics of the model checker that detect two more kinds of mistake.
//!
//! A word can be watched for two properties. Relaxed loads and stores of a word that one thread at a time may access
//! are watched as if they were not atomic: two of them, one a store, that nothing orders are a failure. An access to a
//! freed word is a failure, too. Both depend only on whether one access happens before another, and not on their order
//! in a run.
//!
//! The model checker supports sequentially consistent fences, but treats sequentially consistent loads and stores as
//! acquire and release. So a sequentially consistent load begins with a fence of that kind if the last store of its
//! thread was sequentially consistent, too. This is what a store followed by a load of another word needs: if either is
//! weaker, there is no fence.
//!
//! The model checker ignores that a swap comes right behind the store that it read from: the swap's value could be read
//! where a later store of the other thread is known. So the swap of a flag stores nothing if it would change nothing,
//! which no thread can notice.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::atomic as model;
pub(crate) use loom::sync::atomic::fence;

pub(crate) use crate::zeroes::{Zero, zeroes};

macro_rules! atomic {
    ($name:ident, $value:ty) => {
        /// An atomic of the model checker.
        #[derive(Debug)]
        pub(crate) struct $name {
            word: model::$name,
            watch: Watch,
        }

        #[allow(dead_code, reason = "not every operation is used of every size")]
        impl $name {
            /// Makes a word in memory that can be freed, which one thread at a time accesses by relaxed stores.
            pub(crate) fn new(value: $value) -> Self {
                let (plain, freed) = (Some(cell()), Some(cell()));
                Self::watched(value, Watch { plain, freed, is_flag: false })
            }

            pub(crate) fn watched(value: $value, watch: Watch) -> Self {
                Self { word: model::$name::new(value), watch }
            }

            pub(crate) fn load(&self, order: Ordering) -> $value {
                self.watch.load(order);
                self.word.load(order)
            }

            pub(crate) fn store(&self, value: $value, order: Ordering) {
                self.watch.store(order);
                self.word.store(value, order);
            }

            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                self.watch.change(order);
                if !self.watch.is_flag {
                    return self.word.swap(value, order);
                }
                let failure = match order {
                    Ordering::Relaxed => Ordering::Relaxed,
                    _ => Ordering::Acquire,
                };
                let swapped = self.word.compare_exchange(value ^ 1, value, order, failure);
                swapped.unwrap_or_else(|found| found)
            }

            pub(crate) fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                self.watch.change(order);
                self.word.fetch_or(value, order)
            }

            pub(crate) fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.watch.change(order);
                self.word.fetch_add(value, order)
            }

            pub(crate) fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                self.watch.change(order);
                self.word.fetch_sub(value, order)
            }

            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.watch.change(success);
                self.word.compare_exchange(current, new, success, failure)
            }

            pub(crate) fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.watch.change(success);
                self.word.compare_exchange_weak(current, new, success, failure)
            }

            /// Frees the word: every other access has to happen before.
            pub(crate) fn free(&self) {
                if let Some(freed) = &self.watch.freed {
                    freed.with_mut(|_| ());
                }
            }
        }
    };
}

atomic!(AtomicU32, u32);
atomic!(AtomicU64, u64);

/// Returns a word that is 0 or 1, and is 0.
pub(crate) fn flag() -> AtomicU32 {
    AtomicU32::watched(0, Watch::default())
}

/// Returns a word that several threads store.
pub(crate) fn word(value: u64) -> AtomicU64 {
    AtomicU64::watched(value, Watch::default())
}

/// Waits for another thread that is about to do something.
pub(crate) fn wait_a_moment() {
    loom::thread::yield_now();
}

/// The watched properties of a word.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Relaxed loads read this cell, and relaxed stores write it.
    pub(crate) plain: Option<UnsafeCell<()>>,
    /// Every access reads this cell, and freeing the word writes it.
    pub(crate) freed: Option<UnsafeCell<()>>,
    /// The word is 0 or 1, and a swap that would not change it is a load of its last value.
    pub(crate) is_flag: bool,
}

impl Watch {
    fn load(&self, order: Ordering) {
        read(&self.freed);
        match order {
            Ordering::Relaxed => read(&self.plain),
            Ordering::SeqCst if STORED_LAST.with(Cell::get) => fence(Ordering::SeqCst),
            _ => {}
        }
    }

    fn store(&self, order: Ordering) {
        self.change(order);
        if let Some(plain) = self.plain.as_ref().filter(|_| order == Ordering::Relaxed) {
            plain.with_mut(|_| ());
        }
    }

    fn change(&self, order: Ordering) {
        read(&self.freed);
        STORED_LAST.with(|stored| stored.set(order == Ordering::SeqCst));
    }
}

pub(crate) fn cell() -> UnsafeCell<()> {
    UnsafeCell::new(())
}

fn read(cell: &Option<UnsafeCell<()>>) {
    if let Some(cell) = cell {
        cell.with(|_| ());
    }
}

loom::thread_local! {
    /// Whether the last store of this thread was sequentially consistent.
    static STORED_LAST: Cell<bool> = Cell::new(false);
}
