//! Where a message's own bulk data is: `xmdp_grpinfo` and what it is made of (sections 6.2, 7.3).
//!
//! An item is an XDR data item taken out of the Payload stream. Its displacement counts in the
//! *virtual* stream, the one there would be had nothing been taken out.

use core::fmt;

use super::Malformed;
use crate::chunk::{Segments, WriteChunk};
use crate::verbs::Segment;
use crate::xdr::{Reader, Truncated, UNIT, Writer};

/// `xmdp_mitem`: one item of bulk data, located by `L`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<L> {
    /// `xmdmi_disp`: where it stands in the virtual stream.
    pub disp: u32,
    /// `xmdmi_length`: its octets, without padding.
    pub length: u32,
    /// `xmdmi_where`: where it is.
    pub place: L,
}

/// `xmdp_loc`: where an item is, with its segments `S` or buffer segment numbers `N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location<S, N> {
    /// `XMPTYPE_EXRW`: in the Requester's memory, for an RDMA Read or by an RDMA Write.
    Exrw(S),
    /// `XMPTYPE_TBSN`: in placement-targetable buffer segments of this very group.
    Tbsn {
        /// `xmdl_offset`: where it starts in the first of them.
        offset: u32,
        /// `xmdl_bsnum`: their numbers, in order.
        bsnum: N,
    },
    /// `XMPTYPE_TOOSHORT`: in the Payload stream, as it was too short for anything else.
    TooShort,
    /// `XMPTYPE_NOITEM`: nowhere; the Reply has no such item.
    NoItem,
}

/// A [`Location`] as it arrived.
pub type ReceivedLocation<'a> = Location<WriteChunk<'a>, Numbers<'a>>;

/// `xmdp_grpinfo`: the items of one RPC message, borrowed from the transmission they arrived in.
#[derive(Clone, Copy, Default)]
pub struct Items<'a> {
    bytes: &'a [u8],
    count: u32,
}

/// `xmdl_bsnum`: numbers of placement-targetable buffer segments.
#[derive(Clone, Copy, Default)]
pub struct Numbers<'a> {
    bytes: &'a [u8],
}

impl<'a> Items<'a> {
    /// Parses an array.
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, Malformed> {
        let count = r.u32()?;
        let (start, bytes) = (r.position(), r.rest());
        // Each takes at least three words, so a count beyond the bytes ends in `Truncated` soon.
        for _ in 0..count {
            Item::decode(r)?;
        }
        let length = r.position().saturating_sub(start);
        Ok(Self { bytes: bytes.get(..length).unwrap_or_default(), count })
    }

    /// Appends an array of items.
    pub fn encode<S, N>(
        w: &mut Writer<'_>,
        items: impl ExactSizeIterator<Item = Item<Location<S, N>>>,
    ) -> Result<(), Truncated>
    where
        S: ExactSizeIterator<Item = Segment>,
        N: ExactSizeIterator<Item = u32>,
    {
        w.u32(u32::try_from(items.len()).map_err(|_| Truncated { at: w.position() })?)?;
        for item in items {
            item.encode(w)?;
        }
        Ok(())
    }

    /// Returns the items in order.
    pub fn iter(&self) -> ItemIter<'a> {
        ItemIter { r: Reader::new(self.bytes), left: self.count }
    }

    /// Returns how many items there are.
    pub const fn len(&self) -> u32 {
        self.count
    }

    /// Returns whether nothing was taken out of the Payload stream.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// The items of an [`Items`].
#[derive(Clone, Debug)]
pub struct ItemIter<'a> {
    r: Reader<'a>,
    left: u32,
}

impl<'a> Iterator for ItemIter<'a> {
    type Item = Item<ReceivedLocation<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Item::decode(&mut self.r).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        (left, Some(left))
    }
}

impl ExactSizeIterator for ItemIter<'_> {}

impl<'a> Item<ReceivedLocation<'a>> {
    /// Parses one item.
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, Malformed> {
        let (disp, length) = (r.u32()?, r.u32()?);
        let at = r.position();
        let place = match r.u32()? {
            EXRW => Location::Exrw(WriteChunk::decode(r)?),
            TBSN => Location::Tbsn { offset: r.u32()?, bsnum: Numbers::decode(r)? },
            TOOSHORT => Location::TooShort,
            NOITEM => Location::NoItem,
            _ => return Err(Malformed { rule: "type of an xmdp_loc", at }),
        };
        Ok(Self { disp, length, place })
    }

    /// Returns the item in the form that [`Items::encode`] takes.
    pub fn to_encode(self) -> Item<Location<Segments<'a>, NumberIter<'a>>> {
        let place = match self.place {
            Location::Exrw(chunk) => Location::Exrw(chunk.segments()),
            Location::Tbsn { offset, bsnum } => Location::Tbsn { offset, bsnum: bsnum.iter() },
            Location::TooShort => Location::TooShort,
            Location::NoItem => Location::NoItem,
        };
        Item { disp: self.disp, length: self.length, place }
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
                w.u32(u32::try_from(bsnum.len()).map_err(|_| Truncated { at: w.position() })?)?;
                for number in bsnum {
                    w.u32(number)?;
                }
                Ok(())
            }
            Location::TooShort | Location::NoItem => Ok(()),
        }
    }
}

impl<S, N> Location<S, N> {
    /// Octets of an item that so many segments locate.
    pub const fn exrw_wire_len(segments: usize) -> usize {
        segments.saturating_mul(Segment::WIRE_LEN).saturating_add(16)
    }

    /// Octets of an item that so many buffer segment numbers locate.
    pub const fn tbsn_wire_len(numbers: usize) -> usize {
        numbers.saturating_mul(UNIT).saturating_add(20)
    }

    /// Octets of an item that is in no special place.
    pub const VOID_WIRE_LEN: usize = 12;

    /// Returns the `xmdp_type` on the wire.
    pub const fn code(&self) -> u32 {
        match self {
            Self::Exrw(_) => EXRW,
            Self::Tbsn { .. } => TBSN,
            Self::TooShort => TOOSHORT,
            Self::NoItem => NOITEM,
        }
    }

    /// Returns the constant the draft names the `xmdp_type` by.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Exrw(_) => "XMPTYPE_EXRW",
            Self::Tbsn { .. } => "XMPTYPE_TBSN",
            Self::TooShort => "XMPTYPE_TOOSHORT",
            Self::NoItem => "XMPTYPE_NOITEM",
        }
    }
}

impl<'a> Numbers<'a> {
    /// Parses a counted array.
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, Truncated> {
        let at = r.position();
        let count = usize::try_from(r.u32()?).map_err(|_| Truncated { at })?;
        let length = count.checked_mul(UNIT).ok_or(Truncated { at })?;
        Ok(Self { bytes: r.take(length)? })
    }

    /// Returns the numbers in order.
    pub fn iter(&self) -> NumberIter<'a> {
        NumberIter(self.bytes.chunks_exact(UNIT))
    }
}

/// The numbers of a [`Numbers`].
#[derive(Clone)]
pub struct NumberIter<'a>(core::slice::ChunksExact<'a, u8>);

impl Iterator for NumberIter<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        Reader::new(self.0.next()?).u32().ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for NumberIter<'_> {}

// The bytes of a list hold live handles, so what is printed is what they mean.

impl fmt::Debug for Items<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl fmt::Debug for Numbers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl fmt::Debug for NumberIter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

/// `XMPTYPE_EXRW`: explicit RDMA operations.
pub const EXRW: u32 = 1;
/// `XMPTYPE_TBSN`: placement by Send.
pub const TBSN: u32 = 2;
/// `XMPTYPE_CHOICE`: either, as the Responder likes. The draft's enum calls it `XMPTYPE_CHOOSE`, its
/// tables and unions as here (reading E10: one value).
pub const CHOICE: u32 = 3;
/// `XMPTYPE_BYSIZE`: either, by the item's length.
pub const BYSIZE: u32 = 4;
/// `XMPTYPE_TOOSHORT`: not placed, as it is short.
pub const TOOSHORT: u32 = 5;
/// `XMPTYPE_NOITEM`: there is no item.
pub const NOITEM: u32 = 6;
