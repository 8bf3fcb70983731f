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
//! There is no shared index of what was produced. The header itself says that a record is there: an empty
//! word ends what the consumer can see. A batch is written behind that word, its own end first, and
//! becomes visible all at once when the header of its first record is stored. The consumer, looking for
//! it, reads only the line the message will be on; while nothing comes, nothing is written that both share.
//!
//! A Call without chunks has two runs of zeros: the empty lists of its transport header, and the credential
//! and verifier of nobody in particular. A message of that shape that fits one line without them travels
//! without them (`ring/squeeze.rs`), since a line more costs more than looking.
//!
//! What a line costs is the way from one core to the other, so the ways overlap. The first header of a batch
//! says how many lines more became visible with it (`ahead`), and the consumer asks for them before it
//! needs them; the producer asks for lines it is about to write while nobody looks at them.
//!
//! The producer keeps its own copy of how far the consumer has come, and looks again only when it is out
//! of room.
//!
//! # Limits
//!
//! A record has at most a quarter of the ring, so that a batch of them is under way while one is taken;
//! what is longer travels as parts. A header is the peer's claim: a record that would reach beyond the
//! ring ends the connection.

use std::sync::atomic::Ordering;

use haulage_mr_pool::Sink;
use haulage_proto::verbs::Handle;

use self::squeeze::{SQUEEZED, SQUEEZED_MAX, expand, squeeze};
use super::segment::{RING, RING_BYTES_MAX, Segment};
use crate::sys::barrier;
use crate::sys::shared::{LINE, LINE_OCTETS, Line};

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A message, or the last part of one.
    Send,
    /// The same, which retires the handle the header names.
    SendInvalidate,
    /// Part of a message that goes on: as long as a record can be.
    Part,
    /// The producer closed in order: nothing follows.
    Close,
    /// The rest of the ring holds nothing; the next record is at its start.
    Skip,
    /// A message, squeezed into one line.
    Squeezed,
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
            _ => return None,
        })
    }
}

/// The peer wrote something into the ring that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadRing;

/// A line that is kept back.
#[derive(Debug)]
struct FirstLine {
    /// 0 while there is none.
    header: u64,
    octets: [u8; LINE_OCTETS],
}

/// The sending end of a connection's ring.
#[derive(Debug)]
pub(super) struct Producer {
    segment: Segment,
    /// Where the next record goes. Positions are octets since the beginning.
    tail: u64,
    /// Where what the consumer can see ends.
    published: u64,
    /// The first line of what is not published yet: all of it is written at once, or the consumer,
    /// looking at the line, would take it away before its header is there.
    first: FirstLine,
    /// How far records may reach, as far as we know.
    limit: u64,
    /// How far lines were asked for, to be written.
    owned: u64,
    capacity: u64,
    /// The consumer issues the barrier that we then need not.
    light: bool,
}

impl Producer {
    /// Sends on the ring of a fresh segment. `light`: see [`barrier::light`].
    pub(super) const fn new(segment: Segment, light: bool) -> Self {
        let capacity = segment.layout().ring_bytes() as u64;
        let (limit, first) = (capacity, FirstLine { header: 0, octets: [0; LINE_OCTETS] });
        Self { segment, tail: 0, published: 0, first, limit, owned: 0, capacity, light }
    }

    pub(super) const fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Returns how many octets one record holds.
    #[inline]
    pub(super) const fn part_max(&self) -> usize {
        part_max(self.capacity)
    }

    /// Puts a record behind the others; false if there is no room. The consumer sees it once
    /// [`publish`](Self::publish) says so.
    ///
    /// Fails if the consumer claims to have taken what never was.
    #[inline]
    pub(super) fn push(
        &mut self,
        kind: Kind,
        handle: Handle,
        bytes: &[u8],
    ) -> Result<bool, BadRing> {
        debug_assert!(bytes.len() <= self.part_max(), "longer messages travel in parts");
        let length = (bytes.len() as u64) << LENGTH_AT;
        let mut line = [0; LINE_OCTETS];
        if kind == Kind::Send && squeeze(bytes, &mut line) {
            return self.push_record(length | Kind::Squeezed.code(), &line);
        }
        self.push_record(u64::from(handle.0) << 32 | length | kind.code(), bytes)
    }

    #[inline]
    fn push_record(&mut self, header: u64, bytes: &[u8]) -> Result<bool, BadRing> {
        let span = span(bytes.len());
        let left = self.capacity - self.offset(self.tail);
        let fits = span <= left && self.tail + span + SPARE <= self.limit;
        if !fits && !self.make_room(span)? {
            return Ok(false);
        }
        self.put(header, bytes);
        self.tail += span;
        Ok(true)
    }

    /// Looks how far the consumer has come, and skips what is left of the ring if `span` octets do not fit
    /// there; false if there is no room.
    #[cold]
    fn make_room(&mut self, span: u64) -> Result<bool, BadRing> {
        let left = self.capacity - self.offset(self.tail);
        let skipped = if span > left { left } else { 0 };
        let end = self.tail + skipped + span + SPARE;
        if end > self.limit && !self.has_room(end)? {
            return Ok(false);
        }
        if skipped > 0 {
            self.put(Kind::Skip.code(), &[]);
            self.tail += skipped;
        }
        Ok(true)
    }

    /// Returns whether there is anything the consumer cannot see yet.
    #[inline]
    pub(super) const fn is_filled(&self) -> bool {
        self.first.header != 0
    }

    /// Shows the consumer all that was pushed; returns whether it wants a doorbell, once.
    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        if !self.is_filled() {
            return false;
        }
        let ahead = (self.tail - self.published) / LINE as u64 - 1;
        let header = self.first.header | ahead.min(AHEAD_MAX) << AHEAD_AT;
        self.line(self.tail).word().store(0, Ordering::Relaxed);
        let line = self.line(self.published);
        line.copy_in(&self.first.octets);
        line.word().store(header, Ordering::Release);
        self.published = self.tail;
        self.first.header = 0;
        self.own_ahead();
        barrier::light(self.light);
        let waits = self.segment.waits();
        waits.load(Ordering::Relaxed) != 0 && waits.swap(0, Ordering::Relaxed) != 0
    }

    /// Writes a record at the tail, but for the line that shows the batch.
    #[inline]
    fn put(&mut self, header: u64, bytes: &[u8]) {
        if self.tail == self.published {
            return self.keep(header, bytes);
        }
        let line = self.line(self.tail);
        line.word().store(header, Ordering::Relaxed);
        if bytes.len() <= LINE_OCTETS {
            line.copy_in(bytes);
        } else {
            self.segment.memory().copy_in(self.at(self.tail) + HEADER, bytes);
        }
    }

    /// Writes the first record of a batch, and keeps its first line back.
    fn keep(&mut self, header: u64, bytes: &[u8]) {
        self.first.header = header;
        match bytes.split_first_chunk() {
            Some((line, rest)) => {
                self.first.octets = *line;
                self.segment.memory().copy_in(self.at(self.tail) + LINE, rest);
            }
            None => self.first.octets[..bytes.len()].copy_from_slice(bytes),
        }
    }

    /// Asks for the lines behind what was published, to be written soon: but not the two at which the
    /// consumer looks, nor those that it may not have taken yet.
    #[inline]
    fn own_ahead(&mut self) {
        let end = (self.tail + DISTANCE).min(self.limit);
        self.owned = self.owned.max(self.tail + 2 * LINE as u64);
        while self.owned < end {
            self.segment.memory().prefetch_to_write(self.at(self.owned));
            self.owned += LINE as u64;
        }
    }

    /// Looks how far the consumer has come, and whether records may reach to `end` now.
    #[cold]
    fn has_room(&mut self, end: u64) -> Result<bool, BadRing> {
        let head = self.segment.head().load(Ordering::Acquire);
        let behind = self.published.checked_sub(head).ok_or(BadRing)?;
        if behind > self.capacity || !head.is_multiple_of(LINE as u64) {
            return Err(BadRing);
        }
        // It never goes back either.
        let limit = head + self.capacity;
        self.limit = if limit < self.limit { return Err(BadRing) } else { limit };
        Ok(end <= self.limit)
    }

    #[inline]
    const fn offset(&self, position: u64) -> u64 {
        position & (self.capacity - 1)
    }

    #[inline]
    fn at(&self, position: u64) -> usize {
        at(self.offset(position))
    }

    #[inline]
    fn line(&self, position: u64) -> Line<'_> {
        self.segment.memory().line(self.at(position))
    }
}

/// The receiving end of a connection's ring.
#[derive(Debug)]
pub(super) struct Consumer {
    segment: Segment,
    /// What was taken.
    head: u64,
    /// What the producer was told was taken.
    released: u64,
    /// Octets of the ring that the message last looked at takes.
    looked: u64,
    /// How far records are visible, as the producer says, and how far they were asked for.
    visible: u64,
    fetched: u64,
    capacity: u64,
}

/// What is next in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Nothing yet.
    Nothing,
    /// A plain message of so many octets.
    Plain(usize),
    /// Anything else.
    Other,
}

/// A record that can be taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) kind: Kind,
    pub(super) handle: Handle,
    pub(super) length: usize,
    at: usize,
}

impl Record {
    /// Returns the octets of the ring that it takes.
    const fn span(&self) -> u64 {
        match self.kind {
            Kind::Squeezed => LINE as u64,
            _ => span(self.length),
        }
    }
}

impl Consumer {
    /// Receives from the ring of a peer's fresh segment.
    pub(super) const fn new(segment: Segment) -> Self {
        let capacity = segment.layout().ring_bytes() as u64;
        Self { segment, head: 0, released: 0, looked: 0, visible: 0, fetched: 0, capacity }
    }

    pub(super) const fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Returns the next record without taking it; never one that says to skip.
    #[inline]
    pub(super) fn peek(&mut self) -> Result<Option<Record>, BadRing> {
        let header = self.header();
        if header == 0 {
            return Ok(None);
        }
        let record = self.decode(header)?;
        if record.kind == Kind::Skip { self.skip() } else { Ok(Some(record)) }
    }

    /// Copies the next record into `sink` and takes it, if it is a whole plain message that fits there.
    /// Returns its length.
    #[inline]
    pub(super) fn take_plain(&mut self, sink: &mut Sink) -> Option<usize> {
        let (header, offset) = (self.header(), self.offset());
        // The handle of a plain message is 0, as are the bits above its length. An empty word is none.
        let length = usize::try_from(header >> LENGTH_AT).ok()?;
        if header & KIND_MASK == Kind::Squeezed.code() {
            return self.take_squeezed(header, sink, length);
        }
        if header & KIND_MASK != Kind::Send.code() {
            return None;
        }
        if (HEADER + length) as u64 > self.capacity - offset {
            return None;
        }
        self.fetch_ahead(header);
        if !self.segment.memory().copy_out(at(offset) + HEADER, sink, 0, length) {
            return None;
        }
        self.head += span(length);
        Some(length)
    }

    #[inline]
    fn take_squeezed(&mut self, header: u64, sink: &mut Sink, length: usize) -> Option<usize> {
        let (mut line, mut message) = ([0; LINE_OCTETS], [0; SQUEEZED_MAX]);
        let message = message.get_mut(..length).filter(|_| SQUEEZED.contains(&length))?;
        self.fetch_ahead(header);
        self.line().copy_to(&mut line);
        expand(&line, message);
        sink.place(0, message).ok()?;
        self.head += LINE as u64;
        Some(length)
    }

    /// Copies the next record to the beginning of `to` without taking it, if it is a whole plain message
    /// that fits there.
    #[inline]
    pub(super) fn look(&mut self, to: &mut [u8]) -> Look {
        let (line, offset) = (self.line(), self.offset());
        let header = line.word().load(Ordering::Acquire);
        if header == 0 {
            // The next line comes while the first is waited for.
            self.segment.memory().prefetch(at(offset) + LINE);
            return Look::Nothing;
        }
        // A length has 32 bits; of a plain message nothing is above it.
        let length = (header >> LENGTH_AT) as usize;
        if length > to.len() {
            return Look::Other;
        }
        let kind = header & KIND_MASK;
        if kind == Kind::Squeezed.code() && SQUEEZED.contains(&length) {
            let mut octets = [0; LINE_OCTETS];
            line.copy_to(&mut octets);
            expand(&octets, to.get_mut(..length).unwrap_or_default());
            self.looked = LINE as u64;
            self.fetch_ahead(header);
        } else if kind == Kind::Send.code() && (HEADER + length) as u64 <= self.capacity - offset {
            match to.first_chunk_mut() {
                // The whole line, as that is faster than to look how much of it.
                Some(to) if length <= LINE_OCTETS => {
                    line.copy_to(to);
                    self.fetch_ahead(header);
                }
                _ => {
                    self.fetch_ahead(header);
                    let to = to.get_mut(..length).unwrap_or_default();
                    self.segment.memory().copy_to(at(offset) + HEADER, to);
                }
            }
            self.looked = span(length);
        } else {
            return Look::Other;
        }
        Look::Plain(length)
    }

    /// Takes the plain message that was looked at.
    #[inline]
    pub(super) const fn pass(&mut self) {
        self.head += self.looked;
    }

    /// Copies `length` octets of a record to `at` in `sink`; returns whether it has room there.
    #[inline]
    pub(super) fn copy(
        &self,
        record: &Record,
        from: usize,
        sink: &mut Sink,
        at: usize,
        length: usize,
    ) -> bool {
        let Some(end) = from.checked_add(length).filter(|end| *end <= record.length) else {
            return false;
        };
        let memory = self.segment.memory();
        if record.kind != Kind::Squeezed {
            return memory.copy_out(record.at + HEADER + from, sink, at, length);
        }
        let (mut line, mut message) = ([0; LINE_OCTETS], [0; SQUEEZED_MAX]);
        memory.copy_to(record.at + HEADER, &mut line);
        let Some(message) = message.get_mut(..record.length) else { return false };
        expand(&line, message);
        message.get(from..end).is_some_and(|part| sink.place(at, part).is_ok())
    }

    /// Takes the record that was looked at.
    #[inline]
    pub(super) fn advance(&mut self, record: &Record) {
        self.head += record.span();
    }

    /// Gives the room of what was taken back to the producer; returns whether there is any.
    #[inline]
    pub(super) fn release(&mut self) -> bool {
        let is_taken = self.head != self.released;
        if is_taken {
            self.released = self.head;
            self.segment.head().store(self.head, Ordering::Release);
        }
        is_taken
    }

    /// Asks for a doorbell with the next record. Who means to sleep then issues a
    /// [`barrier::heavy`] and looks once more.
    pub(super) fn ask_for_doorbell(&self) {
        self.segment.waits().store(1, Ordering::Relaxed);
    }

    /// Wants no doorbell any more.
    pub(super) fn need_no_doorbell(&self) {
        self.segment.waits().store(0, Ordering::Relaxed);
    }

    /// Returns whether there is a record, or something that is none.
    #[inline]
    pub(super) fn has_record(&self) -> bool {
        self.header() != 0
    }

    /// Does the same, and asks for the next line too: most messages are on two, and the second comes
    /// while the first is waited for.
    #[inline]
    pub(super) fn await_record(&self) -> bool {
        self.segment.memory().prefetch(at(self.offset()) + LINE);
        self.header() != 0
    }

    /// Asks for lines that became visible with the one `header` is on. What the producer says of them is
    /// believed no further than that.
    #[inline]
    fn fetch_ahead(&mut self, header: u64) {
        let ahead = header >> AHEAD_AT & AHEAD_MAX;
        if ahead != 0 {
            self.visible = self.head + (1 + ahead) * LINE as u64;
            self.fetched = self.head + LINE as u64;
        }
        if self.fetched < self.visible {
            self.fetch_more();
        }
    }

    #[inline(never)]
    fn fetch_more(&mut self) {
        let end = self.visible.min(self.head + DISTANCE);
        while self.fetched < end {
            self.segment.memory().prefetch(at(self.fetched & (self.capacity - 1)));
            self.fetched += LINE as u64;
        }
    }

    /// Returns the record at the start of the ring, the rest of which holds none.
    #[cold]
    fn skip(&mut self) -> Result<Option<Record>, BadRing> {
        let offset = self.offset();
        if offset == 0 {
            return Err(BadRing);
        }
        self.head += self.capacity - offset;
        // It was written before the header that said so, or is the end of what can be seen.
        let header = self.header();
        if header == 0 {
            return Ok(None);
        }
        let record = self.decode(header)?;
        if record.kind == Kind::Skip { Err(BadRing) } else { Ok(Some(record)) }
    }

    #[inline]
    fn decode(&self, header: u64) -> Result<Record, BadRing> {
        let kind = Kind::decode(header & KIND_MASK).ok_or(BadRing)?;
        let (length, handle) = (header >> LENGTH_AT & LENGTH_MAX, header >> 32);
        let part_max = part_max(self.capacity) as u64;
        // A part that need not be one would let a peer keep us busy with nothing.
        let wrong = length > part_max || kind == Kind::Part && length != part_max;
        let offset = self.offset();
        let length = usize::try_from(length).map_err(|_| BadRing)?;
        let wrong = wrong || kind == Kind::Squeezed && !SQUEEZED.contains(&length);
        let handle = Handle(u32::try_from(handle).map_err(|_| BadRing)?);
        let record = Record { kind, handle, length, at: at(offset) };
        if wrong || kind != Kind::Skip && record.span() > self.capacity - offset {
            return Err(BadRing);
        }
        Ok(record)
    }

    #[inline]
    fn header(&self) -> u64 {
        self.line().word().load(Ordering::Acquire)
    }

    #[inline]
    fn line(&self) -> Line<'_> {
        self.segment.memory().line(at(self.offset()))
    }

    #[inline]
    const fn offset(&self) -> u64 {
        self.head & (self.capacity - 1)
    }
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

/// Returns where in the segment an offset of the ring is.
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
// Every length a record can have can be said.
const _: () = assert!(part_max(RING_BYTES_MAX as u64) as u64 <= LENGTH_MAX);
/// How far ahead lines are asked for, in octets: what two cores can have under way at once.
const DISTANCE: u64 = 16 * LINE as u64;
/// One more line, for the word that ends what can be seen.
const SPARE: u64 = LINE as u64;

mod squeeze;
#[cfg(test)]
mod tests;
