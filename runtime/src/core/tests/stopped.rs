//! A crowd of clients that are stopped in the middle of their copies.

use super::*;

/// Machines with stopped clients, and clients on each.
const MACHINES: u8 = 8;
const EACH: u32 = 125;
const CROWD: u32 = MACHINES as u32 * EACH;
/// The token of a Call from elsewhere than the crowd.
const ANOTHER: u64 = 1000;
/// Octets that the server reads for each of their Calls.
const ARGUMENT: usize = 8 << 10;

const SERVER_LIMITS: Limits = Limits {
    connections_max: CROWD + 16,
    connections_each_max: EACH,
    receives_max: 6000,
    send_buffers_max: 1200,
    ..LIMITS
};

/// An honest client and its server, and the machines of others.
struct Crowd {
    world: World<Slow>,
    at: SocketAddr,
    /// `None` once a machine is gone.
    machines: Vec<Option<Core<Sim, Caller>>>,
    /// Whether the machines are turned.
    run: bool,
    /// Octets of the server's pool that are leased while nobody calls.
    leased: usize,
}

impl Crowd {
    fn new() -> Self {
        let fabric = FabricConfig {
            queue_pairs_max: 1100,
            receive_queue_max: 6000,
            registrations_max: 2048,
            ..FabricConfig::default()
        };
        let limits = [SERVER_LIMITS, LIMITS];
        let mut world = World::of(64 << 20, Slow::default(), limits, fabric);
        world.settle();
        let leased = world.server.inner.common.pool.gauges().leased_bytes;
        let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 20050);
        let machine = |number| {
            let sim = world.fabric.provider(address(number)).unwrap();
            let pool = PoolConfig { bytes: 16 << 20, pages: PagePreference::Heap, node: None };
            let pool = Pool::new(&pool).unwrap();
            let limits = Limits {
                connections_max: EACH + 1,
                receives_max: 1024,
                calls_out_max: 256,
                send_buffers_max: 256,
                ..LIMITS
            };
            Some(Core::new(sim, Caller::default(), pool, limits, u64::from(number)).unwrap())
        };
        let machines = (0..MACHINES).map(machine).collect();
        Self { world, at, machines, run: true, leased }
    }

    /// Has every client connect, and call the server with an argument that it reads.
    fn call(&mut self) {
        let now = self.world.now;
        for core in self.machines.iter_mut().flatten() {
            for token in 0..u64::from(EACH) {
                let connection = core.connect(now, self.at, binding()).unwrap();
                let (mut cx, _) = core.cx(now);
                let mut argument = cx.pool().lease(ARGUMENT).unwrap();
                argument.bytes_mut().fill(1);
                let request = request(EXCHANGE).argument(argument);
                cx.call(connection, request, token, |_| Ok(())).unwrap();
            }
        }
    }

    /// Stops every client where it is. The server closes the connections of one machine and loses the others.
    fn stop(&mut self) {
        self.run = false;
        (0..MACHINES).for_each(|number| self.world.fabric.stop_copying(address(number)));
        let server = &mut self.world.server;
        let keys: Vec<_> = server.inner.keys().collect();
        for key in keys {
            let connection = server.inner.common.connections.get(key).unwrap();
            if connection.peer().ip() == address(0) {
                server.close(ConnectionId(key));
            }
        }
        (1..MACHINES).for_each(|number| self.world.fabric.sever_all(address(number)));
        self.until(|_| false);
    }

    /// Has the machine of this number run, and another client on it call the server. Returns how the Call ended.
    fn call_from(&mut self, number: usize) -> Result<u32, CallError> {
        self.run = true;
        let now = self.world.now;
        let core = self.machines[number].as_mut().unwrap();
        let another = core.connect(now, self.at, binding()).unwrap();
        let ended = core.service().ended.len();
        core.cx(now).0.call(another, request(0), ANOTHER, |_| Ok(())).unwrap();
        self.world.server.service.answers = usize::MAX;
        self.until(|_| false);
        let ended = &self.machines[number].as_ref().unwrap().service().ended[ended..];
        let mut of_it = ended.iter().filter(|(token, ..)| *token == ANOTHER);
        of_it.next().expect("the Call has ended").1.clone()
    }

    /// Turns all that run until `done`, or until nothing is on its way.
    fn until(&mut self, done: impl Fn(&mut Self) -> bool) {
        for _ in 0..1_000_000 {
            if done(self) {
                return;
            }
            let now = self.world.now;
            let mut worked = self.world.server.turn(now) | self.world.client.turn(now);
            for core in self.machines.iter_mut().flatten().filter(|_| self.run) {
                worked |= core.turn(now);
            }
            if !worked {
                let Some(next) = self.world.fabric.next_event() else { return };
                self.world.now = next.max(now);
            }
        }
        panic!("it never settles");
    }

    /// Has the honest client store an item and get it back.
    fn honest(&mut self, length: usize) {
        let ended = self.world.ended().len();
        let argument = self.world.lease(length, 0x5a);
        self.world.call(1, request(STORE).argument(argument));
        self.until(|crowd| crowd.world.ended().len() > ended);
        let result = self.world.lease(length, 0);
        self.world.call(2, request(FETCH).room(result));
        self.world.server.service.answers = usize::MAX;
        self.until(|crowd| crowd.world.ended().len() > ended + 1);
        for (token, result, lease) in &self.world.ended()[ended..] {
            let length = u32::try_from(length).unwrap();
            assert_eq!(*result, Ok(if *token == 1 { 0 } else { length }), "{token}");
            let octets = lease.as_ref().map_or(&[][..], Local::bytes);
            assert!(octets.iter().all(|octet| *octet == 0x5a), "{token}");
        }
        self.world.server.service.keeper.item = None;
        self.until(|_| false);
    }

    /// Returns how many connections the server keeps for peers that may still touch memory, the octets that are
    /// charged to connections, and the octets that are leased.
    fn kept(&self) -> (u32, usize, usize) {
        let inner = &self.world.server.inner;
        let census = inner.census();
        let leased = inner.common.pool.gauges().leased_bytes - self.leased;
        (census.connections_held, census.memory_charged, leased)
    }
}

fn address(machine: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 1, machine))
}

#[test]
fn a_thousand_stopped_clients_leave_memory_to_others_and_take_no_more_places_than_their_share() {
    // Either half of the arguments have arrived and others are under way, or all Calls wait for the service.
    for waiting in [CROWD as usize / 2, CROWD as usize] {
        let mut crowd = Crowd::new();
        crowd.call();
        crowd.until(|crowd| crowd.world.server.service.waiting.len() >= waiting);
        assert!(crowd.kept().1 >= CROWD as usize / 2 * ARGUMENT, "{:?}", crowd.kept());
        crowd.stop();
        // All memory has returned except the sinks of Reads under way, the only memory that clients can still touch.
        let inner = &crowd.world.server.inner;
        let fills = |work: &&Work| matches!(work.held, Held::Read { .. });
        let reads = inner.common.posted.iter().filter(fills).count();
        assert!(reads < 10, "{reads} of the first who wait for memory");
        let stopped = (CROWD, reads * ARGUMENT, reads * ARGUMENT);
        assert_eq!(crowd.kept(), stopped);
        let (calls, receives) = (inner.responder.calls.len(), inner.common.receives.held());
        assert_eq!((calls as usize, receives as usize), (reads, reads));
        crowd.honest(ITEM_MAX);
        // A machine whose share is used up is refused another client, even one that runs.
        let refused = crowd.call_from(0);
        assert_eq!(refused, Err(CallError::Connect(ConnectError::Rejected)));
        assert_eq!(crowd.kept(), stopped);
        // Every second machine goes on, and the others die.
        for number in 0..MACHINES {
            if number.is_multiple_of(2) {
                crowd.world.fabric.go_on_copying(address(number));
            } else {
                crowd.machines[usize::from(number)] = None;
            }
        }
        crowd.until(|_| false);
        assert_eq!(crowd.kept(), (0, 0, 0));
        assert!(crowd.call_from(0).is_ok(), "there is a place again");
        crowd.honest(ITEM_MAX);
        all_home(&mut crowd.world.server, crowd.world.now);
    }
}
