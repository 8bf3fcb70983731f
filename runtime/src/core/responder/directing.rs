//! What a Call says of how its results are to come (round-trip extensions).

use haulage_mr_pool::Local;
use haulage_proto::chunk::WriteChunk;
use haulage_proto::rpc::ReplyHeader;
use haulage_proto::rtrext::direction::Directed;
use haulage_proto::rtrext::properties::Terms;
use haulage_proto::rtrext::respond::Asked;
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::v2::header::Prefix;

use crate::items::Items;
use crate::outgoing::segments::Segments;

/// The directions of a Call for its results.
#[derive(Debug)]
pub(crate) struct Directing {
    pub(super) asked: Asked,
    /// Octets of the longest result that can come along with the Reply.
    along_max: usize,
    /// Memory for each message of the Reply; none if no result may come along with it.
    pub(super) rooms: Vec<Local>,
}

impl Directing {
    /// Keeps directions of which nothing is known yet.
    pub(super) const fn new(asked: Asked) -> Self {
        Self { asked, along_max: 0, rooms: Vec::new() }
    }

    /// Settles how many messages the Reply may have, of which there are credits for `messages_max` at most, and how long a
    /// result may be that comes along with the shortest Reply. A longer one may have no room for it.
    ///
    /// # Errors
    /// There are fewer credits than that, and the Call leaves no other way. Of all errors, the one returned has it go again
    /// by chunks, as nothing of it was carried out.
    pub(super) fn settle(&mut self, terms: &Terms, messages_max: u32) -> Result<(), ErrorBody> {
        let further_max = terms.response_send_max.saturating_sub(1);
        // [RTR-5.2-1] no more messages than the Call has reserved Receives for.
        //~ RTR-5.2-1: `self.asked.rsbuf.min(further_max)` -> `further_max`
        self.asked.rsbuf = self.asked.rsbuf.min(further_max);
        if self.asked.rsbuf >= messages_max {
            if self.has_to_send() {
                return Err(ErrorBody::InvalHtype);
            }
            self.asked.rsbuf = messages_max.saturating_sub(1);
        }
        let front = Prefix::WIRE_LEN + ReplyHeader::SUCCESS_LEN;
        self.along_max = terms.theirs.room_behind(front, terms.message_max, self.messages_max());
        Ok(())
    }

    /// Returns the most messages that the Reply has.
    pub(super) const fn messages_max(&self) -> usize {
        self.asked.rsbuf as usize + 1
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
