//! Models of the lock-free code: its own source, compiled over the atomics of a model checker.
//!
//! Each model runs two or three threads in all orders in which their accesses to shared words can
//! happen, with every value that the orderings let a load return, and with at most three preemptions.
//! The modules of `mr-pool` and `runtime` are taken from where they are, by path, so that what is checked
//! is what runs; only `sync` and `sys` here stand in for the atomics, the shared memory and the barriers of
//! the product. The models are run by `tests/models.rs`; the variable `LOOM_MAX_PREEMPTIONS` sets another
//! number of preemptions.
//!
//! What a model shows is in the documentation of the function that runs it. A weaker ordering than the
//! code needs makes one fail.
#![forbid(unsafe_code)]

mod blocks;
mod provider;
mod sync;
mod sys;

#[path = "../../../mr-pool/src/returns.rs"]
mod returns;
#[path = "../../../mr-pool/src/table.rs"]
mod table;

mod homecoming;

pub use homecoming::*;
pub use provider::shm::{doorbell::*, records::*, registrations::*};

/// Runs a model in all orders that at most [`PREEMPTIONS_MAX`] preemptions can bring about.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(PREEMPTIONS_MAX);
    builder.max_branches = BRANCHES_MAX;
    builder.check(model);
}

/// Like `check`, for a model whose first thread makes pools or draws handles, which takes more than the
/// usual stack.
fn check_deep(model: fn()) {
    check(move || {
        let deep = loom::thread::Builder::new().stack_size(STACK).spawn(model);
        deep.expect("a model has room for a thread").join().expect("it ends");
    });
}

/// Times that a thread is interrupted where it could go on, in one run. Most mistakes in the order of
/// accesses show with two.
const PREEMPTIONS_MAX: usize = 3;
/// Accesses in one run, beyond which a model has a loop that does not end.
const BRANCHES_MAX: usize = 10_000;
/// Double words of a stack.
const STACK: usize = 1 << 15;
