//! Hosts that prove which they are, by names that they show.

use std::sync::Arc;

use haulage_proto::v2::properties::ConnPropKind;

use super::*;
use crate::core::{StartError, TcpLimits};
use crate::hosts::{Authenticator, HostAuth, HostRefusal, Hosts, Policy, Progress, Refused};
use crate::service::Role;

/// A lock, because hosts have to be fit for threads.
#[expect(clippy::disallowed_types, reason = "a test has one thread")]
type Lock<T> = std::sync::Mutex<T>;

/// A host that shows its name, and believes those that it knows.
#[derive(Debug)]
struct Names {
    own: &'static str,
    known: Lock<Vec<&'static str>>,
}

impl Hosts for Names {
    fn authenticator(&self) -> std::io::Result<Box<dyn Authenticator>> {
        let known = self.known.lock().unwrap().clone();
        Ok(Box::new(Named { own: self.own, known, peer: Vec::new(), bound: Vec::new() }))
    }

    fn name(&self, identity: &[u8]) -> Option<Arc<str>> {
        let known = self.known.lock().unwrap();
        known.iter().find(|name| name.as_bytes() == identity).map(|name| (*name).into())
    }

    fn show(&self, identity: &[u8]) -> String {
        format!("<{}>", String::from_utf8_lossy(identity))
    }
}

#[derive(Debug)]
struct Named {
    own: &'static str,
    known: Vec<&'static str>,
    peer: Vec<u8>,
    bound: Vec<u8>,
}

impl Authenticator for Named {
    fn bind(&mut self, _: Role, version: u32, client: &[u8], server: &[u8]) {
        assert_eq!(version, 2);
        self.bound = [client, server].concat();
    }

    fn hear(&mut self, _: Role, _: ConnPropKind, _: &[u8]) {}

    /// Sends what it was bound to, and its name.
    fn send(&mut self, out: &mut Vec<u8>) -> Result<Progress, Refused> {
        out.extend_from_slice(&self.bound);
        out.extend(self.own.bytes());
        Ok(if self.peer.is_empty() { Progress::More } else { Progress::Done })
    }

    fn receive(&mut self, octets: &[u8]) -> Result<Progress, Refused> {
        let (bound, name) = octets.split_at_checked(self.bound.len()).ok_or(Refused::Malformed)?;
        self.peer = name.to_vec();
        match self.known.iter().any(|known| known.as_bytes() == name) {
            _ if bound != self.bound => Err(Refused::WrongProof),
            false => Err(Refused::UnknownPeer),
            true => Ok(Progress::Done),
        }
    }

    fn peer(&self) -> Option<&[u8]> {
        Some(&self.peer)
    }
}

fn names(own: &'static str, known: &[&'static str]) -> Arc<Names> {
    Arc::new(Names { own, known: Lock::new(known.to_vec()) })
}

fn auth(policy: Policy, names: &Arc<Names>) -> HostAuth {
    HostAuth { policy, hosts: Arc::clone(names) as _ }
}

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 20050);

/// Makes a server and a client, which has begun to connect.
fn world(
    limits: [Limits; 2],
    server: Option<HostAuth>,
    client: Option<HostAuth>,
) -> Result<World, CallError> {
    world_in(FabricConfig::default(), limits, server, client)
}

fn world_in(
    fabric: FabricConfig,
    limits: [Limits; 2],
    server: Option<HostAuth>,
    client: Option<HostAuth>,
) -> Result<World, CallError> {
    let fabric = Fabric::new(fabric);
    let config = PoolConfig { bytes: 16 << 20, pages: PagePreference::Heap, node: None };
    let pool = || Pool::new(&config).unwrap();
    let provider = |n| fabric.provider(IpAddr::V4(Ipv4Addr::new(10, 0, 0, n))).unwrap();
    let [at_server, at_client] = limits;
    let mut server_core = Core::new(provider(1), Keeper::default(), pool(), at_server, 1).unwrap();
    let mut client_core = Core::new(provider(2), Caller::default(), pool(), at_client, 2).unwrap();
    server.map_or(Ok(()), |auth| server_core.authenticate(auth)).unwrap();
    server_core.listen(SERVER).unwrap();
    let options = ConnectOptions::new(binding());
    let options = match client {
        Some(auth) => options.host_auth(auth),
        None => options,
    };
    let connection = client_core.connect(Instant::ZERO, SERVER, options)?;
    let (server, client) = (server_core, client_core);
    Ok(World { fabric, now: Instant::ZERO, server, client, connection })
}

impl World {
    /// Returns the names of the hosts at the other end, as the server and the client know them.
    fn hosts(&mut self) -> [Option<String>; 2] {
        let key = self.server.inner.common.connections.from(0).map(ConnectionId);
        let (cx, _) = self.server.cx(self.now);
        let at_server = key.and_then(|key| cx.host(key)).map(str::to_owned);
        let (cx, _) = self.client.cx(self.now);
        [at_server, cx.host(self.connection).map(str::to_owned)]
    }

    fn refused(&self) -> [u64; 2] {
        [&self.server.inner, &self.client.inner].map(|inner| inner.common.counters.hosts_refused)
    }
}

/// The Calls that wait hold all send buffers, so of the properties only the first leave at once.
#[test]
fn no_call_overtakes_the_properties_that_wait_for_a_buffer() {
    let (alice, bob) = (names("alice", &["bob"]), names("bob", &["alice"]));
    let limits = [LIMITS, Limits { send_buffers_max: 2, versions: Versions::OnlyTwo, ..LIMITS }];
    for seed in 0..50 {
        let fabric = FabricConfig {
            seed,
            copied_percent: 0,
            latency_min_ns: 1,
            latency_max_ns: 20_000,
            ..FabricConfig::default()
        };
        let [server, client] = [&alice, &bob].map(|names| Some(auth(Policy::Required, names)));
        let mut world = world_in(fabric, limits, server, client).unwrap();
        for token in 0..2 {
            world.call(token, request(0));
        }
        world.until(|w| w.ended().len() == 2);
        assert!(world.ended().iter().all(|(_, result, _)| result.is_ok()), "{:?}", world.ended());
    }
}

#[test]
fn every_pair_of_policies_comes_to_its_own_end() {
    use Policy::{Off, Optional, Required};
    let unproven = || CallError::Host(HostRefusal::Unproven);
    for (client, server, is_proved, outcome) in [
        (Off, Off, false, Ok(())),
        (Off, Optional, false, Ok(())),
        (Off, Required, false, Err(None)),
        (Optional, Off, false, Ok(())),
        (Optional, Optional, true, Ok(())),
        (Optional, Required, true, Ok(())),
        (Required, Off, false, Err(Some(unproven()))),
        (Required, Optional, true, Ok(())),
        (Required, Required, true, Ok(())),
    ] {
        let pair = format!("{client:?} {server:?}");
        let ours = auth(server, &names("server", &["client"]));
        let theirs = auth(client, &names("client", &["server"]));
        let mut world = world([LIMITS; 2], Some(ours), Some(theirs)).unwrap();
        world.call(1, request(0));
        world.until(|w| w.ended().len() == 1);
        let ended = world.ended_of(1).1.clone().map(drop);
        match outcome {
            Ok(()) => assert_eq!(ended, Ok(()), "{pair}"),
            Err(Some(why)) => assert_eq!(ended, Err(why), "{pair}"),
            // Why a server ends a connection is not told.
            Err(None) => assert!(matches!(ended, Err(CallError::Unready(_))), "{pair}: {ended:?}"),
        }
        let proved = is_proved.then(|| ["client", "server"].map(|name| Some(name.to_owned())));
        assert_eq!(world.hosts(), proved.unwrap_or_default(), "{pair}");
        assert_eq!(world.server.inner.common.counters.calls_served, u64::from(ended.is_ok()));
    }
}

#[test]
fn a_host_that_is_not_known_is_refused_with_what_it_claims() {
    for policy in [Policy::Optional, Policy::Required] {
        let stranger = auth(policy, &names("stranger", &["server"]));
        let server = auth(policy, &names("server", &["client"]));
        let mut world = world(ONCE, Some(server), Some(stranger)).unwrap();
        world.call(1, request(0));
        world.until(|w| w.ended().len() == 1);
        let ended = &world.ended_of(1).1;
        assert!(matches!(ended, Err(CallError::Unready(_))), "{policy:?}: {ended:?}");
        world.until(World::is_disconnected);
        assert_eq!((world.refused(), world.hosts()), ([1, 0], [None, None]));
        let client = auth(policy, &names("client", &["server"]));
        let stranger = auth(policy, &names("stranger", &["client"]));
        let mut world = self::world(ONCE, Some(stranger), Some(client)).unwrap();
        world.call(1, request(0));
        world.until(|w| w.ended().len() == 1);
        let (why, claimed) = (Refused::UnknownPeer, Some("<stranger>".to_owned()));
        let refusal = CallError::Host(HostRefusal::Refused { why, claimed });
        assert_eq!(refusal.to_string(), "the peer's host key is not a known one: <stranger>");
        assert_eq!(world.ended_of(1).1, Err(refusal));
        world.until(World::is_disconnected);
        assert_eq!(world.refused(), [0, 1]);
        world.all_home();
    }
}

#[test]
fn no_call_is_served_and_no_memory_is_exposed_before_the_proof() {
    let server = auth(Policy::Required, &names("server", &["client"]));
    let client = auth(Policy::Required, &names("client", &["server"]));
    let mut world = world([LIMITS; 2], Some(server), Some(client)).unwrap();
    let argument = world.lease(100_000, 7);
    world.call(1, request(STORE).argument(argument));
    let mut turns_before = 0;
    while world.ended().is_empty() {
        world.turns(1);
        let [at_server, at_client] = world.hosts();
        let exposed = world.client.cx(world.now).0.gauges().exposed;
        assert!(at_client.is_some() || exposed == 0, "it has not proved which host it is");
        let served = world.server.inner.common.counters.calls_served;
        assert!(at_server.is_some() || served == 0, "the client has not, either");
        turns_before += u32::from(at_client.is_none());
    }
    assert!(turns_before > 0, "there was a time before");
    assert_eq!(world.ended_of(1).1, Ok(0));
}

#[test]
fn connections_to_a_host_that_is_forgotten_end_and_others_stay() {
    let known = names("server", &["client", "other"]);
    let client = auth(Policy::Required, &names("client", &["server"]));
    let mut world = world(ONCE, Some(auth(Policy::Optional, &known)), Some(client)).unwrap();
    let other = auth(Policy::Required, &names("other", &["server"]));
    let options = ConnectOptions::new(binding());
    let gone = world.connection;
    let stays = world.client.connect(world.now, SERVER, options.clone().host_auth(other)).unwrap();
    let unnamed = world.client.connect(world.now, SERVER, options).unwrap();
    for (token, connection) in [(1, gone), (2, stays), (3, unnamed)] {
        world.connection = connection;
        world.call(token, request(0));
    }
    world.until(|w| w.ended().len() == 3);
    assert!(world.ended().iter().all(|(_, ended, _)| ended.is_ok()));
    world.server.judge_hosts();
    world.settle();
    assert_eq!(world.server.inner.common.connections.len(), 3, "all are known");
    known.known.lock().unwrap().retain(|name| *name != "client");
    world.server.judge_hosts();
    world.settle();
    assert_eq!((world.server.inner.common.connections.len(), world.refused()), (2, [1, 0]));
    for (token, connection) in [(4, stays), (5, unnamed)] {
        world.connection = connection;
        world.call(token, request(0));
        world.until(|w| w.ended().len() as u64 == token);
        assert_eq!(world.ended_of(token).1, Ok(0));
    }
    world.connection = gone;
    let (mut cx, _) = world.client.cx(world.now);
    assert!(cx.call(gone, request(0), 6, |_| Ok(())).is_err(), "it is gone");
}

#[test]
fn a_host_that_is_forgotten_as_it_proves_itself_is_refused() {
    let known = names("server", &["client"]);
    let client = auth(Policy::Required, &names("client", &["server"]));
    let mut world = world(ONCE, Some(auth(Policy::Required, &known)), Some(client)).unwrap();
    world.call(1, request(0));
    // The server has made the authenticator, which knows the client.
    world.until(|w| w.server.inner.common.connections.iter().any(|it| it.life.is_negotiating()));
    known.known.lock().unwrap().clear();
    world.until(|w| w.ended().len() == 1);
    let ended = &world.ended_of(1).1;
    assert!(matches!(ended, Err(CallError::Unready(_) | CallError::Disconnected(_))), "{ended:?}");
    world.until(World::is_disconnected);
    assert_eq!((world.refused(), world.server.inner.common.counters.calls_served), ([1, 0], 0));
}

#[test]
fn version_1_is_spoken_unless_hosts_have_to_prove_themselves() {
    let one = Limits { versions: Versions::OnlyOne, ..LIMITS };
    let client = |policy| Some(auth(policy, &names("client", &["server"])));
    let server = |policy| Some(auth(policy, &names("server", &["client"])));
    // A server of version 1 alone.
    let mut old = world([one, LIMITS], None, client(Policy::Optional)).unwrap();
    old.call(1, request(0));
    old.until(|w| w.ended().len() == 1);
    assert_eq!((old.ended_of(1).1.clone(), old.hosts()), (Ok(0), [None, None]));
    let mut old = world([one, LIMITS], None, client(Policy::Required)).unwrap();
    old.call(1, request(0));
    old.until(|w| w.ended().len() == 1);
    assert!(matches!(old.ended_of(1).1, Err(CallError::Unready(_))), "{:?}", old.ended_of(1).1);
    // A client of version 1 alone.
    let mut old = world([LIMITS, one], server(Policy::Optional), None).unwrap();
    old.call(1, request(0));
    old.until(|w| w.ended().len() == 1);
    assert_eq!((old.ended_of(1).1.clone(), old.hosts()), (Ok(0), [None, None]));
    let mut old = world([LIMITS, one], server(Policy::Required), None).unwrap();
    old.call(1, request(0));
    old.until(|w| w.ended().len() == 1);
    assert!(matches!(old.ended_of(1).1, Err(CallError::Unready(_))), "{:?}", old.ended_of(1).1);
    assert_eq!(old.server.inner.common.counters.calls_served, 0);
    // Ends that speak no other version say so at once.
    let begun = world([LIMITS, one], None, client(Policy::Required)).map(drop);
    assert_eq!(begun, Err(CallError::NoVersion));
    let mut alone = world([one, LIMITS], None, None).unwrap().server;
    let refused = alone.authenticate(server(Policy::Required).unwrap());
    assert_eq!(refused, Err(StartError::NoVersion));
    assert_eq!(alone.authenticate(server(Policy::Optional).unwrap()), Ok(()));
}

#[test]
fn tcp_is_not_listened_to_where_hosts_have_to_prove_themselves() {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    for (policy, listens) in [(Policy::Optional, true), (Policy::Required, false)] {
        let server = auth(policy, &names("server", &[]));
        let mut world = world([LIMITS; 2], Some(server), None).unwrap();
        let bound = world.server.listen_tcp(at, TcpLimits::DEFAULT);
        assert_eq!(bound.is_ok(), listens, "{policy:?}: {bound:?}");
    }
}

#[test]
fn a_server_that_was_taken_for_an_old_one_is_asked_for_its_proof_all_the_same() {
    let server = auth(Policy::Optional, &names("server", &["client"]));
    let mut world = world([LIMITS; 2], Some(server), None).unwrap();
    world.client.close(world.connection);
    world.client.inner.common.old_servers.remember(world.now, SERVER);
    let client = auth(Policy::Optional, &names("client", &["server"]));
    let options = ConnectOptions::new(binding()).host_auth(client);
    world.connection = world.client.connect(world.now, SERVER, options).unwrap();
    world.call(1, request(0));
    world.until(|w| w.ended().len() == 1);
    assert_eq!(world.hosts()[1].as_deref(), Some("server"));
}
