//! Messages with the same headers, as one record: the headers once, and of each message its XID and what
//! is behind its headers.
//!
//! ```text
//!  63      48 47     40 39      32 31      11 10     3 2    0
//! +----------+---------+----------+----------+--------+------+
//! | words    | second  | headers  | length   | ahead  | kind |  headers  entries ...
//! +----------+---------+----------+----------+--------+------+
//! ```
//! The XID is at the beginning of the headers, and once more behind `second` words, and zero here. Of the double
//! words of the headers those are here that are not zero, which `words` says. An entry is a double word,
//! the XID and above it the octets of what is behind the headers, and then these, in whole double words.

use haulage_proto::negotiate::Heading;

use super::{HEADER, Kind, LENGTH_AT, LENGTH_MAX};
use crate::sys::shared::LINE;

/// Octets of the longest headers, in whole double words, and those.
pub(super) const HEADERS_MAX: usize = 8 * WORDS;
const WORDS: usize = Heading::LEN_MAX.div_ceil(8);
/// Most octets of a message that joins a series.
pub(in crate::provider::shm) const JOINING_MAX: usize = 192;
/// Most octets of a message of a series, whoever made that.
pub(super) const MESSAGE_MAX: usize = HEADERS_MAX + JOINING_MAX;
/// Most octets of the ring that a series takes, so that it is given back before the ring is full.
pub(super) const SPAN_MAX: u64 = 1 << 10;

const HEADERS_AT: u32 = 32;
const SECOND_AT: u32 = 40;
const WORDS_AT: u32 = 48;

/// What the header of a series says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Octets behind the header of the record.
    length: u64,
    /// Octets of the headers of each message.
    pub(super) headers: usize,
    /// Where in them the XID is for the second time, in words.
    second: usize,
    /// Bit n: their double word n is not zero.
    words: u16,
}

impl Shape {
    /// Reads a header; `None` if there is no such series.
    #[inline]
    pub(super) fn decode(header: u64) -> Option<Self> {
        let few = |at| (header >> at & 0xff) as usize;
        #[allow(clippy::cast_possible_truncation, reason = "the bits that are meant")]
        let words = (header >> WORDS_AT) as u16;
        let length = header >> LENGTH_AT & LENGTH_MAX;
        let shape = Self { length, headers: 4 * few(HEADERS_AT), second: few(SECOND_AT), words };
        let is_one = (4..=HEADERS_MAX).contains(&shape.headers)
            && 4 * shape.second < shape.headers
            && u32::from(words) >> WORDS == 0
            && shape.first_entry() < shape.end();
        is_one.then_some(shape)
    }

    /// Returns where the first entry is, in octets from the beginning of the record.
    #[inline]
    pub(super) const fn first_entry(&self) -> u64 {
        HEADER as u64 + 8 * self.words.count_ones() as u64
    }

    /// Returns where the last entry ends, counted so.
    #[inline]
    pub(super) const fn end(&self) -> u64 {
        HEADER as u64 + self.length
    }

    /// Returns the octets of the ring that it takes.
    #[inline]
    pub(super) const fn span(&self) -> u64 {
        self.end().next_multiple_of(LINE as u64)
    }

    /// Returns which double words of the headers are not zero.
    #[inline]
    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        let mut left = self.words;
        std::iter::from_fn(move || {
            let place = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (place < WORDS).then_some(place)
        })
    }

    /// Makes headers of a message with this XID of those of the series.
    #[inline]
    pub(super) fn put_xid(&self, headers: &mut [u8; HEADERS_MAX], xid: u32) {
        let words = headers.as_chunks_mut().0;
        words[0] = xid.to_be_bytes();
        if let Some(second) = words.get_mut(self.second) {
            *second = xid.to_be_bytes();
        }
    }
}

/// An entry's double word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) xid: u32,
    /// Octets behind the headers.
    pub(super) body: usize,
}

impl Entry {
    #[inline]
    pub(super) const fn encode(self) -> u64 {
        (self.body as u64) << 32 | self.xid as u64
    }

    /// `None` if there is no such entry.
    #[inline]
    pub(super) const fn decode(word: u64) -> Option<Self> {
        let body = (word >> 32) as usize;
        #[allow(clippy::cast_possible_truncation, reason = "the half that is meant")]
        let xid = word as u32;
        if body <= JOINING_MAX { Some(Self { xid, body }) } else { None }
    }

    /// Octets of the ring it takes.
    #[inline]
    pub(super) const fn span(self) -> u64 {
        8 + ((self.body as u64 + 7) & !7)
    }
}

/// The series that a producer is at, or was at last.
#[derive(Debug)]
pub(super) struct Series {
    /// What its messages begin with.
    heading: Heading,
    /// That, without XIDs, as double words.
    pub(super) headers: [u64; WORDS],
    /// The header of the record, but for its length.
    header: u64,
    /// Whether more may join.
    pub(super) is_open: bool,
    /// Where it begins and ends.
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Series {
    pub(super) const NONE: Self = Self {
        // Until there is one with a header.
        heading: Heading::Results { credit: 0 },
        headers: [0; WORDS],
        header: 0,
        is_open: false,
        start: 0,
        end: 0,
    };

    /// Returns whether a message may join.
    #[inline]
    pub(super) fn takes(&self, heading: &Heading) -> bool {
        self.is_open && self.heading == *heading
    }

    /// Prepares a record of messages with `heading`. Returns the octets of the double words that are not zero.
    #[inline]
    pub(super) fn set_heading(&mut self, heading: &Heading) -> u64 {
        if self.heading != *heading || self.header == 0 {
            let mut octets = [0; HEADERS_MAX];
            let written = heading.put(&mut octets, 0);
            debug_assert!(written.is_some(), "none is longer");
            let (headers, _) = octets.as_chunks();
            let mut words = 0_u64;
            for (place, (to, octets)) in self.headers.iter_mut().zip(headers).enumerate() {
                *to = u64::from_ne_bytes(*octets);
                words |= u64::from(*to != 0) << place;
            }
            let few = |octets: usize| octets as u64 / 4;
            self.header = Kind::Series.code()
                | few(heading.len()) << HEADERS_AT
                | few(heading.rpc_at()) << SECOND_AT
                | words << WORDS_AT;
            self.heading = *heading;
        }
        8 * u64::from((self.header >> WORDS_AT).count_ones())
    }

    /// Returns the header of a record of so many octets.
    #[inline]
    pub(super) const fn header(&self, length: u64) -> u64 {
        self.header | length << LENGTH_AT
    }
}
