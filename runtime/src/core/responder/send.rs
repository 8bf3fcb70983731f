//! Sending a Reply that has its credit, behind the Writes of its result.

use haulage_proto::exchange::Format;
use haulage_proto::negotiate::ReplyChunks;
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::header::Returned;
use haulage_proto::v2::invalidation::{MessagePlace, invalidates};
use haulage_proto::verbs::HeaderPatch;
use haulage_proto::xdr::Writer;

use super::answer::{Answer, Delivery};
use super::{GONE, ServedCall, Stage};
use crate::core::common::Common;
use crate::core::memory::Charge;
use crate::core::outbox::InParts;
use crate::items::Items;
use crate::limits::HEADER_ROOM;
use crate::outgoing::segments::Segments;
use crate::provider::{Head, Outgoing, Port};
use crate::service::Data;

/// Sends the Reply of a Call behind the Writes of its result. The credit of all its messages is already spent, and there is
/// a send buffer for each.
pub(crate) fn send(common: &mut Common, mut call: ServedCall, credit: u32, port: &mut impl Port) {
    let key = call.connection;
    let charge = std::mem::take(&mut call.charge);
    let Stage::Replying(mut answer) = call.stage else { panic!("a Reply waits with its message") };
    let Some(connection) = common.connections.get_mut(key) else { panic!("{GONE}") };
    if let Some(response) = answer.response.take() {
        response.count(&mut common.counters);
        let patch = HeaderPatch { xid: call.xid, credit };
        let mut charge = charge;
        let messages = response.seal(answer.buffer, patch, &mut common.buffers);
        let mut left = messages.len();
        for (head, mut message) in messages {
            left -= 1;
            // The charge goes with the last one.
            let charge = if left == 0 { std::mem::take(&mut charge) } else { Charge::default() };
            common.leave(key, &head, &mut message, charge, port);
            message.take_buffer().into_iter().for_each(|lease| common.buffers.recycle(lease));
        }
        return;
    }
    let Delivery::Sent(format) = answer.delivery else { panic!("its client reads this Reply") };
    let is_special = format == Format::Special;
    let reply = call.reply.as_ref().map(Segments::as_slice).unwrap_or_default();
    let written = answer.written(call.writes.len());
    let returned = call.writes.iter().zip(written);
    let returned: Items<_> = returned.map(|(write, length)| write.returned(length)).collect();
    let chunks = ReplyChunks {
        writes: returned.as_slice(),
        reply: is_special.then_some(Returned { offered: reply, length: answer.length }),
    };
    let version = connection.session.terms().version;
    let header_len = chunks.wire_len(version);
    let Answer { mut buffer, body, length, data, further, .. } = match format {
        Format::Continued { .. } => {
            let patch = HeaderPatch { xid: call.xid, credit };
            let parts = InParts { kind: Kind::Reply, patch, header_len, length: answer.length };
            let copy = |at, to: &mut [u8]| answer.copy(at, to);
            let (last, length) = common.send_parts(key, parts, copy, port);
            common.buffers.recycle(answer.buffer);
            let data = if answer.left_out.is_some() { Data::Empty } else { answer.data };
            Answer { buffer: last, body: None, length, data, ..answer }
        }
        Format::Simple | Format::Special => answer,
    };
    let start = HEADER_ROOM - header_len;
    let room = buffer.bytes_mut().get_mut(start..HEADER_ROOM).unwrap_or_default();
    let encoded = chunks.encode(version, &mut Writer::new(room), call.xid, credit);
    assert!(encoded.is_ok(), "the header room holds the longest header");
    let mut message = Outgoing::within(buffer);
    let invalidate =
        //~ V2-6.5-1: `|handle| invalidates(Kind::Reply, MessagePlace::Last, handle)` ->
        //~   `|_| invalidates(Kind::Reply, MessagePlace::Last, call.writes.first()?.as_slice().first()?.handle)`
        call.invalidate.and_then(|handle| invalidates(Kind::Reply, MessagePlace::Last, handle));

    let stream = HEADER_ROOM..HEADER_ROOM + length;
    let end = if is_special { HEADER_ROOM } else { stream.end };
    for (data, write) in std::iter::once(data).chain(further).zip(call.writes) {
        message.write(data, write);
    }
    match (is_special, body, call.reply) {
        (true, Some(mut body), Some(reply)) => {
            body.set_len(length);
            message.write(Data::Local(body), reply);
        }
        (true, None, Some(reply)) => message.write_buffer(stream, reply),
        _ => {}
    }
    common.leave(key, &Head::written(start..end, invalidate), &mut message, charge, port);
    message.take_buffer().into_iter().for_each(|buffer| common.buffers.recycle(buffer));
}
