//! A short list, for the data items of one Call.

use std::{iter, option, slice, vec};

/// The values that belong to the data items of one direction of a Call, in stream order: at most
/// [`CHUNKS_MAX`](crate::limits::CHUNKS_MAX). Most Calls have one item or none; such a list takes no memory of the heap.
#[derive(Clone, Debug, Default)]
pub enum Items<T> {
    /// There is no item.
    #[default]
    None,
    /// There is one.
    One(T),
    /// There are several.
    Several(Vec<T>),
}

impl<T> Items<T> {
    /// Returns the values in order.
    #[inline]
    pub const fn as_slice(&self) -> &[T] {
        match self {
            Self::None => &[],
            Self::One(one) => slice::from_ref(one),
            Self::Several(all) => all.as_slice(),
        }
    }

    /// Returns the values in order, to be changed.
    #[inline]
    pub const fn as_mut_slice(&mut self) -> &mut [T] {
        match self {
            Self::None => &mut [],
            Self::One(one) => slice::from_mut(one),
            Self::Several(all) => all.as_mut_slice(),
        }
    }

    /// Returns the number of values.
    #[inline]
    pub const fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Returns whether there are none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Returns the values in order.
    #[inline]
    pub fn iter(&self) -> slice::Iter<'_, T> {
        self.as_slice().iter()
    }

    /// Returns the first value.
    #[inline]
    pub const fn first(&self) -> Option<&T> {
        self.as_slice().first()
    }

    /// Takes the first value, and drops the others: for a Call that has one item at most.
    #[inline]
    pub fn into_first(self) -> Option<T> {
        match self {
            Self::None => None,
            Self::One(one) => Some(one),
            Self::Several(all) => first_of(all),
        }
    }

    /// Takes the values out.
    #[inline]
    #[must_use]
    pub const fn take(&mut self) -> Self {
        std::mem::replace(self, Self::None)
    }

    /// Appends a value.
    #[inline]
    pub fn push(&mut self, value: T) {
        if self.is_empty() {
            *self = Self::One(value);
        } else {
            self.push_another(value);
        }
    }

    #[cold]
    fn push_another(&mut self, value: T) {
        *self = match self.take() {
            Self::None => Self::One(value),
            Self::One(first) => Self::Several(vec![first, value]),
            Self::Several(mut all) => {
                all.push(value);
                Self::Several(all)
            }
        };
    }
}

/// Returns the first of several values.
#[cold]
fn first_of<T>(all: Vec<T>) -> Option<T> {
    all.into_iter().next()
}

impl<T> From<Option<T>> for Items<T> {
    #[inline]
    fn from(item: Option<T>) -> Self {
        item.map_or(Self::None, Self::One)
    }
}

impl<T> From<T> for Items<T> {
    #[inline]
    fn from(item: T) -> Self {
        Self::One(item)
    }
}

impl<T> FromIterator<T> for Items<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut all = Self::None;
        values.into_iter().for_each(|value| all.push(value));
        all
    }
}

impl<T> IntoIterator for Items<T> {
    type Item = T;
    type IntoIter = iter::Chain<option::IntoIter<T>, vec::IntoIter<T>>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        let (one, all) = match self {
            Self::None => (None, Vec::new()),
            Self::One(one) => (Some(one), Vec::new()),
            Self::Several(all) => (None, all),
        };
        one.into_iter().chain(all)
    }
}

impl<'a, T> IntoIterator for &'a Items<T> {
    type Item = &'a T;
    type IntoIter = slice::Iter<'a, T>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_in_order_however_many_there_are() {
        for count in 0..5 {
            let mut items: Items<u32> = (0..count).collect();
            let expected: Vec<u32> = (0..count).collect();
            assert_eq!(items.as_slice(), expected);
            assert_eq!((items.is_empty(), items.len()), (count == 0, expected.len()));
            items.as_mut_slice().iter_mut().for_each(|value| *value += 1);
            assert_eq!(items.first().copied(), (count > 0).then_some(1));
            let taken: Vec<u32> = items.take().into_iter().collect();
            assert_eq!(taken, (1..=count).collect::<Vec<_>>());
            assert!(items.is_empty());
        }
    }
}
