//! Limits on the allocations of a decoder, which its input has to pay for.

use haulage::sys::alloc::octets_allocated_on_this_thread;

/// Runs `decode` on an input of `length` octets.
///
/// [`haulage::sys::alloc::Counting`] counts the allocations: in a program that does not install it, this checks
/// nothing.
///
/// # Panics
/// If it allocates more than a small constant times `length`.
pub fn bounded<T>(length: usize, decode: impl FnOnce() -> T) -> T {
    within(PER_OCTET * length as u64 + FIXED, decode)
}

/// Runs `decode`, which may allocate `most` octets.
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
