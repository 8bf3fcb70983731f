//! The ring that carries messages: one producer, one consumer, in the producer's segment.
//!
//! # Normal operation
//!
//! A record is a header word and its octets, in whole cache lines, never around the end of the ring:
//! ```text
//!  63        32 31      11 10     3 2    0
//! +------------+----------+--------+------+
//! | handle     | length   | ahead  | kind |  octets ...
//! +------------+----------+--------+------+
//! ```
//! There is no shared index of the records produced. The header itself says that a record is there: an empty word ends
//! what the consumer can see. A batch is written behind that word, its own end first, and becomes visible all at once
//! when the header of its first record is stored. The consumer, looking for it, reads only the line the message will be
//! on; while nothing comes, neither end writes a line that both share. Where a batch of one line would end, the word is
//! emptied ahead, so that a lone message waits only until the producer owns its line.
//!
//! A Call without chunks has two runs of zeros: the empty lists of its transport header, and the AUTH_NONE credential
//! and verifier. A message of that shape that fits one line without them travels without them (`ring/squeeze.rs`),
//! since one more line costs more than the check.
//!
//! Messages sent with one template while others are taken are one record, a series: the template's number once, and of
//! each message its XID and the octets behind the template (`ring/series.rs`). So sixteen null Calls, or their Replies,
//! are on three lines, and not on sixteen. A run of them is delivered in this form, too; a Receive, or a run with other
//! messages, holds each whole. A record introduces each template before the first series that has it
//! (`ring/templates.rs`); from then on numbers are compared, and never octets.
//!
//! The cost of a line is its way from one core to the other, so the ways overlap. The first header of a batch says how
//! many more lines became visible with it (`ahead`), and the consumer prefetches them; the producer prefetches lines
//! that it is about to write and that the consumer does not read.
//!
//! The producer keeps its own copy of the consumer's position, and reads the shared one only when it is out of room.
//!
//! Models in `tests/models/src/provider` run this code in all orders of its accesses with at most three
//! preemptions: `records.rs` shows that records are seen whole and that lines are not written before they were taken,
//! `doorbell.rs` that a consumer does not sleep while there is a record.
//!
//! # Limits
//!
//! A record has at most a quarter of the ring, so that a batch of them is under way while one is taken; longer messages
//! travel as parts. A header is the peer's claim: a record that would reach beyond the ring ends the connection. So
//! does a template that is too long or has a patch outside of its octets, a template number that is given twice or is
//! out of range, and a series whose template was not introduced.

use haulage_proto::verbs::Handle;

use super::segment::{RING, RING_BYTES_MAX};
use crate::sys::shared::LINE;

mod consumer;
mod producer;
mod series;
mod squeeze;
mod templates;

pub(super) use self::consumer::{Consumer, Look, Record};
pub(super) use self::producer::Producer;
pub(super) use self::series::JOINING_MAX;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A message, or the last part of one.
    Send,
    /// A message, or the last part of one, that retires the handle in the header.
    SendInvalidate,
    /// Part of a message that continues: as long as a record can be.
    Part,
    /// The producer closed in order: nothing follows.
    Close,
    /// The rest of the ring holds nothing; the next record is at its start.
    Skip,
    /// A message, squeezed into one line.
    Squeezed,
    /// Messages with one template.
    Series,
    /// A template.
    Template,
}

impl Kind {
    const fn code(self) -> u64 {
        match self {
            Self::Send => 1,
            Self::SendInvalidate => 2,
            Self::Part => 3,
            Self::Close => 4,
            Self::Skip => 5,
            Self::Squeezed => 6,
            Self::Series => 7,
            // An empty word has this kind too, but no length.
            Self::Template => 0,
        }
    }

    const fn decode(code: u64) -> Option<Self> {
        Some(match code {
            1 => Self::Send,
            2 => Self::SendInvalidate,
            3 => Self::Part,
            4 => Self::Close,
            5 => Self::Skip,
            6 => Self::Squeezed,
            7 => Self::Series,
            0 => Self::Template,
            _ => return None,
        })
    }
}

/// The peer wrote an impossible value into the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadRing;

/// Returns the header of a record.
#[inline]
const fn header(kind: Kind, handle: Handle, length: usize) -> u64 {
    (handle.0 as u64) << 32 | (length as u64) << LENGTH_AT | kind.code()
}

/// Returns the octets of the ring that a record of `length` octets takes.
#[inline]
const fn span(length: usize) -> u64 {
    ((HEADER + length) as u64).next_multiple_of(LINE as u64)
}

const fn part_max(capacity: u64) -> usize {
    #[allow(clippy::cast_possible_truncation, reason = "a ring has at most 8 MiB")]
    let quarter = capacity as usize / 4;
    quarter - HEADER
}

/// Returns the offset in the segment of an offset in the ring.
#[inline]
const fn at(offset: u64) -> usize {
    #[allow(clippy::cast_possible_truncation, reason = "a ring has at most 8 MiB")]
    let offset = offset as usize;
    RING + offset
}

/// Octets of a record's header.
const HEADER: usize = 8;
const KIND_MASK: u64 = 7;
const AHEAD_AT: u32 = 3;
const AHEAD_MAX: u64 = 0xff;
const LENGTH_AT: u32 = 11;
const LENGTH_MAX: u64 = 0x1f_ffff;
// Every possible length of a record fits its field.
const _: () = assert!(part_max(RING_BYTES_MAX as u64) as u64 <= LENGTH_MAX);
/// How far ahead lines are prefetched, in octets: as many as can be under way between two cores at once.
const DISTANCE: u64 = 16 * LINE as u64;
/// One more line, for the empty word at the end of the visible records.
const SPARE: u64 = LINE as u64;

#[cfg(test)]
mod tests;
