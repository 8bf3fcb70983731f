//! The life of a connection: the messages that no run takes, the changes of its state, and its end.

use std::fmt::Display;

use haulage_mr_pool::Invalidated;
use haulage_proto::negotiate::{self, Engine, Event as EngineEvent, Input, Output, Received};
use haulage_proto::rtrext::Extension;
use haulage_proto::time::Instant;
use haulage_proto::v1;
use haulage_proto::v2;
use haulage_proto::v2::connection::Role;
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::v2::header::Message as HeaderOf;
use haulage_proto::verbs::{QpNum, Status};

use super::common::Common;
use super::connection::{Attempt, Change, Connection, End};
use super::gathered::payload_of;
use super::inner::Inner;
use super::receives::{Filled, Message};
use super::records;
use super::responder::ArrivedCall;
use super::trace::Manner;
use super::work::{Held, Name, Reader};
use crate::items::Items;
use crate::key::{ConnectionKey, Transport};
use crate::provider::{DisconnectReason, Done, Quiesced};
use crate::service::{CallError, Ended};
use crate::sys::complete;

impl Inner {
    /// Takes in that a connection is established. `ord` RDMA Reads may be under way on it at once. `private_data` came
    /// from the server.
    pub(crate) fn on_established(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        ord: u32,
        private_data: &[u8],
    ) {
        let promises = self.common.abilities.promises;
        // A connection that was closed meanwhile ignores this.
        let connection = self.common.connections.get_mut(key);
        let Some(connection) = connection.filter(|found| found.life.is_up()) else { return };
        connection.life.change(Change::Established);
        connection.share.allow_reads(ord);
        if let Err(why) = connection.heard(private_data, &promises) {
            return self.common.connections.close(key, why);
        }
        self.drive(now, key, Input::Established);
        self.watch(now, key);
    }

    /// Begins to watch a server that may not know version 2.
    fn watch(&mut self, now: Instant, key: ConnectionKey) {
        let setup_timeout = self.common.limits.setup_timeout;
        if let Some(connection) = self.common.connections.get_mut(key) {
            connection.watch(now, setup_timeout);
        }
        self.expire_attempt(now, key);
    }

    /// Takes in that a connection is gone. Work requests that were posted on it may not have come back yet, and a peer
    /// that is stopped may keep them for long. What the peer cannot touch returns at once.
    pub(crate) fn on_disconnected(&mut self, key: ConnectionKey, reason: &DisconnectReason) {
        use DisconnectReason::{Local, Peer, PeerHasAll};
        self.common.connections.charge(key);
        self.common.drop_continued(key);
        let is_serving = self.responder.drop_unread(&mut self.common, key);
        if let Some(connection) = self.common.connections.get_mut(key) {
            let begins_anew = connection.give_up() || connection.life.is_renewing();
            connection.life.change(Change::Gone);
            if begins_anew {
                return;
            }
            if matches!(reason, Local | Peer | PeerHasAll) {
                connection.life.ends_ordinarily();
            }
            // The peer lacks a Reply if one was not posted yet, or if a Call is still being served.
            let owes = connection.outbox.requests() > 0 || is_serving;
            if matches!(reason, PeerHasAll) && !owes {
                connection.life.peer_has_all();
            }
        }
        self.common.connections.fail(key, CallError::Disconnected(reason.to_string()));
    }

    /// Takes in the completion of a work request other than a Receive.
    pub(crate) fn on_completion(&mut self, done: &Done) {
        let bits = match Name::of(done.id) {
            Name::Receive(_) => panic!("a message comes in a run"),
            Name::Work(bits) => bits,
            // The send queue has room again. A failure is reported by the end of the connection as well.
            Name::Part => {
                let key = self.common.connections.at(done.qp);
                return key.into_iter().for_each(|key| self.common.connections.touch(key));
            }
        };
        let Self { responder, requester, common, .. } = self;
        let Some(work) = common.posted.complete(bits, done) else { return };
        let key = work.connection;
        common.leave_work(&work);
        // The send queue has room again.
        if common.connections.get(key).is_some_and(|waiting| waiting.outbox.requests() > 0) {
            common.connections.touch(key);
        }
        match work.held {
            Held::Message { buffer, charge } => {
                common.discharge(key, charge);
                common.take_home(buffer, done);
            }
            Held::CallOnly { buffer, slot } => {
                common.take_home(buffer, done);
                // What did not leave ends with its connection.
                if done.status == Status::Success {
                    requester.calls.end_sent(slot);
                }
            }
            Held::Control(buffer) => common.on_control_left(key, buffer, done),
            Held::Read { sinks, reader } => {
                if let Some(connection) = common.connections.get_mut(key) {
                    common.memory.end_reading(key, &mut connection.share);
                }
                let leases = complete::sinks(sinks, done);
                match (reader, leases.filter(|_| done.status == Status::Success)) {
                    (Reader::Served(call), Some(leases)) => {
                        responder.on_fetched(common, call, leases);
                    }
                    (Reader::Served(call), None) => responder.drop_read(common, call),
                    (Reader::Made(slot), Some(leases)) => {
                        requester.calls.on_read(common, (key, slot), leases);
                    }
                    // Its Call ends with the connection.
                    (Reader::Made(_), None) => {}
                }
            }
            Held::LocalInv { slot } => {
                if let Some(proof) = complete::invalidated(done) {
                    requester.calls.on_fenced(slot, proof);
                }
            }
            Held::Release => {
                if let Some(proof) = complete::invalidated(done) {
                    common.end_held(key, proof);
                }
            }
        }
    }

    /// Takes in that the provider holds nothing of a connection any more: everything comes home.
    pub(crate) fn on_quiesced(&mut self, key: ConnectionKey, proof: &Quiesced) {
        self.bring_home(key, proof);
        self.end(key, CallError::Closed, Some(proof));
    }

    /// Takes back what the provider held for the work requests of a connection.
    pub(crate) fn bring_home(&mut self, key: ConnectionKey, proof: &Quiesced) {
        let common = &mut self.common;
        // Requests that were never posted drop their views first.
        if let Some(connection) = common.connections.get_mut(key) {
            connection.outbox.drop_requests();
        }
        while let Some(held) = common.posted.next_of(key, proof) {
            match held {
                Held::Message { buffer, charge } => {
                    common.discharge(key, charge);
                    let lent = buffer.and_then(|posted| complete::source_quiesced(posted, proof));
                    if let Some(buffer) = lent {
                        common.buffers.recycle(buffer);
                    }
                }
                Held::Control(buffer) | Held::CallOnly { buffer, .. } => {
                    let lent = buffer.and_then(|posted| complete::source_quiesced(posted, proof));
                    if let Some(buffer) = lent {
                        common.buffers.recycle(buffer);
                    }
                }
                Held::Read { sinks, .. } => drop(complete::sinks_quiesced(sinks, proof)),
                Held::LocalInv { .. } | Held::Release => {}
            }
        }
        while let Some(connection) = common.connections.get_mut(key)
            && let Some(charge) = connection.held.quiesce(proof)
        {
            common.discharge(key, charge);
        }
    }

    /// Takes in a message of any form. `proof` names the handle that its Send invalidated.
    pub(crate) fn on_receive(
        &mut self,
        now: Instant,
        qp: QpNum,
        received: Filled,
        proof: Option<Invalidated<'_>>,
    ) {
        let Some(key) = self.common.connections.at(qp) else {
            return self.common.receives.give_back(received);
        };
        self.common.connections.touch(key);
        let buffers = self.common.receives.lend();
        let message = buffers.bytes(&received);
        let trusted = self.on_message(now, key, message, received, proof);
        self.common.receives.restore(buffers);
        if !trusted {
            let why =
                CallError::BadReply("it invalidates a handle that does not belong to its call");
            self.common.connections.close(key, why);
        }
    }

    /// Has the engine judge a message, and takes the message in. `proof` names the handle that its Send invalidated.
    /// Returns false if the connection must be closed.
    fn on_message(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        message: &[u8],
        received: Filled,
        proof: Option<Invalidated<'_>>,
    ) -> bool {
        let Some(connection) = self.common.connections.get_mut(key) else {
            self.common.receives.give_back(received);
            return proof.is_none();
        };
        let decoded = connection.engine.decode(message);
        let event = self.judge(now, key, message, &decoded);
        //~ V2-7.1.1-2: `` -> `let connection = self.common.connections.get(key);
        //~   let is_unsettled = connection.is_some_and(|found| found.engine.version().is_none());
        //~   if let Received::Two(Err(fault)) = &decoded
        //~     && matches!(fault.report, Some(ErrorBody::Vers { .. })) && is_unsettled {
        //~     let mut again = message.to_vec(); again[4..8].copy_from_slice(&v2::VERSION.to_be_bytes());
        //~     return self.on_message(now, key, &again, received, proof);
        //~   }`
        //~ V2-7.1.2-2: `` -> `let (decoded, event) = match decoded {
        //~     Received::Two(Err(fault)) if fault.prefix.is_some_and(|it| it.vers == v1::VERSION) =>
        //~       (Received::One(v1::header::decode(message)), Some(EngineEvent::Call)),
        //~     other => (other, event),
        //~   };`
        //~ V2-7.1.3-2: `` ->
        //~   `if let Received::Two(Err(fault)) = &decoded && fault.report == Some(ErrorBody::InvalHtype) {
        //~     let mut again = message.to_vec();
        //~     again[12..16].copy_from_slice(&v2::header::CALL_INLINE.to_be_bytes());
        //~     return self.on_message(now, key, &again, received, proof);
        //~   }`
        //~ V2-7.2.2-2: `` ->
        //~   `if let Received::Two(Err(fault)) = &decoded && fault.report == Some(ErrorBody::BadPropval) {
        //~     let mut first = message[..32.min(message.len())].to_vec(); first[16..20].copy_from_slice(&[0, 0, 0, 1]);
        //~     return self.on_message(now, key, &first, received, proof);
        //~   }`
        match event {
            Some(EngineEvent::Call) => self.take_call(key, &decoded, message, received),
            Some(EngineEvent::Reply) => {
                return match decoded {
                    Received::Two(Ok(HeaderOf::Extended(_))) => {
                        self.take_response(key, message, received, proof)
                    }
                    _ => self.take_reply(key, &decoded, received, proof),
                };
            }
            _ => self.common.receives.give_back(received),
        }
        proof.is_none()
    }

    /// Has the engine judge a message, and keeps the octets of a part. Returns what the message is.
    fn judge(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        message: &[u8],
        decoded: &Received<'_>,
    ) -> Option<EngineEvent> {
        let connection = self.common.connections.get_mut(key)?;
        if let Some(fault) = fault_of(decoded) {
            self.common.counters.messages_bad += 1;
            self.common.trace.message_refused(connection.subject(&key), fault);
        }
        let event = match connection.engine.take_whole(decoded) {
            Some(Kind::Call) => Some(EngineEvent::Call),
            Some(Kind::Reply) => Some(EngineEvent::Reply),
            None => self.drive(now, key, Input::Received(decoded)),
        };
        if let (Some(_), Received::Two(Ok(HeaderOf::Extended(_)))) = (&event, decoded) {
            self.common.end_group(now, key);
        }
        if let Some(connection) = self.common.connections.get_mut(key) {
            connection.continued.fill(message);
            if connection.life.is_ready() {
                connection.attempt.hear(connection.engine.version());
            }
            if event.is_none() && !connection.engine.is_continued() {
                // It was broken off, if one was under way.
                self.common.drop_continued(key);
            }
        }
        event
    }

    /// Takes in a Call, or the last part of one.
    fn take_call(
        &mut self,
        key: ConnectionKey,
        decoded: &Received<'_>,
        message: &[u8],
        received: Filled,
    ) {
        let (gathered, charge) = self.common.take_continued(key).unzip();
        let charge = charge.unwrap_or_default();
        let call = self.common.connections.get_mut(key).and_then(|connection| {
            connection.life.count(Kind::Call, 1);
            // A Call on a connection that is being closed is lost with it: a refusal would say that the Call is at
            // fault.
            let is_up = connection.life.is_up();
            let (engine, agreed) = (connection.engine.engine(), connection.session.agreed());
            let call = ArrivedCall::of(decoded, (message, gathered.as_ref()), engine, agreed);
            if let Engine::Two(two) = connection.engine.engine_mut() {
                two.release();
            }
            call.filter(|_| is_up)
        });
        if let Some(call) = call {
            let message = Message::new(received, call.payload_at.clone(), gathered);
            self.responder.on_call(&mut self.common, key, call, message, charge);
        } else {
            self.common.discharge(key, charge);
            self.common.receives.give_back(received);
        }
    }

    /// Takes in a Reply, or the last part of one. Returns false if the connection must be closed.
    fn take_reply(
        &mut self,
        key: ConnectionKey,
        decoded: &Received<'_>,
        received: Filled,
        proof: Option<Invalidated<'_>>,
    ) -> bool {
        let Self { requester, common, .. } = self;
        let reply = negotiate::Reply::of(decoded);
        if let Some(connection) = common.connections.get_mut(key) {
            connection.life.count(Kind::Reply, 1);
            if let Some(reply) = &reply {
                requester.calls.end_at(connection, key, reply.xid);
            }
        }
        // From here on it is memory of our Call.
        let (gathered, charge) = common.take_continued(key).unzip();
        common.discharge(key, charge.unwrap_or_default());
        let Some(reply) = reply else {
            common.receives.give_back(received);
            return proof.is_none();
        };
        let place = received.end_of(reply.payload);
        let message = Message::new(received, place, gathered);
        if reply.lists.reads || reply.padding.is_some() {
            return requester.calls.on_reply_of_5666(common, key, &reply, message, proof);
        }
        requester.calls.on_reply(common, key, reply.xid, &reply.lists, message, proof)
    }

    /// Takes in a Reply in transmissions, of which the last has arrived. Returns false if the connection must be closed.
    #[cold]
    fn take_response(
        &mut self,
        key: ConnectionKey,
        message: &[u8],
        received: Filled,
        proof: Option<Invalidated<'_>>,
    ) -> bool {
        let Self { requester, common, .. } = self;
        let (gathered, charge) = common.take_continued(key).unzip();
        let Common { connections, pool, .. } = common;
        let taken = connections.get(key).and_then(|connection| {
            let Engine::Two(two) = connection.engine.engine() else { return None };
            let whole = two.extension().and_then(Extension::whole)?;
            let octets = gathered.as_ref().map_or(message, |gathered| gathered.octets.bytes());
            let arrived = (octets, gathered.as_ref());
            let taken = requester.calls.take_items((key, connection), &whole, arrived, pool);
            Some((whole.xid, payload_of(&whole), taken))
        });
        if let Some(connection) = connections.get_mut(key) {
            connection.life.count(Kind::Reply, 1);
            if let Engine::Two(two) = connection.engine.engine_mut() {
                two.release();
            }
        }
        common.discharge(key, charge.unwrap_or_default());
        let Some((xid, payload, taken)) = taken else {
            common.receives.give_back(received);
            return proof.is_none();
        };
        let message = Message::new(received, payload, gathered);
        let lengths = taken.as_ref().map(Items::as_slice).unwrap_or_default();
        common.counters.results_along += lengths.len() as u64;
        common.counters.bytes_along += lengths.iter().sum::<usize>() as u64;
        requester.calls.on_answer(common, (key, xid), message, proof, |_| taken.map(drop))
    }

    /// Applies one input to a connection's engine and carries out what it asks for. Returns the event of the message
    /// just received, if there is one.
    pub(crate) fn drive(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        input: Input<'_>,
    ) -> Option<EngineEvent> {
        let connection = self.common.connections.get_mut(key)?;
        connection.engine.handle(now, input);
        // A connection that is ready is replenished when the turn's messages leave.
        if !connection.life.is_ready() {
            self.common.replenish(key);
        }
        self.carry_out(now, key)
    }

    /// Carries out what a connection's engine asks for. Returns the event of the message just received, if there is
    /// one.
    pub(crate) fn carry_out(&mut self, now: Instant, key: ConnectionKey) -> Option<EngineEvent> {
        let mut happened = None;
        while let Some(output) = self.common.next_output(key) {
            match output {
                Output::Post(control) => {
                    self.common.send_control(key, &control);
                }
                Output::Event(EngineEvent::Ready(_)) => {
                    // Plans stored earlier may follow other terms than those now agreed.
                    self.requester.forget_plans();
                    self.common.on_ready(key)?;
                }
                Output::Event(EngineEvent::Refused { xid, error }) => {
                    let connection = self.common.connections.get_mut(key)?;
                    self.requester.calls.end_at(connection, key, xid);
                    self.requester.on_refused(&mut self.common, key, xid, error);
                }
                // Once told that the Call has ended, the engine closes the connection with the reason.
                Output::Event(EngineEvent::One(v1::connection::Event::Unsupported { xid })) => {
                    let connection = self.common.connections.get_mut(key)?;
                    self.requester.calls.end_at(connection, key, xid);
                }
                Output::Event(event @ (EngineEvent::Call | EngineEvent::Reply)) => {
                    happened = Some(event);
                }
                Output::Event(EngineEvent::One(v1::connection::Event::Malformed { xid })) => {
                    self.on_malformed(key, xid);
                }
                Output::Event(EngineEvent::Two(v2::connection::Event::Part(part))) => {
                    let is_call = part.kind == Kind::Call;
                    if is_call || self.requester.calls.awaits(key, part.xid) {
                        self.common.on_part(now, key, &part);
                    } else {
                        self.common.give_up_continued(key);
                    }
                }
                // Its memory goes home with the message that broke it off.
                Output::Event(EngineEvent::Two(v2::connection::Event::Abandoned { .. })) => {}
                Output::Event(EngineEvent::Two(v2::connection::Event::NotSupported { xid })) => {
                    self.requester.on_not_supported(&mut self.common, key, xid);
                }
                Output::Event(EngineEvent::One(v1::connection::Event::Released {
                    xid, ..
                })) => {
                    self.common.release_held(key, xid);
                }
                Output::Event(EngineEvent::Two(v2::connection::Event::Reported(report))) => {
                    self.requester.on_reported(&mut self.common, key, &report);
                }
                Output::Event(EngineEvent::Two(v2::connection::Event::Transmission(sent))) => {
                    self.common.on_transmission(now, key, &sent);
                }
                Output::Event(EngineEvent::One(_) | EngineEvent::Two(_)) => {
                    panic!("the events of both versions are told as events of neither");
                }
                Output::Close(reason) => self.common.close_as_engine_says(key, reason),
            }
        }
        if let Some(deadline) = self.common.connections.get(key)?.engine.poll_deadline() {
            self.common.wake_by(deadline);
        }
        happened
    }

    /// Takes in a malformed message of version 1: fails the Call of ours with its XID, or else answers with an error.
    fn on_malformed(&mut self, key: ConnectionKey, xid: u32) {
        let calls = &mut self.requester.calls;
        let Some(connection) = self.common.connections.get_mut(key) else { return };
        if calls.end_at(connection, key, xid) {
            let why = CallError::BadReply("its transport header is malformed");
            calls.fail_call(&mut self.common, key, xid, why);
        } else {
            connection.engine.refuse(xid, ErrorBody::BadXdr);
        }
    }

    /// Removes a connection, and ends everything that waits for it.
    pub(crate) fn end(&mut self, key: ConnectionKey, reason: CallError, proof: Option<&Quiesced>) {
        let Self { responder, requester, common, .. } = self;
        common.drop_continued(key);
        let Some(mut connection) = common.connections.remove(key) else { return };
        connection.release(&mut common.receives);
        common.memory.leave(&connection.share);
        responder.drop_calls(common, key);
        let trace = &mut common.trace;
        let peer = connection.described(key);
        let is_unheard = connection.role() == Role::Client && !connection.life.has_replied();
        let (server, attempt) = (connection.peer(), connection.attempt);
        let End { reason, manner, traffic, was_ready, has_all } = connection.life.end(reason);
        let subject = connection.subject(&key);
        if is_unheard && reason != CallError::Closed {
            match attempt {
                // E30: the next connection need not be told the same.
                Attempt::Refused => common.old_servers.remember(trace.now(), server),
                // It may have been taken for a server of version 1 because it was slow.
                _ => common.old_servers.forget(server),
            }
        }
        let mut manner = manner;
        if matches!(reason, CallError::Host(_)) {
            common.counters.hosts_refused += 1;
            // A refusal is a warning in the log of a server, although this end closed the connection.
            manner = Manner::Broken;
        }
        match &reason {
            CallError::Connect(reason) => trace.unmade(subject, reason),
            CallError::Closed => {
                trace.ended(subject, traffic, (Manner::Ordinary, &"closed by us"));
            }
            _ => trace.ended(subject, traffic, (manner, &reason)),
        }
        if was_ready {
            let why = reason.clone();
            common.connections.gone.push_back(Ended { peer, why, has_all });
        }
        requester.calls.fail_calls(common, key, &reason, proof);
        common.connections.note_end(key, reason);
    }

    /// Has engines act on their deadlines, and closes connections that have stalled, over RDMA and TCP.
    pub(crate) fn expire_connections(&mut self, now: Instant) {
        let mut next = self.from(0);
        while let Some(key) = next {
            next = self.from(key.slot() + 1);
            match key.transport() {
                Transport::Rdma => self.expire_connection(now, key),
                Transport::Tcp => records::expire(self, now, key),
            }
        }
        if let Some(again) = self.common.streams.accepts_again() {
            self.common.wake_by(again);
        }
    }

    /// Closes the connections to hosts that are not known any more.
    pub(crate) fn judge_hosts(&mut self) {
        let connections = &mut self.common.connections;
        let mut next = connections.from(0);
        while let Some(key) = next {
            next = connections.from(key.slot() + 1);
            if let Some(refusal) = connections.get_mut(key).and_then(Connection::judge_host) {
                connections.close(key, CallError::Host(refusal));
            }
        }
    }

    fn expire_connection(&mut self, now: Instant, key: ConnectionKey) {
        let Some(connection) = self.common.connections.get(key) else { return };
        let check_at = connection.outbox.check_at();
        self.expire_attempt(now, key);
        let Some(connection) = self.common.connections.get(key) else { return };
        if let Some(deadline) = connection.engine.poll_deadline() {
            self.drive(now, key, Input::Deadline);
            if deadline <= now {
                // What waited for credits is asked about anew.
                self.common.connections.get_touched(key);
            }
        }
        match check_at {
            Some(at) if at <= now => self.common.check_replies(now, key),
            Some(at) => self.common.wake_by(at),
            None => {}
        }
        if self.common.expire_continued(now, key) {
            // The engine says which Call ends because the rest of its Reply did not come.
            self.carry_out(now, key);
        }
    }
}

/// Returns the fault of a message that could not be decoded. A message of another version is ordinary.
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
