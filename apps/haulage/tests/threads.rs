//! One core, called from several threads that are not cores.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use haulage::core::{Core, Cx, NoService, Service};
use haulage::cores::{self, CoreThread, Placement};
use haulage::limits::{LIMITS_DEFAULT, Limits};
use haulage::polling::Polling;
use haulage::pool::{PagePreference, Pool, PoolConfig};
use haulage::proto::negotiate::Version;
use haulage::provider::iwarp::{Config, Iwarp};
use haulage::remote::{CALLS_MAX, RemoteClient};
use haulage::service::{Call, CallError, Outcome, Program, Reply, Request};
use haulage::sys::clock;
use haulage_kv::index::Seed;
use haulage_kv::protocol::Procedure;
use haulage_kv::service::{KvService, binding};

const LIMITS: Limits = Limits {
    connections_max: 8,
    receives_max: 128,
    calls_out_max: 32,
    send_buffers_max: 64,
    remote_clients_max: 3,
    call_timeout: Duration::from_secs(120),
    ..LIMITS_DEFAULT
};

fn placement(name: &str, polling: Polling) -> Placement {
    Placement { name: name.to_owned(), cpu: None, polling }
}

fn parts() -> (Iwarp, Pool) {
    let memory = PoolConfig { bytes: 16 << 20, pages: PagePreference::Heap, node: None };
    (Iwarp::new(&Config::default()).unwrap(), Pool::new(&memory).unwrap())
}

fn server() -> CoreThread<SocketAddr> {
    let started = cores::start(placement("server", Polling::ADAPTIVE), || {
        let (nic, pool) = parts();
        let service = KvService::new(64, Seed::fixed(1, 2), 1 << 20, 8 << 20);
        let mut core = Core::new(nic, service, pool, LIMITS, 1).unwrap();
        let at = core.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        Ok::<_, std::io::Error>((core, at))
    });
    started.unwrap()
}

fn client(at: SocketAddr) -> CoreThread<RemoteClient> {
    let started = cores::start(placement("client", Polling::Event), move || {
        let (nic, pool) = parts();
        let mut core = Core::new(nic, NoService, pool, LIMITS, 2).unwrap();
        let connection = core.connect(clock::now(), at, binding(1 << 20)).unwrap();
        let client = RemoteClient::of(&core, connection).unwrap();
        Ok::<_, std::io::Error>((core, client))
    });
    started.unwrap()
}

fn request(procedure: Procedure) -> Request {
    Request::new(procedure as u32)
}

/// Stores and fetches values under a key of its own.
fn store_and_fetch(client: &mut RemoteClient, key: &str) {
    for round in 0..50_u8 {
        let mut value = client.lease(5000).unwrap();
        value.bytes_mut().fill(round);
        let put = request(Procedure::Put).argument(value);
        let reply = client.call(put, |w| w.opaque(key.as_bytes())).unwrap();
        assert_eq!(reply.results().u32(), Ok(0));
        client.recycle(reply);
        let get = request(Procedure::Get).room(client.lease(8000).unwrap());
        let reply = client.call(get, |w| w.opaque(key.as_bytes())).unwrap();
        assert_eq!(reply.rooms.first().unwrap().bytes(), [round; 5000]);
        client.recycle(reply);
    }
}

#[test]
fn threads_share_a_core_and_its_connection() {
    let server = server();
    let mut core = client(server.started);
    let mut second = core.started.try_clone().unwrap();
    let third = core.started.try_clone().unwrap();
    assert!(core.started.try_clone().is_none(), "three clients are the limit");
    thread::scope(|scope| {
        let builder = thread::Builder::new();
        builder.spawn_scoped(scope, || store_and_fetch(&mut second, "second")).unwrap();
        store_and_fetch(&mut core.started, "first");
    });
    // A client that is dropped makes room for another: the core notices by itself.
    drop(third);
    let start = clock::now();
    while core.started.try_clone().is_none() {
        assert!(clock::now().saturating_since(start) < Duration::from_secs(10));
        core.started.lease(1).unwrap();
    }
    core.stop().unwrap();
    server.stop().unwrap();
}

#[test]
fn several_calls_of_one_thread_are_under_way() {
    let server = server();
    let mut core = client(server.started);
    let client = &mut core.started;
    assert_eq!(client.ended().unwrap_err(), CallError::NothingBegun);
    let mut begun = Vec::new();
    for round in 0..8_u8 {
        // The lease is taken while Calls are ending.
        let mut value = client.lease(5000).unwrap();
        value.bytes_mut().fill(round);
        let put = request(Procedure::Put).argument(value);
        let token = client.begin(put, |w| w.opaque(&[b'k', round])).unwrap();
        begun.push((token, round));
    }
    // Waiting for one Call at once loses no outcome of the others.
    let room = Some(client.lease(5000).unwrap());
    let get = request(Procedure::Get).room(room);
    let reply = client.call(get, |w| w.opaque(b"k?")).unwrap();
    assert_eq!(reply.version(), Version::Two);
    client.recycle(reply);
    for _ in 0..8 {
        let (token, reply) = client.ended().unwrap();
        let at = begun.iter().position(|(begun, _)| *begun == token).unwrap();
        let (_, round) = begun.swap_remove(at);
        let reply = reply.unwrap();
        assert_eq!(reply.arguments.first().unwrap().bytes(), [round; 5000]);
        client.recycle(reply);
    }
    assert_eq!(client.ended().unwrap_err(), CallError::NothingBegun);
    core.stop().unwrap();
    server.stop().unwrap();
}

#[test]
fn every_call_that_was_begun_is_told_and_what_has_no_room_gives_its_lease_back() {
    let server = server();
    let mut core = client(server.started);
    let client = &mut core.started;
    for _ in 0..2 {
        let (mut told, mut busy) = (Vec::new(), 0);
        let mut expected = Vec::new();
        for _ in 0..200 {
            let mut put = request(Procedure::Put).argument(client.lease(5000).unwrap());
            loop {
                match client.begin(put, |w| w.opaque(b"k")) {
                    Ok(token) => break expected.push(token),
                    Err(failed) => {
                        assert_eq!(failed.error, CallError::Busy);
                        busy += 1;
                        // The lease comes back with the error, and there is room once a Call has ended.
                        put = request(Procedure::Put).argument(failed.arguments.into_first());
                        assert_eq!(put.arguments.first().unwrap().lease.len(), 5000);
                        told.push(client.ended().unwrap());
                    }
                }
            }
        }
        assert_eq!(busy, 200 - CALLS_MAX);
        while told.len() < 200 {
            told.push(client.ended().unwrap());
        }
        let mut tokens: Vec<_> = told.iter().map(|(token, _)| *token).collect();
        tokens.sort_unstable();
        assert_eq!(tokens, expected);
        for (_, outcome) in told {
            match outcome {
                Ok(reply) => client.recycle(reply),
                // The core has fewer places for Calls than the client may begin; the lease comes back, too.
                Err(failed) => {
                    assert_eq!(failed.error, CallError::Busy);
                    assert_eq!(failed.arguments.into_first().unwrap().len(), 5000);
                }
            }
        }
        assert_eq!(client.ended().unwrap_err(), CallError::NothingBegun);
    }
    core.stop().unwrap();
    server.stop().unwrap();
}

/// Panics when it is called.
struct Fragile;

impl Service for Fragile {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding(1 << 20))]
    }

    fn call(&mut self, _: &mut Cx<'_>, call: Call<'_>, _: &mut Reply) -> Outcome {
        panic!("procedure {} is not to be called", call.procedure)
    }
}

#[test]
fn who_stops_a_core_is_told_that_its_service_panicked() {
    let server = cores::start(placement("fragile", Polling::Event), || {
        let (nic, pool) = parts();
        let mut core = Core::new(nic, Fragile, pool, LIMITS, 1).unwrap();
        let at = core.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        Ok::<_, std::io::Error>((core, at))
    });
    let server = server.unwrap();
    let mut core = client(server.started);
    let failed = core.started.call(request(Procedure::Stat), |_| Ok(())).unwrap_err();
    assert!(matches!(failed.error, CallError::Disconnected(_)), "{failed}");
    let panicked = server.stop().unwrap_err();
    assert_eq!((panicked.core.as_str(), panicked.message.as_str()), ("fragile", MESSAGE));
    core.stop().unwrap();
}

const MESSAGE: &str = "procedure 4 is not to be called";

#[test]
fn a_client_whose_core_is_gone_is_told_so() {
    let server = server();
    let core = client(server.started);
    let mut left = core.started.try_clone().unwrap();
    assert!(left.lease(100).is_ok());
    core.stop().unwrap();
    assert_eq!(left.lease(100).unwrap_err(), CallError::Closed);
    server.stop().unwrap();
}
