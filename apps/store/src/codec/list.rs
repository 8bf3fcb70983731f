//! Linked lists as XDR writes them: each entry behind a boolean that says that there is one more.
//!
//! A decoded list is the bytes it came in, known to be good: iterating over it cannot fail.

use std::marker::PhantomData;

use haulage_proto::chunk::PayloadReader;
use haulage_proto::xdr::{Truncated, Writer};

use super::{Malformed, Wire};

/// A list of good entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List<'a, E> {
    /// The entries, and the boolean that ends them.
    bytes: &'a [u8],
    entries: PhantomData<E>,
}

impl<'a, E> List<'a, E> {
    /// The list without entries.
    pub const EMPTY: Self = Self { bytes: &[0; END_LEN], entries: PhantomData };

    /// Takes the octets of a list of the same entries that was finished before.
    pub(crate) const fn rewrap(bytes: &'a [u8]) -> Self {
        Self { bytes, entries: PhantomData }
    }

    /// Returns the octets on the wire.
    pub const fn wire_len(&self) -> usize {
        self.bytes.len()
    }
}

impl<'a, E: Wire<'a>> List<'a, E> {
    /// Returns the entries.
    pub fn iter(&self) -> impl Iterator<Item = E> + use<'a, E> {
        let mut r = PayloadReader::call(self.bytes, 0, None);
        std::iter::from_fn(move || Option::<E>::decode(&mut r).ok().flatten())
    }
}

impl<'a, E: Wire<'a>> Wire<'a> for List<'a, E> {
    fn decode(r: &mut PayloadReader<'a>) -> Result<Self, Malformed> {
        let start = r.rest();
        while Option::<E>::decode(r)?.is_some() {}
        let length = start.len() - r.rest().len();
        Ok(Self { bytes: &start[..length], entries: PhantomData })
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        w.put(self.bytes)
    }
}

/// Writes a list into memory of bounded size.
#[derive(Debug)]
pub struct ListWriter<'m> {
    memory: &'m mut [u8],
    at: usize,
}

impl<'m> ListWriter<'m> {
    /// Starts a list that takes at most all of `memory`, its end included.
    pub const fn new(memory: &'m mut [u8]) -> Self {
        Self { memory, at: 0 }
    }

    /// Appends an entry. Returns whether it fit; if not, nothing changed that counts.
    pub fn push<'e>(&mut self, entry: &impl Wire<'e>) -> bool {
        let end = self.memory.len().saturating_sub(END_LEN);
        let room = self.memory.get_mut(self.at..end).unwrap_or_default();
        let mut w = Writer::new(room);
        let fits = true.encode(&mut w).and_then(|()| entry.encode(&mut w)).is_ok();
        if fits {
            self.at += w.position();
        }
        fits
    }

    /// Ends the list. Its entries are those that were pushed, which must all be of type `E`.
    pub fn finish<E>(self) -> List<'m, E> {
        let Self { memory, at } = self;
        match memory.get_mut(at..at + END_LEN) {
            Some(end) => end.fill(0),
            // Memory for not even the end has no entries either.
            None => return List::EMPTY,
        }
        let memory: &'m [u8] = memory;
        List { bytes: &memory[..at + END_LEN], entries: PhantomData }
    }
}

/// Octets of the boolean that ends a list.
pub(crate) const END_LEN: usize = 4;
