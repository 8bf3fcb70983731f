//! What the protocol demands of both ends, through the key-value service over every provider: several data items in one
//! RPC, Replies in several messages, and Calls in reverse direction, in both versions; and hosts that prove which they are.
//! Replies that are read are in [`reading`].

#[path = "carriers/reading.rs"]
mod reading;

use std::collections::BTreeMap;
use std::sync::Arc;

use haulage::core::{ConnectOptions, Core, Cx, Service};
use haulage::host_auth::{HostKeys, KnownHosts, SecretKey};
use haulage::hosts::{HostAuth, HostRefusal, Policy, Refused};
use haulage::limits::{LIMITS_DEFAULT, Limits, Versions};
use haulage::pool::Local;
use haulage::proto::chunk::{Item, Kind, PayloadReader};
use haulage::proto::v1::error::ErrorBody;
use haulage::proto::xdr::{Truncated, Writer};
use haulage::provider::iwarp::Backend;
use haulage::provider::sim::FabricConfig;
#[cfg(feature = "verbs")]
use haulage::provider::verbs::{Config, ReceiveQueues};
use haulage::service::{
    Call, CallError, ConnectionId, Finished, Outcome, Place, Reply, Request, Role, TransportError,
};
use haulage_kv::index::Seed;
use haulage_kv::protocol::many::{self, Found};
use haulage_kv::protocol::watch::{Heading, State};
use haulage_kv::protocol::{Answer, Carriage, Key, Procedure, Value};
use haulage_kv::service::KvService;
use haulage_kv::watch;
#[cfg(feature = "verbs")]
use haulage_mr_pool::Strategy;
#[cfg(feature = "verbs")]
use haulage_tests::network::Rnic;
use haulage_tests::network::{Expect, Lent, Loopback, Network, OneMachine, Slow, Virtual};
use haulage_tests::pattern;

/// Runs everything on one kind of provider, or, with `if`, on a provider that may be absent.
macro_rules! carrier {
    ($provider:ident, if $network:expr) => {
        mod $provider {
            use super::*;

            #[test]
            fn carries_what_version_2_demands() {
                if let Some(network) = $network {
                    Ends::new(network, Versions::OnlyTwo).everything();
                }
            }

            #[test]
            fn carries_what_version_1_has_of_it() {
                if let Some(network) = $network {
                    Ends::new(network, Versions::OnlyOne).everything();
                }
            }

            #[test]
            fn carries_replies_that_are_read() {
                if let Some(network) = $network {
                    reading::exchange(network);
                }
            }

            #[test]
            fn carries_the_proofs_of_hosts() {
                for stranger in [None, Some(Role::Client), Some(Role::Server)] {
                    if let Some(network) = $network {
                        Ends::proving(network, stranger).prove(stranger);
                    }
                }
            }
        }
    };
    ($provider:ident, $network:expr) => {
        carrier!($provider, if Some($network));
    };
}

carrier!(sim, Virtual::new(FabricConfig::default()));
carrier!(
    sim_eager,
    Virtual::new(FabricConfig { seed: 2, eager_percent: 100, ..FabricConfig::default() })
);
carrier!(delaying, Slow::new(Virtual::new(FabricConfig::default()), 1, 60));
carrier!(lending, Lent::new(Virtual::new(FabricConfig::default()), 1, 60));
carrier!(iwarp, Loopback::new(Backend::Auto));
carrier!(iwarp_sockets, Loopback::new(Backend::Sockets));
carrier!(shm, OneMachine::default());
carrier!(shm_small_rings, OneMachine::with_rings(16 << 10));

#[cfg(feature = "verbs")]
carrier!(verbs, if Rnic::find(Config::default()));
#[cfg(feature = "verbs")]
carrier!(verbs_own_receives, if own_receives());
#[cfg(feature = "verbs")]
carrier!(verbs_persistent, if persistent());

#[cfg(feature = "verbs")]
fn own_receives() -> Option<Rnic> {
    Rnic::find(Config { receive_queues: ReceiveQueues::Own, ..Config::default() })
}

#[cfg(feature = "verbs")]
fn persistent() -> Option<Rnic> {
    Rnic::find(Config { registration: Some(Strategy::Persistent), ..Config::default() })
}

/// A server, and a client that watches it.
struct Ends<N: Network> {
    network: N,
    server: Core<N::Provider, KvService>,
    client: Core<N::Provider, Client>,
    connection: ConnectionId,
    versions: Versions,
}

/// What came back to a client.
#[derive(Debug)]
enum Got {
    Done,
    /// A value, and whether it was in a chunk.
    Value(Vec<u8>, Carriage),
    Values(Vec<Vec<u8>>),
}

/// The Calls of a client by number, how they ended, and what it was told meanwhile.
#[derive(Debug, Default)]
struct Client {
    asked: BTreeMap<u64, Procedure>,
    ended: BTreeMap<u64, Result<Got, CallError>>,
    told: Vec<(String, State)>,
    merged: u64,
}

impl Client {
    fn got(procedure: Procedure, results: &PayloadReader<'_>, rooms: &[Local]) -> Got {
        let stored = |octets: &[u8]| octets.to_vec();
        match procedure {
            Procedure::MGet => {
                let found = many::decode_found(results.clone(), ITEMS).expect("an answer");
                let octets = |(found, room): (Found<'_>, &Local)| match found {
                    Found::Value(Item::Reduced { .. }) => stored(room.bytes()),
                    Found::Value(Item::Unreduced(octets)) => stored(octets),
                    other => panic!("{other:?}"),
                };
                Got::Values(found.into_iter().zip(rooms).map(octets).collect())
            }
            Procedure::MPut => {
                let outcomes = many::decode_stored(results.clone(), ITEMS).expect("an answer");
                assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
                Got::Done
            }
            procedure => {
                let carriage = Carriage::of(results.reduced());
                match Answer::decode(procedure, results.rest(), carriage).expect("an answer") {
                    Answer::Done => Got::Done,
                    Answer::Value(Value::Unreduced(octets)) => Got::Value(stored(octets), carriage),
                    Answer::Value(Value::Reduced { .. }) => {
                        Got::Value(stored(rooms[0].bytes()), carriage)
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

impl Service for Client {
    fn replied(&mut self, _: &mut Cx<'_>, token: u64, finished: Finished<'_>) {
        let rooms: Vec<_> = finished.rooms.into_iter().collect();
        let procedure = self.asked.remove(&token).expect("a Call ends once");
        let ended = finished.results.map(|results| Self::got(procedure, &results, &rooms));
        self.ended.insert(token, ended);
    }

    fn call(&mut self, _: &mut Cx<'_>, call: Call<'_>, _: &mut Reply) -> Outcome {
        let (arguments, _) = call.arguments.into_parts();
        let heading = Heading::decode(arguments, |change| {
            self.told.push((change.key.to_string(), change.state));
        });
        self.merged += heading.expect("changes").merged;
        Outcome::Done
    }
}

impl<N: Network> Ends<N> {
    fn new(network: N, versions: Versions) -> Self {
        Self::with(network, versions, [None, None])
    }

    /// Makes ends that have to prove which hosts they are. The other end does not know the stranger's key.
    fn proving(network: N, stranger: Option<Role>) -> Self {
        let secret = |role| match role {
            _ if stranger == Some(role) => SecretKey::from_seed(&[9; 32]),
            Role::Client => SecretKey::from_seed(&CLIENT),
            Role::Server => SecretKey::from_seed(&SERVER),
        };
        let knowing = |role, name, seed| {
            let mut known = KnownHosts::default();
            known.add(name, SecretKey::from_seed(seed).public());
            let hosts = Arc::new(HostKeys::new(secret(role), known));
            Some(HostAuth { policy: Policy::Required, hosts })
        };
        let server = knowing(Role::Server, "the client", &CLIENT);
        let client = knowing(Role::Client, "the server", &SERVER);
        Self::with(network, Versions::OnlyTwo, [server, client])
    }

    fn with(
        mut network: N,
        versions: Versions,
        [of_server, of_client]: [Option<HostAuth>; 2],
    ) -> Self {
        let limits = Limits { versions, ..LIMITS };
        let (provider, pool, at) = network.join();
        let service = KvService::new(1000, Seed::fixed(1, 2), VALUE_MAX, 8 << 20);
        let mut server = Core::new(provider, service, pool, limits, 1).expect("room");
        of_server.map_or(Ok(()), |auth| server.authenticate(auth)).expect("version 2 is spoken");
        let at = server.listen(at).expect("nobody listens yet");
        let (provider, pool, _) = network.join();
        let mut client = Core::new(provider, Client::default(), pool, limits, 2).expect("room");
        let options = watch::options(VALUE_MAX);
        let options = of_client.into_iter().fold(options, ConnectOptions::host_auth);
        let connection = client.connect(network.now(), at, options);
        let connection = connection.expect("a queue pair");
        Self { network, server, client, connection, versions }
    }

    fn lease(&mut self, octets: &[u8]) -> Local {
        let (cx, _) = self.client.cx(self.network.now());
        let mut lease = cx.pool().lease(octets.len()).expect("memory");
        lease.bytes_mut().copy_from_slice(octets);
        lease
    }

    fn begin(
        &mut self,
        token: u64,
        procedure: Procedure,
        request: Request,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) {
        let (mut cx, client) = self.client.cx(self.network.now());
        client.asked.insert(token, procedure);
        cx.call(self.connection, request, token, encode).expect("the Call is queued");
    }

    /// Turns both ends until something holds.
    fn until(&mut self, holds: impl Fn(&Client) -> bool) {
        while !holds(self.client.cx(self.network.now()).1) {
            let now = self.network.now();
            let moved = self.server.turn(now) | self.client.turn(now);
            let deadlines = [self.server.poll_deadline(), self.client.poll_deadline()];
            let next = deadlines.into_iter().flatten().min();
            assert_ne!(self.network.wait(moved, next), Expect::Stuck, "progress");
        }
    }

    fn end(&mut self, token: u64) -> Result<Got, CallError> {
        self.until(|client| client.ended.contains_key(&token));
        self.client.cx(self.network.now()).1.ended.remove(&token).expect("it has ended")
    }

    fn ask(
        &mut self,
        procedure: Procedure,
        request: Request,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) -> Result<Got, CallError> {
        self.begin(0, procedure, request, encode);
        self.end(0)
    }

    fn done(&mut self, ended: Result<Got, CallError>) {
        assert!(matches!(ended, Ok(Got::Done)), "{ended:?}");
    }

    fn everything(&mut self) {
        let watched = self.ask(Procedure::Watch, request(Procedure::Watch), |w| w.opaque(b"k"));
        self.done(watched);
        if self.versions == Versions::OnlyTwo {
            self.several_items_go_both_ways();
        }
        self.a_result_without_room_in_its_chunk_comes_in_several_messages();
        self.both_ends_call_at_once();
        self.all_memory_comes_home();
    }

    fn prove(&mut self, stranger: Option<Role>) {
        let argument = self.lease(&pattern::of(LONG, 7));
        let put = request(Procedure::Put).argument(argument);
        let stored = self.ask(Procedure::Put, put, |w| w.opaque(b"long"));
        match (stranger, stored) {
            (None, Ok(Got::Done)) => {
                let (cx, _) = self.client.cx(self.network.now());
                assert_eq!(cx.host(self.connection), Some("the server"));
                return self.everything();
            }
            (Some(Role::Client), Err(CallError::Unready(_))) => {}
            (Some(Role::Server), Err(CallError::Host(HostRefusal::Refused { why, claimed }))) => {
                let key = SecretKey::from_seed(&[9; 32]).public().to_string();
                assert_eq!((why, claimed), (Refused::UnknownPeer, Some(key)));
            }
            (_, stored) => panic!("{stranger:?}: {stored:?}"),
        }
        self.all_memory_comes_home();
        let (cx, service) = self.server.cx(self.network.now());
        let of_server = cx.counters();
        assert_eq!((of_server.calls_served, service.keys_count()), (0, 0), "nothing was served");
        let (cx, _) = self.client.cx(self.network.now());
        let refused = [of_server.hosts_refused, cx.counters().hosts_refused];
        assert_eq!(refused, if stranger == Some(Role::Client) { [1, 0] } else { [0, 1] });
    }

    fn several_items_go_both_ways(&mut self) {
        let keys: Vec<_> = (0..ITEMS).map(|n| format!("several {n}")).collect();
        let keys: Vec<_> =
            keys.iter().map(|key| Key::new(key.as_bytes()).expect("a key")).collect();
        for round in 0..8 {
            let values: Vec<_> = LENGTHS
                .iter()
                .zip(0..)
                .map(|(length, n)| pattern::of(*length, round + n))
                .collect();
            let mut put = request(Procedure::MPut);
            let length = |value: &Vec<u8>| u32::try_from(value.len()).expect("short");
            let reduced = values.iter().map(|value| Value::Reduced { length: length(value) });
            let pairs = keys.iter().copied().zip(reduced.collect::<Vec<_>>());
            for (at, value) in many::length_offsets(pairs.clone()).zip(&values) {
                let lease = self.lease(value);
                put = put.argument_at(Place::At(Kind::Opaque, at), lease);
            }
            let stored = self.ask(Procedure::MPut, put, |w| many::encode_pairs(pairs, w));
            self.done(stored);
            let mut get = request(Procedure::MGet);
            for length in LENGTHS {
                get = get.room(self.lease(&vec![0; length + 8]));
            }
            let got = self.ask(Procedure::MGet, get, |w| many::encode_keys(&keys, w));
            let Ok(Got::Values(got)) = got else { panic!("{got:?}") };
            assert!(got == values, "round {round}");
        }
    }

    fn a_result_without_room_in_its_chunk_comes_in_several_messages(&mut self) {
        let value = pattern::of(LONG, 7);
        let put = request(Procedure::Put).argument(self.lease(&value));
        let stored = self.ask(Procedure::Put, put, |w| w.opaque(b"long"));
        self.done(stored);
        // Without a chunk, the length alone would come.
        let short = request(Procedure::Get).room(self.lease(b"1"));
        let got = self.ask(Procedure::Get, short, |w| w.opaque(b"long"));
        match (self.versions, got) {
            (Versions::OnlyTwo, Ok(Got::Value(got, Carriage::Unreduced))) => assert!(got == value),
            // Version 1 has no such messages.
            (_, Err(CallError::Refused(TransportError::One(ErrorBody::Chunk)))) => {}
            other => panic!("{other:?}"),
        }
        let get = request(Procedure::Get).room(self.lease(&vec![0; LONG]));
        let got = self.ask(Procedure::Get, get, |w| w.opaque(b"long"));
        assert!(matches!(got, Ok(Got::Value(got, Carriage::Chunk)) if got == value));
    }

    /// Each PUT of the client is a Call of the server to it.
    fn both_ends_call_at_once(&mut self) {
        let mut begun = 0;
        for token in 1..=CHANGES {
            while begun < CHANGES.min(token + UNDER_WAY) {
                begun += 1;
                let key = format!("k {}", begun % 7);
                let value = pattern::of(usize::try_from(begun).expect("small"), begun);
                self.begin(begun, Procedure::Put, request(Procedure::Put), |w| {
                    w.opaque(key.as_bytes())?;
                    w.opaque(&value)
                });
            }
            let ended = self.end(token);
            self.done(ended);
        }
        self.until(|client| client.told.len() as u64 + client.merged == CHANGES);
        let (_, client) = self.client.cx(self.network.now());
        let mut last = BTreeMap::new();
        for (key, state) in &client.told {
            let State::Set { length } = state else { panic!("{key} was not deleted") };
            assert!(last.insert(key, *length).is_none_or(|before| before < *length), "{key}");
        }
        let expected = (CHANGES - 6..=CHANGES).map(|length| (format!("k {}", length % 7), length));
        let expected: BTreeMap<_, _> = expected.collect();
        assert!(last.iter().map(|(key, length)| (*key, length)).eq(expected.iter()), "{last:?}");
    }

    fn all_memory_comes_home(&mut self) {
        self.client.close(self.connection);
        loop {
            let now = self.network.now();
            let moved = self.server.turn(now) | self.client.turn(now);
            let (server, _) = self.server.cx(now);
            let (gauges, connections) = (server.gauges(), server.connections());
            if (connections, gauges.exposed, gauges.orphans) == (0, 0, 0) {
                break;
            }
            let deadlines = [self.server.poll_deadline(), self.client.poll_deadline()];
            let next = deadlines.into_iter().flatten().min();
            assert_ne!(self.network.wait(moved, next), Expect::Stuck, "{connections} {gauges:?}");
        }
    }
}

fn request(procedure: Procedure) -> Request {
    Request::new(procedure as u32)
}

const LIMITS: Limits = Limits {
    connections_max: 4,
    connections_each_max: 4,
    receives_max: 64,
    calls_out_max: 32,
    send_buffers_max: 32,
    credits_max: 32,
    call_timeout: std::time::Duration::from_secs(30),
    ..LIMITS_DEFAULT
};

/// Items in each direction.
const ITEMS: usize = 4;
const LENGTHS: [usize; ITEMS] = [5000, 3, 20_000, 700];
/// A value that takes several messages.
const LONG: usize = 40_000;
const VALUE_MAX: usize = 1 << 20;
const CHANGES: u64 = 300;
/// Calls of the client that are under way besides the one it waits for.
const UNDER_WAY: u64 = 7;
/// The seeds of the hosts' keys.
const CLIENT: [u8; 32] = [1; 32];
const SERVER: [u8; 32] = [2; 32];
