//! The Reply that a service makes, and the data that it sends.

use haulage_mr_pool::Local;
use haulage_proto::exchange::Shortage;
use haulage_proto::rpc::{AcceptStat, ReplyHeader};
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::xdr::{Truncated, Writer};

use crate::items::Items;
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
    /// Octets of the first Write chunk that the peer offered for reduced results, if it did.
    pub(crate) offered: Option<u64>,
    /// The item that goes into the first Write chunk, or that is left out of the Payload stream.
    pub(crate) data: Data,
    /// The first eligible item of some length that belongs into the Payload stream: its index, and its length. It is
    /// meaningless as long as `unreduced_octets` is zero.
    first_unreduced: (u32, u32),
    /// Octets of eligible items that belong into the Payload stream, padding included.
    unreduced_octets: usize,
    /// Where the item in `data` goes.
    place: ItemPlace,
    /// The index of the next eligible item.
    next: u32,
    /// The further Write chunks.
    pub(crate) further: Items<Chunk>,
}

/// A Write chunk behind the first one, and the item that goes into it.
#[derive(Debug)]
pub(crate) struct Chunk {
    offered: u64,
    pub(crate) data: Data,
    /// Where in the Payload stream the item is missing, if there is one.
    at: Option<usize>,
}

/// An item that a Payload stream has no room for: it is put in as the stream leaves in several messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// Where in the stream without it the item belongs.
    pub(crate) at: usize,
    /// Its octets, padding included.
    pub(crate) octets: usize,
    /// Its index among the eligible items.
    pub(crate) index: u32,
    /// Octets that the stream without it may have.
    length_max: usize,
}

/// The place of an item that is not in the Payload stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemPlace {
    /// There is no such item.
    None,
    /// It goes into the first Write chunk, and is missing here in the Payload stream.
    Chunk(usize),
    /// It belongs into the Payload stream, which has no room for it.
    LeftOut(LeftOut),
}

impl Reply {
    /// Makes a Reply whose RPC header is still to be written. `offered` is the room for each reduced result, in octets.
    pub(crate) fn new(
        buffer: Local,
        body: Option<Local>,
        length_max: usize,
        offered: Items<u64>,
    ) -> Self {
        let mut chunks = offered.into_iter();
        let offered = chunks.next();
        let further =
            chunks.map(|offered| Chunk { offered, data: Data::Empty, at: None }).collect();
        Self {
            message: Outgoing::within(buffer),
            body,
            at: ReplyHeader::SUCCESS_LEN,
            length_max,
            offered,
            data: Data::Empty,
            first_unreduced: (0, 0),
            unreduced_octets: 0,
            place: ItemPlace::None,
            next: 0,
            further,
        }
    }

    /// Makes a Reply in a send buffer, for [`Self::begin`].
    pub(crate) fn inline(buffer: Local) -> Self {
        Self::new(buffer, None, 0, Items::None)
    }

    /// Begins another Reply in the same buffer: its Payload stream may have `length_max` octets, its only Write chunk has
    /// `offered`.
    #[inline]
    pub(crate) const fn begin(&mut self, length_max: usize, offered: Option<u64>) {
        self.at = ReplyHeader::SUCCESS_LEN;
        self.length_max = length_max;
        self.offered = offered;
        self.unreduced_octets = 0;
        self.place = ItemPlace::None;
        self.next = 0;
    }

    /// Has every result go unreduced, because the Call's credential forbids reduction.
    pub(crate) fn forbid_reduction(&mut self) {
        self.offered = None;
        self.further = Items::None;
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

    /// Appends the next DDP-eligible result: by RDMA Write if the peer offered a Write chunk for it, else unreduced. Each
    /// Write chunk is for the result of the same number, in the order of the binding ([`Self::absent`]).
    ///
    /// If it is too long for either, the Reply leaves in several messages on version 2 (section 6.6.4), as far as the
    /// peer grants credits for them. Otherwise the Requester is told how much room it needs, in place of the Reply.
    pub fn item(&mut self, data: Data) {
        // No data is longer than ITEM_MAX.
        let word = u32::try_from(data.len()).unwrap_or(u32::MAX);
        // [V2-4.5.3.1-1] the length word stays; the octets and padding of a reduced item leave the stream.
        //~ V2-4.5.3.1-1: `` ->
        //~   `if self.offered.is_some_and(|offered| offered >= u64::from(word)) { return self.item_data(data); }`
        self.results(|w| w.u32(word));
        self.item_data(data);
    }

    /// Appends the next DDP-eligible result like [`Self::item`], behind the word that stays and is already there: the length
    /// of an opaque, the count of an array, the discriminator of optional data or of a union.
    pub fn item_data(&mut self, data: Data) {
        // [V2-4.5.3.2-1] [V2-4.5.3.3-1] [V2-4.5.3.4-1] the word that is there stays.
        //~ V2-4.5.3.2-1: `` -> `if !self.further.is_empty() { self.at -= 4; }`
        //~ V2-4.5.3.3-1: `` -> `if !self.further.is_empty() { self.at -= 4; }`
        //~ V2-4.5.3.4-1: `` -> `if !self.further.is_empty() { self.at -= 4; }`
        let (length, at) = (data.len(), self.at);
        let index = self.next;
        self.next = index.wrapping_add(1);
        if index == 0 {
            //~ V2-4.5.3.2-2: `self.offered` -> `self.offered.filter(|_| self.further.is_empty())`
            if self.offered.is_some_and(|offered| offered >= length as u64) {
                self.place = ItemPlace::Chunk(at);
                self.data = data;
                return;
            }
        } else if let Some(chunk) = self.further_chunk(index)
            //~ V2-4.5.3.3-2: `chunk.offered` -> `chunk.offered / 1_000_000`
            && chunk.offered >= length as u64
        {
            // [V2-4.5.3.4-2] whatever its type.
            //~ V2-4.5.3.4-2: `(data, Some(at))` -> `(Data::Empty, Some(at))`
            (chunk.data, chunk.at) = (data, Some(at));
            return;
        }
        let octets = length.next_multiple_of(4);
        if octets > self.room() && self.place == ItemPlace::None {
            let length_max = std::mem::take(&mut self.length_max);
            self.data = data;
            self.place = ItemPlace::LeftOut(LeftOut { at, octets, index, length_max });
        } else {
            self.results(|w| data.encode(w));
        }
        self.count_unreduced(index, length);
    }

    /// Appends results that are never reduced, then the next DDP-eligible result, an opaque, to the Payload stream, without a
    /// reference to the memory it is copied from. For an item that has no chunk ([`Self::item_room`]) and has the
    /// [room](Self::room); [`Self::item`] takes any.
    #[inline]
    pub fn results_and_item(
        &mut self,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
        octets: &[u8],
    ) {
        self.results(|w| {
            encode(w)?;
            w.opaque(octets)
        });
        let (index, length) = (self.next, octets.len());
        self.next = index.wrapping_add(1);
        self.count_unreduced(index, length);
    }

    /// Counts an eligible item that belongs into the Payload stream.
    #[inline]
    fn count_unreduced(&mut self, index: u32, length: usize) {
        if length > 0 && self.unreduced_octets == 0 {
            self.first_unreduced = (index, u32::try_from(length).unwrap_or(u32::MAX));
        }
        self.unreduced_octets += length.next_multiple_of(4);
    }

    /// Returns the index and the length of the first eligible item that belongs into the Payload stream, if there is one.
    pub(crate) const fn first_unreduced(&self) -> Option<(u32, u32)> {
        if self.unreduced_octets == 0 { None } else { Some(self.first_unreduced) }
    }

    /// Passes over a DDP-eligible result of the binding that this Reply does not have: optional data that is absent, or an
    /// arm of a union that is not taken. Its Write chunk stays unused. It needs no mention behind the last result there is.
    pub const fn absent(&mut self) {
        self.next = self.next.wrapping_add(1);
    }

    /// Returns the Write chunk for the result of this index, which is not the first.
    #[cold]
    fn further_chunk(&mut self, index: u32) -> Option<&mut Chunk> {
        self.further.as_mut_slice().get_mut(index as usize - 1)
    }

    /// Returns the octets that the Write chunk of this index has, or `None` if the peer offered no such chunk.
    fn offered_to(&self, index: u32) -> Option<u64> {
        match index {
            0 => self.offered,
            _ => self.further.as_slice().get(index as usize - 1).map(|chunk| chunk.offered),
        }
    }

    /// Returns the octets of results that the Reply still has room for, beside what goes into a Write chunk.
    pub const fn room(&self) -> usize {
        self.limit().saturating_sub(self.at)
    }

    /// Returns the octets that the Write chunk for the next DDP-eligible result has, or `None` if the peer offered no chunk
    /// for it. A service whose result is longer, and has no room in [`Self::room`] either, can answer something else.
    pub fn item_room(&self) -> Option<u64> {
        self.offered_to(self.next)
    }

    /// Returns the octets that the Payload stream may have, without an item that is left out of it.
    const fn limit(&self) -> usize {
        match self.place {
            ItemPlace::LeftOut(LeftOut { length_max, .. }) => length_max,
            ItemPlace::None | ItemPlace::Chunk(_) => self.length_max,
        }
    }

    /// Returns the item that is left out of the Payload stream, and belongs there.
    pub(crate) const fn left_out(&self) -> Option<LeftOut> {
        match self.place {
            ItemPlace::LeftOut(item) => Some(item),
            ItemPlace::None | ItemPlace::Chunk(_) => None,
        }
    }

    /// Writes the RPC header, and returns the Payload stream in three parts: what lies before an item that was left out of
    /// it, the item, which goes away, and what lies behind.
    pub(crate) fn as_record(&mut self, header: &ReplyHeader) -> (&[u8], Data, &[u8]) {
        let end = std::mem::take(&mut self.at);
        self.results(|w| header.encode(w));
        self.at = self.at.max(end);
        let at = self.left_out().map_or(self.at, |item| item.at);
        let data = std::mem::replace(&mut self.data, Data::Empty);
        self.place = ItemPlace::None;
        let stream = match &mut self.body {
            Some(body) => body.bytes(),
            None => self.message.room().get(HEADER_ROOM..).unwrap_or_default(),
        };
        let stream = stream.get(..self.at).unwrap_or_default();
        let (front, back) = stream.split_at_checked(at).unwrap_or((stream, &[]));
        (front, data, back)
    }

    /// Returns the octets of the Payload stream, with an item that is left out of it.
    #[inline]
    pub(crate) const fn length(&self) -> usize {
        match self.place {
            ItemPlace::LeftOut(LeftOut { octets, .. }) => self.at.saturating_add(octets),
            ItemPlace::None | ItemPlace::Chunk(_) => self.at,
        }
    }

    /// Has the Reply bring no results, if it has any.
    pub(crate) fn forget_results(&mut self) {
        self.length_max = self.limit();
        (self.at, self.data, self.place) = (0, Data::Empty, ItemPlace::None);
        for chunk in self.further.as_mut_slice() {
            (chunk.data, chunk.at) = (Data::Empty, None);
        }
    }

    /// Takes out the reduced items, in order, with the places in the Payload stream where they are missing.
    pub(crate) fn take_reduced(&mut self) -> Vec<(usize, Data)> {
        let first = match self.place {
            ItemPlace::Chunk(at) => Some((at, std::mem::replace(&mut self.data, Data::Empty))),
            ItemPlace::None | ItemPlace::LeftOut(_) => None,
        };
        let further = self.further.take().into_iter();
        let further = further.filter_map(|chunk| Some((chunk.at?, chunk.data)));
        first.into_iter().chain(further).collect()
    }

    /// Puts a reduced item back into the Payload stream, at `at`. `None` if it has no room there.
    pub(crate) fn put_back(&mut self, at: usize, data: &Data) -> Option<()> {
        let end = self.at + data.len().next_multiple_of(4);
        let stream = self.message.room().get_mut(HEADER_ROOM..)?.get_mut(..end)?;
        let (_, rest) = stream.split_at_mut_checked(at)?;
        let behind = self.at.checked_sub(at)?;
        rest.copy_within(..behind, rest.len() - behind);
        data.encode(&mut Writer::new(rest)).ok()?;
        self.at = end;
        Some(())
    }

    /// Returns whether the results are those that the binding declares: at most `results_max` octets beside `items` eligible
    /// items.
    pub(crate) const fn keeps_to(&self, results_max: u32, items: u32) -> bool {
        let beside = ReplyHeader::SUCCESS_LEN + self.unreduced_octets;
        let length = self.length().saturating_sub(beside);
        let is_declared = match self.first_unreduced() {
            Some((index, _)) => index < items,
            None => true,
        };
        length <= results_max as usize && is_declared
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
        let unreduced = self.first_unreduced();
        //~ V2-7.3.5-1: `Shortage::Reply { needed }` -> `Shortage::Write { index: 0, needed }`
        let shortage = unreduced.map_or(Shortage::Reply { needed }, |(index, length)| {
            let offered = self.offered_to(index).unwrap_or(0).try_into().unwrap_or(u32::MAX);
            // [V2-7.3.4-1] [V2-7.3.4-2] [V2-7.3.4-3] the first Write chunk has index 1.
            //~ V2-7.3.4-2: `index.saturating_add(1)` -> `index`
            //~ V2-7.3.4-3: `length` -> `offered`
            Shortage::of_result(index.saturating_add(1), offered, length, needed)
        });
        shortage.report()
    }
}
