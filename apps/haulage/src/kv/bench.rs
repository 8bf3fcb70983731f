//! `haulage kv bench`: random GETs and PUTs, measured as `haulage perf` measures Calls.

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
    let plan = plan(options)?;
    let thread = calling::one_core("kv-bench", &options.connect.core)?;
    let timeout = options.connect.timeout.0;
    let to = lookup::server(&options.connect.connect, NamedProgram::KV, timeout)?;
    let core = &options.connect.core;
    let hosts = &options.connect.hosts;
    let hosts =
        ClientHosts::of(hosts, core.versions.rpc_version, &options.connect.connect, output)?;
    let served_by = "haulage kv serve";
    let callee = Callee { to, timeout, served_by, provider: core.provider, hosts };
    let limits = core.versions.within(plan.client_limits(timeout));
    let limits = options.connect.extensions.sending(limits);
    let node = NodeConfig { crc: core.crc, ..NodeConfig::new(plan.memory(), limits) };
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
    let (_, calls) = client.run(filling, Calls::filling(options, plan.size), &mut progress)?;
    progress.measure();
    let (tally, calls) = client.run(plan.pace, calls.at_random(), &mut progress)?;
    let idle = client.idle();
    client.stop()?;
    let run = Run { provider, limits, tally, noise, idle, found: Some(calls.found), sides: None };
    if output.json {
        output.line(&report::json(&plan, &run))?;
    }
    let wording = format!("{place}, server at {to}");
    report::finish(&plan, &[run], &wording, output)
}

fn plan(options: &BenchKv) -> Result<Plan, Failure> {
    let size = usize::try_from(options.value_size.0).unwrap_or(usize::MAX);
    if !(1..=ITEM_MAX).contains(&size) {
        let most = bytes::format(ITEM_MAX as u64);
        return Err(Failure::usage(format!("--value-size is 1 byte to {most}")));
    }
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
    size: usize,
    /// The room of a message of any connection, once the first Call has gone.
    inline_room: Option<InlineRoom>,
    lengths: Lengths,
    /// The share of GETs among all Calls, in units of 2^-32.
    gets: u64,
    keys: u32,
    /// The number of keys drawn while filling; `None` while keys are drawn at random.
    filled: Option<u32>,
    /// The state of the random generator.
    state: u64,
    found: Found,
}

/// A slot, which makes one Call after another.
#[derive(Debug)]
struct Slot {
    lease: Option<Local>,
    procedure: Procedure,
}

impl Calls {
    /// Creates the work that stores every key once.
    fn filling(options: &BenchKv, size: usize) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the ratio is at most one")]
        #[expect(clippy::cast_sign_loss, reason = "the ratio is not negative")]
        let gets = (options.get_ratio.0 * (1_u64 << 32) as f64) as u64;
        let inline_max = match options.inline_max {
            Some(bytes) => bytes.0.try_into().unwrap_or(usize::MAX),
            None => inline_max_over(options.connect.core.provider.name()),
        };
        Self {
            size,
            inline_room: None,
            lengths: Lengths::new(inline_max),
            gets,
            keys: options.keys.0,
            filled: Some(0),
            state: SEED,
            found: Found::default(),
        }
    }

    /// Continues with random keys.
    fn at_random(self) -> Self {
        Self { filled: None, ..self }
    }

    /// Returns the room of a message.
    fn inline_room(&mut self, cx: &Cx<'_>, connection: ConnectionId) -> InlineRoom {
        match self.inline_room {
            Some(room) => room,
            None => *self.inline_room.insert(cx.inline_room(connection).unwrap_or(InlineRoom::MIN)),
        }
    }

    /// Says that somebody else stored a value under one of the keys.
    fn other_length(&self, length: u64) -> Stopped {
        let (found, stored) = (bytes::format(length), bytes::format(self.size as u64));
        Stopped::OtherValue(format!(
            "a value has {found}, and this benchmark stored {stored}: another client, such as a benchmark with another \
             --value-size, stores under the same keys; run one after the other, or on servers of their own"
        ))
    }

    /// Draws 32 bits.
    const fn draw(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state >> 32
    }

    /// Returns the next operation: whether it is a GET, and the number of its key.
    fn next(&mut self) -> (bool, u32) {
        if let Some(filled) = &mut self.filled {
            let key = *filled;
            *filled += 1;
            return (false, key.min(self.keys - 1));
        }
        let key = (self.draw() * u64::from(self.keys)) >> 32;
        (self.draw() < self.gets, u32::try_from(key).unwrap_or_default())
    }
}

impl Work for Calls {
    type Slot = Slot;

    const FIGURES: u32 = Procedure::Figures as u32;

    fn slot(&mut self, cx: &Cx<'_>) -> Option<Slot> {
        let mut lease = cx.pool().lease(self.size)?;
        lease.bytes_mut().fill(1);
        Some(Slot { lease: Some(lease), procedure: Procedure::Put })
    }

    fn make(
        &mut self,
        cx: &mut Cx<'_>,
        connection: ConnectionId,
        slot: &mut Slot,
        token: u64,
    ) -> Result<(), CallError> {
        let (get, key) = self.next();
        let name = name(key);
        let key = Key::new(&name).map_err(|_| CallError::TooLong)?;
        slot.procedure = if get { Procedure::Get } else { Procedure::Put };
        let request = Request::new(slot.procedure as u32);
        let inline_room = self.inline_room(cx, connection);
        let called = if get {
            let is_long = self.lengths.expects_chunk(key, inline_room).is_some();
            let room = if is_long { slot.lease.take() } else { None };
            cx.call(connection, request.room(room), token, |w| w.opaque(key.bytes()))
        } else if self.lengths.stores_inline(key, self.size, inline_room) {
            let value = slot.lease.as_ref().map_or(&[][..], Local::bytes);
            cx.call(connection, request, token, |w| {
                w.opaque(key.bytes())?;
                w.opaque(value)
            })
        } else {
            let request = request.argument(slot.lease.take());
            cx.call(connection, request, token, |w| w.opaque(key.bytes()))
        };
        if !get {
            self.lengths.remember(key, self.size);
        }
        called.map_err(|(error, _)| error)
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
                return Err(self.other_length(length_needed.into()));
            }
            results => results?,
        };
        let mut written = 0;
        if slot.lease.is_none() {
            let lease = arguments.into_first().or(rooms.into_first());
            let lease = slot.lease.insert(lease.ok_or(Stopped::BadReply)?);
            written = lease.len();
            lease.set_len(self.size);
        }
        let carriage = Carriage::of(results.reduced());
        match Answer::decode(slot.procedure, results.rest(), carriage) {
            Ok(Answer::Done) => Ok(()),
            Ok(Answer::Value(Value::Reduced { length })) if length as usize != written => {
                Err(Stopped::BadReply)
            }
            Ok(Answer::Value(Value::Reduced { length })) if length as usize == self.size => {
                self.found.hits += 1;
                Ok(())
            }
            Ok(Answer::Value(Value::Unreduced(octets))) if octets.len() == self.size => {
                cx.count_unreduced(octets.len() as u64);
                self.found.hits += 1;
                Ok(())
            }
            Ok(Answer::Value(value)) => Err(self.other_length(value.length())),
            Ok(Answer::TooLong { length }) => Err(self.other_length(length)),
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
        self.filled.is_none_or(|filled| filled < self.keys)
    }
}

/// Formats a key: `bench-` and eight digits.
fn name(mut number: u32) -> [u8; 14] {
    let mut name = *b"bench-00000000";
    for digit in name[6..].iter_mut().rev() {
        *digit += u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
    }
    name
}

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Timeout of filling: an hour.
const FILL_MAX: std::time::Duration = std::time::Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_filled_in_order_and_then_drawn_from_all() {
        assert_eq!((&name(0), &name(99_999_999)), (b"bench-00000000", b"bench-99999999"));
        assert_eq!(&name(1_234_567), b"bench-01234567");
        let filling = Calls {
            size: 1,
            gets: 3 << 30,
            keys: 5,
            inline_room: None,
            lengths: Lengths::default(),
            filled: Some(0),
            state: SEED,
            found: Found::default(),
        };
        let mut calls = filling;
        let filled: Vec<_> = (0..5).map(|_| calls.next()).collect();
        assert_eq!(filled, [0, 1, 2, 3, 4].map(|key| (false, key)));
        assert!(!calls.is_left());
        let mut calls = calls.at_random();
        let drawn: Vec<_> = (0..1000).map(|_| calls.next()).collect();
        let gets = drawn.iter().filter(|(get, _)| *get).count();
        assert!((700..800).contains(&gets), "{gets} of 1000 are gets");
        let of_key = |n| drawn.iter().filter(|(_, key)| *key == n).count();
        assert!((0..5).all(|key| (150..250).contains(&of_key(key))) && calls.is_left());
    }
}
