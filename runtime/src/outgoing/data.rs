//! Data of a message: what RDMA Writes move, or what a Payload stream has in it.

use std::ops::Range;
use std::rc::Rc;

use haulage_mr_pool::{Leases, Local, Piece, Pieces, PostedSource, Shared, Source};
use haulage_proto::xdr::{Truncated, Writer};

use crate::sys::complete;
use crate::work::{Done, Quiesced};

/// A result that leaves straight from where it lives.
#[derive(Debug)]
pub enum Data {
    /// No octets.
    Empty,
    /// A lease that goes home once it is sent.
    Local(Local),
    /// One reference to memory that many Replies may be sending.
    Shared(Shared),
    /// Parts of shared memory, one behind the other.
    Pieces(Rc<Pieces>),
}

impl Data {
    /// Returns the number of octets.
    pub fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Local(lease) => lease.len(),
            Self::Shared(shared) => shared.len(),
            Self::Pieces(pieces) => pieces.len(),
        }
    }

    /// Returns whether there are no octets.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes an argument a result, sent from where it was placed.
    ///
    /// Returns `None`, and the memory goes home, if the heap has no room for a list of several leases.
    pub fn placed(leases: Leases) -> Option<Self> {
        leases.into_one().map_or_else(
            |several| several.share().map(Self::from),
            |lease| Some(Self::Local(lease)),
        )
    }

    /// Returns the number of parts that [`Self::parts`] lists at most.
    pub(super) fn parts_max(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Local(_) | Self::Shared(_) => 1,
            Self::Pieces(pieces) => pieces.count(),
        }
    }

    /// Lends the octets of `range`, part by part, to `f`; no part is empty. Returns `None` if there are more parts than
    /// [`PARTS_AT_ONCE`].
    #[inline]
    pub(super) fn with_parts<R>(
        &self,
        range: Range<usize>,
        f: impl FnOnce(&[&[u8]]) -> R,
    ) -> Option<R> {
        match self {
            Self::Empty => Some(f(&[])),
            Self::Local(lease) => Some(f(&[lease.bytes().get(range)?])),
            Self::Shared(shared) => Some(f(&[shared.bytes().get(range)?])),
            Self::Pieces(pieces) => {
                let mut parts = [&[][..]; PARTS_AT_ONCE];
                let mut count = 0;
                for (piece, within) in pieces_of(pieces, range) {
                    *parts.get_mut(count)? = piece.bytes().get(within)?;
                    count += 1;
                }
                Some(f(parts.get(..count)?))
            }
        }
    }

    /// Returns the octets, part by part.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let (one, pieces) = match self {
            Self::Empty => (None, None),
            Self::Local(lease) => (Some(lease.bytes()), None),
            Self::Shared(shared) => (Some(shared.bytes()), None),
            Self::Pieces(pieces) => (None, Some(pieces.iter().map(Piece::bytes))),
        };
        one.into_iter().chain(pieces.into_iter().flatten())
    }

    /// Returns the octets of a range, part by part.
    pub(crate) fn parts_of(&self, range: Range<usize>) -> impl Iterator<Item = &[u8]> {
        let mut end = 0;
        self.parts().map(move |part| {
            let start = end;
            end += part.len();
            let [from, to] = [range.start, range.end].map(|at| at.clamp(start, end) - start);
            part.get(from..to).unwrap_or_default()
        })
    }

    /// Appends the octets and their padding.
    pub(crate) fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        self.parts().try_for_each(|part| w.put(part))?;
        w.pad(self.len())
    }
}

impl From<Pieces> for Data {
    fn from(pieces: Pieces) -> Self {
        if pieces.is_empty() { Self::Empty } else { Self::Pieces(Rc::new(pieces)) }
    }
}

/// Lists the pieces that have octets of `range`, each with the range of its octets there.
fn pieces_of(pieces: &Pieces, range: Range<usize>) -> impl Iterator<Item = (&Piece, Range<usize>)> {
    let mut end = 0;
    pieces.iter().filter_map(move |piece| {
        let start = end;
        end += piece.len();
        let (from, to) = (range.start.clamp(start, end), range.end.clamp(start, end));
        (from < to).then(|| (piece, from - start..to - start))
    })
}

/// Parts of a result that may be copied at once: as many blocks of 64 KiB as 1 MiB touches.
const PARTS_AT_ONCE: usize = 17;

/// Data of which a provider may hold views.
#[derive(Debug)]
pub(super) enum PostedData {
    Local(PostedSource<Local>),
    Shared(PostedSource<Shared>),
    /// Pieces, of which each view keeps the block that it shows in use.
    Pieces(Rc<Pieces>),
}

impl PostedData {
    /// Makes data the source of Writes; `None` if there are no octets.
    pub(super) fn of(data: Data) -> Option<Self> {
        match data {
            Data::Local(lease) if !lease.is_empty() => Some(Self::Local(lease.into_source())),
            Data::Shared(shared) if !shared.is_empty() => Some(Self::Shared(shared.into_source())),
            Data::Pieces(pieces) => Some(Self::Pieces(pieces)),
            Data::Empty | Data::Local(_) | Data::Shared(_) => None,
        }
    }

    /// Returns the length in octets.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Local(posted) => posted.len(),
            Self::Shared(posted) => posted.len(),
            Self::Pieces(pieces) => pieces.len(),
        }
    }

    /// Calls `each` with the views that cover `range`, in order: one view, or one for each piece.
    #[inline]
    pub(super) fn sources(&self, range: Range<usize>, each: &mut dyn FnMut(Source)) {
        match self {
            Self::Local(posted) => posted.source(range).into_iter().for_each(each),
            Self::Shared(posted) => posted.source(range).into_iter().for_each(each),
            Self::Pieces(pieces) => pieces_of(pieces, range)
                .filter_map(|(piece, within)| piece.source(within))
                .for_each(each),
        }
    }

    /// Takes the memory back once the provider has completed the message.
    pub(super) fn complete(self, done: &Done) {
        match self {
            Self::Pieces(_) => {}
            Self::Local(posted) => drop(complete::source(posted, done)),
            Self::Shared(posted) => drop(complete::shared(posted, done)),
        }
    }

    /// Takes the memory back once the connection has quiesced.
    pub(super) fn quiesced(self, proof: &Quiesced) {
        match self {
            Self::Pieces(_) => {}
            Self::Local(posted) => drop(complete::source_quiesced(posted, proof)),
            Self::Shared(posted) => drop(complete::shared_quiesced(posted, proof)),
        }
    }
}

#[cfg(test)]
mod tests {
    use haulage_mr_pool::{PagePreference, Pool, PoolConfig};

    use super::*;

    #[test]
    fn each_part_of_a_result_in_pieces_is_named_once_and_in_order() {
        let config = PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None };
        let pool = Pool::new(&config).unwrap();
        let mut lease = pool.lease(100).unwrap();
        lease.bytes_mut().iter_mut().zip(0..).for_each(|(place, octet)| *place = octet);
        let whole = Piece::whole(lease.share());
        let mut pieces = Pieces::default();
        for part in [0..10, 20..21, 90..100] {
            pieces.push(whole.part(part.start, part.len())).unwrap();
        }
        let octets: Vec<u8> = (0..10).chain(20..21).chain(90..100).collect();
        let data = Data::from(pieces);
        let lent = |range: Range<usize>| data.with_parts(range, |parts| parts.concat()).unwrap();
        let ranges =
            (0..=octets.len()).flat_map(|start| (start..=octets.len()).map(move |end| start..end));
        ranges.clone().for_each(|range| assert_eq!(lent(range.clone()), octets[range]));
        let posted = PostedData::of(data).expect("there are octets");
        for range in ranges {
            let mut parts = Vec::new();
            posted.sources(range.clone(), &mut |part| parts.push(part));
            assert!(parts.iter().all(|part| !part.is_empty()), "nothing is posted for nothing");
            let named: Vec<u8> = parts.iter().flat_map(|part| part.bytes().to_vec()).collect();
            assert_eq!(named, octets[range]);
        }
    }
}
