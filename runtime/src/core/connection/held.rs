//! Replies that the client of a connection reads (version 1, RFC 5666). At the server each stays exposed until the client
//! says `RDMA_DONE`; the engine decides how many there may be, and for how long. At the client each is noted once it was
//! read, until the `RDMA_DONE` leaves.

use std::collections::VecDeque;

use haulage_mr_pool::{Exposed, Invalidated};
use haulage_proto::verbs::Handle;

use crate::core::memory::Charge;
use crate::provider::Quiesced;
use crate::sys::complete;

/// The Replies of a connection that are exposed, and those that were read.
#[derive(Debug, Default)]
pub(crate) struct HeldReplies {
    /// Our own that are exposed, oldest first.
    exposed: Vec<HeldReply>,
    /// The XIDs of the peer's that were read, and are to be released.
    read: VecDeque<u32>,
}

/// A Reply that is exposed.
#[derive(Debug)]
struct HeldReply {
    xid: u32,
    /// The Payload stream.
    stream: Exposed,
    /// The memory charged to the Call that the Reply answers.
    charge: Charge,
    /// Whether its handle is being invalidated.
    is_released: bool,
}

impl HeldReplies {
    /// Holds a Reply.
    pub(crate) fn hold(&mut self, xid: u32, stream: Exposed, charge: Charge) {
        self.exposed.push(HeldReply { xid, stream, charge, is_released: false });
    }

    /// Begins to take back the oldest Reply with this XID that is still held. Returns the handle to invalidate.
    pub(crate) fn release(&mut self, xid: u32) -> Option<Handle> {
        let held = self.exposed.iter_mut().find(|held| held.xid == xid && !held.is_released)?;
        held.is_released = true;
        Some(held.stream.handle())
    }

    /// Takes back the Reply that `proof` is about. Returns the charge to give back; `None` if there is no such Reply.
    pub(crate) fn fence(&mut self, proof: Invalidated<'_>) -> Option<Charge> {
        let at = self.exposed.iter().position(|held| held.stream.handle() == proof.handle())?;
        let HeldReply { stream, charge, .. } = self.exposed.swap_remove(at);
        // A broken provider still has a view of a lease that does not come back: its memory is never lent again.
        let fenced = stream.fence(proof);
        debug_assert!(fenced.is_ok(), "a view outlived its handle");
        Some(charge)
    }

    /// Takes back a Reply of a connection that has quiesced. Returns the charge to give back; `None` if there is none.
    pub(crate) fn quiesce(&mut self, proof: &Quiesced) -> Option<Charge> {
        let proof = complete::destroyed(&self.exposed.last()?.stream, proof);
        self.fence(proof)
    }

    /// Notes that a Reply of the peer was read.
    pub(crate) fn owe_done(&mut self, xid: u32) {
        self.read.push_back(xid);
    }

    /// Takes the XID of the next Reply of the peer that was read and is to be released.
    pub(crate) fn next_done(&mut self) -> Option<u32> {
        self.read.pop_front()
    }

    /// Returns the heap memory of the list, in octets.
    pub(super) fn bytes(&self) -> usize {
        self.exposed.capacity() * size_of::<HeldReply>() + self.read.capacity() * size_of::<u32>()
    }
}
