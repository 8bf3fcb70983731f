//! The Receives of a provider: in one queue that all queue pairs share, or in one for each queue pair.
//!
//! # Memory ownership
//!
//! A posted Receive lies in the shared queue, or in the [`Supply`], or in the queue pair that has it. Receives that a
//! queue pair's own queue still has when it is destroyed go back to the supply from our own record: devices need not
//! report them.

use haulage_proto::verbs::{QpNum, WrId};

use super::connection::{Connection, Objects};
use crate::provider::base::Slots;
use crate::provider::supply::{Given, Supply};
use crate::provider::{QueueFull, Receive};
use crate::sys::ibverbs::{Arrival, Polled, Region, SharedReceives, WorkStatus};

/// Receives that were posted and not used.
#[derive(Debug)]
pub(super) enum Receives {
    Shared(SharedReceives),
    Own(Supply<Receive>),
}

impl Receives {
    /// Makes room for `count` Receives, dealt to queue pairs with queues of their own.
    pub(super) fn own(count: usize) -> Self {
        Self::Own(Supply::new(count))
    }

    /// Returns the queue that all queue pairs share, if they do.
    pub(super) const fn shared(&self) -> Option<&SharedReceives> {
        match self {
            Self::Shared(shared) => Some(shared),
            Self::Own(_) => None,
        }
    }

    /// Posts a prefix of `batch`.
    pub(super) fn post(
        &mut self,
        batch: &mut Vec<Receive>,
        slots: &mut Slots<Connection>,
        regions: &[Region],
    ) -> Result<(), QueueFull> {
        match self {
            Self::Shared(shared) => {
                let room = shared.room().min(batch.len());
                for receive in batch.drain(..room) {
                    // A Receive into memory that is not registered is lost to its poster, who is at fault.
                    let posted = shared.post(receive, regions);
                    debug_assert!(posted.is_ok(), "{posted:?}");
                }
            }
            Self::Own(supply) => {
                let room = supply.room().min(batch.len());
                batch.drain(..room).for_each(|receive| supply.post(receive));
                self.deal(slots, regions);
            }
        }
        if batch.is_empty() { Ok(()) } else { Err(QueueFull) }
    }

    /// Reserves Receives for a queue pair, if it has a queue of its own.
    pub(super) fn reserve(
        &mut self,
        qp: QpNum,
        count: u32,
        slots: &mut Slots<Connection>,
        regions: &[Region],
    ) {
        let goes_on = slots.peek(qp).is_some_and(Connection::goes_on);
        if let Self::Own(supply) = self
            && goes_on
        {
            supply.reserve(qp, count);
            self.deal(slots, regions);
        }
    }

    /// Gives queue pairs the Receives that are reserved for them.
    pub(super) fn deal(&mut self, slots: &mut Slots<Connection>, regions: &[Region]) {
        let Self::Own(supply) = self else { return };
        supply.deal(|qp, receive| {
            let Some(connection) = slots.get(qp).filter(|connection| connection.goes_on()) else {
                return Given::Never(receive);
            };
            let Connection { objects, regions: own, .. } = connection;
            let Objects::Pair(pair) = objects else { return Given::Later(receive) };
            if !pair.takes_receives() {
                return Given::Later(receive);
            }
            let regions = if own.is_empty() { regions } else { &*own };
            match pair.post_receive(qp, receive, regions) {
                Ok(()) => Given::Taken,
                // A Receive into memory that is not registered is lost to its poster, who is at fault.
                Err((_, refused)) if refused.error.kind() == std::io::ErrorKind::InvalidInput => {
                    debug_assert!(false, "{refused:?}");
                    Given::Taken
                }
                // A device that refuses will report the fault of the queue pair.
                Err((receive, _)) => Given::Never(receive),
            }
        });
    }

    /// Notes that a Receive was used. Its views are dropped.
    pub(super) fn taken(
        &mut self,
        arrival: Arrival,
        slots: &mut Slots<Connection>,
    ) -> Option<WrId> {
        match (self, arrival) {
            (Self::Shared(shared), Arrival::Shared(place)) => shared.taken(place),
            (Self::Own(supply), Arrival::Own(qp, number)) => {
                let receive = slots.get(qp)?.pair()?.received(number)?;
                supply.used();
                Some(receive.id)
            }
            _ => None,
        }
    }

    /// Puts back a Receive that completed and is not reported: the next message can use it.
    pub(super) fn unused(
        &mut self,
        arrival: Arrival,
        polled: &Polled,
        slots: &mut Slots<Connection>,
        regions: &[Region],
    ) {
        match (&mut *self, arrival) {
            // The device took it before and is not expected to refuse it now; if it does, there is one Receive less.
            (Self::Shared(shared), Arrival::Shared(place)) => {
                let _ = shared.again(place, regions);
            }
            (Self::Own(supply), Arrival::Own(qp, number)) => {
                let Some(connection) = slots.get(qp) else { return };
                // A Receive posted to a failed queue pair would come back the same way.
                if polled.status != WorkStatus::Success {
                    connection.inbound.flush();
                }
                let Some(receive) = connection.pair().and_then(|pair| pair.received(number)) else {
                    return;
                };
                supply.unused(receive);
                self.deal(slots, regions);
            }
            _ => {}
        }
    }

    /// Takes back the Receives of `qp`'s own queue, which was destroyed, and keeps them for `qp`'s next queue.
    pub(super) fn kept(&mut self, qp: QpNum, left: Vec<Receive>) {
        if let Self::Own(supply) = self {
            let count = left.len();
            left.into_iter().for_each(|receive| supply.unused(receive));
            supply.reserve(qp, u32::try_from(count).unwrap_or(u32::MAX));
        }
    }

    /// Takes back the Receives of `qp`'s own queue, which was destroyed with it.
    pub(super) fn left(&mut self, qp: QpNum, left: impl Iterator<Item = Receive>) {
        if let Self::Own(supply) = self {
            left.for_each(|receive| supply.unused(receive));
            supply.forget(qp);
        }
    }
}
