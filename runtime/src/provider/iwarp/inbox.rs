//! The buffer from which messages of a connection are taken without Receives.

use haulage_proto::verbs::QpNum;

use super::intake::Found;

/// The octets read from one connection and not yet handled, and the order in which connections are read.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) octets: Vec<u8>,
    pub(super) start: usize,
    pub(super) end: usize,
    /// The connection that the octets are from, and whether there may be more in its socket.
    pub(super) owner: QpNum,
    pub(super) found: Found,
    /// The first octets wait for a poll.
    pub(super) refused: bool,
    /// The index of the next connection to read, among the hot ones, and the number left in this round.
    at: usize,
    left: usize,
}

impl Inbox {
    pub(super) fn new(octets: usize) -> Self {
        let owner = QpNum::new(0, 0);
        let (found, refused) = (Found::Nothing, false);
        Self { octets: vec![0; octets], start: 0, end: 0, owner, found, refused, at: 0, left: 0 }
    }

    /// Returns whether the buffer is empty.
    pub(super) const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Begins a round, in which each of `hot` connections may be read again.
    pub(super) fn begin_round(&mut self, hot: usize) {
        self.at = if self.at < hot { self.at } else { 0 };
        self.left = hot;
    }

    /// Returns the index of the next connection to read.
    pub(super) fn next(&mut self, hot: usize) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let at = self.at;
        self.at = if at + 1 < hot { at + 1 } else { 0 };
        Some(at)
    }
}
