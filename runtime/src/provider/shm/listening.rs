//! Listening and connecting: abstract sockets that stand for ports.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use haulage_proto::time::Instant;
use haulage_proto::verbs::QpNum;

use super::connection::Connection;
use super::handshake::{Agreed, Handshake};
use super::hello::PartialHello;
use super::names::{LISTENERS, PORT_FIRST, PORTS, name, token};
use super::setup::Setup;
use super::state::{Listening, Shm};
use crate::provider::base::{ListenerId, Peers};
use crate::provider::{Arrival, ConnectError, Place};
use crate::sys::socket::is_of_the_peer;
use crate::sys::unix::{self, Listener, Stream};

/// A peer that was accepted: its stream, of which nothing was read and for which nothing is armed. It is of a user that
/// this process shares memory with.
#[derive(Debug)]
pub struct Incoming {
    stream: Stream,
    peer: SocketAddr,
    listener: ListenerId,
}

impl Arrival for Incoming {
    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn process(&self) -> Option<u32> {
        let peer = self.stream.peer().ok()?;
        u32::try_from(peer.process).ok()
    }
}

impl Shm {
    /// Gives a handshake a slot, and begins it. Returns the slot's number, unless all are in use.
    pub(super) fn begin(&mut self, socket: Option<Stream>, setup: Setup) -> Option<QpNum> {
        let qp = self.slots.reserve()?;
        let mut handshake = Handshake::new(qp, socket, setup);
        handshake.begin(&mut self.nic);
        self.handshakes.insert(qp, handshake);
        Some(qp)
    }

    pub(super) fn go_on_connecting(&mut self, qp: QpNum) {
        let Some(handshake) = self.handshakes.get_mut(&qp).filter(|one| one.is_connecting()) else {
            return;
        };
        if let Err(reason) = handshake.connect(&mut self.nic) {
            handshake.fail(&mut self.nic, reason);
            return;
        }
        let Some(socket) = handshake.socket() else { return self.connecting.push(qp) };
        if let Err(error) = self.epoll.watch(socket.fd(), token(qp)) {
            handshake.fail(&mut self.nic, ConnectError::System(error.kind()));
        }
    }

    /// Reads octets of the peer of a handshake, which becomes a connection once both ends have agreed.
    pub(super) fn read_handshake(&mut self, qp: QpNum) {
        let Some(handshake) = self.handshakes.get_mut(&qp) else { return };
        if let Some(agreed) = handshake.on_octets(&mut self.nic) {
            self.join(agreed);
        }
    }

    /// Has a connection take the place of a handshake.
    pub(super) fn join(&mut self, agreed: Agreed) {
        let qp = agreed.qp;
        self.handshakes.remove(&qp);
        self.slots.fill(qp, Connection::new(&mut self.nic, agreed));
        self.heat(qp);
    }

    /// Accepts the next peer that waits, in the turns of the listeners, if there is a slot for it here or beside.
    #[inline(never)]
    pub(super) fn accept_next(
        &mut self,
        has_room_beside: impl FnOnce() -> bool,
    ) -> Option<Incoming> {
        let has_room = !self.slots.is_full() || has_room_beside();
        for _ in 0..ACCEPTS_TRIED {
            let (listener, peers) = self.listeners.next_waiting()?;
            let Listening { socket, ip } = self.listeners.get(listener)?;
            if !has_room {
                // A peer that was announced displaces the setup that has been silent longest; others wait for a slot.
                let displaces = peers == Peers::Announced && socket.is_waited_for();
                self.listeners.leave(listener, Peers::Paused);
                if displaces {
                    // Its slot is for the next turn: a handshake that gives way had one to be read in.
                    self.evict();
                    return None;
                }
                continue;
            }
            self.nic.counters.syscalls += 1;
            match socket.accept() {
                Ok(Some(stream)) => {
                    let peer = SocketAddr::new(*ip, 0);
                    self.listeners.accepted(listener);
                    if stream.peer().is_ok_and(|peer| peer.may_share_with(unix::user())) {
                        return Some(Incoming { stream, peer, listener });
                    }
                    self.nic.counters.newcomers.forbidden += 1;
                }
                Ok(None) => self.listeners.leave(listener, Peers::Expected),
                Err(error) if is_of_the_peer(&error) => {
                    self.listeners.accepted(listener);
                    self.nic.counters.newcomers.closed += 1;
                }
                // Most likely no descriptors are left.
                Err(error) => {
                    self.nic.counters.newcomers.accepts.count(&error);
                    self.accept_at = self.nic.now.saturating_add(ACCEPT_RETRY);
                    self.listeners.leave(listener, Peers::Paused);
                    if peers == Peers::Announced {
                        self.evict();
                    }
                    return None;
                }
            }
        }
        None
    }

    /// Ends the oldest setup, so that silent peers cannot keep others out.
    fn evict(&mut self) {
        while let Some(qp) = self.listeners.longest_awaited() {
            let handshake = self.handshakes.get_mut(&qp).filter(|one| one.is_awaited());
            if let Some(handshake) = handshake {
                handshake.fail(&mut self.nic, ConnectError::NoQueuePair);
                return;
            }
        }
    }

    /// Begins the handshake of a peer that was accepted.
    pub(super) fn welcome(
        &mut self,
        incoming: Incoming,
        place: Place,
    ) -> Result<(), (Incoming, Place)> {
        if self.slots.is_full() {
            self.evict();
            return Err((incoming, place));
        }
        let Incoming { stream, peer, listener } = incoming;
        let (fd, question) = (stream.fd(), PartialHello::default());
        let setup = Setup::Passive { question, listener, peer, place };
        let Some(qp) = self.begin(Some(stream), setup) else { return Ok(()) };
        if let Err(error) = self.epoll.watch(fd, token(qp)) {
            self.nic.counters.newcomers.accepts.count(&error);
            self.handshakes.remove(&qp);
            self.slots.remove(qp);
            return Ok(());
        }
        self.listeners.await_question(qp, self.slots.in_use());
        // The request may have arrived already.
        self.read_handshake(qp);
        self.sweep();
        Ok(())
    }

    /// Has accepts be tried again where a peer was left waiting, if there is a slot for it here or beside.
    pub(super) fn resume_listeners(&mut self) {
        if self.accept_at <= self.nic.now && !self.slots.is_full() {
            self.listeners.resume();
        }
    }

    /// Returns when to accept again: at once where peers may wait, or the request of one was read; later where one was left
    /// waiting although there are slots, because the system had no descriptor for it.
    pub(super) fn accept_deadline(&self) -> Option<Instant> {
        if self.listeners.is_any_waiting() || self.nic.has_reports() {
            return Some(self.nic.now);
        }
        let waits = !self.slots.is_full() && self.listeners.is_any_paused();
        waits.then_some(self.accept_at)
    }

    /// Binds a socket that stands for a port. Returns the listener and its address.
    pub(super) fn start_listening(
        &mut self,
        at: SocketAddr,
    ) -> io::Result<(ListenerId, SocketAddr)> {
        let listener = self.listeners.next()?;
        let ip = at.ip();
        if !ip.is_loopback() {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let (socket, port) = match at.port() {
            0 => self.bind_free()?,
            port => (Listener::bind(&name(port))?, port),
        };
        self.epoll.watch(socket.fd(), LISTENERS + u64::from(listener.0))?;
        self.listeners.add(Listening { socket, ip });
        Ok((listener, SocketAddr::new(ip, port)))
    }

    /// Finds out whether a server can listen at `at` over shared memory.
    ///
    /// # Errors
    /// The address is no loopback, or another server has the port.
    pub fn check_listen(at: SocketAddr) -> io::Result<()> {
        if !at.ip().is_loopback() {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        match at.port() {
            0 => Ok(()),
            port => Listener::bind(&name(port)).map(drop),
        }
    }

    /// Listens under a free port.
    fn bind_free(&mut self) -> io::Result<(Listener, u16)> {
        let first = self.nic.handles.offset() >> 12;
        for next in 0..u64::from(PORTS) {
            let port = (first + next) % u64::from(PORTS);
            let port = PORT_FIRST + u16::try_from(port).unwrap_or_default();
            match Listener::bind(&name(port)) {
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
                other => return Ok((other?, port)),
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }
}

/// Accepts tried in one call.
const ACCEPTS_TRIED: u32 = 64;
/// The time to wait when the system has no descriptors left.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
