//! Counts of the Replies to the clients of a storage server, by the status that is the result of the Call.

use crate::{mount3, nfs3};

/// Number of results with each status, since the server was made. NULL has no status, nor have DUMP, UMNT and EXPORT.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    nfs: [u64; nfs3::Status::ALL.len()],
    mount: [u64; mount3::Status::ALL.len()],
}

impl Told {
    /// Counts results of NFS.
    pub(super) fn note_nfs(&mut self, status: nfs3::Status) {
        if let Some(at) = nfs3::Status::ALL.iter().position(|known| *known == status) {
            self.nfs[at] += 1;
        }
    }

    /// Counts encoded results of NFS, which begin with their status; those of NULL are empty.
    pub(super) fn note_encoded(&mut self, results: &[u8]) {
        let status = results.first_chunk().copied().map(u32::from_be_bytes);
        if let Some(status) = status.and_then(nfs3::Status::from_number) {
            self.note_nfs(status);
        }
    }

    /// Counts results of MOUNT.
    pub(super) fn note_mount(&mut self, results: &mount3::Results<'_>) {
        let mount3::Results::Mnt(outcome) = results else { return };
        let status = outcome.as_ref().err().copied().unwrap_or(mount3::Status::Ok);
        if let Some(at) = mount3::Status::ALL.iter().position(|known| *known == status) {
            self.mount[at] += 1;
        }
    }

    /// Returns each status of NFS with the number of results.
    pub fn nfs(&self) -> impl Iterator<Item = (nfs3::Status, u64)> {
        nfs3::Status::ALL.iter().copied().zip(self.nfs)
    }

    /// Returns each status of MNT with the number of results.
    pub fn mount(&self) -> impl Iterator<Item = (mount3::Status, u64)> {
        mount3::Status::ALL.iter().copied().zip(self.mount)
    }
}
