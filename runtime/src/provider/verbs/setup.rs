//! Connection setup, and all other events of the connection manager.

use std::io;
use std::sync::Arc;

use haulage_proto::time::Instant;
use haulage_proto::verbs::QpNum;

use super::connection::{Connection, Incoming, MISBEHAVED, Objects, Phase};
use super::domains::{ConnectionDomain, Prepared};
use super::ending::NUDGE_AFTER;
use super::names::{LISTENER, ListenerId, token};
use super::proposal::Proposal;
use super::state::Verbs;
use crate::provider::{Caps, ConnectError, ConnectionParams, DisconnectReason, Event, Place};
use crate::sys::ibverbs::{
    ArrivingId, CmEvent, CmEventKind, CmId, Fault, Parameters, PeerParameters, QueuePair, Refused,
};

impl Verbs {
    /// Takes the events of the connection manager.
    pub(super) fn take_connection_events(&mut self, now: Instant) {
        self.counters.syscalls += 1;
        for fault in self.manager.faults(now) {
            // Faults of other cores' queue pairs come here, too.
            for qp in self.slots.all().collect::<Vec<_>>() {
                self.on_fault(now, qp, &fault);
            }
        }
        for _ in 0..EVENTS_PER_TURN {
            let Some(event) = self.manager.next() else { return };
            self.counters.syscalls += 1;
            self.on_connection_event(now, event);
        }
        self.manager.ask_at(now);
    }

    /// Ends a connection that a fault concerns.
    fn on_fault(&mut self, now: Instant, qp: QpNum, fault: &Fault) {
        let Some(connection) = self.slots.get(qp) else { return };
        match fault {
            Fault::Device => self.end(now, qp, DisconnectReason::Lost),
            Fault::Port => {
                let port = connection.id().and_then(|id| id.port());
                if port.is_some_and(|port| !self.manager.device().is_active(port)) {
                    self.end(now, qp, DisconnectReason::Lost);
                }
            }
            Fault::QueuePair { .. } | Fault::Missed => {
                if connection.pair().is_some_and(|pair| pair.is(fault)) {
                    self.reap(now, usize::MAX);
                    self.end(now, qp, MISBEHAVED);
                }
            }
        }
    }

    fn on_connection_event(&mut self, now: Instant, event: CmEvent) {
        if event.token & LISTENER != 0 {
            let listener = ListenerId(event.token & !LISTENER);
            match event.kind {
                CmEventKind::Request { id, asked } => self.on_arrival(listener, id, asked),
                _ => self.on_peer_gone(event.about),
            }
            return;
        }
        // A slot is used again only after its id is gone, and the id's events with it.
        let Some(qp) = self.slots.at(event.token) else { return };
        match event.kind {
            CmEventKind::AddressResolved => self.on_address(qp),
            CmEventKind::RouteResolved => self.find_domain(now, qp),
            CmEventKind::Established(answer) => self.on_established(now, qp, Some(&answer)),
            CmEventKind::Rejected(status) => self.set_up_failed(now, qp, refusal(status)),
            CmEventKind::Failed(error) => self.set_up_failed(now, qp, failure(&error)),
            CmEventKind::Disconnected => self.on_disconnected(now, qp),
            CmEventKind::DeviceRemoved => self.end(now, qp, DisconnectReason::Lost),
            CmEventKind::Request { .. } | CmEventKind::Other => {}
        }
    }

    fn on_arrival(&mut self, listener: ListenerId, id: ArrivingId, asked: PeerParameters) {
        // A request by another device is refused by dropping it.
        let Some(peer) = id.peer().filter(|_| id.is_on(self.manager.device())) else {
            self.counters.newcomers.accepts.other += 1;
            return;
        };
        self.listening.arrive(Incoming { listener, id, peer, asked });
    }

    /// Drops the peer whose id an event is about, if it was not taken from its listener yet.
    fn on_peer_gone(&mut self, about: usize) {
        self.counters.newcomers.closed += self.listening.drop_peer(about);
    }

    /// Takes the next peer from a listener. Those of listeners that are gone are refused.
    pub(super) fn next_arrival(&mut self) -> Option<Incoming> {
        self.listening.next(&mut self.counters.newcomers.accepts.other)
    }

    /// Takes in a peer, whose request has come with it.
    pub(super) fn welcome(
        &mut self,
        now: Instant,
        incoming: Incoming,
        place: Place,
    ) -> Result<(), (Incoming, Place)> {
        if self.slots.is_full() {
            self.counters.newcomers.crowded_out += 1;
            return Err((incoming, place));
        }
        let Incoming { listener, id, peer, asked } = incoming;
        let Ok(mut id) = id.adopt(self.manager.channel()) else {
            self.counters.newcomers.accepts.other += 1;
            return Ok(());
        };
        let PeerParameters { ord, ird, private_data } = asked;
        let proposal = Proposal::of_peer(ord, ird);
        let connection = Connection::new(Phase::Requested, now, proposal);
        let Some(qp) = self.slots.insert(|_| connection) else { return Ok(()) };
        id.name(token(qp));
        if let Some(connection) = self.slots.get(qp) {
            connection.objects = Objects::Id(id);
        }
        let process = None;
        let request = Event::Request { listener, qp, peer, process, private_data, place };
        self.reports.push_back(request);
        Ok(())
    }

    fn on_address(&mut self, qp: QpNum) {
        let (device, limit) = (self.manager.device().clone(), self.config.handshake_timeout);
        let Some(connection) = self.slots.get(qp) else { return };
        connection.proposal.found();
        let Some(id) = connection.id() else { return };
        let resolved = if id.is_on(&device) {
            id.resolve_route(limit).map_err(|refused| failure(&refused.error))
        } else {
            // The address leads to another device, with which our memory is not registered.
            Err(ConnectError::System(io::ErrorKind::NetworkUnreachable))
        };
        if let Err(reason) = resolved {
            self.failed(qp, reason);
        }
    }

    /// Finds a domain for a connection that is being set up, which continues once it has one.
    fn find_domain(&mut self, now: Instant, qp: QpNum) {
        if !self.registrations.need_domains() || self.is_domain_free() {
            return self.on_domain(now, qp, Ok(self.memory.first_domain()));
        }
        if let Err(refused) = self.memory.prepare(self.manager.device(), qp) {
            self.on_domain(now, qp, Err(refused));
        }
    }

    /// Continues with connections whose domains are ready.
    pub(super) fn take_domains(&mut self, now: Instant) {
        while let Some(Prepared { qp, octets, made }) = self.memory.next() {
            let waits = self.slots.peek(qp).filter(|c| matches!(c.objects, Objects::Id(_)));
            match (waits.map(|connection| connection.phase()), made) {
                (Some(Phase::Resolving | Phase::Accepting), Ok((domain, registered))) => {
                    let both = self.memory.regions().iter().zip(registered);
                    let regions = both.map(|(region, again)| region.again(again)).collect();
                    self.on_domain(now, qp, Ok(ConnectionDomain { domain, regions }));
                }
                (Some(Phase::Resolving), Err(refused))
                    if refused.error.kind() == io::ErrorKind::OutOfMemory =>
                {
                    self.failed(qp, ConnectError::Memory(octets));
                }
                (Some(Phase::Resolving | Phase::Accepting), Err(refused)) => {
                    self.on_domain(now, qp, Err(refused));
                }
                // The connection was given up.
                (_, Ok((_, registered))) => self.memory.deregister(registered),
                (_, Err(_)) => {}
            }
        }
    }

    /// Returns whether no connection uses the domain in which our memory was registered at first.
    fn is_domain_free(&self) -> bool {
        let mut domains = self.slots.all().filter_map(|qp| self.slots.peek(qp)?.domain());
        !domains.any(|domain| Arc::ptr_eq(domain, self.memory.domains().first()))
    }

    /// Continues with a connection that has a domain, or can have none.
    fn on_domain(&mut self, now: Instant, qp: QpNum, domain: Result<ConnectionDomain, Refused>) {
        let made = domain.and_then(|domain| self.make_queue_pair(qp, domain));
        match self.slots.peek(qp).map(|connection| connection.phase()) {
            Some(Phase::Resolving) => self.ask_peer(now, qp, made),
            Some(Phase::Accepting) => self.answer_peer(now, qp, made),
            _ => {}
        }
    }

    /// Sends the request to a peer whose route is known.
    fn ask_peer(&mut self, now: Instant, qp: QpNum, made: Result<(), Refused>) {
        let Some(connection) = self.slots.get(qp) else { return };
        connection.enter(Phase::Connecting);
        connection.proposal.ask();
        if let Err(refused) = made.and_then(|()| self.tell_peer(qp, CmId::connect)) {
            self.set_up_failed(now, qp, failure(&refused.error));
        }
    }

    /// Accepts a peer.
    pub(super) fn accept_request(
        &mut self,
        now: Instant,
        qp: QpNum,
        params: &ConnectionParams<'_>,
    ) {
        let deadline = now.saturating_add(self.config.handshake_timeout);
        let Some(connection) = self.slots.get(qp).filter(|c| c.phase() == Phase::Requested) else {
            return;
        };
        // The numbers of Reads that the peer asked for are lowered to those that the core and the device take.
        connection.proposal.answer(reads(params, &self.caps), params.private_data);
        connection.enter(Phase::Accepting);
        connection.wait_until(deadline);
        self.pending.push(qp);
        self.find_domain(now, qp);
    }

    /// Rejects a peer.
    pub(super) fn reject_request(&mut self, qp: QpNum, private_data: &[u8]) {
        let Some(connection) = self.slots.get(qp).filter(|c| c.phase() == Phase::Requested) else {
            return;
        };
        if let Some(id) = connection.id() {
            // `reject` fails if the peer is gone, which does no harm.
            let _ = id.reject(private_data);
        }
        self.forget(qp);
    }

    fn answer_peer(&mut self, now: Instant, qp: QpNum, made: Result<(), Refused>) {
        let accepted = made.and_then(|()| self.tell_peer(qp, CmId::accept));
        let pair = self.slots.get(qp).and_then(Connection::pair);
        if let (Ok(()), Some(pair)) = (&accepted, pair) {
            pair.set_no_receive_timer(self.config.no_receive_timer);
        } else {
            self.end(now, qp, DisconnectReason::Lost);
        }
    }

    /// Sends the connection's parameters to the peer by `say`.
    fn tell_peer(
        &mut self,
        qp: QpNum,
        say: fn(&mut CmId, &Parameters<'_>) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let (retries, retries_no_receive) = (self.config.retries, self.config.retries_no_receive);
        let Some(connection) = self.slots.get(qp) else { return Ok(()) };
        let (ord, ird) = connection.proposal.reads();
        // The connection keeps the private data, which may have to be sent again.
        let kept = connection.proposal.take_private_data();
        let told = Parameters { private_data: &kept, ird, ord, retries, retries_no_receive };
        let result = connection.id().map_or(Ok(()), |id| say(id, &told));
        connection.proposal.keep_private_data(kept);
        result
    }

    /// Makes the queue pair of a connection.
    fn make_queue_pair(&mut self, qp: QpNum, domain: ConnectionDomain) -> Result<(), Refused> {
        let ConnectionDomain { domain, regions } = domain;
        let Some(connection) = self.slots.get(qp) else { return Ok(()) };
        let id = match std::mem::replace(&mut connection.objects, Objects::Nothing) {
            Objects::Id(id) => id,
            other => {
                connection.objects = other;
                return Ok(());
            }
        };
        let made = QueuePair::new(id, &domain, &self.queue, self.receives.shared(), self.limits);
        match made {
            Ok(pair) => {
                self.numbers.add(pair.number(), qp);
                connection.objects = Objects::Pair(pair);
                connection.regions = regions;
                // Deal the reserved Receives before the peer can send.
                self.receives.deal(&mut self.slots, self.memory.regions());
                Ok(())
            }
            Err((id, refused)) => {
                connection.objects = Objects::Id(id);
                Err(refused)
            }
        }
    }

    /// Marks a connection as established: on the manager's event, which has the peer's `answer`, or, at the passive
    /// end, on the peer's first message.
    pub(super) fn on_established(
        &mut self,
        now: Instant,
        qp: QpNum,
        answer: Option<&PeerParameters>,
    ) {
        let timer = self.config.no_receive_timer;
        let Some(connection) = self.slots.get(qp) else { return };
        let mut private_data = Box::default();
        match (connection.phase(), answer) {
            (Phase::Connecting, Some(answer)) => {
                connection.proposal.granted(answer);
                private_data = answer.private_data.clone();
                if let Some(pair) = connection.pair() {
                    pair.set_no_receive_timer(timer);
                }
            }
            (Phase::Accepting, _) => {}
            _ => return,
        }
        // The connection stays pending until its peer has sent something, or was sent a keepalive.
        if self.limits.is_iwarp && connection.phase() == Phase::Connecting {
            connection.inbound.expect_first();
        } else {
            connection.inbound.hear();
        }
        connection.wait_until(now.saturating_add(NUDGE_AFTER));
        connection.enter(Phase::Established);
        connection.proposal.take_private_data();
        let (ord, ird) = connection.proposal.reads();
        let (ord, ird) = (u32::from(ord), u32::from(ird));
        let early = connection.inbound.take_kept();
        self.reports.push_back(Event::Established { qp, private_data, ord, ird });
        for polled in early {
            self.on_completion(now, &polled);
        }
    }

    fn on_disconnected(&mut self, now: Instant, qp: QpNum) {
        // Messages that the peer sent before it left have arrived; they are reported first.
        self.reap(now, usize::MAX);
        let connection = self.slots.get(qp);
        // The device ends a Send once the peer's has acknowledged it.
        let has_all = connection.as_ref().is_some_and(|c| c.is_idle() && !c.outbound.has_chained());
        let reason = match connection.and_then(Connection::pair) {
            // A failure of our own requests would have ended the connection by now: the peer caused this one.
            Some(pair) if pair.has_failed() => MISBEHAVED,
            Some(_) if has_all => DisconnectReason::PeerHasAll,
            _ => DisconnectReason::Peer,
        };
        self.end(now, qp, reason);
    }

    fn set_up_failed(&mut self, now: Instant, qp: QpNum, reason: ConnectError) {
        if reason == ConnectError::TimedOut && self.resolve_again(qp) {
            return;
        }
        let asks = self.slots.peek(qp).is_some_and(|connection| connection.may_ask_again(&reason));
        if asks && self.begin_again(now, qp).is_ok() {
            return;
        }
        match self.slots.get(qp).map(|connection| connection.phase()) {
            Some(Phase::Resolving | Phase::Connecting) => self.failed(qp, reason),
            // The peer gave up meanwhile; the core learns this when it has answered.
            Some(Phase::Requested | Phase::Gone) | None => {}
            Some(_) => self.end(now, qp, DisconnectReason::Lost),
        }
    }

    /// Resolves the route to the peer once more: the kernel forgets a resolution that it began while its link came up.
    /// The deadline of the setup bounds this.
    fn resolve_again(&mut self, qp: QpNum) -> bool {
        let source = self.config.source;
        let Some(connection) = self.slots.get(qp) else { return false };
        let Some(to) = connection.proposal.to().filter(|_| connection.phase() == Phase::Resolving)
        else {
            return false;
        };
        connection.id().is_some_and(|id| id.resolve(source, to, RESOLVE_AGAIN).is_ok())
    }
}

impl Verbs {
    /// Starts to connect again, with another id, which has another port of ours. The deadline of the setup stays.
    fn begin_again(&mut self, now: Instant, qp: QpNum) -> Result<(), Refused> {
        let gone = || Refused::of("connecting", io::ErrorKind::NotConnected.into());
        let connection = self.slots.get(qp).ok_or_else(gone)?;
        let to = connection.id().and_then(|id| id.peer()).ok_or_else(gone)?;
        let objects = std::mem::replace(&mut connection.objects, Objects::Nothing);
        let regions = std::mem::take(&mut connection.regions);
        if let Objects::Pair(pair) = objects {
            self.numbers.remove(pair.number());
            // Nothing can have been posted to its send queue.
            let left: Vec<_> = pair.destroy(drop).collect();
            // Completions that the device reported for its Receives must not count for the next queue.
            self.reap(now, usize::MAX);
            self.receives.kept(qp, left);
        }
        self.memory.let_go(regions);
        let mut id = CmId::new(self.manager.channel(), token(qp))?;
        id.resolve(self.config.source, to, RESOLVE_AGAIN)?;
        let connection = self.slots.get(qp).ok_or_else(gone)?;
        connection.objects = Objects::Id(id);
        connection.proposal.find_again(to);
        connection.enter(Phase::Resolving);
        connection.inbound.begin_again();
        Ok(())
    }
}

/// Returns the numbers of Reads to ask for, or to take: to be outstanding, and to be served.
pub(super) fn reads(params: &ConnectionParams<'_>, caps: &Caps) -> (u8, u8) {
    let count = |wanted: u32, max: u32| u8::try_from(wanted.min(max)).unwrap_or(u8::MAX);
    (count(params.ord, caps.ord_max), count(params.ird, caps.ird_max))
}

/// Translates a rejection: InfiniBand's reason, or an iWARP device's error.
const fn refusal(status: i32) -> ConnectError {
    match status {
        NO_LISTENER | NO_PORT => ConnectError::Refused,
        status if status == -libc::ECONNREFUSED => ConnectError::Refused,
        _ => ConnectError::Rejected,
    }
}

pub(super) fn failure(error: &io::Error) -> ConnectError {
    match error.kind() {
        io::ErrorKind::TimedOut => ConnectError::TimedOut,
        io::ErrorKind::ConnectionRefused => ConnectError::Refused,
        kind => ConnectError::System(kind),
    }
}

// Reject reasons of the InfiniBand architecture, volume 1, table 103.
const NO_LISTENER: i32 = 8;
const NO_PORT: i32 = 1;

const EVENTS_PER_TURN: usize = 64;
/// The time after which an address is resolved again.
pub(super) const RESOLVE_AGAIN: std::time::Duration = std::time::Duration::from_millis(500);
