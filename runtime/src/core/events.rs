//! Takes in the events that the provider reports.

use std::net::SocketAddr;

use haulage_proto::time::Instant;
use haulage_proto::v1::private_data::PrivateData;
use haulage_proto::v2::connection::Role;
use haulage_proto::verbs::QpNum;

use super::common::{Common, Whence};
use super::connection::Link;
use super::inner::Inner;
use super::receives::ReceivedRun;
use super::requester::Direct;
use super::runs::Runs;
use super::trace::Subject;
use super::work::Name;
use super::{dial, tell, transmit, vacancy};
use crate::core::service::Service;
use crate::limits::our_private_data;
use crate::origin::Origin;
use crate::provider::{
    ConnectionAnswer, ConnectionParams, Event, MessageSink as _, Place, Provider, RUN_MAX, Run,
    RunKind,
};
use crate::service::{CallError, Reply};
use crate::sys::complete;

/// The parts of a core that take in the events of a turn.
pub(crate) struct Events<'a, P, S> {
    pub(crate) now: Instant,
    pub(crate) provider: &'a mut P,
    pub(crate) service: &'a mut S,
    pub(crate) inner: &'a mut Inner,
    /// The Reply for Calls that are answered at once.
    pub(crate) reply: &'a mut Option<Reply>,
    /// The reason for turning every newcomer away, if there is one.
    pub(crate) shut: Option<&'static str>,
}

impl<P: Provider, S: Service> Events<'_, P, S> {
    /// Takes in events, in their order. Messages in Receives wait for their turns, but no longer than for the end of their
    /// connection.
    #[inline(never)]
    pub(crate) fn take(&mut self, events: impl Iterator<Item = Event<P::Listener>>) {
        let mut run = ReceivedRun::default();
        for event in events {
            if let Event::Completion(done) = &event
                && let Name::Receive(number) = Name::of(done.id)
            {
                let received = self.inner.common.receives.take(number, done);
                if done.invalidated.is_none() {
                    if let Err(received) = run.add(done.qp, received) {
                        self.queue(&mut run);
                        let first = run.add(done.qp, received);
                        assert!(first.is_ok(), "a run that is empty takes any message");
                    }
                    continue;
                }
                // The proof that a handle is invalid lasts as long as the completion is at hand.
                self.queue(&mut run);
                self.serve_all_of(done.qp);
                let proof = complete::invalidated(done);
                self.inner.on_receive(self.now, done.qp, received, proof);
                continue;
            }
            self.queue(&mut run);
            self.on_event(event);
        }
        self.queue(&mut run);
    }

    /// Has a run wait for its turn, and empties `run`.
    fn queue(&mut self, run: &mut ReceivedRun) {
        let Some(qp) = run.qp else { return };
        let run = std::mem::take(run);
        let Common { connections, receives, arrived, .. } = &mut self.inner.common;
        match connections.get_at(qp) {
            Some((_, connection)) => arrived.push(connection.share.origin(), qp.slot(), run),
            None => run.messages.into_iter().flatten().for_each(|one| receives.give_back(one)),
        }
    }

    /// Handles about `budget` of the messages that wait for their turns. Returns how many.
    #[inline(never)]
    pub(crate) fn serve(&mut self, budget: usize) -> usize {
        let mut served = 0;
        while served < budget
            && let Some(run) = self.inner.common.arrived.pop(|_| true)
        {
            served += run.count;
            self.serve_run(run);
        }
        served
    }

    /// Handles the messages of a queue pair that wait for their turns.
    fn serve_all_of(&mut self, qp: QpNum) {
        if self.inner.common.arrived.has_of(qp.slot()) {
            for run in self.inner.common.arrived.take_all_of(qp.slot()) {
                self.serve_run(run);
            }
        }
    }

    /// Handles messages of one queue pair that lie in Receives.
    fn serve_run(&mut self, mut received: ReceivedRun) {
        let Some(qp) = received.qp else { return };
        let Self { now, provider, service, inner, reply, .. } = self;
        // The connection may have become ready just now, which its service is told before the first Call.
        tell::tell_ready(inner, *service, *now);
        let mut messages = [&[][..]; RUN_MAX];
        let buffers = inner.common.receives.lend();
        for (place, received) in messages.iter_mut().zip(received.messages.iter().flatten()) {
            *place = buffers.bytes(received);
        }
        let messages = messages.get(..received.count).unwrap_or_default();
        let run = Run { octets: messages, kind: RunKind::Whole };
        let mut runs = Runs { inner, service: *service, now: *now, reply, is_in_place: false };
        let taken = runs.messages(qp, &run, &mut Direct::to(*provider, qp));
        inner.common.receives.restore(buffers);
        for (place, at) in received.messages.iter_mut().take(received.count).zip(0..) {
            match place.take() {
                // The run has counted the message already.
                Some(received) if at < taken => inner.common.receives.reuse(&received),
                Some(received) => inner.on_receive(*now, qp, received, None),
                None => {}
            }
        }
    }

    fn on_event(&mut self, event: Event<P::Listener>) {
        match event {
            Event::Completion(done) => self.inner.on_completion(&done),
            Event::Request { qp, peer, process, private_data, place, .. } => {
                self.on_request(qp, (peer, Origin::of(peer, process)), &private_data, place);
            }
            Event::Established { qp, ord, private_data, .. } => {
                if let Some(key) = self.inner.common.connections.at(qp) {
                    self.inner.on_established(self.now, key, ord, &private_data);
                }
            }
            Event::Failed { qp, reason } => {
                if let Some(key) = self.inner.common.connections.at(qp) {
                    self.inner.end(key, CallError::Connect(reason), None);
                }
            }
            Event::Disconnected { qp, reason } => {
                self.serve_all_of(qp);
                if let Some(key) = self.inner.common.connections.at(qp) {
                    self.inner.on_disconnected(key, &reason);
                }
            }
            Event::Quiesced(proof) => {
                self.serve_all_of(proof.qp());
                let found = self.inner.common.connections.get_at(proof.qp());
                let Some((key, connection)) = found else { return };
                if connection.life.is_between() {
                    dial::begin_anew(self.provider, self.inner, self.now, (key, &proof));
                } else {
                    self.inner.on_quiesced(key, &proof);
                }
            }
        }
    }

    /// Answers a peer that wants a connection.
    fn on_request(
        &mut self,
        qp: QpNum,
        (peer, origin): (SocketAddr, Origin),
        theirs: &[u8],
        place: Place,
    ) {
        let Self { now, provider, service, inner, shut, .. } = self;
        let refusal = if shut.is_some() {
            *shut
        } else if !service.admits(peer) {
            Some("the service does not admit the peer")
        } else {
            (!vacancy::make_room(inner, *service, *now, origin)).then_some(NO_ROOM)
        };
        let common = &mut inner.common;
        let admitted = if refusal.is_none() {
            let link = Link { qp, role: Role::Server, peer };
            let directions = inner.responder.accepted.clone();
            let whence = Whence::Accepted { origin, theirs: PrivateData::find(theirs) };
            let auth = common.hosts.clone();
            common.open(link, whence, directions, auth)
        } else {
            None
        };
        let Some(key) = admitted else {
            common.counters.connections_rejected += 1;
            common.trace.rejected(peer, refusal.unwrap_or(NO_ROOM));
            return provider.answer(*now, qp, &ConnectionAnswer::Reject(&[]));
        };
        common.trace.accepted(Subject { conn: &key, peer, role: Role::Server, host: None });
        if let Some(connection) = common.connections.get_mut(key) {
            connection.life.be_active(*now);
            connection.life.take_place(place);
            if service.identifies_peers() {
                connection.identify(provider.peer_user(qp));
            }
        }
        if let Some(limit) = common.limits.idle_timeout {
            common.wake_by(now.saturating_add(limit));
        }
        transmit::provide(*provider, common, key);
        let (_, private_data) = our_private_data(Role::Server, &common.abilities.promises);
        let caps = provider.caps();
        let (ord, ird) = (caps.ord_max, caps.ird_max);
        let params = ConnectionParams { private_data: &private_data, ord, ird };
        provider.answer(*now, qp, &ConnectionAnswer::Accept(params));
    }
}

/// The reason for turning a newcomer away that finds no place.
const NO_ROOM: &str = "there are as many connections as there may be, or as one address may have, and none may give way";
