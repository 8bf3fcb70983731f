//! A series: messages with one template as one record, which holds the template's number once, and of each message its
//! XID and the octets behind the template.
//!
//! ```text
//!  63        32 31    27 26      22 21    11 10     3 2    0
//! +------------+--------+----------+--------+--------+------+
//! | credit     | unused | template | length | ahead  | kind |  entries ...
//! +------------+--------+----------+--------+--------+------+
//! ```
//! An entry is a double word, which holds the XID and above it the number of octets behind the template, and then these
//! octets, in whole double words. An earlier record introduced the template (`ring/templates.rs`).

use haulage_proto::verbs::{HeaderTemplate, TemplateId};

use super::{HEADER, Kind, LENGTH_AT};
use crate::sys::shared::{LINE, LINE_OCTETS};

/// The most octets of a message that we join to a series.
pub(in crate::provider::shm) const JOINING_MAX: usize = 192;
/// The most octets of a message of a series that any peer can make.
pub(super) const MESSAGE_MAX: usize = HeaderTemplate::LEN_MAX + JOINING_MAX;
/// The most octets of the ring that a series takes, so that its room is given back before the ring is full.
pub(super) const SPAN_MAX: u64 = 1 << 10;

const LENGTH_MAX: u64 = 0x7ff;
const TEMPLATE_AT: u32 = 22;
const TEMPLATE_MAX: u64 = 0x1f;
// Every possible length of a series fits its field, and so does every template number.
const _: () = assert!(SPAN_MAX <= LENGTH_MAX && LENGTH_MAX << LENGTH_AT < 1 << TEMPLATE_AT);
const _: () = assert!(TemplateId::COUNT as u64 <= TEMPLATE_MAX);

/// Returns the header of a series of `length` octets.
#[inline]
pub(super) const fn header(id: TemplateId, credit: u32, length: u64) -> u64 {
    let template = (id.number() as u64) << TEMPLATE_AT;
    (credit as u64) << 32 | template | length << LENGTH_AT | Kind::Series.code()
}

/// Returns a line that begins with an entry, with room behind its double word.
#[inline]
pub(super) const fn line(entry: Entry) -> [u64; LINE_OCTETS / 8] {
    let mut line = [0; LINE_OCTETS / 8];
    line[0] = entry.encode();
    line
}

/// The shape of a series, as its consumer reads it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) template: TemplateId,
    pub(super) credit: u32,
    /// Octets from the beginning of the record to the end of the last entry.
    pub(super) end: u64,
}

impl Shape {
    /// Octets from the beginning of the record to the first entry.
    pub(super) const ENTRIES: u64 = HEADER as u64;

    /// Decodes a header; `None` if it is not valid.
    #[inline]
    pub(super) const fn decode(header: u64) -> Option<Self> {
        let (credit, _) = halves(header);
        let end = Self::ENTRIES + (header >> LENGTH_AT & LENGTH_MAX);
        match TemplateId::new((header >> TEMPLATE_AT & TEMPLATE_MAX) as u8) {
            Some(template) if end > Self::ENTRIES => Some(Self { template, credit, end }),
            _ => None,
        }
    }
}

/// Returns the octets of the ring that a series takes whose last entry ends at `end`.
#[inline]
pub(super) const fn span(end: u64) -> u64 {
    end.next_multiple_of(LINE as u64)
}

/// An entry's double word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) xid: u32,
    /// Octets behind the template.
    pub(super) body: usize,
}

impl Entry {
    #[inline]
    pub(super) const fn encode(self) -> u64 {
        (self.body as u64) << 32 | self.xid as u64
    }

    /// Decodes a double word; `None` if it is not a valid entry.
    #[inline]
    pub(super) const fn decode(word: u64) -> Option<Self> {
        let (body, xid) = halves(word);
        let body = body as usize;
        if body <= JOINING_MAX { Some(Self { xid, body }) } else { None }
    }

    /// Returns the octets of the ring that the entry takes.
    #[inline]
    pub(super) const fn span(self) -> u64 {
        8 + ((self.body as u64 + 7) & !7)
    }
}

/// The series that a producer is writing, or wrote last.
#[derive(Debug)]
pub(super) struct Series {
    /// The header, without the length; 0 if no more messages may join.
    pub(super) header: u64,
    /// The positions at which it begins and ends.
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Series {
    pub(super) const NONE: Self = Self { header: 0, start: 0, end: 0 };

    /// Returns whether a message may join.
    #[inline]
    pub(super) const fn takes(&self, id: TemplateId, credit: u32) -> bool {
        self.header == header(id, credit, 0)
    }

    /// Lets no more messages join. Returns the header, if messages could join before.
    #[inline]
    pub(super) const fn close(&mut self) -> Option<u64> {
        match std::mem::replace(&mut self.header, 0) {
            0 => None,
            header => Some(header | (self.end - self.start - HEADER as u64) << LENGTH_AT),
        }
    }
}

/// Returns the upper and the lower half of a double word.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the halves that are meant")]
const fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}
