//! What the checks examine.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;

use haulage::sys::process;

use crate::failure::Failure;
use crate::placement::Cpus;

/// The input of the checks: files under a root, and answers of the system.
#[derive(Debug)]
pub struct Machine {
    /// The directory that holds `proc` and `sys`.
    pub root: PathBuf,
    /// The CPUs this process can run on.
    pub cpus: Cpus,
    /// Maximum octets that this process may lock; `None` means no limit.
    pub memlock: Option<u64>,
    /// Maximum number of files that this process may have open.
    pub open_files: u64,
    /// The error of creating an io_uring; `None` if it succeeded.
    pub io_uring: Option<io::Error>,
    /// The error of listening on a TCP socket; `None` if it succeeded.
    pub tcp: Option<io::Error>,
    /// Why clients find no lock manager at the loopback; `None` if they find one.
    pub no_locks: Option<String>,
}

impl Machine {
    /// Describes the machine on which this process runs.
    pub fn here() -> Result<Self, Failure> {
        let mut cpus = Cpus::here()?;
        cpus.keep_pinnable();
        Ok(Self {
            root: PathBuf::from("/"),
            cpus,
            memlock: process::memlock_limit(),
            open_files: process::raise_open_files().map_err(|error| {
                Failure::failed(format!("cannot read the limit of open files: {error}"))
            })?,
            io_uring: process::probe_io_uring().err(),
            tcp: TcpListener::bind("127.0.0.1:0").err(),
            no_locks: crate::locks::lacking(Ipv4Addr::LOCALHOST.into()),
        })
    }
}
