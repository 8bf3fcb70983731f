//! The barrier of who publishes and of who is about to sleep.
//!
//! `runtime::sys::barrier` has the system issue both ends' fences in one call of the rare end, or issues a
//! fence at either. A model has a fence at either: that the call amounts to that is the system's promise.

use std::sync::atomic::Ordering;

use loom::sync::atomic::fence;

pub(crate) fn heavy() {
    fence(Ordering::SeqCst);
}

#[derive(Debug)]
pub(crate) enum Barrier {
    Full,
}

impl Barrier {
    pub(crate) fn pass(&self) {
        fence(Ordering::SeqCst);
    }
}
