//! What tells the file handles of one run from those of all others.

use crate::failure::Failure;

/// Random numbers of one run.
#[derive(Clone, Copy)]
pub(super) struct Secrets {
    /// Seals file handles.
    pub(super) key: [u8; 32],
    /// Names the file system.
    pub(super) fsid: u64,
    /// Names the run.
    pub(super) run: u64,
    /// Scatters what is remembered of Calls.
    pub(super) seed: u64,
}

impl Secrets {
    /// Draws them.
    pub(super) fn draw() -> Result<Self, Failure> {
        let failed = |error| Failure::failed(format!("the system gave no random numbers: {error}"));
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(failed)?;
        let number = || getrandom::u64().map_err(failed);
        Ok(Self { key, fsid: number()?, run: number()?, seed: number()? })
    }
}
