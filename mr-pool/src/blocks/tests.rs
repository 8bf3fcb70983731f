use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::tests::Rng;

/// What is lent, beside the allocator's own books: end and block by start, and counts.
#[derive(Default)]
struct Record {
    blocks: BTreeMap<usize, (usize, Block)>,
    counts: BTreeSet<usize>,
    limit: usize,
}

impl Record {
    fn lend(&mut self, start: usize, length: usize, block: Block) {
        let end = start + length;
        assert!(end <= self.limit, "{end} is beyond the region");
        let before = self.blocks.range(..end).next_back();
        assert!(before.is_none_or(|(_, (before, _))| *before <= start), "octets lent twice");
        self.blocks.insert(start, (end, block));
    }

    fn pick(&self, rng: &mut Rng) -> Option<(usize, Block)> {
        let from = rng.below(self.limit);
        let mut order = self.blocks.range(from..).chain(self.blocks.range(..from));
        order.next().map(|(start, (_, block))| (*start, *block))
    }
}

#[test]
fn lent_blocks_never_overlap_and_free_memory_becomes_one_run_again() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let pages = 1 + rng.length(11);
        let mut blocks = Blocks::new(u32::try_from(pages).unwrap()).unwrap();
        let mut record = Record { limit: pages * PAGE, ..Record::default() };
        for _ in 0..4000 {
            // Filling and draining by turns.
            if rng.below(5) < 2 + rng.below(3) {
                let length = rng.length(20);
                let Some(grant) = blocks.take(length) else { continue };
                assert!(grant.capacity >= length);
                record.lend(grant.offset, grant.capacity, grant.block);
                let count = blocks.count_index(grant.block);
                assert!(count < Blocks::counts(u32::try_from(pages).unwrap()));
                assert!(record.counts.insert(count), "a count was lent twice");
            } else if let Some((start, block)) = record.pick(&mut rng) {
                assert!(record.counts.remove(&blocks.count_index(block)), "it had another count");
                record.blocks.remove(&start);
                blocks.give(block);
            }
            let lent: usize = record.blocks.iter().map(|(start, (end, _))| end - start).sum();
            assert_eq!(blocks.leased_bytes(), lent);
            assert!(lent + blocks.free_bytes() <= pages * PAGE);
        }
        record.blocks.into_values().for_each(|(_, block)| blocks.give(block));
        assert!(blocks.all_home());
        assert_eq!((blocks.free_bytes(), blocks.largest_run()), (pages * PAGE, pages * PAGE));
    }
}

#[test]
fn counts_are_each_blocks_own() {
    for length in [
        1, 64, 100, 127, 128, 500, 1024, 3000, 4032, 4095, 4096, 4097, 5000, 20_000, 65_536, 65_537,
    ] {
        let mut blocks = Blocks::new(1024).unwrap();
        let lent: Vec<_> = std::iter::from_fn(|| blocks.take(length)).collect();
        let counts: BTreeSet<_> =
            lent.iter().map(|grant| blocks.count_index(grant.block)).collect();
        assert_eq!(counts.len(), lent.len());
        assert!(counts.last().is_some_and(|last| *last < Blocks::counts(1024)));
        lent.iter().for_each(|grant| blocks.give(grant.block));
        assert_eq!(blocks.largest_run(), 1024 * PAGE);
    }
}

#[test]
fn an_empty_slab_gives_its_run_back() {
    let mut blocks = Blocks::new(64).unwrap();
    let lent: Vec<_> = (0..200).map(|_| blocks.take(64).unwrap()).collect();
    assert_eq!(blocks.free_bytes(), 60 * PAGE); // 64 blocks a page
    lent.iter().skip(64).for_each(|grant| blocks.give(grant.block));
    assert_eq!(blocks.free_bytes(), 63 * PAGE);
    lent.iter().take(64).for_each(|grant| blocks.give(grant.block));
    assert_eq!((blocks.free_bytes(), blocks.largest_run()), (64 * PAGE, 64 * PAGE));
}

#[test]
fn an_empty_slab_serves_its_class_again_and_keeps_its_pages_from_nobody() {
    for length in [64, 2048, 4096, 5000, 65_536] {
        let mut blocks = Blocks::new(64).unwrap();
        for wanted in [length, 64 * PAGE, length, 100, 40_000] {
            let grant = blocks.take(length).unwrap();
            blocks.give(grant.block);
            let free = blocks.free_bytes();
            let again = blocks.take(wanted).unwrap_or_else(|| panic!("{length} {wanted}"));
            assert!(wanted != length || again.block == grant.block);
            assert_eq!(free, 64 * PAGE);
            blocks.give(again.block);
        }
        assert_eq!((blocks.free_bytes(), blocks.largest_run()), (64 * PAGE, 64 * PAGE));
    }
}

#[test]
fn a_slab_that_was_full_is_used_before_a_new_one() {
    let mut blocks = Blocks::new(64).unwrap();
    let lent: Vec<_> = (0..65).map(|_| blocks.take(64).unwrap()).collect();
    let second = lent[64].block.first;
    blocks.give(lent[10].block);
    assert_eq!(blocks.take(64).unwrap().block, lent[10].block);
    assert_eq!(blocks.take(64).unwrap().block.first, second);
    assert_eq!(blocks.free_bytes(), 62 * PAGE);
}

#[test]
fn a_run_of_all_free_pages_is_found_whatever_its_length() {
    for pages in 17..2000 {
        let mut blocks = Blocks::new(pages).unwrap();
        let grant = blocks.take(pages as usize * PAGE).unwrap();
        assert_eq!(blocks.free_bytes(), 0);
        blocks.give(grant.block);
    }
}

#[test]
#[should_panic(expected = "a block comes home once")]
fn a_block_given_twice_is_noticed() {
    let mut blocks = Blocks::new(64).unwrap();
    let (one, _other) = (blocks.take(64).unwrap(), blocks.take(64).unwrap());
    blocks.give(one.block);
    blocks.give(one.block);
}
