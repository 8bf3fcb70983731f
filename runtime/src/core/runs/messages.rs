//! RDMA messages as a carrier of Calls: credits for their Replies, and chunks for their arguments and results.

use haulage_mr_pool::Pool;
use haulage_proto::negotiate::{
    Class, CreditGrant, Engine, SingleChunks, Version, put_results_headers,
    single_chunk_header_len, unchunked_header_len,
};
use haulage_proto::rtrext::SingleItem;
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::header::SingleChunk;
use haulage_proto::v2::invalidation::{MessagePlace, invalidates};
use haulage_proto::verbs::{ClaimedSegment, Handle, HeaderPatch, Segment};

use super::carrier::{Answered, Asked, Carrier, Own};
use super::sender::{Runs, Sender};
use super::taken::Taken;
use crate::core::common::Common;
use crate::core::inner::Inner;
use crate::core::memory::{MemoryGrant, Purpose, Wanted};
use crate::core::outbox::Left;
use crate::core::responder::ServedCall;
use crate::core::serve::Acted;
use crate::core::service::Service;
use crate::core::templates::RESULTS;
use crate::key::ConnectionKey;
use crate::limits::HEADER_ROOM;
use crate::outgoing::segments::Segments;
use crate::provider::{Head, Port, Refused};
use crate::service::{Data, Placement, ReducedArgument, Reply};

/// The messages of a connection, whose Replies leave by a port.
pub(super) struct Messages<'p, P>(pub(super) &'p mut P);

/// What allows Replies to leave at once.
#[derive(Debug)]
pub(super) struct Way {
    /// Credits for them.
    grant: CreditGrant,
    /// Whether they may. After one that has to wait, the rest wait behind it.
    is_free: bool,
}

impl<P: Port> Carrier for Messages<'_, P> {
    // What was leased for results that are in their messages comes home with the run.
    const LENDS: bool = false;

    type Way = Way;

    #[inline(always)]
    fn in_place_max(from: &Sender) -> usize {
        match from.version {
            Version::One => usize::MAX,
            // Longer Replies than one message leave in several.
            Version::Two => from.unchunked_reply_max,
        }
    }

    #[inline(always)]
    fn begin(common: &mut Common, from: &Sender, count: usize) -> Way {
        Way { grant: lend_replies(common, from.key, count), is_free: true }
    }

    #[inline(always)]
    fn provide(
        &mut self,
        common: &mut Common,
        from: &Sender,
        asked: &Asked<'_, '_>,
        reply: &mut Reply,
        own: &mut Own,
    ) -> Option<()> {
        let Asked { programs, chunk, payload } = *asked;
        let Some(chunk) = chunk else {
            reply.begin(from.unchunked_reply_max, None);
            return Some(());
        };
        let room = |offered| programs.result_room(payload, offered);
        provide(common, from.key, chunk, room, self.0, own)?;
        let chunk_len = reply_chunk_len(from.version, chunk);
        let length_max = from.unchunked_reply_max.saturating_sub(chunk_len);
        let offered = chunk.position.is_none().then_some(u64::from(chunk.segment.length));
        reply.begin(length_max, offered);
        Some(())
    }

    #[inline(always)]
    fn leave(
        &mut self,
        common: &mut Common,
        way: &mut Way,
        answered: &Answered<'_>,
        reply: &mut Reply,
        own: &mut Own,
    ) -> bool {
        let Answered { from, xid, chunk, acted } = *answered;
        let Acted::Results(length) = *acted else { return false };
        if !way.is_free || !way.grant.has_more() {
            return false;
        }
        let patch = HeaderPatch { xid, credit: way.grant.word() };
        way.grant.spend();
        let Sender { key, version, .. } = *from;
        let left = match (version, chunk) {
            (Version::Two, None) => {
                let start = HEADER_ROOM - unchunked_header_len(version, Kind::Reply);
                let head = Head::like(start..HEADER_ROOM + length, RESULTS, patch);
                common.send_alone(key, &head, &mut reply.message, self.0)
            }
            (Version::One, None) => {
                let head = reply.seal(Version::One, patch, length);
                common.send_alone(key, &head, &mut reply.message, self.0)
            }
            (_, Some(chunk)) => {
                let head = reply.seal_with(version, patch, chunk, length);
                let charge = std::mem::take(&mut own.charge);
                common.send(key, &head, &mut reply.message, charge, self.0)
            }
        };
        if left != Left::Copied {
            // Replies behind one that has to wait have to wait as well.
            way.is_free = left == Left::Taken;
        }
        true
    }

    /// A parked Call counts as holding a Receive, and Replies wait behind its own.
    #[inline(always)]
    fn park(common: &mut Common, way: &mut Way, mut call: ServedCall) -> ServedCall {
        way.is_free = false;
        call.hold(common.receives.book());
        call
    }

    #[inline(always)]
    fn end(common: &mut Common, from: &Sender, way: &Way, answered: u32) {
        common.receives.pass(answered);
        common.settle_grant(from.key, &way.grant);
    }
}

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
        let done = self.take_calls(&from, &programs, run, Messages(port));
        self.inner.common.settle_run(from.key, Kind::Call, counted, done);
        done
    }

    /// Takes the Call at the front of a run if it has its argument with it. Returns how many it took.
    #[inline(never)]
    pub(super) fn take_with_argument(
        &mut self,
        from: Sender,
        message: &[u8],
        port: &mut impl Port,
    ) -> usize {
        let Inner { responder, common, .. } = &mut *self.inner;
        if responder.turns.has_of(from.key.slot()) {
            return 0;
        }
        let Some(item) = single_item(common, from.key, message) else { return 0 };
        let Some(programs) = common.serves(from.key) else { return 0 };
        let SingleItem { chunk, payload, item } = item;
        if !programs.allows(&chunk, message) {
            return 0;
        }
        if common.take(from.key, Kind::Call, [chunk.unchunked]) == 0 {
            return 0;
        }
        let payload = message.get(payload).unwrap_or_default();
        let call = Taken { xid: chunk.unchunked.xid, chunk: Some(chunk), header: None, payload };
        let argument = message.get(item).unwrap_or_default();
        let carrier = WithArgument { messages: Messages(port), argument };
        let done = self.take_calls(&from, &programs, std::iter::once(call), carrier);
        self.inner.common.settle_run(from.key, Kind::Call, 1, done);
        done
    }
}

/// The messages of a connection, one of which has its argument with it.
struct WithArgument<'p, 'm, P> {
    messages: Messages<'p, P>,
    argument: &'m [u8],
}

impl<P: Port> Carrier for WithArgument<'_, '_, P> {
    const LENDS: bool = Messages::<'_, P>::LENDS;

    type Way = Way;

    fn in_place_max(from: &Sender) -> usize {
        Messages::<'_, P>::in_place_max(from)
    }

    fn begin(common: &mut Common, from: &Sender, count: usize) -> Way {
        Messages::<'_, P>::begin(common, from, count)
    }

    /// Copies the argument to memory of its own.
    fn provide(
        &mut self,
        common: &mut Common,
        from: &Sender,
        asked: &Asked<'_, '_>,
        reply: &mut Reply,
        own: &mut Own,
    ) -> Option<()> {
        let chunk = asked.chunk?;
        let copy = |lease: &mut [u8]| {
            lease.copy_from_slice(self.argument);
            Ok(())
        };
        lease_argument(common, from.key, chunk, copy, own)?;
        common.counters.arguments_along += 1;
        common.counters.bytes_along += self.argument.len() as u64;
        reply.begin(from.unchunked_reply_max, None);
        Some(())
    }

    fn leave(
        &mut self,
        common: &mut Common,
        way: &mut Way,
        answered: &Answered<'_>,
        reply: &mut Reply,
        own: &mut Own,
    ) -> bool {
        self.messages.leave(common, way, answered, reply, own)
    }

    fn park(common: &mut Common, way: &mut Way, call: ServedCall) -> ServedCall {
        Messages::<'_, P>::park(common, way, call)
    }

    fn end(common: &mut Common, from: &Sender, way: &Way, answered: u32) {
        Messages::<'_, P>::end(common, from, way, answered);
    }
}

/// Returns by how many octets the transport header of the Reply to a Call with this chunk is longer than that of a Reply
/// without chunks.
#[inline]
const fn reply_chunk_len(version: Version, chunk: &SingleChunk) -> usize {
    match chunk.position {
        None => {
            single_chunk_header_len(version, Kind::Reply)
                - unchunked_header_len(version, Kind::Reply)
        }
        Some(_) => 0,
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

/// Counts the chunk of a Call. Reads the argument into `own` if the chunk has it; otherwise sees that there is
/// memory for a result that the service leases, of which `room` returns the octets. Notes the charge. Returns `None` if the
/// argument cannot be read at once, or if there is no memory now.
#[inline(always)]
fn provide(
    common: &mut Common,
    key: ConnectionKey,
    chunk: &SingleChunk,
    room: impl FnOnce(u32) -> usize,
    port: &mut impl Port,
    own: &mut Own,
) -> Option<()> {
    let SingleChunk { position, segment, .. } = chunk;
    if position.is_none() {
        match room(segment.length) {
            0 => {}
            later => own.charge = common.promise(key, later)?,
        }
        common.counters.write_chunks += 1;
        return Some(());
    };
    let claim = ClaimedSegment::try_from(*segment).ok()?;
    lease_argument(common, key, chunk, |lease| port.read(&claim, lease), own)?;
    common.counters.read_chunks += 1;
    Some(())
}

/// Leases memory for the only argument of a Call, and has `fill` fill it. Returns `None` if there is no memory now, or it is
/// not filled.
#[inline(always)]
fn lease_argument(
    common: &mut Common,
    key: ConnectionKey,
    SingleChunk { position, segment, .. }: &SingleChunk,
    fill: impl FnOnce(&mut [u8]) -> Result<(), Refused>,
    own: &mut Own,
) -> Option<()> {
    let position = (*position)?;
    // Calls that wait for memory go first.
    if common.memory.is_awaited() {
        return None;
    }
    let lease = segment.length as usize;
    let wanted = Wanted { lease, later: 0, own: 0, purpose: Purpose::Reply };
    // What is filled at once needs a single lease; posted Reads fill several.
    let MemoryGrant::Taken(lease, taken) = common.grant(key, &wanted, Pool::lease_as) else {
        return None;
    };
    let (length, placed) = (u64::from(segment.length), Placement::Placed(lease.into()));
    let argument = own.argument.insert(ReducedArgument { position, length, placed });
    let filled = match &mut argument.placed {
        Placement::Placed(leases) => leases.one_mut().map(|lease| fill(lease.bytes_mut())),
        _ => None,
    };
    if !matches!(filled, Some(Ok(()))) {
        common.discharge(key, taken);
        return None;
    }
    own.charge = taken;
    Some(())
}

/// Returns the Call that a message is, if it has its only argument with it.
fn single_item(common: &Common, key: ConnectionKey, message: &[u8]) -> Option<SingleItem> {
    let Engine::Two(two) = common.connections.get(key)?.engine.engine() else { return None };
    SingleItem::of(message, two.extension()?.terms()?)
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
