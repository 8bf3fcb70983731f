//! The barrier between an end that publishes and an end that is about to sleep.
//!
//! `runtime::sys::barrier` either makes the system issue both ends' fences in one call of the rare end, or issues a
//! fence at each end. A model has a fence at each end: the system promises that the call has the same effect.

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
