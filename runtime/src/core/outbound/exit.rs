//! What Calls leave by that leave at once.

use haulage_mr_pool::{Exposed, Local};
use haulage_proto::negotiate::{Heading, Label};
use haulage_proto::verbs::{Access, Handle, QpNum, Segment};

use super::Lane;
use crate::core::connection::Connection;
use crate::core::table::Key;
use crate::provider::{Done, Outlet, Provider, QueueFull, WorkRequest};

/// A lane, and what its Calls leave by.
pub(crate) type Way<'a> = (&'a mut Lane, &'a mut dyn Outlet);

/// What Calls leave by while a service runs.
pub(crate) enum Exit<'a> {
    /// They are queued.
    Closed,
    /// Those of the connection whose messages are acted upon leave at once.
    One(&'a mut dyn Outlet),
    /// Those of any connection do.
    Any(&'a mut dyn Aim),
}

impl Exit<'_> {
    /// Returns the way of a Call on `connection`, which may be to open a lease, if the lane takes it.
    #[inline]
    pub(crate) fn way<'a>(
        &'a mut self,
        lane: &'a mut Option<Lane>,
        connection: Key<Connection>,
        opens: bool,
    ) -> Option<Way<'a>> {
        let lane = lane.as_mut().filter(|lane| lane.takes(connection))?;
        match self {
            Self::One(outlet) => Some((lane, *outlet)),
            // It opens nothing.
            Self::Any(outlet) if !opens => Some((lane, *outlet)),
            _ => None,
        }
    }
}

/// An outlet that can be turned to another queue pair.
pub(crate) trait Aim: Outlet {
    /// Sends there from now on.
    fn aim(&mut self, qp: QpNum);
}

/// Sends as a provider does while it takes no messages.
pub(crate) struct Direct<'a, P> {
    provider: &'a mut P,
    /// Where to.
    qp: QpNum,
    /// The next message is the first one there, and may stay the only one.
    is_first: bool,
}

impl<'a, P: Provider> Direct<'a, P> {
    /// Makes one that is not aimed at any queue pair yet.
    pub(crate) const fn new(provider: &'a mut P) -> Self {
        Self::to(provider, QpNum::new(0, 0))
    }

    /// Makes one that sends on `qp`.
    pub(crate) const fn to(provider: &'a mut P, qp: QpNum) -> Self {
        Self { provider, qp, is_first: true }
    }
}

impl<P: Provider> Aim for Direct<'_, P> {
    fn aim(&mut self, qp: QpNum) {
        (self.qp, self.is_first) = (qp, true);
    }
}

impl<P: Provider> Outlet for Direct<'_, P> {
    fn send(&mut self, message: &[u8], invalidate: Option<Handle>) -> Result<(), QueueFull> {
        self.provider.send_inline(self.qp, message, invalidate)
    }

    #[inline]
    fn send_headed(
        &mut self,
        heading: &Heading,
        label: Label,
        message: &mut [u8],
    ) -> Result<(), QueueFull> {
        if std::mem::take(&mut self.is_first) {
            heading.put(message, label).ok_or(QueueFull)?;
            return self.send(message, None);
        }
        self.provider.send_headed(self.qp, heading, label, message)
    }

    fn stage(&mut self, request: WorkRequest) -> Result<(), WorkRequest> {
        self.provider.stage(self.qp, request)
    }

    fn open(&mut self, lease: Local, _: Access) -> Result<(Exposed, Segment), Local> {
        Err(lease)
    }

    fn retire(&mut self, _: Handle) -> Option<Done> {
        None
    }
}
