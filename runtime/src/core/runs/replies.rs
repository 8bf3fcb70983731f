//! Replies whose callers are told as they arrive.

use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::header::{SingleChunk, Unchunked};
use haulage_proto::verbs::Handle;

use super::sender::{Runs, Sender};
use super::taken::apart;
use crate::core::cx::Cx;
use crate::core::inner::Inner;
use crate::core::requester::{Exit, Placed};
use crate::core::service::Service;
use crate::core::tell::tell_placed;
use crate::key::ConnectionKey;
use crate::provider::{Port, RUN_MAX};
use crate::sys::complete;

impl<S: Service> Runs<'_, S> {
    /// Calls `tell` for each Reply that ends its Call, up to the first one that does not. Returns how many ended.
    #[inline(never)]
    pub(super) fn take_replies<'a>(
        &mut self,
        from: Sender,
        replies: impl ExactSizeIterator<Item = (u32, &'a [u8])>,
        tell: impl Fn(&mut Cx<'_>, &mut S, u64, &[u8]),
        port: &mut impl Port,
    ) -> usize {
        let Self { inner, service, now, .. } = self;
        // A caller that is told may call again at once.
        let Inner { requester, common, .. } = &mut **inner;
        let grant = requester.open_grant(common, from.key, replies.len(), port);
        let mut cx = Cx::within(*now, inner, grant, Exit::One(port));
        let mut done = 0;
        for (xid, octets) in replies {
            let Some(token) = cx.inner.requester.calls.end(from.key, xid) else { break };
            tell(&mut cx, *service, token, octets);
            done += 1;
        }
        cx.close_grant();
        inner.common.counters.calls_made += u64::from(done);
        inner.common.receives.pass(done);
        done as usize
    }

    /// Handles Replies that each invalidate the only lease of their Call, up to the first one that does not end its
    /// Call. Tells the callers. Returns how many ended.
    pub(super) fn take_fencing(
        &mut self,
        from: Sender,
        replies: &[&[u8]],
        handles: &[Handle],
        port: &mut impl Port,
    ) -> usize {
        let end = |inner: &mut Inner, nth: usize, port: &mut _| {
            end_fenced(inner, from.key, replies.get(nth)?, *handles.get(nth)?, port)
        };
        self.take_placed(from, replies, end, port)
    }

    /// Handles Replies to Calls whose arguments went along with their messages, up to the first one that does not end its
    /// Call. Tells the callers. Returns how many ended.
    pub(super) fn take_after_argument(
        &mut self,
        from: Sender,
        replies: &[&[u8]],
        header_len: usize,
        port: &mut impl Port,
    ) -> usize {
        let end = |inner: &mut Inner, nth: usize, _: &mut _| {
            let (xid, _) = apart(replies.get(nth)?, header_len);
            let placed = inner.requester.calls.end_along(from.key, xid)?;
            Some((Some(placed), header_len))
        };
        self.take_placed(from, replies, end, port)
    }

    /// Handles Replies to Calls with one lease, up to the first one of which `end` does not say how its Call ended, and where
    /// the Payload stream of the Reply starts. Tells the callers. Returns how many ended.
    fn take_placed<P: Port>(
        &mut self,
        from: Sender,
        replies: &[&[u8]],
        end: impl Fn(&mut Inner, usize, &mut P) -> Option<(Option<Placed>, usize)>,
        port: &mut P,
    ) -> usize {
        let Self { inner, service, now, .. } = self;
        let mut ended = [const { None }; RUN_MAX];
        let mut done = 0;
        for place in ended.iter_mut().take(replies.len()) {
            let Some(told) = end(inner, done, port) else { break };
            *place = Some(told);
            done += 1;
        }
        if done == 0 {
            return 0;
        }
        let Inner { requester, common, .. } = &mut **inner;
        let grant = requester.open_grant(common, from.key, done, port);
        let mut cx = Cx::within(*now, inner, grant, Exit::One(port));
        for (reply, place) in replies.iter().zip(&mut ended).take(done) {
            if let Some((Some(placed), payload_at)) = place {
                let payload = reply.get(*payload_at..).unwrap_or_default();
                tell_placed(&mut cx, *service, placed, payload);
            }
        }
        cx.close_grant();
        inner.common.counters.calls_made += done as u64;
        inner.common.receives.pass(u32::try_from(done).unwrap_or(u32::MAX));
        done
    }
}

/// Retires the handle that a Reply invalidates, and forgets its Call, if that ends the Call. Returns the outcome for
/// the caller, and where the Payload stream of the Reply starts.
fn end_fenced(
    inner: &mut Inner,
    key: ConnectionKey,
    reply: &[u8],
    handle: Handle,
    port: &mut impl Port,
) -> Option<(Option<Placed>, usize)> {
    let (unchunked, written) = match SingleChunk::of(reply) {
        Some(one) => (one.unchunked, Some(one.segment.length)),
        None => (Unchunked::of(reply)?, None),
    };
    let Inner { requester, common, .. } = inner;
    if unchunked.kind != Kind::Reply {
        return None;
    }
    let slot = requester.calls.over_with_fence(common, key, unchunked.xid, handle, written)?;
    if common.take(key, Kind::Reply, [unchunked]) == 0 {
        return None;
    }
    let retired = port.retire(handle);
    common.settle_run(key, Kind::Reply, 1, usize::from(retired.is_some()));
    let done = retired?;
    let placed = requester.calls.end_exposed(slot, complete::invalidated(&done), written);
    Some((placed, unchunked.payload_at as usize))
}
