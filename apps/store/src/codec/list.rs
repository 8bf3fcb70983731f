//! XDR linked lists: a true boolean before each entry, and a false one at the end.
//!
//! A decoded list borrows its bytes, which decoding has validated, so that iteration cannot fail.

use std::marker::PhantomData;

use haulage_proto::chunk::PayloadReader;
use haulage_proto::xdr::{Truncated, Writer};

use super::{Malformed, Wire};

/// An encoded list whose entries are validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List<'a, E> {
    /// The entries, and the boolean that ends them.
    bytes: &'a [u8],
    entries: PhantomData<E>,
}

impl<'a, E> List<'a, E> {
    /// The list without entries.
    pub const EMPTY: Self = Self { bytes: &[0; END_LEN], entries: PhantomData };

    /// Wraps the octets of a list that was finished before, with the same type of entries.
    pub(crate) const fn rewrap(bytes: &'a [u8]) -> Self {
        Self { bytes, entries: PhantomData }
    }

    /// Returns the length on the wire, in octets.
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

/// A writer of a list into memory of bounded size.
#[derive(Debug)]
pub struct ListWriter<'m> {
    memory: &'m mut [u8],
    at: usize,
    /// Octets that the list may have behind its first entry.
    room: usize,
}

impl<'m> ListWriter<'m> {
    /// Starts a list that must fit `memory`, its end included.
    pub const fn new(memory: &'m mut [u8]) -> Self {
        let room = memory.len();
        Self { memory, at: 0, room }
    }

    /// Has the list end at `room` octets, its end included, unless its first entry takes more.
    #[must_use]
    pub fn ending_at(self, room: usize) -> Self {
        Self { room: self.room.min(room), ..self }
    }

    /// Appends an entry. Returns whether it fit; if it did not, the list is unchanged.
    pub fn push<'e>(&mut self, entry: &impl Wire<'e>) -> bool {
        let end = if self.at == 0 { self.memory.len() } else { self.room };
        let end = end.saturating_sub(END_LEN);
        let room = self.memory.get_mut(self.at..end).unwrap_or_default();
        let mut w = Writer::new(room);
        let fits = true.encode(&mut w).and_then(|()| entry.encode(&mut w)).is_ok();
        if fits {
            self.at += w.position();
        }
        fits
    }

    /// Returns the octets of memory for the list.
    pub const fn capacity(&self) -> usize {
        self.memory.len()
    }

    /// Ends the list. All pushed entries must be of type `E`.
    pub fn finish<E>(self) -> List<'m, E> {
        let Self { memory, at, .. } = self;
        match memory.get_mut(at..at + END_LEN) {
            Some(end) => end.fill(0),
            // Memory too small for the end holds no entries either.
            None => return List::EMPTY,
        }
        let memory: &'m [u8] = memory;
        List { bytes: &memory[..at + END_LEN], entries: PhantomData }
    }
}

/// Length of the boolean that ends a list, in octets.
pub(crate) const END_LEN: usize = 4;
