//! Models of the lock-free code: its own source, compiled with the atomics of a model checker.
//!
//! Each model runs two or three threads in all orders in which their accesses to shared words can happen, with every
//! value that the orderings let a load return, and with at most three preemptions. The modules of `mr-pool` and
//! `runtime` are included by path, so the checked code is the code that runs; only `sync` and `sys` here replace the
//! atomics, the shared memory and the barriers of the product. `tests/models.rs` runs the models; the variable
//! `LOOM_MAX_PREEMPTIONS` sets another number of preemptions.
//!
//! The doc comment of each model states the property that it shows. A weaker ordering than the code needs makes a model
//! fail.
#![deny(unsafe_code)]

mod blocks;
mod provider;
mod sync;
mod sys;
#[allow(unsafe_code, reason = "a trait that is unsafe elsewhere, too")]
mod zeroes;

#[path = "../../../mr-pool/src/references.rs"]
mod references;
#[path = "../../../mr-pool/src/returns.rs"]
mod returns;
#[path = "../../../mr-pool/src/table.rs"]
mod table;

#[path = "../../../runtime/src/cores/post/news.rs"]
mod news;

mod entries;
mod homecoming;
mod posts;
mod references_of_cores;

pub use entries::*;
pub use homecoming::*;
pub use posts::*;
pub use provider::shm::{doorbell::*, records::*, registrations::*};
pub use references_of_cores::*;

/// Runs a model in all orders with at most [`PREEMPTIONS_MAX`] preemptions.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(PREEMPTIONS_MAX);
    builder.max_branches = BRANCHES_MAX;
    builder.check(model);
}

/// Like `check`, for a model whose first thread builds pools or draws handles, which takes more than the usual stack.
fn check_deep(model: fn()) {
    check(move || {
        let deep = loom::thread::Builder::new().stack_size(STACK).spawn(model);
        deep.expect("a model has room for a thread").join().expect("it ends");
    });
}

/// Maximum number of preemptions in one run. Two show most mistakes in the order of accesses.
const PREEMPTIONS_MAX: usize = 3;
/// Maximum number of accesses in one run; a model with more has an endless loop.
const BRANCHES_MAX: usize = 10_000;
/// Size of a stack, in double words.
const STACK: usize = 1 << 15;
