//! Messages that came one after the other on one queue pair.

use haulage_proto::verbs::QpNum;

use super::Filled;
use crate::provider::RUN_MAX;

/// Messages of one queue pair that lie in Receives, in order of arrival.
#[derive(Debug, Default)]
pub(crate) struct ReceivedRun {
    /// The queue pair, unless the run is empty.
    pub(crate) qp: Option<QpNum>,
    pub(crate) messages: [Option<Filled>; RUN_MAX],
    /// How many there are.
    pub(crate) count: usize,
}

impl ReceivedRun {
    /// Adds a message.
    ///
    /// # Errors
    /// The message comes back if it belongs to another queue pair than the run, or the run is full.
    #[inline]
    pub(crate) fn add(&mut self, qp: QpNum, received: Filled) -> Result<(), Filled> {
        let is_behind = self.qp.is_none_or(|of| of == qp);
        match self.messages.get_mut(self.count).filter(|_| is_behind) {
            Some(place) => {
                (*place, self.qp) = (Some(received), Some(qp));
                self.count += 1;
                Ok(())
            }
            None => Err(received),
        }
    }
}
