//! Cores in the simulated world: every Call ends once, with the octets that are due, whatever befalls the
//! connections, and every lease comes home.
//!
//! Says what was exercised (`--nocapture`). A failure names its seed; `SIM_SEED=<seed>` runs that world
//! alone.
#![expect(clippy::print_stderr, reason = "a run says what it exercised, a failure names its seed")]

use std::ops::Range;
use std::panic;
use std::process::Command;

use haulage_tests::cores::mix::Event;
use haulage_tests::cores::{Report, World};

#[test]
fn a_thousand_worlds_of_cores_come_to_their_ends() {
    exercise(0..1000);
}

/// Beside the first thousand, so that two processors share the time.
#[test]
fn another_thousand_worlds_of_cores_come_to_their_ends() {
    exercise(1000..2000);
}

/// For as long as worlds are drawn as they were then.
#[test]
fn worlds_that_found_defects_come_to_their_ends() {
    for seed in FOUND {
        assert!(run(seed, 0).lines > 0, "seed {seed}: something passed");
    }
}

/// In processes of two thousand: a core that is dropped while its RNIC is at work leaves its memory out of use
/// until the process ends.
#[test]
#[ignore = "twenty thousand worlds are for release builds"]
fn twenty_thousand_worlds_of_cores_come_to_their_ends() {
    if let Ok(first) = std::env::var(FIRST) {
        let first = first.parse().expect("a number");
        return exercise(first..first + 2000);
    }
    let myself = std::env::current_exe().expect("the name of this program");
    for part in 0..10 {
        let first = 100_000 + 2000 * part;
        let mut command = Command::new(&myself);
        command.args(["--ignored", "--exact", "--nocapture"]);
        command.arg("twenty_thousand_worlds_of_cores_come_to_their_ends");
        let status = command.env(FIRST, first.to_string()).status().expect("a process");
        assert!(status.success(), "one of the worlds from {first} on");
    }
}

#[test]
fn a_seed_repeats_a_world() {
    for seed in 0..20 {
        let [first, second, other] =
            [seed, seed, seed + 1000].map(|seed| World::new(seed, 0).run());
        assert_eq!(first, second, "seed {seed}: nothing but the seed decides");
        assert!(first.lines > 20, "seed {seed}: something passed");
        assert_ne!(first.digest, other.digest, "another seed is another world");
    }
}

/// Runs a world for each seed. Nothing that can happen may be missing from all of them together.
fn exercise(seeds: Range<u64>) {
    let replayed = std::env::var("SIM_SEED").ok().map(|seed| seed.parse().expect("a number"));
    if let Some(seed) = replayed {
        eprintln!("SIM_SEED={seed}\n{}", run(seed, LINES_KEPT));
        return;
    }
    let sum = seeds.clone().fold(Report::default(), |sum, seed| sum.and(&run(seed, 0)));
    eprintln!("seeds {seeds:?}\n{sum}");
    assert!(sum.mix.count(Event::Well) > 5 * sum.mix.count(Event::Lost), "most Calls go well");
    assert_eq!(sum.mix.missing(), [""; 0]);
}

fn run(seed: u64, lines_kept: usize) -> Report {
    let world = || World::new(seed, lines_kept).run();
    panic::catch_unwind(world).unwrap_or_else(|cause| {
        eprintln!(
            "replay this world: SIM_SEED={seed} cargo test -p haulage-tests --test cores \
             a_thousand -- --nocapture"
        );
        panic::resume_unwind(cause)
    })
}

/// Worlds of which a core failed: a gauge that overflowed, a Call whose token named another one, a Call that was refused
/// for the state of its connection.
const FOUND: [u64; 3] = [106_294, 111_825, 117_853];

/// Names the first world of a process that runs some of twenty thousand.
const FIRST: &str = "SIM_FIRST";

/// Lines of the trace that a world says when it fails.
const LINES_KEPT: usize = 40;
