//! Posted work requests, and the leases that the provider holds for each.
//!
//! # Memory ownership
//! A lease enters this table before the work request that uses it is queued and leaves it with that
//! request's completion, or, if the connection was lost before the request was posted, once the
//! connection has quiesced.

use haulage_mr_pool::PostedSinks;
use haulage_proto::verbs::WrId;

use crate::core::memory::Charge;
use crate::core::table::{Owned, OwnedTable};
use crate::key::{CallKey, ConnectionKey};
use crate::outgoing::Lent;
use crate::work::Parts;

/// The signaled work requests that have not completed.
#[derive(Debug)]
pub(crate) struct Posted {
    table: OwnedTable<Work>,
    /// The identifier of the next request, made ahead: most messages are copied, and do not use it.
    next: WrId,
    /// Entries for Writes ahead of messages that were copied.
    written: u32,
    /// The largest number of these entries.
    written_max: u32,
}

impl Posted {
    /// Makes a table for `most` requests, `written_max` of them for Writes ahead of messages that were
    /// copied.
    pub(crate) fn new(most: u32, written_max: u32) -> Self {
        let mut posted =
            Self { table: OwnedTable::new(most), next: Parts::NAME, written: 0, written_max };
        posted.name_next();
        posted
    }

    /// Makes the identifier of the next request. While there is no room for one, nobody asks for it.
    fn name_next(&mut self) {
        if let Some(name) = self.table.next_key() {
            self.next = Name::Work(name.to_bits()).wr_id();
        }
    }

    /// Enters a request that is about to be posted. Returns its identifier.
    ///
    /// # Panics
    /// If the table is full: it has an entry for every request that can be posted at once.
    pub(crate) fn enter(&mut self, connection: ConnectionKey, held: Held) -> WrId {
        self.written += u32::from(held.is_written());
        let entered = self.table.insert(Work { connection, held });
        let Ok(name) = entered else { panic!("an entry for all that can be posted at once") };
        self.name_next();
        Name::Work(name.to_bits()).wr_id()
    }

    /// Returns the identifier that the next request will have.
    #[inline]
    pub(crate) const fn next_id(&self) -> WrId {
        self.next
    }

    /// Takes out the request whose identifier carries `bits`; `None` if there is none.
    pub(crate) fn complete(&mut self, bits: u64) -> Option<Work> {
        let work = self.table.remove_bits(bits)?;
        self.name_next();
        self.written -= u32::from(work.held.is_written());
        Some(work)
    }

    /// Takes out the newest request of a connection that has quiesced.
    pub(crate) fn next_of(&mut self, connection: ConnectionKey) -> Option<Held> {
        let work = self.table.remove_newest_of(connection.slot(), |_| true)?;
        self.name_next();
        assert!(work.connection == connection, "no work request outlives its connection");
        self.written -= u32::from(work.held.is_written());
        Some(work.held)
    }

    /// Returns whether there may be another entry for Writes alone.
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
#[expect(clippy::large_enum_variant, reason = "most requests are messages")]
pub(crate) enum Held {
    /// A message, and what goes ahead of it, as far as the provider holds that.
    Message {
        /// What the provider holds.
        lent: Lent,
        /// The memory charged to the Call that the message answers.
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
            Self::Message { charge, .. } => charge.octets(),
            Self::Read { sinks, .. } => sinks.len(),
            Self::LocalInv { .. } => 0,
        }
    }

    /// Returns whether this is a message in a send buffer.
    pub(crate) const fn is_send(&self) -> bool {
        matches!(self, Self::Message { lent, .. } if lent.has_buffer())
    }

    /// Returns whether this is the entry of Writes ahead of a message that was copied.
    const fn is_written(&self) -> bool {
        matches!(self, Self::Message { lent, .. } if !lent.has_buffer())
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
            Self::Part => Parts::NAME,
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

const KIND_MASK: u64 = 0xff << 56;
const KIND_WORK: u64 = 1 << 56;
const KIND_RECEIVE: u64 = 2 << 56;
