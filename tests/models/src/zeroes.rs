//! Tables whose words are those of the model checker, and so are made one by one.

/// A value that a table begins with.
///
/// # Safety
/// None here; elsewhere, all octets of a value may be zero.
pub(crate) unsafe trait Zero: Default {}

/// Makes a table.
pub(crate) fn zeroes<T: Zero>(count: usize) -> Option<Box<[T]>> {
    Some((0..count).map(|_| T::default()).collect())
}
