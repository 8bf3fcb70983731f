//! The `haulage` command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use haulage::sys::alloc::Counting;

/// Counts what each thread allocates: a core proves with it that it allocates nothing.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    haulage_apps::run(std::env::args_os())
}
