//! A deterministic fabric in virtual time, for tests.
//!
//! A [`Fabric`] is a set of RNICs in one thread and the network between them. Nothing happens on its own: time is the
//! `now` that [`Provider::poll`] is called with, and every delay is drawn from one seed, so a run repeats exactly.
//! Tests step their providers until nothing moves, then advance the time to [`Fabric::next_event`].
//!
//! # Normal operation
//! Posted requests start at once. A Send or a Write crosses as one message: its octets are copied from the source to
//! the sink when it arrives, or, for some of them, into a copy when it starts; the completion comes later still.
//! Messages of one connection and direction stay in order, and wait behind a Send that finds no Receive.
//! Acknowledgements do not.
//!
//! # Recovery
//! Faults are methods of [`Fabric`]: [`sever`](Fabric::sever) a connection,
//! [`black_hole`](Fabric::black_hole) a node, or stop it [in the middle of its copies](Fabric::stop_copying). As on a
//! real network, a black hole is noticed only by deadlines.
//!
//! A request that is invalid ([`LocalFault`](haulage_proto::verbs::Status::LocalFault)) ends its connection, as on a
//! real RNIC: nothing behind it may start, or the peer would learn of a Write that never happened.
//!
//! # Memory ownership
//! A view lives in the send queue entry, the Receive or the registration it was posted with, and is dropped before the
//! completion is reported. No packet on its way holds a view.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use haulage_mr_pool::{Local, Stags, Strategy};
use haulage_proto::time::Instant;
use haulage_proto::verbs::{Access, QpNum, Segment, WrId};

use super::{
    Caps, ConnectError, ConnectionAnswer, ConnectionParams, Counters, Event, Head, OpenResult,
    Outgoing, PLACING_MAX, PeerUser, Place, Port, Provider, QueueFull, Receive, Refused, Sent,
    Waker, WorkQueue, expose, sealed,
};

mod config;
mod node;
mod queue_pair;
mod rng;
mod schedule;
mod world;

pub use config::FabricConfig;
pub use node::Listener;
pub use rng::Rng;
pub use schedule::Incoming;

use node::Node;
use schedule::End;
use world::World;

/// The network, and the faults that a test can cause in it. Clones are the same fabric.
#[derive(Clone, Debug)]
pub struct Fabric(Rc<RefCell<World>>);

impl Fabric {
    /// Makes a fabric with no node.
    pub fn new(config: FabricConfig) -> Self {
        Self(Rc::new(RefCell::new(World::new(config))))
    }

    /// Adds the node `address`, an RNIC that listens and connects by this address alone.
    ///
    /// # Errors
    /// `AddrInUse` if the fabric has the node already; else the error of the system that refused a waker.
    pub fn provider(&self, address: IpAddr) -> io::Result<Sim> {
        let waker = Waker::new()?;
        let mut world = self.0.borrow_mut();
        if world.nodes.iter().any(|node| node.is_at(address)) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let config = &world.config;
        let caps = Caps {
            name: "sim",
            queue_pairs_max: usize::from(config.queue_pairs_max),
            send_queue_max: config.send_queue_max,
            read_max: 0,
            placing_max: PLACING_MAX,
            turn_events: 256,
            receive_queue_max: config.receive_queue_max,
            receives_each: config.receives_each,
            registrations_max: config.registrations_max,
            ord_max: config.ord_max,
            ird_max: config.ird_max,
            strategy: Strategy::FastReg,
            posting: None,
            promises: config.promises,
        };
        let (registrations_max, qps_max) = (config.registrations_max, config.queue_pairs_max);
        let seed = world.rng.next();
        let stags = Stags::seeded(registrations_max, seed);
        let node = world.nodes.len();
        world.nodes.push(Node::new(address, caps.clone(), qps_max, stags));
        Ok(Sim { fabric: Rc::clone(&self.0), node, caps, waker })
    }

    /// Returns when the next event happens, if any.
    pub fn next_event(&self) -> Option<Instant> {
        self.0.borrow_mut().next_due()
    }

    /// Loses the connection `qp` of the node `at`: both ends notice at once.
    pub fn sever(&self, at: IpAddr, qp: QpNum) {
        let mut world = self.0.borrow_mut();
        if let Some(node) = world.node(at) {
            world.sever(End { node, qp });
        }
    }

    /// Loses every connection of the node `at`.
    pub fn sever_all(&self, at: IpAddr) {
        let mut world = self.0.borrow_mut();
        let Some(node) = world.node(at) else { return };
        let all: Vec<QpNum> = world.nodes[node].qps().collect();
        for qp in all {
            world.sever(End { node, qp });
        }
    }

    /// Swallows the messages that the node `from` sends from now on, until the hole is closed. Neither end is notified.
    /// A connection that lost a message never recovers; new ones work once the hole is closed.
    pub fn black_hole(&self, from: IpAddr) {
        let mut world = self.0.borrow_mut();
        if let Some(node) = world.node(from) {
            world.nodes[node].muted = true;
        }
    }

    /// Delivers the messages of the node `from` again.
    pub fn close_black_hole(&self, from: IpAddr) {
        let mut world = self.0.borrow_mut();
        if let Some(node) = world.node(from) {
            world.unmute(node);
        }
    }

    /// Has the node `at` stand still in the middle of copies from and to all memory that is open to it, like a process
    /// that is stopped. Until it goes on, no handle of its peers can be invalidated, and connections that end keep what
    /// was open. Neither end is notified, and messages still move: the caller stops turning the node.
    pub fn stop_copying(&self, at: IpAddr) {
        let mut world = self.0.borrow_mut();
        if let Some(node) = world.node(at) {
            world.nodes[node].copies = true;
        }
    }

    /// Has the node `at` finish its copies.
    pub fn go_on_copying(&self, at: IpAddr) {
        let mut world = self.0.borrow_mut();
        if let Some(node) = world.node(at) {
            world.nodes[node].copies = false;
            world.let_go();
        }
    }

    /// Changes how long messages travel, from now on.
    pub fn set_latency(&self, min_ns: u64, max_ns: u64) {
        let mut world = self.0.borrow_mut();
        (world.config.latency_min_ns, world.config.latency_max_ns) = (min_ns, max_ns);
    }
}

/// One node of a [`Fabric`]. Dropping it loses its connections.
#[derive(Debug)]
pub struct Sim {
    fabric: Rc<RefCell<World>>,
    node: usize,
    caps: Caps,
    waker: Waker,
}

impl Sim {
    const fn end(&self, qp: QpNum) -> End {
        End { node: self.node, qp }
    }
}

impl sealed::Sealed for Sim {}

impl Provider for Sim {
    type Listener = Listener;
    type Incoming = Incoming;
    type Port<'a> = SimPort<'a>;

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn listen(&mut self, at: SocketAddr) -> io::Result<(Listener, SocketAddr)> {
        self.fabric.borrow_mut().nodes[self.node].listen(at)
    }

    fn unlisten(&mut self, listener: Listener) {
        self.fabric.borrow_mut().nodes[self.node].unlisten(listener);
    }

    fn next_incoming(&mut self, now: Instant, _: impl FnOnce() -> bool) -> Option<Incoming> {
        let mut world = self.fabric.borrow_mut();
        world.advance(now);
        world.next_incoming(self.node)
    }

    fn adopt(
        &mut self,
        now: Instant,
        incoming: Incoming,
        place: Place,
    ) -> Result<(), (Incoming, Place)> {
        let mut world = self.fabric.borrow_mut();
        world.advance(now);
        world.adopt(self.node, incoming, place)
    }

    fn connect(
        &mut self,
        now: Instant,
        to: SocketAddr,
        params: &ConnectionParams<'_>,
    ) -> Result<QpNum, ConnectError> {
        let mut world = self.fabric.borrow_mut();
        world.advance(now);
        world.connect(self.node, to, params)
    }

    fn answer(&mut self, now: Instant, qp: QpNum, answer: &ConnectionAnswer<'_>) {
        let mut world = self.fabric.borrow_mut();
        world.advance(now);
        match answer {
            ConnectionAnswer::Accept(params) => world.accept(self.end(qp), params),
            ConnectionAnswer::Reject(_) => world.reject(self.end(qp)),
        }
    }

    /// Returns `Remote`: every node is a machine of its own.
    fn peer_user(&mut self, _: QpNum) -> PeerUser {
        PeerUser::Remote
    }

    fn disconnect(&mut self, now: Instant, qp: QpNum) {
        let mut world = self.fabric.borrow_mut();
        world.advance(now);
        world.disconnect(self.end(qp));
    }

    fn port(&mut self, qp: QpNum) -> Option<SimPort<'_>> {
        Some(SimPort { fabric: &self.fabric, end: self.end(qp) })
    }

    fn post_receives(&mut self, batch: &mut Vec<Receive>) -> Result<(), QueueFull> {
        self.fabric.borrow_mut().post_receives(self.node, batch)
    }

    fn reserve_receives(&mut self, qp: QpNum, count: u32) {
        self.fabric.borrow_mut().reserve_receives(self.end(qp), count);
    }

    fn poll(&mut self, now: Instant, budget: usize, events: &mut Vec<Event<Listener>>) {
        let mut world = self.fabric.borrow_mut();
        world.advance(now);
        world.nodes[self.node].poll(now, budget, events);
    }

    /// Returns when the next arrival is due, on any node: in virtual time each counts.
    fn poll_deadline(&self) -> Option<Instant> {
        let mut world = self.fabric.borrow_mut();
        let reported = world.nodes[self.node].has_news().then_some(world.clock);
        reported.or_else(|| world.next_due())
    }

    /// Returns at once: virtual time does not pass by waiting.
    fn sleep(&mut self, _limit: Option<Duration>) {
        self.waker.clear();
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn counters(&self) -> Counters {
        self.fabric.borrow().nodes[self.node].counters
    }
}

/// Sends on one queue pair of a [`Sim`].
#[derive(Debug)]
pub struct SimPort<'a> {
    fabric: &'a RefCell<World>,
    end: End,
}

impl Port for SimPort<'_> {
    #[inline]
    fn send(&mut self, head: &Head<'_>, message: &mut Outgoing, id: WrId) -> Sent {
        self.fabric.borrow_mut().send_message(self.end, head, message, id)
    }

    fn open(&mut self, lease: Local, access: Access) -> OpenResult {
        let mut world = self.fabric.borrow_mut();
        if !world.takes_requests(self.end) {
            return Err((lease, Refused::Gone));
        }
        let End { node, qp } = self.end;
        let stags = &mut world.nodes[node].stags;
        let Ok(length) = u32::try_from(lease.len()) else { return Err((lease, Refused::TooLong)) };
        let Some(handle) = stags.reserve(qp) else { return Err((lease, Refused::Full)) };
        let offset = stags.random_offset();
        let (exposed, memory) = expose(lease, handle, access);
        let registered = stags.register(handle, qp, offset, memory);
        debug_assert!(registered.is_ok(), "it was reserved");
        Ok((exposed, Segment { handle, length, offset }))
    }

    fn post(&mut self, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        self.fabric.borrow_mut().post(self.end, batch)
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.fabric.borrow_mut().retire(self.node);
    }
}
