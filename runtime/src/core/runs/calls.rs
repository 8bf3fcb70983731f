//! Calls that are handled as they arrive, and answered at once if possible.

use haulage_mr_pool::Pool;
use haulage_proto::negotiate::{
    Class, CreditGrant, SingleChunks, Version, put_results_headers, single_chunk_header_len,
    unchunked_header_len,
};
use haulage_proto::rpc::Credential;
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::header::SingleChunk;
use haulage_proto::v2::invalidation::{MessagePlace, invalidates};
use haulage_proto::verbs::{ClaimedSegment, Handle, HeaderPatch, Segment};

use super::sender::{Runs, Sender};
use super::taken::Taken;
use crate::core::common::Common;
use crate::core::cx::Cx;
use crate::core::inner::Inner;
use crate::core::memory::{Charge, MemoryGrant, Purpose, Wanted};
use crate::core::outbox::Left;
use crate::core::program::{Header, Programs};
use crate::core::responder::ServedCall;
use crate::core::serve::{Acted, Whole, serve, serve_other, settle};
use crate::core::service::Service;
use crate::core::templates::RESULTS;
use crate::key::{CallKey, ConnectionKey};
use crate::limits::HEADER_ROOM;
use crate::outgoing::segments::Segments;
use crate::provider::{Head, Port};
use crate::service::{Data, Placement, ReducedArgument, Reply};

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
        if responder.turns.has_of(from.key.slot()) {
            return 0;
        }
        let Some(programs) = common.serves(from.key) else { return 0 };
        let Some(chunks) = single_chunks(common, from.key) else { return 0 };
        let calls = run.iter().map_while(|message| {
            let call = chunks.of(message)?;
            programs.allows(&call, message).then_some(call.unchunked)
        });
        let counted = common.take(from.key, Kind::Call, calls);
        let run = run.iter().take(counted).map(|call| Taken::with_chunk(call, &chunks));
        let done = self.take_calls(from, &programs, run, port);
        self.inner.common.settle_run(from.key, Kind::Call, counted, done);
        done
    }

    /// Runs the service for Calls and answers them, as long as there is a buffer for the Reply and the argument can be
    /// read. Returns how many Calls were handled.
    #[inline(never)]
    pub(super) fn take_calls<'a>(
        &mut self,
        from: Sender,
        programs: &Programs,
        calls: impl ExactSizeIterator<Item = Taken<'a>> + Clone,
        port: &mut impl Port,
    ) -> usize {
        let Self { inner, service, now, reply, .. } = self;
        if calls.len() > 1 {
            service.foresee(calls.clone().filter_map(|call| call.foreseen(programs)));
        }
        let Some(mut name) = inner.responder.calls.next_key() else { return 0 };
        let mut grant = lend_replies(&mut inner.common, from.key, calls.len());
        let version = from.version;
        // In version 2 longer Replies than one message leave in several.
        let in_place_max = match version {
            Version::One => usize::MAX,
            Version::Two => from.unchunked_reply_max,
        };
        let has_turns = programs.has_turns(in_place_max);
        // Whether Replies may leave at once. After one that has to wait, the rest wait behind it.
        let mut leave = true;
        let (mut done, mut parked, mut unsettled) = (0, 0, None);
        // Calls without a Reply, by their procedures.
        let mut unanswered = 0;
        // What the Call at hand has, if it has a chunk; nothing between two Calls.
        let mut own = Own::default();
        let mut known = None;
        let mut cx = Cx::new(*now, inner);
        for call in calls {
            let Some(making) = with_buffer(&mut cx.inner.common, from.key, reply) else { break };
            let (chunk_len, Taken { xid, chunk, header, payload }) =
                (call.reply_chunk_len(version), call);
            let chunk = chunk.as_ref();
            // Such a Call is not served in a run: it and the Calls behind it wait for their turns.
            if has_turns && programs.takes_turns(header, payload, in_place_max) {
                break;
            }
            let common = &mut cx.inner.common;
            let room = |offered| programs.result_room(payload, offered);
            if provide(common, from.key, chunk, room, port, &mut own).is_none() {
                break;
            }
            let length_max = from.unchunked_reply_max.saturating_sub(chunk_len);
            let offered = chunk.filter(|one| one.position.is_none());
            making.begin(length_max, offered.map(|one| u64::from(one.segment.length)));
            done += 1;
            let connection = from.key;
            let header = header.or_else(|| programs.plain(payload));
            let credential = Credential::None;
            // Only a Call with a chunk has an argument; the filter spares a run without chunks the look.
            let placed = own.argument.as_mut().filter(|_| chunk.is_some());
            let whole = |header| Whole {
                programs,
                connection,
                version,
                xid,
                name,
                header,
                credential,
                payload,
                placed,
                others: &mut [],
            };
            let acted = match header {
                Some(header) => serve(&mut cx, *service, whole(header), making),
                None => {
                    let whole = whole(Header::default());
                    serve_other(&mut cx, *service, whole, &mut known, making)
                }
            };
            if chunk.is_some() {
                // A lease that the service did not take returns to the pool, so that the next Call does not get it.
                own.argument = None;
                own.charge = cx.inner.responder.with_leased(std::mem::take(&mut own.charge));
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
                        let start = HEADER_ROOM - unchunked_header_len(version, Kind::Reply);
                        let head = Head::like(start..HEADER_ROOM + length, RESULTS, patch);
                        common.send_alone(connection, &head, &mut making.message, port)
                    }
                    (Version::One, None) => {
                        let head = making.seal(Version::One, patch, length);
                        common.send_alone(connection, &head, &mut making.message, port)
                    }
                    (_, Some(chunk)) => {
                        let head = making.seal_with(version, patch, chunk, length);
                        let charge = std::mem::take(&mut own.charge);
                        common.send(connection, &head, &mut making.message, charge, port)
                    }
                };
                if left != Left::Copied {
                    // Replies behind one that has to wait have to wait as well.
                    leave = left == Left::Taken;
                }
                continue;
            }
            if let Acted::NoReply = acted {
                making.forget_results();
                cx.inner.common.discharge(connection, std::mem::take(&mut own.charge));
                unanswered += 1;
                continue;
            }
            let charge = cx.inner.responder.with_leased(std::mem::take(&mut own.charge));
            let waiting = ServedCall::with(connection, xid, chunk);
            let making = park(cx.inner, name, waiting.charged(charge), reply);
            parked += 1;
            leave = false;
            if let Acted::Refused(_) | Acted::Long = acted {
                // This is settled once the grant is; the Calls behind it are delivered again.
                unsettled = Some((acted, making));
                break;
            }
            settle(cx.inner, name, acted, making);
            // The parked Call keeps its name in the table, so the next Call needs another.
            let Some(next) = cx.inner.responder.calls.next_key() else { break };
            name = next;
        }
        let Inner { responder, common, .. } = &mut **inner;
        responder.running = None;
        // A run has far fewer messages than 2^32.
        let left = u32::try_from(done - parked).unwrap_or(u32::MAX);
        common.counters.count_served(from.role, u64::from(left));
        common.receives.pass(left);
        common.settle_grant(from.key, &grant);
        if unanswered > 0 {
            common.owe_no_replies(from.key, unanswered);
        }
        // What was leased for results that left in their messages has come home.
        let leased = responder.with_leased(Charge::default());
        common.discharge(from.key, leased);
        if let Some((acted, making)) = unsettled {
            settle(inner, name, acted, making);
        }
        done
    }
}

/// Returns what recognises the Calls of a connection with one chunk that may be handled as they arrive.
fn single_chunks(common: &Common, key: ConnectionKey) -> Option<SingleChunks> {
    let connection = common.connections.get(key)?;
    let mut chunks = connection.single_chunks();
    // P12: no Read is posted to a peer that serves none.
    let read_max = if connection.share.may_read() { common.abilities.read_max } else { 0 };
    chunks.read_max = chunks.read_max.min(read_max);
    Some(chunks)
}

/// Returns the Reply that the next Call of a connection is answered in, with a buffer; `None` if there is no buffer for it
/// now.
#[inline(always)]
pub(in crate::core) fn with_buffer<'a>(
    common: &mut Common,
    key: ConnectionKey,
    reply: &'a mut Option<Reply>,
) -> Option<&'a mut Reply> {
    if !reply.as_ref().is_some_and(|making| making.message.owns_buffer()) {
        refill(common, key, reply)?;
    }
    reply.as_mut()
}

/// Gives the Reply a buffer, if there is one.
#[inline(never)]
fn refill(common: &mut Common, key: ConnectionKey, reply: &mut Option<Reply>) -> Option<()> {
    let buffer = if common.may_reply(key, 0) { common.buffers.pop()? } else { return None };
    match reply {
        Some(making) => making.message.fill(buffer),
        None => *reply = Some(Reply::inline(buffer)),
    }
    Some(())
}

/// What the Call at hand of a run has, if it has a chunk.
#[derive(Debug, Default)]
struct Own {
    argument: Option<ReducedArgument>,
    charge: Charge,
}

/// Counts the chunk of a Call. Reads the argument into `own` if the chunk has it; otherwise sees that there is
/// memory for a result that the service leases, of which `room` returns the octets. Notes the charge. Returns `None` if the
/// argument cannot be read at once, or if there is no memory now.
#[inline(always)]
fn provide(
    common: &mut Common,
    key: ConnectionKey,
    chunk: Option<&SingleChunk>,
    room: impl FnOnce(u32) -> usize,
    port: &mut impl Port,
    own: &mut Own,
) -> Option<()> {
    let Some(SingleChunk { position, segment, .. }) = chunk else { return Some(()) };
    let Some(position) = *position else {
        match room(segment.length) {
            0 => {}
            later => own.charge = common.promise(key, later)?,
        }
        common.counters.write_chunks += 1;
        return Some(());
    };
    let claim = ClaimedSegment::try_from(*segment).ok()?;
    // Calls that wait for memory go first.
    if common.memory.is_awaited() {
        return None;
    }
    let lease = segment.length as usize;
    let wanted = Wanted { lease, later: 0, own: 0, purpose: Purpose::Reply };
    // This direct read needs a single lease; posted Reads fill several.
    let MemoryGrant::Taken(lease, taken) = common.grant(key, &wanted, Pool::lease_as) else {
        return None;
    };
    let (length, placed) = (u64::from(segment.length), Placement::Placed(lease.into()));
    let argument = own.argument.insert(ReducedArgument { position, length, placed });
    let read = match &mut argument.placed {
        Placement::Placed(leases) => {
            leases.one_mut().map(|lease| port.read(&claim, lease.bytes_mut()))
        }
        _ => None,
    };
    if !matches!(read, Some(Ok(()))) {
        common.discharge(key, taken);
        return None;
    }
    common.counters.read_chunks += 1;
    own.charge = taken;
    Some(())
}

/// Grants the peer credits for `count` further Calls, and takes credits for `count` Replies that leave at once; for
/// none if other Replies wait.
#[inline]
fn lend_replies(common: &mut Common, key: ConnectionKey, count: usize) -> CreditGrant {
    let touched = common.connections.touched();
    let Some(connection) = common.connections.get_mut(key) else { return CreditGrant::NONE };
    connection.give_credits(&mut common.receives, touched, count, count);
    if connection.outbox.replies() > 0 || connection.outbox.requests() > 0 {
        return CreditGrant::NONE;
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

impl Reply {
    /// Makes the results, of which the Payload stream has `length` octets, a message without chunks: writes its headers.
    #[inline]
    fn seal(&mut self, version: Version, patch: HeaderPatch, length: usize) -> Head<'static> {
        self.put_headers(version, patch, None, None, length)
    }

    /// Makes the results, of which the Payload stream has `length` octets, the message that answers a Call with this
    /// `chunk`, behind the Write of a result that goes into it: writes its headers.
    #[inline]
    fn seal_with(
        &mut self,
        version: Version,
        patch: HeaderPatch,
        SingleChunk { inv_handle, position, segment, .. }: &SingleChunk,
        length: usize,
    ) -> Head<'static> {
        let invalidate = invalidates(Kind::Reply, MessagePlace::Last, *inv_handle);
        if position.is_some() {
            return self.put_headers(version, patch, None, invalidate, length);
        }
        let data = std::mem::replace(&mut self.data, Data::Empty);
        let written = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let returned = Segment { length: written, ..*segment };
        self.message.write(data, Segments::one(*segment));
        self.put_headers(version, patch, Some(&returned), invalidate, length)
    }

    /// Writes the headers of a message in front of its Payload stream of `length` octets. Returns the message.
    #[inline(always)]
    fn put_headers(
        &mut self,
        version: Version,
        patch: HeaderPatch,
        returned: Option<&Segment>,
        invalidate: Option<Handle>,
        length: usize,
    ) -> Head<'static> {
        let header_len = match returned {
            Some(_) => single_chunk_header_len(version, Kind::Reply),
            None => unchunked_header_len(version, Kind::Reply),
        };
        let start = HEADER_ROOM - header_len;
        let room = self.message.room().get_mut(start..).unwrap_or_default();
        let written = put_results_headers(version, room, patch, returned);
        assert!(written.is_some(), "every send buffer has the room");
        Head::written(start..HEADER_ROOM + length, invalidate)
    }
}
