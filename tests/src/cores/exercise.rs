//! A program whose every octet follows from the number of the Call, and the service that answers it.
//!
//! The first words of a Call are its [`Plan`]: its fate and its lengths. All octets behind them, and all octets of its
//! results, are the [`pattern`] of the Call's number.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use haulage::core::{CoreNumber, Cx, Service};
use haulage::pool::{Local, Piece, Pieces, Pool, Shared};
use haulage::service::{
    Argument, Arguments, Binding, Call, CallToken, Data, Eligible, Outcome, Peer, Procedure,
    Program, Refusal, Reply,
};
use haulage_proto::exchange::retry::REFUSALS_MAX;
use haulage_proto::rpc::AcceptStat;
use haulage_proto::time::Instant;
use haulage_proto::xdr::{Truncated, Writer};

use super::fellow::{self, Falls, Fellow, Moment};
use super::mix::{Event, Mix};
use crate::pattern;
use crate::world::choices::Choices;

/// The contents and the fate of a Call. It travels in front of the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The number of the Call, unique in the world.
    pub token: u64,
    /// The procedure.
    pub procedure: u32,
    /// The outcome that the Call asks for.
    pub fate: Fate,
    /// Length of the arguments behind the plan that are no item, in octets.
    pub filler: usize,
    /// Length of the argument that is an item, of a procedure that has one.
    pub argument: usize,
    /// Length of the results that are no item.
    pub answer: usize,
    /// Length of the result that is an item, of a procedure that has one.
    pub result: usize,
}

/// The outcome of a Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The service answers at once.
    Now,
    /// The service answers in a later turn.
    Later,
    /// The service answers once this many milliseconds have passed.
    After(u32),
    /// The service fails the Call.
    Failed,
}

/// A procedure without arguments and results.
pub const NULL: u32 = 0;
/// A procedure without items, whose results are short.
pub const TELL: u32 = 1;
/// A procedure without items, whose results may be long.
pub const LIST: u32 = 2;
/// A procedure that takes an item.
pub const STORE: u32 = 3;
/// A procedure that returns an item.
pub const FETCH: u32 = 4;
/// A procedure that takes an item, returns one, and has results beside it that may be long.
pub const SWAP: u32 = 5;
/// A procedure that clients know and servers do not.
pub const UNKNOWN: u32 = 6;

/// Length of the longest item, in octets.
pub const ITEM_MAX: usize = 192 << 10;
/// Length of the longest results that are no item.
pub const ANSWER_MAX: usize = 16_000;
/// Length of the longest arguments that are no item: with the words in front of them, they make the longest Call.
pub const FILLER_MAX: usize = 4_990;
/// Length of the longest results that are no item, of a procedure that keeps them short.
pub const SHORT_MAX: usize = 100;

/// Returns the binding that clients use, which has a procedure that servers lack.
pub fn binding() -> Binding {
    let mut known = served();
    known.procedures.push(Procedure::new("UNKNOWN"));
    known
}

fn served() -> Binding {
    let item = Eligible::opaque(ITEM_MAX);
    // The number of the Call, the octets with their length, and the length of an item.
    let results = |octets: usize| u32::try_from(8 + 4 + octets + 4).expect("few octets");
    let procedures = vec![
        Procedure::new("NULL").results_max(0).idempotent(),
        Procedure::new("TELL").results_max(results(SHORT_MAX)),
        Procedure::new("LIST").results_max(results(ANSWER_MAX)),
        Procedure::new("STORE").argument(item).results_max(results(SHORT_MAX)),
        Procedure::new("FETCH").result(item).results_max(results(SHORT_MAX)).idempotent(),
        Procedure::new("SWAP").argument(item).result(item).results_max(results(ANSWER_MAX)),
    ];
    Binding { program: 0x2000_0101, version: 1, procedures }
}

impl Plan {
    /// Returns how often the Call may be carried out: more than once only if that does no harm, each time but the last in
    /// vain.
    pub fn times_max(&self) -> u32 {
        if self.procedure == FETCH { 1 + u32::from(REFUSALS_MAX) } else { 1 }
    }

    /// Returns whether the arguments end with an item.
    pub const fn brings(&self) -> bool {
        matches!(self.procedure, STORE | SWAP)
    }

    /// Returns whether the results end with an item.
    pub const fn returns(&self) -> bool {
        matches!(self.procedure, FETCH | SWAP)
    }

    /// Returns the octets of one part of the Call.
    pub fn octets(&self, part: Part) -> Vec<u8> {
        let length = match part {
            Part::Filler => self.filler,
            Part::Argument => self.argument,
            Part::Answer => self.answer,
            Part::Result => self.result,
        };
        pattern::of(length, self.token << 2 | part as u64)
    }

    /// Returns the arguments, without the item.
    pub fn arguments(&self) -> Vec<u8> {
        if self.procedure == NULL {
            return Vec::new();
        }
        let mut octets = vec![0; 64 + self.filler];
        let mut w = Writer::new(&mut octets);
        let (fate, after) = match self.fate {
            Fate::Now => (0, 0),
            Fate::Later => (1, 0),
            Fate::After(millis) => (2, millis),
            Fate::Failed => (3, 0),
        };
        let lengths = [self.argument, self.answer, self.result];
        let [argument, answer, result] = lengths.map(|length| length as u64);
        let encoded = w
            .u64(self.token)
            .and_then(|()| w.words([fate, after]))
            .and_then(|()| w.u64(argument))
            .and_then(|()| w.u64(answer))
            .and_then(|()| w.u64(result))
            .and_then(|()| w.opaque(&self.octets(Part::Filler)));
        encoded.expect("room for a plan and its filler");
        let length = w.position();
        octets.truncate(length);
        octets
    }

    /// Decodes a plan, and the filler behind it.
    fn decode<'a>(
        procedure: u32,
        arguments: &mut Arguments<'a>,
    ) -> Result<(Self, &'a [u8]), Truncated> {
        let token = wide(arguments)?;
        let (fate, after) = (arguments.u32()?, arguments.u32()?);
        let fate = match fate {
            0 => Fate::Now,
            1 => Fate::Later,
            2 => Fate::After(after),
            _ => Fate::Failed,
        };
        let mut length = || wide(arguments).map(|length| usize::try_from(length).unwrap_or(0));
        let (argument, answer, result) = (length()?, length()?, length()?);
        let filler = arguments.opaque(FILLER_MAX)?;
        let plan = Self { token, procedure, fate, filler: filler.len(), argument, answer, result };
        Ok((plan, filler))
    }

    /// Returns whether the plan is within the bounds that clients keep.
    fn is_modest(&self) -> bool {
        let most = if self.brings() || self.returns() { ITEM_MAX } else { 0 };
        let is_short = self.answer <= SHORT_MAX || matches!(self.procedure, LIST | SWAP);
        let is_soon = !matches!(self.fate, Fate::After(millis) if millis > 300);
        self.argument.max(self.result) <= most && self.answer <= ANSWER_MAX && is_short && is_soon
    }
}

/// A part of a Call.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// Arguments that are no item.
    Filler,
    /// The argument that is an item.
    Argument,
    /// Results that are no item.
    Answer,
    /// The result that is an item.
    Result,
}

fn wide(arguments: &mut Arguments<'_>) -> Result<u64, Truncated> {
    Ok(u64::from(arguments.u32()?) << 32 | u64::from(arguments.u32()?))
}

/// A record of what servers did with the Calls of all clients.
#[derive(Debug, Default)]
pub struct Ledger {
    served: BTreeMap<u64, Served>,
    /// Counts of the events at servers.
    pub mix: Mix,
}

/// A record of what servers did with one Call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    /// Number of times the Call was carried out.
    pub times: u32,
    /// Whether there was no memory for one of its items.
    pub starved: bool,
    /// The core that carried it out.
    pub core: Option<CoreNumber>,
}

impl Ledger {
    /// Returns the record of a Call.
    pub fn served(&self, token: u64) -> Served {
        self.served.get(&token).copied().unwrap_or_default()
    }

    fn carry_out(&mut self, plan: &Plan, core: CoreNumber) {
        let served = self.served.entry(plan.token).or_default();
        served.times += 1;
        served.core = Some(core);
        assert!(served.times <= plan.times_max(), "carried out too often: {plan:?}");
    }

    fn starve(&mut self, plan: &Plan) -> Outcome {
        self.served.entry(plan.token).or_default().starved = true;
        Outcome::Failed(AcceptStat::SystemErr)
    }
}

/// The service that answers the program's Calls.
#[derive(Debug)]
pub struct Exercise {
    choices: Choices,
    ledger: Rc<RefCell<Ledger>>,
    flavors: Vec<u32>,
    /// Whether messages are corrupted on their way, so that Calls may ask for anything.
    is_misled: bool,
    waiting: Vec<Waiting>,
    ready: Vec<(CallToken, Plan)>,
    /// When the service must be turned.
    due: Rc<Cell<Option<Instant>>>,
    /// Memory of an earlier result, which may still be on its way.
    kept: Option<Shared>,
    /// When this service is to panic.
    falls: Falls,
    /// The part of the service in a group of several cores.
    fellow: Option<Fellow>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    call: CallToken,
    plan: Plan,
    due: Instant,
}

impl Exercise {
    /// Builds a service that takes Calls of these authentication flavors, and sets `due` to when it must be turned.
    pub fn new(
        seed: u64,
        flavors: Vec<u32>,
        ledger: Rc<RefCell<Ledger>>,
        due: Rc<Cell<Option<Instant>>>,
    ) -> Self {
        let choices = Choices::seeded(seed);
        let (waiting, ready) = (Vec::new(), Vec::new());
        let (falls, fellow) = (Falls::default(), None);
        let (is_misled, kept) = (false, None);
        Self { choices, ledger, flavors, is_misled, waiting, ready, due, kept, falls, fellow }
    }

    /// Makes the service one of a group, which may be of one core.
    #[must_use]
    pub fn in_group(self, falls: Falls, fellow: Option<Fellow>) -> Self {
        Self { falls, fellow, ..self }
    }

    /// Returns the part of the service in a group of several cores.
    pub const fn fellow(&self) -> Option<&Fellow> {
        self.fellow.as_ref()
    }

    /// Makes the service accept corrupted Calls, whatever they ask for.
    #[must_use]
    pub const fn misled(mut self) -> Self {
        self.is_misled = true;
        self
    }

    fn keep(&self) {
        self.due.set(self.waiting.iter().map(|waiting| waiting.due).min());
    }

    /// Takes the argument that is an item, and checks it. Returns whether there was memory for it.
    fn take(plan: &Plan, arguments: &mut Arguments<'_>) -> Result<bool, Truncated> {
        if !plan.brings() {
            return Ok(true);
        }
        let expected = plan.octets(Part::Argument);
        match arguments.item(ITEM_MAX)? {
            Argument::Unreduced(octets) => {
                assert!(octets == expected, "another argument: {plan:?}")
            }
            Argument::Placed(leases) => {
                assert!(
                    leases.parts().flatten().eq(&expected),
                    "another argument was placed: {plan:?}"
                );
            }
            Argument::Refused { why: Refusal::NoMemory | Refusal::Busy, .. } => return Ok(false),
            refused @ Argument::Refused { .. } => panic!("{refused:?}: {plan:?}"),
        }
        Ok(true)
    }

    fn answer(&mut self, cx: &mut Cx<'_>, plan: &Plan, reply: &mut Reply) -> Outcome {
        if plan.fate == Fate::Failed {
            return Outcome::Failed(AcceptStat::SystemErr);
        }
        let answer = plan.octets(Part::Answer);
        reply.results(|w| w.u64(plan.token).and_then(|()| w.opaque(&answer)));
        if plan.returns() {
            let Some(data) = self.data(cx.pool(), plan) else {
                return self.ledger.borrow_mut().starve(plan);
            };
            reply.item(data);
        }
        Outcome::Done
    }

    /// Makes the result that is an item.
    fn data(&mut self, pool: &Pool, plan: &Plan) -> Option<Data> {
        if plan.result == 0 {
            return Some(Data::Empty);
        }
        let lease = |octets: &[u8]| -> Option<Local> {
            let mut lease = pool.lease(octets.len())?;
            lease.bytes_mut().copy_from_slice(octets);
            Some(lease)
        };
        let octets = plan.octets(Part::Result);
        Some(match self.choices.below(3) {
            0 => Data::Local(lease(&octets)?),
            1 => {
                let shared = lease(&octets)?.share();
                // This drops the reference to an earlier result, whether it has left or not.
                self.kept = Some(shared.clone());
                Data::Shared(shared)
            }
            _ => {
                let mut pieces = Pieces::default();
                for part in octets.chunks(octets.len().div_ceil(self.choices.of(1..=4))) {
                    let piece = Piece::whole(lease(part)?.share());
                    pieces.push(piece).expect("room for a few pieces");
                }
                self.ledger.borrow_mut().mix.note(Event::Pieces);
                pieces.into()
            }
        })
    }
}

impl Service for Exercise {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(served()).flavors(&self.flavors)]
    }

    fn opened(&mut self, cx: &mut Cx<'_>, peer: &Peer) {
        assert_eq!(peer.connection.core(), cx.core(), "{peer:?} on another core");
    }

    fn call(&mut self, cx: &mut Cx<'_>, mut call: Call<'_>, reply: &mut Reply) -> Outcome {
        assert_eq!(call.connection.core(), cx.core(), "a Call on another core's connection");
        if let Some(fellow) = &mut self.fellow {
            fellow.post(&self.ledger);
        }
        if call.procedure == NULL {
            return Outcome::Done;
        }
        let decoded = Plan::decode(call.procedure, &mut call.arguments);
        let plan = if self.is_misled {
            self.ledger.borrow_mut().mix.note(Event::MisledServer);
            match decoded {
                Ok((plan, _)) if plan.is_modest() => plan,
                _ => return Outcome::Failed(AcceptStat::GarbageArgs),
            }
        } else {
            let (plan, filler) = decoded.expect("a plan");
            let expected = plan.octets(Part::Filler);
            assert!(filler == expected, "other arguments than were sent: {plan:?}");
            self.ledger.borrow_mut().carry_out(&plan, cx.core());
            let taken = Self::take(&plan, &mut call.arguments).expect("an argument");
            assert!(call.arguments.is_empty(), "more arguments than were sent: {plan:?}");
            fellow::fall(&self.falls, Moment::InCall);
            if !taken {
                return self.ledger.borrow_mut().starve(&plan);
            }
            plan
        };
        let due = match plan.fate {
            Fate::Now | Fate::Failed => return self.answer(cx, &plan, reply),
            Fate::Later => cx.now(),
            Fate::After(millis) => {
                cx.now().saturating_add(Duration::from_millis(u64::from(millis)))
            }
        };
        self.waiting.push(Waiting { call: call.token, plan, due });
        self.keep();
        Outcome::Later
    }

    fn resume(&mut self, cx: &mut Cx<'_>, token: CallToken, reply: &mut Reply) -> Outcome {
        let at = self.ready.iter().position(|(call, _)| *call == token);
        let (_, plan) = self.ready.swap_remove(at.expect("a Call that is resumed once"));
        let event = if plan.fate == Fate::Later { Event::Later } else { Event::Late };
        self.ledger.borrow_mut().mix.note(event);
        self.answer(cx, &plan, reply)
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        fellow::fall(&self.falls, Moment::InTurn);
        let was_told = self.fellow.as_mut().is_some_and(|fellow| fellow.take(cx));
        let before = self.waiting.len();
        self.waiting.retain(|waiting| cx.awaits(waiting.call));
        self.ready.retain(|(call, _)| cx.awaits(*call));
        let mut at = 0;
        while let Some(waiting) = self.waiting.get(at).copied() {
            if waiting.due > cx.now() || self.choices.one_in(3) {
                at += 1;
                continue;
            }
            self.waiting.swap_remove(at);
            self.ready.push((waiting.call, waiting.plan));
            cx.resume(waiting.call);
        }
        self.keep();
        was_told || before != self.waiting.len()
    }
}
