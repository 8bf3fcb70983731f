//! Who connects to whom: abstract sockets that stand for ports.

use std::io;
use std::net::{IpAddr, SocketAddr};

use haulage_proto::verbs::QpNum;

use super::connection::{Connection, State};
use super::setup::Setup;
use super::watch::token;
use super::{ListenerId, Shm};
use crate::provider::ConnectError;
use crate::sys::unix::{self, Listener, Stream};

/// A listener.
#[derive(Debug)]
pub(super) struct Listening {
    /// `None` once we stopped listening.
    pub(super) socket: Option<Listener>,
    pub(super) ip: IpAddr,
    /// It has peers that we had no room for.
    pub(super) paused: bool,
}

impl Shm {
    pub(super) fn go_on_connecting(&mut self, qp: QpNum) {
        let Some(connection) = self.slots.get(qp) else { return };
        if connection.state != State::Connecting {
            return;
        }
        if let Err(reason) = connection.connect(&mut self.nic) {
            return connection.fail_setup(&mut self.nic, reason);
        }
        match &connection.socket {
            None => self.connecting.push(qp),
            Some(socket) => {
                if let Err(error) = self.epoll.watch(socket.fd(), token(qp)) {
                    connection.fail_setup(&mut self.nic, ConnectError::System(error.kind()));
                }
            }
        }
    }

    /// Accepts who waits. `evicts`: for want of room, whoever is silent longest gives up its own.
    pub(super) fn accept_all(&mut self, listener: u16, evicts: bool) {
        for _ in 0..ACCEPTS_PER_LOOK {
            let Some(listening) = self.listeners.get_mut(usize::from(listener)) else { return };
            let Some(socket) = &listening.socket else { return };
            listening.paused = true;
            if self.slots.is_full() {
                if evicts && socket.is_waited_for() {
                    self.evict();
                }
                return;
            }
            self.nic.counters.syscalls += 1;
            match socket.accept() {
                Ok(Some(stream)) => self.welcome(stream, ListenerId(listener)),
                Ok(None) => {
                    listening.paused = false;
                    return;
                }
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
                // Out of descriptors, most likely.
                Err(_) => {
                    if evicts {
                        self.evict();
                    }
                    return;
                }
            }
        }
    }

    /// Ends the oldest setup, so that silent peers cannot keep others out.
    fn evict(&mut self) {
        while let Some(qp) = self.awaiting.pop_front() {
            if let Some(connection) = self.slots.get(qp)
                && connection.state == State::Awaiting
            {
                return connection.fail_setup(&mut self.nic, ConnectError::TimedOut);
            }
        }
    }

    fn welcome(&mut self, stream: Stream, listener: ListenerId) {
        let known = stream.peer().is_ok_and(|peer| peer.may_share_with(unix::user()));
        if !known {
            self.nic.link.setups_failed += 1;
            return;
        }
        let ip = self.listeners.get(usize::from(listener.0)).map(|listening| listening.ip);
        let peer = SocketAddr::new(ip.unwrap_or(IpAddr::from([127, 0, 0, 1])), 0);
        let setup = Setup::Passive { incoming: Default::default(), listener, peer };
        let fd = stream.fd();
        let admitted =
            self.slots.insert(|qp| Connection::new(qp, Some(stream), State::Awaiting, setup));
        let Some(qp) = admitted else { return };
        if self.epoll.watch(fd, token(qp)).is_err() {
            self.slots.remove(qp);
            return;
        }
        self.awaiting.push_back(qp);
        while self.awaiting.len() > self.slots.in_use() {
            self.awaiting.pop_front();
        }
        if let Some(connection) = self.slots.get(qp) {
            let timeout = self.nic.config.handshake_timeout;
            connection.set_deadline(&mut self.nic, timeout);
            // It may have spoken already.
            connection.on_setup_octets(&mut self.nic);
        }
    }

    /// Goes on accepting where somebody was left waiting.
    pub(super) fn resume_listeners(&mut self) {
        for listener in 0..u16::try_from(self.listeners.len()).unwrap_or(u16::MAX) {
            if self.listeners.get(usize::from(listener)).is_some_and(|l| l.paused) {
                self.accept_all(listener, false);
            }
        }
    }

    /// Listens under a port that nobody else does.
    pub(super) fn bind_free(&mut self) -> io::Result<(Listener, u16)> {
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

/// Returns the name of the socket that stands for a port.
pub(super) fn name(port: u16) -> Vec<u8> {
    format!("haulage-shm-{port}").into_bytes()
}

/// Connections accepted before the others have their turn.
const ACCEPTS_PER_LOOK: u32 = 64;
/// Ports to choose from: those no service is assigned.
pub(super) const PORT_FIRST: u16 = 49152;
const PORTS: u16 = 16384;
