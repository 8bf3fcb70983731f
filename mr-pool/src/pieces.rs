//! Data in several shared blocks, or in a part of one, that is sent without a copy.
//!
//! # Memory ownership
//! A piece is a reference to a shared block of the pool and a range of it. The block is immutable
//! while a piece of it exists, so that its octets can be sent in place.

use std::ops::Range;

use crate::Shared;

/// A range of a shared block.
#[derive(Clone, Debug)]
pub struct Piece {
    block: Shared,
    /// The range within the block.
    range: Range<usize>,
}

impl Piece {
    /// Makes a piece of a whole block.
    pub const fn whole(block: Shared) -> Self {
        let range = 0..block.len();
        Self { block, range }
    }

    /// Returns a part of the piece: at most `length` octets from `start` on.
    #[must_use]
    pub fn part(&self, start: usize, length: usize) -> Self {
        let from = self.range.start.saturating_add(start).min(self.range.end);
        let to = from.saturating_add(length).min(self.range.end);
        Self { block: self.block.clone(), range: from..to }
    }

    /// Returns the octets.
    pub fn bytes(&self) -> &[u8] {
        &self.block.bytes()[self.range.clone()]
    }

    /// Returns the number of octets.
    pub const fn len(&self) -> usize {
        self.range.end - self.range.start
    }

    /// Returns whether there are no octets.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of octets of the shared block.
    pub const fn block_len(&self) -> usize {
        self.block.len()
    }

    /// Returns whether this piece and `other` are ranges of one block.
    pub fn shares_block(&self, other: &Self) -> bool {
        // Blocks are told apart by where they are: a block that is out has its place to itself.
        self.block.bytes().as_ptr() == other.block.bytes().as_ptr()
    }

    /// Returns the reference and the range, from which a transport sends.
    pub fn into_parts(self) -> (Shared, Range<usize>) {
        (self.block, self.range)
    }

    /// Extends the piece by `next` if that follows in the same block. Returns whether it did.
    fn join(&mut self, next: &Self) -> bool {
        let follows = self.shares_block(next) && self.range.end == next.range.start;
        if follows {
            self.range.end = next.range.end;
        }
        follows
    }
}

/// A sequence of pieces, whose contents are the octets of the pieces in order.
///
/// # Limits
/// A sequence has at most [`PIECES_MAX`] pieces, stored in place, so that collecting them allocates
/// nothing.
#[derive(Debug, Default)]
pub struct Pieces {
    pieces: [Option<Piece>; PIECES_MAX],
    count: usize,
    length: usize,
}

impl Pieces {
    /// Appends a piece, unless it is empty.
    ///
    /// # Errors
    /// Returns the piece if there is no room for another one.
    pub fn push(&mut self, piece: Piece) -> Result<(), Piece> {
        let length = piece.len();
        let last = self.count.checked_sub(1).and_then(|last| self.pieces[last].as_mut());
        let joined = length == 0 || last.is_some_and(|last| last.join(&piece));
        if !joined {
            let Some(free) = self.pieces.get_mut(self.count) else { return Err(piece) };
            *free = Some(piece);
            self.count += 1;
        }
        self.length += length;
        Ok(())
    }

    /// Returns the pieces.
    pub fn iter(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.iter().flatten()
    }

    /// Returns the number of octets.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns whether there are no octets.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl IntoIterator for Pieces {
    type Item = Piece;
    type IntoIter = std::iter::Flatten<std::array::IntoIter<Option<Piece>, PIECES_MAX>>;

    fn into_iter(self) -> Self::IntoIter {
        self.pieces.into_iter().flatten()
    }
}

/// The most pieces of one sequence: 1 MiB touches at most this number of 64 KiB blocks.
pub const PIECES_MAX: usize = 17;

#[cfg(test)]
mod tests {
    use crate::{PagePreference, Pool, PoolConfig};

    use super::*;

    fn pool() -> Pool {
        Pool::new(&PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None }).unwrap()
    }

    fn piece(pool: &Pool, octets: &[u8]) -> Piece {
        let mut lease = pool.lease(octets.len()).unwrap();
        lease.bytes_mut().copy_from_slice(octets);
        Piece::whole(lease.share())
    }

    #[test]
    fn a_part_never_exceeds_its_piece() {
        let pool = pool();
        let whole = piece(&pool, b"0123456789");
        assert_eq!(whole.part(2, 3).bytes(), b"234");
        assert_eq!(whole.part(2, 5).part(1, 99).bytes(), b"3456");
        assert!(whole.part(11, 1).is_empty() && whole.part(usize::MAX, usize::MAX).is_empty());
        let (block, range) = whole.part(8, 9).into_parts();
        assert_eq!(&block.bytes()[range], b"89");
    }

    #[test]
    fn neighbours_of_one_block_become_one_piece() {
        let pool = pool();
        let (a, b) = (piece(&pool, b"aaaa"), piece(&pool, b"bbbb"));
        let mut pieces = Pieces::default();
        for next in [a.part(0, 2), a.part(2, 1), a.part(3, 0), b.part(0, 1), b.part(2, 2)] {
            pieces.push(next).unwrap();
        }
        let held: Vec<_> = pieces.iter().map(Piece::bytes).collect();
        assert_eq!(held, [&b"aaa"[..], b"b", b"bb"]);
        assert!(a.part(0, 1).shares_block(&a.part(2, 2)) && !a.shares_block(&b));
        assert_eq!(a.part(0, 1).block_len(), 4);
        assert_eq!((pieces.len(), pieces.is_empty()), (6, false));
    }

    #[test]
    fn a_full_row_takes_no_more_and_gives_all_back() {
        let pool = pool();
        let mut pieces = Pieces::default();
        for _ in 0..PIECES_MAX {
            pieces.push(piece(&pool, b"x")).unwrap();
        }
        assert_eq!(pieces.push(piece(&pool, b"yz")).map_err(|back| back.len()), Err(2));
        assert_eq!(pieces.len(), PIECES_MAX);
        assert_eq!(pieces.into_iter().count(), PIECES_MAX);
        assert_eq!(pool.gauges().leased_bytes, 0);
    }
}
