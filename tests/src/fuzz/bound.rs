//! What a decoder may allocate: nothing that its input does not pay for.

use haulage::sys::alloc::octets_allocated_on_this_thread;

/// Runs `decode` on an input of `length` octets.
///
/// The count is that of [`haulage::sys::alloc::Counting`]; a program that does not install it proves
/// nothing here.
///
/// # Panics
/// If it allocates more than a small constant times the input.
pub fn bounded<T>(length: usize, decode: impl FnOnce() -> T) -> T {
    within(PER_OCTET * length as u64 + FIXED, decode)
}

/// Runs `decode`, which may allocate so many octets.
///
/// # Panics
/// If it allocates more.
pub fn within<T>(most: u64, decode: impl FnOnce() -> T) -> T {
    let before = octets_allocated_on_this_thread();
    let decoded = decode();
    let used = octets_allocated_on_this_thread() - before;
    assert!(used <= most, "{used} octets allocated where {most} are paid for");
    decoded
}

/// Octets allocated for each octet of the input: a copy, and a vector that doubles as it grows.
pub const PER_OCTET: u64 = 4;
/// Octets allocated however short the input is.
pub const FIXED: u64 = 1024;
