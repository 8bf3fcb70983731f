//! Listening, and which connection gives way when there is room for no more.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use haulage_proto::iwarp::mpa::handshake::Passive;
use haulage_proto::verbs::QpNum;

use super::connection::Connection;
use super::setup::Setup;
use super::state::Iwarp;
use crate::provider::ConnectError;
use crate::provider::base::{ConnectionState, ListenerId};
use crate::sys::socket::{Listener, Socket, Vanished, is_of_the_peer};

impl Iwarp {
    /// Binds a socket and asks for news of it. Returns the listener and its address.
    pub(super) fn start_listening(
        &mut self,
        at: SocketAddr,
    ) -> io::Result<(ListenerId, SocketAddr)> {
        let listener = self.listeners.next()?;
        let socket = Listener::bind(at)?;
        let bound = socket.local_addr()?;
        self.reactor.acceptable(socket.fd(), listener.0)?;
        self.listeners.add(socket);
        Ok((listener, bound))
    }

    /// Closes the socket of a listener: no more peers can connect.
    pub(super) fn stop_listening(&mut self, listener: ListenerId) {
        if self.listeners.close(listener).is_some() {
            self.reactor.forget(listener.0);
            // A ring holds the socket until it has been entered, so enter it now.
            let _ = self.reactor.look();
        }
    }

    /// Accepts the peers that wait, as many as one report stands for.
    pub(super) fn accept_all(&mut self, listener: ListenerId) {
        for _ in 0..ACCEPTS_PER_NEWS {
            let Some(socket) = self.listeners.get(listener) else { return };
            self.nic.counters.syscalls += 1;
            if self.slots.is_full() {
                if !socket.is_waited_for() {
                    // The next peer is reported, and may need room.
                    break;
                }
                self.listeners.pause(listener);
                return self.evict();
            }
            match socket.accept(Vanished::after(self.nic.watches.timeout())) {
                Ok(Some((socket, peer))) => self.welcome(socket, peer, listener),
                Ok(None) => break,
                Err(error) if is_of_the_peer(&error) => {
                    self.nic.counters.newcomers.closed += 1;
                }
                Err(error) => {
                    self.nic.counters.newcomers.accepts.count(&error);
                    // Most likely no descriptors are left: the handshake that has been silent longest gives up its own.
                    self.listeners.pause(listener);
                    self.accept_retry = Some(self.nic.now.saturating_add(ACCEPT_RETRY));
                    return self.evict();
                }
            }
        }
        self.watch_listener(listener);
    }

    /// Gives a connection a slot.
    pub(super) fn admit(
        &mut self,
        socket: Socket,
        state: ConnectionState,
        setup: Setup,
    ) -> Result<QpNum, ConnectError> {
        let fd = socket.fd();
        let qp = self
            .slots
            .insert(|qp| Connection::new(qp, socket, state, setup))
            .ok_or(ConnectError::NoQueuePair)?;
        if let Err(error) = self.reactor.adopt(fd, qp) {
            self.slots.remove(qp);
            return Err(ConnectError::System(error.kind()));
        }
        if let Some(connection) = self.slots.get(qp) {
            connection.begin(&mut self.nic);
        }
        Ok(qp)
    }

    /// Accepts again on listeners where there was no room.
    pub(super) fn resume_listeners(&mut self) {
        let mut from = 0;
        while let Some(listener) = self.listeners.paused(from) {
            self.accept_all(listener);
            from = listener.0.saturating_add(1);
        }
    }

    /// Ends the oldest handshake, so that silent peers cannot keep others out.
    fn evict(&mut self) {
        while let Some(qp) = self.listeners.longest_awaited() {
            if let Some(connection) = self.slots.get(qp)
                && connection.evict(&mut self.nic)
            {
                self.nic.counters.newcomers.crowded_out += 1;
                return;
            }
        }
    }

    fn welcome(&mut self, socket: Socket, peer: SocketAddr, listener: ListenerId) {
        let setup = Setup::Passive { handshake: Passive::new(), listener, peer };
        if let Ok(qp) = self.admit(socket, ConnectionState::Awaiting, setup) {
            self.listeners.await_question(qp, self.slots.in_use());
        } else {
            self.nic.counters.newcomers.accepts.other += 1;
        }
    }

    fn watch_listener(&mut self, listener: ListenerId) {
        let Some(socket) = self.listeners.get(listener) else { return };
        match self.reactor.acceptable_again(socket.fd(), listener.0) {
            Ok(()) => self.listeners.resume(listener),
            Err(_) => self.listeners.pause(listener),
        }
    }
}

/// Connections accepted in one call, before other listeners have their turn.
const ACCEPTS_PER_NEWS: u32 = 64;

/// The time to wait when the system has no descriptors left.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
