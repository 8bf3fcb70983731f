//! What is kept of a Call in case that its peer refuses it.

use haulage_mr_pool::Local;
use haulage_proto::exchange::CallPlan;
use haulage_proto::time::Instant;

use super::encoded::Encoded;
use crate::limits::HEADER_ROOM;

/// What it takes to send a Call again.
#[derive(Debug, Default)]
pub(super) struct SentCall {
    /// The Payload stream, without an argument that has a lease of its own.
    stream: Vec<u8>,
    arguments_at: usize,
}

impl SentCall {
    /// Keeps a Call that is encoded in `buffer` and about to leave.
    #[inline]
    pub(super) fn keep(&mut self, buffer: &[u8], encoded: &Encoded) {
        let stream = buffer.get(HEADER_ROOM..HEADER_ROOM + encoded.length).unwrap_or_default();
        // Most Calls of a slot are as long as the one before.
        if self.stream.len() == stream.len() {
            self.stream.copy_from_slice(stream);
        } else {
            self.replace(stream);
        }
        self.arguments_at = encoded.arguments_at;
    }

    #[cold]
    fn replace(&mut self, stream: &[u8]) {
        self.stream.clear();
        self.stream.extend_from_slice(stream);
    }

    /// Writes the Call into a buffer, under another XID.
    pub(super) fn write(&self, xid: u32, buffer: &mut Local) -> Encoded {
        let length = self.stream.len();
        if let Some(room) = buffer.bytes_mut().get_mut(HEADER_ROOM..HEADER_ROOM + length) {
            room.copy_from_slice(&self.stream);
            room[..4].copy_from_slice(&xid.to_be_bytes());
        }
        self.encoded()
    }

    /// Returns where in the Payload stream the arguments are.
    pub(super) const fn encoded(&self) -> Encoded {
        Encoded { arguments_at: self.arguments_at, length: self.stream.len() }
    }
}

/// How a refused Call goes again.
#[derive(Debug)]
pub(super) struct Again {
    pub(super) plan: CallPlan,
    pub(super) deadline: Instant,
    /// The XID that it has gone under, or until then the one under which it was refused.
    pub(super) xid: u32,
    pub(super) has_gone: bool,
}

impl Again {
    /// Returns the plan for the try with this XID; `None` if the plan was made for a Call that had the slot before.
    pub(super) fn plan(&self, xid: u32) -> Option<&CallPlan> {
        (self.has_gone && self.xid == xid).then_some(&self.plan)
    }
}
