//! How a thread waits for work: by looking again, or asleep.

use std::time::Duration;

use haulage_proto::time::Instant;

/// The behaviour of a core whose turn found no work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polling {
    /// Turns again at once: for dedicated cores.
    Busy,
    /// Turns again for a while, then sleeps until something arrives. A core whose spins find nothing stops spinning
    /// until they pay again.
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
}

/// One thread's waiting: when it was last busy, and what its spins were worth.
///
/// A spin that finds work saves two switches of context. A spin that finds none costs little on a CPU that nobody else
/// wants, and everything if the work is to come from a thread that waits for this very CPU: then something arrives as
/// soon as this thread sleeps. So a spin that pays gains trust, one that does not loses it, and loses it faster the
/// sooner the sleep after it ends. Without trust the thread sleeps at once, but for a trial now and then.
#[derive(Debug)]
pub(crate) struct Wait {
    polling: Polling,
    /// When work was last found, or a sleep last ended.
    idle_since: Instant,
    /// How long to spin from then on.
    spin: Duration,
    /// Whether the thread has looked since then and found nothing.
    looked: bool,
    /// How far spins are trusted to find work: [`PAYS`] more for one that does, [`Wait::price`] less for one that does
    /// not.
    trust: u32,
    /// When to spin again without trust, and how long to wait if that does not pay.
    trial: Instant,
    trial_pause: Duration,
}

/// The most trust, and the trust at the beginning: four spins in a row that starve a peer end it.
const TRUST_MAX: u32 = 128;
/// Trust that a spin gains which finds work.
const PAYS: u32 = 16;
/// The pause before the first trial, doubled by each until the longest.
const TRIAL_PAUSE: Duration = Duration::from_millis(1);
const TRIAL_PAUSE_MAX: Duration = Duration::from_millis(100);
/// A sleep after which everything may have changed.
const QUIET: Duration = Duration::from_millis(100);

impl Wait {
    /// Begins at `now`, as if work had just been found.
    pub(crate) fn new(polling: Polling, now: Instant) -> Self {
        let mut wait = Self {
            polling,
            idle_since: now,
            spin: Duration::ZERO,
            looked: false,
            trust: TRUST_MAX,
            trial: now,
            trial_pause: TRIAL_PAUSE,
        };
        wait.begin(now);
        wait
    }

    /// Begins to wait at `now`.
    pub(crate) fn begin(&mut self, now: Instant) {
        (self.idle_since, self.looked) = (now, false);
        self.spin = match self.polling {
            Polling::Adaptive { spin } if self.trust > 0 || now >= self.trial => spin,
            _ => Duration::ZERO,
        };
    }

    /// Notes that there was work until `now`.
    pub(crate) fn worked(&mut self, now: Instant) {
        if self.looked && !self.spin.is_zero() {
            self.trust = TRUST_MAX.min(self.trust + PAYS);
            if self.trust == TRUST_MAX {
                self.trial_pause = TRIAL_PAUSE;
            }
        }
        self.begin(now);
    }

    /// Returns whether to sleep, as no work was found at `now`.
    pub(crate) fn sleeps(&mut self, now: Instant) -> bool {
        self.looked = true;
        match self.polling {
            Polling::Busy => false,
            Polling::Adaptive { .. } => now.saturating_since(self.idle_since) >= self.spin,
            Polling::Event => true,
        }
    }

    /// Notes that the thread slept from `slept` to `now`.
    pub(crate) fn woke(&mut self, slept: Instant, now: Instant) {
        let asleep = now.saturating_since(slept);
        if asleep >= QUIET {
            (self.trust, self.trial_pause) = (TRUST_MAX, TRIAL_PAUSE);
        } else if !self.spin.is_zero() {
            self.trust = self.trust.saturating_sub(Self::price(asleep));
            if self.trust == 0 {
                self.trial = now.saturating_add(self.trial_pause);
                self.trial_pause = TRIAL_PAUSE_MAX.min(2 * self.trial_pause);
            }
        }
        self.begin(now);
    }

    /// Returns the trust that a spin loses which found nothing before a sleep of this length.
    fn price(asleep: Duration) -> u32 {
        match asleep.as_micros() {
            ..30 => 32,
            30..125 => 4,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    /// A thread, and whom it waits for.
    struct World {
        wait: Wait,
        now: Instant,
        /// How long the thread spun.
        spun: Duration,
        slept: u32,
    }

    impl World {
        fn new() -> Self {
            let now = Instant::from_nanos(0);
            Self { wait: Wait::new(Polling::ADAPTIVE, now), now, spun: us(0), slept: 0 }
        }

        /// Waits for work that comes after `gap` if the thread sleeps or not (`shared` is false), or that is made
        /// within `gap` once the thread sleeps (`shared` is true).
        fn wait(&mut self, gap: Duration, shared: bool) {
            let came = self.now.saturating_add(gap);
            while shared || self.now < came {
                if self.wait.sleeps(self.now) {
                    self.slept += 1;
                    let end = if shared { self.now.saturating_add(gap) } else { came };
                    self.wait.woke(self.now, end);
                    self.now = end;
                    break;
                }
                self.now = self.now.saturating_add(us(1));
                self.spun += us(1);
            }
            self.wait.worked(self.now);
        }

        /// Waits `times` times. Returns how often it slept and how many microseconds it spun.
        fn waits(&mut self, times: u32, gap: Duration, shared: bool) -> (u32, u128) {
            (self.slept, self.spun) = (0, us(0));
            for _ in 0..times {
                self.wait(gap, shared);
            }
            (self.slept, self.spun.as_micros())
        }
    }

    #[test]
    fn a_spin_that_pays_goes_on() {
        let mut world = World::new();
        assert_eq!(world.waits(100_000, us(20), false), (0, 2_000_000));
    }

    #[test]
    fn who_starves_its_peer_stops_spinning() {
        let mut world = World::new();
        let (slept, spun) = world.waits(100_000, us(5), true);
        assert_eq!(slept, 100_000);
        // Four spins end the trust, and half a second has room for ten trials.
        assert!((400..2_000).contains(&spun), "{spun}");
    }

    #[test]
    fn spins_come_back_when_the_peer_has_a_cpu_again() {
        let mut world = World::new();
        world.waits(1_000_000, us(5), true);
        // A trial comes within a tenth of a second.
        let (slept, _) = world.waits(10_000, us(20), false);
        assert!(slept <= 5_001, "{slept}");
        assert_eq!(world.waits(10_000, us(20), false).0, 0);
    }

    #[test]
    fn a_trial_that_pays_by_chance_does_not_bring_trials_back() {
        let mut world = World::new();
        world.waits(1_000_000, us(5), true);
        world.now = world.now.saturating_add(TRIAL_PAUSE_MAX);
        world.wait.worked(world.now);
        world.wait(us(20), false);
        let (_, spun) = world.waits(1_000_000, us(5), true);
        // Five seconds: the spin that lost the trust again and one for each tenth of a second.
        assert!(spun <= 52 * 100, "{spun}");
    }

    #[test]
    fn a_client_that_calls_seldom_spins_for_its_replies() {
        let mut world = World::new();
        for _ in 0..10_000 {
            world.wait(us(500), false);
            world.wait(us(20), false);
        }
        assert_eq!(world.waits(1, us(20), false), (0, 20));
    }

    #[test]
    fn spins_that_find_nothing_end() {
        let mut world = World::new();
        let (slept, spun) = world.waits(10_000, us(500), false);
        assert_eq!(slept, 10_000);
        // 128 spins end the trust, and five seconds have room for 57 trials.
        assert!((12_800..19_000).contains(&spun), "{spun}");
    }

    #[test]
    fn a_thread_spins_again_after_quiet() {
        let mut world = World::new();
        world.waits(1_000_000, us(5), true);
        world.wait(Duration::from_secs(1), false);
        assert_eq!(world.waits(10, us(20), false), (0, 200));
    }

    #[test]
    fn busy_never_sleeps_and_event_sleeps_at_once() {
        let now = Instant::from_nanos(0);
        let later = now.saturating_add(Duration::from_secs(60));
        assert!(!Wait::new(Polling::Busy, now).sleeps(later));
        assert!(Wait::new(Polling::Event, now).sleeps(now));
    }
}
