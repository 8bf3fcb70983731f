//! The second stage of a turn: what the provider reports, and what it means.

use std::fmt::Display;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use haulage_mr_pool::Invalidated;
use haulage_proto::negotiate::{
    self, CloseReason, Connection as Engine, Control, Engine as Spoken, Event as EngineEvent,
    Input, Output, Received, Remembered,
};
use haulage_proto::time::Instant;
use haulage_proto::v1;
use haulage_proto::v1::private_data::{Agreement, PrivateData};
use haulage_proto::v2;
use haulage_proto::v2::connection::Role;
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::verbs::{QpNum, Status};
use haulage_proto::xdr::Writer;

use crate::core::Core;
use crate::core::admission::Origin;
use crate::core::connection::{Change, Connection, State as ConnectionState, Terms};
use crate::core::inbound::{Complete, Message, Outgoing};
use crate::core::inline::Short;
use crate::core::outbound::Direct;
use crate::core::receives::Filled;
use crate::core::state::{ENDED_MAX, State};
use crate::core::table::Key;
use crate::core::templates::Bound;
use crate::core::trace::{Manner, Subject};
use crate::core::work::{Held, Name, Work, Written};
use crate::limits::{RECEIVES_IDLE, our_private_data};
use crate::provider::{
    ConnectionAnswer, ConnectionParams, DisconnectReason, Done, Event, Inlet as _, Provider,
    Quiesced, RUN_MAX, Run, RunKind,
};
use crate::service::{CallError, Ended, Service};
use crate::sys::complete;

impl<P: Provider, S: Service> Core<P, S> {
    /// Takes at most `budget` events from the provider. Returns how much happened: bulk data on its way
    /// counts, though no event tells of it yet.
    pub(crate) fn reap_completions(&mut self, now: Instant, budget: usize) -> usize {
        self.provider.poll(now, budget, &mut self.events);
        let count = self.events.len();
        if count > 0 {
            self.on_events(now);
        }
        let before = self.state.moved.bytes_system;
        self.state.moved = self.provider.counters();
        count + usize::from(before != self.state.moved.bytes_system)
    }

    #[inline(never)]
    fn on_events(&mut self, now: Instant) {
        let mut events = std::mem::take(&mut self.events);
        let mut run = ReceivedRun::default();
        for event in events.drain(..) {
            if let Event::Completion(done) = &event
                && let Name::Receive(number) = Name::of(done.id)
            {
                let received = self.state.receives.take(number, done);
                if done.invalidated.is_none() {
                    if let Err(received) = run.add(done.qp, received) {
                        self.on_received(now, &mut run);
                        let first = run.add(done.qp, received);
                        debug_assert!(first.is_ok(), "a run that is empty takes any message");
                    }
                    continue;
                }
                self.on_received(now, &mut run);
                self.state.on_receive(now, done.qp, received, complete::invalidated(done));
                continue;
            }
            self.on_received(now, &mut run);
            self.on_event(now, event);
        }
        self.on_received(now, &mut run);
        self.events = events;
    }

    /// Acts on messages of one queue pair that lie in Receives, and makes `received` empty.
    fn on_received(&mut self, now: Instant, received: &mut ReceivedRun) {
        let Some(qp) = received.qp.take() else { return };
        // Its connection may have become ready just now.
        self.tell_ready(now);
        let mut messages = [&[][..]; RUN_MAX];
        let buffers = self.state.receives.lend();
        for (place, received) in messages.iter_mut().zip(received.messages.iter().flatten()) {
            *place = buffers.bytes(received);
        }
        let count = std::mem::take(&mut received.count);
        let messages = messages.get(..count).unwrap_or_default();
        let Self { provider, state, service, reply, .. } = self;
        let mut short = Short { state, service, now, reply };
        let run = Run { octets: messages, kind: RunKind::Whole };
        let taken = short.messages(qp, &run, &mut Direct::to(provider, qp));
        self.state.receives.restore(buffers);
        for (place, at) in received.messages.iter_mut().take(count).zip(0..) {
            match place.take() {
                // The run counted it, and what it came to.
                Some(received) if at < taken => self.state.receives.reuse(&received),
                Some(received) => self.state.on_receive(now, qp, received, None),
                None => {}
            }
        }
    }

    fn on_event(&mut self, now: Instant, event: Event<P::Listener>) {
        match event {
            Event::Completion(done) => self.state.on_completion(&done),
            Event::Request { qp, peer, process, private_data, .. } => {
                let origin = Origin::of(peer, process);
                self.on_request(now, (qp, peer, origin), &private_data);
            }
            Event::Established { qp, ord, private_data, .. } => {
                let key = self.state.at(qp);
                // A connection that was closed meanwhile has no use for it.
                let is_up =
                    |key: &_| self.state.connections.get(*key).is_some_and(Connection::is_up);
                if let Some(key) = key.filter(is_up) {
                    self.state.change(key, Change::Established);
                    if let Some(connection) = self.state.connections.get_mut(key) {
                        connection.share.reading_max = ord;
                        connection.heard(&private_data, self.state.solicits);
                    }
                    self.state.drive(now, key, Input::Established);
                }
            }
            Event::Failed { qp, reason } => {
                if let Some(key) = self.state.at(qp) {
                    self.state.end(key, CallError::Connect(reason), None);
                }
            }
            Event::Disconnected { qp, reason } => {
                if let Some(key) = self.state.at(qp) {
                    self.state.vacate(key);
                    self.state.change(key, Change::Gone);
                    if matches!(reason, DisconnectReason::Local | DisconnectReason::Peer)
                        && let Some(connection) = self.state.connections.get_mut(key)
                    {
                        connection.manner = Manner::Ordinary;
                    }
                    self.state.fail(key, CallError::Disconnected(reason.to_string()));
                }
            }
            Event::Quiesced(proof) => {
                if let Some(key) = self.state.at(proof.qp()) {
                    self.state.quiesced(key, &proof);
                }
            }
        }
    }

    /// A peer wants a connection.
    fn on_request(
        &mut self,
        now: Instant,
        (qp, peer, origin): (QpNum, SocketAddr, Origin),
        theirs: &[u8],
    ) {
        let mut admitted = None;
        let refusal = if self.draining {
            Some("the core is shutting down")
        } else if !self.service.admits(peer) {
            Some("the service does not admit the peer")
        } else {
            (!self.make_room(now, origin)).then_some("there is no room")
        };
        if refusal.is_none() {
            let binding = Rc::clone(&self.state.binding);
            let client = (Role::Server, peer, PrivateData::find(theirs));
            admitted = self.state.open((qp, origin), client, &binding);
        }
        if let Some(key) = admitted {
            let subject = Subject { conn: &key, peer, role: Role::Server };
            self.state.trace.accepted(subject);
            if self.service.identifies_peers()
                && let Some(connection) = self.state.connections.get_mut(key)
            {
                connection.user = self.provider.peer_user(qp);
            }
            self.state.begin_idling(now, key);
            self.provide(key);
            let caps = self.provider.caps();
            let (_, private_data) = our_private_data(Role::Server, self.state.solicits);
            let (ord, ird) = (caps.ord_max, caps.ird_max);
            let params = ConnectionParams { private_data: &private_data, ord, ird };
            self.provider.answer(now, qp, &ConnectionAnswer::Accept(params));
        } else {
            self.state.counters.connections_rejected += 1;
            self.state.trace.rejected(peer, refusal.unwrap_or("there is no room"));
            self.provider.answer(now, qp, &ConnectionAnswer::Reject(&[]));
        }
    }
}

/// Messages of one queue pair that lie in Receives, in order of arrival.
#[derive(Debug, Default)]
struct ReceivedRun {
    qp: Option<QpNum>,
    messages: [Option<Filled>; RUN_MAX],
    count: usize,
}

impl ReceivedRun {
    /// Adds a message.
    ///
    /// # Errors
    /// The message comes back if it is of another queue pair than those before, or one too many.
    fn add(&mut self, qp: QpNum, received: Filled) -> Result<(), Filled> {
        let is_behind = self.qp.is_none_or(|of| of == qp);
        match self.messages.get_mut(self.count).filter(|_| is_behind) {
            Some(place) => {
                (*place, self.qp) = (Some(received), Some(qp));
                self.count += 1;
                Ok(())
            }
            None => Err(received),
        }
    }
}

impl State {
    /// Finds the connection of a queue pair.
    fn at(&self, qp: QpNum) -> Option<Key<Connection>> {
        let key = (*self.by_queue_pair.get(qp.slot())?)?;
        self.connections.get(key).filter(|connection| connection.qp == qp).map(|_| key)
    }

    /// A work request ended, other than a Receive.
    fn on_completion(&mut self, done: &Done) {
        match Name::of(done.id) {
            Name::Receive(_) => debug_assert!(false, "a message comes in a run"),
            Name::Work(bits) => {
                let Some(work) = self.work.remove_bits(bits) else { return };
                // The send queue has room again.
                let waiting = self.connections.get(work.connection);
                if waiting.is_some_and(|connection| !connection.queue.is_empty()) {
                    self.touch(work.connection);
                }
                self.on_work(work, done);
            }
            // An unsignaled request only reports failure, and the connection's end says it all.
            Name::Unsignaled => {}
        }
    }

    fn on_work(&mut self, Work { connection: key, held }: Work, done: &Done) {
        match held {
            Held::Send { buffer, written: Written { sources, charge } } => {
                sources.into_iter().for_each(|data| data.complete(done));
                self.discharge(key, charge);
                if let Some(buffer) = complete::source(buffer, done) {
                    self.recycle(buffer);
                }
            }
            Held::Written { data, charge } => {
                self.written -= 1;
                data.complete(done);
                self.discharge(key, charge);
            }
            Held::Read { sink, call } => {
                self.end_reading(key);
                let lease = complete::sink(sink, done);
                if let Some(lease) = lease.filter(|_| done.status == Status::Success) {
                    self.on_fetched(call, lease);
                }
            }
            Held::LocalInv { slot } => {
                if let Some(proof) = complete::invalidated(done) {
                    self.on_fenced(slot, proof);
                }
            }
        }
    }

    /// Takes in a message of any form. `proof` is what its Send invalidated.
    fn on_receive(
        &mut self,
        now: Instant,
        qp: QpNum,
        received: Filled,
        proof: Option<Invalidated<'_>>,
    ) {
        let Some(key) = self.at(qp) else { return self.receives.give_back(received) };
        self.touch(key);
        let buffers = self.receives.lend();
        let message = buffers.bytes(&received);
        let trusted = self.on_message(now, key, message, received, proof);
        self.receives.restore(buffers);
        if !trusted {
            self.close(key, CallError::BadReply("it invalidates a handle that is not its Call's"));
        }
    }

    /// Lets the engine judge a message, and takes it in. `proof` is what its Send invalidated. False if the
    /// connection must go.
    fn on_message(
        &mut self,
        now: Instant,
        key: Key<Connection>,
        message: &[u8],
        received: Filled,
        proof: Option<Invalidated<'_>>,
    ) -> bool {
        let Some(connection) = self.connections.get_mut(key) else {
            self.receives.give_back(received);
            return proof.is_none();
        };
        let (decoded, agreed) = (connection.engine.decode(message), connection.agreed);
        if let Some(fault) = fault_of(&decoded) {
            self.counters.messages_bad += 1;
            self.trace.message_refused(connection.subject(&key), fault);
        }
        let event = match connection.engine.take_whole(now, &decoded) {
            Some(Kind::Call) => Some(EngineEvent::Call),
            Some(Kind::Reply) => Some(EngineEvent::Reply),
            None => self.drive(now, key, Input::Received(&decoded)),
        };
        let payload_at =
            |payload: &[u8]| u32::try_from(message.len() - payload.len()).unwrap_or(u32::MAX);
        match event {
            Some(EngineEvent::Call) => {
                self.note_call(key);
                if let Some(call) = negotiate::Call::of(&decoded, &agreed) {
                    let payload_at = payload_at(call.payload);
                    self.on_call(key, &call, Message { received, payload_at });
                    return proof.is_none();
                }
            }
            Some(EngineEvent::Reply) => {
                if let Some(connection) = self.connections.get_mut(key) {
                    connection.traffic.replies_received += 1;
                }
                if let Some(reply) = negotiate::Reply::of(&decoded) {
                    let payload_at = payload_at(reply.payload);
                    let message = Message { received, payload_at };
                    return self.on_reply((key, reply.xid), &reply.lists, message, proof);
                }
            }
            _ => {}
        }
        self.receives.give_back(received);
        proof.is_none()
    }

    /// Applies one input to a connection's engine and carries out what it asks for. Returns what is to
    /// be done with the message just received.
    pub(crate) fn drive(
        &mut self,
        now: Instant,
        key: Key<Connection>,
        input: Input<'_>,
    ) -> Option<EngineEvent> {
        let connection = self.connections.get_mut(key)?;
        connection.engine.handle(now, input);
        // Once it is ready that is done when the turn's messages leave.
        if connection.state != ConnectionState::Ready {
            self.replenish(key);
        }
        self.carry_out(key)
    }

    /// Carries out what a connection's engine asks for. Returns what is to be done with the message
    /// just received.
    pub(crate) fn carry_out(&mut self, key: Key<Connection>) -> Option<EngineEvent> {
        let mut happened = None;
        while let Some(output) = self.connections.get_mut(key)?.engine.poll() {
            match output {
                Output::Post(control) => {
                    self.send_control(key, &control);
                    self.touch(key);
                }
                Output::Event(EngineEvent::Ready(_)) => {
                    let connection = self.connections.get_mut(key)?;
                    let Connection { engine, role, agreed, .. } = &*connection;
                    connection.terms = Terms::of(engine.engine(), *role, agreed);
                    // It may be by terms that held before.
                    self.planned = None;
                    if connection.state == ConnectionState::Negotiating {
                        connection.change(Change::Opened);
                        connection.was_ready = true;
                        self.peers_ready.push_back(connection.described(key));
                        self.counters.connections_opened += 1;
                        self.trace.ready(connection.subject(&key), &connection.agreed_terms());
                    }
                    // Calls may have been waiting for this.
                    self.touch(key);
                }
                Output::Event(EngineEvent::Refused { xid, error }) => {
                    self.on_refused(key, xid, error);
                }
                Output::Event(event @ (EngineEvent::Call | EngineEvent::Reply)) => {
                    happened = Some(event);
                }
                Output::Event(EngineEvent::One(v1::connection::Event::Malformed { xid })) => {
                    self.on_malformed(key, xid);
                }
                Output::Event(EngineEvent::Two(v2::connection::Event::NotSupported { xid })) => {
                    self.on_not_supported(key, xid);
                }
                Output::Event(EngineEvent::One(_) | EngineEvent::Two(_)) => {
                    debug_assert!(false, "neither continued, extended nor held messages are taken");
                }
                Output::Close(reason) => self.close(key, reason.into()),
            }
        }
        if let Some(deadline) = self.connections.get(key)?.engine.poll_deadline() {
            self.wake_by(deadline);
        }
        happened
    }

    /// A message of version 1 that makes no sense is about a Call of ours, or else it is answered.
    fn on_malformed(&mut self, key: Key<Connection>, xid: u32) {
        let ours = self.fail_call(key, xid, CallError::BadReply("its transport header"));
        let Some(connection) = self.connections.get_mut(key) else { return };
        match connection.engine.engine_mut() {
            Spoken::One(one) if ours => one.ended(),
            _ => connection.engine.refuse(xid, ErrorBody::BadXdr),
        }
    }

    /// Encodes and queues a message without payload.
    fn send_control(&mut self, key: Key<Connection>, control: &Control) {
        // A peer that provokes more of these than there is room for loses its connection.
        let Some(mut buffer) = self.control_buffer() else {
            let reason = "the peer provokes more control messages than there is room for";
            return self.close(key, CallError::Disconnected(reason.into()));
        };
        let Some(connection) = self.connections.get(key) else { return self.recycle(buffer) };
        let mut writer = Writer::new(buffer.bytes_mut());
        let encoded = connection.engine.encode(control, &mut writer);
        debug_assert!(encoded.is_ok(), "a control message fits a send buffer");
        let length = writer.position();
        self.send(key, buffer, 0..length, None, Default::default());
    }

    /// Makes the entry of a new connection; `None` if the core is full. `theirs` is the private data of
    /// a client.
    pub(crate) fn open(
        &mut self,
        (qp, origin): (QpNum, Origin),
        (role, peer, theirs): (Role, SocketAddr, Option<PrivateData>),
        binding: &Rc<Bound>,
    ) -> Option<Key<Connection>> {
        let place = self.by_queue_pair.get(qp.slot())?;
        let is_full = self.occupancy.all() >= self.limits.connections_max;
        if place.is_some() || is_full || !self.connections.has_room() {
            return None;
        }
        self.seed = self.seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let first_xid = (self.seed >> 33) as u32 | 1;
        let config = self.limits.engine(role, first_xid);
        let mut engine = Engine::new(config, Remembered::Nothing).ok()?;
        engine.reserve(RECEIVES_IDLE - engine.reserved());
        let (ours, _) = our_private_data(role, self.solicits);
        let agreed = match role {
            Role::Client => Agreement::new(Some(ours), None),
            Role::Server => Agreement::new(theirs, Some(ours)),
        };
        let engine = (engine, self.receives.admit()?);
        let mut connection = Connection::new((qp, role, peer), engine, agreed, Rc::clone(binding));
        (connection.reserved, connection.origin) = (RECEIVES_IDLE, Some(origin));
        let key = self.connections.insert(connection).ok()?;
        if let Some(place) = self.by_queue_pair.get_mut(qp.slot()) {
            *place = Some(key);
        }
        self.occupancy.enter(origin);
        Some(key)
    }

    /// Applies a change of state to a connection.
    fn change(&mut self, key: Key<Connection>, change: Change) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.change(change);
        }
    }

    /// Notes why a connection goes away; the first reason stands.
    fn fail(&mut self, key: Key<Connection>, reason: CallError) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.failure.get_or_insert(reason);
        }
    }

    /// Starts closing a connection.
    pub(crate) fn close(&mut self, key: Key<Connection>, reason: CallError) {
        self.fail(key, reason);
        if let Some(connection) = self.connections.get_mut(key)
            && connection.state != ConnectionState::Closed
            && connection.state != ConnectionState::Draining
        {
            connection.change(Change::Closing);
            self.closing.push(key);
            self.vacate(key);
        }
    }

    /// The provider holds nothing of a connection any more: everything comes home.
    fn quiesced(&mut self, key: Key<Connection>, proof: &Quiesced) {
        // Requests that were never posted drop their views first.
        if let Some(connection) = self.connections.get_mut(key) {
            connection.queue.clear();
        }
        while let Some(work) = self.work.remove_newest_of(key.slot()) {
            debug_assert!(work.connection == key, "no work request outlives its connection");
            match work.held {
                Held::Send { buffer, written: Written { sources, charge } } => {
                    sources.into_iter().for_each(|data| data.quiesced(proof));
                    self.discharge(key, charge);
                    if let Some(buffer) = complete::source_quiesced(buffer, proof) {
                        self.recycle(buffer);
                    }
                }
                Held::Written { data, charge } => {
                    self.written -= 1;
                    data.quiesced(proof);
                    self.discharge(key, charge);
                }
                Held::Read { sink, .. } => drop(complete::sink_quiesced(sink, proof)),
                Held::LocalInv { .. } => {}
            }
        }
        self.end(key, CallError::Closed, Some(proof));
    }

    /// Removes a connection and tells everyone who waits for it.
    fn end(&mut self, key: Key<Connection>, reason: CallError, proof: Option<&Quiesced>) {
        self.vacate(key);
        let Some(mut connection) = self.connections.remove(key) else { return };
        if let Some(place) = self.by_queue_pair.get_mut(connection.qp.slot()) {
            *place = None;
        }
        self.receives.release(&connection.part, connection.engine.reserved());
        for reply in connection.replies.drain(..) {
            if let Outgoing::Bare(Complete { buffer, .. }) = reply {
                self.recycle(buffer);
            }
        }
        self.drop_calls(key);
        let reason = connection.failure.take().unwrap_or(reason);
        self.trace_end(key, &connection, &reason);
        if connection.was_ready {
            let (peer, why) = (connection.described(key), reason.clone());
            self.peers_gone.push_back(Ended { peer, why });
        }
        self.fail_calls(key, &reason, proof);
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back((key, reason));
    }

    /// Tells operators of the end of a connection.
    fn trace_end(&mut self, key: Key<Connection>, connection: &Connection, reason: &CallError) {
        let subject = connection.subject(&key);
        match reason {
            CallError::Connect(reason) => self.trace.unmade(subject, reason),
            CallError::Closed => {
                self.trace.ended(subject, connection.traffic, (Manner::Ordinary, &"closed by us"));
            }
            _ => self.trace.ended(subject, connection.traffic, (connection.manner, reason)),
        }
    }
}

impl State {
    /// Lets engines notice their deadlines and closes what has stalled.
    pub(crate) fn expire_connections(&mut self, now: Instant) {
        let mut next = self.connections.find(0, |_| true);
        while let Some(key) = next {
            next = self.connections.find(key.slot() + 1, |_| true);
            let Some(connection) = self.connections.get(key) else { continue };
            let stalled = connection.stalled_since;
            if connection.engine.poll_deadline().is_some() {
                self.drive(now, key, Input::Deadline);
            }
            let Some(since) = stalled else { continue };
            let until = since.saturating_add(self.limits.stall_timeout);
            if until <= now {
                self.close(key, CallError::Disconnected("replies found no credit".into()));
            } else {
                self.wake_by(until);
            }
        }
    }

    /// Closes connections that have nothing in flight, and all of them once the drain is overdue.
    pub(crate) fn drain_connections(&mut self, now: Instant) {
        let overdue = self.drain_by.is_some_and(|by| by <= now);
        let busy = self.busy_slots();
        let mut next = self.connections.find(0, |_| true);
        while let Some(key) = next {
            next = self.connections.find(key.slot() + 1, |_| true);
            let owed = self.connections.get(key).map_or(0, |connection| connection.engine.owed());
            let is_busy = owed > 0 || busy.get(key.slot()).copied().unwrap_or(false);
            if overdue || !is_busy {
                self.close(key, CallError::Closed);
            }
        }
        if self.connections.len() > 0 {
            self.wake_by(now.saturating_add(DRAIN_INTERVAL));
        }
    }
}

/// Returns what is wrong with a message, if anything is. That it is of another version is ordinary.
fn fault_of<'a>(message: &'a Received<'_>) -> Option<(Manner, &'a dyn Display)> {
    let (is_of_another_version, fault): (_, &dyn Display) = match message {
        Received::One(Err(fault)) => {
            (matches!(fault.report, Some(v1::error::ErrorBody::Vers { .. })), fault)
        }
        Received::Two(Err(fault)) => (matches!(fault.report, Some(ErrorBody::Vers { .. })), fault),
        Received::One(Ok(_)) | Received::Two(Ok(_)) => return None,
    };
    Some((if is_of_another_version { Manner::Ordinary } else { Manner::Broken }, fault))
}

/// How often a shutdown looks whether connections have become idle.
const DRAIN_INTERVAL: Duration = Duration::from_millis(1);

impl From<CloseReason> for CallError {
    fn from(reason: CloseReason) -> Self {
        Self::Disconnected(reason.to_string())
    }
}
