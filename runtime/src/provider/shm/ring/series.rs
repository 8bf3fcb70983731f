//! Messages with one heading, as one record: the heading once, and of each message its XID and what is behind
//! the heading.
//!
//! ```text
//!  63        32 31      11 10     3 2    0
//! +------------+----------+--------+------+
//! | credit     | length   | ahead  | kind |  heading  entries ...
//! +------------+----------+--------+------+
//! ```
//! The heading is a double word that says which it is: [`RESULTS`]; or [`CALL`], with the procedure above it, and
//! then another, the program and above it the version. An entry is a double word, the XID and above it
//! the octets of what is behind the heading, and then these, in whole double words.

use haulage_proto::negotiate::Heading;

use super::{HEADER, Kind, LENGTH_AT, LENGTH_MAX};
use crate::sys::shared::{LINE, LINE_OCTETS};

/// Most octets of a message that joins a series.
pub(in crate::provider::shm) const JOINING_MAX: usize = 192;
/// Most octets of a message of a series, whoever made that.
pub(super) const MESSAGE_MAX: usize = Heading::LEN_MAX + JOINING_MAX;
/// Most octets of the ring that a series takes, so that it is given back before the ring is full.
pub(super) const SPAN_MAX: u64 = 1 << 10;

/// Headings, by the lower half of their first double word.
const RESULTS: u32 = 1;
const CALL: u32 = 2;

/// A heading as it is in a record: in a field of the header, and in so many double words behind that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Encoded {
    credit: u32,
    words: [u64; 2],
    count: usize,
}

impl Encoded {
    #[inline]
    pub(super) const fn of(heading: &Heading, credit: u32) -> Self {
        match *heading {
            Heading::Results => Self { credit, words: [RESULTS as u64, 0], count: 1 },
            Heading::Call([program, version, procedure]) => {
                Self { credit, words: [word(CALL, procedure), word(program, version)], count: 2 }
            }
        }
    }

    /// Returns it as double words,
    #[inline]
    pub(super) fn words(&self) -> &[u64] {
        &self.words[..self.count]
    }

    /// and how many octets they are.
    #[inline]
    pub(super) const fn span(&self) -> u64 {
        8 * self.count as u64
    }

    /// Returns a line of it and an entry, and where there is room in that for what is behind them.
    #[inline]
    pub(super) const fn line(&self, entry: Entry) -> ([u64; LINE_OCTETS / 8], usize) {
        let (mut line, entry) = ([0; LINE_OCTETS / 8], entry.encode());
        line[0] = self.words[0];
        (line[1], line[2]) = if self.count > 1 { (self.words[1], entry) } else { (entry, 0) };
        (line, self.count + 1)
    }

    /// Returns the header of a record of so many octets.
    #[inline]
    pub(super) const fn header(&self, length: u64) -> u64 {
        (self.credit as u64) << 32 | length << LENGTH_AT | Kind::Series.code()
    }
}

/// A series that a consumer is at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) heading: Heading,
    pub(super) credit: u32,
    /// Octets from the beginning of the record to the first entry, and to the end of the last.
    pub(super) entries: u64,
    pub(super) end: u64,
}

impl Shape {
    /// Reads a header, and the double words behind it with `at`; `None` if there is no such series.
    #[inline]
    pub(super) fn decode(header: u64, at: impl Fn(u64) -> u64) -> Option<Self> {
        let (credit, _) = halves(header);
        let (above, which) = halves(at(HEADER as u64));
        let (heading, words) = match which {
            RESULTS => (Heading::Results, 1),
            CALL => {
                let (version, program) = halves(at(HEADER as u64 + 8));
                (Heading::Call([program, version, above]), 2)
            }
            _ => return None,
        };
        let entries = HEADER as u64 + 8 * words;
        let end = end(header);
        (entries < end).then_some(Self { heading, credit, entries, end })
    }
}

/// Returns where a series with this header ends, in octets from its beginning.
#[inline]
pub(super) const fn end(header: u64) -> u64 {
    HEADER as u64 + (header >> LENGTH_AT & LENGTH_MAX)
}

/// Returns the octets of the ring that a series takes which ends so many from its beginning.
#[inline]
pub(super) const fn span(end: u64) -> u64 {
    end.next_multiple_of(LINE as u64)
}

/// An entry's double word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) xid: u32,
    /// Octets behind the heading.
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
        let (body, xid) = halves(word);
        let body = body as usize;
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
    pub(super) heading: Heading,
    pub(super) credit: u32,
    /// Whether more may join.
    pub(super) is_open: bool,
    /// Where it begins and ends.
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Series {
    pub(super) const NONE: Self =
        Self { heading: Heading::Results, credit: 0, is_open: false, start: 0, end: 0 };

    /// Returns whether a message may join.
    #[inline]
    pub(super) fn takes(&self, heading: &Heading, credit: u32) -> bool {
        self.is_open && self.credit == credit && self.heading == *heading
    }
}

/// Returns a double word of two words.
#[inline]
const fn word(lower: u32, upper: u32) -> u64 {
    (upper as u64) << 32 | lower as u64
}

/// Returns the upper and the lower half of a double word.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the halves that are meant")]
const fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}
