//! A limit on how often one kind of event is reported. The cores of a group share it.

use std::time::Duration;

use haulage_proto::time::Instant;

/// A core's part of a token bucket: fifty events at once, ten a second in the long run.
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

    /// Takes a token at `now`, of a bucket that `cores` cores share. Returns how many events found none since the last one that
    /// passed; `None` if this event finds none either.
    pub(crate) fn take(&mut self, now: Instant, cores: u32) -> Option<u64> {
        // A core has one token in any case.
        let full_at = self.full_at.max(now).saturating_add(TOKEN_TIME * cores.clamp(1, BURST));
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
        let passed = (0..1000).filter(|_| bucket.take(at(0), 1).is_some()).count();
        assert_eq!(passed, 50);
        // One event each millisecond for three seconds.
        let passed = (1..=3000).filter(|millis| bucket.take(at(*millis), 1).is_some()).count();
        assert_eq!(passed, 30);
    }

    #[test]
    fn cores_that_share_a_bucket_pass_no_more_than_one() {
        for cores in [1, 2, 8, 50] {
            let mut each = vec![Bucket::FULL; cores as usize];
            let mut passed = |millis| {
                let taken = each.iter_mut().map(|bucket| {
                    (0..100).filter(|_| bucket.take(at(millis), cores).is_some()).count()
                });
                taken.sum::<usize>()
            };
            let (at_once, later) = (passed(0), (1..=3000).map(&mut passed).sum::<usize>());
            assert!((48..=50).contains(&at_once), "{at_once} of {cores} cores");
            assert!(at_once + later <= 80, "{later} of {cores} cores");
        }
        let mut one = Bucket::FULL;
        assert!(one.take(at(0), 128).is_some(), "a core has one in any case");
    }

    #[test]
    fn the_next_event_that_passes_tells_how_many_were_left_out() {
        let mut bucket = Bucket::FULL;
        for _ in 0..50 {
            assert_eq!(bucket.take(at(5), 1), Some(0));
        }
        for _ in 0..7 {
            assert_eq!(bucket.take(at(104), 1), None);
        }
        assert_eq!(bucket.take(at(105), 1), Some(7));
        assert_eq!(bucket.take(at(105), 1), None);
        assert_eq!(bucket.take(at(205), 1), Some(1));
    }

    #[test]
    fn silence_gives_no_more_than_all_tokens_and_time_that_stands_still_gives_none() {
        let mut bucket = Bucket::FULL;
        for hour in 1..4 {
            let now = at(hour * 3_600_000);
            assert_eq!((0..200).filter(|_| bucket.take(now, 1).is_some()).count(), 50);
        }
        // A clock that steps back fills the bucket no further.
        assert_eq!(bucket.take(at(0), 1), None);
    }
}
