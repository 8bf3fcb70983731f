//! A Reply that follows the directions of its Call (round-trip extensions).

use haulage_mr_pool::Local;
use haulage_proto::rtrext::item::Item;
use haulage_proto::rtrext::plan::{Kind, Outgoing as Message, Piece, Plan, Source};
use haulage_proto::verbs::HeaderPatch;
use haulage_proto::xdr::{Truncated, Writer};

use crate::core::buffers::SendBuffers;
use crate::core::counters::CoreCounters;
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
}

impl Response {
    /// Writes the message, whose Payload stream is in `buffer`: into `whole` if it brings results, and into `buffer`
    /// otherwise. The results that are written go ahead of it.
    pub(super) fn seal(
        self,
        (buffer, whole): (Local, Option<Local>),
        patch: HeaderPatch,
        buffers: &mut SendBuffers,
    ) -> (Head<'static>, Outgoing) {
        let (mut buffer, header) = (buffer, (patch.xid, patch.credit));
        let kind = Kind::Response { count_max: 1 };
        let of = Message { kind, payload_length: self.length, items: &self.items };
        let octets = self.plan.length(0);
        let (mut message, range) = if let Some(mut whole) = whole {
            let w = &mut Writer::new(whole.bytes_mut().get_mut(..octets).unwrap_or_default());
            let payload = buffer.bytes().get(HEADER_ROOM..).unwrap_or_default();
            let written = self.plan.encode_header(w, 0, header, &of);
            let written = written.and_then(|()| self.write_pieces(w, payload));
            assert!(written.is_ok(), "the room is as long as the plan says");
            buffers.recycle(buffer);
            (Outgoing::within(whole), 0..octets)
        } else {
            let start = HEADER_ROOM - octets.saturating_sub(self.length);
            let room = buffer.bytes_mut().get_mut(start..HEADER_ROOM).unwrap_or_default();
            let written = self.plan.encode_header(&mut Writer::new(room), 0, header, &of);
            assert!(written.is_ok(), "the header room holds the longest header");
            (Outgoing::within(buffer), start..HEADER_ROOM + self.length)
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
        (Head::written(range, None), message)
    }

    /// Copies the parts of the message behind its header.
    fn write_pieces(&self, w: &mut Writer<'_>, payload: &[u8]) -> Result<(), Truncated> {
        for piece in self.plan.pieces(0) {
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
    }
}
