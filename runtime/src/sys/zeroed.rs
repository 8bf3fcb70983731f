//! Large tables of zeroes, which take no memory before they are used.

use std::alloc::{self, Layout};
use std::ptr::NonNull;

/// A value of which zeroes are one.
///
/// # Safety
/// All octets of a value may be zero.
pub(crate) unsafe trait Zero {}

/// Allocates values of zeroes, as zeroed memory that the system provides on first use. Returns `None` if there is no memory for
/// them.
pub(crate) fn zeroed<T: Zero>(count: usize) -> Option<Box<[T]>> {
    let layout = Layout::array::<T>(count).ok()?;
    if layout.size() == 0 {
        return Some(Box::default());
    }
    // SAFETY: the layout is not of size zero.
    let start = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?;
    let values = NonNull::slice_from_raw_parts(start.cast::<T>(), count);
    // SAFETY: the memory was just allocated by the allocator of boxes, with the layout of a slice of `count` values, and
    // nobody else has it. Zeroes are such a value (`Zero`).
    Some(unsafe { Box::from_raw(values.as_ptr()) })
}
