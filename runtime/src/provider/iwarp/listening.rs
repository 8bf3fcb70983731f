//! Listening, and which connection gives way when there is room for no more.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use haulage_proto::iwarp::mpa::handshake::Passive;
use haulage_proto::verbs::QpNum;

use super::handshake::Handshake;
use super::setup::Setup;
use super::state::Iwarp;
use crate::provider::base::{ListenerId, Peers};
use crate::provider::{Arrival, ConnectError, Place};
use crate::sys::socket::{Listener, Socket, Vanished, is_of_the_peer};

/// A peer that was accepted: its socket, of which nothing was read and for which nothing is armed.
#[derive(Debug)]
pub struct Incoming {
    socket: Socket,
    peer: SocketAddr,
    listener: ListenerId,
}

impl Arrival for Incoming {
    fn peer(&self) -> SocketAddr {
        self.peer
    }
}

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

    /// Accepts the next peer that waits, in the turns of the listeners, if there is room for it here or beside.
    #[inline(never)]
    pub(super) fn accept_next(
        &mut self,
        has_room_beside: impl FnOnce() -> bool,
    ) -> Option<Incoming> {
        let has_room = !self.slots.is_full() || has_room_beside();
        for _ in 0..ACCEPTS_TRIED {
            let (listener, _) = self.listeners.next_waiting()?;
            let socket = self.listeners.get(listener)?;
            self.nic.counters.syscalls += 1;
            if !has_room {
                if !socket.is_waited_for() {
                    // The next peer is reported, and may need room.
                    self.watch_listener(listener);
                    continue;
                }
                // Its slot is for the next turn: a handshake that gives way had one to be read in.
                self.listeners.leave(listener, Peers::Paused);
                self.evict();
                return None;
            }
            match socket.accept(Vanished::after(self.nic.watches.timeout())) {
                Ok(Some((socket, peer))) => {
                    self.listeners.accepted(listener);
                    return Some(Incoming { socket, peer, listener });
                }
                Ok(None) => self.watch_listener(listener),
                Err(error) if is_of_the_peer(&error) => {
                    self.listeners.accepted(listener);
                    self.nic.counters.newcomers.closed += 1;
                }
                Err(error) => {
                    self.nic.counters.newcomers.accepts.count(&error);
                    // Most likely no descriptors are left: the handshake that has been silent longest gives up its own.
                    self.listeners.leave(listener, Peers::Paused);
                    self.accept_retry = Some(self.nic.now.saturating_add(ACCEPT_RETRY));
                    self.evict();
                    return None;
                }
            }
        }
        None
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
        let Incoming { socket, peer, listener } = incoming;
        let setup = Setup::Passive { handshake: Passive::new(), listener, peer, place };
        match self.begin(socket, setup) {
            Ok(qp) => {
                self.listeners.await_question(qp, self.slots.in_use());
                self.read_handshake(qp);
            }
            Err(_) => self.nic.counters.newcomers.accepts.other += 1,
        }
        self.settle_all();
        Ok(())
    }

    /// Gives a handshake a slot, and begins it.
    pub(super) fn begin(&mut self, socket: Socket, setup: Setup) -> Result<QpNum, ConnectError> {
        let qp = self.slots.reserve().ok_or(ConnectError::NoQueuePair)?;
        if let Err(error) = self.reactor.adopt(socket.fd(), qp) {
            self.slots.remove(qp);
            return Err(ConnectError::System(error.kind()));
        }
        let mut handshake = Handshake::new(qp, socket, setup);
        handshake.begin(&mut self.nic);
        self.handshakes.insert(qp, handshake);
        Ok(qp)
    }

    /// Ends the oldest handshake, so that silent peers cannot keep others out.
    fn evict(&mut self) {
        while let Some(qp) = self.listeners.longest_awaited() {
            if let Some(handshake) = self.handshakes.get(qp)
                && handshake.evict(&mut self.nic)
            {
                self.nic.counters.newcomers.crowded_out += 1;
                self.settle_all();
                return;
            }
        }
    }

    fn watch_listener(&mut self, listener: ListenerId) {
        let Some(socket) = self.listeners.get(listener) else { return };
        let watched = self.reactor.acceptable_again(socket.fd(), listener.0);
        self.listeners
            .leave(listener, if watched.is_ok() { Peers::Expected } else { Peers::Paused });
    }
}

/// Accepts tried in one call.
const ACCEPTS_TRIED: u32 = 64;

/// The time to wait when the system has no descriptors left.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
