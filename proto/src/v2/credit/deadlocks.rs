//! The deadlocks and overruns that the credit rules prevent: two ends that finish under all rules
//! get stuck, or overrun each other, once any one rule is switched off.
//!
//! A rule is switched off in the [`End`] that drives [`Credits`], at the one decision the rule is
//! about. The code under test has no switch.

use std::collections::{HashMap, VecDeque};
use std::vec::Vec;

use super::*;
use crate::testing::Rng;

/// The rule that is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Rule {
    /// A credit word counts received messages, not sent ones.
    E1,
    /// A message needs a credit: d >= 1.
    E2,
    /// One Receive more than announced, and a grant may use it.
    E3,
    /// A grant is not sent only because a grant arrived.
    E3Silence,
    /// A grant that only answers grants is sent, however many there were, if it announces two credits or more.
    E3Two,
    /// A message in several pieces starts with the credits for all of them in hand.
    E12,
    /// A limit shrinks by not advancing.
    P1,
    /// Calls leave one credit, and one for each Reply owed.
    P2,
    /// Credits are refreshed even while the service is full.
    P3,
    /// Credits are refreshed before half of the limit is spent.
    P5,
    /// Each unanswered Call leaves its peer credits for a Call that it makes before it answers.
    P13,
}

/// The outcome for two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Everything was answered, and both fell silent.
    Finished,
    /// Something was not answered, and nothing more can happen.
    Stuck,
    /// A message found no Receive.
    Overrun,
    /// The ends never fell silent.
    Endless,
}

/// The traffic between two ends.
#[derive(Clone, Copy, Debug)]
struct Traffic {
    /// Calls that each end makes.
    calls: [u32; 2],
    /// Whether they are answered.
    replies: bool,
    /// Messages each end would take at first.
    windows: [u32; 2],
    /// Messages that one Call takes.
    pieces: u32,
    /// Whether the first end answers each Call only once one of its own, made since, is answered.
    is_nested: bool,
}

const BUSY: Traffic =
    Traffic { calls: [40, 40], replies: true, windows: [4, 5], pieces: 1, is_nested: false };
const WIDE: Traffic = Traffic { windows: [12, 12], ..BUSY };
const LOPSIDED: Traffic = Traffic { calls: [60, 1], replies: false, ..BUSY };

#[test]
fn e1_a_literal_credit_word_leaves_a_busy_end_waiting() {
    prevented(Rule::E1, Traffic { windows: [11, 8], ..BUSY }, Outcome::Stuck, 217);
}

#[test]
fn e1_a_literal_credit_word_overruns_the_quiet_end() {
    prevented(Rule::E1, WIDE, Outcome::Overrun, 0);
}

#[test]
fn e2_a_message_without_a_credit_takes_the_receive_of_the_grant() {
    prevented(Rule::E2, BUSY, Outcome::Stuck, 3);
}

#[test]
fn e3_without_a_receive_for_a_grant_neither_end_can_tell() {
    prevented(Rule::E3, BUSY, Outcome::Stuck, 0);
}

#[test]
fn e3_grants_about_grants_never_end() {
    prevented(Rule::E3Silence, BUSY, Outcome::Endless, 0);
}

#[test]
fn e3_answers_that_end_after_a_number_leave_a_later_call_without_credit() {
    let traffic = Traffic { windows: [3, 3], calls: [0, 2], ..BUSY };
    assert_eq!(run_all(traffic, Some(Rule::E3Two)), Err(Outcome::Stuck));
}

#[test]
fn e12_two_ends_in_the_middle_of_a_message_wait_for_each_other() {
    prevented(Rule::E12, LONG, Outcome::Stuck, 3);
}

#[test]
fn p1_a_limit_that_moves_back_overruns_what_is_on_its_way() {
    prevented(Rule::P1, WIDE, Outcome::Overrun, 0);
}

#[test]
fn p2_calls_that_take_every_credit_leave_none_for_replies() {
    prevented(Rule::P2, BUSY, Outcome::Stuck, 0);
}

#[test]
fn p3_two_full_services_that_give_no_credit_wait_for_each_other() {
    prevented(Rule::P3, WIDE, Outcome::Stuck, 1);
}

#[test]
fn p4_connections_that_share_receives_promise_no_more_than_there_are() {
    assert!(crowd(true), "each gets what is left");
    assert!(!crowd(false), "each gets what it is worth: a message finds no Receive");
}

#[test]
fn p5_a_refresh_that_waits_for_the_last_credit_never_comes() {
    prevented(Rule::P5, LOPSIDED, Outcome::Stuck, 0);
}

#[test]
fn p13_a_call_from_within_a_callback_finds_credit_in_the_smallest_windows() {
    for windows in [[3, 3], [3, 4], [4, 3], [4, 4], [5, 3], [7, 6]] {
        for calls in [[0, 1], [0, 20], [1, 20], [20, 20]] {
            let traffic = Traffic { windows, calls, is_nested: true, ..BUSY };
            for seed in 0..200 {
                let outcome = run(traffic, None, seed);
                assert_eq!(outcome, Outcome::Finished, "{windows:?}, {calls:?}, seed {seed}");
            }
        }
    }
    let traffic = Traffic { windows: [3, 3], calls: [0, 20], is_nested: true, ..BUSY };
    prevented(Rule::P13, traffic, Outcome::Stuck, 0);
}

#[test]
fn every_order_of_a_few_calls_finishes_in_the_smallest_windows() {
    // An end that only calls leaves no credit for what else it has to send.
    finishes_in_every_order(Traffic { windows: [2, 2], calls: [2, 0], ..BUSY }, 100_000);
    finishes_in_every_order(Traffic { windows: [3, 3], calls: [0, 2], ..BUSY }, 200_000);
    finishes_in_every_order(Traffic { windows: [4, 4], calls: [1, 1], ..BUSY }, 300_000);
}

#[test]
#[ignore = "it takes minutes: tests/check --full runs it"]
fn every_order_of_several_calls_finishes_in_the_smallest_windows() {
    for windows in [[3, 3], [3, 4], [4, 3], [4, 4]] {
        let traffic = Traffic { windows, calls: [1, 1], ..BUSY };
        finishes_in_every_order(traffic, 300_000);
        let nested = Traffic { calls: [0, 1], is_nested: true, ..traffic };
        finishes_in_every_order(nested, 100_000);
    }
    finishes_in_every_order(Traffic { windows: [3, 3], calls: [2, 1], ..BUSY }, 1_000_000);
}

fn finishes_in_every_order(traffic: Traffic, states_min: usize) {
    let met = run_all(traffic, None);
    assert!(met.is_ok_and(|states| states > states_min), "{traffic:?}: {met:?}");
}

const LONG: Traffic = Traffic { pieces: 3, windows: [12, 14], ..BUSY };

/// Runs traffic under many schedules with every rule, and under schedule `seed` without one.
fn prevented(rule: Rule, traffic: Traffic, outcome: Outcome, seed: u64) {
    for seed in 0..80 {
        assert_eq!(run(traffic, None, seed), Outcome::Finished, "with every rule, seed {seed}");
    }
    assert_eq!(run(traffic, Some(rule), seed), outcome, "without {rule:?}");
}

/// Lets the peers of three connections send all they may at once. Returns whether every message found
/// one of the Receives that the connections share.
fn crowd(is_shared_out: bool) -> bool {
    const WINDOW: u32 = 8;
    let mut connections = [const { Credits::new(PeerCalls::Served) }; 3];
    let mut receives = 20_u32;
    let mut left = receives - 3 * Credits::RESERVED_AT_START;
    for credits in &mut connections {
        let wanted = WINDOW + 1 - Credits::RESERVED_AT_START;
        let reserved = if is_shared_out { wanted.min(left) } else { wanted };
        left = left.saturating_sub(reserved);
        credits.reserve(reserved);
    }
    for credits in &mut connections {
        let mut peer = Credits::new(PeerCalls::Served);
        peer.reserve(1);
        peer.on_received(credits.on_sent(Class::Control), Arrived::Other).unwrap();
        let messages = [Class::Control; 20].into_iter().chain([Class::Grant]);
        for class in messages {
            if peer.may_send(class) {
                peer.on_sent(class);
                let Some(after) = receives.checked_sub(1) else { return false };
                receives = after;
            }
        }
    }
    true
}

/// Runs both ends until nothing can happen.
fn run(traffic: Traffic, without: Option<Rule>, seed: u64) -> Outcome {
    let mut rng = Rng::new(seed);
    let Some(mut ends) = started(traffic, without) else { return Outcome::Overrun };
    for _ in 0..STEPS_MAX {
        let possible: Vec<_> = possible(&ends).collect();
        if possible.is_empty() {
            return ended(&ends);
        }
        if take(&mut ends, possible[rng.below(possible.len())]).is_none() {
            return Outcome::Overrun;
        }
    }
    Outcome::Endless
}

/// Runs both ends in every order. Returns how many states they meet, or how the first order ends that does not finish.
fn run_all(traffic: Traffic, without: Option<Rule>) -> Result<usize, Outcome> {
    let start = anchored(started(traffic, without).ok_or(Outcome::Overrun)?);
    // The states, with whether all that follows each is known.
    let mut met = HashMap::from([(start.clone(), false)]);
    let mut order = Vec::from([(start.clone(), possible(&start).collect::<Vec<_>>())]);
    while let Some((ends, left)) = order.last_mut() {
        let Some(step) = left.pop() else {
            if possible(ends).next().is_none() && ended(ends) != Outcome::Finished {
                return Err(ended(ends));
            }
            met.insert(ends.clone(), true);
            order.pop();
            continue;
        };
        let mut after = ends.clone();
        take(&mut after, step).ok_or(Outcome::Overrun)?;
        let after = anchored(after);
        match met.get(&after) {
            Some(true) => {}
            Some(false) => return Err(Outcome::Endless),
            None => {
                met.insert(after.clone(), false);
                let possible = possible(&after).collect();
                order.push((after, possible));
            }
        }
    }
    Ok(met.len())
}

/// Counts all messages from those sent so far: what is to come depends on distances alone.
fn anchored(mut ends: [End; 2]) -> [End; 2] {
    for from in [0, 1] {
        let sent = std::mem::take(&mut ends[from].credits.sent);
        ends[from].credits.peer_limit = ends[from].credits.peer_limit.wrapping_sub(sent);
        ends[from].inbox.iter_mut().for_each(|(_, word, _)| *word = word.wrapping_sub(sent));
        let peer = &mut ends[1 - from].credits;
        for count in [&mut peer.received, &mut peer.reserved, &mut peer.announced] {
            *count = count.wrapping_sub(sent);
        }
    }
    ends
}

/// Returns two ends that know each other's window: the client speaks first, the server answers.
fn started(traffic: Traffic, without: Option<Rule>) -> Option<[End; 2]> {
    let mut ends = [0, 1].map(|at| End::new(traffic, at, without));
    for from in [0, 1] {
        post(&mut ends, from, Class::Control);
        ends[1 - from].deliver()?;
    }
    Some(ends)
}

/// Returns how two ends end at which nothing can happen.
fn ended(ends: &[End; 2]) -> Outcome {
    let is_done = ends.iter().all(|end| end.to_make + end.unanswered + end.held == 0);
    if is_done { Outcome::Finished } else { Outcome::Stuck }
}

fn possible(ends: &[End; 2]) -> impl Iterator<Item = (usize, Step)> {
    let all = [0, 1].into_iter().flat_map(|at| STEPS.map(|step| (at, step)));
    all.filter(|&(at, step)| ends[at].may(step))
}

/// Takes a step at an end, or returns `None` if a message found no Receive.
fn take(ends: &mut [End; 2], (at, step): (usize, Step)) -> Option<()> {
    let end = &mut ends[at];
    match step {
        Step::Call => {
            end.to_make -= 1;
            end.unanswered += u32::from(end.replies);
            end.to_post = end.pieces;
            let at_once = if end.without == Some(Rule::E12) { 1 } else { end.pieces };
            (0..at_once).for_each(|_| post(ends, at, Class::Call));
        }
        Step::GoOn => post(ends, at, Class::Call),
        Step::Reply => {
            (end.held, end.free) = (end.held - 1, end.free + 1);
            end.inner = end.inner.saturating_sub(1);
            if end.replies {
                post(ends, at, Class::Reply);
            } else {
                end.credits.owed_done(1);
            }
        }
        Step::Deliver => end.deliver()?,
        Step::Repost => end.repost(1),
        Step::Borrow => end.borrow(),
        Step::GiveBack => (end.borrowed, end.free) = (end.borrowed - 1, end.free - 1),
        Step::Shrink => end.shrink(),
        Step::Grant => post(ends, at, Class::Grant),
    }
    Some(())
}

fn post(ends: &mut [End; 2], from: usize, class: Class) {
    let word = ends[from].sent(class);
    let is_last = class != Class::Call || ends[from].to_post == 0;
    ends[1 - from].inbox.push_back((class, word, is_last));
}

/// A possible step at one end.
#[derive(Clone, Copy, Debug)]
enum Step {
    Call,
    /// The next piece of a Call that was begun.
    GoOn,
    Reply,
    Deliver,
    Repost,
    /// A Receive more, because of the Calls that are not answered.
    Borrow,
    /// Back with such a Receive.
    GiveBack,
    Shrink,
    Grant,
}

const STEPS: [Step; 9] = [
    Step::Call,
    Step::GoOn,
    Step::Reply,
    Step::Deliver,
    Step::Repost,
    Step::Borrow,
    Step::GiveBack,
    Step::Shrink,
    Step::Grant,
];

/// One end of a connection. The Receive of a Call is kept until the Call is answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct End {
    credits: Credits,
    without: Option<Rule>,
    /// Calls still to be made, and made but not answered.
    to_make: u32,
    unanswered: u32,
    replies: bool,
    /// Messages that a Call takes, and those of the last one that were not posted.
    pieces: u32,
    to_post: u32,
    /// Received Calls that are being served.
    held: u32,
    /// Whether each is answered only once a Call of this end, made since, is answered, and how many of these are.
    is_nested: bool,
    inner: u32,
    /// Receives posted, and free to be posted again.
    posted: u32,
    free: u32,
    /// Whether Calls of this end leave half of the credits.
    shares: bool,
    /// Whether the peer has more Receives while Calls of this end are not answered, and how many more.
    borrows: bool,
    borrowed: u32,
    /// Receives this end may still take away from its peer.
    to_shrink: u32,
    /// Messages on their way here, each with its credit word and whether it is whole or a last piece.
    inbox: VecDeque<(Class, u32, bool)>,
}

impl End {
    fn new(traffic: Traffic, at: usize, without: Option<Rule>) -> Self {
        let mut end = Self {
            credits: Credits::new(match traffic.calls[1 - at] {
                0 if !traffic.is_nested => PeerCalls::Refused,
                _ => PeerCalls::Served,
            }),
            without,
            to_make: traffic.calls[at],
            unanswered: 0,
            replies: traffic.replies,
            pieces: traffic.pieces,
            to_post: 0,
            held: 0,
            is_nested: traffic.is_nested && at == 0,
            inner: 0,
            posted: Credits::RESERVED_AT_START,
            // One of the Receives at the start is for a grant.
            free: traffic.windows[at] + 1 - Credits::RESERVED_AT_START,
            shares: traffic.is_nested,
            borrows: traffic.is_nested && without != Some(Rule::P13),
            borrowed: 0,
            to_shrink: if traffic.pieces == 1 {
                traffic.windows[at].saturating_sub(WINDOW_MIN)
            } else {
                0
            },
            inbox: VecDeque::new(),
        };
        if without == Some(Rule::E3) {
            (end.posted, end.free) = (end.posted - 1, end.free + 1);
            end.credits.reserved -= 1;
        }
        end.repost(end.free);
        end
    }

    fn may(&self, step: Step) -> bool {
        match step {
            // No other message comes between two pieces of one.
            Step::Call | Step::Reply | Step::Grant if self.to_post > 0 => false,
            Step::GoOn => self.to_post > 0 && self.may_send(Class::Call),
            Step::Call => self.to_make > 0 && self.may_call(),
            Step::Reply if self.is_nested && self.inner == 0 => false,
            Step::Reply => self.held > 0 && (!self.replies || self.may_send(Class::Reply)),
            Step::Deliver => !self.inbox.is_empty(),
            Step::Repost if self.borrowed > 0 && self.posted >= self.least() => false,
            Step::Repost => self.free > 0 && !self.stalled(),
            Step::Borrow => self.free == 0 && self.posted < self.least(),
            Step::GiveBack => self.borrowed > 0 && self.free > 0 && self.posted >= self.least(),
            Step::Shrink if self.without == Some(Rule::P1) => self.to_shrink.min(self.posted) > 0,
            Step::Shrink => self.to_shrink.min(self.free) > 0,
            Step::Grant => self.wants_grant(),
        }
    }

    fn may_call(&self) -> bool {
        // Where both ends call, as in every nested traffic, Calls leave half of the credits.
        if self.shares && self.unanswered >= self.credits.calls_max() {
            return false;
        }
        if self.pieces == 1 || self.without == Some(Rule::E12) {
            return self.may_send(Class::Call);
        }
        // The pieces of one Call may take at most half of what unanswered Calls leave of the window.
        let room = self.credits.window().saturating_sub(self.unanswered) / 2;
        room >= self.pieces && self.credits.may_send_all(Class::Call, self.pieces)
    }

    fn may_send(&self, class: Class) -> bool {
        let left = self.credits.left();
        match (self.without, class) {
            // "Not if the sent count is greater than the received credits."
            (Some(Rule::E2), Class::Call) => left >= self.credits.kept(),
            (Some(Rule::E2), _) => left >= 0,
            (Some(Rule::E3), Class::Grant) => left >= 1,
            (Some(Rule::P2), Class::Call) => left >= 1,
            _ => self.credits.may_send(class),
        }
    }

    fn wants_grant(&self) -> bool {
        let credits = &self.credits;
        let untold = distance(credits.limit(), credits.announced) > 0;
        let spent = distance(credits.announced, credits.received) <= 0;
        self.may_send(Class::Grant)
            && match self.without {
                Some(Rule::E3Silence) => untold,
                Some(Rule::E3Two) => {
                    credits.wants_grant() && (credits.news || credits.answers < ANSWERS_MAX)
                }
                Some(Rule::P3) => credits.wants_grant() && !self.stalled(),
                Some(Rule::P5) => untold && spent,
                _ => credits.wants_grant(),
            }
    }

    /// Whether a full service keeps this end from giving credit.
    fn stalled(&self) -> bool {
        self.without == Some(Rule::P3) && self.held > 0
    }

    fn sent(&mut self, class: Class) -> u32 {
        self.credits.on_sent(class);
        self.to_post = self.to_post.saturating_sub(u32::from(class == Class::Call));
        let credits = &mut self.credits;
        match self.without {
            Some(Rule::E1) => {
                credits.announced =
                    credits.sent.wrapping_add(credits.reserved_outstanding().saturating_sub(1));
            }
            Some(Rule::E3) => credits.announced = credits.reserved,
            _ => {}
        }
        credits.announced
    }

    /// Returns how many Receives the peer has at least, because of the Calls that are not answered.
    fn least(&self) -> u32 {
        if self.borrows { reserved_for(self.unanswered) } else { 0 }
    }

    fn borrow(&mut self) {
        (self.borrowed, self.free) = (self.borrowed + 1, self.free + 1);
        self.repost(1);
    }

    fn repost(&mut self, count: u32) {
        self.free -= count;
        self.posted += count;
        self.credits.reserve(count);
    }

    /// Gives the peer one credit less: a Receive that is free is not posted again. Without P1 a
    /// posted one is taken back, and the limit goes back with it.
    fn shrink(&mut self) {
        self.to_shrink -= 1;
        if self.without == Some(Rule::P1) {
            self.posted -= 1;
            self.credits.reserved -= 1;
        } else {
            self.free -= 1;
        }
    }

    /// Takes the next message, or returns `None` if it finds no Receive.
    fn deliver(&mut self) -> Option<()> {
        let (class, word, is_last) = self.inbox.pop_front().unwrap();
        self.posted = self.posted.checked_sub(1)?;
        self.credits.on_received(word, arrived(class)).ok()?;
        match class {
            Class::Call if !is_last => self.free += 1,
            Class::Call => {
                self.credits.owe(1);
                self.held += 1;
                self.to_make += u32::from(self.is_nested);
            }
            Class::Reply => {
                self.unanswered -= 1;
                self.free += 1;
                self.inner += u32::from(self.is_nested);
            }
            Class::Control | Class::Grant => self.free += 1,
        }
        Some(())
    }
}

/// More than any traffic here takes.
const STEPS_MAX: usize = 20_000;
