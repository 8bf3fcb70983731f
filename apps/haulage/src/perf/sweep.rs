//! The table of a sweep over the number of server cores.

use haulage::sys::cpu;

use super::plan::Plan;
use super::report::{self, Run};
use crate::output::table::{self, Align};

/// Returns the table: a row for each of `runs`, which had one server core, two, and so on.
pub(super) fn text(plan: &Plan, runs: &[Run], wording: &str) -> String {
    let provider = runs.first().map_or("", |run| run.provider);
    let repeated = match plan.runs {
        1 => String::new(),
        count => format!("; the median of {count} runs each"),
    };
    let title = report::title(plan, provider);
    let table = table::layout(&COLUMNS, &rows(plan, runs));
    format!("{title}; {wording}{repeated}\n\n{table}")
}

fn rows(plan: &Plan, runs: &[Run]) -> Vec<Vec<String>> {
    let one = runs.first().map_or(f64::NAN, Run::rate_per_s);
    let row = |(count, run): (u32, &Run)| {
        let us = |quantile| format!("{:.2}", run.quantile_us(quantile));
        let cpu = |share: f64| format!("{share:.2}");
        let calls: Vec<_> = run.tally.shares().iter().map(|core| core.calls).collect();
        let least = calls.iter().min().copied().unwrap_or(0);
        let most = calls.iter().max().copied().unwrap_or(0);
        let shared = run.sides.as_ref().map_or(&[][..], |sides| &sides.shared);
        vec![
            count.to_string(),
            format!("{:.0}", run.rate_per_s()),
            format!("{:.2}", run.rate_per_s() / one),
            format!("{:.3}", run.gib_per_s(plan)),
            us(0.5),
            us(0.99),
            us(0.999),
            cpu(run.tally.client.cpu()),
            cpu(run.tally.server.cpu()),
            if count == 1 { most.to_string() } else { format!("{least} to {most}") },
            if shared.is_empty() { "none".to_owned() } else { cpu::format_list(shared) },
            format!("{:.1}", run.noise.stalled * 100.0),
        ]
    };
    (1..).zip(runs).map(row).collect()
}

const COLUMNS: [(&str, Align); 12] = [
    ("cores", Align::Right),
    ("rate/s", Align::Right),
    ("of one", Align::Right),
    ("GiB/s", Align::Right),
    ("p50 us", Align::Right),
    ("p99 us", Align::Right),
    ("p99.9 us", Align::Right),
    ("client CPU", Align::Right),
    ("server CPU", Align::Right),
    ("calls of each core", Align::Right),
    ("shared CPUs", Align::Right),
    ("stalled %", Align::Right),
];
