//! Transfers by blocking calls.

use std::os::fd::OwnedFd;

use haulage::sys::files::Stability;
use haulage_mr_pool::Local;
use rustix::io::Errno;
use rustix::{fs, io};

use super::under_way::Read;
use crate::backend::ReadDone;

/// Reads by blocking calls until the READ is complete or the file ends.
pub(super) fn read_here(mut read: Read, mut lease: Local) -> Result<ReadDone, Errno> {
    while read.done < read.asked() {
        let into = read.done..read.asked();
        match io::pread(&read.file, &mut lease.bytes_mut()[into], read.at()) {
            Ok(0) => break,
            Ok(count) => {
                read.done += count;
                if read.is_done() {
                    break;
                }
            }
            Err(errno) if is_passing(errno) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(read.end(lease))
}

/// Writes `octets` to a file by blocking calls, as if from `offset`, of which the first `done` are written already, until
/// all are, or an error occurs. Returns the number written, which is at least one unless `octets` is empty.
pub(super) fn write_all(
    file: &OwnedFd,
    (offset, mut done): (u64, usize),
    octets: &[u8],
    stability: Stability,
) -> Result<usize, Errno> {
    while done < octets.len() {
        match io::pwrite(file, &octets[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(errno) if is_passing(errno) => {}
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    sync_here(file, stability)?;
    Ok(done)
}

/// Brings written data to stable storage by a blocking call.
pub(super) fn sync_here(file: &OwnedFd, stability: Stability) -> Result<(), Errno> {
    match stability {
        Stability::None => Ok(()),
        Stability::Data => fs::fdatasync(file),
        Stability::All => fs::fsync(file),
    }
}

/// Returns whether an error is transient, so that an immediate retry may work.
pub(super) const fn is_passing(errno: Errno) -> bool {
    matches!(errno, Errno::INTR)
}
