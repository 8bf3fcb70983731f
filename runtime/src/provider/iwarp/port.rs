//! The port of one connection.

use haulage_mr_pool::Local;
use haulage_proto::verbs::{Access, ClaimedSegment, Handle, HeaderPatch, NamedTemplate, Segment};

use super::connection::Connection;
use super::nic::Nic;
use crate::provider::{Done, OpenResult, Port, QueueFull, Refused, WorkQueue, WorkRequest, expose};

/// Sends on a connection that is open.
#[derive(Debug)]
pub struct LanePort<'a> {
    pub(super) connection: &'a mut Connection,
    pub(super) nic: &'a mut Nic,
}

impl Port for LanePort<'_> {
    #[inline]
    fn send(&mut self, message: &[u8], invalidate: Option<Handle>) -> Result<(), Refused> {
        let Self { connection, nic } = self;
        connection.send_inline(nic, invalidate, message.len(), |own| own.extend_from_slice(message))
    }

    #[inline(always)]
    fn send_like(
        &mut self,
        NamedTemplate { template, .. }: NamedTemplate<'_>,
        patch: HeaderPatch,
        message: &mut [u8],
    ) -> Result<(), Refused> {
        let body = message.get(template.len()..).ok_or(Refused::TooLong)?;
        self.connection.send_inline(self.nic, None, message.len(), |own| {
            let start = own.len();
            own.extend_from_slice(template.octets());
            let headers = own.get_mut(start..).unwrap_or_default();
            let written = template.put_patch(headers, patch);
            debug_assert!(written.is_some(), "the headers are there");
            own.extend_from_slice(body);
        })
    }

    #[inline]
    fn write(&mut self, parts: &[&[u8]], target: &ClaimedSegment) -> Result<(), Refused> {
        self.connection.write_inline(self.nic, parts, target)
    }

    #[inline]
    fn stage(&mut self, request: WorkRequest) -> Result<(), WorkRequest> {
        self.connection.stage(self.nic, request)
    }

    #[inline]
    fn open(&mut self, lease: Local, access: Access) -> OpenResult {
        let Self { connection, nic } = self;
        let Ok(length) = u32::try_from(lease.len()) else { return Err((lease, Refused::TooLong)) };
        let Some(handle) = nic.stags.reserve(connection.qp) else {
            return Err((lease, Refused::Full));
        };
        let offset = nic.stags.random_offset();
        let (exposed, memory) = expose(lease, handle, access);
        let registered = nic.stags.register(handle, connection.qp, offset, memory);
        debug_assert!(registered.is_ok(), "it was reserved");
        Ok((exposed, Segment { handle, length, offset }))
    }

    #[inline]
    fn retire(&mut self, handle: Handle) -> Option<Done> {
        let Self { connection, nic } = self;
        let is_read = connection.queue.as_ref().is_some_and(|queue| queue.is_read(handle));
        if is_read || nic.stags.invalidate(handle, connection.qp).is_err() {
            return None;
        }
        nic.counters.invalidated_remote += 1;
        Some(Done::invalidating(connection.qp, handle))
    }

    fn post(&mut self, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        self.connection.post(self.nic, batch)
    }
}
