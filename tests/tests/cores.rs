//! Cores in the simulated world: every Call ends once, with the expected octets, whatever happens to the connections,
//! and every lease comes home.
//!
//! Prints the counts of events (`--nocapture`). A failure names its seed; `SIM_SEED=<seed>` runs that world alone.
#![expect(clippy::print_stderr, reason = "a run says what it exercised, a failure names its seed")]

use std::ops::Range;
use std::panic;
use std::process::Command;

use haulage_tests::cores::mix::Event;
use haulage_tests::cores::{Report, World};

#[test]
fn half_a_thousand_worlds_of_cores_come_to_their_ends() {
    exercise(0..500);
}

/// A test beside the first half thousand worlds, so that two CPUs share the time.
#[test]
fn another_five_hundred_worlds_of_cores_come_to_their_ends() {
    exercise(1000..1500);
}

/// The seeds found defects in the worlds as they were then drawn.
#[test]
fn worlds_that_found_defects_come_to_their_ends() {
    for seed in FOUND {
        assert!(run(seed, 0).lines > 0, "seed {seed}: something passed");
    }
}

/// Runs processes of [`EACH`] worlds, as many at once as there are CPUs: the memory of a core that is dropped
/// while its RNIC is at work is out of use until the process ends.
#[test]
#[ignore = "ten thousand worlds are for release builds"]
fn ten_thousand_worlds_of_cores_come_to_their_ends() {
    if let Ok(first) = std::env::var(FIRST) {
        let first = first.parse().expect("a number");
        return exercise(first..first + EACH);
    }
    let myself = std::env::current_exe().expect("the name of this program");
    let start = |first: u64| {
        let mut command = Command::new(&myself);
        command.args(["--ignored", "--exact", "--nocapture"]);
        command.arg("ten_thousand_worlds_of_cores_come_to_their_ends");
        command.env(FIRST, first.to_string()).spawn().expect("a process")
    };
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    let firsts: Vec<u64> = (0..8).map(|part| 100_000 + EACH * part).collect();
    for firsts in firsts.chunks(at_once) {
        let started: Vec<_> = firsts.iter().map(|first| (first, start(*first))).collect();
        // Every process is waited for, so that none is left running when one fails.
        let failed: Vec<_> = started
            .into_iter()
            .filter_map(|(first, mut part)| {
                let status = part.wait().expect("the process is waited for once");
                (!status.success()).then_some(first)
            })
            .collect();
        assert!(failed.is_empty(), "of the {EACH} worlds from each of {failed:?} on, one");
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

/// Runs a world for each seed, and checks that together they had every event.
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
             half_a_thousand -- --nocapture"
        );
        panic::resume_unwind(cause)
    })
}

/// Seeds whose worlds found defects: a gauge that overflowed, a Call whose token named another Call, a Call that was
/// refused for the state of its connection.
const FOUND: [u64; 6] = [106_294, 111_825, 117_853, 1470, 100_558, 104_245];

/// The worlds of a process that runs some of ten thousand.
const EACH: u64 = 1250;

/// The variable with the first seed of a process that runs some of ten thousand worlds.
const FIRST: &str = "SIM_FIRST";

/// Number of lines of the trace that a failing world prints.
const LINES_KEPT: usize = 40;
