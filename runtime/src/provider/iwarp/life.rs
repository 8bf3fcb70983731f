//! The life of a connection: its socket, its state, and its peer's progress.
//!
//! # Normal operation
//!
//! A connection lives as [`ConnectionState`] says, from the end of its handshake on. [`Opening`] knows its first FPDUs.
//! Whatever is left to be done for a connection is done when it is settled, at its deadline, or at a check of its
//! peer's progress.

use haulage_proto::iwarp::mpa::handshake::Rtr;
use haulage_proto::iwarp::terminate::Fault;
use haulage_proto::time::Instant;
use haulage_proto::verbs::QpNum;

use super::lane::Lane;
use super::nic::Nic;
use super::opening::{Opening, keepalive_after};
use crate::provider::DisconnectReason;
use crate::provider::base::{ConnectionState, Progress, Step};
use crate::sys::socket::Socket;

/// The state of a connection, and its socket.
#[derive(Debug)]
pub(super) struct Life {
    lane: Lane,
    state: ConnectionState,
    opening: Opening,
    /// Why the connection ends, once it does.
    reason: DisconnectReason,
    progress: Progress,
}

impl Life {
    /// Begins the life of a connection on which both ends have agreed.
    pub(super) fn new(nic: &mut Nic, mut lane: Lane, opening: Opening) -> Self {
        lane.clear_deadline();
        if let Opening::Unheard(sent) = opening {
            lane.set_deadline(nic, keepalive_after(sent));
        }
        lane.unsettle(nic);
        Self {
            lane,
            state: ConnectionState::Open,
            opening,
            reason: DisconnectReason::Lost,
            progress: Progress::default(),
        }
    }

    /// Has the connection settled before the provider's work is done.
    pub(super) fn unsettle(&mut self, nic: &mut Nic) {
        self.lane.unsettle(nic);
    }

    /// Notes that the connection has left the list of those to be settled.
    pub(super) const fn begin_settling(&mut self) {
        self.lane.begin_settling();
    }

    /// Has the connection checked for progress, as work waits for its peer.
    #[inline]
    pub(super) fn watch(&mut self, nic: &mut Nic) {
        self.progress.watch(&mut nic.watches, nic.now, self.lane.qp());
    }

    /// Sets the deadline `after` from now.
    pub(super) fn set_deadline(&mut self, nic: &mut Nic, after: std::time::Duration) {
        self.lane.set_deadline(nic, after);
    }

    /// Returns whether this is still the connection's deadline, which it then has no more.
    pub(super) fn take_deadline(&mut self, deadline: Instant) -> bool {
        self.lane.take_deadline(deadline)
    }

    /// Notes that an FPDU has arrived whole. Returns the ready-to-receive indication that it may be.
    pub(super) fn heard(&mut self, nic: &mut Nic) -> Option<Rtr> {
        match std::mem::replace(&mut self.opening, Opening::Over) {
            Opening::Over => None,
            Opening::Unheard(_) => {
                // On a connection that is closing, the deadline is for the closing, and stays.
                if self.state == ConnectionState::Open {
                    self.lane.clear_deadline();
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
        self.lane.socket().shutdown_write();
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

    pub(super) const fn lane_mut(&mut self) -> &mut Lane {
        &mut self.lane
    }

    #[inline]
    pub(super) const fn qp(&self) -> QpNum {
        self.lane.qp()
    }

    #[inline]
    pub(super) const fn socket(&self) -> &Socket {
        self.lane.socket()
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
