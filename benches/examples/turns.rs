//! Makes Calls between two cores on one thread, so many at a time, for `benches/counts` to count the
//! instructions of a Call at both ends.
//!
//! `turns null|read|write DEPTH BATCHES [iwarp]`: over shm, or over iwarp. `DEPTH` Calls are in flight, and the
//! next is made when one has been answered, until `BATCHES` times as many were made.
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
    match arguments.next().as_deref() {
        None => World::over_shm().batch(kind, depth, depth * batches),
        Some("iwarp") => World::over_iwarp().batch(kind, depth, depth * batches),
        Some(_) => panic!("iwarp, or nothing for shm"),
    }
}
