//! A Reply that follows the directions of its Call (round-trip extensions).

use haulage_mr_pool::Local;
use haulage_proto::rtrext::item::Item;
use haulage_proto::rtrext::plan::{Kind, Outgoing as Message, Piece, Plan, Source};
use haulage_proto::verbs::HeaderPatch;
use haulage_proto::xdr::{Truncated, Writer};

use crate::core::buffers::SendBuffers;
use crate::core::counters::CoreCounters;
use crate::items::Items;
use crate::limits::HEADER_ROOM;
use crate::outgoing::segments::Segments;
use crate::provider::{Head, Outgoing};
use crate::service::Data;

/// A Reply that follows directions.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) plan: Plan,
    /// The answers to the directions.
    pub(super) items: Vec<Item<Source>>,
    /// The octets of each item.
    pub(super) data: Vec<Data>,
    /// Octets of the Payload stream.
    pub(super) length: usize,
    /// Memory for each message; none if the only one is made where the Payload stream is.
    pub(super) rooms: Vec<Local>,
}

impl Response {
    /// Writes the messages, whose Payload stream is in `buffer`: into their rooms, or the only one into `buffer` if it has
    /// none. The results that are written go ahead of the first.
    pub(super) fn seal(
        mut self,
        mut buffer: Local,
        patch: HeaderPatch,
        buffers: &mut SendBuffers,
    ) -> Items<(Head<'static>, Outgoing)> {
        let header = (patch.xid, patch.credit);
        let kind = Kind::Response { count_max: 0 }; // the plan has the number
        let of = Message { kind, payload_length: self.length, items: &self.items };
        let rooms = std::mem::take(&mut self.rooms);
        let mut messages: Items<_> = if rooms.is_empty() {
            let start = HEADER_ROOM - self.plan.length(0).saturating_sub(self.length);
            let room = buffer.bytes_mut().get_mut(start..HEADER_ROOM).unwrap_or_default();
            let written = self.plan.encode_header(&mut Writer::new(room), 0, header, &of);
            assert!(written.is_ok(), "the header room holds the longest header");
            let head = Head::written(start..HEADER_ROOM + self.length, None);
            Items::One((head, Outgoing::within(buffer)))
        } else {
            let payload = buffer.bytes().get(HEADER_ROOM..).unwrap_or_default();
            let written = rooms.into_iter().enumerate().map(|(nth, mut room)| {
                let octets = self.plan.length(nth);
                let w = &mut Writer::new(room.bytes_mut().get_mut(..octets).unwrap_or_default());
                let written = self.plan.encode_header(w, nth, header, &of);
                let written = written.and_then(|()| self.write_pieces(w, nth, payload));
                assert!(written.is_ok(), "the room is as long as the plan says");
                (Head::written(0..octets, None), Outgoing::within(room))
            });
            let written = written.collect();
            buffers.recycle(buffer);
            written
        };
        let Some((_, message)) = messages.as_mut_slice().first_mut() else {
            panic!("a response has a message")
        };
        for (item, data) in self.items.into_iter().zip(self.data) {
            // [RTR-7.4-3]
            //~ RTR-7.4-3: `= item.place` -> `= item.place && patch.xid == 0`
            if let Source::Exrw(segments) = item.place {
                // [RTR-7.4-2]
                //~ RTR-7.4-2: `into_iter()` -> `into_iter().take(1)`
                message.write(data, Segments::collect(segments.into_iter()));
            }
        }
        messages
    }

    /// Copies the parts of a message behind its header.
    fn write_pieces(
        &self,
        w: &mut Writer<'_>,
        message: usize,
        payload: &[u8],
    ) -> Result<(), Truncated> {
        for piece in self.plan.pieces(message) {
            match piece {
                Piece::Payload(range) => w.put(payload.get(range).unwrap_or_default())?,
                Piece::Zeros(count) => (0..count).try_for_each(|_| w.put([0]))?,
                Piece::Item(item, range) => {
                    let parts = self.data.get(item).into_iter();
                    let mut parts = parts.flat_map(|data| data.parts_of(range.clone()));
                    parts.try_for_each(|part| w.put(part))?;
                }
            }
        }
        Ok(())
    }

    /// Counts the results that go along with the message.
    pub(super) fn count(&self, counters: &mut CoreCounters) {
        let sent = self.items.iter().filter(|item| item.place == Source::Send);
        counters.results_sent_along += sent.clone().count() as u64;
        counters.bytes_along += sent.map(|item| u64::from(item.length)).sum::<u64>();
        if self.rooms.len() > 1 {
            counters.parts_sent += self.rooms.len() as u64;
        }
    }
}
