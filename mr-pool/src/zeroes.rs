//! Large tables of zeroes, which take no memory before they are used.

use std::alloc::{self, Layout};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A value of which zeroes are one.
///
/// # Safety
/// All octets of a value may be zero.
pub unsafe trait Zero {}

// SAFETY: it is a number, of which zero is one.
unsafe impl Zero for AtomicU32 {}
// SAFETY: it is a number, of which zero is one.
unsafe impl Zero for AtomicU64 {}

/// Allocates values of zeroes, as zeroed memory that the system provides on first use. Returns `None` if there is no
/// memory, or if `length` is zero.
pub fn zeroes<T: Zero>(length: usize) -> Option<Box<[T]>> {
    let layout = Layout::array::<T>(length).ok().filter(|layout| layout.size() > 0)?;
    // SAFETY: the layout is not of size zero.
    let start = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?.cast::<T>();
    let values = NonNull::slice_from_raw_parts(start, length);
    // SAFETY: the memory was just allocated by the allocator of boxes, with the layout of a slice of `length`
    // values, and nobody else has it. Zeroes are such a value (`Zero`).
    Some(unsafe { Box::from_raw(values.as_ptr()) })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn values_begin_at_zero_or_are_not_made() {
        let values = zeroes::<AtomicU64>(1000).unwrap();
        assert!(
            values.len() == 1000 && values.iter().all(|value| value.load(Ordering::Relaxed) == 0)
        );
        // An optimizer may leave out an allocation that nobody sees.
        let zeroes = |length| std::hint::black_box(zeroes::<AtomicU64>(length));
        assert!(zeroes(isize::MAX as usize / 8).is_none(), "more than there are addresses");
        assert!(zeroes(usize::MAX).is_none(), "its octets are no number");
        assert!(zeroes(0).is_none());
    }
}
