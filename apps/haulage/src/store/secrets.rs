//! Random numbers that distinguish one run of a server from all others.

use crate::failure::Failure;

/// Random numbers of one run.
#[derive(Clone, Copy)]
pub(super) struct Secrets {
    /// The key that seals file handles.
    pub(super) key: [u8; 32],
    /// The ID of the file system.
    pub(super) fsid: u64,
    /// The number of the run.
    pub(super) run: u64,
    /// The seed of the duplicate request cache's hashes.
    pub(super) seed: u64,
}

impl Secrets {
    /// Draws new random numbers from the system.
    pub(super) fn draw() -> Result<Self, Failure> {
        let failed = |error| Failure::failed(format!("the system gave no random numbers: {error}"));
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(failed)?;
        let number = || getrandom::u64().map_err(failed);
        Ok(Self { key, fsid: number()?, run: number()?, seed: number()? })
    }
}
