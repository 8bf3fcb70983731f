//! A socket under the number of a queue pair, and what has the provider come back to it. A handshake has one, and leaves
//! it to the connection that it becomes.

use std::time::Duration;

use haulage_proto::time::Instant;
use haulage_proto::verbs::QpNum;

use super::nic::Nic;
use crate::sys::socket::Socket;

/// A queue pair's socket and deadline.
#[derive(Debug)]
pub(super) struct Lane {
    qp: QpNum,
    socket: Socket,
    deadline: Option<Instant>,
    /// The queue pair is on the provider's list of those to be settled.
    unsettled: bool,
}

impl Lane {
    pub(super) const fn new(qp: QpNum, socket: Socket) -> Self {
        Self { qp, socket, deadline: None, unsettled: false }
    }

    /// Has the queue pair settled before the provider's work is done.
    pub(super) fn unsettle(&mut self, nic: &mut Nic) {
        if !self.unsettled {
            self.unsettled = true;
            nic.unsettled.push_back(self.qp);
        }
    }

    /// Notes that the queue pair has left the list of those to be settled.
    pub(super) const fn begin_settling(&mut self) {
        self.unsettled = false;
    }

    /// Sets the deadline `after` from now.
    pub(super) fn set_deadline(&mut self, nic: &mut Nic, after: Duration) {
        let deadline = nic.now.saturating_add(after);
        self.deadline = Some(deadline);
        nic.deadlines.add(deadline, self.qp);
    }

    /// Forgets the deadline.
    pub(super) const fn clear_deadline(&mut self) {
        self.deadline = None;
    }

    /// Returns whether this is still the deadline, which there is none of then.
    pub(super) fn take_deadline(&mut self, deadline: Instant) -> bool {
        self.deadline.take_if(|due| *due == deadline).is_some()
    }

    #[inline]
    pub(super) const fn qp(&self) -> QpNum {
        self.qp
    }

    #[inline]
    pub(super) const fn socket(&self) -> &Socket {
        &self.socket
    }
}
