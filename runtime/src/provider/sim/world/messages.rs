//! The arrival of messages.

use haulage_proto::verbs::{ClaimedSegment, Handle, Status};

use super::super::node::{Arrival, NO_RECEIVE, Node, Refusal, TOO_MANY_READS};
use super::super::queue_pair::Work;
use super::super::schedule::{Body, End, Fault, Gone, Message};
use super::World;
use crate::provider::DisconnectReason;

impl World {
    /// Takes a message in, or keeps it behind one that cannot be taken yet.
    pub(super) fn on_message(&mut self, to: End, message: Message) {
        let Some(qp) = self.qp(to).filter(|qp| qp.is_live()) else {
            return self.reuse(message);
        };
        let first = qp.inbound.is_empty();
        qp.inbound.push_back(message);
        if first {
            self.drain_inbound(to);
        }
    }

    /// Gives the Receives there are to the queue pairs that wait for one, longest waiting first.
    pub(super) fn feed_starved(&mut self, node: usize) {
        while let Some(qp) = self.nodes[node].next_starved() {
            self.drain_inbound(End { node, qp });
        }
    }

    fn drain_inbound(&mut self, to: End) {
        while let Some(message) = self.qp(to).and_then(|qp| qp.inbound.pop_front()) {
            if let Some(message) = self.take(to, message) {
                if let Some(qp) = self.qp(to) {
                    qp.inbound.push_front(message);
                    self.nodes[to.node].starved.push_back(to.qp);
                }
                return;
            }
        }
    }

    /// Carries out one message, or hands back a Send that found no Receive.
    fn take(&mut self, to: End, message: Message) -> Option<Message> {
        match message {
            Message::Accepted(proposal) => self.on_accepted(to, proposal),
            Message::Ready => self.on_ready(to),
            Message::Send { body, invalidate } => return self.on_send(to, body, invalidate),
            Message::Write { body, target } => self.on_write(to, body, target),
            Message::ReadRequest { seq, source } => self.on_read_request(to, seq, source),
            Message::ReadResponse { seq, bytes } => self.on_read_response(to, seq, bytes),
            Message::Close => self.on_close(to),
        }
        None
    }

    fn on_send(&mut self, to: End, body: Body, invalidate: Option<Handle>) -> Option<Message> {
        let clock = self.clock;
        let arrival =
            self.with_body(to, &body, |node, bytes| node.on_send(clock, to.qp, bytes, invalidate));
        let waits = self.config.promises.sends_wait;
        let arrival = match arrival {
            Some(Arrival::NoReceive) if !waits => Some(Arrival::Refused(NO_RECEIVE)),
            other => other,
        };
        if matches!(arrival, Some(Arrival::NoReceive)) {
            return Some(Message::Send { body, invalidate });
        }
        let fault = if invalidate.is_some() { Fault::Access } else { Fault::Request };
        self.answer(to, body.seq(), arrival, fault);
        self.reuse(Message::Send { body, invalidate });
        None
    }

    fn on_write(&mut self, to: End, body: Body, target: ClaimedSegment) {
        let most = self.config.placed_max;
        let arrival = self.with_body(to, &body, |node, bytes| {
            let placed = bytes.get(..most).unwrap_or(bytes);
            node.on_write(to.qp, &target, placed)
        });
        self.answer(to, body.seq(), arrival, Fault::Access);
        self.reuse(Message::Write { body, target });
    }

    fn on_read_request(&mut self, to: End, seq: u64, source: ClaimedSegment) {
        let Some(qp) = self.qp(to) else { return };
        if qp.reads_served >= qp.ird {
            return self.refuse(to, seq, TOO_MANY_READS, Fault::Request);
        }
        qp.reads_served += 1;
        let mut bytes = self.take_spare();
        match self.nodes[to.node].on_read(to.qp, &source, &mut bytes) {
            Arrival::Refused(refusal) => self.refuse(to, seq, refusal, Fault::Access),
            _ => self.send(to, Message::ReadResponse { seq, bytes }),
        }
    }

    fn on_read_response(&mut self, to: End, seq: u64, bytes: Vec<u8>) {
        let peer = self.qp(to).and_then(|qp| qp.peer);
        if let Some(responder) = peer.and_then(|peer| self.qp(peer)) {
            responder.reads_served = responder.reads_served.saturating_sub(1);
        }
        let entry = self.qp(to).and_then(|qp| qp.entry(seq));
        if let Some(Work::Read { sink, .. }) = entry.map(|entry| &mut entry.work) {
            let placed = sink.place(0, &bytes);
            debug_assert!(placed.is_ok(), "lengths were compared when the Read started");
            let counters = &mut self.nodes[to.node].counters;
            counters.tagged_received += bytes.len() as u64;
            counters.tagged_copied += bytes.len() as u64;
            counters.bytes_copied += bytes.len() as u64;
        }
        self.reuse(Message::ReadResponse { seq, bytes });
        self.complete(to, seq, Status::Success);
    }

    /// Reports the outcome of a request to its sender.
    fn answer(&mut self, at: End, seq: u64, arrival: Option<Arrival>, fault: Fault) {
        match arrival {
            Some(Arrival::Refused(refusal)) => self.refuse(at, seq, refusal, fault),
            Some(Arrival::Done) => {
                if let Some(to) = self.qp(at).and_then(|qp| qp.peer) {
                    self.acknowledge(at, to, seq);
                }
            }
            Some(Arrival::NoReceive) | None => {}
        }
    }

    /// Ends a connection because of the peer's request `seq`.
    fn refuse(&mut self, at: End, seq: u64, refusal: Refusal, fault: Fault) {
        let Refusal { rule, layer, etype, code } = refusal;
        self.tell_peer(at, Gone::Refused { seq, fault, layer, etype, code });
        self.end(at, DisconnectReason::PeerMisbehaved(rule), None);
    }

    /// Lends the octets of a body to the node it arrived at, unless its sender is gone.
    fn with_body<R>(
        &mut self,
        to: End,
        body: &Body,
        f: impl FnOnce(&mut Node, &[u8]) -> R,
    ) -> Option<R> {
        let peer = self.qp(to)?.peer?;
        let sender = self.qp(peer).filter(|qp| qp.is_live())?;
        let seq = match body {
            Body::Copied { bytes, .. } => return Some(f(&mut self.nodes[to.node], bytes)),
            Body::Posted { seq } => *seq,
        };
        // The sender may be another queue pair of the same node: its work is set aside meanwhile.
        let work = std::mem::replace(&mut sender.entry(seq)?.work, Work::Nothing);
        let result = match &work {
            Work::Send { payload, .. } | Work::Write { payload, .. } => {
                Some(f(&mut self.nodes[to.node], payload.bytes()))
            }
            _ => None,
        };
        if let Some(entry) = self.qp(peer).and_then(|qp| qp.entry(seq)) {
            entry.work = work;
        }
        result
    }
}
