//! `haulage demo`: a key-value server and client in one command.
//!
//! # Normal operation
//! The key-value server is started as a second process, on another CPU if there is one. This process is the client: one
//! core that keeps a number of Calls in flight. For each size, it stores and fetches values by direct data placement,
//! compares every byte, and measures rates and latencies. Raw TCP is measured between the same two CPUs, in turns with
//! the demo's own measurements, so that both see the machine in the same state.

use std::time::Duration;

use haulage::cores::{self, CoreThread, Placement as Thread};
use haulage::limits::LIMITS_DEFAULT;
use haulage::sys::clock;
use haulage_kv::service::binding;

use crate::cli::values::Polling;
use crate::cli::{CoreOptions, bytes};
use crate::failure::Failure;
use crate::kv::client::{ClientConfig, explain};
use crate::limits::{self, Limits, Pair};
use crate::node::{Carrier, NodeConfig, over, polling};
use crate::output::progress::Step;
use crate::output::{Output, json};
use crate::placement::{Cpus, Placement};
use crate::serving::child::{Server, Start};

pub mod load;
mod report;

use load::{Driver, Job, Load, Op, Tally};
use report::Row;

/// Runs the demo, the client on the first CPU of `--cores` and the server on the second.
pub fn run(options: &CoreOptions, output: &Output) -> Result<(), Failure> {
    over!(options.provider, run_over, (options, output))
}

fn run_over<P: Carrier>(options: &CoreOptions, output: &Output) -> Result<(), Failure> {
    let cpus = Cpus::here()?;
    let placement = Placement::new(options.cores.as_ref(), options.polling, &cpus)?;
    // The server has the same placement and prints its notes.
    let (near, far) = placement
        .pair(options.cores.as_ref(), &cpus)
        .ok_or_else(|| Failure::usage("the demo needs two CPUs: name them with --cores"))?;
    let mut step = Step::begin(format_args!("starting the server"));
    let server = Server::start(&Start {
        arguments: &[
            "kv",
            "serve",
            "--memory",
            SERVER_MEMORY,
            "--value-max",
            SERVER_VALUE_MAX,
            "--log-format",
            output.log.name(),
        ],
        provider: options.provider,
        at: P::own_address()?,
        cores: far.map(|cpu| cpu.to_string()).as_deref(),
        polling: placement.polling,
        crc: options.crc,
        versions: options.versions,
        speaks: true,
    })?;
    let driver = connect::<P>(&server, near, placement.polling, options)?;
    let pair = match (near, far) {
        (Some(near), Some(far)) => Pair::pinned(near, far),
        _ => Pair::UNPINNED,
    };
    let mut rows = Vec::new();
    let mut measured = Measured::default();
    for (size, depth) in SIZES {
        step.next(format_args!("measuring values of {}", bytes::format(size as u64)));
        rows.extend(measure_size(&driver.started, pair, size, depth, &mut measured)?);
        if output.json {
            rows.iter().rev().take(2).rev().try_for_each(|row| output.line(&row.to_json()))?;
        }
    }
    step.next(format_args!("measuring memory"));
    let limits = measured.limits(pair)?;
    driver.stop()?;
    server.stop()?;
    drop(step);
    if output.json {
        return output.line(&json::object(|o| {
            o.object("limits", |o| limits.write(o)).flag("ok", rows.iter().all(|row| row.verified));
        }));
    }
    output.text(&report::table(&rows, &limits, &measured.ratios()))
}

/// Starts the client's core and connects it to the server.
fn connect<P: Carrier>(
    server: &Server,
    cpu: Option<usize>,
    mode: Polling,
    &CoreOptions { crc, provider, versions, .. }: &CoreOptions,
) -> Result<CoreThread<Driver>, Failure> {
    let polling = polling(mode);
    let (to, timeout) = (server.address, TIMEOUT);
    let hosts = None;
    let config = ClientConfig { to, timeout, crc, cpu, polling, provider, versions, hosts };
    let thread = Thread { name: "demo-core".to_owned(), cpu, polling };
    cores::start(thread, move || {
        let (load, mut driver) = Load::new();
        let limits =
            haulage::limits::Limits { call_timeout: TIMEOUT, connections_max: 4, ..LIMITS_DEFAULT };
        let limits = versions.client(limits);
        let (mut core, _) =
            NodeConfig { crc, ..NodeConfig::new(ROOM, limits) }.build::<P, _>(|_, _| Ok(load))?;
        let connection = core
            .connect(clock::now(), config.to, binding(VALUE_MAX))
            .map_err(|error| explain(&error, &config))?;
        driver.connections.push(connection);
        driver.wake_with(core.waker());
        Ok((core, driver))
    })
}

/// Stores and fetches values of one size.
fn measure_size(
    driver: &Driver,
    pair: Pair,
    size: usize,
    depth: usize,
    measured: &mut Measured,
) -> Result<[Row; 2], Failure> {
    let job = |op, depth, time| Job { op, size, depth, time };
    // Store all keys, and verify them before anything is timed.
    driver.run(job(Op::Put, depth, Duration::ZERO))?;
    driver.run(job(Op::Verify, depth, Duration::ZERO))?;
    let mut rows = Vec::new();
    for op in [Op::Put, Op::Get] {
        let (mut latency, mut rate) = (Tally::default(), Tally::default());
        for _ in 0..ROUNDS {
            let raw_rtt = (size == 64 && op == Op::Get)
                .then(|| limits::tcp_rtt_us(pair, size, SLICE))
                .transpose();
            let alone = driver.run(job(op, 1, SLICE))?;
            if let Some(raw) = raw_rtt.map_err(|error| raw_failed(&error))? {
                measured.rtts.push((raw, alone.samples.quantile_us(0.5)));
            }
            latency.merge(&alone);
            let raw_stream = (size == MIB && op == Op::Get)
                .then(|| limits::tcp_stream_gib_per_s(pair, size, depth, SLICE))
                .transpose();
            let together = driver.run(job(op, depth, SLICE))?;
            if let Some(raw) = raw_stream.map_err(|error| raw_failed(&error))? {
                measured.streams.push((raw, together.gib_per_s()));
            }
            rate.merge(&together);
        }
        rows.push(Row::new(op, size, &latency, &rate));
    }
    // Verify the values again after all PUTs.
    driver.run(job(Op::Verify, depth, Duration::ZERO))?;
    let [put, get] = [rows.remove(0), rows.remove(0)];
    Ok([put, get])
}

fn raw_failed(error: &std::io::Error) -> Failure {
    Failure::failed(format!("cannot measure raw TCP: {error}"))
}

/// Pairs of a raw TCP measurement and one of ours, taken right after each other.
#[derive(Debug, Default)]
struct Measured {
    rtts: Vec<(f64, f64)>,
    streams: Vec<(f64, f64)>,
}

impl Measured {
    /// Returns the machine's limits: raw TCP from the pairs, and the others measured now.
    fn limits(&self, pair: Pair) -> Result<Limits, Failure> {
        let memcpy =
            limits::memcpy_gib_per_s(pair, MIB, SLICE).map_err(|error| raw_failed(&error))?;
        let cacheline =
            limits::cacheline_rtt_us(pair, SLICE).map_err(|error| raw_failed(&error))?;
        Ok(Limits {
            memcpy_gib_per_s: Some(memcpy),
            tcp_stream_gib_per_s: median(self.streams.iter().map(|(raw, _)| *raw)),
            tcp_rtt_us: median(self.rtts.iter().map(|(raw, _)| *raw)),
            cacheline_rtt_us: Some(cacheline),
        })
    }

    fn ratios(&self) -> report::Ratios {
        report::Ratios {
            stream: median(self.streams.iter().map(|(raw, ours)| ours / raw)),
            rtt: median(self.rtts.iter().map(|(raw, ours)| ours / raw)),
        }
    }
}

/// Returns the median; `None` if there are no figures.
fn median(figures: impl Iterator<Item = f64>) -> Option<f64> {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

/// Value sizes, each with the number of Calls in flight when rates are measured.
const SIZES: [(usize, usize); 5] = [(64, 16), (4 << 10, 16), (64 << 10, 8), (MIB, 4), (4 * MIB, 4)];
const MIB: usize = 1 << 20;
/// Maximum size of a value, in octets.
const VALUE_MAX: usize = 4 * MIB;
/// Memory of the server for values and index: four of the largest values being replaced, four being sent, and slack.
const SERVER_MEMORY: &str = "96MiB";
const SERVER_VALUE_MAX: &str = "4MiB";
/// Client memory: the values in flight, and as much again for the slabs they come from.
const ROOM: usize = 32 * MIB;
/// Number of times that each measurement is taken.
const ROUNDS: usize = 3;
/// Duration of one measurement.
const SLICE: Duration = Duration::from_millis(200);
/// Timeout of each Call.
const TIMEOUT: Duration = Duration::from_secs(10);
