//! RDMA devices: RoCE, InfiniBand and iWARP through libibverbs and librdmacm.
//!
//! # Normal operation
//!
//! Each provider has one completion queue on one device, and a queue pair for each connection. The queue pairs share a
//! receive queue if the device has shared ones, or else have one each. Work requests of one [`Port::post`] are chained
//! and handed over with one doorbell, by `ibv_wr_*` if the device's library has that. Short messages are copied, as far
//! as `work.rs` says. Completions are taken from the queue without a system call. The connection manager is asked when
//! its events are waiting, when they ended a sleep, and now and then.
//!
//! # Registration
//!
//! The core's memory is registered once, for ourselves. Peers get access by memory windows of type 2: bound to a range,
//! an access and one queue pair by a work request, closed by another or by the peer's Send with Invalidate. Offsets
//! begin at zero. The device chooses 24 bits of a handle, we the other 8. On a device without windows, each lease is
//! registered by a call. [`Config::registration`] can ask for neither: exposed data is then copied to or from memory
//! that stays registered (`bounces.rs`).
//!
//! # Memory ownership
//!
//! A view lies in the send queue, in its window or in the receive queue until a completion says that the device is done
//! with it. A copy of a message is memory with one such view (`copies.rs`). When a connection ends, its queue pair is put
//! into the error state, its flushed work is reported, its windows are freed, and the queue pair is destroyed; only then
//! `Quiesced` is reported.
//!
//! # Limits
//!
//! A peer whose Send meets no Receive sends it again, as often as [`Config::retries_no_receive`] says. The octets that
//! a peer writes by RDMA are not counted here.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use haulage_mr_pool::Local;
use haulage_proto::time::Instant;
use haulage_proto::verbs::{Access, QpNum, WrId};

use self::bounces::Copied;
use self::connection::{Connection, Objects, Phase};
use self::names::{LISTENER, token};
use self::proposal::Proposal;
use self::setup::{RESOLVE_AGAIN, failure, reads};
use self::state::{QUEUE, WAKER};
use super::{
    Caps, ConnectError, ConnectionAnswer, ConnectionParams, Counters, DisconnectReason, Event,
    Head, OpenResult, Outgoing, PeerUser, Place, Port, Provider, QueueFull, Receive, Sent, Waker,
    WorkQueue, sealed,
};
use crate::sys::ibverbs::CmId;
use crate::sys::interfaces;

mod bounces;
mod choice;
mod config;
mod connection;
mod copies;
mod device;
mod domains;
mod ending;
mod grants;
mod group;
mod helper;
mod listening;
mod manager;
mod memory;
mod names;
mod outbound;
mod place;
mod proposal;
mod receives;
mod registrations;
mod setup;
mod share;
mod state;
mod windows;
mod work;

pub use config::{Config, ReceiveQueues, Unavailable};
pub use connection::Incoming;
pub use device::{DeviceReport, devices};
pub use group::Group;
pub use names::ListenerId;
pub use place::{Gid, GidKind};
pub use state::Verbs;

impl sealed::Sealed for Verbs {}

impl Provider for Verbs {
    type Listener = ListenerId;
    type Incoming = Incoming;
    type Port<'a> = VerbsPort<'a>;

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn listen(&mut self, at: SocketAddr) -> io::Result<(ListenerId, SocketAddr)> {
        let listener = self.listening.name();
        let mut id =
            CmId::new(self.manager.channel(), LISTENER | listener.0).map_err(|r| r.error)?;
        let listens = id.listen(at).map_err(|refused| refused.error);
        // An id without an address is on all devices; peers of other devices are refused as they come.
        let elsewhere = match &listens {
            Ok(()) => id.has_device() && !id.is_on(self.manager.device()),
            Err(error) => error.raw_os_error() == Some(libc::ENODEV),
        };
        if elsewhere {
            let name = self.device_name();
            return Err(io::Error::other(format!(
                "the address does not lead to RDMA device {name}"
            )));
        }
        listens?;
        let bound = id.local().ok_or(io::ErrorKind::AddrNotAvailable)?;
        self.listening.open(listener, id);
        Ok((listener, bound))
    }

    fn unlisten(&mut self, listener: ListenerId) {
        self.listening.close(listener);
    }

    fn next_incoming(&mut self, _: Instant, _: impl FnOnce() -> bool) -> Option<Incoming> {
        self.next_arrival()
    }

    fn adopt(
        &mut self,
        now: Instant,
        incoming: Incoming,
        place: Place,
    ) -> Result<(), (Incoming, Place)> {
        self.welcome(now, incoming, place)
    }

    fn connect(
        &mut self,
        now: Instant,
        to: SocketAddr,
        params: &ConnectionParams<'_>,
    ) -> Result<QpNum, ConnectError> {
        let limit = self.config.handshake_timeout;
        let proposal = Proposal::to_peer(to, reads(params, &self.caps), params.private_data);
        let connection = Connection::new(Phase::Resolving, now.saturating_add(limit), proposal);
        let qp = self.slots.insert(|_| connection).ok_or(ConnectError::NoQueuePair)?;
        let started = CmId::new(self.manager.channel(), token(qp)).and_then(|mut id| {
            id.resolve(self.config.source, to, limit.min(RESOLVE_AGAIN))?;
            Ok(id)
        });
        match started {
            Ok(id) => {
                if let Some(connection) = self.slots.get(qp) {
                    connection.objects = Objects::Id(id);
                }
                self.pending.push(qp);
                Ok(qp)
            }
            Err(refused) => {
                self.forget(qp);
                Err(failure(&refused.error))
            }
        }
    }

    fn answer(&mut self, now: Instant, qp: QpNum, answer: &ConnectionAnswer<'_>) {
        match answer {
            ConnectionAnswer::Accept(params) => self.accept_request(now, qp, params),
            ConnectionAnswer::Reject(private_data) => self.reject_request(qp, private_data),
        }
    }

    /// A queue pair has no socket whose owner the system could name.
    fn peer_user(&mut self, qp: QpNum) -> PeerUser {
        let id = self.slots.get(qp).and_then(|connection| connection.id());
        let peer = id.and_then(|id| id.peer());
        peer.map_or(PeerUser::Unknown, |peer| interfaces::user_at(peer.ip()))
    }

    fn disconnect(&mut self, now: Instant, qp: QpNum) {
        let deadline = now.saturating_add(self.config.close_timeout);
        let Some(connection) = self.slots.get(qp) else { return };
        match connection.phase() {
            Phase::Established => {
                connection.enter(Phase::Closing);
                connection.wait_until(deadline);
                self.attend_to(qp);
                self.mark(qp);
            }
            Phase::Accepting => self.end(now, qp, DisconnectReason::Local),
            Phase::Resolving | Phase::Connecting => self.failed(qp, ConnectError::Refused),
            Phase::Requested => self.forget(qp),
            Phase::Closing | Phase::Flushing | Phase::Gone => {}
        }
    }

    fn port(&mut self, qp: QpNum) -> Option<VerbsPort<'_>> {
        Some(VerbsPort { verbs: self, qp })
    }

    fn post_receives(&mut self, batch: &mut Vec<Receive>) -> Result<(), QueueFull> {
        self.receives.post(batch, &mut self.slots, self.memory.regions())
    }

    fn reserve_receives(&mut self, qp: QpNum, count: u32) {
        self.receives.reserve(qp, count, &mut self.slots, self.memory.regions());
    }

    fn poll(&mut self, now: Instant, budget: usize, events: &mut Vec<Event<ListenerId>>) {
        self.now = now;
        self.reap(now, budget);
        if self.manager.is_due(now) {
            self.take_connection_events(now);
        }
        if self.memory.prepares() {
            self.take_domains(now);
        }
        if !self.pending.is_empty() {
            self.attend(now);
        }
        for _ in 0..budget.min(self.reports.len()) {
            let Some(event) = self.reports.pop_front() else { break };
            // The core has the event; from now on the slot may be used for another connection.
            match &event {
                Event::Quiesced(quiesced) => self.remove(quiesced.qp()),
                Event::Failed { qp, .. } => self.remove(*qp),
                _ => {}
            }
            events.push(event);
        }
    }

    fn poll_deadline(&self) -> Option<Instant> {
        if !self.reports.is_empty() || self.listening.has_peers() {
            return Some(self.now);
        }
        self.pending.iter().filter_map(|qp| self.slots.peek(*qp)).map(|c| c.deadline()).min()
    }

    fn sleep(&mut self, limit: Option<Duration>) {
        if !self.reports.is_empty() || self.listening.has_peers() {
            return;
        }
        self.queue.arm();
        if self.reap(self.now, usize::MAX) {
            return;
        }
        self.counters.syscalls += 1;
        for ready in self.epoll.wait(limit) {
            match ready.token {
                WAKER => self.waker.clear(),
                QUEUE => self.queue.disarm(),
                _ => self.manager.ask_at(Instant::ZERO),
            }
        }
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn counters(&self) -> Counters {
        let mut counters = self.counters;
        let Copied { there, back } = self.registrations.copied();
        counters.bytes_copied += back;
        counters.tagged_copied += there + back;
        counters
    }
}

/// Posts on one queue pair of a [`Verbs`].
#[derive(Debug)]
pub struct VerbsPort<'a> {
    verbs: &'a mut Verbs,
    qp: QpNum,
}

impl Port for VerbsPort<'_> {
    fn send(&mut self, head: &Head<'_>, message: &mut Outgoing, id: WrId) -> Sent {
        self.verbs.send_message(self.qp, head, message, id)
    }

    fn open(&mut self, lease: Local, access: Access) -> OpenResult {
        self.verbs.open(self.qp, lease, access)
    }

    fn post(&mut self, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        self.verbs.post_work(self.qp, batch)
    }
}

impl Drop for Verbs {
    fn drop(&mut self) {
        // Disconnect first, so that no peer reaches memory from here on.
        for qp in self.slots.all().collect::<Vec<_>>() {
            if let Some(id) = self.slots.get(qp).and_then(Connection::id) {
                let _ = id.disconnect();
            }
        }
        self.registrations.clear();
    }
}
