//! Calls of procedures that never have a Reply (version 2, section 4.7): they end when they have left.
//!
//! # Normal operation
//! Such a Call is always queued, and leaves in one message or, if it is longer, in several, but never with a chunk. It is
//! no unanswered Call to the engine, which so has only the server's grants to go by. A Call whose last message was copied
//! ends at once, another one with the completion of that message.

use haulage_proto::negotiate::Version;
use haulage_proto::v2::connection::Sending;

use super::Requester;
use super::calls::Found;
use super::exposures::Unready;
use super::lease::LeaseRole;
use super::plan::PlanKey;
use super::send::{IN_TABLE, Leaving, Ready, may_leave};
use crate::core::common::Common;
use crate::service::CallError;

impl Requester {
    /// Makes a Call ready of a procedure that never has a Reply: it takes the credits of all its messages.
    #[inline(never)]
    pub(super) fn ready_call_only(
        &mut self,
        common: &mut Common,
        Leaving { key, slot, encoded, .. }: &Leaving,
    ) -> Result<(Ready, u32), Unready> {
        let (Some(Found { call, .. }), Some(connection)) =
            (self.calls.get_mut(*slot), common.connections.get_mut(*key))
        else {
            panic!("{IN_TABLE}");
        };
        if call.version == Version::One {
            return Err(CallError::CallOnly.into());
        }
        let plan_key = PlanKey::of_one(*key, call.procedure, encoded, LeaseRole::Argument, 0);
        let format = match plan_key.plan(&mut self.planned, connection, None) {
            Ok(plan) => plan.format,
            // Nothing but its length keeps it from being one message, or several.
            Err(CallError::Segments) => return Err(CallError::TooLong.into()),
            Err(error) => return Err(error.into()),
        };
        let sending = Sending { format, is_call_only: true, ..Sending::CALL };
        may_leave(&common.buffers, connection, &sending).map_err(|unready| match unready {
            Unready::Failed(CallError::Segments) => Unready::Failed(CallError::TooLong),
            unready => unready,
        })?;
        Ok((Ready::CallOnly(format), connection.engine.try_post(&sending)?))
    }
}
