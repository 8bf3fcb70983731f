//! The Receives that are reserved for the peer of a connection: what its credits stand for.

use haulage_proto::negotiate::Connection as Engine;
use haulage_proto::v2::connection::Role;
use haulage_proto::verbs::QpNum;

use crate::core::receives::{Part, Receives};
use crate::limits::RECEIVES_IDLE;
use crate::provider::Provider;

/// The Receives of a connection.
#[derive(Debug)]
pub(crate) struct Credits {
    /// The connection's part of the core's Receives.
    part: Part,
    /// Receives reserved for the peer that the provider does not know of yet.
    reserved: u32,
}

impl Credits {
    /// Begins with the Receives that every connection has.
    pub(super) const fn new(part: Part) -> Self {
        Self { part, reserved: RECEIVES_IDLE }
    }

    /// Reserves Receives for the peer: replaces those that it used, and adds some if it is busy. `leaving` Replies are
    /// about to be sent, if credit allows; `touched` connections have work this turn.
    #[inline]
    pub(super) fn replenish(
        &mut self,
        engine: &mut Engine,
        receives: &mut Receives,
        leaving: usize,
        touched: usize,
    ) {
        // The Replies about to leave hold no Receive any more, and are not owed for long.
        let leaving = u32::try_from(leaving).unwrap_or(u32::MAX).min(engine.replies_left());
        let owed = engine.owed().saturating_sub(leaving);
        let mut more = receives.grow(&mut self.part, (engine.reserved(), owed), touched);
        // [V2-4.2.1.1-2]
        if more == 0 && engine.lacks_receive() {
            more = receives.grow_by_one(&mut self.part);
        }
        let least = engine.reserved_for_calls();
        if least > 0 {
            let missing = least.saturating_sub(engine.reserved().wrapping_add(more));
            more += receives.grow_for_calls(&mut self.part, missing, touched);
        }
        engine.reserve(more);
        self.reserved += more;
    }

    /// Tells the provider how many Receives are reserved for the peer, before the peer learns of them.
    #[inline]
    pub(super) fn provide<P: Provider>(&mut self, provider: &mut P, qp: QpNum) {
        let reserved = std::mem::take(&mut self.reserved);
        if reserved > 0 {
            //~ R5666-6-2: `reserved` -> `reserved - 1`
            provider.reserve_receives(qp, reserved);
        }
    }

    /// Returns the Receives of a connection that begins anew, and takes the minimum for it. Returns `None` if too few are
    /// left; nothing has changed then.
    pub(super) fn renew(
        &self,
        engine: &Engine,
        receives: &mut Receives,
        role: Role,
    ) -> Option<Self> {
        receives.renew(&self.part, engine.reserved(), role).map(Self::new)
    }

    /// Returns the Receives of a connection that is over. `engine` knows how many of them its peer has not used.
    pub(super) fn release(&self, engine: &Engine, receives: &mut Receives) {
        receives.release(&self.part, engine.reserved());
    }
}
