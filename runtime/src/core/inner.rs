//! The state of a core apart from its provider, service and inbox: the Responder, the Requester, and the state that
//! they share.

use super::common::Common;
use super::connection::Connection;
use super::counters::Census;
use super::memory::Ending;
use super::requester::Requester;
use super::responder::Responder;
use crate::key::ConnectionKey;

/// The two halves of a core, and the state that they share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) responder: Responder,
    pub(crate) requester: Requester,
    /// Declared behind the others: it has the pool that they lease from.
    pub(crate) common: Common,
    /// Declared last: until it is dropped, what the others are charged may be.
    pub(crate) _ending: Ending,
}

impl Drop for Inner {
    /// Ends what is charged. Once no connection is left, nothing is.
    fn drop(&mut self) {
        let Common { connections, streams, memory, .. } = &self.common;
        Ending::begin();
        let is_quiet = connections.len() == 0 && streams.len() == 0 && !std::thread::panicking();
        debug_assert!(!is_quiet || memory.held() == 0, "{} octets held for nobody", memory.held());
        let records = streams.records.held();
        debug_assert!(!is_quiet || records == 0, "{records} octets of records held for nobody");
    }
}

impl Inner {
    /// Returns, by slot, which connections have Calls or work requests that have not ended and that somebody waits for.
    /// Nobody waits for a Call that was given up, nor for the invalidation of its handles.
    pub(crate) fn busy_slots(&self) -> Vec<bool> {
        let mut busy = vec![false; self.common.connections.slots()];
        let served = self.responder.calls.iter().map(|call| call.connection);
        let posted = self.common.posted.awaited();
        let made = self.requester.calls.each().filter(|told| !told.is_given_up);
        for key in served.chain(posted).chain(made.map(|told| told.connection)) {
            if let Some(busy) = busy.get_mut(key.slot()) {
                *busy = true;
            }
        }
        busy
    }

    /// Returns the name of the first connection at or after a slot, over RDMA or TCP.
    pub(crate) fn from(&self, slot: usize) -> Option<ConnectionKey> {
        let Common { connections, streams, .. } = &self.common;
        connections.from(slot).or_else(|| streams.from(slot))
    }

    /// Returns the names of all connections, over RDMA and TCP.
    pub(crate) fn keys(&self) -> impl Iterator<Item = ConnectionKey> {
        std::iter::successors(self.from(0), |key| self.from(key.slot() + 1))
    }

    /// Returns the resources that the core holds for Calls that have not ended.
    pub(crate) fn census(&self) -> Census {
        let Common { receives, posted, memory, connections, .. } = &self.common;
        let held = connections.iter().filter(|connection| connection.life.is_over());
        // If a peer sent more than was reserved for it, the number is just below 2^32.
        let reserved = |connection: &Connection| connection.engine.reserved().cast_signed();
        Census {
            receives_reserved: connections.iter().map(|one| i64::from(reserved(one))).sum(),
            receives_held: receives.held(),
            receives_unreserved: receives.unreserved(),
            calls_served: self.responder.calls.len(),
            work_requests: posted.len(),
            memory_charged: memory.held(),
            connections_held: u32::try_from(held.count()).unwrap_or(u32::MAX),
            leases_held: self.requester.calls.each().map(|told| told.leases).sum(),
        }
    }
}
