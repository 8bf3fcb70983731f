//! How a core waits for work.

use std::time::Duration;

use haulage_proto::time::Instant;

/// The behaviour of a core whose turn found no work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polling {
    /// Turns again at once: for dedicated cores.
    Busy,
    /// Turns again for a while, then sleeps until something arrives.
    Adaptive {
        /// How long the core turns without work before it sleeps.
        spin: Duration,
    },
    /// Sleeps at once.
    Event,
}

impl Polling {
    /// Adaptive, with a spin longer than a round trip on the same machine and shorter than an operator would notice in
    /// `top`.
    pub const ADAPTIVE: Self = Self::Adaptive { spin: Duration::from_micros(100) };

    /// Returns whether a core that has been idle since `idle_since` is to sleep.
    pub fn sleeps(self, idle_since: Instant, now: Instant) -> bool {
        match self {
            Self::Busy => false,
            Self::Adaptive { spin } => now.saturating_since(idle_since) >= spin,
            Self::Event => true,
        }
    }
}
