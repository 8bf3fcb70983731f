//! A fuzz program: it runs the target that it was named after at build time.
#![no_main]

use haulage::sys::alloc::Counting;
use haulage_tests::fuzz::target;
use libfuzzer_sys::fuzz_target;

/// Counts the allocations of the target.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|data: &[u8]| {
    target(env!("CARGO_BIN_NAME")).expect("the manifest lists targets that exist").run(data);
});
