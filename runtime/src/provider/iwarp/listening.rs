//! Listening: who asks for a connection, and who gives way where there is room for no more.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use haulage_proto::iwarp::mpa::handshake::Passive;

use super::connection::State;
use super::setup::Setup;
use super::{Iwarp, ListenerId};
use crate::sys::socket::{Listener, Socket, Vanished};

/// A place where peers ask for connections.
#[derive(Debug)]
pub(super) struct Listening {
    /// `None` once we stopped listening.
    socket: Option<Listener>,
    /// No news is asked for until a slot is free.
    paused: bool,
}

impl Iwarp {
    /// Binds a socket and asks for news of it. Returns the address it got.
    pub(super) fn start_listening(
        &mut self,
        at: SocketAddr,
    ) -> io::Result<(ListenerId, SocketAddr)> {
        let listener = u16::try_from(self.listeners.len())
            .map_err(|_| io::Error::from(io::ErrorKind::QuotaExceeded))?;
        let socket = Listener::bind(at)?;
        let bound = socket.local_addr()?;
        self.reactor.acceptable(socket.fd(), listener, true)?;
        self.listeners.push(Listening { socket: Some(socket), paused: false });
        Ok((ListenerId(listener), bound))
    }

    /// Closes the socket: nobody else can ask.
    pub(super) fn stop_listening(&mut self, listener: ListenerId) {
        if let Some(listening) = self.listeners.get_mut(usize::from(listener.0))
            && listening.socket.take().is_some()
        {
            self.reactor.forget(listener.0);
            // Takes effect now: a ring holds the socket until it has been entered.
            let _ = self.reactor.look();
        }
    }

    /// Accepts whoever asks, as many as one report stands for.
    pub(super) fn accept_all(&mut self, listener: u16) {
        for _ in 0..ACCEPTS_PER_NEWS {
            let Some(listening) = self.listeners.get_mut(usize::from(listener)) else { return };
            let Some(socket) = &listening.socket else { return };
            if self.slots.is_full() {
                self.nic.counters.syscalls += 1;
                if !socket.is_waited_for() {
                    // Whoever comes next is reported, and may need room.
                    break;
                }
                listening.paused = true;
                self.evict();
                return;
            }
            self.nic.counters.syscalls += 1;
            match socket.accept(Vanished::after(self.nic.watches.timeout())) {
                Ok(Some((socket, peer))) => self.welcome(socket, peer, ListenerId(listener)),
                Ok(None) => break,
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    // Out of descriptors, most likely: whoever is silent longest gives up its own.
                    listening.paused = true;
                    self.accept_retry = Some(self.nic.now.saturating_add(ACCEPT_RETRY));
                    self.evict();
                    return;
                }
            }
        }
        self.watch_listener(listener);
    }

    /// Ends the oldest handshake, so that silent peers cannot keep others out.
    fn evict(&mut self) {
        while let Some(qp) = self.awaiting.pop_front() {
            if let Some(connection) = self.slots.get(qp)
                && connection.state == State::Awaiting
            {
                self.nic.wire.handshakes_failed += 1;
                return connection.end(&mut self.nic);
            }
        }
    }

    fn welcome(&mut self, socket: Socket, peer: SocketAddr, listener: ListenerId) {
        let setup = Setup::Passive { handshake: Passive::new(), listener, peer };
        if let Ok(qp) = self.admit(socket, State::Awaiting, setup) {
            self.awaiting.push_back(qp);
            while self.awaiting.len() > self.slots.in_use() {
                self.awaiting.pop_front();
            }
        }
    }

    fn watch_listener(&mut self, listener: u16) {
        let Some(listening) = self.listeners.get_mut(usize::from(listener)) else { return };
        if let Some(socket) = &listening.socket {
            listening.paused = self.reactor.acceptable(socket.fd(), listener, false).is_err();
        }
    }

    /// Tries again where nothing was accepted for want of room.
    pub(super) fn resume_listeners(&mut self) {
        for listener in 0..u16::try_from(self.listeners.len()).unwrap_or(u16::MAX) {
            if self.listeners.get(usize::from(listener)).is_some_and(|l| l.paused) {
                self.accept_all(listener);
            }
        }
    }
}

/// Connections accepted before the others have their turn.
const ACCEPTS_PER_NEWS: u32 = 64;

/// How long to wait when the system has no descriptors left.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
