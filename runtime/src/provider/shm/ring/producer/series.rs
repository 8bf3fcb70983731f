//! Writing a series: beginning one, and joining messages to it.

use std::sync::atomic::Ordering;

use haulage_proto::verbs::{HeaderPatch, NamedTemplate};

use super::Producer;
use crate::provider::shm::ring::series::{self, Entry, SPAN_MAX, Series};
use crate::provider::shm::ring::templates::describe;
use crate::provider::shm::ring::{BadRing, HEADER, Kind, SPARE, header};
use crate::sys::shared::{LINE, LINE_OCTETS, last_word};

impl Producer {
    /// Puts a message, of a template and `body`, behind the others, as [`push`](Self::push) does. It has at most
    /// [`JOINING_MAX`](crate::provider::shm::ring::JOINING_MAX) octets.
    #[inline(always)]
    pub(in crate::provider::shm) fn push_like(
        &mut self,
        like: NamedTemplate<'_>,
        patch: HeaderPatch,
        body: &[u8],
    ) -> Result<bool, BadRing> {
        if self.series.takes(like.id, patch.credit) && self.join(patch.xid, body) {
            return Ok(true);
        }
        self.begin_series(like, patch, body)
    }

    /// Puts a message, of a template and `body`, behind the others and shows the consumer all records, as
    /// [`push_alone`](Self::push_alone) does.
    #[inline(never)]
    pub(in crate::provider::shm) fn push_like_alone(
        &mut self,
        like: NamedTemplate<'_>,
        patch: HeaderPatch,
        body: &[u8],
    ) -> Result<Option<bool>, BadRing> {
        let entry = Entry { xid: patch.xid, body: body.len() };
        let length = entry.span();
        let is_plain = length <= LINE_OCTETS as u64 && self.introduced.has(like.id);
        if self.is_filled() || !is_plain {
            return Ok(self.push_like(like, patch, body)?.then(|| self.publish()));
        }
        if !self.has_room_for(LINE as u64)? {
            return Ok(None);
        }
        let mut words = series::line(entry);
        if !body.is_empty() {
            let places = words.iter_mut().skip(1);
            places.zip(body.chunks(8)).for_each(|(place, octets)| *place = last_word(octets));
        }
        // No line has to be kept back, as the header is stored next.
        self.segment.line(self.tail).store(&words);
        self.tail += LINE as u64;
        Ok(Some(self.show(series::header(like.id, patch.credit, length))))
    }

    /// Puts a message into the series; false if the series has no more room.
    #[inline(always)]
    fn join(&mut self, xid: u32, body: &[u8]) -> bool {
        let entry = Entry { xid, body: body.len() };
        let end = self.series.end + entry.span();
        let fits = end <= self.tail || self.stretch_series(end);
        if fits {
            self.put_entry(entry, body);
        }
        fits
    }

    /// Extends the series to the lines up to `end`; false if it may not reach there.
    #[inline(never)]
    fn stretch_series(&mut self, end: u64) -> bool {
        let (start, tail) = (self.series.start, end.next_multiple_of(LINE as u64));
        let left = self.capacity - self.offset(start);
        let reaches = tail - start <= SPAN_MAX.min(left) && tail + SPARE <= self.limit;
        if reaches {
            self.tail = tail;
        }
        reaches
    }

    /// Begins a series with a message, which others with the same template may join.
    #[inline(never)]
    fn begin_series(
        &mut self,
        like: NamedTemplate<'_>,
        HeaderPatch { xid, credit }: HeaderPatch,
        body: &[u8],
    ) -> Result<bool, BadRing> {
        self.end_series();
        if !self.introduced.has(like.id) && !self.introduce(like)? {
            return Ok(false);
        }
        let entry = Entry { xid, body: body.len() };
        let length = entry.span();
        let span = (HEADER as u64 + length).next_multiple_of(LINE as u64);
        if !self.has_room_for(span)? {
            return Ok(false);
        }
        let start = self.tail;
        self.tail += span;
        if start == self.published {
            self.first.header = series::header(like.id, credit, length);
        }
        let header = series::header(like.id, credit, 0);
        self.series = Series { header, start, end: start + HEADER as u64 };
        self.put_entry(entry, body);
        Ok(true)
    }

    /// Puts a template behind the other records; false if there is no room.
    #[cold]
    fn introduce(&mut self, like: NamedTemplate<'_>) -> Result<bool, BadRing> {
        let octets = like.template.octets();
        let header = header(Kind::Template, describe(like), octets.len());
        let has_room = self.push_first(header, octets)?;
        if has_room {
            self.introduced.insert(like.id);
        }
        Ok(has_room)
    }

    /// Writes the length of the series, if there is one, and lets no more messages join it.
    #[inline]
    pub(super) fn end_series(&mut self) {
        let Some(header) = self.series.close() else { return };
        let start = self.series.start;
        if start == self.published {
            self.first.header = header;
        } else {
            self.segment.line(start).word().store(header, Ordering::Relaxed);
        }
    }

    /// Writes an entry at the end of the series, where there is room for it.
    #[inline(always)]
    fn put_entry(&mut self, entry: Entry, body: &[u8]) {
        let at = self.series.end;
        self.put_word(at, entry.encode());
        if !body.is_empty() {
            self.put_body(at + 8, body);
        }
        self.series.end = at + entry.span();
    }

    #[inline(never)]
    fn put_body(&mut self, mut at: u64, body: &[u8]) {
        let (words, rest) = body.as_chunks();
        for word in words {
            self.put_word(at, u64::from_ne_bytes(*word));
            at += 8;
        }
        if !rest.is_empty() {
            self.put_word(at, last_word(rest));
        }
    }

    /// Writes a double word of the series, to the line that is kept back if it belongs there.
    #[inline]
    fn put_word(&mut self, at: u64, word: u64) {
        if at - self.published >= LINE as u64 {
            self.segment.word(at).store(word, Ordering::Relaxed);
        } else if let Some(kept) = self.first.at(at - self.published) {
            *kept = word;
        }
    }
}
