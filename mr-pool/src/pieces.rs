//! Data that lies in several shared blocks, or in a part of one: what is sent of it leaves from there.
//!
//! # Memory ownership
//! A piece is a reference to a block of the pool and a part of it. Nobody writes the block while a
//! piece of it is left, so its octets can leave from where they are.

use std::ops::Range;

use crate::Shared;

/// A part of a block that nobody writes.
#[derive(Clone, Debug)]
pub struct Piece {
    block: Shared,
    /// Within the block.
    range: Range<usize>,
}

impl Piece {
    /// Takes all of a block.
    pub const fn whole(block: Shared) -> Self {
        let range = 0..block.len();
        Self { block, range }
    }

    /// Returns a part of the piece: at most `length` octets from `start`, as many as there are.
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

    /// Returns how many octets there are.
    pub const fn len(&self) -> usize {
        self.range.end - self.range.start
    }

    /// Returns whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives up the reference and the range it was to: what a transport sends from.
    pub fn into_parts(self) -> (Shared, Range<usize>) {
        (self.block, self.range)
    }

    /// Becomes one with `next` if that follows in the same block.
    fn join(&mut self, next: &Self) -> bool {
        // Blocks are told apart by where they are: a block that is out has its place to itself.
        let same = self.block.bytes().as_ptr() == next.block.bytes().as_ptr();
        let follows = same && self.range.end == next.range.start;
        if follows {
            self.range.end = next.range.end;
        }
        follows
    }
}

/// A row of pieces: what it holds is what they hold, in order.
///
/// # Limits
/// At most [`PIECES_MAX`], in place, so that collecting them takes nothing from the heap.
#[derive(Debug, Default)]
pub struct Pieces {
    pieces: [Option<Piece>; PIECES_MAX],
    count: usize,
    length: usize,
}

impl Pieces {
    /// Appends a piece; one without octets is left out.
    ///
    /// # Errors
    /// It comes back if there is no room for one more.
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

    /// Returns how many octets there are.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns whether there are none.
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

/// Pieces of one row: 1 MiB touches at most as many blocks of 64 KiB.
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
