//! Threads that add and drop references to a block that several cores read.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::blocks::Block;
use crate::check;
use crate::references;
use crate::returns::Returns;
use crate::sync::AtomicU32;

/// A block that is out, and the pool that it goes home to.
struct Out {
    references: AtomicU32,
    returns: Returns,
    /// The memory of the block: who has a reference reads it, and the owner writes it once the block is home.
    octets: UnsafeCell<()>,
}

/// A reference to the block, whose last drop gives it home.
struct Reference(Arc<Out>);

impl Reference {
    /// Lends the block.
    fn first() -> Self {
        let returns = Returns::new(1).expect("memory for the books");
        Self(Arc::new(Out { references: AtomicU32::new(1), returns, octets: UnsafeCell::new(()) }))
    }

    fn more(&self) -> Self {
        references::add(&self.0.references);
        Self(Arc::clone(&self.0))
    }

    fn read(&self) {
        self.0.octets.with(|_| ());
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        let Out { references, returns: Returns { head, marks, links }, .. } = &*self.0;
        if references::remove(references) {
            Returns::push(head, marks, links, BLOCK);
        }
    }
}

impl Out {
    /// Takes the block if it is home, writes to it, and frees its count. Returns how often it came.
    fn collect(&self) -> u64 {
        self.returns.drain(|block| {
            assert_eq!(block, BLOCK);
            self.octets.with_mut(|_| ());
            self.references.free();
        })
    }
}

/// Two cores add references to a common block, read it and drop all of theirs, while its owner drops the first: the block
/// comes home once, once all have read, and nobody accesses its count afterwards.
pub fn a_common_block_comes_home_after_all_reads() {
    check(|| {
        let first = Reference::first();
        let out = Arc::clone(&first.0);
        let others = [first.more(), first.more()].map(|reference| {
            thread::spawn(move || {
                let another = reference.more();
                drop(reference);
                another.read();
            })
        });
        drop(first);
        let mut home = out.collect();
        for other in others {
            other.join().expect("it drops its references");
        }
        home += out.collect();
        assert_eq!(home, 1);
    });
}

const BLOCK: Block = Block { first: 0, index: 0 };
