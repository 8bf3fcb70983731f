//! The receiving end of a ring.

use std::sync::atomic::Ordering;

use haulage_mr_pool::Sink;
use haulage_proto::verbs::{Handle, HeaderTemplate, TemplateId};

use super::series::Shape;
use super::squeeze::{SQUEEZED, SQUEEZED_MAX, expand};
use super::templates::Templates;
use super::{
    AHEAD_AT, AHEAD_MAX, BadRing, DISTANCE, HEADER, KIND_MASK, Kind, LENGTH_AT, LENGTH_MAX, at,
    part_max, span,
};
use crate::provider::shm::segment::Segment;
use crate::sys::shared::{LINE, LINE_OCTETS, Line};

mod series;

/// The receiving end of a connection's ring.
#[derive(Debug)]
pub(in crate::provider::shm) struct Consumer {
    segment: Segment,
    /// The position up to which records were taken.
    pub(super) head: u64,
    /// The position up to which the producer was given the room of taken records.
    released: u64,
    /// Octets taken of the series at `head`, from the beginning of its record; zero before its first message.
    within: u64,
    /// The position up to which records were looked at, if beyond `head`, and the octets looked at of the series there.
    looked: u64,
    looked_within: u64,
    /// The position up to which records are visible, as the producer says, and that up to which they were prefetched.
    visible: u64,
    fetched: u64,
    capacity: u64,
    /// The last position that the producer can have written before it was gone, if it is gone.
    last: Option<u64>,
    /// The templates that the producer has introduced.
    templates: Templates,
}

/// The next record in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::provider::shm) enum Look {
    /// Nothing yet.
    Nothing,
    /// A plain message, of this many octets.
    Plain(usize),
    /// Messages with one template.
    Series,
    /// Anything else.
    Other,
}

/// A record that can be taken.
#[derive(Clone, Copy, Debug)]
pub(in crate::provider::shm) struct Record {
    pub(in crate::provider::shm) kind: Kind,
    pub(in crate::provider::shm) handle: Handle,
    pub(in crate::provider::shm) length: usize,
    at: usize,
    /// The series, if the record is its next message.
    series: Option<Shape>,
}

impl Record {
    /// Returns the octets of the ring that the record takes.
    const fn span(&self) -> u64 {
        match self.kind {
            Kind::Squeezed => LINE as u64,
            _ => span(self.length),
        }
    }
}

impl Consumer {
    /// Receives from the ring of a peer's fresh segment.
    pub(in crate::provider::shm) const fn new(segment: Segment) -> Self {
        let capacity = segment.layout().ring_bytes() as u64;
        Self {
            segment,
            head: 0,
            within: 0,
            released: 0,
            looked: 0,
            looked_within: 0,
            visible: 0,
            fetched: 0,
            capacity,
            last: None,
            templates: Templates::new(),
        }
    }

    pub(in crate::provider::shm) const fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Returns whether everything was taken that the producer, which is gone, can have written: it bounds a ring
    /// without an empty word, which shows its records again and again. The first call must follow the end of the
    /// producer.
    pub(in crate::provider::shm) fn is_exhausted(&mut self) -> bool {
        let last = *self.last.get_or_insert(self.head.saturating_add(self.capacity));
        self.head >= last
    }

    /// Returns the next record without taking it; never a `Skip`.
    #[inline]
    pub(in crate::provider::shm) fn peek(&mut self) -> Result<Option<Record>, BadRing> {
        let header = self.header();
        if header == 0 {
            return Ok(None);
        }
        let record = self.decode(header)?;
        if record.kind == Kind::Skip { self.skip() } else { Ok(Some(record)) }
    }

    /// Takes the next record, if it introduces a template. Returns whether it does.
    #[cold]
    pub(in crate::provider::shm) fn learn_next(&mut self) -> Result<bool, BadRing> {
        match self.peek()?.filter(|record| record.kind == Kind::Template) {
            Some(record) => self.learn(&record).map(|()| true),
            None => Ok(false),
        }
    }

    /// Takes a record that introduces a template.
    pub(in crate::provider::shm) fn learn(&mut self, record: &Record) -> Result<(), BadRing> {
        let mut octets = [0; HeaderTemplate::LEN_MAX];
        let octets = octets.get_mut(..record.length).ok_or(BadRing)?;
        self.segment.memory().copy_to(record.at + HEADER, octets);
        self.templates.learn(record.handle, octets).ok_or(BadRing)?;
        self.advance(record);
        Ok(())
    }

    /// Returns the template of a number, if it was introduced.
    #[inline]
    pub(in crate::provider::shm) fn template(&self, id: TemplateId) -> Option<&HeaderTemplate> {
        self.templates.get(id)
    }

    /// Copies the next record into `sink` and takes it, if it is a whole plain message that fits there. Returns its
    /// length.
    #[inline]
    pub(in crate::provider::shm) fn take_plain(&mut self, sink: &mut Sink) -> Option<usize> {
        let (header, offset) = (self.header(), self.offset());
        // The handle of a plain message is 0, as are the bits above its length. An empty word is no plain message.
        let length = usize::try_from(header >> LENGTH_AT).ok()?;
        if header & KIND_MASK == Kind::Squeezed.code() {
            return self.take_squeezed(header, sink, length);
        }
        if header & KIND_MASK == Kind::Series.code() {
            return self.take_of_series(header, sink);
        }
        if header & KIND_MASK != Kind::Send.code() {
            return None;
        }
        if (HEADER + length) as u64 > self.capacity - offset {
            return None;
        }
        self.fetch_ahead(self.head, header);
        if !self.segment.memory().copy_out(at(offset) + HEADER, sink, 0, length) {
            return None;
        }
        self.head += span(length);
        Some(length)
    }

    #[inline]
    fn take_squeezed(&mut self, header: u64, sink: &mut Sink, length: usize) -> Option<usize> {
        let mut message = [0; SQUEEZED_MAX];
        let message = message.get_mut(..length).filter(|_| SQUEEZED.contains(&length))?;
        self.fetch_ahead(self.head, header);
        expand(self.line(), message);
        sink.place(0, message).ok()?;
        self.head += LINE as u64;
        Some(length)
    }

    /// Begins again to look at the records that were not taken.
    #[inline]
    pub(in crate::provider::shm) const fn look_again(&mut self) {
        (self.looked, self.looked_within) = (self.head, self.within);
    }

    /// Copies the next record that was not looked at to the beginning of `to`, without taking it, if it is a whole
    /// plain message that fits there.
    #[inline]
    pub(in crate::provider::shm) fn look(&mut self, to: &mut [u8]) -> Look {
        let line = self.segment.line(self.looked);
        let header = line.word().load(Ordering::Acquire);
        // A length has 32 bits; a plain message has no bits above it.
        let (kind, length) = (header & KIND_MASK, (header >> LENGTH_AT) as usize);
        if header == 0 {
            // Fetch the next line while this one is waited for.
            self.segment.line(self.looked + LINE as u64).prefetch();
            return Look::Nothing;
        }
        if kind == Kind::Series.code() {
            return Look::Series;
        }
        if length > to.len() {
            return Look::Other;
        }
        if kind == Kind::Send.code() && length <= LINE_OCTETS {
            // Copying the whole line is faster than a copy of the length.
            match to.first_chunk_mut() {
                Some(to) => line.copy_to(to),
                None => {
                    let mut octets = [0; LINE_OCTETS];
                    line.copy_to(&mut octets);
                    to[..length].copy_from_slice(&octets[..length]);
                }
            }
        } else if kind == Kind::Squeezed.code() && SQUEEZED.contains(&length) {
            expand(line, &mut to[..length]);
        } else {
            return self.look_at_long(header, to, length);
        }
        self.fetch_ahead(self.looked, header);
        self.looked += LINE as u64;
        Look::Plain(length)
    }

    /// Returns the kind of the next record that was not looked at: nothing, a series, or anything else.
    #[inline]
    pub(in crate::provider::shm) fn glance(&self) -> Look {
        match self.segment.line(self.looked).word().load(Ordering::Acquire) {
            0 => Look::Nothing,
            header if header & KIND_MASK == Kind::Series.code() => Look::Series,
            _ => Look::Other,
        }
    }

    /// Like [`look`](Self::look), for a message of several lines.
    #[inline(never)]
    fn look_at_long(&mut self, header: u64, to: &mut [u8], length: usize) -> Look {
        let offset = self.looked & (self.capacity - 1);
        if header & KIND_MASK != Kind::Send.code()
            || (HEADER + length) as u64 > self.capacity - offset
        {
            return Look::Other;
        }
        self.fetch_ahead(self.looked, header);
        self.segment.memory().copy_to(at(offset) + HEADER, &mut to[..length]);
        self.looked += span(length);
        Look::Plain(length)
    }

    /// Like [`look`](Self::look), for a message that invalidates a handle: returns its length and the handle, or the
    /// kind of record that is there instead.
    #[inline]
    pub(in crate::provider::shm) fn look_invalidating(
        &mut self,
        to: &mut [u8],
    ) -> Result<(usize, Handle), Look> {
        let header = self.segment.line(self.looked).word().load(Ordering::Acquire);
        if header == 0 {
            return Err(Look::Nothing);
        }
        let offset = self.looked & (self.capacity - 1);
        let length = (header >> LENGTH_AT & LENGTH_MAX) as usize;
        if header & KIND_MASK != Kind::SendInvalidate.code()
            || (HEADER + length) as u64 > self.capacity - offset
        {
            return Err(Look::Other);
        }
        let to = to.get_mut(..length).ok_or(Look::Other)?;
        self.fetch_ahead(self.looked, header);
        self.segment.memory().copy_to(at(offset) + HEADER, to);
        self.looked += span(length);
        Ok((length, Handle((header >> 32) as u32)))
    }

    /// Takes all messages that were looked at.
    #[inline]
    pub(in crate::provider::shm) const fn pass(&mut self) {
        (self.head, self.within) = (self.looked, self.looked_within);
    }

    /// Takes the first `count` of the messages that were looked at.
    #[cold]
    pub(in crate::provider::shm) fn pass_some(&mut self, count: usize) {
        for _ in 0..count {
            // A peer that changes its records spoils only its own messages.
            let Ok(Some(record)) = self.peek() else { break };
            self.advance(&record);
        }
    }

    /// Copies `length` octets of a record, beginning at `from`, to `at` in `sink`; returns whether it has room there.
    #[inline]
    pub(in crate::provider::shm) fn copy(
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
        if let Some(shape) = &record.series {
            return self.copy_of_series(shape, from..end, sink, at);
        }
        let memory = self.segment.memory();
        if record.kind != Kind::Squeezed {
            return memory.copy_out(record.at + HEADER + from, sink, at, length);
        }
        let mut message = [0; SQUEEZED_MAX];
        let Some(message) = message.get_mut(..record.length) else { return false };
        expand(self.line(), message);
        message.get(from..end).is_some_and(|part| sink.place(at, part).is_ok())
    }

    /// Takes the record that was looked at.
    #[inline]
    pub(in crate::provider::shm) fn advance(&mut self, record: &Record) {
        match &record.series {
            Some(shape) => self.take_one_of(shape, record.length),
            None => self.head += record.span(),
        }
    }

    /// Gives the room of taken records back to the producer; returns whether there is any.
    #[inline]
    pub(in crate::provider::shm) fn release(&mut self) -> bool {
        let is_taken = self.head != self.released;
        if is_taken {
            self.released = self.head;
            self.segment.head().store(self.head, Ordering::Release);
        }
        is_taken
    }

    /// Asks for a doorbell with the next record. A consumer that is about to sleep then issues a
    /// [`barrier::heavy`](crate::sys::barrier::heavy) and looks once more.
    pub(in crate::provider::shm) fn ask_for_doorbell(&self) {
        self.segment.waits().store(1, Ordering::Relaxed);
    }

    /// Withdraws the request for a doorbell.
    pub(in crate::provider::shm) fn need_no_doorbell(&self) {
        self.segment.waits().store(0, Ordering::Relaxed);
    }

    /// Returns whether there is a record, or an invalid word.
    #[inline]
    pub(in crate::provider::shm) fn has_record(&self) -> bool {
        self.header() != 0
    }

    /// Looks for a record at most `looks` times; returns whether there is one. Also prefetches the next line: many
    /// messages are on two, and the second comes while the first is waited for.
    #[inline]
    pub(in crate::provider::shm) fn await_record(&self, looks: u32) -> bool {
        self.segment.line(self.head + LINE as u64).prefetch();
        (0..looks).any(|_| self.header() != 0)
    }

    /// Prefetches lines that became visible with the one at `position`, where `header` is. The producer's count of them
    /// is trusted for nothing else.
    #[inline]
    fn fetch_ahead(&mut self, position: u64, header: u64) {
        if header & AHEAD_MAX << AHEAD_AT != 0 || self.fetched != self.visible {
            self.fetch_more(position, header);
        }
    }

    #[inline(never)]
    fn fetch_more(&mut self, position: u64, header: u64) {
        let ahead = header >> AHEAD_AT & AHEAD_MAX;
        if ahead != 0 {
            self.visible = position + (1 + ahead) * LINE as u64;
            self.fetched = position + LINE as u64;
        }
        let end = self.visible.min(position + DISTANCE);
        while self.fetched < end {
            self.segment.line(self.fetched).prefetch();
            self.fetched += LINE as u64;
        }
    }

    /// Returns the record at the start of the ring, behind a `Skip`.
    #[cold]
    fn skip(&mut self) -> Result<Option<Record>, BadRing> {
        let offset = self.offset();
        if offset == 0 {
            return Err(BadRing);
        }
        self.head += self.capacity - offset;
        // The record at the start was written before the `Skip`, or the start is the end of the visible records.
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
        // Short parts would let a peer keep us busy with nothing.
        let wrong = length > part_max || kind == Kind::Part && length != part_max;
        let offset = self.offset();
        if kind == Kind::Series {
            let (shape, length) = self.decode_series(header).ok_or(BadRing)?;
            let (handle, at) = (Handle(0), at(offset));
            return Ok(Record { kind, handle, length, at, series: Some(shape) });
        }
        let length = usize::try_from(length).map_err(|_| BadRing)?;
        let wrong = wrong || kind == Kind::Squeezed && !SQUEEZED.contains(&length);
        let handle = Handle(u32::try_from(handle).map_err(|_| BadRing)?);
        let record = Record { kind, handle, length, at: at(offset), series: None };
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
        self.segment.line(self.head)
    }

    #[inline]
    const fn offset(&self) -> u64 {
        self.head & (self.capacity - 1)
    }
}
