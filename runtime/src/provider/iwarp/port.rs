//! The port of one connection.

use haulage_mr_pool::Local;
use haulage_proto::verbs::{Access, Handle, Segment, WrId};

use super::connection::Connection;
use super::nic::Nic;
use crate::provider::{
    Done, Head, OpenResult, Outgoing, Port, QueueFull, Refused, Sent, WorkQueue, expose,
};

/// Sends on a connection that is open.
#[derive(Debug)]
pub struct LanePort<'a> {
    pub(super) connection: &'a mut Connection,
    pub(super) nic: &'a mut Nic,
}

impl Port for LanePort<'_> {
    #[inline]
    fn send(&mut self, head: &Head<'_>, message: &mut Outgoing, id: WrId) -> Sent {
        self.connection.send(self.nic, head, message, id)
    }

    #[inline]
    fn open(&mut self, lease: Local, access: Access) -> OpenResult {
        let Self { connection, nic } = self;
        let Ok(length) = u32::try_from(lease.len()) else { return Err((lease, Refused::TooLong)) };
        let Some(handle) = nic.stags.reserve(connection.qp()) else {
            return Err((lease, Refused::Full));
        };
        let offset = nic.stags.random_offset();
        let (exposed, memory) = expose(lease, handle, access);
        let registered = nic.stags.register(handle, connection.qp(), offset, memory);
        debug_assert!(registered.is_ok(), "it was reserved");
        Ok((exposed, Segment { handle, length, offset }))
    }

    #[inline]
    fn retire(&mut self, handle: Handle) -> Option<Done> {
        let Self { connection, nic } = self;
        let is_read = connection.is_read(handle);
        if is_read || nic.stags.invalidate(handle, connection.qp()).is_err() {
            return None;
        }
        nic.counters.invalidated_remote += 1;
        Some(Done::invalidating(connection.qp(), handle))
    }

    fn post(&mut self, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        self.connection.post(self.nic, batch)
    }
}
