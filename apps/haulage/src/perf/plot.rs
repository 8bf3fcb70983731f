//! The SVG of a benchmark: latency by percentile on the left, the rate of each run or number of server cores on the right.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use super::plan::Plan;
use super::report::{self, Run};
use crate::failure::Failure;
use crate::output::file::Whole;

mod scale;

use scale::Scale;

/// The SVG file.
#[derive(Debug)]
pub(super) struct Plot<'a> {
    name: &'a Path,
    file: Whole,
}

impl<'a> Plot<'a> {
    /// Creates the file, before the measurement, so that an error shows early.
    pub(super) fn create(name: &'a Path) -> Result<Self, Failure> {
        let is_svg = |extension: &OsStr| extension.eq_ignore_ascii_case("svg");
        if !name.extension().is_none_or(is_svg) {
            return Err(Failure::usage(format!(
                "--plot draws SVG and no other format; name a file that ends in .svg, not {}",
                name.display()
            )));
        }
        match Whole::create(name) {
            Ok(file) => Ok(Self { name, file }),
            Err(error) => {
                Err(Failure::failed(format!("cannot create {}: {error}", name.display())))
            }
        }
    }

    /// Draws all runs.
    pub(super) fn write(
        mut self,
        plan: &Plan,
        runs: &[Run],
        series: Series,
        wording: &str,
    ) -> Result<(), Failure> {
        let written = self.file.write_all(draw(plan, runs, series, wording).as_bytes());
        written.and_then(|()| self.file.finish()).map_err(|error| {
            Failure::failed(format!("cannot write {}: {error}", self.name.display()))
        })
    }
}

/// What runs side by side are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Series {
    /// Runs of one benchmark, of which the median stands out.
    Repeated,
    /// One run for each number of server cores, from one up. The last stands out.
    Sweep,
}

impl Series {
    /// Returns the run that stands out.
    fn front<'a>(self, plan: &Plan, runs: &'a [Run]) -> Option<&'a Run> {
        match self {
            Self::Repeated => report::median(plan, runs),
            Self::Sweep => runs.last(),
        }
    }

    /// Returns what the numbers of the runs count.
    const fn counted(self) -> &'static str {
        match self {
            Self::Repeated => "run",
            Self::Sweep => "number of server cores",
        }
    }
}

fn draw(plan: &Plan, runs: &[Run], series: Series, wording: &str) -> String {
    let mut svg = Svg::new();
    let provider = runs.first().map_or("", |run| run.provider);
    svg.text(LEFT, 30.0, "start", "title", &report::title(plan, provider));
    svg.text(LEFT, 50.0, "start", "quiet", wording);
    latencies(&mut svg, plan, runs, series);
    rates(&mut svg, plan, runs, series);
    svg.end()
}

/// Draws latency by percentile on logarithmic scales, with a curve for each run, of which one is bold.
fn latencies(svg: &mut Svg, plan: &Plan, runs: &[Run], series: Series) {
    let (x0, x1) = (LEFT, 520.0);
    let most = runs.iter().map(|run| run.tally.samples.count()).max().unwrap_or(1);
    // The tail ends where the samples do.
    let nines = (most.max(10) as f64).log10().min(6.0);
    let place = |power: f64| x0 + (x1 - x0) * power / nines;
    let marks = |run: &Run| [run.limits.tcp_rtt_us, run.limits.cacheline_rtt_us];
    let lowest = runs.iter().flat_map(|run| {
        let near = |limit: &f64| plan.in_flight() == 1 && *limit * 5.0 > run.quantile_us(0.0);
        marks(run).into_iter().flatten().filter(near).chain([run.quantile_us(0.0)])
    });
    let highest = runs.iter().map(|run| run.tally.samples.max_us());
    let scale = Scale::powers(
        lowest.fold(f64::INFINITY, f64::min),
        highest.fold(0.0, f64::max),
        (BOTTOM, TOP),
    );
    let bold = match series {
        Series::Repeated => "",
        Series::Sweep => "; bold: all server cores",
    };
    let head = format!("latency in us, by percentile{bold}");
    svg.text(x0, TOP - 14.0, "start", "head", &head);
    for (tick, y) in scale.ticks() {
        svg.line((x0, y), (x1, y), "grid");
        svg.text(x0 - 8.0, y + 4.0, "end", "tick", &scale::label(tick));
    }
    for (power, name) in PERCENTILES.iter().filter(|(power, _)| *power <= nines) {
        svg.line((place(*power), TOP), (place(*power), BOTTOM), "grid");
        svg.text(place(*power), BOTTOM + 18.0, "middle", "tick", name);
    }
    let chosen = series.front(plan, runs);
    let is_chosen = |run: &&Run| chosen.is_some_and(|chosen| std::ptr::eq(chosen, *run));
    let (front, behind): (Vec<_>, Vec<_>) = runs.iter().partition(is_chosen);
    for (run, class) in
        behind.iter().map(|run| (run, "run")).chain(front.iter().map(|run| (run, "chosen")))
    {
        let steps = (0..=STEPS).map(|step| f64::from(step) / f64::from(STEPS) * nines);
        let point = |power: f64| {
            let us = run.quantile_us(1.0 - 10_f64.powf(-power));
            (place(power), scale.place(us))
        };
        svg.curve(steps.map(point), class);
    }
    if let Some(run) = chosen {
        for (limit, name) in
            marks(run).into_iter().zip(["raw TCP round trip", "cache line round trip"])
        {
            let Some(y) = limit.and_then(|limit| scale.place_within(limit)) else { continue };
            svg.line((x0, y), (x1, y), "limit");
            svg.text(x1 - 6.0, y - 5.0, "end", "limit-name", name);
        }
        for (quantile, power) in [(0.5, 0.5_f64.log10().abs()), (0.99, 2.0), (0.999, 3.0)] {
            let us = run.quantile_us(quantile);
            if power <= nines {
                svg.dot((place(power), scale.place(us)));
                let said = format!("p{} {}", quantile * 100.0, scale::label(us));
                // Labels are to the left, where the curve is lower, except the first, which has no room there.
                let (beside, anchor) = if power < 1.0 { (4.0, "start") } else { (-4.0, "end") };
                svg.text(place(power) + beside, scale.place(us) - 10.0, anchor, "value", &said);
            }
        }
    }
    svg.line((x0, BOTTOM), (x1, BOTTOM), "axis");
}

/// Draws the rate of each run, next to the rate of raw TCP measured right before it.
fn rates(svg: &mut Svg, plan: &Plan, runs: &[Run], series: Series) {
    let (x0, x1) = (620.0, RIGHT);
    let moves = plan.subject.moves();
    let value = |run: &Run| if moves { run.gib_per_s(plan) } else { run.rate_per_s() };
    let raw = |run: &Run| run.limits.tcp_stream_gib_per_s.filter(|_| moves);
    let most = runs.iter().map(|run| value(run).max(raw(run).unwrap_or(0.0))).fold(0.0, f64::max);
    let scale = Scale::straight(most, (BOTTOM, TOP));
    let head = format!("{}, by {}", if moves { "GiB/s" } else { "calls/s" }, series.counted());
    svg.text(x0, TOP - 14.0, "start", "head", &head);
    for (tick, y) in scale.ticks() {
        svg.line((x0, y), (x1, y), "grid");
        svg.text(x0 - 8.0, y + 4.0, "end", "tick", &scale::label(tick));
    }
    let chosen = series.front(plan, runs);
    let width = (x1 - x0) / runs.len().max(1) as f64;
    let bar = (width * 0.6).min(60.0);
    // Label only as many bars as there is room for.
    let every = (24.0 / width).ceil().max(1.0);
    for (number, run) in (0_u32..).zip(runs) {
        let middle = x0 + width * (f64::from(number) + 0.5);
        let y = scale.place(value(run));
        let is_chosen = chosen.is_some_and(|chosen| std::ptr::eq(chosen, run));
        svg.bar(
            (middle - bar / 2.0, y),
            (bar, BOTTOM - y),
            if is_chosen { "chosen-bar" } else { "bar" },
        );
        if let Some(y) = raw(run).map(|raw| scale.place(raw)) {
            svg.line((middle - bar * 0.7, y), (middle + bar * 0.7, y), "limit");
        }
        if runs.len() <= 6 {
            svg.text(middle, y + 16.0, "middle", "in-bar", &scale::label(value(run)));
        }
        if f64::from(number) % every == 0.0 {
            svg.text(middle, BOTTOM + 18.0, "middle", "tick", &(number + 1).to_string());
        }
    }
    if runs.iter().any(|run| raw(run).is_some()) {
        svg.line((x0, BOTTOM + 40.0), (x0 + 24.0, BOTTOM + 40.0), "limit");
        svg.text(x0 + 30.0, BOTTOM + 44.0, "start", "tick", "raw TCP stream, right before the run");
    }
    svg.line((x0, BOTTOM), (x1, BOTTOM), "axis");
}

/// A drawing being made.
struct Svg(String);

impl Svg {
    fn new() -> Self {
        let mut svg = Self(String::new());
        svg.put(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"sans-serif\">\n\
             <style>{STYLE}</style>\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n"
        ));
        svg
    }

    fn end(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>\n"
        ));
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        self.put(format_args!(
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" class=\"{class}\"/>\n",
            from.0, from.1, to.0, to.1
        ));
    }

    fn curve(&mut self, points: impl Iterator<Item = (f64, f64)>, class: &str) {
        self.put(format_args!("<polyline class=\"{class}\" points=\""));
        points.for_each(|(x, y)| self.put(format_args!("{x:.1},{y:.1} ")));
        self.0.push_str("\"/>\n");
    }

    fn bar(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), class: &str) {
        self.put(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             class=\"{class}\"/>\n"
        ));
    }

    fn dot(&mut self, (x, y): (f64, f64)) {
        self.put(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" class=\"dot\"/>\n"));
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.0.write_fmt(text);
    }
}

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 930.0;
const TOP: f64 = 100.0;
const BOTTOM: f64 = 390.0;
/// The number of steps from the first point of a curve to the last.
const STEPS: u32 = 240;
/// The positions of percentiles on the axis, in factors of ten.
const PERCENTILES: [(f64, &str); 7] = [
    (0.0, "0"),
    (1.0, "90"),
    (2.0, "99"),
    (3.0, "99.9"),
    (4.0, "99.99"),
    (5.0, "99.999"),
    (6.0, "99.9999"),
];
const STYLE: &str = "\
.title{font-size:18px;font-weight:600;fill:#1b2733}.quiet{font-size:13px;fill:#5b6b7a}\
.head{font-size:13px;font-weight:600;fill:#1b2733}.tick{font-size:12px;fill:#5b6b7a}\
.value{font-size:12px;font-weight:600;fill:#12467f;stroke:#fff;stroke-width:3;paint-order:stroke}.in-bar{font-size:12px;font-weight:600;fill:#fff}\
.grid{stroke:#e3e8ed}.axis{stroke:#5b6b7a}\
.limit{stroke:#c2570c;stroke-width:2;stroke-dasharray:6 4}.limit-name{font-size:12px;fill:#c2570c}\
.run{fill:none;stroke:#a9bfd6;stroke-width:1.5}.chosen{fill:none;stroke:#12467f;stroke-width:2.5}\
.bar{fill:#7f9fc0}.chosen-bar{fill:#12467f}.dot{fill:#12467f;stroke:#fff;stroke-width:1.5}";

#[cfg(test)]
mod tests;
