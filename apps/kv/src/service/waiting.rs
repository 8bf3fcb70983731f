//! Calls that store values, and wait for memory.
//!
//! # Normal operation
//! On several cores memory becomes free once other cores have turned, or have given some back. A PUT or MPUT that finds none until then is
//! kept with what it has not stored yet. It goes on each turn, and is answered when all is stored, or no memory is to be expected.
//!
//! # Limits
//! What came in messages is kept on the heap: [`OCTETS_MAX`] on a core, beyond which a value is refused. A Call that has waited for
//! [`WAIT_MAX`] waits no more.

use std::collections::VecDeque;
use std::time::Duration;

use haulage::core::Cx;
use haulage::service::{CallToken, Outcome, Reply};
use haulage_proto::time::Instant;

use super::leases::Value;
use super::{KvService, OK, Unkept};
use crate::protocol::{Answer, Procedure, Refusal};

/// A value to be stored.
#[derive(Debug)]
pub(super) enum Given<'a> {
    /// In memory in which it can stay.
    Value(Value),
    /// In a message.
    Octets(&'a [u8]),
}

/// The Calls that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    calls: VecDeque<Waiter>,
    /// Those that go on with an answer.
    answered: Vec<Waiter>,
    /// The octets of keys and values that are kept on the heap.
    octets: usize,
}

/// A Call that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    token: CallToken,
    which: Procedure,
    /// When it began to wait.
    since: Instant,
    /// What is not stored yet.
    pairs: VecDeque<Pair>,
    /// What became of the pairs before.
    answers: Vec<Result<(), Refusal>>,
}

/// A key, and a value to be stored, or why it cannot be.
#[derive(Debug)]
struct Pair {
    key: Box<[u8]>,
    value: Result<Kept, Refusal>,
}

/// A value, kept.
#[derive(Debug)]
enum Kept {
    Value(Value),
    Octets(Box<[u8]>),
}

impl Waiter {
    /// Makes a Call that waits from now on, of which `answers` are known.
    pub(super) fn new(
        cx: &Cx<'_>,
        (token, which): (CallToken, Procedure),
        answers: Vec<Result<(), Refusal>>,
    ) -> Self {
        Self { token, which, since: cx.now(), pairs: VecDeque::new(), answers }
    }

    /// Adds what is to be stored behind the rest.
    pub(super) fn push(&mut self, key: &[u8], value: Result<Given<'_>, Refusal>) {
        self.pairs.push_back(Pair { key: key.into(), value: value.map(Kept::from) });
    }

    fn octets(&self) -> usize {
        let octets = |pair: &Pair| match &pair.value {
            Ok(Kept::Octets(octets)) => pair.key.len() + octets.len(),
            _ => pair.key.len(),
        };
        self.pairs.iter().map(octets).sum()
    }
}

impl From<Given<'_>> for Kept {
    fn from(given: Given<'_>) -> Self {
        match given {
            Given::Value(value) => Self::Value(value),
            Given::Octets(octets) => Self::Octets(octets.into()),
        }
    }
}

impl KvService {
    /// Has a Call wait, or answers it if as many wait as may.
    pub(super) fn wait(&mut self, mut call: Waiter, reply: &mut Reply) -> Outcome {
        let octets = call.octets();
        if self.waiting.octets + octets > OCTETS_MAX {
            call.answers.extend(call.pairs.drain(..).map(|_| Err(Refusal::NoSpace)));
            return self.answer_waiter(call, reply);
        }
        self.waiting.octets += octets;
        self.waiting.calls.push_back(call);
        Outcome::Later
    }

    /// Lets Calls that wait for memory go on, in their order. Returns whether there are any.
    pub(super) fn go_on(&mut self, cx: &mut Cx<'_>) -> bool {
        for _ in 0..CALLS_PER_TURN {
            let Some(mut call) = self.waiting.calls.pop_front() else { return false };
            self.waiting.octets -= call.octets();
            // A Call whose connection is gone is not acted on.
            if !cx.awaits(call.token) {
                continue;
            }
            self.store_rest(cx, &mut call);
            if !call.pairs.is_empty() {
                self.waiting.octets += call.octets();
                self.waiting.calls.push_front(call);
                break;
            }
            cx.resume(call.token);
            self.waiting.answered.push(call);
        }
        true
    }

    /// Stores what is left of a Call, as far as there is memory.
    fn store_rest(&mut self, cx: &mut Cx<'_>, call: &mut Waiter) {
        let is_late = call.since.saturating_add(WAIT_MAX) <= cx.now();
        while let Some(Pair { key, value }) = call.pairs.pop_front() {
            let kept = match value {
                Err(refusal) => Err(Unkept::Refused(refusal)),
                Ok(Kept::Value(value)) => self.keep(cx, &key, Given::Value(value)),
                Ok(Kept::Octets(octets)) => match self.keep(cx, &key, Given::Octets(&octets)) {
                    // The octets are still the ones that are kept.
                    Err(Unkept::Lacks(Given::Octets(_))) if !is_late => {
                        let value = Ok(Kept::Octets(octets));
                        return call.pairs.push_front(Pair { key, value });
                    }
                    Err(Unkept::Lacks(Given::Value(value))) => {
                        Err(Unkept::Lacks(Given::Value(value)))
                    }
                    Err(Unkept::Lacks(Given::Octets(_))) => Err(Unkept::Refused(Refusal::NoSpace)),
                    Err(Unkept::Refused(refusal)) => Err(Unkept::Refused(refusal)),
                    Ok(()) => Ok(()),
                },
            };
            call.answers.push(match kept {
                Ok(()) => Ok(()),
                Err(Unkept::Refused(refusal)) => Err(refusal),
                Err(Unkept::Lacks(_)) if is_late => Err(Refusal::NoSpace),
                Err(Unkept::Lacks(given)) => {
                    let value = Ok(Kept::from(given));
                    return call.pairs.push_front(Pair { key, value });
                }
            });
        }
    }

    /// Returns a Call that has waited, and goes on.
    pub(super) fn waited(&mut self, token: CallToken) -> Option<Waiter> {
        let at = self.waiting.answered.iter().position(|call| call.token == token)?;
        Some(self.waiting.answered.swap_remove(at))
    }

    /// Answers a Call of which nothing is left to be stored.
    pub(super) fn answer_waiter(&mut self, call: Waiter, reply: &mut Reply) -> Outcome {
        if call.which == Procedure::MPut {
            self.answer_stored(&call.answers, reply);
            return Outcome::Done;
        }
        match call.answers.into_iter().next() {
            Some(Err(refusal)) => {
                self.answered.refuse(&refusal);
                let answer = Answer::Refused(refusal);
                reply.results(|w| answer.encode(Procedure::Put, w));
            }
            Some(Ok(())) | None => reply.results(|w| w.u32(OK)),
        }
        Outcome::Done
    }
}

/// The octets of keys and values that wait on a core, at most.
const OCTETS_MAX: usize = 8 << 20;
/// How long a Call waits for memory, at most: as long as one whose value has not come yet.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// The most Calls that go on in a turn.
const CALLS_PER_TURN: usize = 64;
