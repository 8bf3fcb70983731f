//! Deadlines of connections that are being set up or closed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use haulage_proto::time::Instant;
use haulage_proto::verbs::QpNum;

/// The deadlines of all connections of one provider. A deadline that was met stays until its time.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    due: BinaryHeap<Reverse<(Instant, QpNum)>>,
}

impl Deadlines {
    /// Adds a deadline.
    pub(crate) fn add(&mut self, deadline: Instant, qp: QpNum) {
        self.due.push(Reverse((deadline, qp)));
    }

    /// Takes the first deadline, if it has passed.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Instant, QpNum)> {
        self.first().filter(|deadline| *deadline <= now)?;
        self.due.pop().map(|Reverse(deadline)| deadline)
    }

    /// Returns the first deadline.
    pub(crate) fn first(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse((deadline, _))| *deadline)
    }
}
