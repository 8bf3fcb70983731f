//! Instants, as nanoseconds from an origin the caller chose.

use core::fmt;
use core::time::Duration;

/// A point in time: nanoseconds since the origin of the caller's clock.
///
/// The real clock and a simulator's virtual clock produce the same type, so that no state machine
/// can tell them apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin of the caller's clock.
    pub const ZERO: Self = Self(0);

    /// Makes an instant from nanoseconds since the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the instant `later` after this one, at most the last representable one.
    #[must_use]
    pub fn saturating_add(self, later: Duration) -> Self {
        self.saturating_add_nanos(u64::try_from(later.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Returns the instant `later` nanoseconds after this one, at most the last representable one.
    #[must_use]
    #[inline]
    pub const fn saturating_add_nanos(self, later: u64) -> Self {
        Self(self.0.saturating_add(later))
    }

    /// Returns the time from `earlier` to this instant, zero if `earlier` is later.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.0)
    }
}
