//! How quiet the machine is: what disturbs every measurement on it, whatever is measured.

use std::io;
use std::sync::mpsc;
use std::time::Duration;

use haulage::sys::{clock, cpu};

use super::Pair;
use crate::output::json;

/// What keeps a core from its work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// What one reading of the CPU's time stamp took, in nanoseconds; `None` on a CPU without one.
    pub time_stamp_ns: Option<f64>,
    /// The part of the time for which a loop that does nothing but read the clock stood still.
    pub stalled: f64,
    /// The longest it stood still for, in microseconds.
    pub stalled_max_us: f64,
    /// How long it is at most until both loops go on, in microseconds, at 99 % and at 99.9 % of all moments:
    /// what an open loop would find of Calls that take no time.
    pub waits_us: [f64; 2],
}

impl Noise {
    /// Has both threads of `pair` read the clock for about `budget`, one if they share a CPU.
    ///
    /// # Errors
    /// The system's; a thread that cannot be placed, above all.
    pub fn measure(pair: Pair, budget: Duration) -> io::Result<Self> {
        let (tell, told) = mpsc::channel();
        let far = move || {
            if !pair.yielding {
                // The near side waits for it.
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
        // Each for about as long.
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

    /// Adds the figures to an object of results.
    pub fn write(&self, object: &mut json::Object) {
        object.measure("time_stamp_ns", self.time_stamp_ns, 1);
        object.measure("stalled", self.stalled, 4);
        object.measure("stalled_max_us", self.stalled_max_us, 1);
        let [p99, p999] = self.waits_us;
        object.measure("wait_p99_us", p99, 1).measure("wait_p999_us", p999, 1);
    }
}

/// Returns how long it is at most until loops go on that stood still for these times, longest first, at all
/// moments but for as many as make up `rest`.
fn longest_wait(stalls: &[Duration], rest: Duration) -> Duration {
    // From a moment within a stall it is no longer than the wait if no more than that is left of it.
    let mut sum = Duration::ZERO;
    let mut waits = (1..).zip(stalls).map(|(count, stall): (u32, _)| {
        sum += *stall;
        let next = stalls.get(count as usize).copied().unwrap_or_default();
        (sum.saturating_sub(rest) / count, next)
    });
    waits.find(|(wait, next)| wait >= next).map(|(wait, _)| wait).unwrap_or_default()
}

/// What one thread saw.
#[derive(Clone, Debug, Default)]
struct Watch {
    took: Duration,
    /// Each time it stood still.
    stalls: Vec<Duration>,
}

impl Watch {
    /// Reads the clock for a time.
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

/// The clock is read in a twentieth of this.
const STALL: Duration = Duration::from_micros(1);
/// How many there are in a second on a machine that is not quiet.
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
