//! The printed results of a benchmark.

use std::ops::AddAssign;

use super::client::Idle;
use super::load::{SAMPLE, Timed};
use super::plan::{Plan, Subject};
use super::tally::{CoreShare, Tally};
use crate::cli::bytes;
use crate::cli::perf::Test;
use crate::cli::values::Provider;
use crate::failure::Failure;
use crate::limits::{Limits, Noise};
use crate::output::table::{self, Align, counted};
use crate::output::{Output, json};
use crate::placement::Sides;

mod cores;

/// The results of one run, with measurements of the machine.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) provider: &'static str,
    /// The machine's limits, measured right before the run.
    pub(crate) limits: Limits,
    pub(crate) tally: Tally,
    /// The machine's noise, measured right before the run.
    pub(crate) noise: Noise,
    /// The memory of an idle connection, if there were many.
    pub(crate) idle: Option<Idle>,
    /// The hits and misses of a key-value benchmark.
    pub(crate) found: Option<Found>,
    /// The share of the busiest core of the server, if a key-value benchmark asks for some keys more often than for others.
    pub(crate) busiest: Option<Busiest>,
    /// The CPUs of both sides, if the server has cores of its own with a client each.
    pub(crate) sides: Option<Sides>,
}

/// The numbers of GETs that hit and that missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

/// How evenly the cores of a server shared what they were asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Busiest {
    /// Number of cores.
    pub(crate) cores: usize,
    /// What the busiest core was asked for, over what each would have been asked for had they shared it evenly: from 1 to
    /// the number of cores. `None` if they were asked for nothing.
    pub(crate) share: Option<f64>,
}

impl AddAssign for Found {
    fn add_assign(&mut self, Self { hits, misses }: Self) {
        self.hits += hits;
        self.misses += misses;
    }
}

impl Run {
    pub(crate) fn rate_per_s(&self) -> f64 {
        self.tally.operations as f64 / self.tally.took.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    pub(crate) fn gib_per_s(&self, plan: &Plan) -> f64 {
        self.rate_per_s() * plan.size as f64 / GIB
    }

    pub(crate) fn quantile_us(&self, quantile: f64) -> f64 {
        self.tally.samples.quantile_us(quantile)
    }

    /// Returns the number of copies of each octet of payload, at both ends together; `None` without payload.
    fn copies_per_byte(&self, plan: &Plan) -> Option<f64> {
        let Tally { client, server, operations, .. } = &self.tally;
        let payload = operations * plan.size as u64;
        let tagged = client.tagged_copied + server.tagged_copied;
        // Without tagged octets, items travel inline, because they are short or are meant to: all copies count.
        let all = client.all_copied + server.all_copied;
        let copied = if !plan.subject.moves() || tagged == 0 { all } else { tagged };
        (payload > 0).then(|| copied as f64 / payload as f64)
    }

    /// Returns what each core of the server did, if there are several or this command chose them.
    fn shares(&self) -> Option<Vec<CoreShare>> {
        let tell = self.sides.is_some() || self.tally.server_cores > 1;
        tell.then(|| self.tally.shares())
    }

    /// Returns the instructions of both ends; `None` if one end does not count them.
    const fn instructions(&self) -> Option<u64> {
        let Tally { client, server, .. } = &self.tally;
        match (client.instructions, server.instructions) {
            (0, _) | (_, 0) => None,
            (client, server) => Some(client + server),
        }
    }

    /// Returns the mean number of messages in the server's send batches, and in its receive batches.
    fn mean_batch(&self) -> [Option<f64>; 2] {
        let server = &self.tally.server;
        [(server.sends, server.send_batches), (server.receives, server.receive_batches)]
            .map(|(messages, batches)| (batches > 0).then(|| messages as f64 / batches as f64))
    }

    fn write(&self, plan: &Plan, o: &mut json::Object) {
        let Tally { client, server, operations, took, samples, .. } = &self.tally;
        o.text("test", plan.subject.name()).text("provider", self.provider);
        o.count("size", plan.size as u64).count("depth", plan.pace.depth);
        o.count("connections", plan.connections);
        o.measure("seconds", took.as_secs_f64(), 3).count("operations", *operations);
        o.measure("rate_per_s", self.rate_per_s(), 1);
        o.measure("gib_per_s", self.gib_per_s(plan), 6);
        for (name, quantile) in [("p50_us", 0.5), ("p99_us", 0.99), ("p999_us", 0.999)] {
            o.measure(name, self.quantile_us(quantile), 3);
        }
        o.measure("max_us", samples.max_us(), 3);
        o.measure("client_cpu", client.cpu(), 3).measure("server_cpu", server.cpu(), 3);
        o.count("allocations", client.allocations + server.allocations);
        o.count("syscalls", client.syscalls + server.syscalls);
        let [send, recv] = self.mean_batch();
        o.object("mean_batch", |o| _ = o.measure("send", send, 2).measure("recv", recv, 2));
        o.measure("copies_per_byte", self.copies_per_byte(plan), 3);
        o.object("limits", |o| self.limits.write(o));
        o.object("noise", |o| self.noise.write(o));
        o.measure("instructions", self.instructions().map(|all| all as f64), 0);
        o.count("client_preemptions", client.preemptions);
        o.count("server_preemptions", server.preemptions);
        if plan.active < plan.connections {
            o.count("active", plan.active);
        }
        if let Some(idle) = self.idle {
            o.count("idle_connection_bytes", idle.server);
            o.count("idle_connection_bytes_client", idle.client);
        }
        if let Some(rate) = plan.pace.rate {
            o.measure("offered_per_s", rate, 1).count("late", self.tally.late);
        }
        if let Some(Found { hits, misses }) = self.found {
            o.count("hits", hits).count("misses", misses);
        }
        if let Some(Busiest { share, .. }) = self.busiest {
            o.measure("busiest_share", share, 3);
        }
        self.sides.iter().for_each(|sides| cores::write_sides(sides, o));
        if let Some(shares) = self.shares() {
            cores::write_shares(&shares, o);
        }
    }
}

/// Returns one run as JSON.
pub(crate) fn json(plan: &Plan, run: &Run) -> String {
    json::object(|o| run.write(plan, o))
}

/// Prints the summary of all runs. With `--json` it is printed only for several runs, as each run has been printed.
pub(crate) fn finish(
    plan: &Plan,
    runs: &[Run],
    wording: &str,
    output: &Output,
) -> Result<(), Failure> {
    let (Some(median), Some(best)) = (median(plan, runs), best(plan, runs)) else { return Ok(()) };
    if !output.json {
        return output.text(&text(plan, runs, median, wording));
    }
    if runs.len() == 1 {
        return Ok(());
    }
    output.line(&json::object(|o| {
        median.write(plan, o);
        o.count("runs", runs.len() as u64).object("best", |o| best.write(plan, o));
    }))
}

/// Sorts runs from the worst to the best: by rate, or by latency in an open loop, whose rate is fixed.
fn sorted<'a>(plan: &Plan, runs: &'a [Run]) -> Vec<&'a Run> {
    let mut sorted: Vec<_> = runs.iter().collect();
    let merit =
        |run: &Run| if plan.pace.rate.is_some() { -run.quantile_us(0.5) } else { run.rate_per_s() };
    sorted.sort_by(|one, other| merit(one).total_cmp(&merit(other)));
    sorted
}

/// Returns the median run.
pub(crate) fn median<'a>(plan: &Plan, runs: &'a [Run]) -> Option<&'a Run> {
    sorted(plan, runs).get(runs.len() / 2).copied()
}

fn best<'a>(plan: &Plan, runs: &'a [Run]) -> Option<&'a Run> {
    sorted(plan, runs).last().copied()
}

/// Returns a short description of the Calls, for titles.
pub(crate) fn title(plan: &Plan, provider: &str) -> String {
    let size = bytes::format(plan.size as u64);
    let what = match plan.subject {
        Subject::Test(Test::Null) => "null".to_owned(),
        Subject::Test(test) => format!("{} of {size}", test.name()),
        Subject::Kv => format!("key-value service, values of {size}"),
    };
    let connections = match plan.connections {
        1 => String::new(),
        count if plan.active < count => {
            format!(" on each of {} connections of {count}", plan.active)
        }
        count => format!(", {count} connections"),
    };
    let of_each = if plan.connections > 1 && plan.clients > 1 { " of each client" } else { "" };
    let depth = plan.pace.depth;
    let depth = match plan.pace.rate {
        Some(rate) => format!("{rate} due a second, at most {depth} in flight"),
        None => format!("{depth} in flight"),
    };
    let touch = if plan.touch { ", every byte summed" } else { "" };
    format!("{what} over {provider}, {depth}{connections}{of_each}{touch}")
}

/// Returns one run, or several with their median, as text.
fn text(plan: &Plan, runs: &[Run], run: &Run, wording: &str) -> String {
    let mut text = format!("{}; {wording}\n\n", title(plan, run.provider));
    if runs.len() > 1 {
        text.push_str(&each(plan, runs));
        let mut parts: Vec<_> = runs.iter().filter_map(|run| of_limit(plan, run)).collect();
        parts.sort_by(f64::total_cmp);
        if let Some(part) = parts.get(parts.len() / 2) {
            let what = if plan.subject.moves() { "speed" } else { "p50" };
            let limit = limit_name(plan, run);
            text.push_str(&format!("\nmedian of each run's {what} over its {limit}: {part:.3}\n"));
        }
        text.push_str("\nthe median run:\n");
    }
    let columns = [("", Align::Left), ("", Align::Left)];
    let rows: Vec<_> =
        details(plan, run).into_iter().map(|(what, said)| vec![what.to_owned(), said]).collect();
    // The columns have no titles; drop the empty heading.
    text.push_str(table::layout(&columns, &rows).trim_start_matches('\n'));
    text
}

/// Returns the ratio of a run's throughput to the limit measured right before it: a memory copy if both ends share
/// memory, else the raw TCP stream. For Calls without bulk data, one at a time, returns the ratio of the median latency
/// to the round trip of a cache line, or of raw TCP.
fn of_limit(plan: &Plan, run: &Run) -> Option<f64> {
    let shared = shares_memory(run);
    let Limits { memcpy_gib_per_s, tcp_stream_gib_per_s, tcp_rtt_us, cacheline_rtt_us } =
        run.limits;
    if plan.subject.moves() {
        let most = if shared { memcpy_gib_per_s } else { tcp_stream_gib_per_s };
        return Some(run.gib_per_s(plan) / most?);
    }
    let alone = plan.in_flight() == 1 && plan.pace.rate.is_none();
    let least = if shared { cacheline_rtt_us } else { tcp_rtt_us };
    Some(run.quantile_us(0.5) / least.filter(|_| alone)?)
}

/// Returns the name of the limit that [`of_limit`] compares with.
fn limit_name(plan: &Plan, run: &Run) -> &'static str {
    match (shares_memory(run), plan.subject.moves()) {
        (true, true) => "memcpy",
        (true, false) => "cache line",
        (false, _) => "raw TCP",
    }
}

/// Returns whether both ends share memory.
fn shares_memory(run: &Run) -> bool {
    run.provider == Provider::Shm.name()
}

/// Returns one line for each run.
fn each(plan: &Plan, runs: &[Run]) -> String {
    let right = Align::Right;
    let of = runs.first().map_or("", |run| limit_name(plan, run));
    let of = format!("of {of}");
    let columns = [
        ("run", right),
        ("rate/s", right),
        ("GiB/s", right),
        ("p50 us", right),
        ("p99 us", right),
        ("p99.9 us", right),
        ("memcpy GiB/s", right),
        ("raw TCP GiB/s", right),
        ("raw TCP us", right),
        ("cache line us", right),
        (&of, right),
        ("stalled %", right),
    ];
    let cell = |figure: Option<f64>, decimals: usize| {
        figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.decimals$}"))
    };
    let rows = (1..).zip(runs).map(|(number, run): (u32, &Run)| {
        let us = |quantile| format!("{:.2}", run.quantile_us(quantile));
        vec![
            number.to_string(),
            format!("{:.0}", run.rate_per_s()),
            format!("{:.3}", run.gib_per_s(plan)),
            us(0.5),
            us(0.99),
            us(0.999),
            cell(run.limits.memcpy_gib_per_s, 2),
            cell(run.limits.tcp_stream_gib_per_s, 2),
            cell(run.limits.tcp_rtt_us, 2),
            cell(run.limits.cacheline_rtt_us, 3),
            cell(of_limit(plan, run), 3),
            format!("{:.1}", run.noise.stalled * 100.0),
        ]
    });
    table::layout(&columns, &rows.collect::<Vec<_>>())
}

fn details(plan: &Plan, run: &Run) -> Vec<(&'static str, String)> {
    let Tally { client, server, operations, took, samples, late, .. } = &run.tally;
    let per_call = |count: u64| count as f64 / (*operations).max(1) as f64;
    let mut rate = format!("{:.0} calls/s", run.rate_per_s());
    if plan.size > 0 {
        rate.push_str(&format!(", {:.3} GiB/s", run.gib_per_s(plan)));
    }
    rate.push_str(&format!(" ({operations} calls in {:.2} s)", took.as_secs_f64()));
    if *late > 0 {
        rate.push_str(&format!("; {late} more were due and could not be made in time"));
    }
    let us = |quantile| run.quantile_us(quantile);
    let latency = format!(
        "p50 {:.2} us, p99 {:.2} us, p99.9 {:.2} us, max {:.2} us",
        us(0.5),
        us(0.99),
        us(0.999),
        samples.max_us()
    );
    let timed = match (plan.pace.rate, plan.pace.timed) {
        (Some(_), _) => "each call, from when it was due",
        (None, Timed::Each) => "each call",
        (None, Timed::Sampled) => &format!("one call in {SAMPLE}"),
    };
    let cpu = format!(
        "client {:.2}, server {:.2}; taken by other threads {} and {} times",
        client.cpu(),
        server.cpu(),
        client.preemptions,
        server.preemptions
    );
    let mut calls = format!(
        "{:.2} system calls, {:.3} allocations",
        per_call(client.syscalls + server.syscalls),
        per_call(client.allocations + server.allocations)
    );
    if let Some(copies) = run.copies_per_byte(plan) {
        calls.push_str(&format!("; {copies:.2} copies per byte"));
    }
    calls.push_str(&match run.instructions() {
        Some(all) => format!("; {:.0} instructions", per_call(all)),
        None => "; instructions are not counted on this machine".to_owned(),
    });
    let mut rows = vec![
        ("rate", rate),
        ("latency", latency),
        ("timed", timed.to_owned()),
        ("CPU", cpu),
        ("per call", calls),
    ];
    if let [Some(send), Some(recv)] = run.mean_batch() {
        let batch = format!("{send:.1} replies sent at once, {recv:.1} calls found at once");
        rows.push(("server", batch));
    }
    rows.extend(run.shares().iter().flat_map(|shares| cores::rows(shares)));
    if let Some(Idle { server, client }) = run.idle {
        let idle = format!(
            "{server} bytes at the server, {client} at the client; of memory that both have, half"
        );
        rows.push(("idle conn.", idle));
    }
    if let Some(Found { hits, misses }) = run.found {
        rows.push(("keys", format!("{hits} found, {misses} not")));
    }
    if let Some(Busiest { cores, share }) = run.busiest {
        let cores = counted(cores, "core");
        let share = share.map_or_else(
            || format!("none of {cores} was asked for a key"),
            |share| format!("{share:.2} times an even share of the gets, of {cores}"),
        );
        rows.push(("busiest", share));
    }
    rows.extend(limits(plan, run));
    rows.push(("noise", noise(&run.noise)));
    rows
}

/// Returns the line about the noise on both CPUs right before the run, when they were idle.
fn noise(noise: &Noise) -> String {
    let Noise { time_stamp_ns, stalled, stalled_max_us, waits_us: [p99, p999] } = noise;
    let mut text = format!(
        "a bare loop stood still for {:.1} % of the time, {stalled_max_us:.0} us at the longest; until both went \
         on it was p99 {p99:.1} us, p99.9 {p999:.1} us",
        stalled * 100.0
    );
    if let Some(cost) = time_stamp_ns {
        text.push_str(&format!("; reading the CPU's time stamp took {cost:.1} ns"));
    }
    text
}

/// Returns the rows of the limits, with the ratio of the run to each.
fn limits(plan: &Plan, run: &Run) -> Vec<(&'static str, String)> {
    let Limits { memcpy_gib_per_s, tcp_stream_gib_per_s, tcp_rtt_us, cacheline_rtt_us } =
        run.limits;
    let moves = plan.subject.moves();
    let alone = plan.in_flight() == 1 && plan.pace.rate.is_none();
    let size = bytes::format(plan.limits_size as u64);
    // Only limits of the path that the run takes count.
    let (shared, tcp) = (shares_memory(run), !shares_memory(run));
    let speed = |what: &str, limit: Option<f64>, limits: bool| {
        let limit = limit?;
        let part = run.gib_per_s(plan) / limit;
        let compared = moves && limits;
        let part = if compared { format!("; this is {part:.2} of it") } else { String::new() };
        Some(format!("{what} of {size} {limit:.2} GiB/s{part}"))
    };
    let trip = |what: &str, limit: Option<f64>, limits: bool| {
        let limit = limit?;
        let times = run.quantile_us(0.5) / limit;
        let compared = alone && !moves && limits;
        let times = if compared { format!("; p50 is {times:.2} of it") } else { String::new() };
        Some(format!("{what} {limit:.3} us{times}"))
    };
    let rows = [
        speed("raw TCP stream", tcp_stream_gib_per_s, tcp),
        speed("memcpy", memcpy_gib_per_s, true),
        trip("raw TCP round trip", tcp_rtt_us, tcp),
        trip("cache line round trip", cacheline_rtt_us, shared),
    ];
    rows.into_iter().flatten().map(|row| ("limit", row)).collect()
}

const GIB: f64 = (1_u64 << 30) as f64;
