//! The life of a connection: its state, its socket, and its peer's progress.
//!
//! # Normal operation
//!
//! A connection lives as [`ConnectionState`] says, once its [`Handshake`](super::handshake::Handshake) is over. The
//! socket carries doorbells both ways; [`Line`] says what is known of its other end.

use std::time::Duration;

use haulage_proto::time::Instant;
use haulage_proto::verbs::QpNum;

use super::nic::Nic;
use crate::provider::base::{ConnectionState, Progress, Step, Waiting};
use crate::provider::events::Stall;
use crate::sys::unix::{Process, Stream};

/// The state of a connection, and its socket.
#[derive(Debug)]
pub(super) struct Life {
    qp: QpNum,
    state: ConnectionState,
    line: Line,
    deadline: Option<Instant>,
    progress: Progress,
}

/// The socket that connected both ends, and what is left of it.
#[derive(Debug)]
enum Line {
    /// Both ends have it open, as far as we know.
    Open(Stream),
    /// The peer has closed it: nothing comes that is not in the ring yet.
    Over(Stream),
    /// It is closed, and the connection in quarantine: the peer's process tells when the peer is gone.
    Held(Process),
    Closed,
}

impl Life {
    /// Begins the life of a connection on which both ends have agreed.
    pub(super) fn new(qp: QpNum, socket: Option<Stream>) -> Self {
        let line = socket.map_or(Line::Closed, Line::Open);
        let (state, progress) = (ConnectionState::Open, Progress::default());
        Self { qp, state, line, deadline: None, progress }
    }

    /// Notes that the peer has ended the connection: nothing comes that is not in the ring yet.
    pub(super) fn be_over(&mut self) {
        self.line = match std::mem::replace(&mut self.line, Line::Closed) {
            Line::Open(socket) => Line::Over(socket),
            other => other,
        };
    }

    /// Hears the doorbells that have rung, and notes whether the peer has closed the socket.
    pub(super) fn hear_doorbells(&mut self, nic: &mut Nic) {
        nic.counters.syscalls += 1;
        if self.socket().is_some_and(|socket| !socket.discard()) {
            self.be_over();
        }
    }

    /// Starts to close in order. Returns whether the connection was open.
    pub(super) fn close(&mut self, nic: &mut Nic) -> bool {
        let was_open = self.state.step(Step::Close);
        if was_open {
            self.set_deadline(nic, nic.config.close_timeout);
        }
        was_open
    }

    /// Sets the deadline `after` from now.
    fn set_deadline(&mut self, nic: &mut Nic, after: Duration) {
        let deadline = nic.now.saturating_add(after);
        self.deadline = Some(deadline);
        nic.deadlines.add(deadline, self.qp);
    }

    /// Returns whether this is still the connection's deadline, which it then has no more.
    pub(super) fn take_deadline(&mut self, deadline: Instant) -> bool {
        self.deadline.take_if(|due| *due == deadline).is_some()
    }

    /// Closes the socket of a connection whose peer is not copying.
    pub(super) fn shut(&mut self) {
        if let Line::Open(socket) | Line::Over(socket) = self.stop() {
            socket.shutdown();
        }
    }

    /// Closes the socket of a connection whose peer is copying, and puts the connection into quarantine.
    pub(super) fn hold(&mut self, nic: &mut Nic) {
        if let Line::Open(socket) | Line::Over(socket) = self.stop() {
            self.line = socket.peer_process().map_or(Line::Closed, Line::Held);
            socket.shutdown();
        }
        self.state.step(Step::Held);
        nic.link.quarantines += 1;
        nic.quarantined.push(self.qp);
    }

    /// Takes the socket from a connection that ends, and its deadline.
    const fn stop(&mut self) -> Line {
        self.deadline = None;
        std::mem::replace(&mut self.line, Line::Closed)
    }

    /// Reports the end of a connection whose views have all been dropped, and has its slot freed.
    pub(super) fn release(&mut self, nic: &mut Nic) {
        self.state.step(Step::Ended);
        self.line = Line::Closed;
        nic.reports.quiesced(self.qp);
        nic.closed.push(self.qp);
    }

    /// Has the connection checked for progress, as work waits for its peer.
    #[cold]
    pub(super) fn watch(&mut self, nic: &mut Nic) {
        self.progress.watch(&mut nic.watches, nic.now, self.qp);
    }

    /// Notes that a message in parts has begun, and has the connection checked for progress.
    pub(super) fn message_begins(&mut self, nic: &mut Nic) {
        self.progress.message.count();
        self.watch(nic);
    }

    /// Notes that requests which waited for the peer have gone on.
    pub(super) const fn output_moves(&mut self) {
        self.progress.output.count();
    }

    /// Checks the peer's progress. Returns the kind of work with which it has made none for too long.
    pub(super) fn check(&mut self, nic: &mut Nic, waiting: &Waiting) -> Option<Stall> {
        let stall = self.progress.check(waiting);
        if waiting.is_any() {
            self.watch(nic);
        }
        stall
    }

    /// Rings the doorbell of a peer that sleeps.
    #[cold]
    pub(super) fn ring(&self, nic: &mut Nic) {
        if let Some(socket) = self.socket() {
            nic.counters.syscalls += 1;
            nic.link.doorbells += 1;
            // If there is no room, doorbells are on their way that the peer has not heard.
            let _ = socket.send(&[0], &[]);
        }
    }

    #[inline]
    pub(super) const fn qp(&self) -> QpNum {
        self.qp
    }

    /// Returns the socket, until the connection has ended.
    pub(super) const fn socket(&self) -> Option<&Stream> {
        match &self.line {
            Line::Open(socket) | Line::Over(socket) => Some(socket),
            Line::Held(_) | Line::Closed => None,
        }
    }

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.state == ConnectionState::Open
    }

    #[inline]
    pub(super) fn is_draining(&self) -> bool {
        self.state == ConnectionState::Draining
    }

    /// Returns whether the connection has not ended.
    #[inline]
    pub(super) const fn is_live(&self) -> bool {
        self.state.is_live()
    }

    pub(super) fn is_quarantined(&self) -> bool {
        self.state == ConnectionState::Quarantined
    }

    /// Returns whether the peer has ended the connection, and we have not yet.
    #[inline]
    pub(super) const fn is_over(&self) -> bool {
        matches!(self.line, Line::Over(_))
    }

    /// Returns whether the process of the peer is known to be gone.
    pub(super) fn is_peer_gone(&self) -> bool {
        matches!(&self.line, Line::Held(process) if process.is_gone())
    }

    /// Returns whether the connection is on the list of those to be checked for progress.
    #[inline]
    pub(super) const fn is_watched(&self) -> bool {
        self.progress.is_watched()
    }
}
