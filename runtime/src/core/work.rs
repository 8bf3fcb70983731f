//! Posted work requests, and the leases that the provider holds for each.
//!
//! # Memory ownership
//! A lease enters this table before the work request that uses it is queued and leaves it with that
//! request's completion, or, if the connection was lost before the request was posted, once the
//! connection has quiesced.

use std::ops::Range;
use std::rc::Rc;

use haulage_mr_pool::{Local, Pieces, PostedSinks, PostedSource, Shared, Source};
use haulage_proto::verbs::{Flags, WrId};

use crate::core::memory::Charge;
use crate::core::table::{Owned, OwnedTable};
use crate::key::{CallKey, ConnectionKey};
use crate::provider::{Done, Operation, Quiesced, WorkRequest};
use crate::service::Data;
use crate::sys::complete;

/// The signaled work requests that have not completed.
#[derive(Debug)]
pub(crate) struct Posted {
    table: OwnedTable<Work>,
    /// Entries for Writes that are posted apart from their Reply ([`Held::Written`]).
    written: u32,
    /// The largest number of these entries.
    written_max: u32,
}

impl Posted {
    /// Makes a table for `most` requests, `written_max` of them for Writes that are posted apart from their Reply.
    pub(crate) fn new(most: u32, written_max: u32) -> Self {
        Self { table: OwnedTable::new(most), written: 0, written_max }
    }

    /// Enters a request that is about to be posted. Returns its identifier.
    ///
    /// # Panics
    /// If the table is full: it has an entry for every request that can be posted at once.
    pub(crate) fn enter(&mut self, connection: ConnectionKey, held: Held) -> WrId {
        self.written += u32::from(held.is_written());
        let entered = self.table.insert(Work { connection, held });
        let Ok(name) = entered else { panic!("an entry for all that can be posted at once") };
        Name::Work(name.to_bits()).wr_id()
    }

    /// Takes out the request whose identifier carries `bits`; `None` if there is none.
    pub(crate) fn complete(&mut self, bits: u64) -> Option<Work> {
        let work = self.table.remove_bits(bits)?;
        self.written -= u32::from(work.held.is_written());
        Some(work)
    }

    /// Takes out the newest request of a connection that has quiesced.
    pub(crate) fn next_of(&mut self, connection: ConnectionKey) -> Option<Held> {
        let work = self.table.remove_newest_of(connection.slot(), |_| true)?;
        debug_assert!(work.connection == connection, "no work request outlives its connection");
        self.written -= u32::from(work.held.is_written());
        Some(work.held)
    }

    /// Returns whether the Writes of another Reply may be posted apart from it.
    #[inline]
    pub(crate) const fn has_room_for_writes(&self) -> bool {
        self.written < self.written_max
    }

    /// Returns the number of requests.
    pub(crate) fn len(&self) -> u32 {
        self.table.len()
    }

    /// Returns the connection of each request other than an invalidation, which is waited for as a part of its Call.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = ConnectionKey> {
        let awaited = self.table.iter().filter(|work| !matches!(work.held, Held::LocalInv { .. }));
        awaited.map(|work| work.connection)
    }

    /// Visits every request.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Work> {
        self.table.iter()
    }
}

/// One signaled work request.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) connection: ConnectionKey,
    pub(crate) held: Held,
}

impl Owned for Work {
    fn owner(&self) -> usize {
        self.connection.slot()
    }
}

/// The memory that a work request holds, and the purpose of its completion.
#[derive(Debug)]
pub(crate) enum Held {
    /// A Send, and the Writes posted before it.
    Send {
        /// The message's buffer.
        buffer: PostedSource<Local>,
        /// The sources of the Writes posted just before it.
        written: Written,
    },
    /// The last of the Writes of a Reply that is sent apart from them.
    Written {
        /// The source of the Writes.
        data: PostedData,
        /// The memory charged to the Call that the Reply answers.
        charge: Charge,
    },
    /// The last RDMA Read of a Call or of a reduced argument.
    Read {
        /// The leases that the Reads fill.
        sinks: PostedSinks,
        /// The Call that waits for the Read.
        call: CallKey,
    },
    /// An invalidation on behalf of one of our Calls.
    LocalInv {
        /// The Call's slot.
        slot: usize,
    },
}

impl Held {
    /// Returns the octets of memory charged to the connection whose transfer to or from the peer this waits for.
    pub(crate) fn charged(&self) -> usize {
        match self {
            Self::Send { written: Written { charge, .. }, .. } | Self::Written { charge, .. } => {
                charge.octets()
            }
            Self::Read { sinks, .. } => sinks.len(),
            Self::LocalInv { .. } => 0,
        }
    }

    /// Returns whether this is a message in a send buffer.
    pub(crate) const fn is_send(&self) -> bool {
        matches!(self, Self::Send { .. })
    }

    /// Returns whether this is the entry of Writes posted apart from their Reply.
    const fn is_written(&self) -> bool {
        matches!(self, Self::Written { .. })
    }
}

/// The sources of the Writes posted before a Send.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// A data item, and the Payload stream.
    pub(crate) sources: [PostedData; 2],
    /// The memory charged to the Call that the message answers.
    pub(crate) charge: Charge,
}

impl Written {
    /// Makes the record of Writes from one data item.
    pub(crate) const fn one(data: PostedData, charge: Charge) -> Self {
        Self { sources: [data, PostedData::None], charge }
    }
}

/// The source of RDMA Writes.
#[derive(Debug, Default)]
pub(crate) enum PostedData {
    #[default]
    None,
    Local(PostedSource<Local>),
    Shared(PostedSource<Shared>),
    /// Pieces, of which each view keeps the block that it shows in use.
    Pieces(Rc<Pieces>),
}

impl PostedData {
    /// Makes a result the source of Writes.
    pub(crate) fn of(data: Data) -> Self {
        match data {
            Data::Local(lease) if !lease.is_empty() => Self::Local(lease.into_source()),
            Data::Shared(shared) if !shared.is_empty() => Self::Shared(shared.into_source()),
            Data::Pieces(pieces) => Self::Pieces(pieces),
            Data::Empty | Data::Local(_) | Data::Shared(_) => Self::None,
        }
    }

    /// Returns the length in octets.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Local(posted) => posted.len(),
            Self::Shared(posted) => posted.len(),
            Self::Pieces(pieces) => pieces.len(),
        }
    }

    /// Calls `each` with the views that cover `range`, in order: one view, or one for each piece.
    #[inline]
    pub(crate) fn sources(&self, range: Range<usize>, each: &mut dyn FnMut(Source)) {
        match self {
            Self::None => {}
            Self::Local(posted) => posted.source(range).into_iter().for_each(each),
            Self::Shared(posted) => posted.source(range).into_iter().for_each(each),
            Self::Pieces(pieces) => {
                let mut end = 0;
                for piece in pieces.iter() {
                    let start = end;
                    end += piece.len();
                    let (from, to) = (range.start.clamp(start, end), range.end.clamp(start, end));
                    if from < to {
                        piece.source(from - start..to - start).into_iter().for_each(&mut *each);
                    }
                }
            }
        }
    }

    /// Takes the memory back once the provider has completed the request.
    pub(crate) fn complete(self, done: &Done) {
        match self {
            Self::None | Self::Pieces(_) => {}
            Self::Local(posted) => drop(complete::source(posted, done)),
            Self::Shared(posted) => drop(complete::shared(posted, done)),
        }
    }

    /// Takes the memory back once the connection has quiesced.
    pub(crate) fn quiesced(self, proof: &Quiesced) {
        match self {
            Self::None | Self::Pieces(_) => {}
            Self::Local(posted) => drop(complete::source_quiesced(posted, proof)),
            Self::Shared(posted) => drop(complete::shared_quiesced(posted, proof)),
        }
    }
}

/// The entry that the identifier of a completion names. The kind is in the top byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// One of the requests of [`Parts`]: a later completion, or the end of the connection, covers it.
    Part,
    /// An entry of the work table, by packed key.
    Work(u64),
    /// A Receive, by buffer number.
    Receive(usize),
}

impl Name {
    pub(crate) fn wr_id(self) -> WrId {
        match self {
            Self::Part => WrId(0),
            Self::Work(bits) => WrId(KIND_WORK | bits),
            Self::Receive(buffer) => WrId(KIND_RECEIVE | buffer as u64),
        }
    }

    pub(crate) fn of(id: WrId) -> Self {
        let rest = id.0 & !KIND_MASK;
        match id.0 & KIND_MASK {
            KIND_WORK => Self::Work(rest),
            KIND_RECEIVE => Self::Receive(usize::try_from(rest).unwrap_or(usize::MAX)),
            _ => Self::Part,
        }
    }
}

/// Makes the requests that move the parts of an item.
///
/// No entry of the work table stands for one of them, except for the last, which its user names and has signaled. Of
/// many, some are signaled only to tell that the send queue has room for more.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    count: usize,
}

impl Parts {
    /// Makes the next request.
    #[inline]
    pub(crate) fn next(&mut self, operation: Operation) -> WorkRequest {
        self.count += 1;
        let flags =
            Flags { signaled: self.count.is_multiple_of(SIGNALED_EVERY), ..Flags::default() };
        WorkRequest { id: Name::Part.wr_id(), flags, operation }
    }
}

/// Every how many parts one is signaled: a send queue that is full of parts has room for this many.
const SIGNALED_EVERY: usize = 16;

const KIND_MASK: u64 = 0xff << 56;
const KIND_WORK: u64 = 1 << 56;
const KIND_RECEIVE: u64 = 2 << 56;

#[cfg(test)]
mod tests {
    use haulage_mr_pool::{PagePreference, Piece, Pool, PoolConfig};

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
        let data = PostedData::of(pieces.into());
        for start in 0..=octets.len() {
            for end in start..=octets.len() {
                let mut parts = Vec::new();
                data.sources(start..end, &mut |part| parts.push(part));
                assert!(parts.iter().all(|part| !part.is_empty()), "nothing is posted for nothing");
                let named: Vec<u8> = parts.iter().flat_map(|part| part.bytes().to_vec()).collect();
                assert_eq!(named, octets[start..end]);
            }
        }
    }
}
