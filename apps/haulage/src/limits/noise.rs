//! Scheduler noise of the machine, which disturbs every measurement on it.

use std::io;
use std::sync::mpsc;
use std::time::Duration;

use haulage::sys::{clock, cpu};

use super::pair::Pair;
use crate::output::json;

/// The measured noise: interruptions of an idle spin loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// The time of one read of the CPU's time stamp counter, in nanoseconds; `None` on a CPU without one.
    pub time_stamp_ns: Option<f64>,
    /// The share of the time for which a loop that only reads the clock was interrupted.
    pub stalled: f64,
    /// The longest interruption, in microseconds.
    pub stalled_max_us: f64,
    /// The time until both loops run, in microseconds, at the 99th and 99.9th percentile of all moments: the latency
    /// that an open loop would measure for Calls that take no time.
    pub waits_us: [f64; 2],
}

impl Noise {
    /// Measures noise for about `budget` on both threads of `pair`, or on one if they share a CPU.
    ///
    /// # Errors
    /// The system's error, such as a thread that cannot be pinned.
    pub fn measure(pair: Pair, budget: Duration) -> io::Result<Self> {
        let (tell, told) = mpsc::channel();
        let far = move || {
            if !pair.yielding {
                // The near side receives the result, so sending does not fail.
                let _ = tell.send(Watch::keep(budget));
            }
            Ok(())
        };
        let near = move || {
            let near = Watch::keep(budget);
            Ok((near, pair.receive(&told).unwrap_or_default()))
        };
        let (near, far) = pair.run(near, far)?;
        let took = near.took + far.took;
        // If both sides watched, each did for about half of the sum.
        let both = took / if far.took.is_zero() { 1 } else { 2 };
        let mut stalls = near.stalls;
        stalls.extend(far.stalls);
        stalls.sort_by(|one, other| other.cmp(one));
        let stalled: Duration = stalls.iter().sum();
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        Ok(Self {
            time_stamp_ns: cpu::time_stamp_cost_ns(),
            stalled: stalled.as_secs_f64() / took.as_secs_f64(),
            stalled_max_us: stalls.first().copied().map_or(0.0, micros),
            waits_us: [both / 100, both / 1000].map(|rest| micros(longest_wait(&stalls, rest))),
        })
    }

    /// Adds the noise to an object of results.
    pub fn write(&self, object: &mut json::Object) {
        object.measure("time_stamp_ns", self.time_stamp_ns, 1);
        object.measure("stalled", self.stalled, 4);
        object.measure("stalled_max_us", self.stalled_max_us, 1);
        let [p99, p999] = self.waits_us;
        object.measure("wait_p99_us", p99, 1).measure("wait_p999_us", p999, 1);
    }
}

/// Returns the time within which an interrupted loop continues, at all moments except a total of `rest`. `stalls` are
/// the interruptions, longest first.
fn longest_wait(stalls: &[Duration], rest: Duration) -> Duration {
    // A moment within a stall waits for the rest of the stall. In each of the `count` longest stalls, all moments wait
    // for longer than `wait` but those of its last `wait`. `wait` is chosen so that the longer ones make up `rest`
    // together.
    let mut sum = Duration::ZERO;
    let mut waits = (1..).zip(stalls).map(|(count, stall): (u32, _)| {
        sum += *stall;
        let next = stalls.get(count as usize).copied().unwrap_or_default();
        (sum.saturating_sub(rest) / count, next)
    });
    waits.find(|(wait, next)| wait >= next).map(|(wait, _)| wait).unwrap_or_default()
}

/// The interruptions that one thread saw.
#[derive(Clone, Debug, Default)]
struct Watch {
    took: Duration,
    /// The duration of each interruption.
    stalls: Vec<Duration>,
}

impl Watch {
    /// Reads the clock for the time `budget`, and records interruptions.
    fn keep(budget: Duration) -> Self {
        let mut watch = Self { took: Duration::ZERO, stalls: Vec::with_capacity(STALLS) };
        let mut now = clock::now();
        while watch.took < budget {
            let then = std::mem::replace(&mut now, clock::now());
            let step = now.saturating_since(then);
            watch.took += step;
            if step >= STALL {
                watch.stalls.push(step);
            }
        }
        watch
    }
}

/// Minimum length of an interruption: some twenty times a read of the clock.
const STALL: Duration = Duration::from_micros(1);
/// Capacity for interruptions: as many as a noisy machine has in a second.
const STALLS: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_stands_still_for_part_of_its_time() {
        let watch = Watch::keep(Duration::from_millis(20));
        assert!(watch.stalls.iter().sum::<Duration>() <= watch.took, "{watch:?}");
        let noise = Noise::measure(Pair::here(None), Duration::from_millis(20)).unwrap();
        assert!((0.0..=1.0).contains(&noise.stalled), "{noise:?}");
        let [p99, p999] = noise.waits_us;
        assert!(p99 <= p999 && p999 <= noise.stalled_max_us, "{noise:?}");
    }

    #[test]
    fn a_wait_is_what_is_left_of_a_stall() {
        let micros = Duration::from_micros;
        let stalls = [10, 5, 5].map(micros);
        for (rest, wait) in [(0, 10), (1, 9), (5, 5), (8, 4), (17, 1), (20, 0), (30, 0)] {
            assert_eq!(longest_wait(&stalls, micros(rest)), micros(wait), "{rest}");
        }
        assert_eq!(longest_wait(&[], micros(1)), micros(0));
    }
}
