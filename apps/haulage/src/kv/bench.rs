//! `haulage kv bench`: GETs and PUTs of keys that are drawn or recorded, measured as `haulage perf` measures Calls.

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

use self::keys::Keys;
use super::client::refused;
use crate::calling::{self, Callee};
use crate::cli::{BenchKv, bytes};
use crate::failure::Failure;
use crate::hosts::ClientHosts;
use crate::limits::{Limits, Noise, Pair};
use crate::node::{Carrier, NodeConfig, over};
use crate::output::Output;
use crate::perf::client::{AtWork, Client};
use crate::perf::load::{self, Pace, Stopped, Work};
use crate::perf::plan::{Ends, Plan, Subject, WARM};
use crate::perf::progress::Progress;
use crate::perf::report::{self, Found, Run};
use crate::perf::run::{LIMIT_TIME, measure_failed};
use crate::placement;
use crate::registration::lookup;
use crate::registration::service::NamedProgram;

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
    let keys = keys(options)?;
    let plan = plan(options, &keys)?;
    let thread = calling::one_core("kv-bench", &options.connect.core)?;
    let timeout = options.connect.timeout.0;
    let to = lookup::server(&options.connect.connect, NamedProgram::KV, timeout)?;
    let core = &options.connect.core;
    let hosts = &options.connect.hosts;
    let hosts =
        ClientHosts::of(hosts, core.versions.rpc_version, &options.connect.connect, output)?;
    let served_by = "haulage kv serve";
    let callee = Callee { to, timeout, served_by, provider: core.provider, hosts };
    let limits = core.versions.client(plan.client_limits(timeout));
    let node = NodeConfig { crc: core.crc, ..NodeConfig::new(memory(&plan, &keys), limits) };
    callee.probe::<P>(binding(ITEM_MAX), node.clone())?;
    if !to.ip().is_loopback() {
        // With both ends on one machine, raising the priority of one would distort the measurement.
        placement::favour(output);
    }
    let mut progress = Progress::new(&plan, 1);
    progress.begin_run();
    let pair = Pair::here(thread.cpu);
    let limits = if to.ip().is_loopback() {
        Limits::measure(pair, plan.limits_size, plan.in_flight() as usize, LIMIT_TIME)
            .map_err(|error| measure_failed(&error))?
    } else {
        Limits::default()
    };
    let noise = Noise::measure(pair, LIMIT_TIME).map_err(|error| measure_failed(&error))?;
    let client = Client {
        callee,
        binding: binding(ITEM_MAX),
        identity: Identity::Anonymous,
        connections: plan.connections,
        active: plan.active,
        watched_beside: Vec::new(),
        node,
    };
    let place = place(&thread);
    let client: AtWork<Calls> = client.start::<P, _>(thread)?;
    // Filling ends when all keys are stored.
    let filling = Pace { warm: std::time::Duration::ZERO, time: FILL_MAX, ..plan.pace };
    progress.begin("storing the keys");
    let (_, calls) = client.run(filling, Calls::filling(options, keys), &mut progress)?;
    progress.measure();
    let (tally, calls) = client.run(plan.pace, calls.filled(), &mut progress)?;
    let idle = client.idle();
    client.stop()?;
    let run = Run { provider, limits, tally, noise, idle, found: Some(calls.found), sides: None };
    if output.json {
        output.line(&report::json(&plan, &run))?;
    }
    let wording = format!("{place}, server at {to}");
    report::finish(&plan, &[run], &wording, output)
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

fn plan(options: &BenchKv, keys: &Keys) -> Result<Plan, Failure> {
    let size = keys.size_mean();
    let time = options.seconds.0;
    let plan = Plan {
        subject: Subject::Kv,
        size,
        pace: Pace {
            depth: options.depth.0,
            rate: None,
            warm: time.min(WARM),
            time,
            seed: load::SEED,
        },
        touch: false,
        connections: options.connections.0,
        active: options.connections.0,
        clients: 1,
        ends: Ends::Processes,
        runs: 1,
        limits_size: size.max(crate::limits::SMALL),
    };
    plan.check()?;
    Ok(plan)
}

fn place(thread: &Thread) -> String {
    match thread.cpu {
        Some(cpu) => format!("client on CPU {cpu}"),
        None => "client not pinned".to_owned(),
    }
}

/// GETs and PUTs.
#[derive(Debug)]
struct Calls {
    keys: Keys,
    /// The room of a message of any connection, once the first Call has gone.
    inline_room: Option<InlineRoom>,
    lengths: Lengths,
    /// The number of keys stored while filling; `None` afterwards.
    stored: Option<u32>,
    found: Found,
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
    /// Creates the work that stores every key once.
    fn filling(options: &BenchKv, keys: Keys) -> Self {
        let inline_max = match options.inline_max {
            Some(bytes) => bytes.0.try_into().unwrap_or(usize::MAX),
            None => inline_max_over(options.connect.core.provider.name()),
        };
        let lengths = Lengths::new(inline_max);
        Self { keys, inline_room: None, lengths, stored: Some(0), found: Found::default() }
    }

    /// Continues with the keys that are drawn.
    fn filled(self) -> Self {
        Self { stored: None, ..self }
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
        match &mut self.stored {
            Some(stored) => {
                let key = (*stored).min(self.keys.count() - 1);
                *stored += 1;
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

    fn begin(&mut self) {
        self.found = Found::default();
    }

    fn is_left(&self) -> bool {
        self.stored.is_none_or(|stored| stored < self.keys.count())
    }
}

/// Timeout of filling: an hour.
const FILL_MAX: std::time::Duration = std::time::Duration::from_secs(3600);
