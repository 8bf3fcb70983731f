//! Lets Calls that store values wait for memory, and go on.

use haulage::core::Cx;
use haulage::service::{CallToken, Outcome, Reply};

use super::waiting::{Given, Kept, OCTETS_MAX, Pair, WAIT_MAX, Waiter};
use super::{KvService, OK, Unkept};
use crate::protocol::{Answer, Procedure, Refusal};

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
        // A connection may have ended before its Call went on.
        self.waiting.answered.retain(|call| cx.awaits(call.token));
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
            let octets;
            let given = match value {
                Ok(Kept::Value(value)) => Given::Value(value),
                Ok(Kept::Octets(kept)) => {
                    octets = kept;
                    Given::Octets(&octets)
                }
                Err(refusal) => {
                    call.answers.push(Err(refusal));
                    continue;
                }
            };
            call.answers.push(match self.keep(cx, &key, given) {
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

/// The most Calls that go on in a turn.
const CALLS_PER_TURN: usize = 64;
