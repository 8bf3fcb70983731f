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
#[derive(Debug, Default)]
pub(super) struct Exposures {
    argument: Option<(u32, Segments)>,
    body: Option<Segments>,
}

impl Exposures {
    /// Returns the format of a Call with these chunks.
    pub(super) const fn sending(&self) -> Sending {
        let format = if self.body.is_some() { Format::Special } else { Format::Simple };
        Sending { kind: Kind::Call, format, has_chunks: true, is_call_only: false }
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
    /// a Payload stream that is fetched into a lease of its own, and leases the Reply chunk.
    pub(super) fn place(
        &mut self,
        plan: &CallPlan,
        pool: &Pool,
        buffer: &mut Local,
        encoded: &mut Encoded,
    ) -> Result<(), CallError> {
        if plan.reads.is_empty()
            && let CallLease::Local(argument) = self.item(LeaseRole::Argument)
        {
            let at = HEADER_ROOM + encoded.length;
            let gap = argument.len() + pad(argument.len());
            let room = buffer.bytes_mut().get_mut(at..at + gap);
            let (data, padding) = room.ok_or(CallError::TooLong)?.split_at_mut(argument.len());
            data.copy_from_slice(argument.bytes());
            padding.fill(0);
            encoded.length += gap;
        }
        if plan.call.is_some() {
            let stream = HEADER_ROOM..HEADER_ROOM + encoded.length;
            let mut body = pool.lease(encoded.length).ok_or(CallError::NoMemory)?;
            body.bytes_mut().copy_from_slice(&buffer.bytes()[stream]);
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
        let mut exposures = Exposures::default();
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
