use std::collections::VecDeque;
use std::format;
use std::vec::Vec;

use super::*;
use crate::testing::Rng;

/// Credits of an end that may send up to `limit` and has sent nothing.
fn limited(limit: u32) -> Credits {
    let mut credits = Credits::new(PeerCalls::Served);
    credits.reserve(8);
    credits.on_received(limit, Arrived::Other).unwrap();
    credits
}

/// Credits of an end whose counts already stand at `base`, with `window` credits for the peer.
fn starting_at(ours: u32, theirs: u32, window: u32) -> Credits {
    let mut credits = Credits {
        sent: ours,
        received: theirs,
        peer_limit: ours.wrapping_add(1),
        reserved: theirs.wrapping_add(Credits::RESERVED_AT_START),
        announced: theirs.wrapping_add(1),
        ..Credits::new(PeerCalls::Served)
    };
    credits.reserve(window - 1);
    credits
}

#[test]
fn a_new_connection_may_send_one_message_and_take_one_and_a_grant() {
    let mut credits = Credits::new(PeerCalls::Served);
    assert_eq!((credits.peer_limit(), credits.reserved_outstanding()), (1, 2));
    assert!(!credits.may_send(Class::Call), "the one credit is not for Calls");
    assert!(credits.may_send(Class::Control));
    assert_eq!(credits.on_sent(Class::Control), 1);
    assert!(!credits.may_send(Class::Control) && !credits.may_send(Class::Reply));
    assert!(credits.may_send(Class::Grant), "the Receive beyond the limit");
    credits.on_sent(Class::Grant);
    assert!(!credits.may_send(Class::Grant), "there is only one");
}

#[test]
fn calls_leave_one_credit_and_one_for_each_reply_owed() {
    for owed in 0..4 {
        for limit in 0..8_u32 {
            let mut credits = limited(limit);
            (0..owed).for_each(|_| credits.owe(1));
            let left = i64::from(limit);
            assert_eq!(credits.may_send(Class::Call), left >= 2 + i64::from(owed));
            assert_eq!(credits.may_send(Class::Reply), left >= 1);
            assert_eq!(credits.may_send(Class::Control), left >= 1);
            assert!(credits.may_send(Class::Grant));
        }
    }
    let mut credits = limited(3);
    credits.owe(1);
    assert!(credits.may_send(Class::Call));
    credits.owe(1);
    assert!(!credits.may_send(Class::Call));
    credits.on_sent(Class::Reply);
    assert!(!credits.may_send(Class::Call), "its credit went with the Reply");
    credits.owed_done(1);
    assert!(credits.may_send(Class::Call), "nothing is owed, two are left");
    credits.owed_done(1);
    assert!(credits.may_send(Class::Call), "one answer too many does no harm");
}

#[test]
fn calls_leave_no_credit_where_none_can_come_back() {
    for limit in 0..4 {
        let mut credits = Credits::new(PeerCalls::Refused);
        credits.on_received(limit, Arrived::Other).unwrap();
        assert_eq!(credits.may_send(Class::Call), limit >= 1);
        assert!(!credits.may_send_all(Class::Call, limit + 1), "{limit}");
        assert_eq!(credits.lend(Class::Call, 9).0, limit);
        assert!(credits.may_send(Class::Grant), "the Receive beyond the limit is for it");
    }
}

#[test]
fn what_is_lent_and_posted_counts_as_if_it_was_asked_for_one_by_one() {
    let mut rng = Rng::new(3);
    let (mut all, mut some, mut none) = (0, 0, 0);
    for _ in 0..2000 {
        let mut lender = limited(u32::from(rng.octet() % 12));
        lender.reserve(u32::from(rng.octet() % 9));
        lender.owe(u32::from(rng.octet() % 6));
        let class = if rng.below(2) == 0 { Class::Call } else { Class::Reply };
        let mut one_by_one = lender.clone();
        let wanted = u32::from(rng.octet() % 10);
        // Each Reply settles a Call, so no more Replies are asked for than are owed.
        let wanted = if class == Class::Reply { wanted.min(lender.owed()) } else { wanted };
        let (lent, credit) = lender.lend(class, wanted);
        let posted = if rng.below(3) == 0 { u32::from(rng.octet()) % (lent + 1) } else { lent };
        lender.settle(class, lent, posted);
        let mut asked = 0;
        while asked < wanted && one_by_one.may_send(class) {
            if asked < posted {
                assert_eq!(one_by_one.on_sent(class), credit);
            } else {
                // The lender allowed one more message, but the run ended before it.
                break;
            }
            asked += 1;
        }
        assert_eq!(asked, posted, "{wanted} {lent}");
        if posted == lent && lent < wanted {
            assert!(!one_by_one.may_send(class), "{wanted}, but {lent} were lent");
        }
        assert_eq!(format!("{lender:?}"), format!("{one_by_one:?}"));
        let counted = if posted < lent { &mut some } else { &mut all };
        *counted += 1;
        none += u32::from(posted == 0);
    }
    assert!(all > 500 && some > 100 && none > 100, "{all} {some} {none}");
}

#[test]
fn a_credit_word_is_what_was_received_and_what_may_still_come() {
    let mut credits = Credits::new(PeerCalls::Served);
    credits.reserve(30);
    assert_eq!(credits.on_sent(Class::Control), 31);
    for _ in 0..10 {
        credits.on_received(100, Arrived::Other).unwrap();
    }
    assert_eq!(credits.on_sent(Class::Reply), 31, "nothing was reserved again");
    credits.reserve(4);
    assert_eq!(credits.on_sent(Class::Reply), 35);
    assert_eq!(credits.reserved_outstanding(), 26);
}

#[test]
fn a_lowered_limit_is_honoured() {
    let mut credits = limited(10);
    for _ in 0..5 {
        credits.on_sent(Class::Call);
    }
    credits.on_received(5, Arrived::Other).unwrap();
    assert!(!credits.may_send(Class::Reply) && credits.may_send(Class::Grant), "d = 0");
    credits.on_received(3, Arrived::Other).unwrap();
    assert!(!credits.may_send(Class::Grant), "d = -2");
    credits.on_received(6, Arrived::Grant).unwrap();
    assert!(credits.may_send(Class::Reply), "and raised again, by a grant too");
}

#[test]
fn a_limit_farther_away_than_any_window_is_implausible() {
    const FAR: u32 = (1 << 31) - 2;
    for base in [0, 7, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
        for (word, plausible) in [
            (base.wrapping_add(FAR), true),
            (base.wrapping_add(FAR + 1), false),
            (base.wrapping_sub(FAR), true),
            (base.wrapping_sub(FAR + 1), false),
            (base.wrapping_add(1 << 31), false),
            (base, true),
        ] {
            let mut credits = starting_at(base, 0, 1);
            let expected = if plausible { Ok(()) } else { Err(CreditFault::Implausible) };
            assert_eq!(credits.on_received(word, Arrived::Other), expected, "{base:x} {word:x}");
            let limit = if plausible { word } else { base.wrapping_add(1) };
            assert_eq!(credits.peer_limit(), limit);
        }
    }
}

#[test]
fn a_peer_that_sends_more_than_is_reserved_for_it_is_caught() {
    for base in [0, u32::MAX - 3] {
        let mut credits = starting_at(0, base, 4);
        // Four credits, and the Receive beyond them.
        (0..5).for_each(|_| credits.on_received(1, Arrived::Other).unwrap());
        assert_eq!(credits.reserved_outstanding(), 0);
        let mut again = credits.clone();
        assert_eq!(credits.on_received(1, Arrived::Grant), Err(CreditFault::Overrun));
        assert_eq!(again.on_ignored(Arrived::Other), Err(CreditFault::Overrun));
        assert_eq!(credits.reserved_outstanding(), u32::MAX, "it used another's Receive");
        credits.reserve(2);
        assert_eq!(credits.on_received(1, Arrived::Other), Ok(()), "what is reserved may be used");
    }
}

#[test]
fn the_last_receive_is_owed_to_a_peer_that_used_it_for_a_grant() {
    for last in [Arrived::Grant, Arrived::Other] {
        let mut credits = starting_at(0, 0, 2);
        for arrived in [Arrived::Grant, Arrived::Other, last] {
            assert!(!credits.lacks_receive_for_grant(), "one is left");
            credits.on_received(1, arrived).unwrap();
        }
        assert_eq!(credits.lacks_receive_for_grant(), last == Arrived::Grant);
        credits.reserve(1);
        assert!(!credits.lacks_receive_for_grant());
        assert_eq!(credits.on_run([1]), 1);
        assert!(!credits.lacks_receive_for_grant(), "a Call used it");
    }
}

#[test]
fn a_message_whose_credit_word_means_nothing_uses_a_receive() {
    let mut credits = limited(10);
    let before = credits.reserved_outstanding();
    assert_eq!(credits.on_ignored(Arrived::Other), Ok(()));
    assert_eq!((credits.peer_limit, credits.reserved_outstanding()), (10, before - 1));
}

#[test]
fn a_limit_is_refreshed_at_half_the_window() {
    for window in [2, 3, 8, 33] {
        let mut credits = starting_at(0, 0, window);
        credits.on_sent(Class::Control);
        for spent in 1..=window {
            credits.on_received(1 << 20, Arrived::Other).unwrap();
            credits.reserve(1);
            assert_eq!(credits.wants_grant(), 2 * spent >= window, "{spent} of {window}");
        }
        credits.on_sent(Class::Grant);
        assert!(!credits.wants_grant(), "told");
    }
}

#[test]
fn any_message_announces_the_limit_in_place_of_a_grant() {
    for class in [Class::Call, Class::Reply, Class::Control, Class::Grant] {
        let mut credits = starting_at(0, 0, 2);
        credits.on_received(8, Arrived::Other).unwrap();
        credits.reserve(1);
        assert!(credits.wants_grant());
        assert_eq!(credits.on_sent(class), 3);
        assert!(!credits.wants_grant());
    }
}

#[test]
fn a_grant_provokes_none_while_the_peer_has_more_than_half_of_its_credits() {
    for window in [3, 4, 8, 9] {
        let mut credits = starting_at(0, 0, window);
        credits.on_sent(Class::Control);
        for left in (window / 2 + 1..window).rev() {
            credits.on_received(1 << 20, Arrived::Grant).unwrap();
            credits.reserve(1);
            assert!(!credits.wants_grant(), "{left} of {window} left");
        }
        credits.on_received(1 << 20, Arrived::Grant).unwrap();
        credits.reserve(1);
        assert!(credits.wants_grant(), "window {window}");
        credits.on_sent(Class::Grant);
        assert_eq!(distance(credits.announced, credits.received), i32::try_from(window).unwrap());
    }
}

#[test]
fn grants_die_out_between_two_ends() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut ends = pair(&mut rng, [0, 0]);
        // Each end has once sent the other an unneeded grant.
        for at in [0, 1] {
            let raised = u32::try_from(rng.below(4)).unwrap();
            ends[at].reserved += raised + 1;
            ends[at].credits.reserve(raised + 1);
            apply(&mut ends, at, Step::Grant, &mut rng, true);
        }
        assert!(run(&mut ends, &mut rng, Rule::Reserve, true), "seed {seed}");
        let grants = ends[0].sent + ends[1].sent;
        assert!(grants <= 8, "seed {seed}: {grants} grants about nothing");
    }
}

#[test]
fn two_ends_that_give_too_few_credits_still_fall_silent() {
    let mut rng = Rng::new(0);
    let mut ends = pair(&mut rng, [0, 0]);
    // The first end has news to tell. Its grant leaves each end one credit of two.
    for (end, told) in ends.iter_mut().zip([1, 2]) {
        end.credits = starting_at(0, 0, 2);
        end.credits.peer_limit = 2;
        end.credits.announced = told;
        end.credits.news = told == 1;
        (end.sent, end.reserved, end.told) = (0, 3, told);
    }
    assert!(run(&mut ends, &mut rng, Rule::Reserve, true));
    assert!(ends[0].sent + ends[1].sent <= 2 * ANSWERS_MAX + 2);
    assert!(ends[0].sent >= 2, "they did answer each other");
}

#[test]
fn a_receive_reserved_late_is_news_although_something_was_sent_meanwhile() {
    // The Receive of a Call is reserved again only after its Reply has left, so the Reply could not announce it.
    let mut credits = starting_at(0, 0, 4);
    credits.on_received(8, Arrived::Other).unwrap();
    credits.on_received(8, Arrived::Grant).unwrap();
    credits.on_sent(Class::Reply);
    assert!(!credits.wants_grant(), "nothing to tell yet");
    credits.reserve(1);
    assert!(!credits.wants_grant(), "two of three are left");
    credits.reserve(1);
    assert!(credits.wants_grant(), "two of four");
    credits.on_sent(Class::Grant);
    // A window that grows is news without any message.
    credits.reserve(4);
    assert!(credits.wants_grant());
}

#[test]
fn a_grant_without_credit_raises_the_limit() {
    let mut credits = starting_at(0, 0, 4);
    (0..4).for_each(|_| credits.on_received(1, Arrived::Other).unwrap());
    credits.on_sent(Class::Control);
    assert_eq!(credits.left(), 0);
    assert!(!credits.wants_grant(), "a grant that says nothing new is not worth the last Receive");
    let before = credits.announced;
    credits.reserve(1);
    assert!(credits.wants_grant());
    assert_eq!(distance(credits.on_sent(Class::Grant), before), 1);
    credits.reserve(3);
    assert!(!credits.wants_grant(), "d = -1");
}

/// The literal sentence of section 4.2.1 and reading E1 under the same traffic: three messages one
/// way for each that comes back, both ends prompt. Returns how far it got, and how many messages
/// the quiet end may have on their way at the end.
fn asymmetric(word: fn(sent: u32, received: u32, advertised: u32) -> u32) -> (u32, u32) {
    const WINDOW: u32 = 32;
    const ROUNDS: u32 = 1000;
    // Sent, received, received credits; of the busy end and of the quiet one.
    let mut ends = [(0_u32, 0_u32, WINDOW), (0, 0, WINDOW)];
    for round in 0..ROUNDS {
        for from in [0, 0, 0, 1] {
            let (sent, received, limit) = ends[from];
            if sent >= limit {
                return (round, ends[1].2.saturating_sub(ends[1].0));
            }
            ends[from].0 += 1;
            ends[1 - from].1 += 1;
            ends[1 - from].2 = word(sent + 1, received, WINDOW);
        }
    }
    (ROUNDS, ends[1].2.saturating_sub(ends[1].0))
}

#[test]
fn the_literal_credit_word_deadlocks_and_overruns_where_e1_does_neither() {
    let (rounds, in_flight) = asymmetric(|sent, _, advertised| sent + advertised);
    assert!(rounds < 20, "the busy end waits for ever, every Receive of its peer posted");
    assert!(in_flight > 32, "and the quiet end may fill more Receives than there are");
    let (rounds, in_flight) = asymmetric(|_, received, advertised| received + advertised);
    assert_eq!(rounds, 1000);
    assert!(in_flight <= 32);
}

/// When a Call may be sent.
#[derive(Clone, Copy)]
enum Rule {
    /// A Call may be sent when `Credits` allows it: P2.
    Reserve,
    /// A Call may be sent whenever there is a credit.
    Greedy,
}

/// One end of a connection whose Receives are few, and kept by Calls until they are answered.
#[derive(Debug)]
struct End {
    credits: Credits,
    /// Calls still to be made, and made but not answered.
    to_make: u32,
    unanswered: u32,
    /// Received Calls: their Receives are busy.
    held: u32,
    /// Receives that may be reserved again.
    free: u32,
    /// Messages on their way here.
    inbox: VecDeque<(Class, u32)>,
    /// Ever sent, ever reserved for the peer, and the highest limit ever told, from the same start.
    sent: u32,
    reserved: u32,
    told: u32,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Call,
    Reply,
    /// A Call that needs no Reply is done.
    Swallow,
    Deliver,
    Repost,
    Grant,
}

impl End {
    fn new(credits: Credits, to_make: u32, window: u32) -> Self {
        Self {
            credits,
            to_make,
            unanswered: 0,
            held: 0,
            free: 0,
            inbox: VecDeque::new(),
            sent: 0,
            reserved: window + 1,
            told: 1,
        }
    }

    fn may(&self, step: Step, rule: Rule, replies: bool) -> bool {
        match (step, rule) {
            (Step::Call, Rule::Reserve) => self.to_make > 0 && self.credits.may_send(Class::Call),
            (Step::Call, Rule::Greedy) => self.to_make > 0 && self.credits.left() >= 1,
            (Step::Reply, _) => self.held > 0 && replies && self.credits.may_send(Class::Reply),
            (Step::Swallow, _) => self.held > 0 && !replies,
            (Step::Deliver, _) => !self.inbox.is_empty(),
            (Step::Repost, _) => self.free > 0,
            (Step::Grant, _) => self.credits.wants_grant(),
        }
    }
}

/// Runs both ends under a random schedule until nothing can happen. Returns whether all is answered.
fn run(ends: &mut [End; 2], rng: &mut Rng, rule: Rule, replies: bool) -> bool {
    const STEPS: [Step; 6] =
        [Step::Call, Step::Reply, Step::Swallow, Step::Deliver, Step::Repost, Step::Grant];
    for _ in 0..20_000 {
        let all = [0, 1].into_iter().flat_map(|at| STEPS.map(|step| (at, step)));
        let possible: Vec<_> =
            all.filter(|&(at, step)| ends[at].may(step, rule, replies)).collect();
        if possible.is_empty() {
            return ends.iter().all(|end| end.to_make + end.unanswered + end.held == 0);
        }
        let (at, step) = possible[rng.below(possible.len())];
        apply(ends, at, step, rng, replies);
    }
    panic!("no end to it: grants provoke grants");
}

fn apply(ends: &mut [End; 2], at: usize, step: Step, rng: &mut Rng, replies: bool) {
    let end = &mut ends[at];
    let class = match step {
        Step::Call => {
            end.to_make -= 1;
            end.unanswered += u32::from(replies);
            Class::Call
        }
        Step::Reply => {
            end.held -= 1;
            end.free += 1;
            // A Call in eight is refused instead.
            if rng.below(8) == 0 {
                end.credits.owed_done(1);
                Class::Control
            } else {
                Class::Reply
            }
        }
        Step::Swallow => {
            end.credits.owed_done(1);
            end.held -= 1;
            end.free += 1;
            return;
        }
        Step::Deliver => return deliver(end),
        Step::Repost => {
            let count = 1 + u32::try_from(rng.below(end.free as usize)).unwrap();
            end.free -= count;
            end.reserved += count;
            return end.credits.reserve(count);
        }
        Step::Grant => Class::Grant,
    };
    let before = end.credits.announced;
    let word = end.credits.on_sent(class);
    let raised = u32::try_from(distance(word, before)).expect("P1: a limit never falls");
    end.told += raised;
    end.sent += 1;
    assert!(end.told < end.reserved, "P1: a Receive behind every credit, and one for a grant");
    let (sent, other) = (end.sent, &mut ends[1 - at]);
    assert!(sent <= other.reserved, "a Receive for every message");
    if class == Class::Grant {
        assert!(raised > 0, "E3: a grant raises the limit");
    } else {
        assert!(sent <= other.told, "never beyond what was told");
    }
    other.inbox.push_back((class, word));
}

fn deliver(end: &mut End) {
    let (class, word) = end.inbox.pop_front().unwrap();
    assert!(end.credits.reserved_outstanding() > 0, "it finds a Receive");
    end.credits.on_received(word, arrived(class)).unwrap();
    match class {
        Class::Call => {
            end.credits.owe(1);
            end.held += 1;
        }
        Class::Reply | Class::Control => {
            end.unanswered -= 1;
            end.free += 1;
        }
        Class::Grant => end.free += 1,
    }
}

/// Two ends set up as after the exchange of properties: each knows the other's whole window.
fn pair(rng: &mut Rng, calls: [u32; 2]) -> [End; 2] {
    // Any start, often one from which the counts wrap.
    let base = |rng: &mut Rng| match rng.below(2) {
        0 => 0,
        _ => u32::MAX.wrapping_sub(u32::try_from(rng.below(40)).unwrap()),
    };
    let bases = [base(rng), base(rng)];
    // One end may give fewer credits than it should.
    let mut windows = [0, 1].map(|_| WINDOW_MIN + u32::try_from(rng.below(6)).unwrap());
    windows[rng.below(2)] -= u32::try_from(rng.below(2)).unwrap();
    let mut ends = [0, 1].map(|at| {
        let mut credits = starting_at(bases[at], bases[1 - at], windows[at]);
        if calls[1 - at] == 0 {
            credits.call_spare = Credits::new(PeerCalls::Refused).call_spare;
        }
        End::new(credits, calls[at], windows[at])
    });
    for at in [0, 1] {
        ends[1 - at].credits.peer_limit = bases[1 - at].wrapping_add(windows[at]);
        ends[at].credits.announced = bases[1 - at].wrapping_add(windows[at]);
        ends[at].credits.news = false;
        ends[at].told = windows[at];
    }
    ends
}

#[test]
fn no_schedule_overruns_or_deadlocks_two_ends() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let calls = [[40, 40], [60, 0], [0, 60], [50, 3]][rng.below(4)];
        let replies = seed % 4 != 0;
        let mut ends = pair(&mut rng, calls);
        assert!(run(&mut ends, &mut rng, Rule::Reserve, replies), "seed {seed}: {ends:#?}");
        let (sent, received) = (ends[0].credits.sent, ends[1].credits.received);
        assert_eq!(sent, received, "seed {seed}");
    }
}

#[test]
fn without_the_reserve_for_replies_two_busy_ends_deadlock() {
    let stuck = |seed| {
        let mut rng = Rng::new(seed);
        let mut ends = pair(&mut rng, [40, 40]);
        !run(&mut ends, &mut rng, Rule::Greedy, true)
    };
    assert!((0..50).any(stuck), "P2 would not be needed");
}

#[test]
fn a_run_of_messages_counts_as_one_after_the_other() {
    let mut random = Rng::new(7);
    let (mut whole, mut broken) = (0, 0);
    for _ in 0..2_000 {
        let mut together = starting_at(u32::MAX - 3, 5, 12);
        for _ in 0..random.below(4) {
            together.on_sent(Class::Call);
        }
        together.window = random.octet().into();
        let mut apart = together.clone();
        let mut word = apart.peer_limit();
        let run: Vec<_> = (0..random.below(16))
            .map(|_| {
                word = match random.below(8) {
                    0 => word.wrapping_add(1 << 31),
                    1..4 => word.wrapping_add(random.octet().into()),
                    _ => word,
                };
                word
            })
            .collect();
        // The run ends before a message that breaks a rule, which is handled alone.
        let count = run.iter().take_while(|word| {
            let mut next = apart.clone();
            let taken = next.on_received(**word, Arrived::Other).is_ok();
            if taken {
                apart = next;
            }
            taken
        });
        let count = u32::try_from(count.count()).unwrap();
        assert_eq!(together.on_run(run.iter().copied()), count, "{run:?}");
        assert_eq!(format!("{together:?}"), format!("{apart:?}"), "{run:?}");
        if run.len() == count as usize { whole += 1 } else { broken += 1 }
    }
    assert!(whole > 200 && broken > 200, "{whole} and {broken}");
}
