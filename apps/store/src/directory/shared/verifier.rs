//! The write verifier, by which clients notice that unstable data may be lost.

use rustix::io::Errno;

use crate::nfs3::{Status, Verifier};

/// The write verifier of a server. It changes with each start, and with each failure to make something stable, after which
/// the system may have dropped the unwritten data.
#[derive(Debug)]
pub(crate) struct WriteVerifier {
    run: u64,
    /// Number of failures to make something stable.
    failures: u64,
}

impl WriteVerifier {
    /// Creates the verifier of a run with a number that no earlier one had.
    pub(super) const fn new(run: u64) -> Self {
        Self { run, failures: 0 }
    }

    /// Counts a failure to make something stable, which changes the verifier. Returns its status.
    pub(crate) fn lost(&mut self, errno: Errno) -> Status {
        self.failures += 1;
        errno.into()
    }

    /// Returns the write verifier that answers of WRITE and COMMIT carry now.
    pub(crate) const fn get(&self) -> Verifier {
        Verifier(self.run.wrapping_add(self.failures))
    }
}
