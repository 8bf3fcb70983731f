//! Counted arrays of the draft's XDR, which are validated once and iterate without failing.

use core::fmt;
use core::marker::PhantomData;

use super::Malformed;
use crate::xdr::{Reader, Truncated, Writer};

/// An element of an [`Array`], whose encoding has at least one octet.
pub trait Element<'a>: Sized {
    /// Parses one element and advances `r`.
    fn decode(r: &mut Reader<'a>) -> Result<Self, Malformed>;
}

impl Element<'_> for u32 {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(r.u32()?)
    }
}

/// An array, borrowed from the message it arrived in.
pub struct Array<'a, T> {
    bytes: &'a [u8],
    count: u32,
    element: PhantomData<fn() -> T>,
}

impl<'a, T: Element<'a>> Array<'a, T> {
    /// Parses an array: a count and as many elements.
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, Malformed> {
        let count = r.u32()?;
        let (start, bytes) = (r.position(), r.rest());
        // Each element takes some octets, so a count beyond the bytes ends in `Truncated` soon.
        for _ in 0..count {
            T::decode(r)?;
        }
        let length = r.position().saturating_sub(start);
        Ok(Self { bytes: bytes.get(..length).unwrap_or_default(), count, element: PhantomData })
    }

    /// Returns the elements in order.
    pub const fn iter(&self) -> Iter<'a, T> {
        Iter { r: Reader::new(self.bytes), left: self.count, element: PhantomData }
    }

    /// Returns the number of elements.
    pub const fn len(&self) -> u32 {
        self.count
    }

    /// Returns whether the array has no elements.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl<T> Default for Array<'_, T> {
    fn default() -> Self {
        Self { bytes: &[], count: 0, element: PhantomData }
    }
}

impl<T> Clone for Array<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Array<'_, T> {}

// The bytes of an array can hold live handles, so what is printed is what they mean.
impl<'a, T: Element<'a> + fmt::Debug> fmt::Debug for Array<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// An iterator over the elements of an [`Array`].
pub struct Iter<'a, T> {
    r: Reader<'a>,
    left: u32,
    element: PhantomData<fn() -> T>,
}

impl<'a, T: Element<'a>> Iterator for Iter<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        T::decode(&mut self.r).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        (left, Some(left))
    }
}

impl<'a, T: Element<'a>> ExactSizeIterator for Iter<'a, T> {}

impl<T> Clone for Iter<'_, T> {
    fn clone(&self) -> Self {
        Self { r: self.r, left: self.left, element: PhantomData }
    }
}

impl<'a, T: Element<'a> + fmt::Debug> fmt::Debug for Iter<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

/// Appends an array: a count and the elements, each encoded by `encode`.
pub(super) fn encode<T>(
    w: &mut Writer<'_>,
    elements: impl ExactSizeIterator<Item = T>,
    mut encode: impl FnMut(&mut Writer<'_>, T) -> Result<(), Truncated>,
) -> Result<(), Truncated> {
    w.u32(u32::try_from(elements.len()).map_err(|_| Truncated { at: w.position() })?)?;
    for element in elements {
        encode(w, element)?;
    }
    Ok(())
}
