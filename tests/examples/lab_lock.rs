//! Asks for a lock on a file, and says how that ended.
//!
//! `lab_lock FILE`
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the lab reads what it prints")]

use std::fs::File;
use std::io;

use rustix::fs::{FlockOperation, fcntl_lock};

fn main() -> io::Result<()> {
    let path = std::env::args_os().nth(1).ok_or(io::ErrorKind::InvalidInput)?;
    let file = File::options().write(true).open(path)?;
    match fcntl_lock(&file, FlockOperation::LockExclusive) {
        Ok(()) => println!("locked"),
        Err(error) => println!("{error}"),
    }
    Ok(())
}
