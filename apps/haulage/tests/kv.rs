//! The key-value service over real sockets, both ends in one thread.
//!
//! The client polls one core and the server the other, turn by turn, so nothing depends on how the
//! system schedules threads, and what one turn allocates is this thread's to count.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use haulage::sys::alloc::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[path = "kv/pair.rs"]
mod pair;
#[path = "kv/steady.rs"]
mod steady;
#[path = "kv/values.rs"]
mod values;
