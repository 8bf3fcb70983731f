//! Reading a series: the octets behind the template of several messages, or one message made whole.

use std::ops::Range;
use std::sync::atomic::Ordering;

use haulage_mr_pool::Sink;
use haulage_proto::verbs::{HeaderPatch, HeaderTemplate, TemplateId};

use super::Consumer;
use crate::provider::shm::ring::at;
use crate::provider::shm::ring::series::{Entry, MESSAGE_MAX, Shape, span};

impl Consumer {
    /// Copies the next messages of the series that is next and was not looked at, as long as there are places for them
    /// and they have at most `length_max` octets: the octets of each behind the template go to `room`, one after the
    /// other. Returns the template's number, and the number of messages; `None` if there is no such series, or it has
    /// another template than `given`.
    #[inline]
    pub(in crate::provider::shm) fn look_at_series<'a>(
        &mut self,
        given: Option<TemplateId>,
        room: &mut &'a mut [u8],
        length_max: usize,
        (patches, bodies): (&mut [HeaderPatch], &mut [&'a [u8]]),
    ) -> Option<(TemplateId, usize)> {
        let header = self.segment.line(self.looked).word().load(Ordering::Acquire);
        let Shape { template, credit, end } = self.shape(header, self.looked)?;
        if given.is_some_and(|given| given != template) {
            return None;
        }
        let body_max = length_max.checked_sub(self.templates.get(template)?.len())?;
        self.fetch_ahead(self.looked, header);
        let (mut next, mut count) = (self.looked_within.max(Shape::ENTRIES), 0);
        for (patch, body) in patches.iter_mut().zip(bodies) {
            if next >= end {
                break;
            }
            let Some((entry, behind)) = self.entry(self.looked, next, end) else { break };
            *body = &[];
            if entry.body > 0 {
                if entry.body > body_max.min(room.len()) {
                    break;
                }
                let (new, rest) = std::mem::take(room).split_at_mut(entry.body);
                self.copy_body(self.looked + next, new);
                (*body, *room) = (new, rest);
            }
            *patch = HeaderPatch { xid: entry.xid, credit };
            (next, count) = (behind, count + 1);
        }
        self.looked_within = next;
        if next >= end {
            (self.looked, self.looked_within) = (self.looked + span(end), 0);
        }
        Some((template, count))
    }

    /// Copies the next message of a series into `sink` and takes it, if it fits there. Returns its length.
    pub(super) fn take_of_series(&mut self, header: u64, sink: &mut Sink) -> Option<usize> {
        let (shape, length) = self.decode_series(header)?;
        if !self.copy_of_series(&shape, 0..length, sink, 0) {
            return None;
        }
        self.fetch_ahead(self.head, header);
        self.take_one_of(&shape, length);
        Some(length)
    }

    /// Decodes the header of the next series; returns its shape and the length of its next message, if both are valid.
    pub(super) fn decode_series(&self, header: u64) -> Option<(Shape, usize)> {
        let shape = self.shape(header, self.head)?;
        let length = self.next_of(&shape, &mut [0; MESSAGE_MAX])?;
        Some((shape, length))
    }

    /// Copies a part of the next message of a series to `at` in `sink`; returns whether it has room there.
    pub(super) fn copy_of_series(
        &self,
        shape: &Shape,
        part: Range<usize>,
        sink: &mut Sink,
        at: usize,
    ) -> bool {
        let mut message = [0; MESSAGE_MAX];
        let is_there = self.next_of(shape, &mut message).is_some();
        is_there && message.get(part).is_some_and(|part| sink.place(at, part).is_ok())
    }

    /// Takes the next message of a series, of `length` octets.
    pub(super) fn take_one_of(&mut self, shape: &Shape, length: usize) {
        let header_len = self.templates.get(shape.template).map_or(0, HeaderTemplate::len);
        let entry = Entry { xid: 0, body: length.saturating_sub(header_len) };
        self.within = self.within.max(Shape::ENTRIES) + entry.span();
        if self.within >= shape.end {
            (self.head, self.within) = (self.head + span(shape.end), 0);
        }
    }

    /// Makes the next message of a series whole, at the beginning of `room`. Returns its length.
    fn next_of(&self, shape: &Shape, room: &mut [u8]) -> Option<usize> {
        let next = self.within.max(Shape::ENTRIES);
        let template = self.templates.get(shape.template)?;
        let (entry, _) = self.entry(self.head, next, shape.end)?;
        template.put(room, HeaderPatch { xid: entry.xid, credit: shape.credit })?;
        let body = room.get_mut(template.len()..)?.get_mut(..entry.body)?;
        self.copy_body(self.head + next, body);
        Some(template.len() + entry.body)
    }

    /// Decodes the header of a series at a position, if it is valid there.
    #[inline]
    fn shape(&self, header: u64, position: u64) -> Option<Shape> {
        let left = self.capacity - (position & (self.capacity - 1));
        Shape::decode(header).filter(|shape| shape.end <= left)
    }

    /// Returns the entry at offset `at` of the series that begins at `start`, and the offset of the next; `None` if no
    /// entry can be there.
    #[inline]
    fn entry(&self, start: u64, at: u64, end: u64) -> Option<(Entry, u64)> {
        let entry = Entry::decode(self.word(start + at))?;
        let behind = at + entry.span();
        (behind <= end).then_some((entry, behind))
    }

    /// Copies the octets behind the double word of an entry at a position.
    #[inline(never)]
    fn copy_body(&self, entry: u64, body: &mut [u8]) {
        let offset = (entry & (self.capacity - 1)) + 8;
        self.segment.memory().copy_to(at(offset), body);
    }

    #[inline]
    fn word(&self, position: u64) -> u64 {
        self.segment.word(position).load(Ordering::Relaxed)
    }
}
