//! READ, WRITE and COMMIT of the files of a directory tree.

use std::rc::Rc;

use haulage_mr_pool::{Local, Pieces};
use rustix::io::Errno;

use super::jobs::syncing::Target;
use super::settling::Settling;
use super::shared::Shared;
use super::system::look::check_end;
use super::transfers::{BLOCK, Ended, Lane, Read, Room, Sync, Syncing, Transfers, Write, Writer};
use super::tree::Tree;
use super::tree::files::Files;
use crate::backend::{Context, Finished, Incoming, Octets, Progress, ReadDone, Ticket, WriteDone};
use crate::handle::FileId;
use crate::nfs3::arguments::Stable;
use crate::nfs3::{Status, Verifier};

/// How data is read and written.
#[derive(Debug)]
pub(super) struct FileData {
    pub(super) transfers: Transfers,
    /// Whether transfers with suitable alignment bypass the page cache.
    pub(super) is_direct: bool,
}

impl FileData {
    /// Reads a part of a file into memory that is leased for it. Returns `None` if that ends in a later turn.
    pub(super) fn read(
        &mut self,
        tree: &mut Tree,
        (cx, ticket): (&Context<'_>, Ticket),
        file: FileId,
        (offset, count): (u64, usize),
    ) -> Result<Option<ReadDone>, Status> {
        let (node, look) = tree.find(file)?;
        let size = look.regular()?.attributes.size;
        let left = usize::try_from(size.saturating_sub(offset));
        let wanted = left.map_or(count, |left| left.min(count));
        if wanted == 0 {
            let data = Pieces::default();
            return Ok(Some(ReadDone { data, end: offset, eof: offset >= size }));
        }
        self.transfers.admit(Lane::Read, ticket)?;
        let blocks = wanted.next_multiple_of(BLOCK);
        let lease = |length| cx.pool.lease(length).ok_or(Status::Jukebox);
        let direct = self.is_direct && is_aligned(offset);
        let lease = if direct { lease(blocks)? } else { lease(wanted)? };
        let direct = if direct && is_aligned_in_memory(&lease) {
            node.direct_reader(&tree.files.descriptors)?
        } else {
            None
        };
        let (file, in_blocks) = match direct {
            Some(file) => (file, true),
            None => (node.reader(&tree.files.descriptors)?, false),
        };
        let read =
            Read { ticket, file, offset, wanted, in_blocks, size, done: 0, held: Some(node) };
        let done = self.transfers.read(read, lease).transpose()?;
        // A file that ends earlier than it did has been cut.
        let is_short = |done: &ReadDone| done.data.len() < wanted;
        if let Some(done) = &done
            && (is_short(done) || tree.files.notes_reading(&look.attributes, cx.now))
        {
            tree.files.note_change([look.id]);
        }
        Ok(done)
    }

    /// Writes a part of a file. Returns `None` if that ends in a later turn.
    pub(super) fn write(
        &mut self,
        tree: &mut Tree,
        (cx, ticket): (&Context<'_>, Ticket),
        file: FileId,
        write: Incoming<'_>,
    ) -> Result<Option<WriteDone>, Status> {
        let (node, look) = tree.find(file)?;
        look.regular()?;
        let Incoming { offset, data, stable } = write;
        let length = data.bytes().len();
        check_end(offset, length)?;
        self.transfers.admit(Lane::Write, ticket)?;
        let (id, file) = (Some(node.id), node.writer(&tree.files.descriptors)?);
        let (writer, held) = (Writer::of(cx.caller), Some(Rc::clone(&node)));
        if length == 0 {
            let ended =
                self.transfers.sync(Sync { ticket, file, of: Syncing::Write(stable), held });
            return ended
                .map(|ended| written(&mut tree.files, id, (stable, ended.map(|()| 0))))
                .transpose();
        }
        let mut write = Write {
            ticket,
            file,
            offset,
            stable,
            writer,
            is_direct: false,
            done: 0,
            room: Room::Still,
            held,
        };
        let ended = match kept(cx, data) {
            Ok(lease) => {
                let is_aligned = is_aligned(offset) && length.is_multiple_of(BLOCK);
                if self.is_direct
                    && is_aligned
                    && is_aligned_in_memory(&lease)
                    && let Some(file) = node.direct_writer(&tree.files.descriptors)?
                {
                    (write.file, write.is_direct) = (file, true);
                }
                self.transfers.write(write, lease)
            }
            Err(_) if self.transfers.has_ring() => return Err(Status::Jukebox),
            Err(octets) => Some(self.transfers.write_here(&write, octets)),
        };
        ended.map(|ended| written(&mut tree.files, id, (stable, ended))).transpose()
    }

    /// Brings the data of a file to stable storage. Returns `None` if that ends in a later turn.
    pub(super) fn commit(
        &mut self,
        tree: &mut Tree,
        ticket: Ticket,
        file: FileId,
    ) -> Result<Option<Verifier>, Status> {
        let (node, look) = tree.find(file)?;
        look.regular()?;
        self.transfers.admit(Lane::Sync, ticket)?;
        let file = node.syncing_data(&tree.files.descriptors)?;
        let (of, held) = (Syncing::Commit, Some(node));
        let ended = self.transfers.sync(Sync { ticket, file, of, held });
        ended.map(|ended| committed(&mut tree.files.shared, ended)).transpose()
    }
}

/// Takes in that a transfer has ended. Returns what the server is told.
pub(super) fn transferred(
    files: &mut Files,
    settling: &mut Settling,
    ended: Ended,
) -> Option<Finished> {
    Some(match ended {
        Ended::Read(ticket, held, ended) => {
            files.note_change(held.map(|node| node.id));
            Finished::Read(ticket, ended.map_err(Status::from))
        }
        Ended::Write(ticket, held, ended) => {
            Finished::Write(ticket, written(files, held.map(|node| node.id), ended))
        }
        Ended::Commit(ticket, ended) => {
            Finished::Commit(ticket, committed(&mut files.shared, ended))
        }
        Ended::Change(file, ended) => {
            settling.synced(&mut files.shared, Target::File(file), ended);
            return None;
        }
    })
}

/// Takes in that a WRITE has ended, with the stability asked for and the number of octets written.
pub(super) fn written(
    files: &mut Files,
    file: Option<FileId>,
    (stable, ended): (Stable, Result<usize, Errno>),
) -> Result<WriteDone, Status> {
    files.note_change(file);
    let verifier = &mut files.shared.verifier;
    let done = ended.map_err(|errno| match stable {
        Stable::Unstable => errno.into(),
        Stable::DataSync | Stable::FileSync if is_refusal(errno) => errno.into(),
        Stable::DataSync | Stable::FileSync => verifier.lost(errno),
    })?;
    let count = u32::try_from(done).map_err(|_| Status::FBig)?;
    Ok(WriteDone { count, stable, verifier: verifier.get() })
}

fn committed(shared: &mut Shared, ended: Result<(), Errno>) -> Result<Verifier, Status> {
    ended.map_err(|errno| shared.verifier.lost(errno))?;
    Ok(shared.verifier.get())
}

/// Returns whether the system refuses a write with this error before it writes anything.
const fn is_refusal(errno: Errno) -> bool {
    matches!(errno, Errno::FBIG | Errno::INVAL)
}

/// Returns a lease that holds the octets. Placed octets are in one; unreduced octets are copied to a new one, since
/// they are gone with the message. Without room for a new lease, returns the octets as the error.
fn kept<'a>(cx: &Context<'_>, data: Octets<'a>) -> Result<Local, &'a [u8]> {
    match data {
        Octets::Placed(lease) => Ok(lease),
        Octets::Unreduced(octets) => {
            let mut lease = cx.pool.lease(octets.len()).ok_or(octets)?;
            lease.bytes_mut().copy_from_slice(octets);
            Ok(lease)
        }
    }
}

/// Converts an optional result to a [`Progress`].
pub(super) fn progress<T>(ended: Result<Option<T>, Status>) -> Progress<T> {
    match ended {
        Ok(None) => Progress::Later,
        Ok(Some(done)) => Progress::Ended(Ok(done)),
        Err(status) => Progress::Ended(Err(status)),
    }
}

const fn is_aligned(offset: u64) -> bool {
    offset.is_multiple_of(BLOCK as u64)
}

/// Returns whether a lease has the alignment that a transfer past the page cache takes.
fn is_aligned_in_memory(lease: &Local) -> bool {
    lease.bytes().as_ptr().addr().is_multiple_of(BLOCK)
}

#[cfg(test)]
mod tests;
