//! Size classes: eight per doubling, so that a block is less than an eighth longer than requested.

use crate::size::PAGE;

/// The length of the longest block in a slab, in octets.
pub(crate) const CLASS_MAX: usize = 64 << 10;

/// The number of size classes: eight for each doubling from 64 octets to [`CLASS_MAX`], and the
/// last one.
pub(super) const CLASSES: usize = 81;

/// The most blocks in a slab.
pub(crate) const SLAB_BLOCKS_MAX: usize = 64;

/// Returns the bin that holds `n`, where eight bins cover a doubling.
///
/// Bins 0 to 8 hold one number each.
pub(super) const fn bin_of(n: u32) -> usize {
    if n < 8 {
        return n as usize;
    }
    let shift = n.ilog2() - 3;
    (shift * 8 + (n >> shift)) as usize
}

/// Returns the least number in a bin.
#[allow(clippy::cast_possible_truncation, reason = "there are fewer than 256 bins")]
pub(super) const fn bin_start(bin: usize) -> u32 {
    if bin < 8 {
        return bin as u32;
    }
    (8 + bin as u32 % 8) << (bin as u32 / 8 - 1)
}

/// Returns the first bin in which every number is at least `n`.
pub(super) const fn bin_above(n: u32) -> usize {
    let bin = bin_of(n);
    if bin_start(bin) == n { bin } else { bin + 1 }
}

/// A size class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(u8);

impl Class {
    /// Returns the least class whose blocks hold `length` octets, or `None` if no class does.
    pub(super) fn of(length: usize) -> Option<Self> {
        if length > CLASS_MAX {
            return None;
        }
        let units = u32::try_from(length.div_ceil(UNIT)).ok()?.max(UNITS_MIN);
        Some(Self::nth(bin_above(units) - bin_of(UNITS_MIN)))
    }

    /// Returns the class with this number.
    #[allow(clippy::cast_possible_truncation, reason = "there are 81 classes")]
    pub(super) const fn nth(number: usize) -> Self {
        assert!(number < CLASSES);
        Self(number as u8)
    }

    /// Returns the number of the class, from 0.
    pub(super) const fn number(self) -> usize {
        self.0 as usize
    }

    /// Returns the length of the blocks in octets.
    pub(super) const fn size(self) -> usize {
        bin_start(self.number() + bin_of(UNITS_MIN)) as usize * UNIT
    }

    /// Returns the number of pages in a slab of the class.
    pub(super) const fn pages(self) -> u32 {
        SHAPES[self.number()].pages as u32
    }

    /// Returns the number of blocks in a slab of the class.
    pub(super) const fn blocks(self) -> u32 {
        SHAPES[self.number()].blocks as u32
    }

    /// Returns the number of pages that a block of the class takes outside of slabs.
    #[allow(clippy::cast_possible_truncation, reason = "at most 16 pages")]
    pub(super) const fn pages_alone(self) -> u32 {
        self.size().div_ceil(PAGE) as u32
    }

    /// Returns whether a full slab takes fewer pages than as many blocks outside of slabs.
    pub(super) const fn saves_pages(self) -> bool {
        self.pages() < self.blocks() * self.pages_alone()
    }

    /// Returns the bitmap of a slab whose blocks are all free.
    pub(super) const fn all_free(self) -> u64 {
        u64::MAX >> (64 - SHAPES[self.number()].blocks)
    }

    /// Returns the binary logarithm of the number of counts per page for blocks of this class, if they are smaller than
    /// a page: enough for the blocks of every class of the same doubling.
    pub(super) fn counts_shift(self) -> Option<u32> {
        // There are eight classes in each doubling.
        DOUBLINGS_BELOW_PAGE.checked_sub(self.0 as u32 / 8).filter(|shift| *shift > 0)
    }
}

/// The layout of a class's slabs.
#[derive(Clone, Copy)]
struct Shape {
    pages: u8,
    blocks: u8,
}

const SHAPES: [Shape; CLASSES] = {
    let mut shapes = [Shape { pages: 0, blocks: 0 }; CLASSES];
    let mut number = 0;
    while number < CLASSES {
        shapes[number] = shape(Class::nth(number));
        number += 1;
    }
    shapes
};

/// Returns the shortest slab of at least four blocks that wastes at most a sixteenth of its octets,
/// or else the slab that wastes the least.
#[allow(clippy::cast_possible_truncation, reason = "a slab has at most 64 pages and 64 blocks")]
const fn shape(class: Class) -> Shape {
    let size = class.size();
    let mut best = Shape { pages: 0, blocks: 0 };
    let mut best_waste = usize::MAX;
    let mut pages = 1;
    while pages <= SLAB_PAGES_MAX && best_waste > PER_MILLE / 16 {
        let length = pages * PAGE;
        let fit = length / size;
        let blocks = if fit < SLAB_BLOCKS_MAX { fit } else { SLAB_BLOCKS_MAX };
        let waste = (length - blocks * size) * PER_MILLE / length;
        if blocks >= BLOCKS_MIN && waste < best_waste {
            best = Shape { pages: pages as u8, blocks: blocks as u8 };
            best_waste = waste;
        }
        pages += 1;
    }
    best
}

/// The number of doublings from the smallest class to a page.
const DOUBLINGS_BELOW_PAGE: u32 = PAGE.ilog2() - Class::nth(0).size().ilog2();
/// The granularity of block lengths, in octets.
const UNIT: usize = 8;
/// The length of the smallest class, in units.
const UNITS_MIN: u32 = 8;
const SLAB_PAGES_MAX: usize = 64;
const BLOCKS_MIN: usize = 4;
const PER_MILLE: usize = 1000;

const _: () = assert!(Class::nth(0).size() == 64 && Class::nth(CLASSES - 1).size() == CLASS_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_ordered_and_hold_what_they_say() {
        for n in (0..5000).chain((0..32).map(|s| 1 << s)).chain([u32::MAX]) {
            let bin = bin_of(n);
            assert!(bin_start(bin) <= n, "{n}");
            if n < u32::MAX {
                assert!(bin_start(bin_above(n)) >= n, "{n}");
                assert!(bin_of(n + 1) == bin || bin_start(bin_of(n + 1)) == n + 1, "{n}");
            }
        }
    }

    #[test]
    fn each_class_is_the_least_that_fits_and_the_next_is_at_most_15_percent_longer() {
        for length in 0..=CLASS_MAX {
            let class = Class::of(length).unwrap();
            assert!(class.size() >= length);
            assert!(class.number() == 0 || Class::nth(class.number() - 1).size() < length);
        }
        for number in 1..CLASSES {
            let (shorter, longer) = (Class::nth(number - 1).size(), Class::nth(number).size());
            assert!(shorter < longer && longer * 100 <= shorter * 115, "{shorter} {longer}");
        }
        assert_eq!(Class::of(CLASS_MAX + 1), None);
    }

    #[test]
    fn slabs_waste_little_and_have_counts_for_all_their_blocks() {
        for class in (0..CLASSES).map(Class::nth) {
            let Shape { pages, blocks } = SHAPES[class.number()];
            let (length, blocks) = (usize::from(pages) * PAGE, usize::from(blocks));
            let used = blocks * class.size();
            assert!((4..=64).contains(&blocks));
            assert!(class.pages() <= class.blocks() * class.pages_alone(), "{}", class.size());
            // The page counts of slabs and lone blocks start a bin each, so every run of that bin or a longer one
            // suffices.
            for pages in [class.pages(), class.pages_alone()] {
                assert_eq!(bin_start(bin_of(pages)), pages, "{}", class.size());
            }
            // All lengths of a class take as many pages in a run of their own.
            let least = class.0.checked_sub(1).map_or(1, |shorter| Class(shorter).size() + 1);
            assert_eq!(least.div_ceil(PAGE), class.size().div_ceil(PAGE));
            assert!(
                (length - used) * 100 <= length * 8,
                "{} wastes {}",
                class.size(),
                length - used
            );
            let counts = class.counts_shift().map(|shift| usize::from(pages) << shift);
            assert!(counts.is_none_or(|counts| counts >= blocks), "{}", class.size());
            assert_eq!(counts.is_none(), class.size() >= PAGE);
            assert_eq!(class.all_free().count_ones() as usize, blocks);
        }
    }
}
