//! What a Call says of how its results are to come (round-trip extensions).

use haulage_proto::chunk::WriteChunk;
use haulage_proto::rpc::ReplyHeader;
use haulage_proto::rtrext::direction::Directed;
use haulage_proto::rtrext::properties::Terms;
use haulage_proto::rtrext::respond::Asked;
use haulage_proto::v2::header::Prefix;

use crate::items::Items;
use crate::outgoing::segments::Segments;

/// The directions of a Call for its results.
#[derive(Debug)]
pub(crate) struct Directing {
    pub(super) asked: Asked,
    /// Octets of the longest result that can come along with the Reply.
    pub(super) along_max: usize,
}

impl Directing {
    /// Keeps directions of which nothing is known yet.
    pub(super) const fn new(asked: Asked) -> Self {
        Self { asked, along_max: 0 }
    }

    /// Notes how long a result may be that comes along with the shortest Reply. A longer Reply may have no room for it.
    pub(super) fn settle(&mut self, terms: &Terms) {
        let front = Prefix::WIRE_LEN + ReplyHeader::SUCCESS_LEN;
        self.along_max = terms.theirs.room_behind(front, terms.message_max);
    }

    /// Returns whether a result may come along with the Reply.
    pub(super) fn may_send(&self) -> bool {
        // [RTR-6.2-3]
        //~ RTR-6.2-3: `Directed::Exrw(_)` -> `Directed::Exrw(_) | Directed::BySize { .. }`
        self.has(|place| !matches!(place, Directed::Exrw(_)))
    }

    /// Returns whether a result may come in no other way.
    pub(super) fn has_to_send(&self) -> bool {
        self.has(|place| matches!(place, Directed::Tbsn))
    }

    fn has(&self, f: impl Fn(&Directed<WriteChunk<'_>>) -> bool) -> bool {
        let directions = self.asked.directions.get();
        directions.iter().flat_map(|set| set.items.iter()).any(|direction| f(&direction.place))
    }

    /// Returns the octets that each result may have, of which those that come by RDMA Write have these rooms.
    pub(super) fn offered(&self, writes: &[Segments]) -> Items<u64> {
        let directions = self.asked.directions.get();
        let directions = directions.iter().flat_map(|set| set.items.iter());
        let room = directions.zip(writes).map(|(direction, write)| match direction.place {
            Directed::Exrw(_) => write.length(),
            // [RTR-6.2-2]
            //~ RTR-6.2-2: `self.along_max as u64` -> `0`
            Directed::Tbsn => self.along_max as u64,
            Directed::Choice(_) | Directed::BySize { .. } => {
                // [RTR-5.3-6] what has no room in the message may be written.
                //~ RTR-5.3-6: `write.length().max(self.along_max as u64)` -> `self.along_max as u64`
                write.length().max(self.along_max as u64)
            }
        });
        room.collect()
    }
}
