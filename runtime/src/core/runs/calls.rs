//! The stage that takes Calls as they arrive: each is served, and answered at once if possible.
//!
//! # Normal operation
//! Every Call that lacks nothing passes here, whatever [`Carrier`] brought it. There is a buffer for its Reply; its RPC
//! header is read; the carrier sees to what it needs; the service acts; and its Reply leaves by the carrier. A Call that
//! lacks something is left, and the caller of the stage learns what it lacks. A Call whose Reply cannot leave at once is
//! parked in the table of the [`Responder`](crate::core::responder::Responder).

use haulage_proto::rpc::Credential;

use super::carrier::{Answered, Asked, Carrier, Own};
use super::sender::{Runs, Sender};
use super::taken::Taken;
use crate::core::common::Common;
use crate::core::cx::Cx;
use crate::core::inner::Inner;
use crate::core::memory::Charge;
use crate::core::program::{Header, Programs};
use crate::core::responder::{Responder, ServedCall};
use crate::core::serve::{Acted, Whole, serve, serve_other, settle};
use crate::core::service::Service;
use crate::key::{CallKey, ConnectionKey};
use crate::service::Reply;

impl<S: Service> Runs<'_, S> {
    /// Runs the service for Calls and answers them, up to the first one that lacks something.
    #[inline(never)]
    pub(in crate::core) fn take_calls<'a, C: Carrier>(
        &mut self,
        from: &Sender,
        programs: &Programs,
        calls: impl ExactSizeIterator<Item = Taken<'a>> + Clone,
        mut carrier: C,
    ) -> usize {
        let Self { inner, service, now, reply, .. } = self;
        if calls.len() > 1 {
            service.foresee(calls.clone().filter_map(|call| call.foreseen(programs)));
        }
        let Some(mut name) = inner.responder.calls.next_key() else { return 0 };
        let mut way = C::begin(&mut inner.common, from, calls.len());
        let key = from.key;
        let in_place_max = C::in_place_max(from);
        let has_turns = programs.has_turns(in_place_max);
        let (mut counts, mut unsettled) = (Counts::default(), None);
        // What the Call at hand has of its own; nothing between two Calls.
        let mut own = Own::default();
        let mut known = None;
        let mut cx = Cx::new(*now, inner);
        for call in calls {
            let Some(making) = with_buffer(&mut cx.inner.common, key, reply) else { break };
            let Taken { xid, ref chunk, header, payload } = call;
            let chunk = chunk.as_ref();
            // Such a Call is not served in a run: it and the Calls behind it wait for their turns.
            if has_turns && programs.takes_turns(header, payload, in_place_max) {
                break;
            }
            let asked = Asked { programs, chunk, payload };
            if carrier.provide(&mut cx.inner.common, from, &asked, making, &mut own).is_none() {
                break;
            }
            counts.taken += 1;
            let header = header.or_else(|| programs.plain(payload));
            let credential = Credential::None;
            let (connection, version) = (from.key, from.version);
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
                Some(header) => serve(&mut cx, *service, whole(header), None, making),
                None => {
                    let whole = whole(Header::default());
                    serve_other(&mut cx, *service, whole, &mut known, making)
                }
            };
            if C::LENDS || chunk.is_some() {
                // A lease that the service did not take returns to the pool, so that the next Call does not get it.
                own.argument = None;
                own.charge = cx.inner.responder.with_leased(std::mem::take(&mut own.charge));
            }
            let answered = Answered { from, xid, chunk, acted: &acted };
            if carrier.leave(&mut cx.inner.common, &mut way, &answered, making, &mut own) {
                continue;
            }
            if let Acted::NoReply = acted {
                making.forget_results();
                cx.inner.common.discharge(key, std::mem::take(&mut own.charge));
                counts.unanswered += 1;
                continue;
            }
            let charge = cx.inner.responder.with_leased(std::mem::take(&mut own.charge));
            let waiting = ServedCall::with(key, xid, chunk).charged(charge);
            let waiting = C::park(&mut cx.inner.common, &mut way, waiting);
            let making = park(&mut cx.inner.responder, name, waiting, reply);
            counts.parked += 1;
            if let Acted::Refused(_) | Acted::Long = acted {
                // This is settled once the carrier has ended the run; the Calls behind it come again.
                unsettled = Some((acted, making));
                break;
            }
            settle(cx.inner, name, acted, making);
            // The parked Call keeps its name in the table, so the next Call needs another.
            let Some(next) = cx.inner.responder.calls.next_key() else { break };
            name = next;
        }
        end_run::<C>(inner, from, &way, counts);
        if let Some((acted, making)) = unsettled {
            settle(inner, name, acted, making);
        }
        counts.taken
    }
}

/// What came of the Calls of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    taken: usize,
    /// Calls that are in the table.
    parked: usize,
    /// Calls without a Reply, by their procedures.
    unanswered: u32,
}

/// Ends a run of Calls.
#[inline(always)]
fn end_run<C: Carrier>(inner: &mut Inner, from: &Sender, way: &C::Way, counts: Counts) {
    let Inner { responder, common, .. } = inner;
    responder.running = None;
    // A run has far fewer Calls than 2^32.
    let left = u32::try_from(counts.taken - counts.parked).unwrap_or(u32::MAX);
    common.counters.count_served(from.role, u64::from(left));
    C::end(common, from, way, left);
    if counts.unanswered > 0 {
        common.owe_no_replies(from.key, counts.unanswered);
    }
    // What was leased for results that left in their messages has come home.
    let leased = responder.with_leased(Charge::default());
    common.discharge(from.key, leased);
}

/// Returns the Reply that the next Call of a connection is answered in, with a buffer; `None` if there is no buffer for it
/// now.
#[inline(always)]
fn with_buffer<'a>(
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

/// Enters a Call that does not leave at once in the table, under the `name` that it was promised. Returns the Reply that
/// was made for it.
///
/// # Panics
/// If another Call has the name, or there is no Reply: either would lose the Call.
#[cold]
fn park(
    responder: &mut Responder,
    name: CallKey,
    call: ServedCall,
    reply: &mut Option<Reply>,
) -> Reply {
    let inserted = responder.insert(call);
    assert!(inserted == name, "nothing else entered meanwhile");
    let Some(reply) = reply.take() else { panic!("a Reply that has not left is here") };
    reply
}
