//! The client of the demo: a service that keeps a number of Calls in flight from within its core.

use std::sync::mpsc;
use std::time::Duration;

use haulage::core::{Cx, Service};
use haulage::pool::Local;
use haulage::proto::chunk::Item;
use haulage::proto::time::Instant;
use haulage::provider::Waker;
use haulage::service::{CallError, ConnectionId, Finished, Request};
use haulage::sys::clock;
use haulage_kv::protocol::{Answer, Carriage, Procedure};
use haulage_kv::service::{copied_system, copied_user};
use haulage_kv::stat::Stat;

use crate::failure::Failure;
use crate::samples::Samples;

/// An operation on the values of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Store the pattern under every key, again and again.
    Put,
    /// Fetch every key, again and again.
    Get,
    /// Fetch every key once into cleared memory and compare every byte.
    Verify,
}

impl Op {
    /// Returns the name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
            Self::Verify => "verify",
        }
    }
}

/// One piece of work: `depth` Calls in flight, each on a key of its own, for `time`, at least once.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// The operation of each Call.
    pub op: Op,
    /// Octets of each value.
    pub size: usize,
    /// Calls in flight.
    pub depth: usize,
    /// Time during which new Calls are made.
    pub time: Duration,
}

/// The results of a job.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// The latency of each Call.
    pub samples: Samples,
    /// Calls that ended.
    pub operations: u64,
    /// Payload octets that user space copied, at both ends.
    pub copied_user: u64,
    /// Payload octets that the system copied, at both ends.
    pub copied_system: u64,
    octets: u64,
    took: Duration,
}

impl Tally {
    /// Adds the results of another job.
    pub fn merge(&mut self, other: &Self) {
        self.samples.merge(&other.samples);
        self.operations += other.operations;
        self.copied_user += other.copied_user;
        self.copied_system += other.copied_system;
        self.octets += other.octets;
        self.took += other.took;
    }

    /// Returns the duration of the job, in seconds.
    pub fn seconds(&self) -> f64 {
        self.took.as_secs_f64()
    }

    /// Returns the throughput of payload, in GiB/s.
    pub fn gib_per_s(&self) -> f64 {
        let gib = self.octets as f64 / (1_u64 << 30) as f64;
        if self.took.is_zero() { 0.0 } else { gib / self.seconds() }
    }
}

/// Gives jobs to a [`Load`], from another thread.
#[derive(Debug)]
pub struct Driver {
    /// The connections on which Calls are made, in turn.
    pub connections: Vec<ConnectionId>,
    jobs: mpsc::Sender<(Job, Vec<ConnectionId>)>,
    tallies: mpsc::Receiver<Result<Tally, String>>,
    waker: Option<Waker>,
}

impl Driver {
    /// Wakes the core of the [`Load`] with `waker` when there is a job.
    pub fn wake_with(&mut self, waker: Waker) {
        self.waker = Some(waker);
    }

    /// Runs a job and waits for its results.
    pub fn run(&self, job: Job) -> Result<Tally, Failure> {
        let gone = || Failure::failed("the client's core has ended");
        self.jobs.send((job, self.connections.clone())).map_err(|_| gone())?;
        if let Some(waker) = &self.waker {
            waker.wake();
        }
        // Every Call of the job has a deadline, and a core that ends drops its end of this channel.
        let tally = self.tallies.recv().map_err(|_| gone())?;
        tally.map_err(|error| {
            Failure::failed(format!("{} of {} B: {error}", job.op.name(), job.size))
        })
    }
}

/// The service of the client's core: it serves nothing and makes the Calls of one job at a time.
#[derive(Debug)]
pub struct Load {
    jobs: mpsc::Receiver<(Job, Vec<ConnectionId>)>,
    tallies: mpsc::Sender<Result<Tally, String>>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    job: Job,
    connections: Vec<ConnectionId>,
    slots: Vec<Slot>,
    in_flight: usize,
    tally: Tally,
    stage: Stage,
    started: Instant,
    /// Both ends' counters when the job began.
    before: (u64, u64),
    failed: Option<String>,
}

/// The stage of a job, which asks for the server's counters before and after its Calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Before,
    Calls,
    After,
}

/// A slot, which makes one Call after another on one key.
#[derive(Debug)]
struct Slot {
    key: String,
    lease: Option<Local>,
    started: Instant,
}

impl Load {
    /// Creates a load, and the driver that gives it jobs.
    pub fn new() -> (Self, Driver) {
        let (jobs_in, jobs) = mpsc::channel();
        let (tallies, tallies_out) = mpsc::channel();
        let driver =
            Driver { connections: Vec::new(), jobs: jobs_in, tallies: tallies_out, waker: None };
        (Self { jobs, tallies, running: None }, driver)
    }

    fn begin(&mut self, cx: &mut Cx<'_>, job: Job, connections: Vec<ConnectionId>) {
        let now = cx.now();
        let slots = (0..job.depth).map(|slot| Slot {
            key: format!("demo-{}-{slot}", job.size),
            lease: None,
            started: now,
        });
        self.running = Some(Running {
            job,
            connections,
            slots: slots.collect(),
            in_flight: 0,
            tally: Tally::default(),
            stage: Stage::Before,
            started: now,
            before: (0, 0),
            failed: None,
        });
        self.ask_for_figures(cx);
    }

    fn ask_for_figures(&mut self, cx: &mut Cx<'_>) {
        let Some(running) = &mut self.running else { return };
        let Some(connection) = running.connections.first() else {
            return self.finish("there is no connection");
        };
        let request = Request::new(Procedure::Stat as u32);
        match cx.call(*connection, request, FIGURES, |_| Ok(())) {
            Ok(()) => running.in_flight += 1,
            Err((error, _)) => self.finish(&error.to_string()),
        }
    }

    /// Takes the server's counters: begins the Calls, or ends the job.
    fn on_figures(&mut self, cx: &mut Cx<'_>, finished: Finished<'_>) {
        let figures = finished.results.map(|results| {
            match Answer::decode(Procedure::Stat, results.rest(), Carriage::Unreduced) {
                Ok(Answer::Stat(stat)) => stat,
                _ => Stat::default(),
            }
        });
        let stat = match figures {
            Ok(stat) => stat,
            Err(error) => return self.finish(&error.to_string()),
        };
        let moved = cx.moved();
        let now =
            (stat.copied_user + copied_user(moved), stat.copied_system + copied_system(moved));
        let Some(running) = &mut self.running else { return };
        running.in_flight -= 1;
        if running.stage == Stage::After {
            running.tally.copied_user = now.0 - running.before.0;
            running.tally.copied_system = now.1 - running.before.1;
            return self.finish("");
        }
        running.before = now;
        running.stage = Stage::Calls;
        running.started = cx.now();
        for slot in 0..running.slots.len() {
            let job = running.job;
            let Some(mut lease) = cx.pool().lease(job.size) else {
                return self.finish("the client's memory is too small");
            };
            match job.op {
                Op::Put => fill(lease.bytes_mut(), job.size, slot),
                Op::Get | Op::Verify => lease.bytes_mut().fill(0),
            }
            running.slots[slot].lease = Some(lease);
        }
        for slot in 0..running.slots.len() {
            running.issue(cx, slot);
        }
        self.end_if_idle(cx);
    }

    fn end_if_idle(&mut self, cx: &mut Cx<'_>) {
        let Some(running) = &mut self.running else { return };
        if running.in_flight > 0 || running.stage != Stage::Calls {
            return;
        }
        if let Some(failed) = running.failed.take() {
            return self.finish(&failed);
        }
        running.tally.took = cx.now().saturating_since(running.started);
        running.stage = Stage::After;
        self.ask_for_figures(cx);
    }

    /// Reports the results. An empty `failed` means success.
    fn finish(&mut self, failed: &str) {
        if let Some(running) = self.running.take() {
            let outcome =
                if failed.is_empty() { Ok(running.tally) } else { Err(failed.to_owned()) };
            // The driver waits for this; if it is gone, nobody needs the results.
            let _ = self.tallies.send(outcome);
        }
    }
}

impl Running {
    /// Makes the next Call of a slot.
    fn issue(&mut self, cx: &mut Cx<'_>, number: usize) {
        let connection = self.connections[number % self.connections.len()];
        let Some(slot) = self.slots.get_mut(number) else { return };
        let lease = slot.lease.take();
        let (procedure, argument, result) = match self.job.op {
            Op::Put => (Procedure::Put, lease, None),
            Op::Get | Op::Verify => (Procedure::Get, None, lease),
        };
        let request = Request::new(procedure as u32).argument(argument).room(result);
        slot.started = clock::now();
        match cx.call(connection, request, number as u64, |w| w.opaque(slot.key.as_bytes())) {
            Ok(()) => self.in_flight += 1,
            Err((error, _)) => self.failed = Some(error.to_string()),
        }
    }

    /// Counts a Call that has ended. Returns an error if it failed or its value is wrong.
    fn ended(&mut self, number: usize, finished: Finished<'_>) -> Result<(), String> {
        let Finished { results, arguments, rooms } = finished;
        let mut results = results.map_err(|error: CallError| error.to_string())?;
        let bad = |_| "malformed reply".to_owned();
        if results.u32().map_err(bad)? != 0 {
            return Err("the server refused it".to_owned());
        }
        let slot = self.slots.get_mut(number).ok_or("no such slot")?;
        let size = self.job.size;
        if self.job.op == Op::Put {
            slot.lease = arguments.into_first();
        } else {
            let length = match results.eligible_opaque(0).map_err(bad)? {
                Item::Reduced { length } => length,
                Item::Unreduced(bytes) => bytes.len() as u64,
            };
            let mut lease = rooms.into_first().ok_or("the value's memory did not come back")?;
            if length != size as u64 || lease.len() != size {
                return Err(format!("{length} bytes came back"));
            }
            if self.job.op == Op::Verify && !matches(lease.bytes(), size, number) {
                return Err("the value that came back differs from what was stored".to_owned());
            }
            lease.set_len(size);
            slot.lease = Some(lease);
        }
        self.tally.samples.record(clock::now().saturating_since(slot.started));
        self.tally.operations += 1;
        self.tally.octets += size as u64;
        Ok(())
    }
}

impl Service for Load {
    fn replied(&mut self, cx: &mut Cx<'_>, token: u64, finished: Finished<'_>) {
        if token == FIGURES {
            return self.on_figures(cx, finished);
        }
        let Some(running) = &mut self.running else { return };
        running.in_flight -= 1;
        // The token is the slot it was made from.
        let Ok(number) = usize::try_from(token) else { return };
        match running.ended(number, finished) {
            Err(error) => running.failed = Some(error),
            Ok(()) if cx.now().saturating_since(running.started) < running.job.time => {
                running.issue(cx, number);
            }
            Ok(()) => {}
        }
        self.end_if_idle(cx);
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        if self.running.is_some() {
            return false;
        }
        let Ok((job, connections)) = self.jobs.try_recv() else { return false };
        self.begin(cx, job, connections);
        true
    }
}

/// Fills a value with the pattern of a slot and a size; no two patterns are alike.
pub fn fill(bytes: &mut [u8], size: usize, slot: usize) {
    for (chunk, word) in bytes.chunks_mut(8).zip(pattern(size, slot)) {
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
}

/// Compares every byte of a value with the pattern of a slot and a size.
pub fn matches(bytes: &[u8], size: usize, slot: usize) -> bool {
    let mut words = bytes.chunks(8).zip(pattern(size, slot));
    bytes.len() == size && words.all(|(chunk, word)| chunk == &word.to_le_bytes()[..chunk.len()])
}

/// Returns the words of a pattern (splitmix64).
fn pattern(size: usize, slot: usize) -> impl Iterator<Item = u64> {
    let mut state = (size as u64) << 32 | slot as u64;
    std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

/// The token of the Calls that ask for the server's counters.
const FIGURES: u64 = u64::MAX;
