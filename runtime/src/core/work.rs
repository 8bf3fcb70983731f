//! Posted work requests, and the leases that the provider holds for each.
//!
//! # Memory ownership
//! A lease enters this table before the work request that uses it is queued and leaves it with that
//! request's completion, or, if the connection was lost before the request was posted, once the
//! connection has quiesced.

use haulage_mr_pool::{Local, PostedSinks, PostedSource};
use haulage_proto::verbs::WrId;

use crate::core::memory::Charge;
use crate::core::table::{Owned, OwnedTable};
use crate::key::{CallKey, ConnectionKey, Key};
use crate::outgoing::LentData;
use crate::work::{Done, Parts, Quiesced};

/// The signaled work requests that have not completed.
#[derive(Debug)]
pub(crate) struct Posted {
    table: OwnedTable<Work>,
    /// By slot: the data of Writes ahead of a message. It is not in the entry, as few messages have any.
    data: Vec<Option<LentData>>,
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
        let (table, data) = (OwnedTable::new(most, NO_PREFIX), Vec::new());
        let mut posted = Self { table, data, next: Parts::NAME, written: 0, written_max };
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

    /// Keeps the data of the Writes ahead of the message that was entered as `id`.
    pub(crate) fn keep_data(&mut self, id: WrId, data: LentData) {
        let Name::Work(bits) = Name::of(id) else { panic!("a message is a work request") };
        let slot = Key::<Work>::slot_of(bits) as usize;
        if self.data.len() <= slot {
            self.data.resize_with(slot + 1, || None);
        }
        self.data[slot] = Some(data);
    }

    /// Takes out the data that is kept for a slot.
    #[inline]
    fn take_data(&mut self, slot: usize) -> Option<LentData> {
        self.data.get_mut(slot).filter(|data| data.is_some())?.take()
    }

    /// Has the message that was to be entered as `id` end the Call in `slot` when it completes. Returns false if there is
    /// no such entry, because the message was copied.
    pub(crate) fn end_call_with(&mut self, id: WrId, slot: usize) -> bool {
        let Name::Work(bits) = Name::of(id) else { return false };
        let Some(work) = self.table.get_bits_mut(bits) else { return false };
        let Held::Message { buffer, .. } = &mut work.held else { return false };
        work.held = Held::CallOnly { buffer: buffer.take(), slot };
        true
    }

    /// Returns the identifier that the next request will have.
    #[inline]
    pub(crate) const fn next_id(&self) -> WrId {
        self.next
    }

    /// Takes out the request whose identifier carries `bits`, which is `done`; `None` if there is none. The data of its
    /// Writes goes home.
    #[inline]
    pub(crate) fn complete(&mut self, bits: u64, done: &Done) -> Option<Work> {
        let work = self.table.remove_bits(bits)?;
        self.name_next();
        if let Some(data) = self.take_data(Key::<Work>::slot_of(bits) as usize) {
            data.complete(done);
        }
        self.written -= u32::from(work.held.is_written());
        Some(work)
    }

    /// Takes out the newest request of a connection that has quiesced, as `proof` says. The data of its Writes goes home.
    pub(crate) fn next_of(&mut self, connection: ConnectionKey, proof: &Quiesced) -> Option<Held> {
        let key = self.table.newest_of(connection.slot(), |_| true)?;
        let work = self.table.remove(key)?;
        if let Some(data) = self.take_data(key.slot()) {
            data.quiesced(proof);
        }
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

    /// Returns the connection of each request other than an invalidation, which is waited for as a part of its Call, or of
    /// its connection.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = ConnectionKey> {
        let is_invalidation = |held: &Held| matches!(held, Held::LocalInv { .. } | Held::Release);
        let awaited = self.table.iter().filter(move |work| !is_invalidation(&work.held));
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
    /// A message, or Writes ahead of one that was copied.
    Message {
        /// The buffer of the message, if the provider holds it.
        buffer: Option<PostedSource<Local>>,
        /// The memory charged to the Call that the message answers.
        charge: Charge,
    },
    /// The last message of a Call of ours that ends when it has left, because it has no Reply.
    CallOnly {
        /// The buffer of the message, if the provider holds it.
        buffer: Option<PostedSource<Local>>,
        /// The Call's slot.
        slot: usize,
    },
    /// A message of the protocol engine, in its buffer.
    Control(Option<PostedSource<Local>>),
    /// The last RDMA Read of a Call, of a reduced argument, or of a Reply.
    Read {
        /// The leases that the Reads fill.
        sinks: PostedSinks,
        reader: Reader,
    },
    /// An invalidation on behalf of one of our Calls.
    LocalInv {
        /// The Call's slot.
        slot: usize,
    },
    /// An invalidation of a Reply that the peer has read.
    Release,
}

/// The Call that waits for Reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reader {
    /// A Call of the peer.
    Served(CallKey),
    /// A Call of ours, in this slot, for its Reply.
    Made(usize),
}

impl Held {
    /// Returns the octets of memory charged to the connection whose transfer to or from the peer this waits for.
    pub(crate) fn charged(&self) -> usize {
        match self {
            Self::Message { charge, .. } => charge.octets(),
            Self::Read { sinks, .. } => sinks.len(),
            Self::CallOnly { .. } | Self::Control(_) | Self::LocalInv { .. } | Self::Release => 0,
        }
    }

    /// Returns whether this is a message in a send buffer.
    pub(crate) const fn is_send(&self) -> bool {
        let is_message = matches!(self, Self::Message { buffer: Some(_), .. });
        is_message || matches!(self, Self::CallOnly { .. } | Self::Control(_))
    }

    /// Returns whether this is the entry of Writes ahead of a message that was copied.
    const fn is_written(&self) -> bool {
        matches!(self, Self::Message { buffer: None, .. })
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

/// Names of work requests are exchanged with this core's own provider alone, and packed without their prefix.
const NO_PREFIX: u8 = 0;
const KIND_MASK: u64 = 0xff << 56;
const KIND_WORK: u64 = 1 << 56;
const KIND_RECEIVE: u64 = 2 << 56;
