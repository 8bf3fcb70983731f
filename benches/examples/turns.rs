//! Makes Calls between two cores on one thread, so many at a time, for `benches/counts` to count the
//! instructions of a Call at both ends.
//!
//! `turns null|read|write DEPTH BATCHES`: a batch is `DEPTH` Calls that the client makes in one turn and
//! the server answers in one.
#![forbid(unsafe_code)]

use std::env;

use haulage_benches::{Kind, World};

fn main() {
    let mut arguments = env::args().skip(1);
    let kind = match arguments.next().as_deref() {
        Some("null") => Kind::Null,
        Some("read") => Kind::Read,
        Some("write") => Kind::Write,
        _ => panic!("null, read or write"),
    };
    let mut number = || arguments.next().and_then(|n| n.parse().ok()).expect("DEPTH BATCHES");
    let (depth, batches): (u64, u64) = (number(), number());
    let mut world = World::over_shm();
    for _ in 0..batches {
        world.batch(kind, depth);
    }
}
