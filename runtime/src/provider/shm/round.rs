//! Rounds in which connections are asked for messages without Receives.

/// The connections that are asked for messages without Receives until the next poll.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// The index, among the hot connections, of the one to ask.
    pub(super) at: usize,
    /// The number of connections still to be asked, this one included.
    pub(super) left: usize,
    /// The number of messages taken.
    pub(super) taken: usize,
}

impl Round {
    /// Begins a round of `count` connections, of which the one at `first` is asked first.
    #[inline]
    pub(super) fn begin(&mut self, first: usize, count: usize) {
        *self = Self { at: if first < count { first } else { 0 }, left: count, taken: 0 };
    }

    /// Advances to the next of `count` connections.
    #[inline]
    pub(super) fn go_on(&mut self, count: usize) {
        self.at = if self.at + 1 < count { self.at + 1 } else { 0 };
        self.left -= 1;
    }
}
