//! The sending end of a ring.

use std::sync::atomic::Ordering;

use haulage_proto::verbs::Handle;

use super::series::Series;
use super::squeeze::squeeze;
use super::templates::Introduced;
use super::{
    AHEAD_AT, AHEAD_MAX, BadRing, DISTANCE, HEADER, KIND_MASK, Kind, SPARE, at, header, part_max,
    span,
};
use crate::provider::shm::segment::Segment;
use crate::sys::barrier::Barrier;
use crate::sys::shared::{LINE, LINE_OCTETS, Line, last_word};

mod series;

/// A line that is kept back.
#[derive(Debug)]
struct FirstLine {
    /// 0 while there is none.
    header: u64,
    octets: [u64; LINE_OCTETS / 8],
}

impl FirstLine {
    /// Returns the double word at an offset from the beginning of the line, if it is behind the header.
    #[inline]
    fn at(&mut self, offset: u64) -> Option<&mut u64> {
        let place = usize::try_from(offset).ok()?.checked_sub(HEADER)?;
        self.octets.get_mut(place / 8)
    }
}

/// Returns the octets of at most one line as double words, padded with zeros.
#[inline]
fn words(octets: &[u8]) -> [u64; LINE_OCTETS / 8] {
    let (chunks, rest) = octets.as_chunks();
    let mut words = [0; LINE_OCTETS / 8];
    for (word, chunk) in words.iter_mut().zip(chunks) {
        *word = u64::from_ne_bytes(*chunk);
    }
    if let Some(word) = words.get_mut(chunks.len()) {
        *word = last_word(rest);
    }
    words
}

/// The sending end of a connection's ring.
#[derive(Debug)]
pub(in crate::provider::shm) struct Producer {
    segment: Segment,
    /// Position of the next record. Positions are octets since the beginning.
    pub(super) tail: u64,
    /// Position up to which the consumer can see records.
    published: u64,
    /// The first line that is not published yet. It is written all at once: the consumer, looking at the line, would
    /// otherwise fetch it before its header is there.
    first: FirstLine,
    /// Position of the empty word that already ends the records.
    ended: u64,
    /// Position up to which records may reach, as far as we know.
    pub(super) limit: u64,
    /// Position up to which lines were prefetched for writing.
    owned: u64,
    capacity: u64,
    /// The most octets that one record holds.
    part_max: usize,
    /// The barrier between publishing and checking whether the consumer sleeps.
    barrier: Barrier,
    /// The series that is the last record, if it is one.
    series: Series,
    introduced: Introduced,
}

impl Producer {
    /// Sends on the ring of a fresh segment.
    pub(in crate::provider::shm) const fn new(segment: Segment, barrier: Barrier) -> Self {
        let capacity = segment.layout().ring_bytes() as u64;
        let (limit, first) = (capacity, FirstLine { header: 0, octets: [0; LINE_OCTETS / 8] });
        let part_max = part_max(capacity);
        Self {
            segment,
            tail: 0,
            published: 0,
            first,
            ended: 0,
            limit,
            owned: 0,
            capacity,
            part_max,
            barrier,
            series: Series::NONE,
            introduced: Introduced::NONE,
        }
    }

    pub(in crate::provider::shm) const fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Returns the most octets that one record holds.
    #[inline]
    pub(in crate::provider::shm) const fn part_max(&self) -> usize {
        self.part_max
    }

    /// Puts a record behind the others; false if there is no room. The consumer sees it after the next
    /// [`publish`](Self::publish).
    ///
    /// # Errors
    ///
    /// The consumer claims to have taken records that were never sent.
    #[inline(always)]
    pub(in crate::provider::shm) fn push(
        &mut self,
        kind: Kind,
        handle: Handle,
        bytes: &[u8],
    ) -> Result<bool, BadRing> {
        debug_assert!(bytes.len() <= self.part_max(), "longer messages travel in parts");
        self.end_series();
        let header = header(kind, handle, bytes.len());
        if self.has_line() {
            if bytes.len() <= LINE_OCTETS {
                self.next_line(header).copy_in(bytes);
                return Ok(true);
            }
            if kind == Kind::Send
                && let Some(line) = squeeze(bytes)
            {
                self.next_line(self::header(Kind::Squeezed, handle, bytes.len())).store(&line);
                return Ok(true);
            }
        }
        self.push_first(header, bytes)
    }

    /// Returns whether there is certainly room for one line, for a record that does not begin a batch. There always is
    /// one before the ring ends.
    #[inline]
    const fn has_line(&self) -> bool {
        self.tail != self.published && self.tail + LINE as u64 + SPARE <= self.limit
    }

    /// Puts a record of one line behind the others, and returns the line for its octets.
    #[inline]
    fn next_line(&mut self, header: u64) -> Line<'_> {
        let line = self.segment.line(self.tail);
        line.word().store(header, Ordering::Relaxed);
        self.tail += LINE as u64;
        line
    }

    /// Puts a record behind the others, where it may begin a batch, be long, or find no room.
    #[inline(never)]
    fn push_first(&mut self, header: u64, bytes: &[u8]) -> Result<bool, BadRing> {
        if bytes.len() <= LINE_OCTETS {
            return self.push_line(header, words(bytes));
        }
        if header & KIND_MASK == Kind::Send.code()
            && let Some(line) = squeeze(bytes)
        {
            return self.push_line(self::header(Kind::Squeezed, Handle(0), bytes.len()), line);
        }
        self.push_lines(header, bytes)
    }

    /// Puts a record of one line behind the others.
    #[inline]
    fn push_line(&mut self, header: u64, octets: [u64; LINE_OCTETS / 8]) -> Result<bool, BadRing> {
        let has_room = self.has_room_for(LINE as u64)?;
        if has_room && self.tail == self.published {
            self.first = FirstLine { header, octets };
            self.tail += LINE as u64;
        } else if has_room {
            self.next_line(header).store(&octets);
        }
        Ok(has_room)
    }

    /// Puts a record of any length behind the others.
    fn push_lines(&mut self, header: u64, bytes: &[u8]) -> Result<bool, BadRing> {
        let span = span(bytes.len());
        let has_room = self.has_room_for(span)?;
        if has_room {
            self.put(header, bytes);
            self.tail += span;
        }
        Ok(has_room)
    }

    /// Returns whether a record of `span` octets may go at the tail, which it may move to the start of the ring.
    #[inline]
    fn has_room_for(&mut self, span: u64) -> Result<bool, BadRing> {
        let left = self.capacity - self.offset(self.tail);
        if span <= left && self.tail + span + SPARE <= self.limit {
            return Ok(true);
        }
        self.make_room(span)
    }

    /// Returns whether there is room for a record of `octets` octets.
    pub(in crate::provider::shm) fn has_room(&mut self, octets: usize) -> bool {
        self.end_series();
        self.has_room_for(span(octets)) == Ok(true)
    }

    /// Reads the consumer's position, and skips the rest of the ring if `span` octets do not fit there; false if there
    /// is no room.
    #[cold]
    fn make_room(&mut self, span: u64) -> Result<bool, BadRing> {
        let left = self.capacity - self.offset(self.tail);
        let skipped = if span > left { left } else { 0 };
        let end = self.tail + skipped + span + SPARE;
        if end > self.limit && !self.may_reach(end)? {
            return Ok(false);
        }
        if skipped > 0 {
            self.put(Kind::Skip.code(), &[]);
            self.tail += skipped;
        }
        Ok(true)
    }

    /// Returns the position up to which records may reach. It follows from the position of the consumer, when that was
    /// last read and was valid.
    pub(in crate::provider::shm) const fn room_until(&self) -> u64 {
        self.limit
    }

    /// Returns whether there are records that the consumer cannot see yet.
    #[inline]
    pub(in crate::provider::shm) const fn is_filled(&self) -> bool {
        self.first.header != 0
    }

    /// Returns whether there are no records that the consumer has not taken, as far as it has told.
    pub(in crate::provider::shm) fn is_taken(&self) -> bool {
        let head = self.segment.head().load(Ordering::Acquire);
        (self.published, self.tail) == (head, head)
    }

    /// Puts a record behind the others and shows the consumer all records. Returns whether it wants a doorbell, as
    /// [`publish`](Self::publish) does; `None` if there is no room.
    ///
    /// # Errors
    ///
    /// The consumer claims to have taken records that were never sent.
    #[inline(never)]
    pub(in crate::provider::shm) fn push_alone(
        &mut self,
        kind: Kind,
        handle: Handle,
        bytes: &[u8],
    ) -> Result<Option<bool>, BadRing> {
        let squeezed = if kind == Kind::Send { squeeze(bytes) } else { None };
        if self.is_filled() || squeezed.is_none() && bytes.len() > LINE_OCTETS {
            return Ok(self.push(kind, handle, bytes)?.then(|| self.publish()));
        }
        if !self.has_room_for(LINE as u64)? {
            return Ok(None);
        }
        // No line has to be kept back, as the header is stored next.
        let line = self.segment.line(self.tail);
        let kind = match squeezed {
            Some(words) => {
                line.store(&words);
                Kind::Squeezed
            }
            None => {
                line.copy_in(bytes);
                kind
            }
        };
        self.tail += LINE as u64;
        Ok(Some(self.show(header(kind, handle, bytes.len()))))
    }

    /// Shows the consumer all records; returns whether it wants a doorbell, once.
    #[inline(always)]
    pub(in crate::provider::shm) fn publish(&mut self) -> bool {
        if !self.is_filled() {
            return false;
        }
        self.end_series();
        let ahead = (self.tail - self.published) / LINE as u64 - 1;
        let header = self.first.header | ahead.min(AHEAD_MAX) << AHEAD_AT;
        self.segment.line(self.published).store(&self.first.octets);
        self.first.header = 0;
        self.show(header)
    }

    /// Shows the consumer the batch by storing its first header; returns whether it wants a doorbell, once.
    #[inline(always)]
    fn show(&mut self, header: u64) -> bool {
        if self.ended != self.tail {
            self.end_at(self.tail);
        }
        self.segment.line(self.published).word().store(header, Ordering::Release);
        self.published = self.tail;
        self.own_ahead();
        let next = self.tail + LINE as u64;
        if next + SPARE <= self.limit {
            // The next batch may be of one line, which then waits for that line alone.
            self.end_at(next);
        }
        self.barrier.pass();
        let waits = self.segment.waits();
        waits.load(Ordering::Relaxed) != 0 && waits.swap(0, Ordering::Relaxed) != 0
    }

    /// Writes the empty word that ends the records.
    #[inline]
    fn end_at(&mut self, position: u64) {
        self.segment.line(position).word().store(0, Ordering::Relaxed);
        self.ended = position;
    }

    /// Writes a record at the tail, except the line that shows the batch.
    fn put(&mut self, header: u64, bytes: &[u8]) {
        if self.tail == self.published {
            return self.keep(header, bytes);
        }
        self.segment.line(self.tail).word().store(header, Ordering::Relaxed);
        self.segment.memory().copy_in(self.at(self.tail) + HEADER, bytes);
    }

    /// Writes the first record of a batch, and keeps its first line back.
    fn keep(&mut self, header: u64, bytes: &[u8]) {
        self.first.header = header;
        let (line, behind) = bytes.split_at(bytes.len().min(LINE_OCTETS));
        self.first.octets = words(line);
        if !behind.is_empty() {
            self.segment.memory().copy_in(self.at(self.tail) + LINE, behind);
        }
    }

    /// Prefetches the lines behind the published records for writing, except the two that the consumer reads, and those
    /// that it may not have taken yet.
    #[inline]
    fn own_ahead(&mut self) {
        let end = (self.tail + DISTANCE).min(self.limit);
        self.owned = self.owned.max(self.tail + 2 * LINE as u64);
        while self.owned < end {
            self.segment.line(self.owned).prefetch_to_write();
            self.owned += LINE as u64;
        }
    }

    /// Reads the consumer's position; returns whether records may reach to `end` now.
    #[cold]
    fn may_reach(&mut self, end: u64) -> Result<bool, BadRing> {
        let head = self.segment.head().load(Ordering::Acquire);
        let behind = self.published.checked_sub(head).ok_or(BadRing)?;
        if behind > self.capacity || !head.is_multiple_of(LINE as u64) {
            return Err(BadRing);
        }
        // The consumer's position never decreases, either.
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
}
