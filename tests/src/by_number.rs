//! Operations of tests on a queue pair that they name by its number.

use haulage_mr_pool::Local;
use haulage_proto::time::Instant;
use haulage_proto::verbs::{Access, QpNum, WrId};

use haulage::provider::{
    ConnectionAnswer, ConnectionParams, Head, OpenResult, Outgoing, Port, Provider, QueueFull,
    Refused, Sent, WorkQueue,
};

/// Operations by number, for every provider. Each looks up the port of the queue pair.
pub trait ByNumber: Provider {
    /// Accepts a connection.
    fn accept(&mut self, now: Instant, qp: QpNum, params: &ConnectionParams<'_>) {
        self.answer(now, qp, &ConnectionAnswer::Accept(*params));
    }

    /// Rejects a connection.
    fn reject(&mut self, now: Instant, qp: QpNum, private_data: &[u8]) {
        self.answer(now, qp, &ConnectionAnswer::Reject(private_data));
    }

    /// Posts a prefix of `batch`: see [`Port::post`].
    fn post(&mut self, qp: QpNum, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        match self.port(qp) {
            Some(mut port) => port.post(batch),
            None if batch.is_empty() => Ok(()),
            None => Err(QueueFull),
        }
    }

    /// Sends a message: see [`Port::send`].
    fn say(&mut self, qp: QpNum, head: &Head<'_>, message: &mut Outgoing, id: WrId) -> Sent {
        self.port(qp).map_or(Sent::Gone, |mut port| port.send(head, message, id))
    }

    /// Opens a lease for the peer and rings the doorbell: see [`Port::open`].
    fn open(&mut self, qp: QpNum, lease: Local, access: Access) -> OpenResult {
        let Some(mut port) = self.port(qp) else { return Err((lease, Refused::Gone)) };
        let opened = port.open(lease, access)?;
        assert_eq!(port.post(&mut WorkQueue::new()), Ok(()), "the doorbell");
        Ok(opened)
    }
}

impl<P: Provider> ByNumber for P {}
