//! Procedures that never have a Reply: their Calls end when they are sent, and their credits come back by grants alone.

use haulage_proto::negotiate::Version;
use haulage_proto::v2::continuation::Kind;

use super::*;
use crate::service::AUTH_SYS;

mod over;

/// A procedure without a Reply, whose service does as its argument says.
const NOTE: u32 = 1;
/// A procedure with a Reply, whose service does as its argument says.
const ASK: u32 = 2;
/// A procedure without a Reply, and with eligible items all the same.
const MOVE: u32 = 3;

/// Arguments: what the service returns.
const NOTHING: u32 = 0;
const DONE: u32 = 1;
const FAILED: u32 = 2;
/// In a later turn, what the next one says.
const LATER: u32 = 10;

/// A service that keeps the arguments of all Calls.
#[derive(Debug, Default)]
struct Notes {
    noted: Vec<u32>,
    waiting: VecDeque<(CallToken, u32)>,
    /// Whether anonymous Calls are denied.
    denies: bool,
}

fn notes(procedures: Vec<Procedure>) -> Binding {
    Binding { procedures, ..binding() }
}

fn told() -> Binding {
    let item = Eligible::opaque(ITEM_MAX);
    notes(vec![
        Procedure::new("NULL"),
        Procedure::new("NOTE").call_only(),
        Procedure::new("ASK"),
        Procedure::new("MOVE").argument(item).result(item).call_only(),
    ])
}

impl Notes {
    fn outcome(how: u32, reply: &mut Reply) -> Outcome {
        match how {
            DONE => {
                reply.results(|w| w.u32(how));
                Outcome::Done
            }
            FAILED => Outcome::Failed(AcceptStat::GarbageArgs),
            _ => Outcome::NoReply,
        }
    }
}

impl Service for Notes {
    fn programs(&self) -> Vec<Program> {
        let program = Program::new(told());
        vec![if self.denies { program.flavors(&[AUTH_SYS]) } else { program }]
    }

    fn call(&mut self, _: &mut Cx<'_>, mut call: Call<'_>, reply: &mut Reply) -> Outcome {
        if call.procedure == 0 {
            return Outcome::Done;
        }
        let how = call.arguments.u32().unwrap();
        self.noted.push(how);
        if (LATER..LATER + 3).contains(&how) {
            self.waiting.push_back((call.token, how - LATER));
            return Outcome::Later;
        }
        Self::outcome(how, reply)
    }

    fn resume(&mut self, cx: &mut Cx<'_>, token: CallToken, reply: &mut Reply) -> Outcome {
        assert!(cx.awaits(token));
        let (resumed, how) = self.waiting.pop_front().unwrap();
        assert_eq!(resumed, token);
        Self::outcome(how, reply)
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        self.waiting.iter().for_each(|(token, _)| cx.resume(*token));
        false
    }
}

/// Cores that have as few Receives for each other as they may.
const NARROW: Limits = Limits { connections_max: 1, receives_max: 2 * RECEIVES_IDLE, ..LIMITS };

fn world(limits: [Limits; 2]) -> World<Notes> {
    world_of(limits, 100)
}

/// Makes cores whose provider copies this share of their short messages as they are sent, in percent.
fn world_of(limits: [Limits; 2], copied_percent: u8) -> World<Notes> {
    let fabric = FabricConfig { copied_percent, send_queue_max: 5, ..FabricConfig::default() };
    World::with(Notes::default(), limits, fabric).bound(told())
}

impl World<Notes> {
    /// Has the client call with another binding.
    fn bound(mut self, binding: Binding) -> Self {
        let bound = self.client.inner.common.connections.bind(binding);
        let key = self.connection.0;
        self.client.inner.common.connections.get_mut(key).unwrap().session.bind(bound);
        self
    }

    fn tell(&mut self, token: u64, procedure: u32, argument: u32) {
        let (mut cx, _) = self.client.cx(self.now);
        cx.call(self.connection, request(procedure), token, |w| w.u32(argument)).unwrap();
    }

    /// Makes a Call with one argument, and returns how it ended.
    fn ask(&mut self, procedure: u32, argument: u32) -> Result<u32, CallError> {
        let before = self.ended().len();
        self.tell(before as u64, procedure, argument);
        self.until(|w| w.ended().len() > before);
        self.ended()[before].1.clone()
    }

    /// Returns how many broken declarations the server counts, and how many Replies came to the client for nothing.
    fn counted(&mut self) -> (u64, u64) {
        self.settle();
        let misdeclared = self.server.cx(self.now).0.counters().results_misdeclared;
        (misdeclared, self.client.cx(self.now).0.counters().replies_unmatched)
    }

    /// Checks that neither end owes anything, once an ordinary Call is answered.
    fn owes_nothing(&mut self) {
        assert_eq!(self.ask(0, 0), Ok(0));
        self.settle();
        self.all_home();
        for connections in
            [&self.server.inner.common.connections, &self.client.inner.common.connections]
        {
            assert!(connections.iter().all(|one| one.engine.owed() == 0));
        }
        // No Call counts as one that may hold a Receive of the server.
        let connections = &self.client.inner.common.connections;
        assert!(connections.iter().all(|one| match one.session.terms().version {
            Version::One => true,
            Version::Two => one.engine.messages_max(Kind::Reply) > 1,
        }));
    }
}

// [V2-4.7-1]
#[test]
fn calls_without_a_reply_never_use_up_the_last_credit() {
    for limits in [[NARROW; 2], [LIMITS, NARROW], [NARROW, LIMITS], [LIMITS; 2]] {
        for (most, copied) in [(1, 100), (2, 0), (31, 50), (31, 100)] {
            let mut world = world_of(limits, copied);
            for token in 0..3_000 {
                world.tell(u64::from(token), NOTE, token + 100);
                world.until(|w| w.ended().len() + most > token as usize);
            }
            world.until(|w| w.ended().len() == 3_000);
            assert!(world.ended().iter().all(|(_, result, _)| *result == Ok(0)));
            assert!(world.client.service().results.iter().all(Vec::is_empty));
            // Behind an ordinary Call all have arrived, in order.
            world.owes_nothing();
            assert!(world.server.service().noted.iter().copied().eq(100..3_100));
            assert_eq!(world.counted(), (0, 0));
            // Grants are all that the server has sent beside one Reply.
            assert_eq!(world.server.inner.common.counters.calls_served, 3_001);
        }
    }
}

#[test]
fn ordinary_calls_go_between_those_without_a_reply() {
    for (limits, copied) in [([NARROW; 2], 50), ([LIMITS; 2], 0)] {
        let mut world = world_of(limits, copied);
        for token in 0..2_000 {
            let procedure = if token % 3 == 0 { 0 } else { NOTE };
            world.tell(u64::from(token), procedure, token + 100);
            world.until(|w| w.ended().len() + 20 > token as usize);
        }
        world.until(|w| w.ended().len() == 2_000);
        assert!(world.ended().iter().all(|(_, result, _)| *result == Ok(0)));
        world.owes_nothing();
        assert_eq!(world.server.service().noted.len(), 2_000 - 667);
    }
}

#[test]
fn nothing_is_owed_whatever_a_service_returns() {
    let failed = |stat| Err(CallError::Rejected(stat));
    let (system, garbage) = (failed(AcceptStat::SystemErr), failed(AcceptStat::GarbageArgs));
    let mut world = world([LIMITS; 2]);
    let mut misdeclared = 0;
    for (how, counts, asked) in
        [(NOTHING, 0, system.clone()), (DONE, 1, Ok(0)), (FAILED, 0, garbage)]
    {
        for how in [how, LATER + how] {
            assert_eq!(world.ask(NOTE, how), Ok(0), "{how}: it was sent");
            misdeclared += counts;
            assert_eq!(world.counted(), (misdeclared, 0), "{how}");
            world.owes_nothing();
            assert_eq!(world.ask(ASK, how), asked, "{how}");
            misdeclared += u64::from(asked == system);
            assert_eq!(world.counted(), (misdeclared, 0), "{how}");
        }
    }
    assert!(world.server.service().waiting.is_empty());
}

#[test]
fn a_run_of_calls_with_and_without_replies_is_settled_as_one() {
    let mut world = world([LIMITS; 2]);
    assert_eq!(world.ask(0, 0), Ok(0));
    for round in 0..50 {
        let before = world.ended().len();
        for (token, (procedure, how)) in (0..).zip([
            (NOTE, NOTHING),
            (0, 0),
            (NOTE, LATER),
            (NOTE, DONE),
            (0, 0),
            (NOTE, FAILED),
        ]) {
            world.tell(token, procedure, how);
        }
        world.until(|w| w.ended().len() == before + 6);
        world.owes_nothing();
        assert_eq!(world.counted(), (round + 1, 0));
    }
}

#[test]
fn version_1_has_no_calls_without_a_reply() {
    for versions in [[Versions::OnlyOne, Versions::Both], [Versions::Both, Versions::OnlyOne]] {
        let limits = versions.map(|versions| Limits { versions, ..LIMITS });
        let mut client = world(limits);
        // The second Call is made when the version is known.
        for _ in 0..2 {
            let refused = client.ask(NOTE, NOTHING);
            assert_eq!(refused, Err(CallError::CallOnly));
        }
        client.owes_nothing();
        assert!(client.server.service().noted.is_empty());
        // Our server answers a client that makes them all the same.
        let procedures = ["NULL", "NOTE", "ASK"].map(Procedure::new).to_vec();
        let mut world = client.bound(notes(procedures));
        for later in [0, LATER] {
            assert_eq!(world.ask(NOTE, later + NOTHING), Ok(0));
            let garbage = Err(CallError::Rejected(AcceptStat::GarbageArgs));
            assert_eq!(world.ask(NOTE, later + FAILED), garbage);
            let system = Err(CallError::Rejected(AcceptStat::SystemErr));
            assert_eq!(world.ask(NOTE, later + DONE), system);
        }
        world.owes_nothing();
        assert_eq!(world.counted(), (2, 0));
    }
}

#[test]
fn a_call_that_is_denied_gets_no_reply_either() {
    let service = Notes { denies: true, ..Notes::default() };
    let mut world = World::with(service, [LIMITS; 2], FabricConfig::default()).bound(told());
    for _ in 0..200 {
        assert_eq!(world.ask(NOTE, NOTHING), Ok(0));
    }
    assert_eq!(world.ask(ASK, NOTHING), Err(CallError::Denied));
    assert_eq!(world.counted(), (0, 0));
    world.all_home();
    assert!(world.server.service().noted.is_empty());
}

#[test]
fn an_answer_to_a_call_that_its_server_does_not_know_is_dropped() {
    let procedures = vec![Procedure::new("P").call_only(); 7];
    let mut world = world([NARROW; 2]).bound(notes(procedures));
    for number in 1..300 {
        assert_eq!(world.ask(6, NOTHING), Ok(0));
        assert_eq!(world.counted(), (0, number));
    }
    let mut world = world.bound(told());
    world.owes_nothing();
}

// [V2-4.7-1]
#[test]
fn a_call_without_a_reply_lends_no_memory() {
    let mut world = world([LIMITS; 2]);
    for opened in [false, true] {
        if opened {
            world.owes_nothing();
        }
        for takes in [false, true] {
            let lease = Some(world.lease(5_000, 1));
            let (argument, result) = if takes { (None, lease) } else { (lease, None) };
            let request = request(MOVE).argument(argument).room(result);
            let (mut cx, _) = world.client.cx(world.now);
            let called = cx.call(world.connection, request, 7, |_| Ok(()));
            let (error, request) = called.unwrap_err();
            assert_eq!(error, CallError::NotEligible);
            assert!(request.opens(), "it comes back");
        }
    }
    world.owes_nothing();
    let moved = world.client.provider_counters();
    assert_eq!((moved.invalidated_remote, moved.invalidated_local), (0, 0));
}

// [V2-4.7-1]
#[test]
fn a_chunk_for_a_call_without_a_reply_is_refused() {
    let item = Eligible::opaque(ITEM_MAX);
    let moves = Procedure::new("MOVE").argument(item).result(item);
    let bound = [Procedure::new("NULL"), Procedure::new("NOTE"), Procedure::new("ASK"), moves];
    let mut world = world([LIMITS; 2]).bound(notes(bound.to_vec()));
    let result = Some(world.lease(5_000, 1));
    world.call(1, request(MOVE).room(result));
    world.until(|w| w.ended().len() == 1);
    let refused = ErrorBody::WriteChunks { max: 0 };
    assert_eq!(world.ended()[0].1, Err(CallError::Refused(TransportError::Two(refused))));
    assert!(world.server.service().noted.is_empty());
    // The client takes it for an ordinary Call, and sends it again without the chunk.
    let argument = Some(world.lease(5_000, 1));
    world.call(2, request(MOVE).argument(argument));
    world.until(|w| w.ended().len() == 2);
    assert_eq!(world.ended()[1].1, Err(CallError::TimedOut));
    assert_eq!(world.server.inner.common.counters.calls_refused, 2);
    assert_eq!(world.server.provider_counters().tagged_received, 0, "nothing was read");
    assert_eq!(world.server.service().noted, [5_000], "its length");
    world.owes_nothing();
}

#[test]
fn a_call_that_is_lost_ends_once() {
    for moment in 0..120 {
        let mut world = world_of([NARROW; 2], if moment % 2 == 0 { 100 } else { 0 });
        for token in 0..20 {
            world.tell(token, NOTE, NOTHING);
        }
        world.turns(moment / 2);
        world.lose_the_connection();
        world.until(|w| w.ended().len() == 20 && w.is_disconnected());
        let sent = world.ended().iter().filter(|(_, result, _)| result.is_ok()).count();
        assert!(world.server.service().noted.len() <= 20 && (moment > 0 || sent == 0));
        for token in 0..20 {
            world.ended_of(token);
        }
        world.settle();
        world.all_home();
        assert_eq!(world.client.inner.requester.calls.each().count(), 0);
    }
}

#[test]
fn a_call_that_is_given_up_as_it_leaves_is_forgotten_once_it_has_left() {
    let fabric = FabricConfig { copied_percent: 0, eager_percent: 0, ..FabricConfig::default() };
    let mut world = World::with(Notes::default(), [LIMITS; 2], fabric).bound(told());
    assert_eq!(world.ask(0, 0), Ok(0));
    for round in 0..100 {
        let timeout = Some(Duration::from_nanos(1));
        let before = world.ended().len();
        let (mut cx, _) = world.client.cx(world.now);
        let request = Request { timeout, ..request(NOTE) };
        cx.call(world.connection, request, round, |w| w.u32(NOTHING)).unwrap();
        // It leaves in this turn, and its time is over in the next.
        world.client.turn(world.now);
        world.now = world.now.saturating_add(Duration::from_nanos(1));
        world.client.turn(world.now);
        assert_eq!(world.ended()[before].1, Err(CallError::TimedOut));
        assert_eq!(world.client.inner.requester.calls.each().count(), 1, "it has not left yet");
        world.owes_nothing();
        assert_eq!(world.client.inner.requester.calls.each().count(), 0);
        assert_eq!(world.ended().len(), before + 2);
    }
    assert_eq!(world.server.service().noted.len(), 100);
}
