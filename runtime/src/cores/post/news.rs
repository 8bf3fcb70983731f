//! The flag by which who posts and who takes miss nothing.

use std::sync::atomic::Ordering;

use crate::sync::{AtomicU32, flag};

/// Whether something was posted since the core last found its mailbox empty: 1 if so, otherwise 0.
#[derive(Debug)]
pub(crate) struct News(AtomicU32);

impl News {
    pub(crate) fn new() -> Self {
        Self(flag())
    }

    /// Notes that something was posted before. Returns whether the core is to be woken: if others have posted, too, and it
    /// has not looked since, it was woken already.
    pub(crate) fn raise(&self) -> bool {
        self.0.swap(1, Ordering::AcqRel) == 0
    }

    /// Returns whether something may have been posted.
    #[inline]
    pub(crate) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Notes that the mailbox was empty, and looks once more. What is posted after that wakes the core.
    pub(crate) fn lower<T>(&self, take: impl FnOnce() -> Option<T>) -> Option<T> {
        self.0.swap(0, Ordering::AcqRel);
        let found = take();
        if found.is_some() {
            // Others may have posted with it. A mere store would hide what one of them has raised meanwhile.
            self.raise();
        }
        found
    }
}
