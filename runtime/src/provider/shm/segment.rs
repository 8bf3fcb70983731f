//! The memory that one end shares with the other: a few words, the ring it sends on, the table of its registrations.
//!
//! ```text
//!    0  head    u64  octets the consumer has taken, for ever rising   written by the consumer
//!  128  waits   u32  1 while the consumer wants a doorbell            by both
//!  256  ended   u32  how the connection ended, seen from the owner    by the owner
//!  384  ring         lines of 64 octets                               by the owner
//!  ...  table        one line for each registration                   by the owner, but for `in use`
//! ```
//! The owner makes the segment, in memory accounted to it, and the peer maps it. Words that different ends write are
//! two lines apart: processors fetch lines in pairs. Words that the peer can write are never trusted: they are read
//! once, as values, and checked.

use std::os::fd::{BorrowedFd, OwnedFd};

use crate::sys::shared::{AtomicU32, AtomicU64, LINE, Line, Ring, Shared, Unfit};

/// The sizes of the parts of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    ring_bytes: u32,
    entries: u32,
}

impl Layout {
    /// Describes a segment; `None` if no peer would accept it.
    pub(super) fn new(ring_bytes: u32, entries: u32) -> Option<Self> {
        let ring = (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring_bytes);
        let fits = ring && ring_bytes.is_power_of_two() && (1..=ENTRIES_MAX).contains(&entries);
        fits.then_some(Self { ring_bytes, entries })
    }

    pub(super) const fn ring_bytes(self) -> u32 {
        self.ring_bytes
    }

    /// Returns this layout with a ring of at most `ring_bytes` octets, which must be a power of two that a peer would
    /// accept.
    pub(super) fn with_ring_at_most(self, ring_bytes: u32) -> Self {
        Self { ring_bytes: self.ring_bytes.min(ring_bytes), ..self }
    }

    pub(super) const fn entries(self) -> u32 {
        self.entries
    }

    /// Returns the octets of the segment, whole pages.
    pub(super) const fn length(self) -> usize {
        (self.table() + self.entries as usize * LINE).next_multiple_of(PAGE)
    }

    const fn table(self) -> usize {
        RING + self.ring_bytes as usize
    }
}

/// One end's segment, as mapped by either end.
#[derive(Debug)]
pub(super) struct Segment {
    ring: Ring,
    layout: Layout,
}

impl Segment {
    /// Makes a segment of our own; also returns the descriptor to pass to the peer.
    pub(super) fn create(layout: Layout) -> std::io::Result<(Self, OwnedFd)> {
        let (memory, fd) = Shared::create(c"haulage-segment", layout.length())?;
        Ok((Self::new(memory, layout), fd))
    }

    /// Finds out whether [`Self::open`] would map the peer's segment, without mapping it.
    pub(super) fn check(fd: BorrowedFd<'_>, layout: Layout) -> Result<(), Unfit> {
        Shared::check(fd, layout.length())
    }

    /// Maps the peer's segment.
    pub(super) fn open(fd: BorrowedFd<'_>, layout: Layout) -> Result<Self, Unfit> {
        Ok(Self::new(Shared::open(fd, layout.length())?, layout))
    }

    /// Makes a segment of memory that is as long as the layout says.
    pub(super) fn new(memory: Shared, layout: Layout) -> Self {
        Self { ring: Ring::new(memory, RING, layout.ring_bytes as usize), layout }
    }

    pub(super) const fn layout(&self) -> Layout {
        self.layout
    }

    #[inline]
    pub(super) const fn memory(&self) -> &Shared {
        self.ring.memory()
    }

    /// Returns the line of the ring at a position, which is counted in octets and wraps around.
    #[inline]
    pub(super) fn line(&self, position: u64) -> Line<'_> {
        self.ring.line(position)
    }

    /// Returns the double word of the ring at a position.
    #[inline]
    pub(super) fn word(&self, position: u64) -> &AtomicU64 {
        #[allow(clippy::cast_possible_truncation, reason = "a line has 64 octets")]
        let place = position as usize % LINE / 8;
        &self.line(position).words()[place]
    }

    /// Returns the word with the position up to which the consumer has taken the ring, in octets.
    #[inline]
    pub(super) fn head(&self) -> &AtomicU64 {
        self.memory().u64_at(0)
    }

    /// Returns the word that says whether the consumer wants a doorbell.
    #[inline]
    pub(super) fn waits(&self) -> &AtomicU32 {
        self.memory().u32_at(2 * LINE)
    }

    /// Returns the word that says how the owner ended the connection: an [`Ended`](super::ended::Ended).
    pub(super) fn ended(&self) -> &AtomicU32 {
        self.memory().u32_at(4 * LINE)
    }

    /// Returns where entry `slot` of the table begins, if there is one.
    #[inline]
    pub(super) const fn entry(&self, slot: usize) -> Option<usize> {
        if slot < self.layout.entries as usize {
            Some(self.layout.table() + slot * LINE)
        } else {
            None
        }
    }
}

/// The offset of the ring in the segment.
pub(super) const RING: usize = 6 * LINE;
/// The shortest ring: four records of the longest kind.
pub(super) const RING_BYTES_MIN: u32 = 4 << 10;
/// The longest ring: the length of a record has 21 bits.
pub(super) const RING_BYTES_MAX: u32 = 8 << 20;
/// The most registrations at once: the slots that a handle can name.
pub const ENTRIES_MAX: u32 = 1 << 16;
const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_layouts_within_the_limits_exist() {
        for (ring, entries) in [(0, 1), (2048, 1), (5000, 1), (16 << 20, 1), (4096, 0)] {
            assert_eq!(Layout::new(ring, entries), None, "{ring} {entries}");
        }
        assert_eq!(Layout::new(4096, (1 << 16) + 1), None);
        assert_eq!(Layout::new(8 << 20, 1 << 16).map(Layout::length), Some((12 << 20) + 4096));
        // An idle connection touches one page.
        assert_eq!(Layout::new(64 << 10, 1).map(Layout::length), Some((64 << 10) + 4096));
    }

    #[test]
    fn the_table_ends_within_the_segment() {
        let (segment, _fd) = Segment::create(Layout::new(4096, 100).unwrap()).unwrap();
        let last = segment.entry(99).unwrap();
        assert!(last + LINE <= segment.memory().len());
        assert_eq!(segment.entry(100), None);
    }
}
