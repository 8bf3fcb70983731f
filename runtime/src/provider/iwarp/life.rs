//! The life of a connection: its socket, its state, and what has the provider come back to it.
//!
//! # Normal operation
//!
//! A connection lives as [`ConnectionState`] says. `life/handshake.rs` sets it up, [`Opening`] knows its first FPDUs.
//! Whatever is left to be done for a connection is done when it is settled, at its deadline, or at a check of its
//! peer's progress.

use haulage_proto::iwarp::mpa::handshake::Rtr;
use haulage_proto::iwarp::terminate::Fault;
use haulage_proto::time::Instant;
use haulage_proto::verbs::QpNum;

use super::nic::Nic;
use super::opening::Opening;
use super::setup::Setup;
use crate::provider::DisconnectReason;
use crate::provider::base::{ConnectionState, Progress, Step};
use crate::sys::socket::Socket;

mod handshake;

/// The state of a connection, and its socket.
#[derive(Debug)]
pub(super) struct Life {
    qp: QpNum,
    socket: Socket,
    state: ConnectionState,
    /// The state of connection setup, until the connection is open.
    setup: Option<Box<Setup>>,
    opening: Opening,
    /// Why the connection ends, once it does.
    reason: DisconnectReason,
    deadline: Option<Instant>,
    /// The connection is on the provider's list of those to be settled.
    unsettled: bool,
    progress: Progress,
}

impl Life {
    pub(super) fn new(qp: QpNum, socket: Socket, state: ConnectionState, setup: Setup) -> Self {
        Self {
            qp,
            socket,
            state,
            setup: Some(Box::new(setup)),
            opening: Opening::Setup,
            reason: DisconnectReason::Lost,
            deadline: None,
            unsettled: false,
            progress: Progress::default(),
        }
    }

    /// Has the connection settled before the provider's work is done.
    pub(super) fn unsettle(&mut self, nic: &mut Nic) {
        if !self.unsettled {
            self.unsettled = true;
            nic.unsettled.push_back(self.qp);
        }
    }

    /// Notes that the connection has left the list of those to be settled.
    pub(super) const fn begin_settling(&mut self) {
        self.unsettled = false;
    }

    /// Has the connection checked for progress, as work waits for its peer.
    #[inline]
    pub(super) fn watch(&mut self, nic: &mut Nic) {
        self.progress.watch(&mut nic.watches, nic.now, self.qp);
    }

    /// Sets the deadline `after` from now.
    pub(super) fn set_deadline(&mut self, nic: &mut Nic, after: std::time::Duration) {
        let deadline = nic.now.saturating_add(after);
        self.deadline = Some(deadline);
        nic.deadlines.add(deadline, self.qp);
    }

    /// Returns whether this is still the connection's deadline, which it then has no more.
    pub(super) fn take_deadline(&mut self, deadline: Instant) -> bool {
        self.deadline.take_if(|due| *due == deadline).is_some()
    }

    /// Notes that an FPDU has arrived whole. Returns the ready-to-receive indication that it may be.
    pub(super) fn heard(&mut self, nic: &mut Nic) -> Option<Rtr> {
        match std::mem::replace(&mut self.opening, Opening::Over) {
            Opening::Setup | Opening::Over => None,
            Opening::Unheard(_) => {
                // On a connection that is closing, the deadline is for the closing, and stays.
                if self.state == ConnectionState::Open {
                    self.deadline = None;
                }
                None
            }
            Opening::Listening(rtr) => {
                self.unsettle(nic);
                rtr
            }
        }
    }

    /// Returns whether a keepalive is due, as the peer's first FPDU has not arrived in time.
    pub(super) fn is_keepalive_due(&mut self, nic: &mut Nic) -> bool {
        let Some(next) = self.opening.on_silence() else { return false };
        self.set_deadline(nic, next);
        self.unsettle(nic);
        true
    }

    /// Starts to close in order.
    pub(super) fn close(&mut self, nic: &mut Nic) {
        if self.state.step(Step::Close) {
            self.reason = DisconnectReason::Local;
            self.set_deadline(nic, nic.config.close_timeout);
            self.unsettle(nic);
        }
    }

    /// Starts to end the connection because the peer broke a rule. Returns whether the peer is to be told which.
    pub(super) fn fault(&mut self, nic: &mut Nic, fault: Fault) -> bool {
        if !self.state.step(Step::Faulted) {
            return false;
        }
        self.reason = DisconnectReason::PeerMisbehaved(fault.rule());
        nic.wire.faults += 1;
        nic.wire.crc_failures += u64::from(fault == Fault::Crc);
        self.set_deadline(nic, nic.config.close_timeout);
        self.unsettle(nic);
        true
    }

    /// Closes our half, as nothing is left to be sent. Returns whether the queue pair is to report its end.
    pub(super) fn shut_down_write(&mut self, nic: &mut Nic) -> bool {
        self.socket.shutdown_write();
        let is_drained = self.state.step(Step::Drained);
        if is_drained {
            self.set_deadline(nic, nic.config.close_timeout);
            self.unsettle(nic);
        }
        is_drained
    }

    /// Closes at once. Returns whether the queue pair is to report its end.
    pub(super) fn end(&mut self, nic: &mut Nic) -> bool {
        let was_live = self.state.is_live();
        let has_ended = self.state.step(Step::Ended);
        if has_ended {
            self.unsettle(nic);
        }
        has_ended && was_live
    }

    /// Says why the connection ends.
    pub(super) const fn set_reason(&mut self, reason: DisconnectReason) {
        self.reason = reason;
    }

    pub(super) const fn progress_mut(&mut self) -> &mut Progress {
        &mut self.progress
    }

    #[inline]
    pub(super) const fn qp(&self) -> QpNum {
        self.qp
    }

    #[inline]
    pub(super) const fn socket(&self) -> &Socket {
        &self.socket
    }

    #[inline]
    pub(super) const fn state(&self) -> ConnectionState {
        self.state
    }

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.state == ConnectionState::Open
    }

    #[inline]
    pub(super) const fn opening(&self) -> Opening {
        self.opening
    }

    pub(super) const fn reason(&self) -> DisconnectReason {
        self.reason
    }

    /// Returns whether the connection is on the list of those to be checked for progress.
    #[inline]
    pub(super) const fn is_watched(&self) -> bool {
        self.progress.is_watched()
    }
}
