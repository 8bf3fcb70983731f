//! Where Receives lie: in one queue that all queue pairs share, or in one of each queue pair's own.
//!
//! # Memory ownership
//!
//! A Receive that was posted lies in the shared queue, or in the [`Supply`], or in the queue pair that has
//! it. What a queue pair's own queue still has when it is destroyed goes back to the supply from our own
//! record: devices need not report it.

use std::fmt;

use haulage_proto::time::Instant;
use haulage_proto::verbs::{QpNum, WrId};

use super::Verbs;
use super::connection::{Connection, Objects, Phase};
use crate::provider::supply::{Given, Supply};
use crate::provider::{QueueFull, Receive};
use crate::sys::ibverbs::{Arrival, Ended, Polled, QueuePair, SharedReceives, WorkStatus};

/// Which receive queues there are to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiveQueues {
    /// One that is shared, if the device has that.
    #[default]
    Any,
    /// One that is shared.
    Shared,
    /// One for each queue pair.
    Own,
}

impl fmt::Display for ReceiveQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "any",
            Self::Shared => "shared",
            Self::Own => "own",
        })
    }
}

/// What was posted and has not been used.
#[derive(Debug)]
pub(super) enum Receives {
    Shared(SharedReceives),
    Own(Supply<Receive>),
}

impl Receives {
    /// Returns the queue that all queue pairs share, if they do.
    pub(super) const fn shared(&self) -> Option<&SharedReceives> {
        match self {
            Self::Shared(shared) => Some(shared),
            Self::Own(_) => None,
        }
    }
}

impl Verbs {
    /// Posts a prefix of `batch`.
    pub(super) fn take_receives(&mut self, batch: &mut Vec<Receive>) -> Result<(), QueueFull> {
        match &mut self.receives {
            Receives::Shared(shared) => {
                let room = shared.room().min(batch.len());
                for receive in batch.drain(..room) {
                    // One into memory that is not registered is lost to its poster, who is at fault.
                    let posted = shared.post(receive, &self.regions);
                    debug_assert!(posted.is_ok(), "{posted:?}");
                }
            }
            Receives::Own(supply) => {
                let room = supply.room().min(batch.len());
                batch.drain(..room).for_each(|receive| supply.post(receive));
                self.deal();
            }
        }
        if batch.is_empty() { Ok(()) } else { Err(QueueFull) }
    }

    /// Reserves Receives for a queue pair, if it has a queue of its own.
    pub(super) fn reserve(&mut self, qp: QpNum, count: u32) {
        let goes_on = self.slots.peek(qp).is_some_and(Connection::goes_on);
        if let Receives::Own(supply) = &mut self.receives
            && goes_on
        {
            supply.reserve(qp, count);
            self.deal();
        }
    }

    /// Gives queue pairs the Receives they lack.
    pub(super) fn deal(&mut self) {
        let Self { receives, slots, regions, .. } = self;
        let Receives::Own(supply) = receives else { return };
        supply.deal(|qp, receive| {
            let Some(connection) = slots.get(qp).filter(|connection| connection.goes_on()) else {
                return Given::Never(receive);
            };
            let Connection { objects, regions: own, .. } = connection;
            let Objects::Pair(pair) = objects else { return Given::Later(receive) };
            if !pair.takes_receives() {
                return Given::Later(receive);
            }
            let regions = if own.is_empty() { &*regions } else { &*own };
            match pair.post_receive(qp, receive, regions) {
                Ok(()) => Given::Taken,
                // One into memory that is not registered is lost to its poster, who is at fault.
                Err((_, refused)) if refused.error.kind() == std::io::ErrorKind::InvalidInput => {
                    debug_assert!(false, "{refused:?}");
                    Given::Taken
                }
                // A device that refuses will report what is wrong with the queue pair.
                Err((receive, _)) => Given::Never(receive),
            }
        });
    }

    /// Returns the queue pair that a completed Receive was used by, if it is still there.
    pub(super) fn user_of(&self, arrival: Arrival, number: u32) -> Option<QpNum> {
        match arrival {
            Arrival::Shared(_) => self.numbers.get(number),
            Arrival::Own(qp, _) => self.slots.peek(qp).map(|_| qp),
        }
    }

    /// Takes note that a Receive was used. Its views are dropped.
    pub(super) fn taken(&mut self, arrival: Arrival) -> Option<WrId> {
        match (&mut self.receives, arrival) {
            (Receives::Shared(shared), Arrival::Shared(place)) => shared.taken(place),
            (Receives::Own(supply), Arrival::Own(qp, number)) => {
                let receive = self.slots.get(qp)?.pair()?.received(number)?;
                supply.used();
                Some(receive.id)
            }
            _ => None,
        }
    }

    /// Puts a Receive back that completed, of which nobody is told: it is for whoever comes next.
    pub(super) fn unused(&mut self, arrival: Arrival, polled: &Polled) {
        match (&mut self.receives, arrival) {
            // That a device which refuses it now took it before is not expected; then there is one
            // Receive less.
            (Receives::Shared(shared), Arrival::Shared(place)) => {
                let _ = shared.again(place, &self.regions);
            }
            (Receives::Own(supply), Arrival::Own(qp, number)) => {
                let Some(connection) = self.slots.get(qp) else { return };
                // What is posted to one that failed comes back the same way.
                connection.is_flushed |= polled.status != WorkStatus::Success;
                let Some(receive) = connection.pair().and_then(|pair| pair.received(number)) else {
                    return;
                };
                supply.unused(receive);
                self.deal();
            }
            _ => {}
        }
    }

    /// Destroys a queue pair. What its send queue still held is handed to `each`.
    pub(super) fn destroy(
        &mut self,
        now: Instant,
        qp: QpNum,
        pair: QueuePair,
        each: impl FnMut(Ended),
    ) {
        self.numbers.remove(pair.number());
        self.occupied -= pair.occupied() as usize;
        let left = pair.destroy(each);
        if let Receives::Own(supply) = &mut self.receives {
            left.for_each(|receive| supply.unused(receive));
            supply.forget(qp);
            // What the device reported of them leaves the completion queue first: it has a place for each
            // Receive there is.
            self.reap(now, usize::MAX);
            self.deal();
        }
    }
}

impl Connection {
    /// Tells whether messages may come yet.
    fn goes_on(&self) -> bool {
        !self.is_flushed && !matches!(self.phase, Phase::Flushing | Phase::Gone)
    }
}
