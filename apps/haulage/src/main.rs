//! The `haulage` command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use haulage::sys::alloc::Counting;

/// An allocator that counts the allocations of each thread, to prove that a core does not allocate.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    haulage_apps::run(std::env::args_os())
}
