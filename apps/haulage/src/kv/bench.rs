//! `haulage kv bench`: GETs and PUTs of keys that are drawn or recorded, measured as `haulage perf` measures Calls.

mod busiest;
mod keys;
mod trace;

use haulage::core::Cx;
use haulage::cores::Placement as Thread;
use haulage::identity::Identity;
use haulage::limits::ITEM_MAX;
use haulage::pool::Local;
use haulage::proto::v2::error::ErrorBody;
use haulage::service::{CallError, ConnectionId, Finished, InlineRoom, Request, TransportError};
use haulage_kv::inline::{Lengths, inline_max_over};
use haulage_kv::protocol::{Answer, Carriage, Key, Procedure, Refusal, Value};
use haulage_kv::service::binding;

use self::busiest::Gets;
use self::keys::Keys;
use super::client::refused;
use crate::calling::{self, Callee};
use crate::cli::{BenchKv, bytes};
use crate::failure::Failure;
use crate::hosts::ClientHosts;
use crate::limits::{Limits, MESSAGE_MAX, Noise, Pair, SMALL};
use crate::node::{Carrier, NodeConfig, over};
use crate::output::Output;
use crate::output::table::counted;
use crate::perf::client::{Client, Clients};
use crate::perf::load::{self, Moment, Pace, Stopped, Timed, Work};
use crate::perf::plan::{Ends, Plan, Subject, WARM};
use crate::perf::progress::Progress;
use crate::perf::report::{self, Found, Run};
use crate::perf::run::{LIMIT_TIME, measure_failed};
use crate::placement::{self, Cpus, Placement, place_words};
use crate::registration::lookup;
use crate::registration::service::NamedProgram;
use crate::serving;

/// Runs `haulage kv bench` against a server.
pub fn run(options: &BenchKv, output: &Output) -> Result<(), Failure> {
    let provider = options.connect.core.provider;
    over!(provider, measure, (options, provider.name(), output))
}

fn measure<P: Carrier>(
    options: &BenchKv,
    provider: &'static str,
    output: &Output,
) -> Result<(), Failure> {
    let threads = threads(options, output)?;
    let count = u32::try_from(threads.len()).unwrap_or(u32::MAX);
    let keys = keys(options)?;
    let plan = plan(options, &keys, count)?;
    let first = plan.part(0, count);
    let timeout = options.connect.timeout.0;
    let to = lookup::server(&options.connect.connect, NamedProgram::KV, timeout)?;
    let core = &options.connect.core;
    let hosts = &options.connect.hosts;
    let hosts =
        ClientHosts::of(hosts, core.versions.rpc_version, &options.connect.connect, output)?;
    let served_by = "haulage kv serve";
    let callee = Callee { to, timeout, served_by, provider: core.provider, hosts };
    let node = |plan: &Plan| {
        let limits = core.versions.client(plan.client_limits(timeout));
        NodeConfig { crc: core.crc, ..NodeConfig::new(memory(plan, &keys), limits) }
    };
    callee.probe::<P>(binding(ITEM_MAX), node(&first))?;
    if !to.ip().is_loopback() {
        // With both ends on one machine, raising the priority of one would distort the measurement.
        placement::favour(output);
    }
    let mut progress = Progress::new(&plan, 1);
    progress.begin_run();
    let cpus: Vec<_> = threads.iter().map(|thread| thread.cpu).collect();
    let pair = Pair::here(cpus.first().copied().flatten());
    let limits = if to.ip().is_loopback() {
        Limits::measure(pair, plan.limits_size, first.in_flight() as usize, LIMIT_TIME)
            .map_err(|error| measure_failed(&error))?
    } else {
        Limits::default()
    };
    let noise = Noise::measure(pair, LIMIT_TIME).map_err(|error| measure_failed(&error))?;
    let client = |number| {
        let plan = plan.part(number, count);
        Client {
            callee: callee.clone(),
            binding: binding(ITEM_MAX),
            identity: Identity::Anonymous,
            connections: plan.connections,
            active: plan.active,
            node: node(&plan),
        }
    };
    let clients = (0..).map(client).zip(threads).collect();
    let clients: Clients<Calls> = Clients::start::<P>(clients)?;
    // Filling ends when all keys are stored.
    let filling = Pace { warm: std::time::Duration::ZERO, time: FILL_MAX, ..plan.pace };
    progress.begin("storing the keys");
    let calls = (0..count).map(|number| Calls::filling(options, &keys, (number, count))).collect();
    let (_, calls) = clients.run(filling, calls, &progress)?;
    progress.measure();
    let calls = calls.into_iter().map(Calls::filled).collect();
    let (tally, calls) = clients.run(plan.pace, calls, &progress)?;
    let idle = clients.idle();
    clients.stop()?;
    let mut found = Found::default();
    calls.iter().for_each(|calls| found += calls.found);
    let busiest = calls.iter().find_map(|calls| calls.gets.as_ref()).map(Gets::busiest);
    let found = Some(found);
    let run = Run { provider, limits, tally, noise, idle, found, busiest, sides: None };
    if output.json {
        output.line(&report::json(&plan, &run))?;
    }
    let wording = format!("{}, server at {to}", place(&cpus));
    report::finish(&plan, &[run], &wording, output)
}

/// Returns the threads of the client's cores.
fn threads(options: &BenchKv, output: &Output) -> Result<Vec<Thread>, Failure> {
    let core = &options.connect.core;
    let Some(list) = &options.client_cores else {
        return Ok(vec![calling::one_core("kv-bench", core)?]);
    };
    let (cores, connections) = (list.cpus().len(), options.connections.0);
    if cores > connections as usize {
        return Err(Failure::usage(format!(
            "each client core has a connection of its own: --client-cores names {}; raise --connections, which is \
             {connections}",
            counted(cores, "CPU")
        )));
    }
    let Placement { cores, polling, note } =
        Placement::of_clients(list, core.polling, &Cpus::here()?)?;
    note.into_iter().for_each(|note| output.note(note));
    Ok(serving::threads("kv-bench", &cores, polling))
}

/// Chooses the keys.
fn keys(options: &BenchKv) -> Result<Keys, Failure> {
    let size = usize::try_from(options.value_size.0).unwrap_or(usize::MAX);
    if !(1..=ITEM_MAX).contains(&size) {
        let most = bytes::format(ITEM_MAX as u64);
        return Err(Failure::usage(format!("--value-size is 1 byte to {most}")));
    }
    Keys::of(options, size)
}

/// Returns the octets of memory that the values need at the client.
fn memory(plan: &Plan, keys: &Keys) -> usize {
    Plan { size: keys.size_max(), ..*plan }.memory()
}

/// Returns the plan of the whole benchmark, whose connections `cores` client cores share.
fn plan(options: &BenchKv, keys: &Keys, cores: u32) -> Result<Plan, Failure> {
    let size = keys.size_mean();
    let time = options.seconds.0;
    let (depth, connections) = (options.depth.0, options.connections.0);
    let plan = Plan {
        subject: Subject::Kv,
        size,
        pace: Pace {
            depth,
            rate: None,
            warm: time.min(WARM),
            time,
            seed: load::SEED,
            timed: Timed::of(depth.saturating_mul(connections.div_ceil(cores))),
        },
        touch: false,
        connections,
        active: connections,
        clients: 1,
        ends: Ends::Processes,
        runs: 1,
        limits_size: size.clamp(SMALL, MESSAGE_MAX),
    };
    plan.part(0, cores).check_client()?;
    plan.check_all()?;
    Ok(plan)
}

fn place(cpus: &[Option<usize>]) -> String {
    let cores = match cpus.len() {
        1 => String::new(),
        cores => format!("{} ", counted(cores, "core")),
    };
    format!("client {cores}{}", place_words(cpus))
}

/// GETs and PUTs.
#[derive(Debug)]
struct Calls {
    keys: Keys,
    /// The room of a message of any connection, once the first Call has gone.
    inline_room: Option<InlineRoom>,
    lengths: Lengths,
    /// What is left to store while filling; `None` afterwards.
    left: Option<Left>,
    found: Found,
    /// What each core of the server was asked for, if that is to be told.
    gets: Option<Gets>,
}

/// The keys that a client core has to store: the one of number `next`, and every `step`th behind it.
#[derive(Clone, Copy, Debug)]
struct Left {
    next: u32,
    step: u32,
}

/// A slot, which makes one Call after another.
#[derive(Debug)]
struct Slot {
    lease: Option<Local>,
    procedure: Procedure,
    /// Octets of the value of the key.
    size: usize,
}

impl Calls {
    /// Creates the work of client core `number` of `count`, which together store every key once.
    fn filling(options: &BenchKv, keys: &Keys, (number, count): (u32, u32)) -> Self {
        let inline_max = match options.inline_max {
            Some(bytes) => bytes.0.try_into().unwrap_or(usize::MAX),
            None => inline_max_over(options.connect.core.provider.name()),
        };
        let lengths = Lengths::new(inline_max);
        let left = Some(Left { next: number, step: count });
        let is_skewed = options.trace.is_some() || options.zipf.is_some() || options.hot.is_some();
        // One client core asks for all.
        let gets = (is_skewed && number == 0).then(Gets::default);
        let keys = keys.part(number, count);
        Self { keys, inline_room: None, lengths, left, found: Found::default(), gets }
    }

    /// Continues with the keys that are drawn.
    fn filled(self) -> Self {
        Self { left: None, ..self }
    }

    /// Returns the room of a message.
    fn inline_room(&mut self, cx: &Cx<'_>, connection: ConnectionId) -> InlineRoom {
        match self.inline_room {
            Some(room) => room,
            None => *self.inline_room.insert(cx.inline_room(connection).unwrap_or(InlineRoom::MIN)),
        }
    }

    /// Returns the next operation: whether it is a GET, and the number of its key.
    fn next(&mut self) -> (bool, u32) {
        match &mut self.left {
            Some(Left { next, step }) => {
                let key = (*next).min(self.keys.count() - 1);
                *next = next.saturating_add(*step);
                (false, key)
            }
            None => self.keys.draw(),
        }
    }
}

/// Says that somebody else stored a value of this length under one of the keys.
fn other_length(size: usize, length: u64) -> Stopped {
    let (found, stored) = (bytes::format(length), bytes::format(size as u64));
    Stopped::OtherValue(format!(
        "a value has {found}, and this benchmark stored {stored}: another client, such as a benchmark with another \
         --value-size, stores under the same keys; run one after the other, or on servers of their own"
    ))
}

impl Work for Calls {
    type Slot = Slot;

    const FIGURES: u32 = Procedure::Figures as u32;

    fn slot(&mut self, cx: &Cx<'_>) -> Option<Slot> {
        let size = self.keys.size_max();
        let mut lease = cx.pool().lease(size)?;
        lease.bytes_mut().fill(1);
        Some(Slot { lease: Some(lease), procedure: Procedure::Put, size })
    }

    fn make(
        &mut self,
        cx: &mut Cx<'_>,
        connection: ConnectionId,
        slot: &mut Slot,
        token: u64,
    ) -> Result<(), CallError> {
        let (get, number) = self.next();
        let size = self.keys.size(number);
        let inline_room = self.inline_room(cx, connection);
        let Self { keys, lengths, .. } = self;
        keys.with_name(number, |name| {
            let key = Key::new(name).map_err(|_| CallError::TooLong)?;
            // It is known before the key has been asked for.
            lengths.remember(key, size);
            (slot.procedure, slot.size) = (if get { Procedure::Get } else { Procedure::Put }, size);
            let request = Request::new(slot.procedure as u32);
            let called = if get {
                let is_long = lengths.expects_chunk(key, inline_room).is_some();
                let room = if is_long { slot.lease.take() } else { None };
                cx.call(connection, request.room(room), token, |w| w.opaque(key.bytes()))
            } else if lengths.stores_inline(key, size, inline_room) {
                let value = slot.lease.as_ref().map_or(&[][..], Local::bytes);
                cx.call(connection, request, token, |w| {
                    w.opaque(key.bytes())?;
                    w.opaque(value.get(..size).unwrap_or_default())
                })
            } else {
                let mut value = slot.lease.take();
                value.iter_mut().for_each(|value| value.set_len(size));
                cx.call(connection, request.argument(value), token, |w| w.opaque(key.bytes()))
            };
            called.map_err(|(error, _)| error)
        })
    }

    fn ended(
        &mut self,
        cx: &mut Cx<'_>,
        slot: &mut Slot,
        finished: Finished<'_>,
    ) -> Result<(), Stopped> {
        let Finished { results, arguments, rooms } = finished;
        let results = match results {
            // The value does not fit the chunk that was offered.
            Err(CallError::Refused(TransportError::Two(ErrorBody::WriteResource {
                length_needed,
                ..
            }))) if slot.procedure == Procedure::Get => {
                return Err(other_length(slot.size, length_needed.into()));
            }
            results => results?,
        };
        let mut written = 0;
        if slot.lease.is_none() {
            let lease = arguments.into_first().or(rooms.into_first());
            let lease = slot.lease.insert(lease.ok_or(Stopped::BadReply)?);
            written = lease.len();
            lease.set_len(self.keys.size_max());
        }
        let carriage = Carriage::of(results.reduced());
        match Answer::decode(slot.procedure, results.rest(), carriage) {
            Ok(Answer::Done) => Ok(()),
            Ok(Answer::Value(Value::Reduced { length })) if length as usize != written => {
                Err(Stopped::BadReply)
            }
            Ok(Answer::Value(Value::Reduced { length })) if length as usize == slot.size => {
                self.found.hits += 1;
                Ok(())
            }
            Ok(Answer::Value(Value::Unreduced(octets))) if octets.len() == slot.size => {
                cx.count_unreduced(octets.len() as u64);
                self.found.hits += 1;
                Ok(())
            }
            Ok(Answer::Value(value)) => Err(other_length(slot.size, value.length())),
            Ok(Answer::TooLong { length }) => Err(other_length(slot.size, length)),
            Ok(Answer::Refused(Refusal::NotFound)) => {
                self.found.misses += 1;
                Ok(())
            }
            Ok(Answer::Refused(refusal)) => Err(Stopped::Refused(refused(&refusal))),
            Ok(_) | Err(_) => Err(Stopped::BadReply),
        }
    }

    fn asks(&self) -> Option<u32> {
        let asks = self.left.is_none() && self.gets.is_some();
        asks.then_some(Procedure::Stat as u32)
    }

    fn told(&mut self, moment: Moment, finished: Finished<'_>) -> Result<(), Stopped> {
        self.gets.as_mut().map_or(Ok(()), |gets| gets.take(moment, finished))
    }

    fn begin(&mut self) {
        self.found = Found::default();
    }

    fn is_left(&self) -> bool {
        self.left.is_none_or(|left| left.next < self.keys.count())
    }
}

/// Timeout of filling: an hour.
const FILL_MAX: std::time::Duration = std::time::Duration::from_secs(3600);
