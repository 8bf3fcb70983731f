//! Calls that the peer refused, and that go again in the form that its error asks for.
//!
//! # Normal operation
//! A Call that exposes memory keeps its Payload stream until it ends. If the peer refuses it with an error that names a
//! remedy, and the binding and the procedure allow that, the Call is planned again ([`retry`]). First its handles are
//! retired, as those of an answered Call are. Then it gets another XID and waits in the queue of its connection like a new
//! one. Its deadline stays. Its caller learns of the last refusal only, and only if nothing else can be tried.
//!
//! [`retry`]: haulage_proto::exchange::retry

use haulage_proto::negotiate::Refusal;
use haulage_proto::v2::error::ErrorBody;

use super::Requester;
use super::again::Again;
use super::calls::{Caller, EndedCall};
use super::plan::PlanKey;
use crate::core::common::Common;
use crate::core::connection::Connection;
use crate::key::ConnectionKey;
use crate::service::CallError;

impl Requester {
    /// Takes in that the peer refused a Call: has it go again, or ends it with the error.
    pub(crate) fn on_refused(
        &mut self,
        common: &mut Common,
        key: ConnectionKey,
        xid: u32,
        error: Refusal,
    ) {
        let Some(slot) = self.calls.find_answered(key, xid) else { return };
        //~ V2-7.3.1-4: `` -> `use haulage_proto::v2::error::ErrorBody as Body;
        //~   if matches!(error, Refusal::Two(Body::ReadChunks { .. })) { return; }`
        //~ V2-7.3.2-2: `` -> `use haulage_proto::v2::error::ErrorBody as Body;
        //~   if matches!(error, Refusal::Two(Body::WriteChunks { .. })) { return; }`
        //~ V2-7.3.3-2: `` -> `use haulage_proto::v2::error::ErrorBody as Body;
        //~   if matches!(error, Refusal::Two(Body::Segments { .. })) { return; }`
        //~ V2-7.3.4-4: `` -> `use haulage_proto::v2::error::ErrorBody as Body;
        //~   if matches!(error, Refusal::Two(Body::WriteResource { .. })) { return; }`
        //~ V2-7.3.5-3: `` -> `use haulage_proto::v2::error::ErrorBody as Body;
        //~   if matches!(error, Refusal::Two(Body::ReplyResource { .. })) { return; }`
        //~ V2-7.4.1-3: `` -> `use haulage_proto::v2::error::ErrorBody as Body;
        //~   if matches!(error, Refusal::Two(Body::System)) { return; }`
        self.plan_again(common, slot, key, &error);
        self.calls.fail(common, slot, CallError::Refused(error));
    }

    /// Notes how a Call goes again that was refused with `error`, if it can.
    fn plan_again(
        &mut self,
        common: &Common,
        slot: usize,
        key: ConnectionKey,
        error: &Refusal,
    ) -> Option<()> {
        let Refusal::Two(error) = error else { return None };
        let found = self.calls.get_mut(slot).filter(|found| found.call.opens)?;
        let connection = common.connections.get(key)?;
        let xid = found.call.xid;
        let before = found.kept.again.take().filter(|again| again.plan(xid).is_some());
        let plan = before.as_ref().map(|again| &again.plan);
        let plan_key = PlanKey::of_sent(key, found.call.procedure, found.exposed_leases);
        let further = found.exposed_leases.further.any();
        // Of all errors, only this one says that nothing of such a Call was carried out.
        //~ RTR-5.4-1: `ErrorBody::InvalHtype` -> `ErrorBody::System`
        let plan = if found.exposed_leases.is_along && *error == ErrorBody::InvalHtype {
            // By chunks, as it would have gone.
            *plan_key.plan(&mut self.planned, connection, further).ok()?
        } else {
            plan_key.plan_again(plan, connection, (further, error)).ok()?
        };
        // The time that a Call is given to retire its handles is not the caller's.
        let deadline = before.map_or(found.call.deadline, |again| again.deadline);
        found.kept.again = Some(Box::new(Again { plan, deadline, xid, has_gone: false }));
        Some(())
    }

    /// Takes out the next Call that has ended. Those that are to go again are queued, or wait for a send buffer.
    pub(crate) fn next_finished(&mut self, common: &mut Common) -> Option<EndedCall> {
        for _ in 0..self.calls.finished() {
            let slot = self.calls.next_finished()?;
            match self.send_again(common, slot) {
                Resent::Queued => {}
                Resent::Waits => self.calls.finish_later(slot),
                Resent::Ended => return self.calls.end_finished(slot, &common.abilities),
            }
        }
        None
    }

    /// Queues a refused Call that is to go again, unless it is not, it cannot any more, or it lacks memory for that.
    fn send_again(&mut self, common: &mut Common, slot: usize) -> Resent {
        let Some(found) = self.calls.get_mut(slot) else { return Resent::Ended };
        let Some(again) = found.kept.again.as_mut() else { return Resent::Ended };
        if again.has_gone || again.xid != found.call.xid || found.call.caller == Caller::Nobody {
            return Resent::Ended;
        }
        let key = found.call.connection;
        let is_late = again.deadline <= common.trace.now();
        if is_late || !common.connections.get(key).is_some_and(Connection::takes_calls) {
            return Resent::Ended;
        }
        let Some(mut buffer) = common.buffers.pop() else { return Resent::Waits };
        if found.exposed_leases.begin_again(&again.plan, &common.pool).is_none() {
            common.buffers.recycle(buffer);
            return Resent::Ended;
        }
        let deadline = again.deadline;
        let xid = self.calls.renew(slot);
        let Some(mut found) = self.calls.get_mut(slot) else { return Resent::Ended };
        (found.call.xid, found.call.deadline, found.kept.error) = (xid, deadline, None);
        if let Some(again) = &mut found.kept.again {
            (again.xid, again.has_gone) = (xid, true);
        }
        let encoded = found.exposed_leases.sent.write(xid, &mut buffer);
        found.queue(buffer, encoded);
        common.counters.calls_repeated += 1;
        common.wake_by(deadline);
        if let Some(connection) = common.connections.get_touched(key) {
            connection.outbox.push_call(slot);
        }
        Resent::Queued
    }
}

/// What became of a Call that may have to go again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resent {
    /// It goes again.
    Queued,
    /// It goes again once there is a send buffer.
    Waits,
    /// It has ended.
    Ended,
}
