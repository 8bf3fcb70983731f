//! Directions for the bulk data of a Reply: `xmdp_rsdgroup` and its parts (section 7.4).

use alloc::vec::Vec;
use core::fmt;

use super::Malformed;
use super::array::{self, Array, Element};
use super::item::{BYSIZE, CHOICE, EXRW, TBSN};
use crate::chunk::{Segments, WriteChunk};
use crate::verbs::Segment;
use crate::xdr::{Reader, Truncated, UNIT, Writer};

/// `xmdp_rsdloc`: the placement of one potential item, with segments `S` where the Requester offers
/// memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directed<S> {
    /// `XMPTYPE_EXRW`: by RDMA Write to this memory.
    Exrw(S),
    /// `XMPTYPE_TBSN`: by Send.
    Tbsn,
    /// `XMPTYPE_CHOICE`: by Send, or by RDMA Write to this memory.
    Choice(S),
    /// `XMPTYPE_BYSIZE`: by Send or by RDMA Write, depending on the item's length.
    BySize {
        /// `xmdrsdl_dsdov`: the length from which the memory is to be used.
        dsdov: u32,
        /// `xmdrsdl_bsex`: the memory.
        segments: S,
    },
}

/// `xmdp_rsditem`: directions for one potential item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direction<S> {
    /// `xmdrsdi_minlen`: a shorter item stays in the Payload stream.
    pub minlen: u32,
    /// `xmdrsdi_loc`: the placement of any longer item.
    pub place: Directed<S>,
}

/// `xmdp_rsdset`: directions for the items that one part of a request causes.
#[derive(Clone, Copy, Debug)]
pub struct DirectionSet<'a> {
    /// `xmdrsdr_begin`: the offset of that part in the request's virtual stream.
    pub begin: u32,
    /// `xmdrsdr_end`: the offset of the next part.
    pub end: u32,
    /// `xmdrsds_items`: the directions, in the order of the items.
    pub items: Array<'a, ReceivedDirection<'a>>,
}

/// `xmdp_rsdgroup`: all directions of a request.
pub type Directions<'a> = Array<'a, DirectionSet<'a>>;
/// Directions that are kept longer than the message that they came in.
#[derive(Clone, Default)]
pub struct KeptDirections(Vec<u8>);
/// A received direction.
pub type ReceivedDirection<'a> = Direction<WriteChunk<'a>>;

impl<'a> Element<'a> for DirectionSet<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { begin: r.u32()?, end: r.u32()?, items: Array::decode(r)? })
    }
}

impl<'a> Element<'a> for ReceivedDirection<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, Malformed> {
        let minlen = r.u32()?;
        let at = r.position();
        let place = match r.u32()? {
            EXRW => Directed::Exrw(WriteChunk::decode(r)?),
            // [RTR-7.4-4] the Responder chooses the segments of the item, so no segments follow.
            //~ RTR-7.4-4: `TBSN` -> `TBSN if r.u32().is_ok()`
            TBSN => Directed::Tbsn,
            CHOICE => Directed::Choice(WriteChunk::decode(r)?),
            // E10: an arm of two fields, in their order.
            BYSIZE => Directed::BySize { dsdov: r.u32()?, segments: WriteChunk::decode(r)? },
            _ => return Err(Malformed { rule: "type of an xmdp_rsdloc", at }),
        };
        Ok(Self { minlen, place })
    }
}

impl<'a> Directions<'a> {
    /// Appends an array of sets: the begin, the end and the directions of each.
    pub fn encode<S, D>(
        w: &mut Writer<'_>,
        sets: impl ExactSizeIterator<Item = (u32, u32, D)>,
    ) -> Result<(), Truncated>
    where
        S: ExactSizeIterator<Item = Segment>,
        D: ExactSizeIterator<Item = Direction<S>>,
    {
        array::encode(w, sets, |w, (begin, end, items)| {
            w.u32(begin)?;
            w.u32(end)?;
            array::encode(w, items, |w, item| item.encode(w))
        })
    }

    /// Returns the sets in the form that [`Self::encode`] takes.
    pub fn to_encode(
        self,
    ) -> impl ExactSizeIterator<
        Item = (u32, u32, impl ExactSizeIterator<Item = Direction<Segments<'a>>> + use<'a>),
    > + use<'a> {
        self.iter().map(|set| {
            let items = set.items.iter().map(|item| Direction {
                minlen: item.minlen,
                place: item.place.map(|chunk| chunk.segments()),
            });
            (set.begin, set.end, items)
        })
    }
}

impl KeptDirections {
    /// Keeps directions.
    pub fn of(directions: &Directions<'_>) -> Self {
        let mut counting = Writer::counting(&mut []);
        let counted = Directions::encode(&mut counting, directions.to_encode());
        let mut octets = alloc::vec![0; counting.position()];
        let encoded = Directions::encode(&mut Writer::new(&mut octets), directions.to_encode());
        debug_assert!(counted.and(encoded).is_ok(), "they are as long as was counted");
        Self(octets)
    }

    /// Returns the directions.
    pub fn get(&self) -> Directions<'_> {
        Directions::decode(&mut Reader::new(&self.0)).unwrap_or_default()
    }
}

// The octets can hold live handles, so what is printed is what they mean.
impl fmt::Debug for KeptDirections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
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
            // [RTR-7.4-4]
            //~ RTR-7.4-4: `Ok(())` -> `w.u32(0)`
            Directed::Tbsn => Ok(()),
        }
    }
}

impl<S> Directed<S> {
    /// Returns the direction with its segments converted by `f`.
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
            // [RTR-5.3-3]
            //~ RTR-5.3-3: `EXRW` -> `CHOICE`
            Self::Exrw(_) => EXRW,
            Self::Tbsn => TBSN,
            Self::Choice(_) => CHOICE,
            Self::BySize { .. } => BYSIZE,
        }
    }

    /// Returns the name of the `xmdp_type` in the draft.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Exrw(_) => "XMPTYPE_EXRW",
            Self::Tbsn => "XMPTYPE_TBSN",
            Self::Choice(_) => "XMPTYPE_CHOICE",
            Self::BySize { .. } => "XMPTYPE_BYSIZE",
        }
    }
}

impl Directed<&[Segment]> {
    /// Returns the encoded length of a direction in octets, its minimum length included.
    pub const fn wire_len(&self) -> usize {
        let segments = match self {
            Self::Exrw(segments) | Self::Choice(segments) | Self::BySize { segments, .. } => {
                segments.len().saturating_mul(Segment::WIRE_LEN).saturating_add(UNIT)
            }
            Self::Tbsn => 0,
        };
        let dsdov = if matches!(self, Self::BySize { .. }) { UNIT } else { 0 };
        segments.saturating_add(dsdov).saturating_add(2 * UNIT)
    }
}
