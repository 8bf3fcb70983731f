//! Two threads that return blocks to a third.

use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::blocks::Block;
use crate::check;
use crate::returns::Returns;

/// The returns of a pool with two runs of two blocks, and the memory of the blocks.
struct Pool {
    returns: Returns,
    /// The memory of each block, written by the thread that has the block.
    octets: [[UnsafeCell<()>; 2]; 2],
}

impl Pool {
    fn new() -> Arc<Self> {
        let returns = Returns::new(2).expect("memory for the books");
        Arc::new(Self { returns, octets: Default::default() })
    }

    /// Writes to a block and returns it, as the drop of a lease does.
    fn give(&self, first: u32, index: u8) {
        self.write(Block { first, index });
        let Returns { head, marks, links } = &self.returns;
        Returns::push(head, marks, links, Block { first, index });
    }

    fn write(&self, Block { first, index }: Block) {
        self.octets[first as usize][usize::from(index)].with_mut(|_| ());
    }

    /// Takes the returned blocks, and writes to them.
    fn collect(&self) -> Vec<(u32, u8)> {
        let mut home = Vec::new();
        let count = self.returns.drain(|block| {
            self.write(block);
            home.push((block.first, block.index));
        });
        assert_eq!(count, home.len() as u64);
        home
    }

    /// Frees the words of the returns.
    fn free(&self) {
        self.returns.head.free();
        self.returns.marks.iter().for_each(|mark| mark.free());
        self.returns.links.iter().for_each(|link| link.free());
    }
}

/// Every block is returned once, however pushes of one run and of others interleave and whenever the owner drains them;
/// and the last use of a block happens before the owner lends it again.
pub fn every_block_comes_home_once() {
    check(|| {
        let pool = Pool::new();
        let others = [[(0, 0), (1, 0)], [(0, 1), (1, 1)]].map(|blocks| {
            let pool = pool.clone();
            thread::spawn(move || blocks.map(|(first, index)| pool.give(first, index)))
        });
        let mut home = pool.collect();
        for other in others {
            other.join().expect("it gave its blocks");
        }
        home.extend(pool.collect());
        home.sort_unstable();
        assert_eq!(home, [(0, 0), (0, 1), (1, 0), (1, 1)]);
    });
}

/// A returned block can be lent to another thread and be returned again, while its run is still being taken off the
/// stack.
pub fn a_block_can_be_sent_home_again_at_once() {
    check(|| {
        let pool = Pool::new();
        let other = {
            let pool = pool.clone();
            thread::spawn(move || {
                pool.give(0, 0);
                pool.give(0, 1);
                pool.give(1, 0);
            })
        };
        let mut home = Vec::new();
        while home.len() < 3 {
            home.extend(pool.collect());
            thread::yield_now();
        }
        other.join().expect("it gave its blocks");
        home.sort_unstable();
        assert_eq!(home, [(0, 0), (0, 1), (1, 0)]);
        assert_eq!(pool.returns.head.load(Ordering::Relaxed), u32::MAX, "nothing is left");
    });
}

/// Once every block is returned, the owner may free the returns: no thread that pushed a block accesses them any more.
pub fn the_books_are_freed_with_every_block_home() {
    check(|| {
        let pool = Pool::new();
        for block in [(0, 0), (0, 1)] {
            let pool = pool.clone();
            thread::spawn(move || pool.give(block.0, block.1));
        }
        let mut count = 0;
        while count < 2 {
            count += pool.collect().len();
            thread::yield_now();
        }
        pool.free();
    });
}
