//! A short list that is stored in place, so that planning chunks allocates nothing.

use core::fmt;
use core::ops::Deref;

/// The most chunks in one planned list. Further data items stay in the Payload stream.
pub const CHUNKS_MAX: usize = 16;

/// A list of at most [`CHUNKS_MAX`] values.
#[derive(Clone, Copy)]
pub struct Few<T> {
    values: [T; CHUNKS_MAX],
    count: usize,
}

impl<T: Copy + Default> Few<T> {
    /// Collects all of `values`; returns `None` if there are more than [`CHUNKS_MAX`].
    pub fn collect(values: impl IntoIterator<Item = T>) -> Option<Self> {
        let mut few = Self::default();
        values.into_iter().all(|value| few.push(value)).then_some(few)
    }

    /// Appends a value. Returns whether there was room.
    pub fn push(&mut self, value: T) -> bool {
        let Some(place) = self.values.get_mut(self.count) else { return false };
        *place = value;
        self.count = self.count.saturating_add(1);
        true
    }

    /// Returns the values as a mutable slice.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        self.values.get_mut(..self.count).unwrap_or_default()
    }
}

impl<T: Copy + Default> Default for Few<T> {
    fn default() -> Self {
        Self { values: [T::default(); CHUNKS_MAX], count: 0 }
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.values.get(..self.count).unwrap_or_default()
    }
}

impl<T: PartialEq> PartialEq for Few<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for Few<T> {}

impl<T: fmt::Debug> fmt::Debug for Few<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_room_is_refused() {
        let full = Few::collect(0..CHUNKS_MAX).unwrap();
        assert!(full.iter().copied().eq(0..CHUNKS_MAX));
        assert_eq!(Few::collect(0..=CHUNKS_MAX), None);
        let mut copy = full;
        assert!(!copy.push(7));
        assert_eq!(copy, full);
        copy.as_mut_slice()[0] = 9;
        assert_ne!(copy, full);
    }
}
