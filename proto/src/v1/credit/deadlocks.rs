//! The deadlocks and overruns that the rules about version 1 credits prevent: two ends that finish under all rules get
//! stuck, or overrun each other, once any one rule is switched off.
//!
//! A rule is switched off in the [`End`] that drives [`Credits`], at the one decision the rule is
//! about. The code under test has no switch.

use std::collections::VecDeque;
use std::vec::Vec;

use super::*;
use crate::testing::Rng;

/// The rule that is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// No answer grants nothing (P1).
    NeverZero,
    /// An answer waits until a Receive backs the credits it grants.
    Withheld,
    /// A Call is sent only when there is a Receive for its Reply.
    Receive,
    /// Each direction has credits of its own.
    Apart,
}

/// The outcome for two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Everything was answered.
    Finished,
    /// Something was not answered, and nothing more can happen.
    Stuck,
    /// A message found no Receive.
    Overrun,
}

#[test]
fn p1_a_grant_of_zero_is_the_last_one() {
    // [R5666-3.3-2] [R5666-3.3-6]
    prevented(Rule::NeverZero, Outcome::Stuck);
}

#[test]
fn a_grant_without_a_receive_is_an_overrun() {
    // [R5666-6-2]
    prevented(Rule::Withheld, Outcome::Overrun);
}

#[test]
fn a_call_without_a_receive_for_its_reply_is_an_overrun() {
    // [R5666-6-2]
    prevented(Rule::Receive, Outcome::Overrun);
}

#[test]
fn credits_shared_by_both_directions_leave_none_for_replies() {
    // [R8167-4.1-1]
    prevented(Rule::Apart, Outcome::Stuck);
}

/// Runs two ends under many schedules with every rule, and finds `outcome` in most of them without one.
fn prevented(rule: Rule, outcome: Outcome) {
    for seed in 0..200 {
        assert_eq!(run(None, seed), Outcome::Finished, "with every rule, seed {seed}");
    }
    let found = (0..200).filter(|seed| run(Some(rule), *seed) == outcome).count();
    assert!(found > 50, "without {rule:?} {found} schedules of 200 end with {outcome:?}");
}

/// Lets both ends call each other until nothing can happen.
fn run(without: Option<Rule>, seed: u64) -> Outcome {
    let mut rng = Rng::new(seed);
    let mut ends = [3, 4].map(|window| End::new(window, without));
    loop {
        let all = [0, 1].into_iter().flat_map(|at| STEPS.map(|step| (at, step)));
        let possible: Vec<_> = all.filter(|&(at, step)| ends[at].may(step)).collect();
        if possible.is_empty() {
            let done = ends.iter().all(|end| end.to_make + end.held == 0);
            return if done { Outcome::Finished } else { Outcome::Stuck };
        }
        let (at, step) = possible[rng.below(possible.len())];
        let end = &mut ends[at];
        match step {
            Step::Call => {
                end.to_make -= 1;
                end.credits.on_call_sent();
                ends[1 - at].inbox.push_back(Message::Call);
            }
            Step::Reply => {
                end.held -= 1;
                let granted = end.answer();
                ends[1 - at].inbox.push_back(Message::Reply(granted));
            }
            Step::Deliver if !end.deliver() => return Outcome::Overrun,
            Step::Deliver => {}
            Step::Repost => {
                end.free -= 1;
                end.credits.reserve(1);
            }
        }
    }
}

/// A message in flight.
#[derive(Clone, Copy, Debug)]
enum Message {
    Call,
    /// A Reply, with the credits it grants.
    Reply(u32),
}

/// A possible step at one end.
#[derive(Clone, Copy, Debug)]
enum Step {
    Call,
    Reply,
    Deliver,
    Repost,
}

const STEPS: [Step; 4] = [Step::Call, Step::Reply, Step::Deliver, Step::Repost];

/// One end of a connection.
#[derive(Debug)]
struct End {
    credits: Credits,
    without: Option<Rule>,
    /// Calls still to be made.
    to_make: u32,
    /// Received Calls that are being served.
    held: u32,
    /// Receives that were used and are not reserved again.
    free: u32,
    inbox: VecDeque<Message>,
}

impl End {
    fn new(window: u32, without: Option<Rule>) -> Self {
        let mut credits = Credits::new(8, 8, PeerCalls::Served);
        credits.expect_calls();
        credits.reserve(window);
        Self { credits, without, to_make: 40, held: 0, free: 0, inbox: VecDeque::new() }
    }

    fn may(&self, step: Step) -> bool {
        let Requester { granted, unanswered, .. } = self.credits.requester;
        match (step, self.without) {
            (Step::Deliver, _) => !self.inbox.is_empty(),
            (Step::Repost, _) => self.free > 0,
            (Step::Call, _) if self.to_make == 0 => false,
            (Step::Call, Some(Rule::Receive)) => unanswered < granted,
            (Step::Call, Some(Rule::Apart)) => {
                self.credits.may_call() && unanswered + self.held < granted
            }
            (Step::Call, _) => self.credits.may_call(),
            (Step::Reply, _) if self.held == 0 => false,
            (Step::Reply, Some(Rule::NeverZero | Rule::Withheld)) => true,
            (Step::Reply, Some(Rule::Apart)) => {
                self.credits.may_answer(Release::AtOnce) && unanswered < granted
            }
            (Step::Reply, _) => self.credits.may_answer(Release::AtOnce),
        }
    }

    fn answer(&mut self) -> u32 {
        let owed = self.credits.responder.owed - 1;
        let grantable = self.credits.grantable(owed, Release::AtOnce);
        let granted = self.credits.on_answered(Release::AtOnce);
        if self.without == Some(Rule::NeverZero) && grantable <= 0 {
            self.credits.responder.granted = 0;
            return 0;
        }
        granted
    }

    /// Takes the next message. Returns whether it found a Receive.
    fn deliver(&mut self) -> bool {
        if self.credits.on_received().is_err() {
            return false;
        }
        self.free += 1;
        match self.inbox.pop_front() {
            Some(Message::Call) => {
                self.held += 1;
                self.credits.owe();
            }
            Some(Message::Reply(granted)) => {
                self.credits.on_answer(granted);
                // Our client takes a grant of zero for one; this models a client that does not.
                self.credits.requester.granted = granted;
            }
            None => {}
        }
        true
    }
}
