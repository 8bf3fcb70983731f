//! Calls that are handled as they arrive, and answered at once if possible.

use haulage_mr_pool::Pool;
use haulage_proto::negotiate::{
    Class, Grant, Version, put_results_headers, put_results_headers_one, put_results_headers_with,
    unchunked_header_len,
};
use haulage_proto::rpc::Credential;
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::header::SingleChunk;
use haulage_proto::v2::invalidation::{Place, invalidates};
use haulage_proto::verbs::{ClaimedSegment, HeaderPatch, Segment};

use super::sender::{Runs, Sender};
use super::taken::Taken;
use crate::core::common::Common;
use crate::core::cx::Cx;
use crate::core::inner::Inner;
use crate::core::memory::{Charge, Grant as MemoryGrant, Purpose, Wanted};
use crate::core::outbox::Left;
use crate::core::program::{Argument, Header};
use crate::core::responder::ServedCall;
use crate::core::serve::{Acted, Whole, serve, serve_other, settle};
use crate::core::service::Service;
use crate::core::templates::RESULTS;
use crate::key::{CallKey, ConnectionKey};
use crate::limits::HEADER_ROOM;
use crate::outgoing::segments::Segments;
use crate::provider::{Head, Port};
use crate::service::{Data, Placement, Reply};

impl<S: Service> Runs<'_, S> {
    /// Takes Calls with one chunk of one segment, for an argument or for a result, from the front of a run.
    /// Returns how many.
    #[inline(never)]
    pub(super) fn take_chunks(
        &mut self,
        from: Sender,
        run: &[&[u8]],
        port: &mut impl Port,
    ) -> usize {
        let Inner { responder, common, .. } = &mut *self.inner;
        if responder.turns.has_of(from.key) {
            return 0;
        }
        let programs = &responder.programs;
        let [read_max, write_max] = chunk_max(common, from.key);
        let calls = run.iter().map_while(|message| {
            let call = SingleChunk::of(message)?;
            let length_max = if call.position.is_some() { read_max } else { write_max };
            let fits = (1..=length_max).contains(&call.segment.length);
            (fits && programs.allows(&call, message)).then_some(call.unchunked)
        });
        let counted = common.take(self.now, from.key, Kind::Call, calls);
        let run = run.iter().take(counted).map(|call| Taken::with_chunk(call));
        let done = self.take_calls(from, run, port);
        self.inner.common.settle_run(from.key, Kind::Call, counted, done);
        done
    }

    /// Runs the service for Calls and answers them, as long as there is a buffer for the Reply and the argument can be
    /// read. Returns how many Calls were handled.
    #[inline(never)]
    pub(super) fn take_calls<'a>(
        &mut self,
        from: Sender,
        calls: impl ExactSizeIterator<Item = Taken<'a>>,
        port: &mut impl Port,
    ) -> usize {
        let Self { inner, service, now, reply } = self;
        let Some(mut name) = inner.responder.calls.next_key() else { return 0 };
        let mut grant = lend_replies(&mut inner.common, from.key, calls.len());
        let version = from.version;
        // True until the first Reply cannot leave at once: the others leave behind it.
        let mut leave = true;
        let (mut done, mut parked, mut refused) = (0, 0, None);
        let mut argument = None;
        let mut cx = Cx::new(*now, inner);
        for call in calls {
            if reply.is_none() {
                if !cx.inner.common.may_reply(from.key, 0) {
                    break;
                }
                **reply = cx.inner.common.buffers.pop().map(Reply::inline);
            }
            let Some(making) = reply.as_mut() else { break };
            let (chunk_len, Taken { xid, chunk, header, payload }) = (call.reply_chunk_len(), call);
            let chunk = chunk.as_ref();
            // A costly Call has its turn, and so have those behind it.
            if cx.inner.responder.programs.is_costly(header, payload) {
                break;
            }
            let read = read_argument(&mut cx.inner.common, from.key, chunk, port, &mut argument);
            let Some(charge) = read else { break };
            let length_max = from.unchunked_reply_max.saturating_sub(chunk_len);
            let offered = chunk.filter(|one| one.position.is_none());
            making.begin(length_max, offered.map(|one| u64::from(one.segment.length)));
            done += 1;
            let connection = from.key;
            let header = header.or_else(|| cx.inner.responder.programs.plain(payload));
            let credential = Credential::None;
            // Said again, so that a run without chunks does not look.
            let placed = argument.as_mut().filter(|_| chunk.is_some());
            let whole = |header| Whole {
                connection,
                version,
                xid,
                name,
                header,
                credential,
                payload,
                argument: placed,
            };
            let acted = match header {
                Some(header) => serve(&mut cx, *service, whole(header), making),
                None => serve_other(&mut cx, *service, whole(Header::default()), making),
            };
            // What the service has not taken goes home: it is not of the next Call.
            if chunk.is_some() {
                argument = None;
            }
            if let Acted::Results(length) = acted
                && leave
                && grant.has_more()
            {
                let patch = HeaderPatch { xid, credit: grant.word() };
                grant.spend();
                let common = &mut cx.inner.common;
                let left = match (version, chunk) {
                    (Version::Two, None) => {
                        let head = Head::like(START..HEADER_ROOM + length, RESULTS, patch);
                        common.send_alone(connection, &head, &mut making.message, charge, port)
                    }
                    (Version::One, None) => {
                        let head = making.seal_one(patch, length);
                        common.send_alone(connection, &head, &mut making.message, charge, port)
                    }
                    (_, Some(chunk)) => {
                        let head = making.seal(patch, chunk, length);
                        common.send(connection, &head, &mut making.message, charge, port)
                    }
                };
                if left != Left::Copied {
                    // Those behind a message that waits wait, too.
                    leave = left == Left::Taken;
                    **reply = reply.take().filter(|making| making.message.owns_buffer());
                }
                continue;
            }
            let waiting = ServedCall::with(connection, xid, chunk);
            let making = park(cx.inner, name, waiting.charged(charge), reply);
            parked += 1;
            leave = false;
            if let Acted::Refused(_) = acted {
                // The refusal is sent once the grant is settled; the Calls behind it are delivered again.
                refused = Some((acted, making));
                break;
            }
            settle(cx.inner, name, acted, making);
            // The Call in the table has taken the name.
            let Some(next) = cx.inner.responder.calls.next_key() else { break };
            name = next;
        }
        let Inner { responder, common, .. } = &mut **inner;
        responder.running = None;
        // A run has far fewer messages than 2^32.
        let left = u32::try_from(done - parked).unwrap_or(u32::MAX);
        common.counters.calls_served += u64::from(left);
        common.receives.pass(left);
        common.settle_grant(from.key, &grant);
        if let Some((acted, making)) = refused {
            settle(inner, name, acted, making);
        }
        done
    }
}

/// Returns the octets of the longest argument, and of the longest result, that may be the only chunk of a Call.
fn chunk_max(common: &Common, key: ConnectionKey) -> [u32; 2] {
    let Some(connection) = common.connections.get(key) else { return [0; 2] };
    let [read_max, write_max] = connection.engine.chunk_max();
    // P12: no Read is posted to a peer that serves none.
    let read_max = read_max.min(common.abilities.read_max);
    [if connection.may_read() { read_max } else { 0 }, write_max]
}

/// Counts the chunk of a Call, and reads the argument into `argument` if the chunk has it. Returns the charge for its
/// lease; `None` if the argument cannot be read at once.
#[inline(always)]
fn read_argument(
    common: &mut Common,
    key: ConnectionKey,
    chunk: Option<&SingleChunk>,
    port: &mut impl Port,
    argument: &mut Option<Argument>,
) -> Option<Charge> {
    let Some(SingleChunk { position, segment, .. }) = chunk else {
        return Some(Charge::default());
    };
    let Some(position) = *position else {
        common.counters.write_chunks += 1;
        return Some(Charge::default());
    };
    let claim = ClaimedSegment::try_from(*segment).ok()?;
    // Calls that wait for memory go first.
    if common.memory.is_awaited() {
        return None;
    }
    let lease = segment.length as usize;
    let wanted = Wanted { lease, later: 0, own: 0, purpose: Purpose::Reply };
    // Where only several leases have it, the argument is read by posted Reads.
    let MemoryGrant::Taken(lease, charge) = common.grant(key, &wanted, Pool::lease_as) else {
        return None;
    };
    let (length, placed) = (u64::from(segment.length), Placement::Placed(lease.into()));
    let argument = argument.insert(Argument { position, length, placed });
    let read = match &mut argument.placed {
        Placement::Placed(leases) => {
            leases.one_mut().map(|lease| port.read(&claim, lease.bytes_mut()))
        }
        _ => None,
    };
    if !matches!(read, Some(Ok(()))) {
        common.discharge(key, charge);
        return None;
    }
    common.counters.read_chunks += 1;
    Some(charge)
}

/// Grants the peer credits for `count` further Calls, and takes credits for `count` Replies that leave at once; for
/// none if other Replies wait.
#[inline]
fn lend_replies(common: &mut Common, key: ConnectionKey, count: usize) -> Grant {
    let touched = common.connections.touched();
    let Some(connection) = common.connections.get_mut(key) else { return Grant::NONE };
    connection.give_credits(&mut common.receives, touched, count, count);
    if !connection.replies.is_empty() || !connection.queue.is_empty() {
        return Grant::NONE;
    }
    connection.engine.lend(Class::Reply, u32::try_from(count).unwrap_or(u32::MAX))
}

/// Enters a Call that does not leave at once in the table, under the `name` that it was promised. The Call counts as
/// holding a Receive. Returns the Reply that was made for it.
///
/// # Panics
/// If another Call has the name, or there is no Reply: either would lose the Call.
#[cold]
fn park(
    Inner { responder, common, .. }: &mut Inner,
    name: CallKey,
    mut call: ServedCall,
    reply: &mut Option<Reply>,
) -> Reply {
    call.hold(common.receives.book());
    let inserted = responder.insert(call);
    assert!(inserted == name, "nothing else entered meanwhile");
    let Some(reply) = reply.take() else { panic!("a Reply that has not left is here") };
    reply
}

/// Where in a send buffer the message of a Reply in version 2 starts that returns no chunk.
const START: usize = HEADER_ROOM - unchunked_header_len(Version::Two, Kind::Reply);

impl Reply {
    /// Makes the results, of which the Payload stream has `length` octets, a message in version 1 without chunks: writes
    /// its headers.
    #[inline]
    fn seal_one(
        &mut self,
        HeaderPatch { xid, credit }: HeaderPatch,
        length: usize,
    ) -> Head<'static> {
        const START: usize = HEADER_ROOM - unchunked_header_len(Version::One, Kind::Reply);
        let room = self.message.room().get_mut(START..).unwrap_or_default();
        let written = put_results_headers_one(room, xid, credit);
        debug_assert!(written.is_some(), "every send buffer has the room");
        Head::written(START..HEADER_ROOM + length, None)
    }

    /// Makes the results, of which the Payload stream has `length` octets, the message in version 2 that answers a Call
    /// with this `chunk`, behind the Write of a result that goes into it: writes its headers.
    #[inline]
    fn seal(
        &mut self,
        HeaderPatch { xid, credit }: HeaderPatch,
        SingleChunk { inv_handle, position, segment, .. }: &SingleChunk,
        length: usize,
    ) -> Head<'static> {
        let invalidate = invalidates(Kind::Reply, Place::Last, *inv_handle);
        if position.is_some() {
            let room = self.message.room().get_mut(START..).unwrap_or_default();
            let written = put_results_headers(room, xid, credit);
            debug_assert!(written.is_some(), "every send buffer has the room");
            return Head::written(START..HEADER_ROOM + length, invalidate);
        }
        let data = std::mem::replace(&mut self.data, Data::Empty);
        let written = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let returned = Segment { length: written, ..*segment };
        let start = HEADER_ROOM - SingleChunk::REPLY_LEN;
        let room = self.message.room().get_mut(start..).unwrap_or_default();
        let put = put_results_headers_with(room, xid, credit, &returned);
        debug_assert!(put.is_some(), "every send buffer has the room");
        self.message.write(data, Segments::one(*segment));
        Head::written(start..HEADER_ROOM + length, invalidate)
    }
}
