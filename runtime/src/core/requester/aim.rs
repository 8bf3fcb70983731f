//! A port to any queue pair, for messages that leave while the provider delivers none.

use haulage_mr_pool::Local;
use haulage_proto::verbs::{Access, ClaimedSegment, Handle, HeaderPatch, NamedTemplate, QpNum};

use crate::provider::{OpenResult, Port, Provider, QueueFull, Refused, WorkQueue, WorkRequest};

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
    /// Whether the next message is the first one there: it may stay the only one, and leaves without a template.
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

impl<P: Provider> Direct<'_, P> {
    /// Returns the port of the queue pair it is aimed at.
    #[inline]
    fn port(&mut self) -> Result<P::Port<'_>, Refused> {
        self.provider.port(self.qp).ok_or(Refused::Gone)
    }
}

impl<P: Provider> Port for Direct<'_, P> {
    #[inline]
    fn send(&mut self, message: &[u8], invalidate: Option<Handle>) -> Result<(), Refused> {
        self.port()?.send(message, invalidate)
    }

    #[inline(always)]
    fn send_like(
        &mut self,
        like: NamedTemplate<'_>,
        patch: HeaderPatch,
        message: &mut [u8],
    ) -> Result<(), Refused> {
        if std::mem::take(&mut self.is_first) {
            like.template.put(message, patch).ok_or(Refused::TooLong)?;
            return self.send(message, None);
        }
        self.port()?.send_like(like, patch, message)
    }

    fn write(&mut self, parts: &[&[u8]], target: &ClaimedSegment) -> Result<(), Refused> {
        self.port()?.write(parts, target)
    }

    fn read(&mut self, source: &ClaimedSegment, octets: &mut [u8]) -> Result<(), Refused> {
        self.port()?.read(source, octets)
    }

    fn open(&mut self, lease: Local, access: Access) -> OpenResult {
        match self.provider.port(self.qp) {
            Some(mut port) => port.open(lease, access),
            None => Err((lease, Refused::Gone)),
        }
    }

    fn stage(&mut self, request: WorkRequest) -> Result<(), WorkRequest> {
        match self.provider.port(self.qp) {
            Some(mut port) => port.stage(request),
            None => Err(request),
        }
    }

    fn post(&mut self, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        self.provider.port(self.qp).map_or(Err(QueueFull), |mut port| port.post(batch))
    }
}
