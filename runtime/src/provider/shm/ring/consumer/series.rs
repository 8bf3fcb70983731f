//! Messages of a series, each made whole again.

use std::ops::Range;
use std::sync::atomic::Ordering;

use haulage_mr_pool::Sink;

use super::Consumer;
use crate::provider::shm::ring::series::{Entry, HEADERS_MAX, MESSAGE_MAX, Shape};
use crate::provider::shm::ring::{HEADER, at};

impl Consumer {
    /// Copies messages of the series that is next and was not looked at to `room`, one behind the other, as long
    /// as they fit there, and have at most `length_max` octets each, and are no more than `messages` has places
    /// for. Returns how many.
    #[inline]
    pub(in crate::provider::shm) fn look_at_series<'a>(
        &mut self,
        room: &mut &'a mut [u8],
        length_max: usize,
        messages: &mut [&'a [u8]],
    ) -> usize {
        let header = self.segment.line(self.looked).word().load(Ordering::Acquire);
        let Some(shape) = self.shape(header, self.looked) else { return 0 };
        self.fetch_ahead(self.looked, header);
        let headers = self.headers_of(&shape, self.looked);
        let end = self.looked + shape.end();
        let mut next = self.looked + self.looked_within.max(shape.first_entry());
        let mut count = 0;
        for message in messages {
            if next >= end {
                break;
            }
            let Some((length, behind)) = self.make(&shape, &headers, next..end, room) else {
                break;
            };
            if length > length_max {
                break;
            }
            (*message, *room) = std::mem::take(room).split_at_mut(length);
            (next, count) = (behind, count + 1);
        }
        self.looked_within = next - self.looked;
        if next >= end {
            (self.looked, self.looked_within) = (self.looked + shape.span(), 0);
        }
        count
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

    /// Returns what a header says of the series that is next, and the length of the next message of that, if there
    /// can be one.
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

    /// Takes the next message of a series, which has so many octets.
    pub(super) fn take_one_of(&mut self, shape: &Shape, length: usize) {
        let entry = Entry { xid: 0, body: length.saturating_sub(shape.headers) };
        self.within = self.within.max(shape.first_entry()) + entry.span();
        if self.within >= shape.end() {
            (self.head, self.within) = (self.head + shape.span(), 0);
        }
    }

    /// Makes the next message of a series at the beginning of `room`. Returns its length.
    fn next_of(&self, shape: &Shape, room: &mut [u8]) -> Option<usize> {
        let next = self.head + self.within.max(shape.first_entry());
        let headers = self.headers_of(shape, self.head);
        self.make(shape, &headers, next..self.head + shape.end(), room).map(|(length, _)| length)
    }

    /// Returns what a header at a position says of a series, if there can be such a one.
    #[inline]
    fn shape(&self, header: u64, position: u64) -> Option<Shape> {
        let left = self.capacity - (position & (self.capacity - 1));
        Shape::decode(header).filter(|shape| shape.end() <= left)
    }

    /// Returns the headers of a series at a position, without their XIDs.
    #[inline]
    fn headers_of(&self, shape: &Shape, position: u64) -> [u8; HEADERS_MAX] {
        let mut headers = [0; HEADERS_MAX];
        let words = headers.as_chunks_mut().0;
        let mut next = position + HEADER as u64;
        for place in shape.places() {
            if let Some(word) = words.get_mut(place) {
                *word = self.word(next).to_ne_bytes();
            }
            next += 8;
        }
        headers
    }

    /// Makes a message of the headers of its series and the entry that is first in a range of positions, at the
    /// beginning of `room`; `None` if there is no such entry, or it does not fit. Returns its length, and where the
    /// next entry is.
    #[inline]
    fn make(
        &self,
        shape: &Shape,
        headers: &[u8; HEADERS_MAX],
        Range { start, end }: Range<u64>,
        room: &mut [u8],
    ) -> Option<(usize, u64)> {
        let entry = Entry::decode(self.word(start))?;
        let behind = start + entry.span();
        if behind > end {
            return None;
        }
        // All the room there can be for headers, as that is faster than to look how much of it.
        let message = room.first_chunk_mut()?;
        *message = *headers;
        shape.put_xid(message, entry.xid);
        if entry.body > 0 {
            let body = room.get_mut(shape.headers..)?.get_mut(..entry.body)?;
            let offset = (start & (self.capacity - 1)) + 8;
            self.segment.memory().copy_to(at(offset), body);
        }
        Some((shape.headers + entry.body, behind))
    }

    #[inline]
    fn word(&self, position: u64) -> u64 {
        self.segment.word(position).load(Ordering::Relaxed)
    }
}
