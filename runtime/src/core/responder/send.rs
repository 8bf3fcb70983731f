//! Sending a Reply that has its credit, behind the Writes of its result.

use std::ops::Range;

use haulage_mr_pool::{Local, Source};
use haulage_proto::chunk;
use haulage_proto::negotiate::ReplyChunks;
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::header::Returned;
use haulage_proto::v2::invalidation::{Place, invalidates};
use haulage_proto::verbs::Segment;
use haulage_proto::xdr::Writer;

use super::answer::QueuedReply;
use super::{ServedCall, Stage};
use crate::core::common::Common;
use crate::core::memory::Charge;
use crate::core::segments::Segments;
use crate::core::work::{Held, Parts, PostedData, Written};
use crate::key::ConnectionKey;
use crate::limits::HEADER_ROOM;
use crate::provider::{Operation, Port, WorkRequest};

/// Sends the Reply of a Call behind the Writes of its result. The credit is already spent.
pub(crate) fn send(common: &mut Common, mut call: ServedCall, credit: u32, port: &mut impl Port) {
    let key = call.connection;
    let mut charge = std::mem::take(&mut call.charge);
    let Stage::Replying(answer) = call.stage else { return common.discharge(key, charge) };
    let Some(connection) = common.connections.get_mut(key) else { return };
    let QueuedReply { mut buffer, body, length, is_special, data } = answer;

    let write = call.write.as_ref().map(Segments::as_slice).unwrap_or_default();
    let reply = call.reply.as_ref().map(Segments::as_slice).unwrap_or_default();
    let item = data.len();
    let returned = [Returned { offered: write, length: item }];
    let chunks = ReplyChunks {
        writes: &returned[..usize::from(call.write.is_some())],
        reply: is_special.then_some(Returned { offered: reply, length }),
    };
    let version = connection.terms.version;
    let start = HEADER_ROOM - chunks.wire_len(version);
    let room = buffer.bytes_mut().get_mut(start..HEADER_ROOM).unwrap_or_default();
    let encoded = chunks.encode(version, &mut Writer::new(room), call.xid, credit);
    debug_assert!(encoded.is_ok(), "the header room holds the longest header");
    let invalidate =
        call.invalidate.and_then(|handle| invalidates(Kind::Reply, Place::Last, handle));

    let mut data = PostedData::of(data);
    let mut end = HEADER_ROOM + length;
    let goes_inline = !is_special && end - start <= common.abilities.inline_max;
    if goes_inline && connection.queue.is_empty() && common.posted.has_room_for_writes() {
        data = stage_writes(common, key, data, &mut charge, write, port);
        let Some(connection) = common.connections.get_mut(key) else { return };
        let message = buffer.bytes().get(start..end).unwrap_or_default();
        if matches!(data, PostedData::None) && connection.send_inline(port, message, invalidate) {
            common.discharge(key, charge);
            return common.buffers.recycle(buffer);
        }
        let written = Written::one(data, charge);
        return common.send(key, buffer, start..end, invalidate, written);
    }
    let queue = &mut connection.queue;
    writes(write, item, |range, each| data.sources(range, each), |part| queue.push_back(part));
    let (buffer, body) = (buffer.into_source(), body.map(Local::into_source));
    if is_special {
        let source = |range: Range<usize>| match &body {
            Some(body) => body.source(range),
            None => buffer.source(HEADER_ROOM + range.start..HEADER_ROOM + range.end),
        };
        let sources = |range, each: &mut dyn FnMut(Source)| {
            source(range).into_iter().for_each(each);
        };
        writes(reply, length, sources, |part| queue.push_back(part));
        end = HEADER_ROOM;
    }
    let body = body.map_or(PostedData::None, PostedData::Local);
    let written = Written { sources: [data, body], charge };
    common.send_posted(key, buffer, start..end, invalidate, written);
}

/// Stages the Writes of a result at `port`; from the first Write that the port refuses, they go to the queue of the
/// connection. The completion of the last one releases `data` and `charge`. Returns `data` if there is nothing to
/// write.
pub(crate) fn stage_writes(
    common: &mut Common,
    key: ConnectionKey,
    data: PostedData,
    charge: &mut Charge,
    write: &[Segment],
    port: &mut impl Port,
) -> PostedData {
    let Some(connection) = common.connections.get_mut(key) else { return data };
    let mut last: Option<WorkRequest> = None;
    let sources = |range, each: &mut dyn FnMut(Source)| data.sources(range, each);
    writes(write, data.len(), sources, |request| {
        if let Some(request) = last.replace(request) {
            connection.stage(request, port);
        }
    });
    let Some(mut request) = last else { return data };
    let held = Held::Written { data, charge: std::mem::take(charge) };
    request.id = common.enter_work(key, held);
    request.flags.signaled = true;
    if let Some(connection) = common.connections.get_mut(key) {
        connection.stage(request, port);
    }
    PostedData::None
}

/// Calls `each` with the Writes that fill a chunk of the peer with `length` octets. `sources` lists the views that
/// cover a range of the octets.
#[inline]
fn writes(
    segments: &[Segment],
    length: usize,
    sources: impl Fn(Range<usize>, &mut dyn FnMut(Source)),
    mut each: impl FnMut(WorkRequest),
) {
    let mut parts = Parts::default();
    // [V2-4.5.2.1-1] contiguously, in segment order.
    for (claim, range) in chunk::fill(segments, length) {
        let mut at = 0;
        sources(range, &mut |source| {
            let part = u32::try_from(source.len()).unwrap_or(u32::MAX);
            let Ok(target) = claim.window(at, part) else { return };
            at += u64::from(part);
            each(parts.next(Operation::Write { source, target }));
        });
    }
}
