//! Where a Responder is to put the Reply's bulk data: `xmdp_rsdgroup` and what it is made of
//! (section 7.4).

use core::fmt;

use super::Malformed;
use super::item::{BYSIZE, CHOICE, EXRW, TBSN};
use crate::chunk::{Segments, WriteChunk};
use crate::verbs::Segment;
use crate::xdr::{Reader, Truncated, Writer};

/// `xmdp_rsdloc`: how one potential item is to be placed, with segments `S` where the Requester
/// offers memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directed<S> {
    /// `XMPTYPE_EXRW`: by RDMA Write to this memory.
    Exrw(S),
    /// `XMPTYPE_TBSN`: by Send.
    Tbsn,
    /// `XMPTYPE_CHOICE`: by Send, or by RDMA Write to this memory.
    Choice(S),
    /// `XMPTYPE_BYSIZE`: one or the other by the item's length.
    BySize {
        /// `xmdrsdl_dsdov`: the length from which on memory is to be used.
        dsdov: u32,
        /// `xmdrsdl_bsex`: that memory.
        segments: S,
    },
}

/// `xmdp_rsditem`: directions for one potential item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direction<S> {
    /// `xmdrsdi_minlen`: a shorter item stays in the Payload stream.
    pub minlen: u32,
    /// `xmdrsdi_loc`: what to do with any other.
    pub place: Directed<S>,
}

/// `xmdp_rsdset`: directions for the items that one part of a request brings about.
#[derive(Clone, Copy, Debug)]
pub struct DirectionSet<'a> {
    /// `xmdrsdr_begin`: where that part begins in the request's virtual stream.
    pub begin: u32,
    /// `xmdrsdr_end`: where the next part begins.
    pub end: u32,
    /// `xmdrsds_items`: the directions, in the order of the items.
    pub items: DirectionItems<'a>,
}

/// `xmdp_rsdgroup`: all directions of a request, borrowed from the transmission they arrived in.
#[derive(Clone, Copy, Default)]
pub struct Directions<'a> {
    bytes: &'a [u8],
    count: u32,
}

/// `xmdrsds_items`: an array of directions.
#[derive(Clone, Copy, Default)]
pub struct DirectionItems<'a> {
    bytes: &'a [u8],
    count: u32,
}

impl<'a> Directions<'a> {
    /// Parses an array of sets.
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, Malformed> {
        let count = r.u32()?;
        let (start, bytes) = (r.position(), r.rest());
        // Each takes at least three words, so a count beyond the bytes ends in `Truncated` soon.
        for _ in 0..count {
            DirectionSet::decode(r)?;
        }
        let length = r.position().saturating_sub(start);
        Ok(Self { bytes: bytes.get(..length).unwrap_or_default(), count })
    }

    /// Appends an array of sets: begins, ends, and what is to be done between them.
    pub fn encode<S, D>(
        w: &mut Writer<'_>,
        sets: impl ExactSizeIterator<Item = (u32, u32, D)>,
    ) -> Result<(), Truncated>
    where
        S: ExactSizeIterator<Item = Segment>,
        D: ExactSizeIterator<Item = Direction<S>>,
    {
        w.u32(u32::try_from(sets.len()).map_err(|_| Truncated { at: w.position() })?)?;
        for (begin, end, items) in sets {
            w.u32(begin)?;
            w.u32(end)?;
            w.u32(u32::try_from(items.len()).map_err(|_| Truncated { at: w.position() })?)?;
            for item in items {
                item.encode(w)?;
            }
        }
        Ok(())
    }

    /// Returns the sets in order.
    pub fn iter(&self) -> DirectionSets<'a> {
        DirectionSets { r: Reader::new(self.bytes), left: self.count }
    }

    /// Returns how many sets there are.
    pub const fn len(&self) -> u32 {
        self.count
    }

    /// Returns whether nothing is directed.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// The sets of a [`Directions`].
#[derive(Clone, Debug)]
pub struct DirectionSets<'a> {
    r: Reader<'a>,
    left: u32,
}

impl<'a> Iterator for DirectionSets<'a> {
    type Item = DirectionSet<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        DirectionSet::decode(&mut self.r).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        (left, Some(left))
    }
}

impl ExactSizeIterator for DirectionSets<'_> {}

impl<'a> DirectionSet<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, Malformed> {
        let (begin, end, count) = (r.u32()?, r.u32()?, r.u32()?);
        let (start, bytes) = (r.position(), r.rest());
        for _ in 0..count {
            Direction::decode(r)?;
        }
        let length = r.position().saturating_sub(start);
        let items = DirectionItems { bytes: bytes.get(..length).unwrap_or_default(), count };
        Ok(Self { begin, end, items })
    }

    /// Returns the directions in the form that [`Directions::encode`] takes.
    pub fn to_encode(&self) -> impl ExactSizeIterator<Item = Direction<Segments<'a>>> + use<'a> {
        let segments = |chunk: WriteChunk<'a>| chunk.segments();
        let items = self.items.iter();
        items.map(move |item| Direction { minlen: item.minlen, place: item.place.map(segments) })
    }
}

impl<'a> DirectionItems<'a> {
    /// Returns the directions in order.
    pub fn iter(&self) -> DirectionIter<'a> {
        DirectionIter { r: Reader::new(self.bytes), left: self.count }
    }
}

/// The directions of a [`DirectionItems`].
#[derive(Clone, Debug)]
pub struct DirectionIter<'a> {
    r: Reader<'a>,
    left: u32,
}

impl<'a> Iterator for DirectionIter<'a> {
    type Item = Direction<WriteChunk<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Direction::decode(&mut self.r).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        (left, Some(left))
    }
}

impl ExactSizeIterator for DirectionIter<'_> {}

impl<'a> Direction<WriteChunk<'a>> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, Malformed> {
        let minlen = r.u32()?;
        let at = r.position();
        let place = match r.u32()? {
            EXRW => Directed::Exrw(WriteChunk::decode(r)?),
            TBSN => Directed::Tbsn,
            CHOICE => Directed::Choice(WriteChunk::decode(r)?),
            // E10: an arm of two fields, in their order.
            BYSIZE => Directed::BySize { dsdov: r.u32()?, segments: WriteChunk::decode(r)? },
            _ => return Err(Malformed { rule: "type of an xmdp_rsdloc", at }),
        };
        Ok(Self { minlen, place })
    }
}

impl<S: ExactSizeIterator<Item = Segment>> Direction<S> {
    fn encode(self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        w.u32(self.minlen)?;
        w.u32(self.place.code())?;
        match self.place {
            Directed::Exrw(segments) | Directed::Choice(segments) => {
                WriteChunk::encode(w, segments)
            }
            Directed::BySize { dsdov, segments } => {
                w.u32(dsdov)?;
                WriteChunk::encode(w, segments)
            }
            Directed::Tbsn => Ok(()),
        }
    }
}

impl<S> Directed<S> {
    /// Returns the same direction with its memory named another way.
    pub fn map<T>(self, f: impl FnOnce(S) -> T) -> Directed<T> {
        match self {
            Self::Exrw(segments) => Directed::Exrw(f(segments)),
            Self::Tbsn => Directed::Tbsn,
            Self::Choice(segments) => Directed::Choice(f(segments)),
            Self::BySize { dsdov, segments } => Directed::BySize { dsdov, segments: f(segments) },
        }
    }

    /// Returns the memory the Requester offers.
    pub const fn segments(&self) -> Option<&S> {
        match self {
            Self::Exrw(segments) | Self::Choice(segments) | Self::BySize { segments, .. } => {
                Some(segments)
            }
            Self::Tbsn => None,
        }
    }

    /// Returns the `xmdp_type` on the wire.
    pub const fn code(&self) -> u32 {
        match self {
            Self::Exrw(_) => EXRW,
            Self::Tbsn => TBSN,
            Self::Choice(_) => CHOICE,
            Self::BySize { .. } => BYSIZE,
        }
    }

    /// Returns the constant the draft names the `xmdp_type` by.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Exrw(_) => "XMPTYPE_EXRW",
            Self::Tbsn => "XMPTYPE_TBSN",
            Self::Choice(_) => "XMPTYPE_CHOICE",
            Self::BySize { .. } => "XMPTYPE_BYSIZE",
        }
    }
}

// The bytes of a list hold live handles, so what is printed is what they mean.

impl fmt::Debug for Directions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl fmt::Debug for DirectionItems<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
