//! How peers reach a node of a fabric: each is taken from its listener, and adopted.

use std::sync::Arc;

use super::super::node::Newcomer;
use super::super::queue_pair::{QueuePair, QueuePairState};
use super::super::schedule::{End, Incoming, Packet, Proposal};
use super::{Taken, World};
use crate::provider::{ConnectError, Event, Place};

impl World {
    /// Takes the next peer from a listener of `node`. Peers of listeners that are gone are refused.
    pub(in super::super) fn next_incoming(&mut self, node: usize) -> Option<Incoming> {
        while let Some(newcomer) = self.nodes[node].arrivals.pop_front() {
            if !self.nodes[node].has_listener(newcomer.listener) {
                self.turn_away(node, newcomer.from);
                continue;
            }
            self.taken += 1;
            let number = Arc::new(self.taken);
            let held = Arc::downgrade(&number);
            let peer = newcomer.peer;
            self.incoming.insert(self.taken, Taken { newcomer, node, held });
            return Some(Incoming { number, peer });
        }
        None
    }

    /// Has `node` take in a peer: reports its request, unless it has given up meanwhile.
    pub(in super::super) fn adopt(
        &mut self,
        node: usize,
        incoming: Incoming,
        place: Place,
    ) -> Result<(), (Incoming, Place)> {
        let Some(taken) = self.incoming.remove(&incoming.number) else { return Ok(()) };
        let Newcomer { listener, from, peer, proposal } = taken.newcomer;
        if self.qp(from).is_none_or(|qp| qp.state != QueuePairState::Connecting) {
            self.nodes[node].counters.newcomers.closed += 1;
            return Ok(());
        }
        let Proposal { ord, ird, .. } = proposal;
        // The peer's Reads are bounded by what we serve, ours by what it serves.
        let qp = QueuePair::new(QueuePairState::Requested, Some(from), ird, ord);
        let Some(qp) = self.nodes[node].add(qp) else {
            let newcomer = Newcomer { listener, from, peer, proposal };
            self.incoming.insert(*incoming.number, Taken { newcomer, ..taken });
            return Err((incoming, place));
        };
        let (clock, private_data) = (self.clock, proposal.private_data);
        let request = Event::Request { listener, qp, peer, process: None, private_data, place };
        self.nodes[node].report(clock, request);
        if let Some(active) = self.qp(from) {
            active.peer = Some(End { node, qp });
        }
        Ok(())
    }

    /// Refuses the peers whose [`Incoming`] was dropped.
    pub(super) fn refuse_dropped(&mut self) {
        let dropped = |taken: &Taken| taken.held.strong_count() == 0;
        while let Some(number) =
            self.incoming.iter().find(|(_, taken)| dropped(taken)).map(|(number, _)| *number)
        {
            let taken = self.incoming.remove(&number);
            taken.into_iter().for_each(|taken| self.turn_away(taken.node, taken.newcomer.from));
        }
    }

    fn turn_away(&mut self, node: usize, to: End) {
        self.send_alone(node, Packet::Refuse { to, reason: ConnectError::Refused });
    }
}
