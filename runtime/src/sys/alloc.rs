//! Counting heap allocations, to prove that a running core makes none.
//!
//! # Normal operation
//! A program installs [`Counting`] as its global allocator. Every allocation adds one to a counter of the calling
//! thread, and its size to another; a test or a core reads them before and after the work in question.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with a count of allocations per thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting;

/// Returns how many allocations this thread has made, growing reallocations included.
///
/// Stays zero unless [`Counting`] is the program's global allocator.
pub fn allocations_on_this_thread() -> u64 {
    ALLOCATIONS.get()
}

/// Returns how many octets this thread has allocated, including those freed since. Growing reallocations count by how
/// much they grow.
///
/// Stays zero unless [`Counting`] is the program's global allocator.
pub fn octets_allocated_on_this_thread() -> u64 {
    OCTETS.get()
}

// SAFETY: every method passes its arguments on to `System` unchanged and returns what `System`
// returned, so `System`'s own contract carries over. Counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller upholds `GlobalAlloc::alloc`'s contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller upholds `GlobalAlloc::alloc_zeroed`'s contract, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size.saturating_sub(layout.size()));
        // SAFETY: the caller upholds `GlobalAlloc::realloc`'s contract, which is the same; `block`
        // came from `System`, because every block of ours does.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds `GlobalAlloc::dealloc`'s contract, which is the same; `block`
        // came from `System`, because every block of ours does.
        unsafe { System.dealloc(block, layout) }
    }
}

thread_local! {
    /// Initialized at compile time and without a destructor: usable while a thread starts and ends.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static OCTETS: Cell<u64> = const { Cell::new(0) };
}

fn count(octets: usize) {
    ALLOCATIONS.set(ALLOCATIONS.get().wrapping_add(1));
    OCTETS.set(OCTETS.get().wrapping_add(octets as u64));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    #[test]
    fn counts_each_allocation_of_this_thread_alone() {
        let elsewhere = std::thread::scope(|scope| {
            let (before, octets) =
                (allocations_on_this_thread(), octets_allocated_on_this_thread());
            let boxed = std::hint::black_box(Box::new(1_u64));
            assert_eq!(allocations_on_this_thread(), before + 1);
            drop(boxed);
            assert_eq!(allocations_on_this_thread(), before + 1, "freeing is not allocating");
            let mut bytes = std::hint::black_box(Vec::<u8>::with_capacity(8));
            bytes.reserve_exact(4096);
            assert_eq!(allocations_on_this_thread(), before + 3, "growing is");
            let zeroed = std::hint::black_box(vec![0_u8; 64]);
            assert_eq!((allocations_on_this_thread(), zeroed.len()), (before + 4, 64));
            assert_eq!(octets_allocated_on_this_thread(), octets + 8 + 4096 + 64);

            let other = scope.spawn(|| {
                let before = allocations_on_this_thread();
                drop(std::hint::black_box(vec![1_u8; 32]));
                allocations_on_this_thread() - before
            });
            other.join().unwrap()
        });
        assert_eq!(elsewhere, 1);
    }
}
