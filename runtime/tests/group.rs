//! Groups of cores that serve one address, over iWARP on the loopback interface.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use haulage::core::{Core, CoreIdentity, CoreNumber, Cx, NoService, Service};
use haulage::cores::group::{self, Group};
use haulage::cores::{self, CoreThread, Placement, Unstopped};
use haulage::limits::{LIMITS_DEFAULT, Limits};
use haulage::polling::Polling;
use haulage::pool::{PagePreference, Pool, PoolConfig};
use haulage::provider::iwarp::{Config, Iwarp};
use haulage::remote::RemoteClient;
use haulage::service::{Binding, Call, Outcome, Procedure, Program, Reply, Request};
use haulage::sys::clock;

const LIMITS: Limits = Limits { connections_max: 16, receives_max: 256, ..LIMITS_DEFAULT };
/// Returns the number of the core that serves it.
const WHERE: u32 = 0;
/// Has the core panic.
const PANIC: u32 = 1;

fn binding() -> Binding {
    let procedures = vec![Procedure::new("WHERE").results_max(4), Procedure::new("PANIC")];
    Binding { program: 0x2000_0001, version: 1, procedures }
}

/// Counts the Calls of its core.
#[derive(Default)]
struct Counter;

impl Service for Counter {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn call(&mut self, cx: &mut Cx<'_>, call: Call<'_>, reply: &mut Reply) -> Outcome {
        assert_ne!(call.procedure, PANIC, "as it was asked to");
        assert_eq!(call.connection.core(), cx.core());
        reply.results(|w| w.u32(cx.core().get().into()));
        Outcome::Done
    }
}

fn placement(name: &str) -> Placement {
    Placement { name: name.to_owned(), cpu: None, polling: Polling::Event }
}

fn core<S: Service>(number: CoreNumber, service: S) -> io::Result<Core<Iwarp, S>> {
    let bytes = LIMITS.transport_bytes() + (1 << 20);
    let pool = PoolConfig { bytes, pages: PagePreference::Heap, node: None };
    let pool = Pool::new(&pool).map_err(io::Error::other)?;
    let identity = CoreIdentity { number, seed: 1 + u64::from(number.get()) };
    let provider = Iwarp::new(&Config::default())?;
    Core::new(provider, service, pool, LIMITS, identity).map_err(io::Error::other)
}

/// Starts a group of so many cores. Returns the address that its first core serves.
fn serve(cores: usize) -> (Group<Option<SocketAddr>>, SocketAddr) {
    let make = |number| {
        let mut core = core(number, Counter)?;
        let first = number == CoreNumber::FIRST;
        let at = first.then(|| core.listen((Ipv4Addr::LOCALHOST, 0).into())).transpose()?;
        Ok::<_, io::Error>((core, at))
    };
    let cores = (0..cores).map(|at| (placement(&format!("server-{at}")), make));
    let group = group::start(cores.collect(), 7).unwrap();
    let at = group.started().unwrap();
    (group, at)
}

/// Connects so many times from one core.
fn connect(to: SocketAddr, connections: usize) -> CoreThread<Vec<RemoteClient>> {
    let client = cores::start(placement("client"), move || {
        let mut core = core(CoreNumber::FIRST, NoService)?;
        let mut clients = Vec::new();
        for _ in 0..connections {
            let connection = core.connect(clock::now(), to, binding()).map_err(io::Error::other)?;
            clients.push(RemoteClient::of(&core, connection).ok_or(io::ErrorKind::QuotaExceeded)?);
        }
        Ok::<_, io::Error>((core, clients))
    });
    client.unwrap()
}

fn served_by(client: &mut RemoteClient) -> u32 {
    client.call(Request::new(WHERE), |_| Ok(())).unwrap().results().u32().unwrap()
}

#[test]
fn connections_are_dealt_and_stay_on_their_cores() {
    let (group, at) = serve(4);
    let mut client = connect(at, 8);
    let homes: Vec<_> = client.started.iter_mut().map(served_by).collect();
    let mut each = [0; 4];
    homes.iter().for_each(|home| each[*home as usize] += 1);
    assert_eq!(each, [2; 4]);
    for _ in 0..3 {
        let again: Vec<_> = client.started.iter_mut().map(served_by).collect();
        assert_eq!(again, homes);
    }
    client.stop().unwrap();
    // What was dealt was given back: others are dealt as evenly.
    let mut client = connect(at, 4);
    let mut homes: Vec<_> = client.started.iter_mut().map(served_by).collect();
    homes.sort_unstable();
    assert_eq!(homes, [0, 1, 2, 3]);
    client.stop().unwrap();
    group.stop().unwrap();
}

#[test]
fn a_core_that_cannot_start_fails_the_group_in_words() {
    let make = |number| {
        if number == CoreNumber::FIRST {
            return Err(io::Error::other("no memory for the first core"));
        }
        Ok((core(number, Counter)?, ()))
    };
    let cores = (0..3).map(|at| (placement(&format!("server-{at}")), make));
    let failed = group::start(cores.collect(), 7).unwrap_err();
    assert_eq!(failed.to_string(), "no memory for the first core");
    let none: Vec<(Placement, fn(CoreNumber) -> io::Result<(Core<Iwarp, Counter>, ())>)> = vec![];
    let failed = group::start(none, 7).unwrap_err();
    assert_eq!(failed.to_string(), "a group has 1 to 128 cores, not 0");
}

#[test]
fn a_panic_of_one_core_is_told_and_the_others_end_in_order() {
    let (group, at) = serve(2);
    let mut client = connect(at, 2);
    assert!(!group.is_finished());
    let homes: Vec<_> = client.started.iter_mut().map(served_by).collect();
    let of = |core| homes.iter().position(|home| *home == core).unwrap();
    client.started[of(1)].call(Request::new(PANIC), |_| Ok(())).unwrap_err();
    while !group.is_finished() {
        std::thread::yield_now();
    }
    client.stop().unwrap();
    let why = group.stop_while_turning(Duration::from_secs(60)).unwrap_err();
    let Unstopped::Panicked(panicked) = why else { panic!("{why}") };
    assert_eq!(panicked.core, "server-1");
    assert!(TcpListener::bind(at).is_ok(), "the port is free");
}
