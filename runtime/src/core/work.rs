//! What the provider holds for us: every lease in a posted work request, named by the request.
//!
//! # Memory ownership
//! A lease enters this table before the work request that uses it is queued and leaves it with that
//! request's completion, or, if the connection was lost before the request was posted, once the
//! connection has quiesced.

use std::ops::Range;

use haulage_mr_pool::{Local, PostedSink, PostedSource, Shared, Source};
use haulage_proto::verbs::WrId;

use crate::core::connection::Connection;
use crate::core::inbound::InboundCall;
use crate::core::table::{Key, Table};
use crate::provider::{Done, Quiesced};
use crate::service::Data;
use crate::sys::complete;

/// Work requests whose completion we wait for.
pub(crate) type WorkTable = Table<Work>;

/// One signaled work request.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) connection: Key<Connection>,
    pub(crate) held: Held,
}

/// What it holds, and what its end means.
#[derive(Debug)]
pub(crate) enum Held {
    /// A message, and what was written before it.
    Send {
        /// The message's buffer.
        buffer: PostedSource<Local>,
        /// The sources of the Writes posted just before it: a data item, and the Payload stream.
        written: [PostedData; 2],
    },
    /// The last RDMA Read of a Call or of a reduced argument.
    Read {
        /// Where it goes.
        sink: PostedSink,
        /// The Call that waits for it.
        call: Key<InboundCall>,
    },
    /// An invalidation on behalf of one of our Calls.
    LocalInv {
        /// The Call's slot.
        slot: usize,
    },
}

/// The source of RDMA Writes.
#[derive(Debug, Default)]
pub(crate) enum PostedData {
    #[default]
    None,
    Local(PostedSource<Local>),
    Shared(PostedSource<Shared>),
}

impl PostedData {
    /// Takes a result as the source of Writes.
    pub(crate) fn of(data: Data) -> Self {
        match data {
            Data::Local(lease) if !lease.bytes().is_empty() => Self::Local(lease.into_source()),
            Data::Shared(shared) if !shared.bytes().is_empty() => {
                Self::Shared(shared.into_source())
            }
            _ => Self::None,
        }
    }

    /// Returns a view of part of it for one Write.
    pub(crate) fn source(&self, range: Range<usize>) -> Option<Source> {
        match self {
            Self::None => None,
            Self::Local(posted) => posted.source(range),
            Self::Shared(posted) => posted.source(range),
        }
    }

    /// Takes the memory back; the provider is done with it.
    pub(crate) fn complete(self, done: &Done) {
        match self {
            Self::None => {}
            Self::Local(posted) => drop(complete::source(posted, done)),
            Self::Shared(posted) => drop(complete::shared(posted, done)),
        }
    }

    /// Takes the memory back; the connection has quiesced.
    pub(crate) fn quiesced(self, proof: &Quiesced) {
        match self {
            Self::None => {}
            Self::Local(posted) => drop(complete::source_quiesced(posted, proof)),
            Self::Shared(posted) => drop(complete::shared_quiesced(posted, proof)),
        }
    }
}

/// What a completion's identifier names. The kind is in the top byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// An unsignaled request: its end is told by a later one, or by the end of the connection.
    Unsignaled,
    /// An entry of the work table, as packed key.
    Work(u64),
    /// A Receive, by buffer number.
    Receive(usize),
}

impl Name {
    pub(crate) fn wr_id(self) -> WrId {
        match self {
            Self::Unsignaled => WrId(0),
            Self::Work(bits) => WrId(KIND_WORK | bits),
            Self::Receive(buffer) => WrId(KIND_RECEIVE | buffer as u64),
        }
    }

    pub(crate) fn of(id: WrId) -> Self {
        let rest = id.0 & !KIND_MASK;
        match id.0 & KIND_MASK {
            KIND_WORK => Self::Work(rest),
            KIND_RECEIVE => Self::Receive(usize::try_from(rest).unwrap_or(usize::MAX)),
            _ => Self::Unsignaled,
        }
    }
}

const KIND_MASK: u64 = 0xff << 56;
const KIND_WORK: u64 = 1 << 56;
const KIND_RECEIVE: u64 = 2 << 56;
