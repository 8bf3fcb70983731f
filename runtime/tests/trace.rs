//! What a core tells operators, as a subscriber takes it in.
//!
//! These tests are a program of their own because `tracing` caches, for each event of a program, whether anybody
//! wants it: the first thread that reaches the event decides. Here every thread that does has a subscriber.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc;
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use haulage::core::{Core, CoreIdentity, CoreNumber, Cx, Service};
use haulage::limits::{LIMITS_DEFAULT, Limits, Versions};
use haulage::pool::{PagePreference, Pool, PoolConfig};
use haulage::proto::time::Instant;
use haulage::proto::v2::error::ErrorBody;
use haulage::provider::sim::{Fabric, FabricConfig, Sim};
use haulage::service::{
    Binding, Call, ConnectionId, Data, Eligible, Finished, Outcome, Procedure, Program, Reply,
    Request,
};

/// One event: its name, its level, and its other fields as text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    name: String,
    level: Level,
    fields: BTreeMap<&'static str, String>,
}

/// Sends on every event of this crate.
#[derive(Debug)]
struct Capture(mpsc::Sender<Told>);

impl Capture {
    /// Runs `act` with the subscriber; returns what was told meanwhile.
    fn of(act: impl FnOnce()) -> Vec<Told> {
        let (sender, told) = mpsc::channel();
        tracing::subscriber::with_default(Self(sender), act);
        told.try_iter().collect()
    }
}

impl Subscriber for Capture {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "haulage"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let level = *event.metadata().level();
        let mut told = Told { name: String::new(), level, fields: BTreeMap::new() };
        event.record(&mut told);
        self.0.send(told).unwrap();
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        write!(text, "{value:?}").unwrap();
        match field.name() {
            "message" => self.name = text,
            name => assert_eq!(self.fields.insert(name, text), None, "{name} is told once"),
        }
    }
}

impl Told {
    fn field(&self, name: &str) -> &str {
        self.fields.get(name).unwrap_or_else(|| panic!("{name} in {self:?}"))
    }
}

const LIMITS: Limits = Limits {
    connections_max: 8,
    receives_max: 64,
    calls_out_max: 32,
    send_buffers_max: 64,
    ..LIMITS_DEFAULT
};

const FETCH: u32 = 1;
/// Octets of what FETCH returns.
const ITEM: usize = 90_000;

fn binding() -> Binding {
    let fetch = Procedure::new("FETCH").result(Eligible::opaque(ITEM)).idempotent();
    Binding { program: 0x2000_0001, version: 1, procedures: vec![Procedure::new("NULL"), fetch] }
}

/// Returns an item, to peers that it admits.
#[derive(Debug, Default)]
struct Keeper {
    shuns: Option<IpAddr>,
}

impl Service for Keeper {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn admits(&self, peer: SocketAddr) -> bool {
        Some(peer.ip()) != self.shuns
    }

    fn call(&mut self, cx: &mut Cx<'_>, call: Call<'_>, reply: &mut Reply) -> Outcome {
        if call.procedure == FETCH {
            reply.item(Data::Local(cx.pool().lease(ITEM).unwrap()));
        }
        Outcome::Done
    }
}

/// Counts the Calls that ended.
#[derive(Debug, Default)]
struct Caller {
    ended: usize,
}

impl Service for Caller {
    fn replied(&mut self, _: &mut Cx<'_>, _: u64, _: Finished<'_>) {
        self.ended += 1;
    }
}

struct World {
    fabric: Fabric,
    now: Instant,
    server: Core<Sim, Keeper>,
    client: Core<Sim, Caller>,
    at: SocketAddr,
    connection: ConnectionId,
}

const SERVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

impl World {
    fn new(service: Keeper, limits: [Limits; 2]) -> Self {
        Self::of_core(CoreNumber::FIRST, service, limits)
    }

    /// Makes a world whose server is the core of this number.
    fn of_core(number: CoreNumber, service: Keeper, [server, client]: [Limits; 2]) -> Self {
        let fabric = Fabric::new(FabricConfig { latency_max_ns: 1000, ..FabricConfig::default() });
        let pool = || {
            Pool::new(&PoolConfig { bytes: 16 << 20, pages: PagePreference::Heap, node: None })
                .unwrap()
        };
        let [at_server, at_client] = [SERVER, CLIENT].map(|node| fabric.provider(node).unwrap());
        let identity = CoreIdentity { number, seed: 1 };
        let mut server = Core::new(at_server, service, pool(), server, identity).unwrap();
        let mut client = Core::new(at_client, Caller::default(), pool(), client, 2).unwrap();
        let at = server.listen(SocketAddr::new(SERVER, 20050)).unwrap();
        let connection = client.connect(Instant::ZERO, at, binding()).unwrap();
        Self { fabric, now: Instant::ZERO, server, client, at, connection }
    }

    fn connect(&mut self) {
        self.connection = self.client.connect(self.now, self.at, binding()).unwrap();
    }

    /// Makes a Call and waits until it has ended. `room` is what it offers for an item.
    fn call(&mut self, procedure: u32, room: Option<usize>) {
        let (mut cx, caller) = self.client.cx(self.now);
        let before = caller.ended;
        let result = room.map(|room| cx.pool().lease(room).unwrap());
        let request = Request::new(procedure).room(result);
        cx.call(self.connection, request, 1, |_| Ok(())).unwrap();
        self.until(|w| w.client.service().ended > before);
    }

    /// Turns both cores until nothing moves, then on to the next event, until `done`.
    fn until(&mut self, done: impl Fn(&mut Self) -> bool) {
        for _ in 0..1_000_000 {
            if done(self) {
                return;
            }
            let worked = self.server.turn(self.now) | self.client.turn(self.now);
            if !worked {
                let deadlines = [self.server.poll_deadline(), self.client.poll_deadline()];
                let next = deadlines.into_iter().chain([self.fabric.next_event()]).flatten().min();
                let next = next.expect("something is to happen");
                self.now = next.max(self.now.saturating_add(Duration::from_nanos(1)));
            }
        }
        panic!("no progress");
    }

    fn is_disconnected(&mut self) -> bool {
        self.server.cx(self.now).0.connections() + self.client.cx(self.now).0.connections() == 0
    }
}

fn names(told: &[Told]) -> Vec<(&str, Level)> {
    told.iter().map(|told| (told.name.as_str(), told.level)).collect()
}

#[test]
fn a_connection_that_is_made_and_closed_is_told_of_at_both_ends() {
    for (versions, version) in [(Versions::OnlyTwo, "2"), (Versions::OnlyOne, "1")] {
        let told = Capture::of(|| {
            let limits = Limits { versions, ..LIMITS };
            let mut world = World::new(Keeper::default(), [limits; 2]);
            for _ in 0..3 {
                world.call(0, None);
            }
            world.client.begin_shutdown(world.now);
            world.until(World::is_disconnected);
        });
        let mut sorted = names(&told);
        sorted.sort();
        let expected = [
            ("connection.accepted", Level::INFO),
            ("connection.lost", Level::INFO),
            ("connection.lost", Level::INFO),
            ("connection.ready", Level::INFO),
            ("connection.ready", Level::INFO),
        ];
        assert_eq!(sorted, expected);
        let server: Vec<_> =
            told.iter().filter(|told| told.field("peer").starts_with("10.0.0.2:")).collect();
        let [accepted, ready, lost] = server[..] else { panic!("{server:?}") };
        assert_eq!(
            names(&[accepted.clone(), ready.clone(), lost.clone()]),
            [
                ("connection.accepted", Level::INFO),
                ("connection.ready", Level::INFO),
                ("connection.lost", Level::INFO)
            ]
        );
        assert!(server.iter().all(|told| told.field("conn") == "0.0"), "{server:?}");
        assert_eq!((ready.field("version"), ready.field("role")), (version, "\"server\""));
        assert_eq!(ready.field("provider"), "\"sim\"");
        assert!(ready.field("send_max").parse::<u32>().unwrap() >= 1024, "{ready:?}");
        assert_eq!((lost.field("calls_received"), lost.field("replies_received")), ("3", "0"));
        assert_eq!(lost.field("reason"), "disconnected: closed by the peer");
        let client = told.iter().find(|told| {
            told.name == "connection.lost" && told.field("peer").starts_with("10.0.0.1:")
        });
        let client = client.expect("the client's end is told of");
        assert_eq!((client.field("calls_received"), client.field("replies_received")), ("0", "3"));
    }
}

#[test]
fn what_a_core_tells_has_its_number() {
    let told = Capture::of(|| {
        for shuns in [None, Some(CLIENT)] {
            let number = CoreNumber::new(3).unwrap();
            let mut world = World::of_core(number, Keeper { shuns }, [LIMITS; 2]);
            if shuns.is_none() {
                world.call(0, None);
                world.client.begin_shutdown(world.now);
            }
            world.until(World::is_disconnected);
        }
    });
    let of = |node: &str| {
        let told = told.iter().filter(|told| told.field("peer").starts_with(node));
        let conn = |told: &Told| told.fields.get("conn").cloned().unwrap_or_default();
        let fields =
            told.map(|told| (told.name.clone(), told.field("core").to_owned(), conn(told)));
        fields.collect::<Vec<_>>()
    };
    let event =
        |name, core, conn| (format!("connection.{name}"), String::from(core), String::from(conn));
    let at_server = ["accepted", "ready", "lost"].map(|name| event(name, "3", "3:0.0"));
    assert_eq!(of("10.0.0.2:"), [&at_server[..], &[event("refused", "3", "")]].concat());
    let at_client = ["ready", "lost", "refused"].map(|name| event(name, "0", "0.0"));
    assert_eq!(of("10.0.0.1:"), at_client);
}

#[test]
fn a_connection_that_breaks_is_a_warning_where_nobody_else_is_told() {
    let told = Capture::of(|| {
        let mut world = World::new(Keeper::default(), [LIMITS; 2]);
        world.call(0, None);
        world.fabric.sever_all(CLIENT);
        world.until(World::is_disconnected);
    });
    let lost: Vec<_> = told.iter().filter(|told| told.name == "connection.lost").collect();
    assert_eq!(lost.len(), 2, "{told:?}");
    for told in lost {
        let at_server = told.field("peer").starts_with("10.0.0.2:");
        assert_eq!(told.level, if at_server { Level::WARN } else { Level::INFO });
        assert_eq!(told.field("reason"), "disconnected: connection lost");
    }
}

#[test]
fn newcomers_who_are_turned_away_are_told_of_with_the_reason() {
    let expected = [("connection.refused", Level::WARN), ("connection.refused", Level::INFO)];
    let shunned = Capture::of(|| {
        let mut world = World::new(Keeper { shuns: Some(CLIENT) }, [LIMITS; 2]);
        world.until(World::is_disconnected);
    });
    assert_eq!(names(&shunned), expected);
    assert_eq!(shunned[0].field("reason"), "\"the service does not admit the peer\"");
    assert!(shunned[0].field("peer").starts_with("10.0.0.2:"), "{shunned:?}");
    assert_eq!(shunned[1].field("reason"), "the peer rejected the connection");
    let crowded = Capture::of(|| {
        let one = Limits { connections_max: 1, ..LIMITS };
        let mut world = World::new(Keeper::default(), [one, LIMITS]);
        world.call(0, None);
        let first = world.connection;
        world.connect();
        world.until(|w| w.client.cx(w.now).0.connections() == 1);
        assert!(world.client.cx(world.now).0.peer(first).is_some(), "the older one stays");
    });
    let (made, refused) = crowded.split_at(crowded.len() - 2);
    assert_eq!((made.len(), names(refused)), (3, expected.to_vec()), "{crowded:?}");
    let reason = "\"there are as many connections as there may be, or as one address may have, and none may give way\"";
    assert_eq!(refused[0].field("reason"), reason);
}

#[test]
fn a_spin_of_refusals_tells_of_fifty_and_later_how_many_there_were() {
    let told = Capture::of(|| {
        let mut world = World::new(Keeper { shuns: Some(CLIENT) }, [LIMITS; 2]);
        for _ in 0..200 {
            world.until(World::is_disconnected);
            world.connect();
        }
        world.until(World::is_disconnected);
        assert!(world.now < Instant::ZERO.saturating_add(Duration::from_millis(50)), "too slow");
        world.now = world.now.saturating_add(Duration::from_secs(1));
        world.connect();
        world.until(World::is_disconnected);
    });
    let warned: Vec<_> = told.iter().filter(|told| told.level == Level::WARN).collect();
    let [first @ .., last] = &warned[..] else { panic!("nothing was told") };
    assert_eq!(first.len(), 50);
    assert!(first.iter().all(|told| !told.fields.contains_key("left_out")));
    assert_eq!(last.field("left_out"), "151");
}

#[test]
fn a_refused_call_is_told_of_with_its_error_and_without_its_payload() {
    let told = Capture::of(|| {
        let mut world = World::new(Keeper::default(), [LIMITS; 2]);
        world.call(FETCH, Some(5000));
    });
    let refused: Vec<_> = told.iter().filter(|told| told.name == "call.refused").collect();
    let [refused] = refused[..] else { panic!("{told:?}") };
    let needed = ErrorBody::WriteResource { chunk_index: 1, length_needed: 90_000 };
    assert_eq!((refused.level, refused.field("error")), (Level::INFO, &*needed.to_string()));
    let fields: Vec<_> = refused.fields.keys().copied().collect();
    assert_eq!(fields, ["conn", "core", "error", "peer", "xid"]);
}
