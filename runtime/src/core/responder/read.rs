//! Sending a Reply whose Payload stream the client reads (version 1, RFC 5666).
//!
//! # Memory ownership
//! The Payload stream is exposed from the moment the message leaves, and belongs to the connection until the client has
//! said `RDMA_DONE` ([`Common::release_held`]) or the connection has quiesced.

use haulage_mr_pool::{Exposed, Local};
use haulage_proto::negotiate::{Engine, ReplyChunks};
use haulage_proto::time::Instant;
use haulage_proto::v2::header::Returned;
use haulage_proto::verbs::{Access, HeaderPatch, Segment};
use haulage_proto::xdr::Writer;

use super::answer::Answer;
use super::{GONE, Responder, ServedCall, Stage};
use crate::core::common::Common;
use crate::core::memory::Charge;
use crate::items::Items;
use crate::key::{CallKey, ConnectionKey};
use crate::limits::HEADER_ROOM;
use crate::provider::{Head, Outgoing, Port};

impl Responder {
    /// Sends the Reply of the Call `name`, which waits longest, for the client to read its Payload stream. Returns false
    /// if it has to wait, because it finds no credit, or as many Replies are held as may be.
    #[cold]
    pub(crate) fn send_read(
        &mut self,
        common: &mut Common,
        now: Instant,
        (key, name): (ConnectionKey, CallKey),
        port: &mut impl Port,
    ) -> bool {
        let Some(connection) = common.connections.get_mut(key) else { return false };
        match connection.engine.engine() {
            Engine::One(one) if one.may_send_held() => {}
            _ => return false,
        }
        connection.outbox.end_reply();
        common.memory.end_sending(&mut connection.share);
        let Some(mut call) = self.calls.remove(name) else { return true };
        match expose(&mut call, port) {
            Some((stream, segment)) => send(common, now, call, (stream, segment), port),
            // The provider has no handle left, or the peer cannot reach our memory.
            None => self.refuse_answered(common, call),
        }
        true
    }
}

/// Exposes the Payload stream of a Reply. `None` if that cannot be; the Reply keeps it then.
fn expose(call: &mut ServedCall, port: &mut impl Port) -> Option<(Exposed, Segment)> {
    let Stage::Replying(answer) = &mut call.stage else { panic!("a Reply waits with its message") };
    let mut stream: Local = answer.body.take()?;
    stream.set_len(answer.length);
    match port.open(stream, Access::RemoteRead) {
        Ok(opened) => Some(opened),
        Err((stream, _)) => {
            answer.body = Some(stream);
            None
        }
    }
}

/// Sends a Reply behind the Writes of its results. Its Payload stream is exposed, and there is credit for it.
fn send(
    common: &mut Common,
    now: Instant,
    mut call: ServedCall,
    (stream, segment): (Exposed, Segment),
    port: &mut impl Port,
) {
    let (key, xid) = (call.connection, call.xid);
    let charge = std::mem::take(&mut call.charge);
    let Stage::Replying(answer) = call.stage else { panic!("a Reply waits with its message") };
    let Some(connection) = common.connections.get_mut(key) else { panic!("{GONE}") };
    let credit = match connection.engine.engine_mut() {
        Engine::One(one) => one.try_send_held(now, xid),
        Engine::Two(_) => None,
    };
    let Some(credit) = credit else { panic!("the engine was asked before") };
    connection.held.hold(xid, stream, charge);
    common.counters.replies_held += 1;
    let returned = call.writes.iter().zip(answer.written(call.writes.len()));
    let returned: Items<Returned<'_>> =
        returned.map(|(write, length)| write.returned(length)).collect();
    let chunks = ReplyChunks { writes: returned.as_slice(), reply: None };
    let start = HEADER_ROOM - chunks.read_wire_len();
    let Answer { mut buffer, data, further, .. } = answer;
    let room = buffer.bytes_mut().get_mut(start..HEADER_ROOM).unwrap_or_default();
    let encoded = chunks.encode_read(&mut Writer::new(room), HeaderPatch { xid, credit }, segment);
    assert!(encoded.is_ok(), "the header room holds the longest header");
    let mut message = Outgoing::within(buffer);
    for (data, write) in std::iter::once(data).chain(further).zip(call.writes) {
        message.write(data, write);
    }
    // The client reads before it is done with the Call, so no handle of its own is invalidated by the message.
    let head = Head::written(start..HEADER_ROOM, None);
    common.leave(key, &head, &mut message, Charge::default(), port);
    message.take_buffer().into_iter().for_each(|buffer| common.buffers.recycle(buffer));
}
