//! The large tables of a pool's bookkeeping, for which there may be no memory.

/// Makes a table of values that `make` returns. Returns `None` if there is no memory for it.
pub(crate) fn table<T>(length: usize, make: impl FnMut() -> T) -> Option<Box<[T]>> {
    let mut table = Vec::new();
    table.try_reserve_exact(length).ok()?;
    table.resize_with(length, make);
    Some(table.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_for_which_there_is_no_room_is_not_made() {
        assert_eq!(table(3, || 7_u64).as_deref(), Some(&[7; 3][..]));
        assert_eq!(table(isize::MAX as usize / 8, || 7_u64), None, "more than there are addresses");
        assert_eq!(table(usize::MAX, || 7_u64), None, "its octets are no number");
    }
}
