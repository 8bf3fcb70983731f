//! Clients of the exercise, whose every octet is known.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use haulage::core::CoreNumber;
use haulage::pool::Pool;
use haulage::service::{CallError, Finished, Request};
use haulage_proto::chunk::Item;
use haulage_proto::rpc::AcceptStat;

use super::{Drawn, Program, holding, length};
use crate::cores::exercise::{
    ANSWER_MAX, FETCH, FILLER_MAX, Fate, ITEM_MAX, LIST, Ledger, NULL, Part, Plan, SHORT_MAX,
    STORE, SWAP, TELL, UNKNOWN,
};
use crate::cores::mix::{Event, Mix};
use crate::world::choices::Choices;

/// The exercise Calls of one client.
#[derive(Debug)]
pub struct Exercises {
    ledger: Rc<RefCell<Ledger>>,
    denied: bool,
    asked: BTreeMap<u64, Asked>,
    /// Calls that time out before their answer.
    late: usize,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    plan: Plan,
    /// Whether the argument has a lease.
    argument: bool,
    /// Length of the lease offered for the result.
    offered: Option<usize>,
}

impl Exercises {
    /// Makes a program. `denied` says whether the server denies all its Calls.
    pub const fn new(ledger: Rc<RefCell<Ledger>>, denied: bool) -> Self {
        Self { ledger, denied, asked: BTreeMap::new(), late: 0 }
    }

    fn plan(&self, choices: &mut Choices, token: u64) -> Plan {
        let procedure = match choices.below(40) {
            0 => UNKNOWN,
            1..=4 => NULL,
            5..=11 => TELL,
            12..=16 => LIST,
            17..=24 => STORE,
            25..=33 => FETCH,
            _ => SWAP,
        };
        let fate = match choices.below(40) {
            _ if matches!(procedure, NULL | UNKNOWN) => Fate::Now,
            0 if self.late == 0 => Fate::After(u32::try_from(choices.of(50..=300)).expect("few")),
            1 => Fate::Failed,
            2..=12 => Fate::Later,
            _ => Fate::Now,
        };
        let filler = match choices.below(8) {
            0 => choices.of(FILLER_MAX - 60..=FILLER_MAX),
            1 => length(choices, FILLER_MAX),
            _ => length(choices, 200),
        };
        let answer = match procedure {
            LIST | SWAP if choices.one_in(3) => ANSWER_MAX,
            _ => SHORT_MAX,
        };
        let mut plan = Plan {
            token,
            procedure,
            fate,
            filler,
            argument: 0,
            answer: length(choices, answer),
            result: 0,
        };
        if plan.brings() {
            // A Call chunk carries no argument with chunks of its own.
            plan.filler = plan.filler.min(3000);
            plan.argument = length(choices, ITEM_MAX);
        }
        if plan.returns() {
            plan.result = length(choices, ITEM_MAX);
        }
        plan
    }

    /// Checks results against the plan.
    fn check(&self, asked: &Asked, finished: &mut Finished<'_>, mix: &mut Mix) {
        let Asked { plan, argument, offered } = asked;
        let Ok(results) = &mut finished.results else { return };
        assert!(!self.denied && plan.fate != Fate::Failed, "it was answered: {plan:?}");
        assert!(plan.procedure != UNKNOWN, "it was answered: {plan:?}");
        mix.note(Event::Well);
        if plan.procedure == NULL {
            assert!(results.is_empty(), "NULL has results");
            return;
        }
        let times = self.ledger.borrow().served(plan.token).times;
        assert!((1..=plan.times_max()).contains(&times), "answered: {plan:?}");
        mix.note_if(times > 1, Event::Repeated);
        assert_eq!(results.u64(), Ok(plan.token), "the answer to another Call: {plan:?}");
        let answer = results.opaque(ANSWER_MAX).expect("an answer");
        assert!(answer == plan.octets(Part::Answer), "another answer: {plan:?}");
        if plan.returns() {
            let expected = plan.octets(Part::Result);
            match results.eligible_opaque(ITEM_MAX).expect("a result") {
                Item::Unreduced(octets) => {
                    assert!(octets == expected, "another result: {plan:?}");
                    mix.note_if(!expected.is_empty(), Event::UnreducedResult);
                }
                Item::Reduced { length } => {
                    let placed = finished.rooms.first().expect("the result has a lease");
                    assert_eq!(length, expected.len() as u64, "the length that is told: {plan:?}");
                    assert!(placed.bytes() == expected, "another result was placed: {plan:?}");
                    mix.note(Event::PlacedResult);
                    mix.note_if(*argument, Event::BothWays);
                }
            }
        } else {
            mix.note_if(plan.answer > 5000, Event::LongReply);
        }
        assert!(results.is_empty(), "more results than were made: {plan:?}");
        if *argument {
            let back = finished.arguments.first().expect("the argument's lease comes back");
            assert!(back.bytes() == plan.octets(Part::Argument), "the argument was changed");
            mix.note(Event::PlacedArgument);
        } else {
            mix.note_if(plan.argument > 0, Event::UnreducedArgument);
        }
        assert_eq!(
            finished.rooms.first().is_some(),
            offered.is_some(),
            "the result's lease: {plan:?}"
        );
    }
}

impl Program for Exercises {
    fn draw(&mut self, choices: &mut Choices, pool: &Pool, token: u64) -> Option<Drawn> {
        let plan = self.plan(choices, token);
        let mut arguments = plan.arguments();
        let mut argument = None;
        if plan.brings() {
            let octets = plan.octets(Part::Argument);
            // An empty argument has no lease, and a short one need not have any.
            if plan.argument == 0 || (plan.argument + plan.filler < 4000 && choices.one_in(2)) {
                arguments.extend(u32::try_from(octets.len()).expect("short").to_be_bytes());
                arguments.extend(&octets);
                arguments.resize(arguments.len().next_multiple_of(4), 0);
            } else {
                argument = Some(holding(pool, &octets)?);
            }
        }
        let room = match choices.below(12) {
            // Perhaps too little room.
            0 => choices.of(1..=ITEM_MAX),
            1 | 2 => 0,
            3 => ITEM_MAX,
            _ => plan.result.max(1),
        };
        let offered = Some(room).filter(|room| plan.returns() && *room > 0);
        let result = match offered {
            Some(room) => Some(pool.lease(room)?),
            None => None,
        };
        let late = matches!(plan.fate, Fate::After(_));
        self.late += usize::from(late);
        let timeout = match plan.fate {
            Fate::After(millis) if late => Some(Duration::from_millis(u64::from(millis / 2))),
            _ => None,
        };
        self.asked.insert(token, Asked { plan, argument: argument.is_some(), offered });
        Some(Drawn {
            request: Request {
                timeout,
                ..Request::new(plan.procedure).argument(argument).room(result)
            },
            arguments,
        })
    }

    fn served_by(&self, token: u64) -> Option<CoreNumber> {
        self.ledger.borrow().served(token).core
    }

    fn withdraw(&mut self, token: u64) {
        let asked = self.asked.remove(&token).expect("a Call that was drawn");
        let late = matches!(asked.plan.fate, Fate::After(_));
        self.late -= usize::from(late);
    }

    fn ended(&mut self, token: u64, finished: &mut Finished<'_>, mix: &mut Mix) -> Option<String> {
        let asked = self.asked[&token];
        self.withdraw(token);
        self.check(&asked, finished, mix);
        let Err(error) = &finished.results else { return None };
        let Asked { plan, offered, .. } = asked;
        let served = self.ledger.borrow().served(token);
        let event = match error {
            CallError::Denied if self.denied && served.times == 0 => Event::Denied,
            CallError::Rejected(AcceptStat::ProcUnavail) if plan.procedure == UNKNOWN => {
                Event::Unknown
            }
            CallError::Rejected(AcceptStat::SystemErr) if served.starved => Event::StarvedServer,
            CallError::Rejected(AcceptStat::SystemErr) if plan.fate == Fate::Failed => {
                Event::Failed
            }
            CallError::NoMemory if served.times == 0 => Event::Starved,
            CallError::TimedOut if matches!(plan.fate, Fate::After(_)) => Event::TimedOut,
            CallError::Refused(_) if plan.result > offered.unwrap_or(0) => Event::Refused,
            _ => return Some(format!("{asked:?}")),
        };
        mix.note(event);
        None
    }
}
