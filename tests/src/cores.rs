//! Cores that make Calls to each other over the simulated fabric, in steps chosen by a seed.
//!
//! Each world has one or two servers and one to four clients. A client is a [`Core`](haulage::core::Core) over a
//! [`sim`](haulage::provider::sim) provider whose events may be late; a server is one such core, or a group of up to four.
//! A step is a turn of one core, a Call, a lapse of time, or a misfortune, drawn from the seed. Each step is checked while
//! it happens: each Call ends once, with the octets that its program knows, and fails only if its connection met a
//! misfortune; all Calls of a connection are served by the core that it was dealt to; posts between cores arrive once, in
//! order. At the end every lease is home, and every place is given back.
//!
//! - [`caller`]: the service of a client.
//! - `draw`: builds servers and clients.
//! - [`fellow`]: what a service of a group does beside its Calls.
//! - `group`: the cores of a server.
//! - [`hosts`]: hosts that prove which they are.
//! - [`exercise`]: a program whose every octet is known, and the service that answers it.
//! - `links`: connects clients to servers, and injects misfortunes.
//! - [`mix`]: counts of the events in a run.
//! - [`node`]: one core.
//! - [`programs`]: the Calls that clients make.
//! - [`settings`]: the configuration of a world.

pub mod caller;
mod draw;
pub mod exercise;
pub mod fellow;
mod group;
pub mod hosts;
mod links;
pub mod mix;
pub mod node;
pub mod programs;
pub mod settings;

use std::cell::RefCell;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use haulage::identity::Identity;
use haulage::limits::Limits;
use haulage::provider::sim::Fabric;
use haulage::provider::tracing::{Step, Trace};
use haulage::service::Binding;
use haulage_proto::time::Instant;
use haulage_store::client::File;

use crate::world::choices::Choices;
use caller::Link;
use exercise::Ledger;
use fellow::Falls;
use hosts::{Forgotten, Roster};
use mix::{Event, Mix};
use node::{Kind, Node};
use settings::Serves;

/// Cores, the network between them, and the misfortunes still to happen.
#[derive(Debug)]
pub struct World {
    choices: Choices,
    /// Draws the idle timeouts and connection limits of servers. It is apart from `choices`, so that the other draws of
    /// a seed do not depend on it.
    manners: Choices,
    /// Draws how many cores servers have, and what befalls groups of several. It is apart from `choices`, so that worlds in
    /// which every server has one core do not depend on it.
    luck: Choices,
    /// Draws the text of version 1 that nodes follow.
    profiles: Choices,
    fabric: Fabric,
    trace: Trace,
    now: Instant,
    servers: Vec<Server>,
    clients: Vec<Client>,
    ledger: Rc<RefCell<Ledger>>,
    misfortunes: usize,
    /// Addresses whose messages are swallowed.
    holes: Vec<Hole>,
    /// Addresses of nodes that are stopped in the middle of their copies.
    stopped: Vec<Hole>,
    mix: Mix,
    steps: usize,
}

#[derive(Debug)]
struct Server {
    /// The cores, by number where none has left; none while the server is away.
    nodes: Vec<Node>,
    /// Number of cores.
    cores: usize,
    /// Where the first core listens.
    at: SocketAddr,
    /// When a core is to panic.
    falls: Falls,
    number: u32,
    serves: Serves,
    flavors: Vec<u32>,
    limits: Limits,
    /// The hosts that it knows, if it has clients prove which they are.
    roster: Option<Arc<Roster>>,
    /// The clients that it does not know at the moment.
    forgotten: Vec<Forgotten>,
    delayed_percent: u8,
    lent_percent: u8,
    corrupted_percent: u8,
    /// When a server that is away is built again.
    back: Instant,
    is_draining: bool,
    root: Option<File>,
}

#[derive(Debug)]
struct Client {
    node: Node,
    address: IpAddr,
    /// The server at the other end of each link, and the client's identity there.
    ways: Vec<Way>,
}

#[derive(Clone, Debug)]
struct Way {
    server: usize,
    identity: Identity,
    binding: Binding,
    /// The hosts that the client knows, if the ends prove which they are.
    roster: Option<Arc<Roster>>,
}

/// A fault of the node at an address, until it is over.
#[derive(Clone, Copy, Debug)]
struct Hole {
    address: IpAddr,
    until: Instant,
}

/// The outcome of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Counts of the events in the run.
    pub mix: Mix,
    /// Steps that the world took.
    pub steps: usize,
    /// A digest of the trace between cores and providers.
    pub digest: u64,
    /// Lines of that trace.
    pub lines: u64,
}

impl Client {
    /// Returns when the first link that has to wait may connect again.
    fn again(&mut self, now: Instant) -> Option<Instant> {
        let (_, caller) = self.node.caller(now);
        let links = 0..caller.links();
        links.map(|link| caller.link(link).not_before()).filter(|again| *again > now).min()
    }
}

impl World {
    /// Builds the world of a seed. If the world fails, it prints the last `lines_kept` lines of the trace between cores
    /// and providers.
    pub fn new(seed: u64, lines_kept: usize) -> Self {
        let mut choices = Choices::seeded(seed);
        let fabric = Fabric::new(settings::fabric(&mut choices));
        let ledger = Rc::new(RefCell::new(Ledger::default()));
        let trace = Trace::new(lines_kept);
        let misfortunes = if choices.one_in(3) { 0 } else { choices.of(1..=5) };
        let mut world = Self {
            fabric,
            trace,
            now: Instant::ZERO,
            servers: Vec::new(),
            clients: Vec::new(),
            ledger,
            misfortunes,
            holes: Vec::new(),
            stopped: Vec::new(),
            mix: Mix::default(),
            steps: 0,
            manners: Choices::seeded(!seed),
            luck: Choices::seeded(seed ^ LUCK),
            profiles: Choices::seeded(seed ^ PROFILES),
            choices,
        };
        for number in 0..world.choices.of(1..=2) {
            let server = world.draw_server(number);
            world.servers.push(server);
            world.begin(number);
        }
        for number in 0..world.choices.of(1..=4) {
            let client = world.draw_client(number);
            world.clients.push(client);
        }
        world
    }

    /// Runs until every Call has ended and every connection is gone, and checks that nothing is left.
    ///
    /// # Panics
    /// If a core breaks a rule that is checked, or if the world makes no progress.
    pub fn run(mut self) -> Report {
        while !self.clients.iter_mut().all(|client| client.node.caller(self.now).1.is_done()) {
            self.step();
        }
        self.finish();
        let mut mix = std::mem::take(&mut self.mix);
        for client in &mut self.clients {
            mix.add(Event::Read, client.node.core.cx(self.now).0.counters().replies_read);
            let Some(Kind::Caller(caller)) = client.node.check_home(self.now) else {
                panic!("a client calls");
            };
            mix.join(&caller.mix);
        }
        for server in &mut self.servers {
            server.check_over(self.now);
            for node in &mut server.nodes {
                let counters = *node.core.cx(self.now).0.counters();
                mix.note_if(counters.call_chunks > 0, Event::LongCall);
                mix.add(Event::Held, counters.replies_held);
                mix.add(Event::Idle, counters.connections_idle);
                mix.add(Event::GaveWay, counters.connections_replaced);
                mix.add(Event::HostRefused, counters.hosts_refused);
                mix.add(Event::HostProved, node.core.service().proved);
                node.check_home(self.now);
            }
        }
        mix.join(&self.ledger.borrow().mix);
        for (event, step) in [
            (Event::Taken, Step::Taken { octets: 0 }),
            (Event::Left, Step::Left { count: 0 }),
            (Event::WrittenAtOnce, Step::WriteCopied { octets: 0, handle: 0 }),
            (Event::OpenedAtOnce, Step::Open { handle: 0 }),
            (Event::RetiredAtOnce, Step::Retire { handle: 0 }),
        ] {
            mix.add(event, self.trace.count_like(&step));
        }
        let (digest, lines) = (self.trace.digest(), self.trace.count());
        Report { mix, steps: self.steps, digest, lines }
    }

    fn step(&mut self) {
        self.count();
        self.come_back();
        match self.choices.below(100) {
            0 if self.misfortunes > 0 => self.misfortune(),
            0..=9 => self.call(),
            10..=17 => self.connect(),
            18..=35 => _ = self.wait(SOON),
            _ => {
                // Where no Call is under way, only another Call may be left to wait for.
                if self.turn() && !self.connect_all() && !self.wait(Duration::MAX) {
                    assert!(self.under_way() == 0, "nothing happens, {}", self.state());
                }
            }
        }
    }

    fn count(&mut self) {
        self.steps += 1;
        assert!(self.steps < STEPS_MAX, "there is no end to it, {}", self.state());
    }

    fn under_way(&mut self) -> usize {
        let now = self.now;
        self.clients.iter_mut().map(|client| client.node.caller(now).1.under_way()).sum()
    }

    /// Describes what every node waits for.
    fn state(&mut self) -> String {
        let now = self.now;
        let mut state = String::new();
        for server in &mut self.servers {
            let nodes = server.nodes.iter_mut();
            let connections: Vec<_> = nodes.map(|node| node.connections(now)).collect();
            state += &format!("{:?}: {connections:?} connections; ", server.serves);
        }
        for client in &mut self.clients {
            let (cx, caller) = client.node.caller(now);
            let (connections, calls) = (cx.connections(), caller.under_way());
            state += &format!("a client: {connections} connections, {calls} Calls; ");
        }
        state
    }

    fn nodes(&mut self) -> impl Iterator<Item = &mut Node> {
        let servers = self.servers.iter_mut().flat_map(|server| &mut server.nodes);
        servers.chain(self.clients.iter_mut().map(|client| &mut client.node))
    }

    /// Wakes every node.
    fn stir(&mut self) {
        self.nodes().for_each(|node| node.is_idle = false);
    }

    /// Turns a core. Returns whether no core has anything to do now.
    fn turn(&mut self) -> bool {
        let (now, turns) = (self.now, self.choices.of(1..=8).saturating_sub(4).max(1));
        let busy = self.nodes().filter(|node| node.may_turn()).count();
        if busy == 0 {
            return true;
        }
        let drawn = self.choices.below(busy);
        let node = self.nodes().filter(|node| node.may_turn()).nth(drawn);
        let node = node.expect("one of those that are busy");
        let mut worked = false;
        for _ in 0..turns {
            worked |= node.turn(now);
        }
        // The work of one node may give work to others.
        if worked {
            self.stir();
        }
        self.servers.iter_mut().for_each(|server| _ = server.check_places(now));
        busy == 1 && !worked
    }

    /// Makes a Call at a client.
    fn call(&mut self) {
        let client = self.choices.below(self.clients.len());
        if self.clients[client].node.is_stopped {
            return;
        }
        let (mut cx, caller) = self.clients[client].node.caller(self.now);
        if caller.make(&mut cx, Event::FromOutside) {
            self.stir();
        }
    }

    /// Lets time pass until the next deadline, if it is at most `limit` from now. Returns whether there is a deadline.
    fn wait(&mut self, limit: Duration) -> bool {
        // Messages move when a node turns.
        let all_stopped = self.nodes().all(|node| node.is_stopped);
        let network = self.fabric.next_event().filter(|_| !all_stopped);
        let holes = self.holes.iter().chain(&self.stopped).map(|hole| hole.until).min();
        let back = self.servers.iter().filter(|server| server.nodes.is_empty());
        let back = back.map(|server| server.back).min();
        let running = self.nodes().filter(|node| !node.is_stopped);
        let cores = running.filter_map(|node| node.deadline()).min();
        let again = self.clients.iter_mut().filter_map(|client| client.again(self.now)).min();
        let forgotten = self.servers.iter().flat_map(|server| &server.forgotten);
        let known_again = forgotten.map(|forgotten| forgotten.until).min();
        let next = [network, holes, back, cores, again, known_again].into_iter().flatten().min();
        let Some(next) = next else { return false };
        if next <= self.now.saturating_add(limit) {
            self.now = self.now.max(next);
            self.stir();
            let now = self.now;
            (0..self.servers.len()).for_each(|server| {
                self.each_link(server, |link| {
                    link.doom_if_silent(now);
                    link.doom_if_idle(now);
                });
            });
        }
        let (now, fabric) = (self.now, &self.fabric);
        self.holes.retain(|hole| {
            let is_open = hole.until > now;
            if !is_open {
                fabric.close_black_hole(hole.address);
            }
            is_open
        });
        self.go_on();
        self.know_again();
        true
    }

    /// Calls `act` with every link to a server.
    fn each_link(&mut self, server: usize, mut act: impl FnMut(&mut Link)) {
        let now = self.now;
        for Client { node, ways, .. } in &mut self.clients {
            let (_, caller) = node.caller(now);
            for (n, _) in ways.iter().enumerate().filter(|(_, way)| way.server == server) {
                act(caller.link(n));
            }
        }
    }

    /// Ends every connection, in one way or another, until no core has one.
    fn finish(&mut self) {
        self.servers.iter().for_each(|server| server.falls.set(None));
        while !self.servers.iter().all(Server::is_up) {
            self.count();
            self.come_back();
            if self.turn() {
                assert!(self.wait(Duration::MAX), "nothing happens, {}", self.state());
            }
        }
        for client in 0..self.clients.len() {
            match self.choices.below(3) {
                0 => self.close_links(client),
                1 => self.fabric.sever_all(self.clients[client].address),
                _ => {}
            }
        }
        let first = self.choices.below(2);
        for n in [first, 1 - first] {
            let now = self.now;
            if n == 0 {
                self.servers.iter_mut().flat_map(|server| &mut server.nodes).for_each(|node| {
                    node.core.begin_shutdown(now);
                });
            } else {
                self.clients.iter_mut().for_each(|client| client.node.core.begin_shutdown(now));
            }
            for _ in 0..self.choices.below(50) {
                self.turn();
            }
        }
        self.stir();
        loop {
            self.count();
            let is_quiet = self.turn();
            if is_quiet {
                let now = self.now;
                // A node that stands still has yet to take what it was posted and dealt.
                let over = self.nodes().all(|node| {
                    node.core.is_drained() && node.connections(now) == 0 && !node.is_stopped
                });
                if over && self.fabric.next_event().is_none() {
                    return;
                }
                assert!(self.wait(Duration::MAX), "nothing happens, {}", self.state());
            }
        }
    }
}

/// Prints the end of the trace if the world fails.
impl Drop for World {
    #[expect(clippy::print_stderr, reason = "a failure says what led to it")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.trace.lines().iter().for_each(|line| eprintln!("{line}"));
            let cores: Vec<_> = self.servers.iter().map(|server| server.cores).collect();
            eprintln!("at {} after {} steps; servers of {cores:?} cores", self.now, self.steps);
        }
    }
}

impl Report {
    /// Adds the counts of another run.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.mix.join(&other.mix);
        self.steps += other.steps;
        self.digest ^= other.digest;
        self.lines += other.lines;
        self
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{} steps, {} lines of trace", self.mix, self.steps, self.lines)
    }
}

fn address(n: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, u8::try_from(n).expect("few nodes")))
}

/// Returns the address of a core of the server whose first core has `first`.
fn address_of_core(first: IpAddr, core: u8) -> IpAddr {
    let IpAddr::V4(first) = first else { panic!("nodes have addresses of four octets") };
    let [a, b, _, d] = first.octets();
    IpAddr::V4(Ipv4Addr::new(a, b, core, d))
}

/// Tells the draws about groups from a world's other draws.
const LUCK: u64 = 0x6c75_636b_0000_0000;
/// Tells the draws about profiles from a world's other draws.
const PROFILES: u64 = 0x5666_8166_0000_0000;
/// Events of the fabric happen within this time; deadlines are further away.
const SOON: Duration = Duration::from_millis(1);

/// More steps than any world takes.
const STEPS_MAX: usize = 400_000;
