//! Replies that are told as they come.

use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::header::{Bare, OneChunk};
use haulage_proto::verbs::Handle;

use super::{Origin, REPLY_LEN, Short, xid};
use crate::core::connection::Connection;
use crate::core::outbound::{tell_inline, tell_placed};
use crate::core::state::{Cx, State};
use crate::core::table::Key;
use crate::provider::Outlet;
use crate::service::Service;
use crate::sys::complete;

impl<S: Service> Short<'_, S> {
    /// Tells how Calls of ours ended, as long as nothing is left of them then. Returns how many.
    #[inline(never)]
    pub(super) fn take_replies(
        &mut self,
        from: Origin,
        replies: &[&[u8]],
        outlet: &mut impl Outlet,
    ) -> usize {
        let Self { state, service, now, .. } = self;
        state.give_credits(from.key, 0);
        // Who is told may call again, which leaves at once.
        let lane = state.open_lane(from.key, replies.len(), outlet);
        let mut cx = Cx::within(*now, state, lane);
        let mut done = 0;
        for reply in replies {
            let Some((header, payload)) = reply.split_at_checked(REPLY_LEN) else { break };
            let Some(token) = cx.state.end_call(from.key, xid(header)) else { break };
            tell_inline(&mut cx, *service, token, payload);
            done += 1;
        }
        let Cx { lane, state, .. } = cx;
        if let Some(lane) = lane {
            state.close_lane(&lane);
        }
        state.counters.calls_made += u64::from(done);
        state.receives.pass(done);
        done as usize
    }

    /// Tells how a Call ended whose lease is invalidated with its Reply, if nothing is left of it then. Returns
    /// whether it was.
    pub(super) fn take_fencing(
        &mut self,
        from: Origin,
        message: &[u8],
        handle: Handle,
        outlet: &mut impl Outlet,
    ) -> bool {
        let reply = match OneChunk::of(message) {
            Some(one) => Some((one.bare, Some(one.segment.length))),
            None => Bare::of(message).map(|bare| (bare, None)),
        };
        let Some((bare, written)) = reply else { return false };
        let Self { state, service, now, .. } = self;
        let slot = state.xids.find(bare.xid);
        let slot = slot.filter(|slot| state.is_over_with(*slot, from.key, handle, written));
        let Some(slot) = slot.filter(|_| bare.kind == Kind::Reply) else { return false };
        if state.take(*now, from.key, Kind::Reply, [bare]) == 0 {
            return false;
        }
        let Some(done) = outlet.retire(handle) else {
            state.put_back(from.key, Kind::Reply, 1);
            return false;
        };
        let ended = state.end_opened(slot, complete::invalidated(&done), written);
        state.give_credits(from.key, 0);
        let lane = state.open_lane(from.key, 1, outlet);
        let mut cx = Cx::within(*now, state, lane);
        let payload = message.get(bare.payload_at as usize..).unwrap_or_default();
        if let Some(ended) = ended {
            tell_placed(&mut cx, *service, ended, payload);
        }
        let Cx { lane, state, .. } = cx;
        if let Some(lane) = lane {
            state.close_lane(&lane);
        }
        state.counters.calls_made += 1;
        state.receives.pass(1);
        true
    }
}

impl State {
    /// Forgets a Call of ours that is over with this Reply. Returns the caller's token.
    #[inline]
    fn end_call(&mut self, key: Key<Connection>, xid: u32) -> Option<u64> {
        let slot = self.xids.find(xid)?;
        let token = self.outbound.get(slot)?.as_ref()?.is_over_with(key)?;
        self.forget(slot);
        Some(token)
    }
}
