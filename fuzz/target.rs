//! One fuzz target: that of the name its program was built under.
#![no_main]

use haulage::sys::alloc::Counting;
use haulage_tests::fuzz::target;
use libfuzzer_sys::fuzz_target;

/// Without it no allocation is counted.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|data: &[u8]| {
    target(env!("CARGO_BIN_NAME")).expect("the manifest lists targets that exist").run(data);
});
