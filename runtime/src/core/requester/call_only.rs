//! Calls of procedures that never have a Reply (version 2, section 4.7): they end when they have left.
//!
//! # Normal operation
//! Such a Call is always queued, and leaves in one message or, if it is longer, in several, but never with a chunk. It is
//! no unanswered Call to the engine, which so has only the server's grants to go by. A Call whose last message was copied
//! ends at once, another one with the completion of that message.

use haulage_mr_pool::Local;
use haulage_proto::exchange::Format;
use haulage_proto::negotiate::{Version, unchunked_header_len};
use haulage_proto::v2::connection::{Sending, Unsent};
use haulage_proto::v2::continuation::Kind;
use haulage_proto::verbs::HeaderPatch;

use super::Requester;
use super::calls::Stage;
use super::encoded::Encoded;
use super::lease::LeaseRole;
use super::plan::PlanKey;
use super::send::Progress;
use crate::core::common::Common;
use crate::core::memory::Charge;
use crate::core::outbox::InParts;
use crate::key::ConnectionKey;
use crate::limits::HEADER_ROOM;
use crate::provider::{Outgoing, Port};
use crate::service::CallError;

impl Requester {
    /// Sends a Call of a procedure that never has a Reply, encoded in `buffer`. One without the credits of all its messages
    /// returns to the front of its connection's queue.
    #[inline(never)]
    pub(super) fn send_call_only(
        &mut self,
        common: &mut Common,
        key: ConnectionKey,
        slot: usize,
        (mut buffer, encoded): (Local, Encoded),
        port: &mut (impl Port + ?Sized),
    ) -> Progress {
        let (Some(mut found), Some(connection)) =
            (self.calls.get_mut(slot), common.connections.get_mut(key))
        else {
            panic!("a Call that is sent is in the table, and has its connection")
        };
        let (xid, procedure) = (found.call.xid, found.call.procedure);
        let plan_key = PlanKey::of_one(key, procedure, &encoded, LeaseRole::Argument, 0);
        let format = match found.call.version {
            Version::One => Err(CallError::CallOnly),
            Version::Two => {
                plan_key.plan(&mut self.planned, connection, None).map(|plan| plan.format)
            }
        };
        let posted = format.and_then(|format| {
            let sending = Sending { format, is_call_only: true, ..Sending::CALL };
            match connection.engine.may_post(&sending) {
                Ok(()) => Ok(Some(sending)),
                Err(Unsent::Wait) => Ok(None),
                Err(unsent) => Err(unsent.into()),
            }
        });
        let sending = match posted {
            Ok(Some(sending)) if common.buffers.suffice(sending.format) => sending,
            Ok(None) => {
                found.queue(buffer, encoded);
                connection.outbox.put_back_call(slot);
                return Progress::Waits;
            }
            failed => {
                connection.engine.give_up(Kind::Call);
                common.buffers.recycle(buffer);
                // Nothing but its length keeps it from being one message, or several.
                let error = match failed {
                    Err(CallError::Segments) => CallError::TooLong,
                    Err(error) => error,
                    Ok(_) => CallError::Busy,
                };
                self.calls.fail(common, slot, error);
                return Progress::Made;
            }
        };
        let Ok(credit) = connection.engine.try_post(&sending) else {
            panic!("the engine has just said that it may be posted")
        };
        found.call.stage = Stage::Leaving;
        let patch = HeaderPatch { xid, credit };
        let mut last = encoded;
        if let Format::Continued { .. } = sending.format {
            let header_len = unchunked_header_len(Version::Two, Kind::Call);
            //~ V2-6.3.6-1: `patch,` -> `patch: HeaderPatch { xid: xid ^ 1, credit },`
            let parts = InParts { kind: Kind::Call, patch, header_len, length: encoded.length };
            let stream = buffer.bytes().get(HEADER_ROOM..).unwrap_or_default();
            let copy = |at: usize, to: &mut [u8]| to.copy_from_slice(&stream[at..at + to.len()]);
            let (rest, length) = common.send_parts(key, parts, copy, port);
            common.buffers.recycle(std::mem::replace(&mut buffer, rest));
            last = Encoded { length, ..encoded };
        }
        let mut message = Outgoing::within(buffer);
        let head = last.complete(&mut message, Version::Two, patch);
        let id = common.posted.next_id();
        common.leave(key, &head, &mut message, Charge::default(), port);
        message.take_buffer().into_iter().for_each(|buffer| common.buffers.recycle(buffer));
        if !common.posted.end_call_with(id, slot) {
            self.calls.end_sent(slot);
        }
        Progress::Made
    }
}
