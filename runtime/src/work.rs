//! What the runtime and a provider exchange: requests over leased memory, and the evidence of their ends.

use std::ops::Deref;

use haulage_mr_pool::{Sink, Source};
use haulage_proto::verbs as alphabet;
use haulage_proto::verbs::{Completion, Flags, Handle, Opcode, QpNum, Status, WrId};

/// A send queue entry over leased memory.
pub type WorkRequest = alphabet::WorkRequest<Source, Sink>;
/// The operation of a send queue entry over leased memory.
pub type Operation = alphabet::Operation<Source, Sink>;
/// A receive queue entry over leased memory.
pub type Receive = alphabet::Receive<Sink>;

/// Entries waiting to be posted on one send queue, oldest first.
pub type WorkQueue = std::collections::VecDeque<WorkRequest>;

/// Makes the requests that move the parts of an item, none of which has a name.
///
/// A later request, which its user names and has signaled, stands for all of them. Of many, some are signaled only to
/// tell that the send queue has room for more.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    count: usize,
}

impl Parts {
    /// The identifier of a part.
    pub(crate) const NAME: WrId = WrId(0);

    /// Makes the next request.
    #[inline]
    pub(crate) fn next(&mut self, operation: Operation) -> WorkRequest {
        self.count += 1;
        let flags =
            Flags { signaled: self.count.is_multiple_of(SIGNALED_EVERY), ..Flags::default() };
        WorkRequest { id: Self::NAME, flags, operation }
    }
}

/// Every how many parts one is signaled: a send queue that is full of parts has room for this many.
const SIGNALED_EVERY: usize = 16;

/// A completion that a provider really reported.
///
/// Leases come back against one of these, so nothing outside this crate can make or copy one: safe
/// code cannot claim that the RNIC is done with memory it still holds.
#[derive(Debug)]
pub struct Done(Completion);

impl Done {
    /// States that every view of the memory named by this work request has been dropped.
    pub(crate) const fn new(completion: Completion) -> Self {
        Self(completion)
    }

    /// States that every view of the registration that a message invalidated has been dropped. The message was taken
    /// without a Receive.
    pub(crate) const fn invalidating(qp: QpNum, handle: Handle) -> Self {
        let (id, length, invalidated) = (WrId(0), 0, Some(handle));
        let (opcode, status) = (Opcode::Receive, Status::Success);
        Self(Completion { id, qp, opcode, status, length, invalidated })
    }
}

impl Deref for Done {
    type Target = Completion;

    fn deref(&self) -> &Completion {
        &self.0
    }
}

/// Evidence that a provider holds nothing of a connection any more: no request, no registration.
#[derive(Debug)]
pub struct Quiesced(QpNum);

impl Quiesced {
    /// States that every view that belonged to `qp` has been dropped.
    pub(crate) const fn new(qp: QpNum) -> Self {
        Self(qp)
    }

    /// Returns the queue pair.
    pub const fn qp(&self) -> QpNum {
        self.0
    }
}

/// The user at the other end of a connection, as far as this machine's system can vouch for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerUser {
    /// The peer is on another machine, about whose users this one knows nothing.
    Remote,
    /// The peer is on this machine, and its socket belongs to this user.
    Local(u32),
    /// The peer is on this machine, or may be, and the system does not name the user.
    Unknown,
}
