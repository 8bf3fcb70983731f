//! A provider that keeps the contract of [`Provider`] and does little else, for tests.
//!
//! # Normal operation
//! The [`Toy`]s of one [`Net`] share a thread. A provider that is polled carries out what its peers have posted: the
//! requests of each send queue in order, up to a Send that finds no Receive. A Read is over before the next request
//! starts, so neither the ORD nor a fence delays anything. The two queue pairs of a connection have neighbouring
//! slots, which are used once. A message is copied when it is sent, or taken: each provider does one of the two.
//!
//! What a core calls in its turns is not inlined, so that `benches/counts` can count the core without it.
//!
//! # Recovery
//! None. A request that fails ends both ends of its connection, and an end that finds its peer gone ends, too. It drops
//! every view before it reports that the requests it still had are flushed.
//!
//! # Limits
//! The optional abilities are left out: messages without Receives, receive queues of each queue pair, Reads at once.

use std::cell::{RefCell, RefMut};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use haulage_mr_pool::{Local, Strategy};
use haulage_proto::time::Instant;
use haulage_proto::verbs::{Access, Opcode, QpNum, Segment, WrId};

use super::{
    Arrival, Caps, ConnectError, ConnectionAnswer, ConnectionParams, Counters, Head, OpenResult,
    Outgoing, PeerUser, Place, Port, Promises, Provider, QueueFull, Receive, Refused, Sent, Waker,
    WorkQueue, expose, sealed,
};
use crate::sys::wake;

mod net;

pub use net::Net;

use net::{EndState, Entry, Event, Newcomer, Node, QueuePair, Report, name};

/// One provider of a [`Net`]. Dropping it loses its connections.
#[derive(Debug)]
pub struct Toy {
    net: Rc<RefCell<Net>>,
    node: usize,
    messages: Messages,
    waker: Waker,
}

/// The slot of a peer that was taken from its listener. Dropping it refuses the peer, as soon as a provider is polled.
#[derive(Debug)]
pub struct Incoming {
    slot: Arc<usize>,
    peer: SocketAddr,
}

impl Arrival for Incoming {
    fn peer(&self) -> SocketAddr {
        self.peer
    }
}

/// The way in which a [`Toy`] sends the messages that [`Port::send`] is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Messages {
    /// The provider copies messages and the Writes ahead of them, unless a Write has too many parts to be copied at
    /// once.
    Copied,
    /// The provider takes messages.
    Taken,
}

impl Toy {
    /// Adds a provider to a network.
    ///
    /// # Errors
    /// The system has no descriptor for its waker.
    pub fn join(net: &Rc<RefCell<Net>>, messages: Messages) -> io::Result<Self> {
        let (waker, node) = (Waker::new()?, net.borrow().nodes.len());
        net.borrow_mut().nodes.push(Node::new(node, CAPS.registrations_max));
        Ok(Self { net: Rc::clone(net), node, messages, waker })
    }

    fn net(&self) -> RefMut<'_, Net> {
        self.net.borrow_mut()
    }
}

impl sealed::Sealed for Toy {}

impl Provider for Toy {
    type Listener = SocketAddr;
    type Incoming = Incoming;
    type Port<'a> = ToyPort<'a>;

    fn caps(&self) -> &Caps {
        &CAPS
    }

    fn listen(&mut self, at: SocketAddr) -> io::Result<(SocketAddr, SocketAddr)> {
        let listeners = &mut self.net().listeners;
        let ports = if at.port() == 0 { 49152..=u16::MAX } else { at.port()..=at.port() };
        let mut places = ports.map(|port| SocketAddr::new(at.ip(), port));
        let free = places.find(|at| !listeners.contains_key(at));
        let at = free.ok_or(io::ErrorKind::AddrInUse)?;
        listeners.insert(at, self.node);
        Ok((at, at))
    }

    fn unlisten(&mut self, listener: SocketAddr) {
        let Net { nodes, qps, listeners, .. } = &mut *self.net();
        listeners.remove(&listener);
        nodes[self.node].arrivals.retain(|arrival| {
            if arrival.at == listener {
                qps[arrival.slot] = QueuePair::default();
            }
            arrival.at != listener
        });
    }

    #[inline(never)]
    fn next_incoming(&mut self, _: Instant, _: impl FnOnce() -> bool) -> Option<Incoming> {
        let (slot, peer) = self.net().next_incoming(self.node)?;
        Some(Incoming { slot, peer })
    }

    fn adopt(
        &mut self,
        _: Instant,
        incoming: Incoming,
        place: Place,
    ) -> Result<(), (Incoming, Place)> {
        self.net().adopt(self.node, *incoming.slot, place);
        Ok(())
    }

    fn connect(
        &mut self,
        now: Instant,
        to: SocketAddr,
        params: &ConnectionParams<'_>,
    ) -> Result<QpNum, ConnectError> {
        let net = &mut *self.net();
        let (active, passive) = (net.qps.len(), net.qps.len() + 1);
        if passive >= CAPS.queue_pairs_max {
            return Err(ConnectError::NoQueuePair);
        }
        let [ord, ird] = [params.ord.min(CAPS.ord_max), params.ird.min(CAPS.ird_max)];
        let mut asking = QueuePair::new(self.node, EndState::Connecting, [ord, ird]);
        asking.deadline = Some(now.saturating_add(TIMEOUT));
        net.qps.push(asking);
        let Some(node) = net.listeners.get(&to).copied() else {
            net.qps.push(QueuePair::default());
            return Ok(name(active));
        };
        net.qps.push(QueuePair::new(node, EndState::Arriving, [ird, ord]));
        let private_data = params.private_data.into();
        net.nodes[node].arrivals.push_back(Newcomer { at: to, slot: passive, private_data });
        Ok(name(active))
    }

    fn answer(&mut self, _: Instant, qp: QpNum, answer: &ConnectionAnswer<'_>) {
        let (net, [passive, active]) = (&mut *self.net(), [qp.slot(), qp.slot() ^ 1]);
        let ConnectionAnswer::Accept(params) = answer else {
            net.qps[passive].state = EndState::Rejected;
            return;
        };
        let [ord, ird] = net.qps[passive].terms;
        let [ord, ird] = [ord.min(params.ord), ird.min(params.ird)];
        net.open(passive, [ord, ird], &[]);
        if net.qps[active].state == EndState::Connecting {
            net.open(active, [ird, ord], params.private_data);
        }
    }

    fn peer_user(&mut self, _: QpNum) -> PeerUser {
        PeerUser::Unknown
    }

    fn disconnect(&mut self, now: Instant, qp: QpNum) {
        let (net, slot) = (&mut *self.net(), qp.slot());
        match net.qps[slot].state {
            EndState::Connecting => {
                net.fail(slot, ConnectError::System(io::ErrorKind::ConnectionAborted))
            }
            EndState::Requested => net.qps[slot].state = EndState::Rejected,
            EndState::Open => {
                net.qps[slot].state = EndState::Closing;
                net.qps[slot].deadline = Some(now.saturating_add(TIMEOUT));
            }
            EndState::Arriving | EndState::Closing | EndState::Rejected | EndState::Gone => {}
        }
    }

    #[inline(never)]
    fn port(&mut self, qp: QpNum) -> Option<ToyPort<'_>> {
        let (net, slot, messages) = (self.net(), qp.slot(), self.messages);
        let is_open = net.qps[slot].state == EndState::Open;
        is_open.then_some(ToyPort { net, slot, messages })
    }

    #[inline(never)]
    fn post_receives(&mut self, batch: &mut Vec<Receive>) -> Result<(), QueueFull> {
        let receives = &mut self.net().nodes[self.node].receives;
        let room = CAPS.receive_queue_max - receives.len();
        receives.extend(batch.drain(..room.min(batch.len())));
        if batch.is_empty() { Ok(()) } else { Err(QueueFull) }
    }

    #[inline(never)]
    fn poll(&mut self, now: Instant, budget: usize, events: &mut Vec<Event>) {
        let net = &mut *self.net();
        net.advance(self.node, now);
        let reports = &mut net.nodes[self.node].reports;
        events.extend(reports.drain(..budget.min(reports.len())));
    }

    fn poll_deadline(&self) -> Option<Instant> {
        let net = self.net();
        let own = net.qps.iter().filter(|qp| qp.node == self.node);
        own.filter_map(|qp| qp.deadline).min()
    }

    fn sleep(&mut self, limit: Option<Duration>) {
        let net = &mut *self.net();
        // At `Instant::ZERO` no deadline has passed.
        net.advance(self.node, Instant::ZERO);
        let Node { reports, arrivals, .. } = &net.nodes[self.node];
        if reports.is_empty() && arrivals.is_empty() {
            wake::wait(&self.waker, limit.unwrap_or(Duration::MAX));
        }
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Returns zeros: nothing is counted.
    fn counters(&self) -> Counters {
        Counters::default()
    }
}

impl Drop for Toy {
    fn drop(&mut self) {
        let Net { nodes, qps, listeners, .. } = &mut *self.net();
        listeners.retain(|_, node| *node != self.node);
        qps.iter_mut().filter(|qp| qp.node == self.node).for_each(|qp| *qp = QueuePair::default());
        nodes[self.node] = Node::new(self.node, CAPS.registrations_max);
    }
}

/// Sends on one queue pair of a [`Toy`].
#[derive(Debug)]
pub struct ToyPort<'a> {
    net: RefMut<'a, Net>,
    slot: usize,
    messages: Messages,
}

impl Port for ToyPort<'_> {
    #[inline(never)]
    fn send(&mut self, head: &Head<'_>, message: &mut Outgoing, id: WrId) -> Sent {
        let copied = match self.messages {
            Messages::Copied => self.copy(head, message),
            Messages::Taken => None,
        };
        copied.unwrap_or_else(|| self.take(head, message, id))
    }

    #[inline(never)]
    fn open(&mut self, lease: Local, access: Access) -> OpenResult {
        let (net, qp) = (&mut *self.net, name(self.slot));
        let stags = &mut net.nodes[net.qps[self.slot].node].stags;
        let Ok(length) = u32::try_from(lease.len()) else { return Err((lease, Refused::TooLong)) };
        let Some(handle) = stags.reserve(qp) else { return Err((lease, Refused::Full)) };
        let (offset, (exposed, memory)) = (stags.random_offset(), expose(lease, handle, access));
        stags.register(handle, qp, offset, memory).expect("the handle was reserved just now");
        Ok((exposed, Segment { handle, length, offset }))
    }

    #[inline(never)]
    fn post(&mut self, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        let (room, own) = (self.room().min(batch.len()), name(self.slot));
        let entries = &mut self.net.qps[self.slot].entries;
        entries.extend(batch.drain(..room).map(|request| Entry::new(own, request)));
        if batch.is_empty() { Ok(()) } else { Err(QueueFull) }
    }
}

impl ToyPort<'_> {
    /// Copies a message and what goes ahead of it, if there is room. Returns `None`, and nothing happened, if it cannot be
    /// copied.
    fn copy(&mut self, head: &Head<'_>, message: &mut Outgoing) -> Option<Sent> {
        let own = name(self.slot);
        let entries = &mut self.net.qps[self.slot].entries;
        let waiting = entries.iter().filter(|entry| entry.report == Report::Never).count();
        if waiting > 0 && waiting + message.requests_max() > COPIES_MAX {
            return Some(Sent::Full);
        }
        let mut copies = Vec::new();
        let has_all = message.copy_writes(|parts, target| {
            copies.push(Entry::write(own, parts.concat(), *target));
            true
        });
        if !has_all {
            return None;
        }
        copies.push(Entry::send(own, message.message(head).into(), head.invalidated()));
        entries.extend(copies);
        Some(Sent::Copied)
    }

    /// Takes a message and what goes ahead of it, if there is room.
    fn take(&mut self, head: &Head<'_>, message: &mut Outgoing, id: WrId) -> Sent {
        let (room, own) = (self.room(), name(self.slot));
        let entries = &mut self.net.qps[self.slot].entries;
        if message.requests_max() > room && room < CAPS.send_queue_max {
            return Sent::Full;
        }
        message.lend(head, id, |request| entries.push_back(Entry::new(own, request)));
        Sent::Taken
    }

    /// Returns how many more requests the send queue takes: each keeps its place until its completion is polled.
    fn room(&self) -> usize {
        let (net, own) = (&*self.net, name(self.slot));
        let QueuePair { entries, node, .. } = &net.qps[self.slot];
        let keeps_place = |event: &&Event| match event {
            Event::Completion(done) => done.qp == own && done.opcode != Opcode::Receive,
            _ => false,
        };
        let posted = entries.iter().filter(|entry| entry.report != Report::Never).count();
        let reported = net.nodes[*node].reports.iter().filter(keeps_place).count();
        CAPS.send_queue_max.saturating_sub(posted + reported)
    }
}

/// Copied Sends and Writes that wait on a queue pair at once, unless one message has more.
const COPIES_MAX: usize = 256;

/// The time that a handshake, or closing a connection, may take.
const TIMEOUT: Duration = Duration::from_secs(5);

static CAPS: Caps = Caps {
    name: "toy",
    queue_pairs_max: 1024,
    send_queue_max: 256,
    read_max: 0,
    placing_max: 0,
    turn_events: 256,
    receive_queue_max: 1024,
    receives_each: None,
    registrations_max: 1024,
    ord_max: 16,
    ird_max: 16,
    strategy: Strategy::FastReg,
    posting: None,
    promises: Promises::ALL,
};
