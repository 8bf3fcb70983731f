//! The data of a regular file, in blocks of registered memory.
//!
//! # Memory ownership
//! A block is open while it is written: the file alone owns its lease and writes in place. The first READ of a block
//! freezes it, so that Replies can be sent from it; the next write copies it to a new lease. Placed data stays where it
//! is: each block that it covers is a frozen part of its lease. Only the partial blocks at the ends of a WRITE are
//! copied.
//!
//! A block refers to at most one lease, and keeps all of it in use. When a WRITE or a cut leaves less than half of a
//! lease to a file, that rest is copied to leases of its size: no lease is kept for a small part of it.
//! Where the pool has no room for the copy, the rest stays until the next change nearby.
//!
//! # Limits
//! A change examines the leases of at most [`BLOCKS_MAX`] blocks, as many as a WRITE of 1 MiB touches. Blocks that were
//! never written take no memory.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use haulage::sys::shared::prefetch_octets;
use haulage_mr_pool::{Local, Piece, Pieces, Pool};

use crate::backend::{Octets, ReadDone};
use crate::nfs3::Status;

/// The data of a regular file.
#[derive(Debug, Default)]
pub(super) struct Contents {
    blocks: BTreeMap<u64, Block>,
    length: u64,
    /// The sum of the blocks' lengths.
    stored: u64,
}

/// A block of up to [`BLOCK`] octets; the octets after its end are zeros.
#[derive(Debug)]
enum Block {
    Open(Local),
    Frozen(Piece),
}

impl Contents {
    /// Reads at most `count` octets. `zeros` is a block of zeros, sent for holes.
    pub(super) fn read(&mut self, offset: u64, count: usize, zeros: &Piece) -> ReadDone {
        let end = offset.saturating_add(count as u64).min(self.length);
        let mut data = Pieces::default();
        let mut at = offset;
        while at < end {
            let (index, start) = place(at);
            let wanted = least(BLOCK - start, end - at);
            let stored = self.blocks.get_mut(&index).map(|block| block.freeze(zeros));
            let stored = stored.map(|piece| piece.part(start, wanted));
            let piece = stored.filter(|piece| !piece.is_empty());
            let piece = piece.unwrap_or_else(|| zeros.part(0, wanted));
            let length = piece.len();
            if count <= AHEAD_MAX {
                prefetch_octets(piece.bytes());
            }
            if data.push(piece).is_err() {
                break;
            }
            at += length as u64;
        }
        ReadDone { data, end: at, eof: at >= self.length }
    }

    /// Writes `octets`, or as many of them as there is memory for. Returns the number written.
    pub(super) fn write(
        &mut self,
        pool: &Pool,
        offset: u64,
        octets: Octets<'_>,
    ) -> Result<u32, Status> {
        let length = octets.bytes().len();
        let end = offset.checked_add(length as u64).filter(|end| *end <= FILE_MAX);
        let end = end.ok_or(Status::FBig)?;
        let source = match octets {
            Octets::Placed(lease) if !is_mostly_empty(&lease) => {
                Source::Staying(Piece::whole(lease.share()))
            }
            ref octets => Source::Passing(octets.bytes()),
        };
        let touched = place(offset).0..=place(end).0;
        let replaced = self.parts(touched.clone());
        let (mut at, mut stayed) = (offset, 0);
        while at < end {
            let (index, start) = place(at);
            let from = least(length, at - offset);
            let count = least(BLOCK - start, end - at);
            match self.write_block(pool, (index, start), &source, (from, count)) {
                Some(staying) => stayed += staying,
                None => break,
            }
            at += count as u64;
        }
        if at > offset {
            self.length = self.length.max(at);
            replaced.iter().for_each(|part| self.compact(pool, part, &touched));
        }
        if let Source::Staying(all) = &source
            && stayed < length
        {
            self.compact(pool, all, &touched);
        }
        // A lease and a message are both far shorter than 4 GiB.
        let written = u32::try_from(at - offset).unwrap_or(u32::MAX);
        if written == 0 && length > 0 { Err(Status::NoSpc) } else { Ok(written) }
    }

    /// Truncates the file, or extends it by a hole.
    pub(super) fn set_length(&mut self, pool: &Pool, length: u64) -> Result<(), Status> {
        if length > FILE_MAX {
            return Err(Status::FBig);
        }
        let (index, within) = place(length);
        let behind = if within == 0 { index } else { index + 1 };
        for gone in self.blocks.split_off(&behind).into_values() {
            self.stored -= gone.len();
        }
        if let Some(last) = self.blocks.get_mut(&index) {
            self.stored -= last.len();
            last.cut(pool, within);
            self.stored += last.len();
        }
        if length < self.length {
            let left = self.parts(index.saturating_sub(BLOCKS_MAX)..=index);
            for part in left.iter() {
                self.compact(pool, part, &(index..=index));
            }
        }
        self.length = length;
        Ok(())
    }

    /// Returns the length in octets.
    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// Returns the number of octets stored; holes do not count.
    pub(super) const fn stored(&self) -> u64 {
        self.stored
    }

    /// Returns the pieces in these blocks that are not all of their leases.
    fn parts(&self, blocks: RangeInclusive<u64>) -> Pieces {
        let mut parts = Pieces::default();
        for block in self.blocks.range(blocks) {
            if let (_, Block::Frozen(piece)) = block
                && piece.len() < piece.block_len()
                && parts.push(piece.clone()).is_err()
            {
                break;
            }
        }
        parts
    }

    /// Copies what the file has of the lease of `part` to leases of its size, if it is less than half of that lease.
    /// The blocks that have it are less than the lease's length away from the ones that were `touched`.
    fn compact(&mut self, pool: &Pool, part: &Piece, touched: &RangeInclusive<u64>) {
        let reach = part.block_len().div_ceil(BLOCK) as u64;
        let near = touched.start().saturating_sub(reach)..=touched.end().saturating_add(reach);
        let is_of_it =
            |block: &Block| matches!(block, Block::Frozen(piece) if piece.shares_block(part));
        let blocks = self.blocks.range(near.clone()).map(|(_, block)| block);
        let live: u64 = blocks.filter(|block| is_of_it(block)).map(Block::len).sum();
        if live * 2 >= part.block_len() as u64 {
            return;
        }
        for (_, block) in self.blocks.range_mut(near).filter(|(_, block)| is_of_it(block)) {
            let Some(lease) = copy(pool, block.bytes()) else { return };
            *block = Block::Open(lease);
        }
    }

    /// Writes `count` octets of the source, from offset `from`, to a block at offset `start`. Returns how many of them
    /// stay in the source's lease. Fails if there is no memory.
    fn write_block(
        &mut self,
        pool: &Pool,
        (index, start): (u64, usize),
        source: &Source<'_>,
        (from, count): (usize, usize),
    ) -> Option<usize> {
        let old = self.blocks.get(&index).map_or(0, Block::len);
        let covered = start == 0 && count as u64 >= old;
        let staying = if let (true, Source::Staying(piece)) = (covered, source) {
            self.blocks.insert(index, Block::Frozen(piece.part(from, count)));
            count
        } else {
            let lease = self.open(pool, index, start + count)?;
            let before = lease.len();
            lease.set_len(before.max(start + count));
            let octets = lease.bytes_mut();
            if let Some(gap) = octets.get_mut(before..start) {
                gap.fill(0);
            }
            octets[start..start + count].copy_from_slice(&source.bytes()[from..from + count]);
            0
        };
        self.stored += self.blocks.get(&index).map_or(0, Block::len) - old;
        Some(staying)
    }

    /// Opens a block for writing up to a length of `wanted`, and returns its lease.
    fn open(&mut self, pool: &Pool, index: u64, wanted: usize) -> Option<&mut Local> {
        let usable = match self.blocks.get(&index) {
            Some(Block::Open(lease)) => lease.capacity() >= wanted,
            Some(Block::Frozen(_)) | None => false,
        };
        if !usable {
            let old = self.blocks.get(&index).map(Block::bytes).unwrap_or_default();
            // A growing block doubles its lease, so that appending copies each octet only a few times.
            let room = wanted.max(old.len() * 2).min(BLOCK);
            let mut lease = pool.lease(room).or_else(|| pool.lease(wanted.max(old.len())))?;
            lease.set_len(old.len());
            lease.bytes_mut().copy_from_slice(old);
            self.blocks.insert(index, Block::Open(lease));
        }
        match self.blocks.get_mut(&index) {
            Some(Block::Open(lease)) => Some(lease),
            Some(Block::Frozen(_)) | None => None,
        }
    }
}

impl Block {
    /// Freezes a block, so that it is not written in place again, and returns its octets.
    fn freeze(&mut self, zeros: &Piece) -> &Piece {
        if matches!(self, Self::Open(_)) {
            let held = std::mem::replace(self, Self::Frozen(zeros.part(0, 0)));
            if let Self::Open(lease) = held {
                *self = Self::Frozen(Piece::whole(lease.share()));
            }
        }
        match self {
            Self::Frozen(piece) => piece,
            Self::Open(_) => unreachable!("it was frozen above"),
        }
    }

    /// Shortens the block to `length` octets.
    fn cut(&mut self, pool: &Pool, length: usize) {
        match self {
            Self::Open(lease) => {
                lease.set_len(lease.len().min(length));
                if is_mostly_empty(lease)
                    && let Some(smaller) = copy(pool, lease.bytes())
                {
                    *lease = smaller;
                }
            }
            Self::Frozen(piece) => *piece = piece.part(0, length),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Open(lease) => lease.bytes(),
            Self::Frozen(piece) => piece.bytes(),
        }
    }

    fn len(&self) -> u64 {
        self.bytes().len() as u64
    }
}

/// The octets of a WRITE, by where they are.
enum Source<'a> {
    /// Octets in a message, to be copied.
    Passing(&'a [u8]),
    /// Octets in a lease, where they can stay.
    Staying(Piece),
}

impl Source<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Passing(bytes) => bytes,
            Self::Staying(piece) => piece.bytes(),
        }
    }
}

/// Returns a lease with a copy of `octets`, if there is memory for one.
fn copy(pool: &Pool, octets: &[u8]) -> Option<Local> {
    let mut lease = pool.lease(octets.len())?;
    lease.bytes_mut().copy_from_slice(octets);
    Some(lease)
}

/// Returns whether less than half of a lease's memory is used.
const fn is_mostly_empty(lease: &Local) -> bool {
    lease.len() < lease.capacity() / 2
}

/// Returns the block of an octet, and the octet's offset in it.
#[expect(clippy::cast_possible_truncation, reason = "what a division by BLOCK leaves is less")]
const fn place(offset: u64) -> (u64, usize) {
    (offset / BLOCK as u64, (offset % BLOCK as u64) as usize)
}

/// Returns the lesser of `a` and `b`.
fn least(a: usize, b: u64) -> usize {
    usize::try_from(b).map_or(a, |b| a.min(b))
}

/// Length of a block, in octets: sixteen pages.
pub(super) const BLOCK: usize = 64 << 10;
/// Octets of the longest READ whose data the processor is asked to fetch when the READ is served: the system copies the Replies
/// of a turn into the socket at its end, and then waits less for memory (`nfs-read-4k-32-ahead` and `nfs-read-64k-32-ahead` in
/// `docs/perf/read-write.tsv`). Longer READs were not measured.
const AHEAD_MAX: usize = 64 << 10;
/// Blocks whose leases a cut examines: 1 MiB touches as many.
const BLOCKS_MAX: u64 = 17;
/// Maximum size of a file, in octets.
pub(super) const FILE_MAX: u64 = i64::MAX as u64;

#[cfg(test)]
mod tests;
