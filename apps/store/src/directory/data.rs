//! What files hold: read into leases, written from where it is.

use std::os::fd::OwnedFd;

use haulage_mr_pool::{Piece, Pieces};
use rustix::io::Errno;
use rustix::{fs, io};

use super::Directory;
use crate::backend::{Context, Incoming, ReadDone, WriteDone};
use crate::handle::FileId;
use crate::nfs3::arguments::Stable;
use crate::nfs3::{Status, Verifier};

impl Directory {
    pub(super) fn read_here(
        &mut self,
        cx: &Context<'_>,
        file: FileId,
        offset: u64,
        count: usize,
    ) -> Result<ReadDone, Status> {
        let (node, look) = self.tree.find(file)?;
        let size = look.regular()?.attributes.size;
        let wanted =
            usize::try_from(size.saturating_sub(offset)).map_or(count, |left| left.min(count));
        let mut data = Pieces::default();
        if wanted == 0 {
            return Ok(ReadDone { data, eof: offset >= size });
        }
        let open = node.reader(&self.tree.descriptors)?;
        let mut lease = cx.pool.lease(wanted).ok_or(Status::Jukebox)?;
        let done = read_all(&open, lease.bytes_mut(), offset)?;
        lease.set_len(done);
        let fits = data.push(Piece::whole(lease.share()));
        debug_assert!(fits.is_ok(), "the row is empty");
        Ok(ReadDone { data, eof: done < wanted || offset.saturating_add(done as u64) >= size })
    }

    pub(super) fn write_here(
        &mut self,
        file: FileId,
        write: &Incoming<'_>,
    ) -> Result<WriteDone, Status> {
        let (node, look) = self.tree.find(file)?;
        look.regular()?;
        let octets = write.data.bytes();
        check_end(write.offset, octets.len())?;
        let open = node.writer(&self.tree.descriptors)?;
        let done = write_all(&open, octets, write.offset)?;
        match write.stable {
            Stable::Unstable => Ok(()),
            Stable::DataSync => fs::fdatasync(&open),
            Stable::FileSync => fs::fsync(&open),
        }
        .map_err(|errno| self.lost(errno))?;
        let count = u32::try_from(done).map_err(|_| Status::FBig)?;
        Ok(WriteDone { count, stable: write.stable, verifier: self.verifier() })
    }

    pub(super) fn commit_here(&mut self, file: FileId) -> Result<Verifier, Status> {
        let (node, look) = self.tree.find(file)?;
        look.regular()?;
        let open = node.writer(&self.tree.descriptors)?;
        fs::fdatasync(&open).map_err(|errno| self.lost(errno))?;
        Ok(self.verifier())
    }

    /// Returns what changes when what was not stable may be lost: with each start, and with each
    /// failure to make something stable, after which the system may have dropped what it could not
    /// write.
    pub(super) const fn verifier(&self) -> Verifier {
        Verifier(self.run.wrapping_add(self.failures))
    }

    /// Notes that something could not be made stable.
    pub(super) fn lost(&mut self, errno: Errno) -> Status {
        self.failures += 1;
        errno.into()
    }
}

/// Checks that a WRITE ends where a file can.
pub(super) fn check_end(offset: u64, length: usize) -> Result<(), Status> {
    let end = offset.checked_add(length as u64);
    end.filter(|end| *end <= FILE_MAX).map(drop).ok_or(Status::FBig)
}

/// Reads until `into` is full or the file ends. Returns how many octets.
fn read_all(open: &OwnedFd, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < into.len() {
        match io::pread(open, &mut into[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

/// Writes all of `from`, or as much as there is room for. Returns how many octets: at least one, if
/// there are any.
fn write_all(open: &OwnedFd, from: &[u8], offset: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < from.len() {
        match io::pwrite(open, &from[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Octets of the longest file.
pub(super) const FILE_MAX: u64 = i64::MAX as u64;
