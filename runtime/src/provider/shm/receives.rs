//! The shared receive queue.

use haulage_mr_pool::Sink;
use haulage_proto::verbs::WrId;

use super::ring::{Consumer, Record};
use crate::provider::Receive;
use crate::sys::shared::prefetch_sink;

/// Receives, oldest first.
#[derive(Debug, Default)]
pub(super) struct Receives(Queue);

/// A Receive that a connection fills part by part.
#[derive(Debug)]
pub(super) struct Filling {
    receive: Receive,
    /// Octets filled.
    filled: usize,
}

impl Receives {
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends the first `count` Receives of `batch`, and removes them from it.
    pub(super) fn append(&mut self, batch: &mut Vec<Receive>, count: usize) {
        self.0.reserve(count);
        batch.drain(..count).for_each(|receive| self.0.place_last(receive));
    }

    /// Fills the first Receive with the next record and uses it up, if the record is a whole plain message and the
    /// Receive has one buffer, which holds it. Returns the Receive's id and the message's length.
    #[inline]
    pub(super) fn fill_first(&mut self, consumer: &mut Consumer) -> Option<(WrId, usize)> {
        let place = self.0.front_mut()?;
        let receive = place.as_mut().filter(|receive| receive.rest.is_empty())?;
        let length = consumer.take_plain(&mut receive.first)?;
        let id = receive.id;
        *place = None;
        self.0.skip_front();
        // The next message will be copied there, and its line may be in no cache of ours.
        if let Some(Some(next)) = self.0.front_mut() {
            prefetch_sink(&next.first);
        }
        Some((id, length))
    }

    /// Takes the first Receive.
    pub(super) fn take(&mut self) -> Option<Filling> {
        Some(Filling { receive: self.0.pop_front()?, filled: 0 })
    }

    /// Puts back a Receive that was not used up.
    pub(super) fn put_back(&mut self, filling: Filling) {
        self.0.push_front(filling.receive);
    }
}

impl Filling {
    /// Returns whether `length` more octets fit.
    pub(super) fn has_room(&self, length: usize) -> bool {
        let capacity = self.receive.sinks().map(Sink::len).fold(0, usize::saturating_add);
        length <= capacity.saturating_sub(self.filled)
    }

    /// Appends the octets of a record, for which there is room. Returns whether all of them were there: a peer can
    /// change the memory that the record was decoded from.
    #[must_use]
    pub(super) fn append(&mut self, consumer: &Consumer, record: &Record) -> bool {
        let (mut skip, mut from) = (self.filled, 0);
        for sink in self.receive.sinks_mut() {
            let length = sink.len().saturating_sub(skip).min(record.length - from);
            if !consumer.copy(record, from, sink, skip.min(sink.len()), length) {
                return false;
            }
            from += length;
            skip = skip.saturating_sub(sink.len());
        }
        self.filled += from;
        true
    }

    /// Ends the Receive; returns its id and the octets of its message.
    pub(super) fn finish(self) -> (WrId, usize) {
        (self.receive.id, self.filled)
    }
}

/// A queue whose capacity is a power of two, so that finding the first entry is cheap.
#[derive(Debug, Default)]
struct Queue {
    places: Box<[Option<Receive>]>,
    /// The index of the first entry, modulo the number of places.
    first: usize,
    length: usize,
}

impl Queue {
    const fn len(&self) -> usize {
        self.length
    }

    const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Makes room for `more` entries.
    fn reserve(&mut self, more: usize) {
        let places = (self.length + more).next_power_of_two();
        if places <= self.places.len() {
            return;
        }
        let mut grown = Vec::with_capacity(places);
        grown.extend(std::iter::from_fn(|| self.pop_front()).map(Some));
        (self.first, self.length) = (0, grown.len());
        grown.resize_with(places, || None);
        self.places = grown.into();
    }

    #[cfg(test)]
    fn push_back(&mut self, receive: Receive) {
        self.reserve(1);
        self.place_last(receive);
    }

    /// Appends an entry, for which there is room.
    #[inline]
    fn place_last(&mut self, receive: Receive) {
        let place = self.place(self.length);
        if let Some(place) = self.places.get_mut(place) {
            *place = Some(receive);
            self.length += 1;
        }
    }

    fn push_front(&mut self, receive: Receive) {
        self.reserve(1);
        self.first = self.first.wrapping_sub(1);
        let place = self.place(0);
        if let Some(place) = self.places.get_mut(place) {
            *place = Some(receive);
            self.length += 1;
        }
    }

    #[inline]
    fn front_mut(&mut self) -> Option<&mut Option<Receive>> {
        if self.length == 0 {
            return None;
        }
        let place = self.place(0);
        self.places.get_mut(place)
    }

    fn pop_front(&mut self) -> Option<Receive> {
        let front = self.front_mut()?.take();
        self.skip_front();
        front
    }

    /// Removes the first entry, which has been taken out of its place.
    #[inline]
    const fn skip_front(&mut self) {
        self.first = self.first.wrapping_add(1);
        self.length -= 1;
    }

    #[inline]
    const fn place(&self, nth: usize) -> usize {
        self.first.wrapping_add(nth) & self.places.len().wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::os::fd::AsFd as _;
    use std::sync::atomic::Ordering;

    use haulage_mr_pool::{PagePreference, Pool, PoolConfig};
    use haulage_proto::verbs::{
        HeaderPatch, HeaderTemplate, NamedTemplate, PatchOffsets, TemplateId,
    };

    use super::super::ring::Producer;
    use super::super::segment::{Layout, RING, Segment};
    use super::*;
    use crate::sys::barrier::Barrier;

    #[test]
    fn a_message_the_peer_changes_between_two_looks_is_not_appended() {
        let layout = Layout::new(4096, 1).unwrap();
        let (ours, fd) = Segment::create(layout).unwrap();
        let theirs = Segment::open(fd.as_fd(), layout).unwrap();
        let (mut producer, mut consumer) =
            (Producer::new(ours, Barrier::Full), Consumer::new(theirs));
        let patch = HeaderPatch { xid: 7, credit: 1 };
        let offsets = PatchOffsets { xid: [0, 0], credit: 8 };
        let template = HeaderTemplate::new(&[1; 12], offsets).unwrap();
        let like = NamedTemplate { id: TemplateId::new(3).unwrap(), template: &template };
        assert_eq!(producer.push_like(like, patch, b"four"), Ok(true));
        producer.publish();
        assert_eq!(consumer.learn_next(), Ok(true));
        let config = PoolConfig { bytes: 1 << 16, pages: PagePreference::Heap, node: None };
        let mut posted = Pool::new(&config).unwrap().lease(256).unwrap().into_sink();
        let receive = Receive::single(WrId(1), posted.sink(0..256).unwrap());
        let mut filling = Filling { receive, filled: 0 };

        let record = consumer.peek().unwrap().expect("a record");
        assert!(filling.has_room(record.length));
        // The only entry of the series is behind its header, a line after the record of the template.
        let entry = producer.segment().memory().u64_at(RING + 64 + 8);
        let said = entry.swap(u64::MAX, Ordering::SeqCst);
        assert!(!filling.append(&consumer, &record), "a message that is gone was appended");
        assert_eq!(filling.filled, 0);
        entry.store(said, Ordering::SeqCst);
        assert!(filling.append(&consumer, &record));
        assert_eq!(filling.finish(), (WrId(1), record.length));
    }

    #[test]
    fn a_queue_keeps_its_order_as_it_grows_at_both_ends() {
        let config = PoolConfig { bytes: 1 << 16, pages: PagePreference::Heap, node: None };
        let mut posted = Pool::new(&config).unwrap().lease(1).unwrap().into_sink();
        let mut receive = |id| Receive::single(WrId(id), posted.sink(0..1).unwrap());
        let mut queue = Queue::default();
        let mut model = VecDeque::new();
        for step in 0..1000_u64 {
            match step * 7 % 11 {
                0..=4 => {
                    queue.push_back(receive(step));
                    model.push_back(step);
                }
                5 => {
                    queue.push_front(receive(step));
                    model.push_front(step);
                }
                _ => {
                    let front = queue.front_mut().and_then(|place| Some(place.as_ref()?.id.0));
                    assert_eq!(front, model.front().copied());
                    assert_eq!(queue.pop_front().map(|receive| receive.id.0), model.pop_front());
                }
            }
            assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
        }
    }
}
