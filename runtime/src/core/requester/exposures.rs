//! Exposes the memory that a Call of ours names, and lists it as chunks.

use haulage_mr_pool::{Local, Pool};
use haulage_proto::exchange::{CallPlan, Format};
use haulage_proto::negotiate::CallChunks;
use haulage_proto::verbs::{Access, Handle, Segment};
use haulage_proto::xdr::pad;

use super::encoded::Encoded;
use super::exposed_leases::ExposedLeases;
use super::lease::{CallLease, LeaseRole};
use super::way::Way;
use crate::items::Items;
use crate::limits::HEADER_ROOM;
use crate::outgoing::segments::Segments;
use crate::provider::{Port, Refused};
use crate::service::CallError;

/// The segments of the memory that a Call exposes for being read. The segments to be written are in [`ExposedLeases`].
#[derive(Debug)]
pub(super) struct Exposures {
    pub(super) format: Format,
    reads: Items<(u32, Segments)>,
    body: Option<Segments>,
}

impl Exposures {
    /// Calls `f` with the chunk lists of a Call.
    pub(super) fn with<R>(
        &self,
        exposed_leases: &ExposedLeases,
        inv_handle: Handle,
        f: impl FnOnce(&CallChunks<'_>) -> R,
    ) -> R {
        let [_, reply] = &exposed_leases.offered;
        let reads = self.reads.iter().map(|(position, read)| (*position, read.as_slice()));
        let reads: Items<_> = reads.collect();
        let writes = exposed_leases.writes();
        f(&CallChunks {
            inv_handle,
            body: self.body.as_ref().map(Segments::as_slice),
            reads: reads.as_slice(),
            writes: writes.as_slice(),
            reply: reply.as_ref().map(Segments::as_slice),
        })
    }
}

impl ExposedLeases {
    /// Prepares the memory that the plan needs: copies arguments that are not reduced into the Payload stream, copies
    /// a Payload stream that is fetched, or leaves in parts, into a lease of its own, and leases the Reply chunk.
    pub(super) fn place(
        &mut self,
        plan: &CallPlan,
        pool: &Pool,
        buffer: &mut Local,
        encoded: &mut Encoded,
    ) -> Result<(), CallError> {
        if self.further.is_empty() {
            self.put_argument(plan, pool, buffer, encoded)?;
        } else {
            self.put_arguments(plan, pool, buffer, encoded)?;
        }
        if let Some(length) = plan.reply {
            let length = usize::try_from(length).map_err(|_| CallError::NoMemory)?;
            let chunk = pool.lease(length).ok_or(CallError::NoMemory)?;
            *self.item(LeaseRole::Reply) = CallLease::Local(chunk);
        }
        // On version 1 a chunk has room for padding.
        for ((room, _), length) in self.rooms().zip(plan.writes.iter()) {
            if let CallLease::Local(room) = room {
                room.set_len(room.capacity().min(usize::try_from(*length).unwrap_or(usize::MAX)));
            }
        }
        Ok(())
    }

    /// Completes the Payload stream: of one argument, which is the last, the octets may be missing.
    fn put_argument(
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
            //~ V2-4.5.3-1: `` -> `let gap = argument.len();`
            let mut body = pool.lease(encoded.length + gap).ok_or(CallError::NoMemory)?;
            let (front, room) = body.bytes_mut().split_at_mut(encoded.length);
            front.copy_from_slice(&buffer.bytes()[stream]);
            put_padded(room, argument);
            *self.item(LeaseRole::Body) = CallLease::Local(body);
        }
        Ok(())
    }

    /// Completes the Payload stream: the octets of arguments that are not reduced may be missing anywhere.
    #[cold]
    fn put_arguments(
        &mut self,
        plan: &CallPlan,
        pool: &Pool,
        buffer: &mut Local,
        encoded: &mut Encoded,
    ) -> Result<(), CallError> {
        let octets = [LeaseRole::Argument, LeaseRole::Result].map(|role| self.octets(role));
        let (items, _) = self.further.described(encoded, octets);
        let mut rest = &buffer.bytes()[HEADER_ROOM..HEADER_ROOM + encoded.length];
        let (mut stream, mut gone) = (Vec::new(), 0);
        for (index, (item, lease)) in items.iter().zip(self.arguments()).enumerate() {
            // The words in front of the item stay; its own octets come back unless they are in a chunk.
            let before = item.data().start - gone - (encoded.length - rest.len());
            let (front, back) = rest.split_at(before);
            // [V2-4.5.3.2-1] [V2-4.5.3.3-1] [V2-4.5.3.4-1] whatever goes into a chunk, the word in front of it stays.
            //~ V2-4.5.3.2-1: `front` ->
            //~   `front.get(..front.len().saturating_sub(4 * usize::from(item.kind() == crate::service::Kind::Array))).unwrap()`
            //~ V2-4.5.3.3-1: `front` ->
            //~   `front.get(..front.len().saturating_sub(4 * usize::from(item.kind() == crate::service::Kind::Optional))).unwrap()`
            //~ V2-4.5.3.4-1: `front` ->
            //~   `front.get(..front.len().saturating_sub(4 * usize::from(item.kind() == crate::service::Kind::Arm))).unwrap()`
            stream.extend_from_slice(front);
            rest = back;
            gone += item.length().next_multiple_of(4);
            // [V2-4.5.3.2-2] [V2-4.5.3.3-2] what is in a chunk is nowhere else.
            //~ V2-4.5.3.2-2: `` -> `let index = if item.kind() == crate::service::Kind::Array { usize::MAX } else { index };`
            //~ V2-4.5.3.3-2: `` -> `let index = if item.kind() == crate::service::Kind::Optional { usize::MAX } else { index };`
            if let CallLease::Local(argument) = lease
                && plan.reads.iter().all(|read| read.index != index)
            {
                stream.extend_from_slice(argument.bytes());
                stream.resize(stream.len().next_multiple_of(4), 0);
            }
        }
        stream.extend_from_slice(rest);
        let room = match plan.format {
            Format::Simple => {
                encoded.length = stream.len();
                buffer.bytes_mut().get_mut(HEADER_ROOM..HEADER_ROOM + stream.len())
            }
            Format::Special | Format::Continued { .. } => {
                let body = pool.lease(stream.len()).ok_or(CallError::NoMemory)?;
                *self.item(LeaseRole::Body) = CallLease::Local(body);
                match self.item(LeaseRole::Body) {
                    CallLease::Local(body) => Some(body.bytes_mut()),
                    _ => None,
                }
            }
        };
        room.ok_or(CallError::TooLong)?.copy_from_slice(&stream);
        Ok(())
    }

    /// Exposes the leases that the plan names.
    pub(super) fn expose(
        &mut self,
        plan: &CallPlan,
        port: &mut (impl Port + ?Sized),
    ) -> Result<Exposures, Unready> {
        let mut open = |item: &mut CallLease, access| expose(port, plan, item, access);
        let mut exposures = Exposures { format: plan.format, reads: Items::None, body: None };
        for (index, argument) in self.arguments().enumerate() {
            if let Some(read) = plan.reads.iter().find(|read| read.index == index) {
                let segments = open(argument, Access::RemoteRead)?;
                exposures.reads.push((read.position, segments));
            }
        }
        if plan.call.is_some() {
            exposures.body = Some(open(self.item(LeaseRole::Body), Access::RemoteRead)?);
        }
        for ((room, offered), length) in self.rooms().zip(plan.writes.iter()) {
            // A chunk without segments keeps the place of a result that comes inline.
            *offered = Some(match length {
                0 => Segments::default(),
                _ => open(room, Access::RemoteWrite)?,
            });
        }
        if plan.reply.is_some() {
            let segments = open(self.item(LeaseRole::Reply), Access::RemoteWrite)?;
            self.offered[1] = Some(segments);
        }
        Ok(exposures)
    }

    /// Exposes the rooms for the results that are to come by RDMA Write.
    pub(super) fn expose_rooms(
        &mut self,
        plan: &CallPlan,
        ways: &[Way],
        port: &mut (impl Port + ?Sized),
    ) -> Result<(), Unready> {
        for ((room, offered), way) in self.rooms().zip(ways) {
            *offered = Some(match way {
                Way::Write => expose(port, plan, room, Access::RemoteWrite)?,
                Way::Inline | Way::Send => Segments::default(),
            });
        }
        Ok(())
    }
}

/// Copies an argument into the room for it and its padding.
fn put_padded(room: &mut [u8], argument: &[u8]) {
    let (data, padding) = room.split_at_mut(argument.len());
    data.copy_from_slice(argument);
    padding.fill(0);
}

/// Why a Call does not leave, or its leases are not exposed.
pub(super) enum Unready {
    /// It waits for credit, as before.
    Waits,
    /// The connection is gone. The Call waits, as if it had been sent, for its end, which is about to be reported.
    Gone,
    /// The Call cannot be made.
    Failed(CallError),
}

impl From<CallError> for Unready {
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
) -> Result<Segments, Unready> {
    let Some(lease) = item.take_local() else { return Ok(Segments::default()) };
    let exposed_leases = port.open(lease, access);
    let (exposed, Segment { handle, length, offset }) =
        exposed_leases.map_err(|(lease, why)| {
            *item = CallLease::Local(lease);
            match why {
                Refused::Gone => Unready::Gone,
                Refused::NotOpen => CallError::NotExposed.into(),
                _ => CallError::Busy.into(),
            }
        })?;
    *item = CallLease::Exposed(exposed);
    // P7: split at the largest segment that the peer takes.
    //~ V2-4.5.3.1-2: `` -> `let length = match access {
    //~     Access::RemoteRead => length.next_multiple_of(4), Access::RemoteWrite => length,
    //~   };`
    Ok(Segments::collect(plan.split(handle, offset, length)))
}
