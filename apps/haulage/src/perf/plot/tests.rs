//! Tests that the SVG is well-formed for all inputs.

use std::time::Duration;

use super::*;
use crate::cli::perf::Test;
use crate::limits::{Limits, Noise};
use crate::perf::load::{Pace, Timed};
use crate::perf::plan::{Ends, Subject};
use crate::perf::tally::Tally;

fn plan(test: Test) -> Plan {
    let time = Duration::from_secs(1);
    Plan {
        subject: Subject::Test(test),
        size: 4096,
        pace: Pace { depth: 1, rate: None, warm: time, time, seed: 1, timed: Timed::Each },
        touch: false,
        connections: 1,
        active: 1,
        clients: 1,
        ends: Ends::Processes,
        runs: 1,
        limits_size: 4096,
    }
}

fn run(calls: u64, limits: Limits) -> Run {
    let mut tally = Tally { operations: calls, took: Duration::from_secs(1), ..Tally::default() };
    (0..calls).for_each(|n| tally.samples.record(Duration::from_nanos(5_000 + n * 7)));
    let noise =
        Noise { time_stamp_ns: None, stalled: 0.0, stalled_max_us: 0.0, waits_us: [0.0; 2] };
    Run {
        provider: "iwarp",
        limits,
        tally,
        noise,
        idle: None,
        found: None,
        busiest: None,
        sides: None,
    }
}

/// Checks that tags match, attributes are quoted, and no number is NaN. Returns the number of elements of this name.
fn well_formed(svg: &str, name: &str) -> usize {
    let mut open = Vec::new();
    let mut found = 0;
    let mut rest = svg;
    while let Some(at) = rest.find('<') {
        let end = at + rest[at..].find('>').expect("a tag ends");
        let tag = &rest[at + 1..end];
        let of = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed), "{tag}");
        } else {
            assert!(tag.matches('"').count().is_multiple_of(2), "{tag}");
            found += usize::from(of == name);
            if !tag.ends_with('/') {
                open.push(of);
            }
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "{open:?} are open");
    assert!(!svg.contains("NaN") && !svg.contains("inf\"") && !svg.contains("inf,"), "{svg}");
    found
}

#[test]
fn there_is_a_curve_and_a_bar_for_each_run() {
    let limits = Limits {
        tcp_stream_gib_per_s: Some(2.0),
        tcp_rtt_us: Some(7.0),
        cacheline_rtt_us: Some(0.1),
        memcpy_gib_per_s: Some(10.0),
    };
    for test in [Test::Null, Test::Read] {
        let runs = [run(100, Limits::default()), run(5000, limits), run(900, limits)];
        let svg = draw(&plan(test), &runs, Series::Repeated, "here & <there>");
        assert_eq!(well_formed(&svg, "polyline"), 3);
        assert_eq!(well_formed(&svg, "rect"), 1 + 3);
        assert!(svg.contains("here &amp; &lt;there>") && svg.contains("raw TCP round trip"));
        assert_eq!(svg.contains("raw TCP stream"), test == Test::Read);
    }
}

#[test]
fn nothing_measured_is_drawn_as_nothing() {
    for runs in [vec![], vec![run(0, Limits::default())], vec![run(1, Limits::default())]] {
        assert_eq!(
            well_formed(&draw(&plan(Test::Write), &runs, Series::Repeated, ""), "polyline"),
            runs.len()
        );
    }
}

#[test]
fn a_sweep_has_a_bar_for_each_number_of_cores_and_the_last_stands_out() {
    let runs =
        [run(100, Limits::default()), run(300, Limits::default()), run(200, Limits::default())];
    let svg = draw(&plan(Test::Null), &runs, Series::Sweep, "");
    assert_eq!((well_formed(&svg, "polyline"), well_formed(&svg, "rect")), (3, 1 + 3));
    assert!(svg.contains("by number of server cores") && svg.contains("bold: all server cores"));
    let classes: Vec<_> = svg.lines().filter(|line| line.starts_with("<rect x")).collect();
    let chosen: Vec<_> = classes.iter().map(|bar| bar.contains("chosen-bar")).collect();
    assert_eq!(chosen, [false, false, true]);
}
