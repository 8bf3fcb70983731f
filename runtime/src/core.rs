//! One core: one thread, one provider, one service, run to completion.
//!
//! # Normal operation
//! A core owns everything it touches: queue pairs, pool, timers, its service, and the rings on which
//! other threads talk to it. [`Core::turn`] does a bounded amount of work in a fixed order and never
//! blocks; whoever drives it decides whether to turn again at once or to sleep first.
//!
//! # Memory ownership
//! Every lease is in exactly one place: the pool, the service, a message waiting to be sent, or the
//! table of posted work. It leaves that table only against a completion.

mod admission;
mod bindings;
pub(crate) mod connection;
mod events;
pub(crate) mod inbound;
mod inline;
mod memory;
pub(crate) mod outbound;
mod receives;
mod room;
pub(crate) mod state;
pub(crate) mod table;
mod templates;
pub(crate) mod trace;
mod transmit;
mod work;

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use haulage_mr_pool::Pool;
use haulage_proto::time::Instant;
use haulage_proto::v2::connection::Role;

use crate::identity::Identity;
use crate::inbox::Inbox;
use crate::limits::{Limits, SEND_BUFFER, our_private_data};
use crate::provider::{ConnectError, ConnectionParams, Counters, Event, Provider, Waker};
use crate::remote::RemoteClient;
use crate::service::{Binding, CallError, ConnectionId, Reply, Service};

use admission::Origin;
use inline::INCOMING;
use outbound::{Direct, Exit};
use state::{Serves, State};
use templates::Bound;
#[cfg(test)]
mod tests;

pub use bindings::{Declared, Unsupported};
pub use state::{Census, CoreCounters, Cx};

/// One core.
#[derive(Debug)]
pub struct Core<P: Provider, S> {
    /// First, so that its views of our memory are gone when the memory is.
    provider: P,
    service: S,
    /// What Replies are made in that leave at once, if there was a buffer for it. Before the memory it is in.
    reply: Option<Reply>,
    state: State,
    inbox: Inbox,
    listeners: Vec<P::Listener>,
    /// Storage of one turn's events.
    events: Vec<Event<P::Listener>>,
    /// Room for messages taken without Receives.
    incoming: Box<[u8]>,
    /// How many these may be, and Calls served and callers told.
    events_per_turn: usize,
    draining: bool,
}

impl<P: Provider, S: Service> Core<P, S> {
    /// Makes a core on the thread that will drive it.
    ///
    /// # Errors
    /// The pool is too small for the transport's own buffers (`Limits::transport_bytes` says how much they take),
    /// or the service's binding declares something that this runtime does not do.
    pub fn new(
        provider: P,
        service: S,
        pool: Pool,
        limits: Limits,
        seed: u64,
    ) -> Result<Self, StartError> {
        let limits = limits.within(provider.caps());
        let (binding, flavors) = (service.binding(), service.flavors().into());
        bindings::check(&binding).map_err(StartError::Unsupported)?;
        let binding = Rc::new(Bound::new(binding));
        let sources =
            (0..).zip(&binding.procedures).map(|(number, _)| service.result_source(number));
        let sources = sources.collect();
        let inbox = Inbox::new(limits.remote_clients_max, provider.waker());
        let needed = limits.transport_bytes();
        let state =
            State::new(limits, pool, Serves { binding, flavors, sources }, provider.caps(), seed)
                .ok_or(StartError::PoolTooSmall { needed })?;
        let buffer = state.pool.lease(SEND_BUFFER).ok_or(StartError::PoolTooSmall { needed })?;
        let reply = Some(Reply::new(buffer, None, 0, None));
        let (listeners, draining) = (Vec::new(), false);
        let events_per_turn = provider.caps().turn_events;
        let events = Vec::with_capacity(events_per_turn);
        let incoming = vec![0; INCOMING].into();
        Ok(Self {
            provider,
            service,
            reply,
            state,
            inbox,
            listeners,
            events,
            incoming,
            events_per_turn,
            draining,
        })
    }

    /// One turn. Runs to completion, never blocks, does bounded work.
    ///
    /// Returns whether anything happened, so the caller may sleep when idle.
    pub fn turn(&mut self, now: Instant) -> bool {
        self.state.trace.begin_turn(now);
        let mut worked = 0;
        worked += self.take_messages(now, MESSAGES_PER_TURN); // from other threads
        worked += self.state.supply(now); // with memory that came home
        worked += self.reap_completions(now, self.events_per_turn); // received and sent
        worked += self.fire_deadlines(now);
        worked += self.tell_ready(now); // before Calls are served
        worked += self.take_inline(now, self.events_per_turn); // acted upon at once
        worked += self.run_handlers(now, self.events_per_turn); // application code
        worked += self.flush_posts(now); // one doorbell per queue pair
        worked != 0
    }

    /// Accepts connections at `at` from now on. Returns the address really bound.
    ///
    /// # Errors
    /// The system's, such as an address in use.
    pub fn listen(&mut self, at: SocketAddr) -> io::Result<SocketAddr> {
        let (listener, bound) = self.provider.listen(at)?;
        self.listeners.push(listener);
        Ok(bound)
    }

    /// Starts connecting; Calls may be made at once and wait until the connection is ready.
    ///
    /// # Errors
    /// No connection can be made at all, or `binding` declares something that this runtime does not do. A peer
    /// that does not answer fails the Calls instead.
    pub fn connect(
        &mut self,
        now: Instant,
        to: SocketAddr,
        binding: Binding,
    ) -> Result<ConnectionId, CallError> {
        self.connect_as(now, to, binding, Identity::Nobody)
    }

    /// Does the same for Calls that say who makes them.
    ///
    /// # Errors
    /// As of [`Self::connect`].
    pub fn connect_as(
        &mut self,
        now: Instant,
        to: SocketAddr,
        binding: Binding,
        identity: Identity,
    ) -> Result<ConnectionId, CallError> {
        if self.draining {
            return Err(CallError::Closed);
        }
        bindings::check(&binding).map_err(CallError::Unsupported)?;
        let caps = self.provider.caps();
        let (_, private_data) = our_private_data(Role::Client, self.state.solicits);
        let (ord, ird) = (caps.ord_max, caps.ird_max);
        let params = ConnectionParams { private_data: &private_data, ord, ird };
        let qp = self.provider.connect(now, to, &params).map_err(CallError::Connect)?;
        let binding = self.state.bind(binding);
        let client = (Role::Client, to, None);
        let Some(key) = self.state.open((qp, Origin::Ours), client, &binding) else {
            self.provider.disconnect(now, qp);
            return Err(CallError::Connect(ConnectError::NoQueuePair));
        };
        if let Some(connection) = self.state.connections.get_mut(key) {
            connection.identity = identity;
        }
        self.provide(key);
        Ok(ConnectionId(key))
    }

    /// Closes a connection in order. Calls on it that have not ended fail.
    pub fn close(&mut self, connection: ConnectionId) {
        self.state.close(connection.0, CallError::Closed);
    }

    /// Stops accepting, lets what is in flight finish, then closes every connection.
    pub fn begin_shutdown(&mut self, now: Instant) {
        if std::mem::replace(&mut self.draining, true) {
            return;
        }
        for listener in self.listeners.drain(..) {
            self.provider.unlisten(listener);
        }
        self.state.drain_by = Some(now.saturating_add(self.state.limits.drain_timeout));
        self.state.wake_by(now);
    }

    /// Returns whether a shutdown has finished.
    pub fn is_drained(&self) -> bool {
        let State { connections, peers_gone, .. } = &self.state;
        self.draining && connections.len() == 0 && peers_gone.is_empty()
    }

    /// Returns when `turn` must run even if nothing happens.
    pub fn poll_deadline(&self) -> Option<Instant> {
        let ours = [self.state.next_deadline, self.state.memory.due()].into_iter().flatten().min();
        match (ours, self.provider.poll_deadline()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Sleeps until there may be something to do, at most `limit`.
    pub fn sleep(&mut self, limit: Option<Duration>) {
        if self.inbox.begin_sleep() {
            self.provider.sleep(limit);
        }
        self.inbox.end_sleep();
    }

    /// Returns what a service sees of this core.
    pub fn cx(&mut self, now: Instant) -> (Cx<'_>, &mut S) {
        (Cx::new(now, &mut self.state), &mut self.service)
    }

    /// Makes a client of `connection` for another thread; `None` if there are too many.
    pub fn remote_client(&self, connection: ConnectionId) -> Option<RemoteClient> {
        RemoteClient::new(self.inbox.door(), connection)
    }

    /// Returns what ends this core's sleep.
    pub fn waker(&self) -> Waker {
        self.provider.waker()
    }

    /// Returns the service.
    pub const fn service(&self) -> &S {
        &self.service
    }

    /// Returns what the provider moved so far.
    pub fn provider_counters(&self) -> Counters {
        self.provider.counters()
    }

    fn take_messages(&mut self, now: Instant, budget: usize) -> usize {
        self.inbox.take(&mut self.state, now, budget)
    }

    fn fire_deadlines(&mut self, now: Instant) -> usize {
        if self.state.next_deadline.is_none_or(|deadline| deadline > now) {
            return 0;
        }
        self.state.next_deadline = None;
        self.state.expire_calls(now);
        self.state.expire_connections(now);
        self.close_idle(now);
        if self.draining {
            self.state.drain_connections(now);
        }
        1
    }

    /// Tells the service which connections have become ready. Returns how many.
    #[inline]
    fn tell_ready(&mut self, now: Instant) -> usize {
        let Self { state, service, .. } = self;
        let mut told = 0;
        while let Some(peer) = state.peers_ready.pop_front() {
            service.opened(&mut Cx::new(now, state), &peer);
            told += 1;
        }
        told
    }

    fn run_handlers(&mut self, now: Instant, budget: usize) -> usize {
        let Self { provider, state, service, inbox, .. } = self;
        let mut worked = 0;
        if state.has_news() {
            worked += outbound::tell(state, service, inbox, now, budget);
        }
        if !state.peers_gone.is_empty() {
            worked += outbound::tell_gone(state, service, now);
        }
        if !state.ready.is_empty() {
            worked += inbound::run(state, service, now, budget);
        }
        let mut direct = Direct::new(provider);
        let mut cx = Cx::within(now, state, None, Exit::Any(&mut direct));
        worked += usize::from(service.turn(&mut cx));
        cx.close_lane();
        worked
    }
}

/// Why a core could not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartError {
    /// The pool cannot hold the transport's own buffers.
    PoolTooSmall {
        /// Octets they take.
        needed: usize,
    },
    /// The service's binding declares something that this runtime does not do.
    Unsupported(Unsupported),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PoolTooSmall { needed } => {
                write!(f, "the memory is too small: the transport alone takes {needed} bytes")
            }
            Self::Unsupported(what) => what.fmt(f),
        }
    }
}

impl std::error::Error for StartError {}

/// Entries taken from other threads in one turn.
const MESSAGES_PER_TURN: usize = 64;
