//! How connections of a fabric are set up and end.

use std::net::SocketAddr;

use haulage_proto::verbs::{QpNum, Status};

use super::super::node::{EPHEMERAL, Newcomer};
use super::super::queue_pair::{QueuePair, QueuePairState};
use super::super::schedule::{End, Fault, Gone, Message, Packet, Proposal};
use super::World;
use crate::provider::{ConnectError, ConnectionParams, DisconnectReason, Event};

impl World {
    // Requests of the consumer.

    pub(in super::super) fn connect(
        &mut self,
        node: usize,
        to: SocketAddr,
        params: &ConnectionParams<'_>,
    ) -> Result<QpNum, ConnectError> {
        let proposal = self.proposal(params);
        let qp = QueuePair::new(QueuePairState::Connecting, None, proposal.ord, proposal.ird);
        let qp = self.nodes[node].add(qp).ok_or(ConnectError::NoQueuePair)?;
        let from = End { node, qp };
        let port = EPHEMERAL.saturating_add(u16::try_from(qp.slot()).unwrap_or(u16::MAX));
        let peer = SocketAddr::new(self.nodes[node].address, port);
        self.set_deadline(from, self.config.handshake_timeout);
        self.send_alone(node, Packet::Connect { from, peer, to, proposal });
        Ok(qp)
    }

    pub(in super::super) fn accept(&mut self, at: End, params: &ConnectionParams<'_>) {
        let mut answer = self.proposal(params);
        let Some(qp) = self.qp(at) else { return };
        match qp.state {
            QueuePairState::Requested => {
                // The Reads we may have outstanding are those that the peer serves, and the reverse.
                qp.ord = qp.ord.min(answer.ord);
                qp.ird = qp.ird.min(answer.ird);
                (answer.ord, answer.ird) = (qp.ord, qp.ird);
                qp.state = QueuePairState::Accepted;
                self.set_deadline(at, self.config.handshake_timeout);
                self.send(at, Message::Accepted(answer));
            }
            QueuePairState::Abandoned => {
                qp.state = QueuePairState::Accepted;
                self.end(at, DisconnectReason::Lost, None);
            }
            _ => {}
        }
    }

    pub(in super::super) fn reject(&mut self, at: End) {
        let Some(qp) = self.qp(at) else { return };
        let peer = qp.peer.filter(|_| qp.state == QueuePairState::Requested);
        if matches!(qp.state, QueuePairState::Requested | QueuePairState::Abandoned) {
            self.nodes[at.node].remove(at.qp);
        }
        if let Some(to) = peer {
            let reason = ConnectError::Rejected;
            self.send_alone(at.node, Packet::Refuse { to, reason });
        }
    }

    pub(in super::super) fn disconnect(&mut self, at: End) {
        let Some(qp) = self.qp(at) else { return };
        match qp.state {
            QueuePairState::Connecting => {
                self.tell_peer(at, Gone::Lost);
                self.fail(at, ConnectError::System(std::io::ErrorKind::ConnectionAborted));
            }
            QueuePairState::Requested | QueuePairState::Abandoned => self.reject(at),
            QueuePairState::Accepted => {
                self.tell_peer(at, Gone::Closed);
                self.end(at, DisconnectReason::Local, None);
            }
            QueuePairState::Established => {
                qp.close();
                self.set_deadline(at, self.config.close_timeout);
                self.settle(at);
            }
            QueuePairState::Closing | QueuePairState::Closed | QueuePairState::Ended => {}
        }
    }

    // Arrivals.

    pub(super) fn on_connect(
        &mut self,
        from: End,
        peer: SocketAddr,
        to: SocketAddr,
        proposal: Proposal,
    ) {
        if self.qp(from).is_none_or(|qp| qp.state != QueuePairState::Connecting) {
            return;
        }
        let Some(node) = self.node(to.ip()) else {
            let reason = ConnectError::Refused;
            let due = self.arrival();
            return self.schedule.push(due, Packet::Refuse { to: from, reason });
        };
        match self.nodes[node].listener(to) {
            Some(listener) => {
                let newcomer = Newcomer { listener, from, peer, proposal };
                self.nodes[node].arrivals.push_back(newcomer);
            }
            None => {
                let reason = ConnectError::Refused;
                self.send_alone(node, Packet::Refuse { to: from, reason });
            }
        }
    }

    pub(super) fn on_accepted(&mut self, at: End, answer: Proposal) {
        let clock = self.clock;
        let Some(qp) = self.qp(at).filter(|qp| qp.state == QueuePairState::Connecting) else {
            return;
        };
        qp.state = QueuePairState::Established;
        qp.deadline = None;
        (qp.ord, qp.ird) = (answer.ird, answer.ord);
        let (ord, ird) = (qp.ord, qp.ird);
        let Proposal { private_data, .. } = answer;
        let event = Event::Established { qp: at.qp, private_data, ord, ird };
        self.nodes[at.node].report(clock, event);
        self.send(at, Message::Ready);
    }

    pub(super) fn on_ready(&mut self, at: End) {
        let clock = self.clock;
        let Some(qp) = self.qp(at).filter(|qp| qp.state == QueuePairState::Accepted) else {
            return;
        };
        qp.state = QueuePairState::Established;
        qp.deadline = None;
        let (ord, ird, private_data) = (qp.ord, qp.ird, Box::default());
        let event = Event::Established { qp: at.qp, private_data, ord, ird };
        self.nodes[at.node].report(clock, event);
        self.pump(at);
    }

    /// The peer has closed. Anything we still had to send is flushed.
    pub(super) fn on_close(&mut self, at: End) {
        self.tell_peer(at, Gone::Closed);
        let has_all = self.qp(at).is_some_and(|qp| qp.has_ended_all());
        self.leave(at, if has_all { DisconnectReason::PeerHasAll } else { DisconnectReason::Peer });
    }

    pub(super) fn on_gone(&mut self, at: End, how: Gone) {
        let Some(qp) = self.qp(at) else { return };
        match (qp.state, how) {
            (QueuePairState::Connecting, _) => {
                self.fail(at, ConnectError::System(std::io::ErrorKind::ConnectionReset));
            }
            (QueuePairState::Requested, _) => qp.state = QueuePairState::Abandoned,
            (_, Gone::Closed) => self.leave(at, DisconnectReason::Peer),
            (_, Gone::Lost) => self.leave(at, DisconnectReason::Lost),
            (_, Gone::Refused { seq, fault, layer, etype, code }) => {
                let reached = qp.complete_before(seq) && fault == Fault::Access;
                self.settle(at);
                let failed = reached.then_some((seq, Status::RemoteAccess));
                self.end(at, DisconnectReason::Terminated { layer, etype, code }, failed);
            }
        }
    }

    pub(super) fn on_deadline(&mut self, at: End) {
        let clock = self.clock;
        let Some(qp) = self.qp(at).filter(|qp| qp.deadline.is_some_and(|d| d <= clock)) else {
            return;
        };
        let state = qp.state;
        self.tell_peer(at, Gone::Lost);
        match state {
            QueuePairState::Connecting => self.fail(at, ConnectError::TimedOut),
            _ => self.leave(at, DisconnectReason::Lost),
        }
    }

    /// Reports that the setup of a connection failed.
    pub(super) fn fail(&mut self, at: End, reason: ConnectError) {
        let clock = self.clock;
        if self.qp(at).is_some_and(|qp| qp.state == QueuePairState::Connecting) {
            let node = &mut self.nodes[at.node];
            node.remove(at.qp);
            node.report(clock, Event::Failed { qp: at.qp, reason });
        }
    }

    /// Ends a connection; if we were closing it, the reason is `Local`.
    fn leave(&mut self, at: End, reason: DisconnectReason) {
        let closing = |qp: &mut QueuePair| {
            matches!(qp.state, QueuePairState::Closing | QueuePairState::Closed)
        };
        let asked = self.qp(at).is_some_and(closing);
        self.end(at, if asked { DisconnectReason::Local } else { reason }, None);
    }

    fn proposal(&self, params: &ConnectionParams<'_>) -> Proposal {
        Proposal {
            private_data: params.private_data.into(),
            ord: params.ord.min(self.config.ord_max),
            ird: params.ird.min(self.config.ird_max),
        }
    }
}
