//! A limit on how often one kind of event is reported.

use std::time::Duration;

use haulage_proto::time::Instant;

/// A token bucket: fifty events at once, ten a second in the long run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    /// When every token is back.
    full_at: Instant,
    /// Events left out since the last one that passed.
    left_out: u64,
}

impl Bucket {
    /// A bucket with all its tokens.
    pub(crate) const FULL: Self = Self { full_at: Instant::ZERO, left_out: 0 };

    /// Takes a token at `now`. Returns how many events found none since the last one that passed; `None` if this
    /// event finds none either.
    pub(crate) fn take(&mut self, now: Instant) -> Option<u64> {
        let full_at = self.full_at.max(now).saturating_add(TOKEN_TIME);
        if full_at.saturating_since(now) > TOKEN_TIME * BURST {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        self.full_at = full_at;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Events that pass at once after a long silence.
const BURST: u32 = 50;
/// How long a token takes to come back.
const TOKEN_TIME: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO.saturating_add(Duration::from_millis(millis))
    }

    #[test]
    fn fifty_pass_at_once_and_then_ten_a_second() {
        let mut bucket = Bucket::FULL;
        let passed = (0..1000).filter(|_| bucket.take(at(0)).is_some()).count();
        assert_eq!(passed, 50);
        // One event each millisecond for three seconds.
        let passed = (1..=3000).filter(|millis| bucket.take(at(*millis)).is_some()).count();
        assert_eq!(passed, 30);
    }

    #[test]
    fn the_next_event_that_passes_tells_how_many_were_left_out() {
        let mut bucket = Bucket::FULL;
        for _ in 0..50 {
            assert_eq!(bucket.take(at(5)), Some(0));
        }
        for _ in 0..7 {
            assert_eq!(bucket.take(at(104)), None);
        }
        assert_eq!(bucket.take(at(105)), Some(7));
        assert_eq!(bucket.take(at(105)), None);
        assert_eq!(bucket.take(at(205)), Some(1));
    }

    #[test]
    fn silence_gives_no_more_than_all_tokens_and_time_that_stands_still_gives_none() {
        let mut bucket = Bucket::FULL;
        for hour in 1..4 {
            let now = at(hour * 3_600_000);
            assert_eq!((0..200).filter(|_| bucket.take(now).is_some()).count(), 50);
        }
        // A clock that steps back fills the bucket no further.
        assert_eq!(bucket.take(at(0)), None);
    }
}
