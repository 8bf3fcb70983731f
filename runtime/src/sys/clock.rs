//! The one place that reads the clock.

use std::sync::OnceLock;

use haulage_proto::time::Instant;

/// Reads the monotonic clock, as nanoseconds since the process first asked.
#[expect(clippy::disallowed_methods, reason = "this is the module that reads the clock")]
pub fn now() -> Instant {
    static ORIGIN: OnceLock<std::time::Instant> = OnceLock::new();
    let now = std::time::Instant::now();
    let since = now.saturating_duration_since(*ORIGIN.get_or_init(|| now));
    Instant::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
