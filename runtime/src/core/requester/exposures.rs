//! Exposes the memory that a Call of ours names, and lists it as chunks.

use haulage_mr_pool::{Local, Pool};
use haulage_proto::exchange::{CallPlan, Format};
use haulage_proto::negotiate::CallChunks;
use haulage_proto::v2::connection::Sending;
use haulage_proto::v2::continuation::Kind;
use haulage_proto::verbs::{Access, Handle, Segment};
use haulage_proto::xdr::pad;

use super::encoded::Encoded;
use super::exposed_leases::{CallLease, ExposedLeases, LeaseRole};
use crate::limits::HEADER_ROOM;
use crate::outgoing::segments::Segments;
use crate::provider::{Port, Refused};
use crate::service::CallError;

/// The segments of the memory that a Call exposes for being read. The segments to be written are in [`ExposedLeases`].
#[derive(Debug)]
pub(super) struct Exposures {
    pub(super) format: Format,
    argument: Option<(u32, Segments)>,
    body: Option<Segments>,
}

impl Exposures {
    /// Returns the format of a Call with these chunks.
    pub(super) const fn sending(&self) -> Sending {
        Sending { kind: Kind::Call, format: self.format, has_chunks: true, is_call_only: false }
    }

    /// Calls `f` with the chunk lists of a Call.
    pub(super) fn with<R>(
        &self,
        exposed_leases: &ExposedLeases,
        inv_handle: Handle,
        f: impl FnOnce(&CallChunks<'_>) -> R,
    ) -> R {
        let [write, reply] = exposed_leases.offered.each_ref().map(|offered| offered.as_ref());
        let reads = self.argument.as_ref().map(|(position, read)| [(*position, read.as_slice())]);
        let writes = write.map(|write| [write.as_slice()]);
        f(&CallChunks {
            inv_handle,
            body: self.body.as_ref().map(Segments::as_slice),
            reads: reads.as_ref().map_or(&[][..], |reads| reads.as_slice()),
            writes: writes.as_ref().map_or(&[][..], |writes| writes.as_slice()),
            reply: reply.map(Segments::as_slice),
        })
    }
}

impl ExposedLeases {
    /// Prepares the memory that the plan needs: copies an argument that is not reduced into the Payload stream, copies
    /// a Payload stream that is fetched, or leaves in parts, into a lease of its own, and leases the Reply chunk.
    pub(super) fn place(
        &mut self,
        plan: &CallPlan,
        pool: &Pool,
        buffer: &mut Local,
        encoded: &mut Encoded,
    ) -> Result<(), CallError> {
        let argument = match self.item(LeaseRole::Argument) {
            CallLease::Local(argument) if plan.reads.is_empty() => argument.bytes(),
            _ => &[],
        };
        let gap = argument.len() + pad(argument.len());
        if plan.format == Format::Simple {
            let at = HEADER_ROOM + encoded.length;
            let room = buffer.bytes_mut().get_mut(at..at + gap);
            put_padded(room.ok_or(CallError::TooLong)?, argument);
            encoded.length += gap;
        } else {
            let stream = HEADER_ROOM..HEADER_ROOM + encoded.length;
            let mut body = pool.lease(encoded.length + gap).ok_or(CallError::NoMemory)?;
            let (front, room) = body.bytes_mut().split_at_mut(encoded.length);
            front.copy_from_slice(&buffer.bytes()[stream]);
            put_padded(room, argument);
            *self.item(LeaseRole::Body) = CallLease::Local(body);
        }
        if let Some(length) = plan.reply {
            let length = usize::try_from(length).map_err(|_| CallError::NoMemory)?;
            let chunk = pool.lease(length).ok_or(CallError::NoMemory)?;
            *self.item(LeaseRole::Reply) = CallLease::Local(chunk);
        }
        // On version 1 the chunk has room for padding.
        if let (Some(length), CallLease::Local(result)) =
            (plan.writes.first(), self.item(LeaseRole::Result))
        {
            result.set_len(result.capacity().min(usize::try_from(*length).unwrap_or(usize::MAX)));
        }
        Ok(())
    }

    /// Exposes the leases that the plan names.
    pub(super) fn expose(
        &mut self,
        plan: &CallPlan,
        port: &mut (impl Port + ?Sized),
    ) -> Result<Exposures, Unopened> {
        let mut open = |item: &mut CallLease, access| expose(port, plan, item, access);
        let mut exposures = Exposures { format: plan.format, argument: None, body: None };
        if let Some(argument) = plan.reads.first() {
            let segments = open(self.item(LeaseRole::Argument), Access::RemoteRead)?;
            exposures.argument = Some((argument.position, segments));
        }
        if plan.call.is_some() {
            exposures.body = Some(open(self.item(LeaseRole::Body), Access::RemoteRead)?);
        }
        if !plan.writes.is_empty() {
            let segments = open(self.item(LeaseRole::Result), Access::RemoteWrite)?;
            self.offered[0] = Some(segments);
        }
        if plan.reply.is_some() {
            let segments = open(self.item(LeaseRole::Reply), Access::RemoteWrite)?;
            self.offered[1] = Some(segments);
        }
        Ok(exposures)
    }
}

/// Copies an argument into the room for it and its padding.
fn put_padded(room: &mut [u8], argument: &[u8]) {
    let (data, padding) = room.split_at_mut(argument.len());
    data.copy_from_slice(argument);
    padding.fill(0);
}

/// Why the leases of a Call are not exposed.
pub(super) enum Unopened {
    /// The connection is gone; its end is about to be reported.
    Gone,
    /// The Call cannot be made.
    Failed(CallError),
}

impl From<CallError> for Unopened {
    fn from(error: CallError) -> Self {
        Self::Failed(error)
    }
}

/// Exposes a lease to the peer. Returns the segments that name it.
fn expose(
    port: &mut (impl Port + ?Sized),
    plan: &CallPlan,
    item: &mut CallLease,
    access: Access,
) -> Result<Segments, Unopened> {
    let Some(lease) = item.take_local() else { return Ok(Segments::default()) };
    let exposed_leases = port.open(lease, access);
    let (exposed, Segment { handle, length, offset }) =
        exposed_leases.map_err(|(lease, why)| {
            *item = CallLease::Local(lease);
            if why == Refused::Gone { Unopened::Gone } else { CallError::Busy.into() }
        })?;
    *item = CallLease::Exposed(exposed);
    // P7: split at the largest segment that the peer takes.
    //~ V2-4.5.3.1-2: `` -> `let length = match access {
    //~     Access::RemoteRead => length.next_multiple_of(4), Access::RemoteWrite => length,
    //~   };`
    Ok(Segments::collect(plan.split(handle, offset, length)))
}
