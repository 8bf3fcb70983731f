//! Connections to servers that do not answer version 2, which begin anew with version 1 (P6).

use haulage_mr_pool::{PostedSink, PostedSource};
use haulage_proto::verbs::{Flags, Opcode, QpNum, Status, WrId};

use super::*;
use crate::provider::by_number::ByNumber as _;
use crate::provider::{ConnectionParams, Event, Operation, Receive, WorkRequest};
use crate::sys::complete;

/// What a server does about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Answers,
    Closes,
    Nothing,
    /// Says that it speaks version 1 alone, and closes.
    RefusesAndCloses,
}

/// What a server does about a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meets {
    Accepts,
    Ignores,
    Rejects,
}

/// A client core, and a server that is a queue pair and what this test does with it.
struct Scene {
    fabric: Fabric,
    now: Instant,
    client: Core<Sim, Caller>,
    server: Sim,
    pool: Pool,
    at: SocketAddr,
    sinks: Vec<Option<PostedSink>>,
    sources: Vec<PostedSource<Local>>,
    /// What the server does about messages of version 1, and of version 2.
    does: [Does; 2],
    /// What it does about the first newcomer, and about all later ones.
    meets: [Meets; 2],
    /// The newcomers.
    met: Vec<QpNum>,
    /// The messages that arrived: the number of the connection, and the version.
    heard: Vec<(usize, u32)>,
}

impl Scene {
    fn new(versions: Versions, does: [Does; 2]) -> Self {
        let fabric = Fabric::new(FabricConfig::default());
        let node = |n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
        let pool = || {
            let config = PoolConfig { bytes: 8 << 20, pages: PagePreference::Heap, node: None };
            Pool::new(&config).unwrap()
        };
        let mut server = fabric.provider(node(1)).unwrap();
        let (_, at) = server.listen(SocketAddr::new(node(1), 20050)).unwrap();
        let provider = fabric.provider(node(2)).unwrap();
        let limits = Limits { versions, connections_max: 4, ..LIMITS };
        let client = Core::new(provider, Caller::default(), pool(), limits, 2).unwrap();
        let mut scene = Self {
            fabric,
            now: Instant::ZERO,
            client,
            server,
            pool: pool(),
            at,
            sinks: Vec::new(),
            sources: Vec::new(),
            does,
            meets: [Meets::Accepts; 2],
            met: Vec::new(),
            heard: Vec::new(),
        };
        (0..8).for_each(|_| scene.receive());
        scene
    }

    fn receive(&mut self) {
        let mut posted = self.pool.lease(4096).unwrap().into_sink();
        let id = WrId(self.sinks.len() as u64);
        let mut batch = vec![Receive::single(id, posted.sink(0..4096).unwrap())];
        self.sinks.push(Some(posted));
        self.server.post_receives(&mut batch).unwrap();
    }

    fn connect(&mut self) -> ConnectionId {
        self.client.connect(self.now, self.at, binding()).unwrap()
    }

    /// Makes a Call that may take a minute.
    fn call(&mut self, connection: ConnectionId, token: u64) {
        let long = Request { timeout: Some(Duration::from_secs(60)), ..request(0) };
        self.client.cx(self.now).0.call(connection, long, token, |_| Ok(())).unwrap();
    }

    fn step(&mut self) {
        let worked = self.client.turn(self.now);
        let mut events = Vec::new();
        self.server.adopt_own(self.now);
        self.server.poll(self.now, 8, &mut events);
        if !worked && events.is_empty() {
            let next = self.fabric.next_event().into_iter().chain(self.client.poll_deadline());
            let next = next.min().expect("something is to happen");
            self.now = next.max(self.now.saturating_add(Duration::from_nanos(1)));
        }
        events.into_iter().for_each(|event| self.on_event(event));
    }

    fn until(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..100_000 {
            if done(self) {
                return;
            }
            self.step();
        }
        panic!("no progress");
    }

    fn on_event<L>(&mut self, event: Event<L>) {
        match event {
            Event::Request { qp, .. } => {
                let meets = self.meets[usize::from(!self.met.is_empty())];
                self.met.push(qp);
                let params = ConnectionParams { private_data: b"", ord: 1, ird: 1 };
                match meets {
                    Meets::Accepts => self.server.accept(self.now, qp, &params),
                    Meets::Ignores => {}
                    Meets::Rejects => self.server.reject(self.now, qp, b""),
                }
            }
            Event::Completion(done)
                if done.opcode == Opcode::Receive && done.status == Status::Success =>
            {
                let posted = self.sinks[usize::try_from(done.id.0).unwrap()].take().unwrap();
                let lease = complete::sink(posted, &done).unwrap();
                let word = |at: usize| {
                    u32::from_be_bytes(lease.bytes()[4 * at..4 * at + 4].try_into().unwrap())
                };
                self.on_message(done.qp, word(0), word(1));
                self.receive();
            }
            _ => {}
        }
    }

    fn on_message(&mut self, qp: QpNum, xid: u32, version: u32) {
        let connection = self.met.iter().position(|met| *met == qp).unwrap();
        self.heard.push((connection, version));
        match self.does[version as usize - 1] {
            Does::Nothing => {}
            Does::Closes => self.server.disconnect(self.now, qp),
            Does::Answers => {
                assert_eq!(version, 1, "it knows no more");
                self.send(qp, &[xid, 1, 8, 0, 0, 0, 0, xid, 1, 0, 0, 0, 0]);
            }
            Does::RefusesAndCloses => {
                self.send(qp, &[xid, 2, 8, 4, 1, 1, 1]);
                self.server.disconnect(self.now, qp);
            }
        }
    }

    fn send(&mut self, qp: QpNum, words: &[u32]) {
        let octets: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let mut lease = self.pool.lease(octets.len()).unwrap();
        lease.bytes_mut().copy_from_slice(&octets);
        let posted = lease.into_source();
        let source = posted.source(0..octets.len()).unwrap();
        let operation = Operation::Send { source, invalidate: None };
        let flags = Flags { signaled: true, ..Flags::default() };
        let mut batch = [WorkRequest { id: WrId(1000), flags, operation }].into();
        self.server.post(qp, &mut batch).unwrap();
        self.sources.push(posted);
    }

    /// Returns how long has passed since `before`.
    fn since(&self, before: Instant) -> Duration {
        self.now.saturating_since(before)
    }

    fn ended(&self) -> Vec<(u64, Result<u32, CallError>)> {
        let ended = self.client.service.ended.iter();
        ended.map(|(token, outcome, _)| (*token, outcome.clone())).collect()
    }

    /// Shuts the client down, and checks that it has lost nothing.
    fn leave(&mut self) {
        self.client.begin_shutdown(self.now);
        self.until(|scene| scene.client.is_drained());
        assert_eq!(self.client.inner.common.connections.len(), 0);
        let (receives, max) = (&self.client.inner.common.receives, LIMITS.receives_max);
        assert_eq!(receives.unreserved(), max.into());
        all_home(&mut self.client, self.now);
    }
}

/// The time that a server has to speak version 2.
fn silence() -> Duration {
    LIMITS.setup_timeout / 3
}

#[test]
fn a_server_that_does_not_answer_version_2_is_called_in_version_1() {
    for (manner, silence) in [(Does::Nothing, silence()), (Does::Closes, Duration::ZERO)] {
        let mut scene = Scene::new(Versions::Both, [Does::Answers, manner]);
        let connection = scene.connect();
        scene.call(connection, 1);
        scene.call(connection, 2);
        scene.until(|scene| scene.ended().len() == 2);
        assert_eq!(scene.ended(), [(1, Ok(0)), (2, Ok(0))], "{manner:?}");
        let took = scene.since(Instant::ZERO);
        assert!(took >= silence && took < silence + Duration::from_millis(1), "{took:?}");
        // [V2-4.3.3-2]
        assert_eq!(scene.heard, [(0, 2), (1, 1), (1, 1)], "{manner:?}");
        // The connection has its name still.
        scene.call(connection, 3);
        scene.until(|scene| scene.ended().len() == 3);
        assert_eq!((scene.ended()[2].1.clone(), scene.met.len()), (Ok(0), 2));
        // However long it is used.
        let later = scene.now.saturating_add(4 * LIMITS.setup_timeout);
        scene.until(|scene| scene.now >= later || scene.client.poll_deadline().is_none());
        scene.call(connection, 4);
        scene.until(|scene| scene.ended().len() == 4);
        scene.leave();
    }
}

#[test]
fn connections_that_are_lost_in_the_same_turn_all_begin_anew() {
    let mut scene = Scene::new(Versions::Both, [Does::Answers, Does::Nothing]);
    for token in 0..4 {
        let connection = scene.connect();
        scene.call(connection, token);
    }
    scene.until(|scene| scene.heard.len() == 4);
    for qp in scene.met.clone() {
        scene.server.disconnect(scene.now, qp);
    }
    scene.now = scene.now.saturating_add(Duration::from_millis(1));
    scene.until(|scene| scene.ended().len() == 4);
    let mut ended = scene.ended();
    ended.sort_by_key(|(token, _)| *token);
    assert_eq!(ended, [0, 1, 2, 3].map(|token| (token, Ok(0))));
    assert!(scene.since(Instant::ZERO) < silence());
    scene.leave();
}

#[test]
fn calls_made_while_the_connection_begins_anew_are_answered() {
    let mut scene = Scene::new(Versions::Both, [Does::Answers, Does::Nothing]);
    let connection = scene.connect();
    let is_renewing = |scene: &Scene| {
        let connections = &scene.client.inner.common.connections;
        connections.iter().any(|connection| connection.life.is_renewing())
    };
    scene.until(is_renewing);
    let mut calls = 0;
    while is_renewing(&scene) {
        assert!(scene.client.cx(scene.now).0.is_connecting(connection));
        if calls < 9 {
            scene.call(connection, calls);
            calls += 1;
        }
        scene.step();
    }
    assert_eq!(calls, 9);
    scene.until(|scene| scene.ended().len() as u64 == calls);
    assert!(scene.ended().iter().all(|(_, outcome)| outcome.is_ok()));
    scene.leave();
}

#[test]
fn a_server_is_remembered_for_ten_minutes() {
    let mut scene = Scene::new(Versions::Both, [Does::Answers, Does::Nothing]);
    let mut began = Vec::new();
    for later in [0, 1, 598, 2] {
        let from = scene.now.saturating_add(Duration::from_secs(later));
        if scene.now < from {
            scene.now = from;
        }
        let (before, count) = (scene.now, scene.heard.len());
        let connection = scene.connect();
        scene.call(connection, 1);
        let ended = scene.ended().len() + 1;
        scene.until(|scene| scene.ended().len() == ended);
        assert_eq!(scene.ended()[ended - 1].1, Ok(0));
        began.push((scene.heard[count].1, scene.since(before) >= silence()));
        scene.client.close(connection);
    }
    assert_eq!(began, [(2, true), (1, false), (1, false), (2, true)]);
    // Another port is another server.
    let other = SocketAddr::new(scene.at.ip(), 20051);
    scene.server.listen(other).unwrap();
    let heard = scene.heard.len();
    scene.at = other;
    let connection = scene.connect();
    scene.call(connection, 1);
    scene.until(|scene| scene.heard.len() > heard);
    assert_eq!(scene.heard[heard].1, 2);
    scene.leave();
}

#[test]
fn a_server_that_is_silent_twice_is_given_up_in_time_and_not_remembered() {
    for [one, two] in [[Does::Nothing; 2], [Does::Nothing, Does::Closes]] {
        let mut scene = Scene::new(Versions::Both, [one, two]);
        let connection = scene.connect();
        scene.call(connection, 1);
        scene.until(|scene| scene.ended().len() == 1);
        let why = "the server answered neither version 2 nor version 1 of RPC-over-RDMA in time";
        assert_eq!(scene.ended(), [(1, Err(CallError::Disconnected(why.into())))]);
        let took = scene.since(Instant::ZERO);
        assert!(took <= LIMITS.setup_timeout + Duration::from_millis(1), "{took:?}");
        assert_eq!(scene.heard, [(0, 2), (1, 1)]);
        // It may have been busy.
        scene.connect();
        scene.until(|scene| scene.heard.len() == 3);
        assert_eq!(scene.heard[2], (2, 2));
        scene.leave();
    }
}

#[test]
fn a_second_connection_that_is_not_made_ends_the_first() {
    let timed_out = CallError::Connect(ConnectError::TimedOut);
    let rejected = CallError::Connect(ConnectError::Rejected);
    for (second, why) in [(Meets::Ignores, timed_out), (Meets::Rejects, rejected)] {
        let mut scene = Scene::new(Versions::Both, [Does::Answers, Does::Nothing]);
        scene.meets[1] = second;
        let connection = scene.connect();
        scene.call(connection, 1);
        scene.until(|scene| scene.ended().len() == 1);
        assert_eq!(scene.ended(), [(1, Err(why))]);
        let took = scene.since(Instant::ZERO);
        assert!(took <= LIMITS.setup_timeout + Duration::from_millis(1), "{took:?}");
        assert_eq!(scene.met.len(), 2, "and no third");
        let (_, before) = (scene.connect(), scene.met.len());
        scene.until(|scene| scene.met.len() > before);
        scene.leave();
    }
}

#[test]
fn a_second_connection_that_is_lost_ends_the_first() {
    let mut scene = Scene::new(Versions::Both, [Does::Closes; 2]);
    let connection = scene.connect();
    scene.call(connection, 1);
    scene.until(|scene| scene.ended().len() == 1);
    let [(1, Err(CallError::Disconnected(_)))] = &scene.ended()[..] else {
        panic!("{:?}", scene.ended())
    };
    assert_eq!(scene.heard, [(0, 2), (1, 1)]);
    scene.leave();
}

#[test]
fn a_server_that_refuses_version_2_and_drops_the_connection_is_remembered() {
    let mut scene = Scene::new(Versions::Both, [Does::Answers, Does::RefusesAndCloses]);
    let connection = scene.connect();
    scene.call(connection, 1);
    scene.until(|scene| scene.ended().len() == 1);
    let [(1, Err(CallError::Disconnected(_)))] = &scene.ended()[..] else {
        panic!("{:?}", scene.ended())
    };
    let connection = scene.connect();
    scene.call(connection, 2);
    scene.until(|scene| scene.ended().len() == 2);
    assert_eq!((scene.ended()[1].1.clone(), &scene.heard[..]), (Ok(0), &[(0, 2), (1, 1)][..]));
    scene.leave();
}

#[test]
fn a_refused_connection_is_no_silence() {
    for meets in [Some(Meets::Rejects), None] {
        let mut scene = Scene::new(Versions::Both, [Does::Answers; 2]);
        match meets {
            Some(meets) => scene.meets = [meets; 2],
            None => scene.at.set_port(9),
        }
        let connection = scene.connect();
        scene.call(connection, 1);
        scene.until(|scene| scene.ended().len() == 1);
        let why = if meets.is_some() { ConnectError::Rejected } else { ConnectError::Refused };
        assert_eq!(scene.ended(), [(1, Err(CallError::Connect(why)))]);
        assert!(scene.since(Instant::ZERO) < Duration::from_millis(1), "at once");
        assert_eq!(scene.met.len(), usize::from(meets.is_some()), "one attempt");
        scene.leave();
    }
}

#[test]
fn a_client_of_one_version_makes_one_attempt() {
    for (versions, version) in [(Versions::OnlyTwo, 2), (Versions::OnlyOne, 1)] {
        for manner in [Does::Nothing, Does::Closes] {
            let mut scene = Scene::new(versions, [manner; 2]);
            let connection = scene.connect();
            scene.call(connection, 1);
            scene.until(|scene| scene.ended().len() == 1);
            assert_eq!((&scene.heard[..], scene.met.len()), (&[(0, version)][..], 1));
            let (_, outcome) = &scene.ended()[0];
            match (versions, manner) {
                (Versions::OnlyOne, Does::Nothing) => {
                    assert_eq!(*outcome, Err(CallError::TimedOut));
                }
                // A client of version 1 has nothing to wait for before it calls.
                (Versions::OnlyOne, _) => {
                    assert!(matches!(outcome, Err(CallError::Disconnected(_))), "{outcome:?}");
                }
                _ => assert!(matches!(outcome, Err(CallError::Unready(_))), "{outcome:?}"),
            }
            scene.leave();
        }
    }
}

#[test]
fn a_connection_closed_at_any_moment_while_it_begins_anew_leaves_nothing_behind() {
    let last = 60;
    for (moment, ends) in (0..last).flat_map(|moment| [(moment, true), (moment, false)]) {
        let mut scene = Scene::new(Versions::Both, [Does::Nothing; 2]);
        let connection = scene.connect();
        scene.call(connection, 1);
        for _ in 0..moment {
            if scene.ended().is_empty() {
                scene.step();
            }
        }
        if ends && scene.ended().is_empty() {
            scene.client.close(connection);
            scene.until(|scene| scene.ended().len() == 1);
            let (_, outcome) = &scene.ended()[0];
            let expected = if scene.since(Instant::ZERO) < LIMITS.setup_timeout {
                *outcome == Err(CallError::Closed)
            } else {
                outcome.is_err()
            };
            assert!(expected, "{moment}: {outcome:?}");
            let connections = |scene: &Scene| scene.client.inner.common.connections.len();
            scene.until(|scene| connections(scene) == 0);
        }
        scene.leave();
        assert!(scene.met.len() <= 2 && scene.ended().len() == 1, "{moment}");
        let reached = moment + 1 < last || scene.met.len() == 2;
        assert!(reached, "the moments reach the second connection");
    }
}

#[test]
fn a_connection_lost_at_any_moment_of_its_setup_has_its_calls_answered_or_failed() {
    let mut again = 0;
    for moment in 0..40 {
        let mut world = World::new();
        for token in 0..3 {
            let argument = world.lease(100_000, 1);
            world.call(token, request(STORE).argument(argument));
        }
        world.turns(moment);
        let connections = &world.client.inner.common.connections;
        let was_ready = connections.iter().all(|connection| connection.life.is_ready());
        world.lose_the_connection();
        world.until(|world| world.ended().len() == 3);
        let answered = world.ended().iter().filter(|(_, outcome, _)| outcome.is_ok()).count();
        assert!(was_ready || answered == 3 || answered == 0, "{moment}: {answered}");
        again += u32::from(!was_ready && answered == 3);
        let now = world.now;
        world.client.begin_shutdown(now);
        world.until(World::is_disconnected);
        world.server.service.item = None;
        world.all_home();
    }
    assert!(again > 0, "some were lost while they were set up");
}
