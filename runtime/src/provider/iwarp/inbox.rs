//! Octets that were read of one connection to take its messages without Receives.

use haulage_proto::verbs::QpNum;

use super::connection::Found;

/// What was read and not yet acted upon, of one connection, and who is to be read next.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) octets: Vec<u8>,
    pub(super) start: usize,
    pub(super) end: usize,
    /// Whose octets these are, and whether there may be more in its socket.
    pub(super) owner: QpNum,
    pub(super) found: Found,
    /// What is in front waits for a poll.
    pub(super) refused: bool,
    /// Who is read next, by place among the hot ones, and how many there still are in this round.
    at: usize,
    left: usize,
}

impl Inbox {
    pub(super) fn new(octets: usize) -> Self {
        let owner = QpNum::new(0, 0);
        let (found, refused) = (Found::Nothing, false);
        Self { octets: vec![0; octets], start: 0, end: 0, owner, found, refused, at: 0, left: 0 }
    }

    /// Returns whether nothing waits.
    pub(super) const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Lets each of `hot` connections be read again, another one first.
    pub(super) fn begin_round(&mut self, hot: usize) {
        self.at = if self.at < hot { self.at } else { 0 };
        self.left = hot;
    }

    /// Returns the place of the next connection to read.
    pub(super) fn next(&mut self, hot: usize) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let at = self.at;
        self.at = if at + 1 < hot { at + 1 } else { 0 };
        Some(at)
    }
}
