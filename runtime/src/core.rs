//! One core: one thread, one provider, one service, run to completion.
//!
//! # Normal operation
//! A core owns everything it touches: queue pairs, pool, timers, its service, and the rings on which other threads talk
//! to it. [`Core::turn`] does a bounded amount of work in a fixed order and never blocks; its driver decides whether to
//! turn again at once or to sleep first.
//!
//! # Memory ownership
//! Every lease is in exactly one place: the pool, the service, a message waiting to be sent, or the table of posted
//! work. It leaves that table only against a completion.

mod admission;
pub(crate) mod bindings;
mod buffers;
pub(crate) mod common;
pub(crate) mod connection;
mod connections;
mod counters;
mod cx;
mod dial;
mod events;
mod gathered;
pub(crate) mod inbox;
pub(crate) mod inner;
mod memory;
mod options;
mod outbox;
mod program;
mod progress;
mod reads;
mod receives;
mod records;
pub(crate) mod requester;
mod responder;
mod runs;
mod seats;
mod serve;
mod servers;
mod service;
mod session;
pub(crate) mod streams;
pub(crate) mod table;
mod tell;
mod templates;
pub(crate) mod trace;
mod transmit;
mod turns;
mod vacancy;
mod work;

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use haulage_mr_pool::Pool;
use haulage_proto::negotiate::Remembered;
use haulage_proto::time::Instant;
use haulage_proto::v2::connection::Role;
use thiserror::Error;

use crate::cores::deal::Slots;
use crate::cores::seat::Seat;
use crate::hosts::HostAuth;
use crate::limits::{Limits, SEND_BUFFER};
use crate::provider::{ConnectError, Counters, Event, Provider, Waker};
use crate::service::{CallError, ConnectionId, Reply, Unsupported};

use self::common::{Common, Whence};
use self::connection::{Directions, Link};
use self::events::Events;
use self::inbox::{Door, Inbox};
use self::inner::Inner;
use self::memory::Ending;
use self::program::Programs;
use self::requester::{Direct, Exit, Requester};
use self::responder::Responder;
use self::runs::Runs;
use self::templates::Bound;
#[cfg(test)]
mod tests;

pub use crate::core_number::{CORES_MAX, CoreIdentity, CoreNumber};
pub use crate::cores::deal::Places;

pub use counters::{Census, CoreCounters};
pub use cx::Cx;
pub use options::ConnectOptions;
pub use seats::Seats;
pub use service::{NoService, Service};
pub use streams::{TcpCounters, TcpLimits};

/// A core: a provider, a service, and the state of their connections.
#[derive(Debug)]
pub struct Core<P: Provider, S> {
    /// Declared first: it drops its views of our memory before the memory is freed.
    provider: P,
    service: S,
    /// The Reply for Calls that are answered at once. While no send buffer is free it has none, or there is no Reply.
    /// Declared before the pool that its buffer belongs to.
    reply: Option<Reply>,
    inner: Inner,
    inbox: Inbox,
    listeners: Vec<P::Listener>,
    seat: Seat<P::Incoming>,
    /// The events of one turn, kept to reuse the memory.
    events: Vec<Event<P::Listener>>,
    /// Buffer for messages that the provider delivers without a Receive.
    incoming: Box<[u8]>,
    /// Bound on the events of a turn, on the Calls served in it, and on the callers notified in it.
    events_per_turn: usize,
    /// The time at which a shutdown stops waiting; `None` unless a shutdown has begun.
    drain_by: Option<Instant>,
    /// A shutdown has waited long enough for peers that may still touch memory.
    is_abandoned: bool,
    /// Deadlines passed while the core stood still. They fire when it has read for a while what came meanwhile.
    is_behind: bool,
}

impl<P: Provider, S: Service> Core<P, S> {
    /// Makes a core on the thread that will drive it. `identity` is the seed of its XIDs if it is the only core of its server,
    /// and a [`CoreIdentity`] otherwise.
    ///
    /// # Errors
    /// The pool is too small for the transport's own buffers (`Limits::transport_bytes` says how much they take), or
    /// the service's binding declares something that this runtime does not support.
    pub fn new(
        provider: P,
        service: S,
        pool: Pool,
        limits: Limits,
        identity: impl Into<CoreIdentity>,
    ) -> Result<Self, StartError> {
        let identity = identity.into();
        let limits = limits.within(provider.caps());
        let programs = service.programs();
        bindings::check_all(&programs)?;
        let callbacks = service.callbacks();
        if let Some(binding) = &callbacks {
            bindings::check(binding).map_err(StartError::Unsupported)?;
        }
        let accepted = Directions {
            serves: Some(Rc::new(Programs::new(programs))),
            calls: callbacks.map(|binding| Rc::new(Bound::new(binding))),
        };
        let inbox = Inbox::new(&limits, provider.waker());
        let too_small = StartError::PoolTooSmall { needed: limits.transport_bytes() };
        let common = Common::new(limits, pool, (provider.caps(), provider.waker()), identity);
        let mut common = common.ok_or_else(|| too_small.clone())?;
        if service.makes_room() {
            common.memory.making.is_possible = true;
        }
        let buffer = common.pool.lease(SEND_BUFFER).ok_or(too_small)?;
        let seat = Seat::alone();
        seat.open(slots(&provider, &limits), provider.waker());
        let events_per_turn = provider.caps().turn_events;
        Ok(Self {
            service,
            reply: Some(Reply::inline(buffer)),
            inner: Inner {
                responder: Responder::new(identity.number, accepted, &limits),
                requester: Requester::new(&limits, identity.seed),
                common,
                _ending: Ending,
            },
            inbox,
            listeners: Vec::new(),
            seat,
            events: Vec::with_capacity(events_per_turn),
            incoming: vec![0; INCOMING * limits.receive_size as usize].into(),
            events_per_turn,
            drain_by: None,
            is_abandoned: false,
            is_behind: false,
            provider,
        })
    }

    /// Joins a group: from now on the core is dealt peers that reach the ports of the group's first core.
    pub fn join(&mut self, seats: Seats<P::Incoming>) {
        let Seats { rdma, tcp } = seats;
        rdma.open(slots(&self.provider, &self.inner.common.limits), self.waker());
        let common = &mut self.inner.common;
        common.trace.share_limits(rdma.cores());
        common.streams.join(tcp, &common.waker);
        self.seat = rdma;
    }

    /// Has peers that connect from now on prove which hosts they are, as `auth` asks, and proves to them which host this is.
    ///
    /// # Errors
    /// [`StartError::NoVersion`]: peers have to, and version 1 alone is to be spoken, which has no host authentication.
    pub fn authenticate(&mut self, auth: HostAuth) -> Result<(), StartError> {
        let common = &mut self.inner.common;
        if !common.limits.serve_under(auth.policy) {
            return Err(StartError::NoVersion);
        }
        //~ V2-11.1.1-1: `Some(auth)` -> `Some(auth).filter(|auth| !auth.policy.requires())`
        common.hosts = Some(auth);
        Ok(())
    }

    /// Closes the connections to hosts that are not known any more: call this when [`HostAuth::hosts`] has changed.
    pub fn judge_hosts(&mut self) {
        self.inner.judge_hosts();
    }

    /// Runs one turn to completion: a bounded amount of work, without blocking.
    ///
    /// Returns whether anything happened, so that the caller may sleep when idle.
    pub fn turn(&mut self, now: Instant) -> bool {
        self.inner.common.trace.begin_turn(now);
        let mut worked = 0;
        worked += self.take_messages(now, MESSAGES_PER_TURN); // from other threads
        worked += self.make_room(now); // by the service, for Calls that wait for memory
        worked += self.supply(now); // Calls that waited for memory
        worked += self.reap_completions(now, self.events_per_turn); // received and sent
        worked += self.tell_ready(now); // connections that became ready, before Calls are served
        worked += self.take_in_place(now, self.events_per_turn); // messages delivered without Receives
        worked += self.take_records(now, self.events_per_turn); // Calls over TCP
        worked += self.fire_deadlines(now); // once what has arrived is read
        worked += self.run_handlers(now, self.events_per_turn); // application code
        worked += self.flush_posts(now); // one doorbell per queue pair
        worked != 0
    }

    /// Accepts connections at `at` from now on. Returns the bound address, with the actual port.
    ///
    /// # Errors
    /// The system's error, such as an address in use.
    pub fn listen(&mut self, at: SocketAddr) -> io::Result<SocketAddr> {
        let (listener, bound) = self.provider.listen(at)?;
        self.listeners.push(listener);
        Ok(bound)
    }

    /// Serves the service's programs over TCP at `at`, too, from now on: Calls and Replies are records (RFC 5531 section 11).
    /// Returns the bound address, with the actual port.
    ///
    /// # Errors
    /// The system's error, such as an address in use; `InvalidInput` if hosts have to prove which they are, which TCP does not
    /// let them (P9).
    pub fn listen_tcp(&mut self, at: SocketAddr, limits: TcpLimits) -> io::Result<SocketAddr> {
        let Inner { responder, common, .. } = &mut self.inner;
        if HostAuth::policy(common.hosts.as_ref()).requires() {
            let why = "host authentication is required, and TCP has none";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let (bound, more) = common.streams.listen(at, limits, &self.provider.waker())?;
        responder.calls.enlarge(more);
        Ok(bound)
    }

    /// Takes part in serving a port over TCP at which the first core of the group listens: its ports have numbers by the
    /// order of [`Self::listen_tcp`], and this method is called once for each, in the same order.
    ///
    /// # Errors
    /// The system's error, if it does not watch sockets.
    pub fn share_tcp(&mut self, limits: TcpLimits) -> io::Result<()> {
        let Inner { responder, common, .. } = &mut self.inner;
        let more = common.streams.share(limits, &self.provider.waker())?;
        responder.calls.enlarge(more);
        Ok(())
    }

    /// Starts to connect. `options` is the binding of our Calls, or [`ConnectOptions`]. Calls may be made at once; they wait
    /// until the connection is ready. If the server does not answer version 2, the connection begins anew with version 1,
    /// under the same [`ConnectionId`].
    ///
    /// # Errors
    /// The core is shutting down, no connection can be opened, or a binding in `options` declares something that this
    /// runtime does not support. A peer that does not answer fails the Calls instead.
    pub fn connect(
        &mut self,
        now: Instant,
        to: SocketAddr,
        options: impl Into<ConnectOptions>,
    ) -> Result<ConnectionId, CallError> {
        let ConnectOptions { binding, identity, serves, auth } = options.into();
        if self.drain_by.is_some() {
            return Err(CallError::Closed);
        }
        if !self.inner.common.limits.serve_under(HostAuth::policy(auth.as_ref())) {
            return Err(CallError::NoVersion);
        }
        bindings::check(&binding).map_err(CallError::Unsupported)?;
        bindings::check_all(&serves)?;
        let serves = (!serves.is_empty()).then(|| Rc::new(Programs::new(serves)));
        let Inner { common, .. } = &mut self.inner;
        let qp = dial::dial(&mut self.provider, common, now, to)?;
        let binding = common.connections.bind(binding);
        let directions = Directions { serves, calls: Some(binding) };
        let link = Link { qp, role: Role::Client, peer: to };
        // A server to which hosts prove themselves knows version 2, however slow it was.
        let remembered = match &auth {
            Some(auth) if auth.policy.offers() => Remembered::Nothing,
            _ => common.old_servers.recall(now, to),
        };
        let Some(key) = common.open(link, Whence::Made { remembered }, directions, auth) else {
            self.provider.disconnect(now, qp);
            return Err(CallError::Connect(ConnectError::NoQueuePair));
        };
        if let Some(connection) = common.connections.get_mut(key) {
            connection.session.claim(identity);
        }
        transmit::provide(&mut self.provider, common, key);
        Ok(ConnectionId(key))
    }

    /// Closes a connection in order. Calls on it that have not ended fail.
    pub fn close(&mut self, connection: ConnectionId) {
        self.inner.common.close(connection.0, CallError::Closed);
    }

    /// Stops accepting connections, lets Calls in flight finish, and then closes every connection. Waits for Calls for
    /// at most `Limits::drain_timeout`, and as long again for peers that may still touch memory.
    pub fn begin_shutdown(&mut self, now: Instant) {
        if self.drain_by.is_some() {
            return;
        }
        for listener in self.listeners.drain(..) {
            self.provider.unlisten(listener);
        }
        let common = &mut self.inner.common;
        common.streams.unlisten();
        self.drain_by = Some(now.saturating_add(common.limits.drain_timeout));
        common.wake_by(now);
    }

    /// Returns whether a shutdown has finished. It finishes although a peer may still touch memory of a connection that
    /// is over, if the peer does not let go of it in time: the provider, when it is dropped, leaks that memory.
    pub fn is_drained(&self) -> bool {
        let Inner { common: Common { connections, streams, .. }, requester, .. } = &self.inner;
        let is_told = connections.gone.is_empty() && !requester.calls.has_news();
        let is_over = connections.len() == 0 && streams.len() == 0 || self.is_abandoned;
        self.drain_by.is_some() && is_over && is_told
    }

    /// Returns the time by which `turn` must run even if nothing happens.
    pub fn poll_deadline(&self) -> Option<Instant> {
        let Common { next_deadline, memory, .. } = &self.inner.common;
        let ours = [*next_deadline, memory.due()].into_iter().flatten().min();
        match (ours, self.provider.poll_deadline()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Sleeps until there may be something to do, at most `limit`.
    pub fn sleep(&mut self, limit: Option<Duration>) {
        let Common { streams, connections, .. } = &mut self.inner.common;
        if self.inbox.begin_sleep() && !streams.has_news(connections.queue()) {
            self.service.sleeps();
            self.provider.sleep(limit);
        }
        self.inbox.end_sleep();
    }

    /// Returns a view of this core for use between turns, and the service.
    pub fn cx(&mut self, now: Instant) -> (Cx<'_>, &mut S) {
        (Cx::new(now, &mut self.inner), &mut self.service)
    }

    /// Returns a door, by which another thread becomes a client.
    pub(crate) fn door(&self) -> Door {
        self.inbox.door()
    }

    /// Returns the waker that ends this core's sleep.
    pub fn waker(&self) -> Waker {
        self.provider.waker()
    }

    /// Returns the number of the core.
    pub const fn number(&self) -> CoreNumber {
        self.inner.common.core
    }

    /// Returns the places that peers over RDMA have at the cores of the group. All are given back once every connection is
    /// gone.
    pub fn places(&self) -> Places {
        self.seat.places()
    }

    /// Returns the service.
    pub const fn service(&self) -> &S {
        &self.service
    }

    /// Returns the provider's counters.
    pub fn provider_counters(&self) -> Counters {
        self.provider.counters()
    }

    fn take_messages(&mut self, now: Instant, budget: usize) -> usize {
        let Inner { requester, common, .. } = &mut self.inner;
        self.inbox.take(requester, common, now, budget)
    }

    fn make_room(&mut self, now: Instant) -> usize {
        let Self { inner, service, .. } = self;
        let Some(octets) = inner.common.memory.making.wanted else { return 0 };
        if service.make_room(&mut Cx::new(now, inner), octets) {
            inner.common.memory.room_may_be_made();
        } else {
            inner.common.memory.no_room_is_made();
        }
        1
    }

    /// Returns how many Calls went on, plus one if room is to be made for another.
    fn supply(&mut self, now: Instant) -> usize {
        let Inner { responder, common, .. } = &mut self.inner;
        responder.supply(common, now) + usize::from(common.memory.making.wanted.is_some())
    }

    /// Adopts the peers that wait, takes in what the provider reports, and handles about `budget` messages that lie in
    /// Receives. Returns how much was done, plus one if the provider moved data, for which there may be no event yet.
    fn reap_completions(&mut self, now: Instant, budget: usize) -> usize {
        let Self { provider, service, inner, reply, events, drain_by, seat, .. } = self;
        let adopted = seat.adopt(provider, now);
        // Where several origins may have turns, none waits at the provider behind what another has sent.
        let is_shared = inner.common.memory.origins() > 1;
        provider.poll(now, if is_shared { inner.common.receives.count() } else { budget }, events);
        let mut count = events.len();
        inner.common.arrivals += u64::from(count > 0);
        if count > 0 || !inner.common.arrived.is_empty() {
            let shut = drain_by.is_some().then_some("the core is shutting down");
            let mut taking = Events { now, provider, service, inner, reply, shut };
            taking.take(events.drain(..));
            count += taking.serve(budget);
        }
        let Common { moved, trace, .. } = &mut inner.common;
        let (before, exhausted) = (moved.bytes_system, moved.newcomers.accepts.exhausted());
        *moved = provider.counters();
        if moved.newcomers.accepts.exhausted() != exhausted {
            trace.unaccepted(&moved.newcomers.accepts);
        }
        count + adopted + usize::from(before != moved.bytes_system)
    }

    /// Acts on what is due. A core that stood still, as a process that was stopped does, reads first what came
    /// meanwhile: it may not all be at hand at once, and no peer that did its part in time is idle or late.
    fn fire_deadlines(&mut self, now: Instant) -> usize {
        let Self { service, inner, drain_by, is_abandoned, is_behind, .. } = self;
        let Inner { requester, common, .. } = inner;
        let Some(due) = common.next_deadline.filter(|due| *due <= now) else { return 0 };
        if due.saturating_add(LATE) < now && !std::mem::replace(is_behind, true) {
            common.next_deadline = Some(now.saturating_add(CATCHING_UP));
            return 0;
        }
        *is_behind = false;
        common.next_deadline = None;
        common.discharge_lost();
        requester.calls.expire_calls(common, now);
        inner.expire_connections(now);
        vacancy::close_idle(inner, service, now);
        if let Some(by) = *drain_by {
            vacancy::drain(inner, now, by);
            *is_abandoned = by.saturating_add(inner.common.limits.drain_timeout) <= now;
        }
        1
    }

    #[inline]
    fn tell_ready(&mut self, now: Instant) -> usize {
        tell::tell_ready(&mut self.inner, &mut self.service, now)
    }

    /// Handles at most `budget` messages that the provider delivers without Receives. Returns how many there were.
    fn take_in_place(&mut self, now: Instant, budget: usize) -> usize {
        let Self { provider, service, inner, incoming, reply, .. } = self;
        let mut runs = Runs { inner, service, now, reply, is_in_place: true };
        let length_max = runs.inner.common.limits.receive_size as usize;
        provider.receive_in_place(incoming, length_max, budget, &mut runs)
    }

    /// Takes in what has arrived over TCP, of at most `budget` connections. Returns how much was done.
    fn take_records(&mut self, now: Instant, budget: usize) -> usize {
        let Self { service, inner, reply, .. } = self;
        records::take(inner, service, reply, (now, budget))
    }

    fn run_handlers(&mut self, now: Instant, budget: usize) -> usize {
        let Self { provider, inner, service, inbox, .. } = self;
        let mut worked = 0;
        if inner.requester.calls.has_news() {
            worked += tell::tell(inner, service, inbox, now, budget);
        }
        if !inner.common.connections.gone.is_empty() {
            worked += tell::tell_gone(inner, service, now);
        }
        if !inner.responder.turns.is_empty() {
            worked += serve::run(inner, service, now, budget);
        }
        let mut direct = Direct::new(provider);
        let mut cx = Cx::within(now, inner, None, Exit::Any(&mut direct));
        worked += usize::from(service.turn(&mut cx));
        cx.close_grant();
        worked
    }

    fn flush_posts(&mut self, now: Instant) -> usize {
        transmit::flush(&mut self.provider, &mut self.inner, now)
    }
}

/// Returns how many peers the core of a provider takes.
fn slots(provider: &impl Provider, limits: &Limits) -> Slots {
    let count = u32::try_from(provider.caps().queue_pairs_max).unwrap_or(u32::MAX);
    Slots { count, connections_max: limits.connections_max, connections_give_way: false }
}

/// Why a core could not start.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StartError {
    /// The pool cannot hold the transport's own buffers.
    #[error("the memory is too small: the transport alone takes {needed} bytes")]
    PoolTooSmall {
        /// Octets that these buffers take.
        needed: usize,
    },
    /// A binding of the service declares something that this runtime does not support.
    #[error(transparent)]
    Unsupported(Unsupported),
    /// The service has one version of a program twice.
    #[error("the service has version {version} of program {program} twice: serve it once")]
    Twice {
        /// Program number.
        program: u32,
        /// Program version.
        version: u32,
    },
    /// Host authentication is required, and no version with it is to be spoken.
    #[error("host authentication is required, and version 1, the only one to be spoken, has none")]
    NoVersion,
}

impl From<bindings::Unserved> for StartError {
    fn from(unserved: bindings::Unserved) -> Self {
        match unserved {
            bindings::Unserved::Unsupported(what) => Self::Unsupported(what),
            bindings::Unserved::Twice { program, version } => Self::Twice { program, version },
        }
    }
}

/// How late a deadline is if the core stood still.
const LATE: Duration = Duration::from_millis(20);
/// How long a core that stood still reads before it acts on deadlines.
const CATCHING_UP: Duration = Duration::from_millis(10);
/// Entries taken from other threads in one turn, at most.
const MESSAGES_PER_TURN: usize = 64;
/// Receives that are as long as the buffer for messages delivered without Receives.
const INCOMING: usize = 2;
