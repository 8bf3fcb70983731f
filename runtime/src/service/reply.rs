//! The Reply that a service makes, and the data that it sends.

use haulage_mr_pool::Local;
use haulage_proto::exchange::Shortage;
use haulage_proto::rpc::{AcceptStat, ReplyHeader};
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::xdr::{Truncated, Writer};

use crate::limits::HEADER_ROOM;
use crate::outgoing::{Data, Outgoing};

/// How a service answers a Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The reply is complete.
    Done,
    /// There are no results; the RPC layer says why.
    Failed(AcceptStat),
    /// The reply comes in a later turn: keep the token, then [`Cx::resume`](crate::core::Cx::resume) it.
    Later,
    /// The Call was carried out, and is of a procedure that never has a Reply
    /// ([`Procedure::call_only`](super::Procedure::call_only), [V2-4.7-1]).
    ///
    /// No Reply to a Call of such a procedure leaves, whatever the service returns: a failure is told to nobody, and
    /// [`Self::Done`] counts as a broken declaration. After [`Self::Later`] the Call holds its Receive until it is
    /// resumed. Version 1 has no such procedures: there the Call is answered, without results or with the failure.
    ///
    /// A Call of any other procedure gets a system error, because its caller waits.
    NoReply,
}

/// A Reply under construction, in the registered memory it leaves from.
#[derive(Debug)]
pub struct Reply {
    /// The message: room for its transport header, then the Payload stream unless `body` has it.
    pub(crate) message: Outgoing,
    /// The Payload stream, where it may go into a Reply chunk.
    pub(crate) body: Option<Local>,
    /// Where in the Payload stream the next result goes.
    pub(crate) at: usize,
    /// Octets the Payload stream may have; none while an item is left out of it.
    length_max: usize,
    /// Octets of the Write chunk that the peer offered for the reduced result, if it did.
    pub(crate) offered: Option<u64>,
    /// The item that goes into the Write chunk, or that is left out of the Payload stream.
    pub(crate) data: Data,
    /// The length of the first eligible item that belongs into the Payload stream.
    unreduced: Option<u32>,
    /// Octets of eligible items that belong into the Payload stream, padding included.
    unreduced_octets: usize,
    /// Where the item in `data` goes.
    place: ItemPlace,
}

/// An item that a Payload stream has no room for: it is put in as the stream leaves in several messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// Where in the stream without it the item belongs.
    pub(crate) at: usize,
    /// Its octets, padding included.
    pub(crate) octets: usize,
    /// Octets that the stream without it may have.
    length_max: usize,
}

/// The place of an item that is not in the Payload stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemPlace {
    /// There is no such item.
    None,
    /// It goes into the Write chunk.
    Chunk,
    /// It belongs into the Payload stream, which has no room for it.
    LeftOut(LeftOut),
}

impl Reply {
    /// Makes a Reply whose RPC header is still to be written. `offered` is the room for a reduced result, in octets.
    pub(crate) fn new(
        buffer: Local,
        body: Option<Local>,
        length_max: usize,
        offered: Option<u64>,
    ) -> Self {
        let (at, data, unreduced) = (ReplyHeader::SUCCESS_LEN, Data::Empty, None);
        let (unreduced_octets, place) = (0, ItemPlace::None);
        let message = Outgoing::within(buffer);
        Self { message, body, at, length_max, offered, data, unreduced, unreduced_octets, place }
    }

    /// Makes a Reply in a send buffer, for [`Self::begin`].
    pub(crate) fn inline(buffer: Local) -> Self {
        Self::new(buffer, None, 0, None)
    }

    /// Begins another Reply in the same buffer: its Payload stream may have `length_max` octets, its Write chunk has
    /// `offered`.
    #[inline]
    pub(crate) const fn begin(&mut self, length_max: usize, offered: Option<u64>) {
        self.at = ReplyHeader::SUCCESS_LEN;
        self.length_max = length_max;
        self.offered = offered;
        self.unreduced = None;
        self.unreduced_octets = 0;
        self.place = ItemPlace::None;
    }

    /// Has every result go unreduced, because the Call's credential forbids reduction.
    pub(crate) const fn forbid_reduction(&mut self) {
        self.offered = None;
    }

    /// Appends results that are never reduced.
    ///
    /// Results without room are counted. In place of a Reply that is too long, the Requester is told how much room the
    /// whole of it takes, whatever the service returns as long as it does not fail the Call. A service whose results
    /// can be shorter, such as a list, ends them at [`Self::room`].
    ///
    /// Results that `encode` fails to encode make the Reply a system error.
    pub fn results(&mut self, encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>) {
        let limit = self.limit();
        let stream = match &mut self.body {
            Some(body) => body.bytes_mut(),
            None => self.message.room().get_mut(HEADER_ROOM..).unwrap_or_default(),
        };
        let end = limit.min(stream.len());
        let room = stream.get_mut(self.at..end).unwrap_or_default();
        let mut writer = Writer::counting(room);
        let added = match encode(&mut writer) {
            Ok(()) => writer.position(),
            // Longer than any binding declares: [`Self::keeps_to`] does not hold.
            Err(_) => usize::MAX,
        };
        self.at = self.at.saturating_add(added);
    }

    /// Appends the DDP-eligible result: by RDMA Write if the peer offered a Write chunk, else unreduced.
    ///
    /// If it is too long for either, the Reply leaves in several messages on version 2 (section 6.6.4), as far as the
    /// peer grants credits for them. Otherwise the Requester is told how much room it needs, in place of the Reply. A
    /// Write chunk takes one item: a second item for it makes the Reply a system error.
    pub fn item(&mut self, data: Data) {
        // No data is longer than ITEM_MAX.
        let word = u32::try_from(data.len()).unwrap_or(u32::MAX);
        // [V2-4.5.3.1-1] the length word stays; the octets and padding of a reduced item leave the stream.
        //~ V2-4.5.3.1-1: `` ->
        //~   `if self.offered.is_some_and(|offered| offered >= u64::from(word)) { return self.item_data(data); }`
        self.results(|w| w.u32(word));
        self.item_data(data);
    }

    /// Appends the DDP-eligible result like [`Self::item`], behind a length word that is already there.
    pub fn item_data(&mut self, data: Data) {
        let (length, at) = (data.len(), self.at);
        if self.offered.is_some_and(|offered| offered >= length as u64) {
            match self.place {
                ItemPlace::None => self.place = ItemPlace::Chunk,
                // Longer than any binding declares: [`Self::keeps_to`] does not hold.
                ItemPlace::Chunk | ItemPlace::LeftOut(_) => self.at = usize::MAX,
            }
            self.data = data;
            return;
        }
        let octets = length.next_multiple_of(4);
        if octets > self.room() && self.place == ItemPlace::None {
            let length_max = std::mem::take(&mut self.length_max);
            self.data = data;
            self.place = ItemPlace::LeftOut(LeftOut { at, octets, length_max });
        } else {
            self.results(|w| data.encode(w));
        }
        self.unreduced_octets += octets;
        self.unreduced.get_or_insert(u32::try_from(length).unwrap_or(u32::MAX));
    }

    /// Returns the octets of results that the Reply still has room for, beside what goes into a Write chunk.
    pub const fn room(&self) -> usize {
        self.limit().saturating_sub(self.at)
    }

    /// Returns the octets that the Payload stream may have, without an item that is left out of it.
    const fn limit(&self) -> usize {
        match self.place {
            ItemPlace::LeftOut(LeftOut { length_max, .. }) => length_max,
            ItemPlace::None | ItemPlace::Chunk => self.length_max,
        }
    }

    /// Returns the item that is left out of the Payload stream, and belongs there.
    pub(crate) const fn left_out(&self) -> Option<LeftOut> {
        match self.place {
            ItemPlace::LeftOut(item) => Some(item),
            ItemPlace::None | ItemPlace::Chunk => None,
        }
    }

    /// Returns the octets of the Payload stream, with an item that is left out of it.
    #[inline]
    pub(crate) const fn length(&self) -> usize {
        match self.place {
            ItemPlace::LeftOut(LeftOut { octets, .. }) => self.at.saturating_add(octets),
            ItemPlace::None | ItemPlace::Chunk => self.at,
        }
    }

    /// Has the Reply bring no results, if it has any.
    pub(crate) fn forget_results(&mut self) {
        self.length_max = self.limit();
        (self.at, self.data, self.place) = (0, Data::Empty, ItemPlace::None);
    }

    /// Returns whether the results are those that the binding declares: at most `results_max` octets beside
    /// eligible items, and at most one item in the Write chunk.
    pub(crate) const fn keeps_to(&self, results_max: u32) -> bool {
        let beside = ReplyHeader::SUCCESS_LEN + self.unreduced_octets;
        let length = self.length().saturating_sub(beside);
        length <= results_max as usize
    }

    /// Returns whether all results have room in the Payload stream, or in the Write chunk.
    #[inline]
    pub(crate) const fn fits(&self) -> bool {
        self.at <= self.length_max
    }

    /// Returns whether all results have room, but for an item that is left out.
    pub(crate) const fn is_whole(&self) -> bool {
        self.at <= self.limit()
    }

    /// Returns the error to send in place of this Reply, which does not fit.
    ///
    /// The error names the room that the whole Reply takes, with all that was appended to it, so that a
    /// Requester that offers as much receives the Reply.
    #[cold]
    pub(crate) fn shortage(&self) -> ErrorBody {
        // [V2-7.3.5-2] ask for a Reply chunk that takes the whole Payload stream, unreduced results included.
        //~ V2-7.3.5-2: `self.length()` -> `self.unreduced_octets`
        let needed = u32::try_from(self.length()).unwrap_or(u32::MAX);
        let shortage = self.unreduced.map_or(Shortage::Reply { needed }, |length| {
            let offered = self.offered.unwrap_or(0).try_into().unwrap_or(u32::MAX);
            // [V2-7.3.4-1] [V2-7.3.4-2] [V2-7.3.4-3] a Call has one Write chunk at most, which has index 1.
            Shortage::of_result(1, offered, length, needed)
        });
        shortage.report()
    }
}
