//! Groups of cores that serve one address, over iWARP on the loopback interface.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use haulage::core::{Core, CoreIdentity, CoreNumber, Cx, NoService, Service};
use haulage::cores::group::{self, Group};
use haulage::cores::post::{self, Mailbox, Undelivered};
use haulage::cores::{self, CoreThread, Placement, Unstopped};
use haulage::limits::{LIMITS_DEFAULT, Limits};
use haulage::polling::Polling;
use haulage::pool::{PagePreference, Pool, PoolConfig};
use haulage::provider::iwarp::{Config, Iwarp};
use haulage::remote::RemoteClient;
use haulage::service::{
    Binding, Call, CallError, ConnectionId, Outcome, Peer, Procedure, Program, Reply, Request,
};
use haulage::sys::clock;
use haulage_proto::rpc::AcceptStat;

/// Nothing here takes this long unless it hangs.
const HANG: Duration = Duration::from_secs(120);
/// Setups and connections of a core at once.
const SLOTS: usize = 32;
const LIMITS: Limits = Limits { connections_max: 16, receives_max: 256, ..LIMITS_DEFAULT };
/// Returns the number of the core that serves it.
const WHERE: u32 = 0;
/// Has the core panic.
const PANIC: u32 = 1;

fn binding() -> Binding {
    let procedures = ["WHERE", "PANIC", "COUNT", "CALL_ELSEWHERE", "STAND"]
        .map(|name| Procedure::new(name).results_max(4));
    let procedures = procedures.into();
    Binding { program: 0x2000_0001, version: 1, procedures }
}

/// Has all cores count one.
const COUNT: u32 = 2;
/// Has the core call back to a connection of another core, and returns whether it was told whose it is.
const CALL_ELSEWHERE: u32 = 3;
/// Has the core stand still until the test lets it go on.
const STAND: u32 = 4;

/// Says where a Call is served, and counts with the other cores of its group.
struct Counter {
    mailbox: Mailbox<Post>,
    shared: Arc<Shared>,
    /// A connection of another core.
    other: Option<ConnectionId>,
}

/// What the cores and the test share.
struct Shared {
    /// Where a core that stands still meets the test, before and after.
    gate: Barrier,
    /// Posts that the cores have taken and counted.
    count: AtomicU32,
}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self { gate: Barrier::new(2), count: AtomicU32::new(0) })
    }
}

/// What the cores tell each other.
#[derive(Clone, Copy)]
enum Post {
    Count,
    Opened(ConnectionId),
}

impl Counter {
    /// Posts to all cores, this one among them.
    fn tell(&self, post: Post) {
        for core in (0..).map_while(CoreNumber::new).take(self.mailbox.cores()) {
            self.mailbox.post(core, post).expect("there is room");
        }
    }
}

impl Service for Counter {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn callbacks(&self) -> Option<Binding> {
        Some(binding())
    }

    fn opened(&mut self, _: &mut Cx<'_>, peer: &Peer) {
        self.tell(Post::Opened(peer.connection));
    }

    fn call(&mut self, cx: &mut Cx<'_>, call: Call<'_>, reply: &mut Reply) -> Outcome {
        let result = match call.procedure {
            WHERE => cx.core().get().into(),
            COUNT => {
                self.tell(Post::Count);
                0
            }
            STAND => {
                self.shared.gate.wait();
                self.shared.gate.wait();
                0
            }
            CALL_ELSEWHERE => {
                let Some(other) = self.other else { return Outcome::Failed(AcceptStat::SystemErr) };
                let refused = cx.call(other, Request::new(WHERE), 0, |_| Ok(())).map_err(|no| no.0);
                let Err(CallError::Elsewhere(core)) = refused else { panic!("{refused:?}") };
                core.get().into()
            }
            _ => panic!("as it was asked to"),
        };
        reply.results(|w| w.u32(result));
        Outcome::Done
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        let mut worked = false;
        while let Some((from, post)) = self.mailbox.take(cx) {
            worked = true;
            match post {
                Post::Count => _ = self.shared.count.fetch_add(1, Ordering::Relaxed),
                Post::Opened(connection) if from != cx.core() => self.other = Some(connection),
                Post::Opened(_) => {}
            }
        }
        worked
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
    let provider = Iwarp::new(&Config { connections_max: SLOTS, ..Config::default() })?;
    Core::new(provider, service, pool, LIMITS, identity).map_err(io::Error::other)
}

/// Starts a group of so many cores. Returns the address that its first core serves.
fn serve(cores: usize) -> (Group<Option<SocketAddr>>, SocketAddr) {
    serve_with(cores, &Shared::new())
}

/// Like [`serve`]. The cores share `shared` with the test.
fn serve_with(cores: usize, shared: &Arc<Shared>) -> (Group<Option<SocketAddr>>, SocketAddr) {
    let counter =
        |mailbox, shared: &Arc<_>| Counter { mailbox, shared: Arc::clone(shared), other: None };
    let make = |mailbox| {
        let shared = Arc::clone(shared);
        move |number| {
            let mut core = core(number, counter(mailbox, &shared))?;
            let first = number == CoreNumber::FIRST;
            let at = first.then(|| core.listen((Ipv4Addr::LOCALHOST, 0).into())).transpose()?;
            Ok::<_, io::Error>((core, at))
        }
    };
    let mailboxes = post::mailboxes(cores, 64).into_iter().enumerate();
    let cores = mailboxes.map(|(at, mailbox)| (placement(&format!("server-{at}")), make(mailbox)));
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

/// Waits for something that happens at once, unless it never does.
fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let by = clock::now().saturating_add(HANG);
    while !happened() {
        assert!(clock::now() < by, "it never came to this: {what}");
        std::thread::yield_now();
    }
}

fn call(client: &mut RemoteClient, procedure: u32) -> u32 {
    client.call(Request::new(procedure), |_| Ok(())).unwrap().results().u32().unwrap()
}

fn served_by(client: &mut RemoteClient) -> u32 {
    call(client, WHERE)
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
    // Once the ends were seen, what was dealt is given back: others are dealt as evenly.
    let is_even = || {
        let mut client = connect(at, 4);
        let mut homes: Vec<_> = client.started.iter_mut().map(served_by).collect();
        client.stop().unwrap();
        homes.sort_unstable();
        homes == [0, 1, 2, 3]
    };
    assert!(std::iter::repeat_with(is_even).take(100).any(|is_even| is_even));
    group.stop().unwrap();
}

#[test]
fn a_core_that_cannot_start_fails_the_group_in_words() {
    let make = |number| {
        if number == CoreNumber::FIRST {
            return Err(io::Error::other("no memory for the first core"));
        }
        Ok((core(number, NoService)?, ()))
    };
    let cores = (0..3).map(|at| (placement(&format!("server-{at}")), make));
    let failed = group::start(cores.collect(), 7).unwrap_err();
    assert_eq!(failed.to_string(), "no memory for the first core");
    let none = [make].into_iter().map(|make| (placement("none"), make)).take(0);
    let failed = group::start(none.collect(), 7).unwrap_err();
    assert_eq!(failed.to_string(), "a group has 1 to 128 cores, not 0");
}

#[test]
fn silent_peers_close_nobodys_connection_and_keep_nobody_out() {
    let (group, at) = serve(2);
    let mut client = connect(at, 4);
    let homes: Vec<_> = client.started.iter_mut().map(served_by).collect();
    // Several times as many as both cores have slots.
    let silent: Vec<_> = (0..8 * SLOTS).map(|_| TcpStream::connect(at).unwrap()).collect();
    let again: Vec<_> = client.started.iter_mut().map(served_by).collect();
    assert_eq!(again, homes);
    let mut newcomer = connect(at, 2);
    newcomer.started.iter_mut().for_each(|client| assert!(served_by(client) < 2));
    drop(silent);
    newcomer.stop().unwrap();
    client.stop().unwrap();
    group.stop().unwrap();
}

#[test]
fn posts_reach_every_core_also_one_that_sleeps() {
    let shared = Shared::new();
    let (group, at) = serve_with(3, &shared);
    let mut client = connect(at, 1);
    for calls in 1..=100 {
        // The other two cores have no connection: nothing but the post wakes them.
        call(&mut client.started[0], COUNT);
        until("the posts came", || shared.count.load(Ordering::Relaxed) == 3 * calls);
    }
    client.stop().unwrap();
    group.stop().unwrap();
}

#[test]
fn a_call_on_a_connection_of_another_core_is_refused_and_says_whose_it_is() {
    let (group, at) = serve(2);
    let mut client = connect(at, 2);
    for client in &mut client.started {
        let here = served_by(client);
        // Where the other core's connection was opened, this core is told of it by a post.
        let other = (0..1000).find_map(|_| {
            let called = client.call(Request::new(CALL_ELSEWHERE), |_| Ok(())).ok()?;
            called.results().u32().ok()
        });
        assert_eq!(other, Some(1 - here));
    }
    client.stop().unwrap();
    group.stop().unwrap();
}

#[test]
fn a_full_mailbox_gives_the_post_back_and_so_does_one_of_no_core() {
    let boxes = post::mailboxes(2, 1);
    let second = CoreNumber::new(1).unwrap();
    assert_eq!(boxes[0].post(second, "one"), Ok(()));
    assert_eq!(boxes[0].post(second, "two"), Err(Undelivered("two")));
    assert_eq!(boxes[0].post(CoreNumber::new(2).unwrap(), "three"), Err(Undelivered("three")));
    assert_eq!(boxes[0].post(CoreNumber::FIRST, "four"), Ok(()), "each core has its own");
}

#[test]
fn a_group_is_alive_only_while_all_of_its_cores_turn() {
    let shared = Shared::new();
    let (group, at) = serve_with(2, &shared);
    let mut client = connect(at, 2);
    let standing = served_by(&mut client.started[0]) as usize;
    client.started[0].begin(Request::new(STAND), |_| Ok(())).unwrap();
    shared.gate.wait();
    group.ask_for_life();
    until("the other core turns", || group.cores()[1 - standing].is_alive());
    let is_alive = group.is_alive();
    shared.gate.wait();
    assert!(!is_alive, "one of its cores stands still");
    until("both turn", || group.is_alive());
    client.stop().unwrap();
    group.stop().unwrap();
}

#[test]
fn a_panic_of_one_core_is_told_and_the_others_end_in_order() {
    let (group, at) = serve(2);
    let mut client = connect(at, 2);
    assert!(!group.is_finished());
    let homes: Vec<_> = client.started.iter_mut().map(served_by).collect();
    let of = |core| homes.iter().position(|home| *home == core).unwrap();
    client.started[of(1)].call(Request::new(PANIC), |_| Ok(())).unwrap_err();
    // The other core leaves its connections, too, without being asked.
    until("it has left", || client.started[of(0)].call(Request::new(WHERE), |_| Ok(())).is_err());
    until("its thread has ended", || group.is_finished());
    client.stop().unwrap();
    let why = group.stop_while_turning(Duration::from_secs(60)).unwrap_err();
    let Unstopped::Panicked(panicked) = why else { panic!("{why}") };
    assert_eq!(panicked.core, "server-1");
    assert!(TcpListener::bind(at).is_ok(), "the port is free");
}
