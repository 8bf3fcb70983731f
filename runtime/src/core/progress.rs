//! A deadline for a peer that moves octets, which progress renews.

use haulage_proto::time::Instant;

/// When a peer must have moved more. A peer that moves nothing, or a little now and then, is late.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    due: Option<Instant>,
    /// Octets since it was renewed.
    octets: usize,
}

impl Progress {
    /// Counts octets that were moved, and renews the deadline if they are enough.
    pub(crate) fn count(&mut self, octets: usize, renewed: Instant) {
        self.octets += octets;
        if self.due.is_none() || self.octets >= STEP {
            (self.due, self.octets) = (Some(renewed), 0);
        }
    }

    /// Begins to wait for octets until `due`, if nothing was waited for.
    pub(crate) fn begin(&mut self, due: Instant) {
        self.due.get_or_insert(due);
    }

    /// Returns when the peer must have moved more, if anything is waited for.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.due
    }
}

/// Octets whose transfer renews a deadline: a peer that needs the whole time for each, of 10 seconds, has 6.4 KiB/s.
const STEP: usize = 64 << 10;
