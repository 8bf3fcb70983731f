//! Sending a Call of ours: what it exposes is registered, and its header written, when it leaves.

use haulage_proto::chunk;
use haulage_proto::v2::credit::Class;
use haulage_proto::v2::header::{CallLists, call_inline_wire_len, encode_call_inline};
use haulage_proto::verbs::{Access, Exposure, Flags, Handle};
use haulage_proto::xdr::Writer;

use super::{Item, Stage};
use crate::core::Core;
use crate::core::connection::Connection;
use crate::core::inbound::Segments;
use crate::core::table::Key;
use crate::core::work::{Name, PostedData};
use crate::limits::HEADER_ROOM;
use crate::provider::{Operation, Provider, WorkRequest};
use crate::service::{CallError, Service};

impl<P: Provider, S: Service> Core<P, S> {
    /// Registers what a Call exposes and queues it; its credit is known to be there.
    pub(crate) fn send_call(&mut self, key: Key<Connection>, slot: usize) {
        let Self { provider, state, .. } = self;
        let Some(call) = state.outbound.get_mut(slot).and_then(Option::as_mut) else { return };
        let Some(connection) = state.connections.get_mut(key) else { return };
        let (mut buffer, payload_length) = match std::mem::replace(&mut call.stage, Stage::Sent) {
            Stage::Queued { buffer, payload_length } => (buffer, payload_length),
            other => {
                call.stage = other;
                return;
            }
        };
        let terms = connection.terms;
        let (read_count, write_count) =
            (terms.segments(call.argument.len()), terms.segments(call.result.len()));
        let length =
            call_inline_wire_len(read_count, Some(write_count).filter(|&count| count > 0), None);
        let fits = read_count + write_count <= terms.segments_max
            && length + payload_length <= terms.inline_threshold;
        let registered = fits
            && expose(provider, connection, &mut call.argument, Access::RemoteRead)
                .map(|argument| call.reads = argument)
                .is_ok()
            && expose(provider, connection, &mut call.result, Access::RemoteWrite)
                .map(|result| call.offered = result)
                .is_ok();
        let credit = if registered { connection.engine.try_send(Class::Call) } else { None };
        let Some(credit) = credit else {
            call.error = Some(if fits { CallError::Busy } else { CallError::TooLong });
            call.stage = Stage::Fencing;
            state.recycle(buffer);
            return state.fence_rest(slot);
        };
        // Section 6.5: solicit the invalidation of what the caller waits for.
        let inv_handle = call.result.exposed().or(call.argument.exposed()).unwrap_or(Handle(0));
        let (reads, writes) = ([(call.position, call.reads.as_slice())], [call.offered.as_slice()]);
        let lists = CallLists {
            inv_handle,
            reads: &reads[..usize::from(read_count > 0)],
            writes: &writes[..usize::from(write_count > 0)],
            reply: None,
        };
        let start = HEADER_ROOM - length;
        let room = buffer.bytes_mut().get_mut(start..HEADER_ROOM).unwrap_or_default();
        let encoded = encode_call_inline(&mut Writer::new(room), call.xid, credit, &lists);
        debug_assert!(encoded.is_ok(), "the header room holds the longest header");
        state.send(key, buffer, start..HEADER_ROOM + payload_length, None, PostedData::None);
    }
}

/// Opens a lease to the peer of `connection` and returns the segments that name it.
fn expose<P: Provider>(
    provider: &mut P,
    connection: &mut Connection,
    item: &mut Item,
    access: Access,
) -> Result<Segments, Exhausted> {
    if item.len() == 0 {
        return Ok(Segments::default());
    }
    let handle = provider.reserve_handle(connection.qp).ok_or(Exhausted)?;
    let Some(lease) = item.take_local() else { return Ok(Segments::default()) };
    let length = lease.len();
    let offset = provider.registration_offset(length);
    let (exposed, memory) = match access {
        Access::RemoteRead => {
            let (exposed, source) = lease.expose_read(handle);
            (exposed, Exposure::RemoteRead(source))
        }
        Access::RemoteWrite => {
            let (exposed, sink) = lease.expose_write(handle);
            (exposed, Exposure::RemoteWrite(sink))
        }
    };
    *item = Item::Exposed(exposed);
    let operation = Operation::FastReg { handle, offset, memory };
    let id = Name::Unsignaled.wr_id();
    connection.queue.push_back(WorkRequest { id, flags: Flags::default(), operation });
    // P7: split at what the peer takes.
    let segments = chunk::split(handle, offset, length as u64, connection.terms.segment_max);
    Ok(Segments::collect(segments))
}

/// Every registration is in use.
#[derive(Debug)]
struct Exhausted;
