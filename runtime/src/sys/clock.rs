//! The one place that reads the clocks.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use haulage_proto::time::Instant;

/// Reads the monotonic clock, as nanoseconds since the process first asked.
#[expect(clippy::disallowed_methods, reason = "this is the module that reads the clock")]
pub fn now() -> Instant {
    static ORIGIN: OnceLock<std::time::Instant> = OnceLock::new();
    let now = std::time::Instant::now();
    let since = now.saturating_duration_since(*ORIGIN.get_or_init(|| now));
    Instant::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Reads the time of day, as the time since 1970 began; zero if it is set to before that.
#[expect(clippy::disallowed_methods, reason = "this is the module that reads the clock")]
pub fn time_of_day() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
