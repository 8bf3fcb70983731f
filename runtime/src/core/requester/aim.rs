//! A port to any queue pair, for messages that leave while the provider delivers none.

use haulage_mr_pool::Local;
use haulage_proto::verbs::{Access, ClaimedSegment, QpNum, WrId};

use crate::provider::{
    Head, OpenResult, Outgoing, Port, Provider, QueueFull, Refused, Sent, WorkQueue,
};

/// A port that can be turned to another queue pair.
pub(crate) trait Aim: Port {
    /// Aims the port at another queue pair.
    fn aim(&mut self, qp: QpNum);
}

/// A port that borrows the provider, for use while that delivers no messages.
pub(crate) struct Direct<'a, P> {
    provider: &'a mut P,
    /// The queue pair that the port is aimed at.
    qp: QpNum,
    /// Whether the next message is the first one there. A template pays only for messages that leave together, and this
    /// one may be alone, so it leaves without.
    is_first: bool,
}

impl<'a, P: Provider> Direct<'a, P> {
    /// Makes a port that is not aimed at any queue pair yet.
    pub(crate) const fn new(provider: &'a mut P) -> Self {
        Self::to(provider, QpNum::new(0, 0))
    }

    /// Makes a port that is aimed at `qp`.
    pub(crate) const fn to(provider: &'a mut P, qp: QpNum) -> Self {
        Self { provider, qp, is_first: true }
    }
}

impl<P: Provider> Aim for Direct<'_, P> {
    fn aim(&mut self, qp: QpNum) {
        (self.qp, self.is_first) = (qp, true);
    }
}

impl<P: Provider> Port for Direct<'_, P> {
    #[inline(always)]
    fn send(&mut self, head: &Head<'_>, message: &mut Outgoing, id: WrId) -> Sent {
        let Some(mut port) = self.provider.port(self.qp) else { return Sent::Gone };
        if std::mem::take(&mut self.is_first) {
            let head = message.in_full(head);
            return port.send(&head, message, id);
        }
        port.send(head, message, id)
    }

    fn read(&mut self, source: &ClaimedSegment, octets: &mut [u8]) -> Result<(), Refused> {
        self.provider.port(self.qp).ok_or(Refused::Gone)?.read(source, octets)
    }

    fn open(&mut self, lease: Local, access: Access) -> OpenResult {
        match self.provider.port(self.qp) {
            Some(mut port) => port.open(lease, access),
            None => Err((lease, Refused::Gone)),
        }
    }

    fn post(&mut self, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        self.provider.port(self.qp).map_or(Err(QueueFull), |mut port| port.post(batch))
    }
}
