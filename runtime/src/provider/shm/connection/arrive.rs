//! Arrivals on an open connection: messages, invalidations, the end.

use super::Connection;
use crate::provider::base::ListenerId;
use crate::provider::shm::ended::Ended;
use crate::provider::shm::inflow::{Share, Stop};
use crate::provider::shm::nic::Nic;
use crate::provider::{DisconnectReason, Event, MessageSink};

impl Connection {
    /// Reads the ring, of which messages go into Receives until `events` are `limit`; returns whether anything arrived.
    #[inline]
    pub(in crate::provider::shm) fn read_ring(
        &mut self,
        nic: &mut Nic,
        events: &mut Vec<Event<ListenerId>>,
        limit: usize,
    ) -> bool {
        let arrived = if let Some(inflow) = &mut self.inflow
            && inflow.take_left()
        {
            inflow.release_room()
        } else {
            self.arrive(nic, events, limit)
        };
        if arrived {
            self.heat.hear(nic.now);
        }
        arrived
    }

    /// Takes messages from the ring until `events` are `limit`; returns whether there were any.
    #[inline]
    fn arrive(&mut self, nic: &mut Nic, events: &mut Vec<Event<ListenerId>>, limit: usize) -> bool {
        let Self { life, inflow: Some(inflow), outflow: Some(outflow), .. } = self else {
            return false;
        };
        let before = events.len();
        let stop = inflow.take(nic, life, outflow, events, limit);
        let moved = events.len() > before;
        inflow.release_room();
        match stop {
            None => {}
            Some(Stop::Empty) if !life.is_over() => {}
            Some(other) => self.on_stop(nic, &other),
        }
        moved
    }

    /// Takes messages without Receives, no more than its `share`, as long as they are plain and `sink` takes them.
    /// Returns how many were taken.
    #[inline]
    pub(in crate::provider::shm) fn take_in_place(
        &mut self,
        nic: &mut Nic,
        room: &mut [u8],
        share: Share,
        sink: &mut impl MessageSink,
    ) -> usize {
        let Self { life, inflow: Some(inflow), outflow: Some(outflow), .. } = self else {
            return 0;
        };
        inflow.take_left();
        if !life.is_open() || inflow.has_begun() || life.is_over() {
            return 0;
        }
        let Some(taken) = inflow.take_in_place(nic, outflow, room, share, sink) else { return 0 };
        // The peer works on the last answers while the turn ends.
        outflow.publish(nic, life);
        taken
    }

    #[cold]
    fn on_stop(&mut self, nic: &mut Nic, stop: &Stop) {
        match stop {
            Stop::Waits => {
                if let Some(inflow) = &mut self.inflow {
                    inflow.starve(nic);
                }
            }
            Stop::Fault(fault) => self.fault(nic, *fault),
            Stop::Close => {
                let has_all = self.outflow.as_ref().is_some_and(|outflow| outflow.is_taken());
                let reason =
                    if has_all { DisconnectReason::PeerHasAll } else { DisconnectReason::Peer };
                self.end(nic, Ended::Closed, reason, None);
            }
            Stop::Empty => {
                // The peer closed the socket after it wrote its last record and the word with the reason.
                let theirs = self.inflow.as_ref();
                let word = theirs.map_or(Ended::No, |inflow| Ended::of(inflow.segment()));
                self.end(nic, Ended::Closed, word.reason(), None);
            }
        }
    }
}
