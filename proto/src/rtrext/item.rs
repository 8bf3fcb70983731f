//! The location of a message's own bulk data: `xmdp_grpinfo` and its parts (sections 6.2, 7.3).
//!
//! An item is an XDR data item that was taken out of the Payload stream. Its displacement is an
//! offset in the *virtual* stream, which is the Payload stream with all items in it.

use super::Malformed;
use super::array::{self, Array, Element, Iter};
use crate::chunk::{Segments, WriteChunk};
use crate::verbs::Segment;
use crate::xdr::{Reader, Truncated, UNIT, Writer};

/// `xmdp_mitem`: one item of bulk data, located by `L`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<L> {
    /// `xmdmi_disp`: the offset of the item in the virtual stream.
    pub disp: u32,
    /// `xmdmi_length`: the length of the item in octets, without padding.
    pub length: u32,
    /// `xmdmi_where`: the location of the item.
    pub place: L,
}

/// `xmdp_loc`: the location of an item, with segments `S` or buffer segment numbers `N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location<S, N> {
    /// `XMPTYPE_EXRW`: in the Requester's memory, for an RDMA Read or by an RDMA Write.
    Exrw(S),
    /// `XMPTYPE_TBSN`: in placement-targetable buffer segments of this very group.
    Tbsn {
        /// `xmdl_offset`: the offset of the item in the first of them.
        offset: u32,
        /// `xmdl_bsnum`: the numbers of the buffer segments, in order.
        bsnum: N,
    },
    /// `XMPTYPE_TOOSHORT`: in the Payload stream, because the item is too short to be placed.
    TooShort,
    /// `XMPTYPE_NOITEM`: nowhere; the Reply has no such item.
    NoItem,
}

/// `xmdp_grpinfo`: the items of one RPC message.
pub type Items<'a> = Array<'a, ReceivedItem<'a>>;
/// A received item.
pub type ReceivedItem<'a> = Item<ReceivedLocation<'a>>;
/// The location of a received item.
pub type ReceivedLocation<'a> = Location<WriteChunk<'a>, Numbers<'a>>;
/// `xmdl_bsnum`: numbers of placement-targetable buffer segments.
pub type Numbers<'a> = Array<'a, u32>;

impl<'a> Element<'a> for ReceivedItem<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, Malformed> {
        let (disp, length) = (r.u32()?, r.u32()?);
        let at = r.position();
        let place = match r.u32()? {
            EXRW => Location::Exrw(WriteChunk::decode(r)?),
            // E10: an arm of two fields, in their order.
            TBSN => Location::Tbsn { offset: r.u32()?, bsnum: Numbers::decode(r)? },
            TOOSHORT => Location::TooShort,
            NOITEM => Location::NoItem,
            _ => return Err(Malformed { rule: "type of an xmdp_loc", at }),
        };
        Ok(Self { disp, length, place })
    }
}

impl<'a> Items<'a> {
    /// Appends an array of items.
    pub fn encode<S, N>(
        w: &mut Writer<'_>,
        items: impl ExactSizeIterator<Item = Item<Location<S, N>>>,
    ) -> Result<(), Truncated>
    where
        S: ExactSizeIterator<Item = Segment>,
        N: ExactSizeIterator<Item = u32>,
    {
        array::encode(w, items, |w, item| item.encode(w))
    }

    /// Returns the items in the form that [`Self::encode`] takes.
    pub fn to_encode(
        self,
    ) -> impl ExactSizeIterator<Item = Item<Location<Segments<'a>, Iter<'a, u32>>>> + use<'a> {
        self.iter().map(|item| {
            let place = match item.place {
                Location::Exrw(chunk) => Location::Exrw(chunk.segments()),
                Location::Tbsn { offset, bsnum } => Location::Tbsn { offset, bsnum: bsnum.iter() },
                Location::TooShort => Location::TooShort,
                Location::NoItem => Location::NoItem,
            };
            Item { disp: item.disp, length: item.length, place }
        })
    }
}

impl<S, N> Item<Location<S, N>>
where
    S: ExactSizeIterator<Item = Segment>,
    N: ExactSizeIterator<Item = u32>,
{
    fn encode(self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        w.u32(self.disp)?;
        w.u32(self.length)?;
        w.u32(self.place.code())?;
        match self.place {
            Location::Exrw(segments) => WriteChunk::encode(w, segments),
            Location::Tbsn { offset, bsnum } => {
                w.u32(offset)?;
                array::encode(w, bsnum, |w, number| w.u32(number))
            }
            Location::TooShort | Location::NoItem => Ok(()),
        }
    }
}

impl<S, N> Location<S, N> {
    /// Returns the encoded length of an item with `segments` segments, in octets.
    pub const fn exrw_wire_len(segments: usize) -> usize {
        segments.saturating_mul(Segment::WIRE_LEN).saturating_add(4 * UNIT)
    }

    /// Returns the encoded length of an item with `numbers` buffer segment numbers, in octets.
    pub const fn tbsn_wire_len(numbers: usize) -> usize {
        numbers.saturating_mul(UNIT).saturating_add(5 * UNIT)
    }

    /// The encoded length of an item without segments or numbers, in octets.
    pub const VOID_WIRE_LEN: usize = 3 * UNIT;

    /// Returns whether the item exists outside the Payload stream.
    pub const fn is_excised(&self) -> bool {
        matches!(self, Self::Exrw(_) | Self::Tbsn { .. })
    }

    /// Returns the `xmdp_type` on the wire.
    pub const fn code(&self) -> u32 {
        match self {
            Self::Exrw(_) => EXRW,
            Self::Tbsn { .. } => TBSN,
            Self::TooShort => TOOSHORT,
            Self::NoItem => NOITEM,
        }
    }

    /// Returns the name of the `xmdp_type` in the draft.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Exrw(_) => "XMPTYPE_EXRW",
            Self::Tbsn { .. } => "XMPTYPE_TBSN",
            Self::TooShort => "XMPTYPE_TOOSHORT",
            Self::NoItem => "XMPTYPE_NOITEM",
        }
    }
}

/// `XMPTYPE_EXRW`: explicit RDMA operations.
pub const EXRW: u32 = 1;
/// `XMPTYPE_TBSN`: placement by Send.
pub const TBSN: u32 = 2;
/// `XMPTYPE_CHOICE`: either, at the Responder's choice. The draft's enum calls it `XMPTYPE_CHOOSE`, its tables and
/// unions use the name here (reading E10: one value).
pub const CHOICE: u32 = 3;
/// `XMPTYPE_BYSIZE`: either, by the item's length.
pub const BYSIZE: u32 = 4;
/// `XMPTYPE_TOOSHORT`: not placed, because it is too short.
pub const TOOSHORT: u32 = 5;
/// `XMPTYPE_NOITEM`: there is no item.
pub const NOITEM: u32 = 6;
