//! Connections in the simulated world: every Call ends once, with every octet right, whatever the schedule.
//!
//! Prints the counts of events (`--nocapture`). A failure names its seed; `SIM_SEED=<seed>` runs that world alone.
#![expect(clippy::print_stderr, reason = "a run says what it exercised, a failure names its seed")]

use std::ops::Range;
use std::panic;

use haulage_tests::world::choices::Choices;
use haulage_tests::world::mix::Event;
use haulage_tests::world::{Report, World};

#[test]
fn fifty_thousand_random_rpcs_are_answered_to_the_octet() {
    exchange(0..100);
}

#[test]
#[ignore = "a million RPCs are for release builds"]
fn a_million_random_rpcs_are_answered_to_the_octet() {
    exchange(1000..3000);
}

#[test]
fn a_seed_repeats_a_run() {
    let run = |seed| World::new(Choices::seeded(seed), 100).run();
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2), "and another seed is another run");
}

/// Runs a world for each seed, and checks that together they had every event.
fn exchange(seeds: Range<u64>) {
    let replayed = std::env::var("SIM_SEED").ok().map(|seed| seed.parse().expect("a number"));
    if let Some(seed) = replayed {
        eprintln!("SIM_SEED={seed}\n{}", run(seed));
        return;
    }
    let rpcs = RPCS_PER_WORLD * usize::try_from(seeds.end - seeds.start).expect("few worlds");
    let sum = seeds.clone().map(run).fold(Report::default(), |sum, report| sum.and(&report));
    eprintln!("seeds {seeds:?}, {rpcs} RPCs\n{sum}");
    let [well, again, refused] =
        [Event::Well, Event::Again, Event::Refused].map(|event| sum.mix.count(event));
    assert_eq!(well + refused, rpcs, "each RPC ends once");
    assert!(refused < rpcs / 10 && again > rpcs / 100, "most go well, many at the second attempt");
    assert_eq!(sum.mix.missing(), [""; 0]);
}

fn run(seed: u64) -> Report {
    let world = || World::new(Choices::seeded(seed), RPCS_PER_WORLD).run();
    panic::catch_unwind(world).unwrap_or_else(|cause| {
        eprintln!("SIM_SEED={seed}");
        panic::resume_unwind(cause)
    })
}

const RPCS_PER_WORLD: usize = 500;
