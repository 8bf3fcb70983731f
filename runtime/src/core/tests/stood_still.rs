//! Cores that stood still while messages came.

use super::*;
use crate::provider::delaying::Delaying;
use crate::provider::lending::Lending;
use crate::provider::shm::{Config, Shm};
use crate::sys::clock;

/// The time that a Call may take.
const LIMIT: Duration = Duration::from_millis(500);
/// The time that a connection may be idle.
const IDLE: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_micros(100);
/// Calls before anything stands still.
const CALLS: usize = 2;

/// A server and a client with the same kind of provider.
struct Ends<P: Provider> {
    now: Instant,
    server: Core<P, Keeper>,
    client: Core<P, Caller>,
    connection: ConnectionId,
}

impl<P: Provider> Ends<P> {
    fn new(at: SocketAddr, mut provider: impl FnMut(&Pool) -> P) -> Self {
        let now = clock::now();
        let limits = Limits { idle_timeout: Some(IDLE), ..LIMITS };
        let mut pool = || {
            let config = PoolConfig { bytes: 4 << 20, pages: PagePreference::Shared, node: None };
            let pool = Pool::new(&config).unwrap();
            (provider(&pool), pool)
        };
        let [server, client] = [pool(), pool()];
        let mut server = Core::new(server.0, Keeper::default(), server.1, limits, 1).unwrap();
        let mut client = Core::new(client.0, Caller::default(), client.1, LIMITS, 2).unwrap();
        let at = server.listen(at).unwrap();
        let connection = client.connect(now, at, binding()).unwrap();
        let mut ends = Self { now, server, client, connection };
        for half in 1..=2 {
            ends.call();
            let later = now.saturating_add(half * IDLE / 2);
            ends.until(|ends| ends.now >= later);
        }
        // The deadlines of all Calls have passed. What is left is the time at which the idle connection is checked.
        ends.until(|ends| {
            let due = ends.server.inner.common.next_deadline;
            due == Some(ends.idle_at()) && ends.client.inner.common.next_deadline.is_none()
        });
        ends
    }

    fn call(&mut self) {
        let request = Request { timeout: Some(LIMIT), ..request(0) };
        self.client.cx(self.now).0.call(self.connection, request, 0, |_| Ok(())).unwrap();
    }

    /// Returns when the connection will have been idle for too long.
    fn idle_at(&self) -> Instant {
        let connection = self.server.inner.common.connections.iter().next().unwrap();
        connection.life.active().saturating_add(IDLE)
    }

    fn server_turns(&mut self) {
        self.now = self.now.saturating_add(MOMENT);
        self.server.turn(self.now);
    }

    fn client_turns(&mut self) {
        self.now = self.now.saturating_add(MOMENT);
        self.client.turn(self.now);
    }

    fn until(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..10_000 {
            if done(self) {
                return;
            }
            self.client_turns();
            self.server_turns();
        }
        panic!("no progress");
    }

    /// Has the server stand still while a Call comes, until the connection is idle for too long and then for `late`.
    fn server_stands_still(&mut self, name: &str, late: Duration) {
        // The Call's own deadline is too late to matter.
        let request = Request { timeout: Some(100 * LIMIT), ..request(0) };
        self.client.cx(self.now).0.call(self.connection, request, 1, |_| Ok(())).unwrap();
        (0..20).for_each(|_| self.client_turns());
        self.now = self.idle_at().saturating_add(late);
        self.until(|ends| ends.client.service.ended.len() > CALLS);
        assert_eq!(self.client.service.ended[CALLS].1, Ok(0), "{name}, {late:?}");
        let (called, idle) =
            (self.now, |ends: &Self| ends.server.inner.common.counters.connections_idle);
        assert_eq!(idle(self), 0, "{name}");
        // Once it is idle again, the connection is closed in time.
        self.until(|ends| idle(ends) == 1);
        let idle = self.now.saturating_since(called);
        assert!(idle <= IDLE + IDLE / 10, "{name}: {idle:?}");
    }

    /// Has the client stand still while a Reply comes, until its Call has taken too long and then for `late`.
    fn client_stands_still(&mut self, name: &str, late: Duration) {
        self.call();
        let due = self.now.saturating_add(LIMIT);
        (0..20).for_each(|_| self.client_turns());
        (0..20).for_each(|_| self.server_turns());
        assert_eq!(self.client.inner.common.next_deadline, Some(due));
        self.now = due.saturating_add(late);
        self.until(|ends| ends.client.service.ended.len() > CALLS);
        assert_eq!(self.client.service.ended[CALLS].1, Ok(0), "{name}, {late:?}");
    }
}

/// Tries both ends of two nodes of a fabric, each for `late` longer than the other may wait. `wrap` makes their
/// providers, from a seed.
fn try_sim<P: Provider>(name: &str, late: Duration, mut wrap: impl FnMut(Sim, u64) -> P) {
    for seed in 0..10 {
        let mut ends = || {
            let fabric = Fabric::new(FabricConfig::default());
            let mut node = 0;
            let at = SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 20050));
            Ends::new(at, |_| {
                node += 1;
                wrap(fabric.provider(Ipv4Addr::new(10, 0, 0, node).into()).unwrap(), seed)
            })
        };
        ends().server_stands_still(name, late);
        ends().client_stands_still(name, late);
    }
}

#[test]
fn what_came_while_a_core_stood_still_is_read_before_anything_is_idle_or_late() {
    // Messages that have arrived when a deadline passes are read in that turn.
    for late in [Duration::ZERO, LIMIT] {
        try_sim("in Receives", late, |sim, _| sim);
        try_sim("without Receives", late, |sim, seed| {
            let pool = PoolConfig { bytes: 2 << 20, pages: PagePreference::Heap, node: None };
            Lending::new(sim, Pool::new(&pool).unwrap(), seed, 100)
        });
    }
    try_sim("in a later poll", LIMIT, |sim, seed| Delaying::new(sim, seed, 60));
}

#[test]
fn what_came_over_shared_memory_while_a_core_stood_still_or_slept_is_read_first() {
    for (sleeps, late) in [(false, Duration::ZERO), (false, LIMIT), (true, LIMIT)] {
        let ends = || {
            let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let mut ends = Ends::new(at, |pool| Shm::new(&Config::default(), pool).unwrap());
            if sleeps {
                // A core that sleeps asks for doorbells, and has to hear them before it looks into its rings.
                ends.server.sleep(Some(Duration::ZERO));
                ends.client.sleep(Some(Duration::ZERO));
            }
            ends
        };
        let name = format!("shm, sleeps: {sleeps}");
        ends().server_stands_still(&name, late);
        ends().client_stands_still(&name, late);
    }
}
