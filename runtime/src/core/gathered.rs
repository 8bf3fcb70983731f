//! The octets of a message that came in several transport messages.

use haulage_mr_pool::Local;

use crate::limits::TRANSMISSIONS_MAX;

/// The octets of a message in several transport messages.
#[derive(Debug)]
pub(crate) struct Gathered {
    /// The Payload stream, room, and what came behind the Payload stream.
    pub(crate) octets: Local,
    /// Octets of the Payload stream.
    pub(crate) payload: usize,
    /// Where the octets begin that came behind the Payload stream, of each transmission of a group.
    pub(crate) behind: [usize; TRANSMISSIONS_MAX as usize],
}

impl Gathered {
    /// Begins with room for all octets.
    pub(crate) const fn of(octets: Local) -> Self {
        Self { octets, payload: 0, behind: [0; TRANSMISSIONS_MAX as usize] }
    }

    /// Returns where the octets begin that came behind the Payload stream in this transmission of a group.
    pub(crate) fn behind(&self, transmission: usize) -> usize {
        self.behind.get(transmission).copied().unwrap_or(usize::MAX)
    }
}
