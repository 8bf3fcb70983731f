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
        let (stalled, took) = (near.stalled + far.stalled, near.took + far.took);
        Ok(Self {
            time_stamp_ns: cpu::time_stamp_cost_ns(),
            stalled: stalled.as_secs_f64() / took.as_secs_f64(),
            stalled_max_us: near.longest.max(far.longest).as_secs_f64() * 1e6,
        })
    }

    /// Adds the figures to an object of results.
    pub fn write(&self, object: &mut json::Object) {
        object.measure("time_stamp_ns", self.time_stamp_ns, 1);
        object.measure("stalled", self.stalled, 4);
        object.measure("stalled_max_us", self.stalled_max_us, 1);
    }
}

/// What one thread saw.
#[derive(Clone, Copy, Debug, Default)]
struct Watch {
    took: Duration,
    /// For how long it stood still, in all and at the longest.
    stalled: Duration,
    longest: Duration,
}

impl Watch {
    /// Reads the clock for a time.
    fn keep(budget: Duration) -> Self {
        let mut watch = Self::default();
        let mut now = clock::now();
        while watch.took < budget {
            let then = std::mem::replace(&mut now, clock::now());
            let step = now.saturating_since(then);
            watch.took += step;
            if step >= STALL {
                watch.stalled += step;
                watch.longest = watch.longest.max(step);
            }
        }
        watch
    }
}

/// The clock is read in a hundredth of this.
const STALL: Duration = Duration::from_micros(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_stands_still_for_part_of_its_time() {
        let watch = Watch::keep(Duration::from_millis(20));
        assert!(watch.longest <= watch.stalled && watch.stalled <= watch.took, "{watch:?}");
        let noise = Noise::measure(Pair::here(None), Duration::from_millis(20)).unwrap();
        assert!((0.0..=1.0).contains(&noise.stalled), "{noise:?}");
    }
}
