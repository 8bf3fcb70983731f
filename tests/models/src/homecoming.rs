//! Blocks that two threads send home to a third.

use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::blocks::Block;
use crate::check;
use crate::returns::Returns;

/// The books of a pool with two runs of blocks, and the memory of these.
struct Pool {
    returns: Returns,
    /// The memory of two blocks in each of two runs, written by the thread that has the block.
    octets: [[UnsafeCell<()>; 2]; 2],
}

impl Pool {
    fn new() -> Arc<Self> {
        let returns = Returns::new(2).expect("memory for the books");
        Arc::new(Self { returns, octets: Default::default() })
    }

    /// Uses a block for the last time and sends it home, as a lease does that is dropped.
    fn give(&self, first: u32, index: u8) {
        self.write(Block { first, index });
        let Returns { head, marks, links } = &self.returns;
        Returns::push(head, marks, links, Block { first, index });
    }

    fn write(&self, Block { first, index }: Block) {
        self.octets[first as usize][usize::from(index)].with_mut(|_| ());
    }

    /// Takes home what has come back, and uses it for something else.
    fn collect(&self) -> Vec<(u32, u8)> {
        let mut home = Vec::new();
        let count = self.returns.drain(|block| {
            self.write(block);
            home.push((block.first, block.index));
        });
        assert_eq!(count, home.len() as u64);
        home
    }

    /// Frees the books.
    fn free(&self) {
        self.returns.head.free();
        self.returns.marks.iter().for_each(|mark| mark.free());
        self.returns.links.iter().for_each(|link| link.free());
    }
}

/// Every block comes home once, however pushes of one run and of others meet and whenever the owner
/// looks; and who used it last did so before the owner lends it again.
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

/// A block that came home can be lent to another thread and be sent home again, while its run is still being
/// taken off the stack.
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

/// Once every block is home the owner may free the books: nobody who sent one home accesses them any more.
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
