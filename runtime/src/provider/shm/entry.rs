//! Posted requests that wait to be carried out.

use haulage_mr_pool::Sink;
use haulage_proto::verbs::{ClaimedSegment, Flags, Handle, Opcode, WrId};

use crate::provider::base::Payload;
use crate::provider::{Operation, WorkRequest};

/// A posted request that waits.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: WrId,
    pub(super) flags: Flags,
    pub(super) work: Work,
    /// Octets of the request that were moved.
    pub(super) moved: usize,
}

/// The operation of a request, and the views it holds.
#[derive(Debug)]
pub(super) enum Work {
    Send { payload: Payload, invalidate: Option<Handle> },
    Write { payload: Payload, target: ClaimedSegment },
    Read { sink: Sink, source: ClaimedSegment },
    LocalInv { handle: Handle },
}

impl Work {
    pub(super) const fn opcode(&self) -> Opcode {
        match self {
            Self::Send { .. } => Opcode::Send,
            Self::Write { .. } => Opcode::Write,
            Self::Read { .. } => Opcode::Read,
            Self::LocalInv { .. } => Opcode::LocalInv,
        }
    }
}

impl From<WorkRequest> for Entry {
    fn from(request: WorkRequest) -> Self {
        let WorkRequest { id, flags, operation } = request;
        let work = match operation {
            Operation::Send { source, invalidate } => {
                Work::Send { payload: Payload::View(source), invalidate }
            }
            Operation::Write { source, target } => {
                Work::Write { payload: Payload::View(source), target }
            }
            Operation::Read { sink, source } => Work::Read { sink, source },
            Operation::LocalInv { handle } => Work::LocalInv { handle },
        };
        Self { id, flags, work, moved: 0 }
    }
}

impl Entry {
    /// Copies the source if it may be reused at once.
    pub(super) fn copy_source(&mut self) {
        if self.flags.copied
            && let Work::Send { payload, .. } | Work::Write { payload, .. } = &mut self.work
            && let Payload::View(source) = payload
        {
            *payload = Payload::Copied(source.bytes().into());
        }
    }
}
