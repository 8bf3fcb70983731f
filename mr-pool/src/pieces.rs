//! Data in several shared blocks, or in a part of one, that is sent without a copy.
//!
//! # Memory ownership
//! A piece is a reference to a shared block of the pool and a range of it. The block is immutable
//! while a piece of it exists, so that its octets can be sent in place.

use std::ops::Range;

use crate::{Shared, Source};

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
        // The address tells blocks apart: no other block lies where a leased one does.
        self.block.bytes().as_ptr() == other.block.bytes().as_ptr()
    }

    /// Returns a view of a range of the piece for the RNIC, or `None` if the range is not within the piece.
    pub fn source(&self, range: Range<usize>) -> Option<Source> {
        let end = self.range.start.checked_add(range.end).filter(|end| *end <= self.range.end)?;
        self.block.source(self.range.start.checked_add(range.start)?..end)
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
/// A few pieces are stored in place. The list of more is on the heap.
#[derive(Debug, Default)]
pub struct Pieces {
    few: [Option<Piece>; FEW],
    /// The pieces behind those in place.
    more: Vec<Piece>,
    length: usize,
}

impl Pieces {
    /// Appends a piece, unless it is empty.
    ///
    /// # Errors
    /// Returns the piece if the heap has no room for it.
    pub fn push(&mut self, piece: Piece) -> Result<(), Piece> {
        let length = piece.len();
        if length > 0 && !self.last_mut().is_some_and(|last| last.join(&piece)) {
            if let Some(place) = self.few.iter_mut().find(|place| place.is_none()) {
                *place = Some(piece);
            } else if self.reserve() {
                self.more.push(piece);
            } else {
                return Err(piece);
            }
        }
        self.length += length;
        Ok(())
    }

    /// Returns the pieces.
    pub fn iter(&self) -> impl Iterator<Item = &Piece> {
        self.few.iter().flatten().chain(&self.more)
    }

    /// Returns the number of pieces.
    pub fn count(&self) -> usize {
        self.few.iter().flatten().count() + self.more.len()
    }

    /// Returns the number of octets.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns whether there are no octets.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the heap memory of the list, in octets.
    pub const fn heap_bytes(&self) -> usize {
        self.more.capacity() * size_of::<Piece>()
    }

    fn last_mut(&mut self) -> Option<&mut Piece> {
        self.more.last_mut().or_else(|| self.few.iter_mut().rev().flatten().next())
    }

    /// Makes room for another piece on the heap. Returns whether there is.
    fn reserve(&mut self) -> bool {
        let more = if self.more.capacity() == 0 { SPILL } else { 1 };
        self.more.try_reserve(more).is_ok()
    }
}

/// Pieces that take no block of the heap.
const FEW: usize = 2;
/// Pieces that the heap has room for at first: with those in place, as many blocks of 64 KiB as 1 MiB touches.
const SPILL: usize = 15;

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
        let part = whole.part(2, 6);
        assert_eq!(part.source(1..4).unwrap().bytes(), b"345");
        let backwards = Range { start: 4, end: 3 };
        let views = [6..6, 5..7, 7..7, backwards, 0..usize::MAX].map(|range| part.source(range));
        assert_eq!(views.map(|view| view.is_some()), [true, false, false, false, false]);
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
    fn a_long_row_keeps_its_order_and_gives_all_back() {
        let pool = pool();
        let mut pieces = Pieces::default();
        let octets: Vec<u8> = (0..200).collect();
        for octet in octets.chunks(1) {
            pieces.push(piece(&pool, octet)).unwrap();
            // A part behind the last piece in its block needs no reference of its own, wherever the block lies.
            let last = pieces.iter().last().unwrap().clone();
            pieces.push(last.part(1, 1)).unwrap();
        }
        assert_eq!((pieces.len(), pieces.count()), (200, 200));
        let held: Vec<u8> = pieces.iter().flat_map(|piece| piece.bytes().to_vec()).collect();
        assert_eq!(held, octets);
        drop(pieces);
        assert_eq!(pool.gauges().leased_bytes, 0);
    }
}
