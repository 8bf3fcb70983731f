//! A server core and a client core, connected over the loopback and turned by the test.

use std::time::Duration;

use haulage::core::{Core, Cx, Service};
use haulage::limits::{LIMITS_DEFAULT, Limits};
use haulage::pool::{Local, PagePreference, Pool, PoolConfig};
use haulage::proto::time::Instant;
use haulage::provider::iwarp::{Backend, Config, Iwarp};
use haulage::service::{CallError, ConnectionId, Finished, Request};
use haulage::sys::clock;
use haulage_kv::index::Seed;
use haulage_kv::protocol::Procedure;
use haulage_kv::service::{KvService, binding};

/// Values up to this long.
pub(crate) const VALUE_MAX: usize = 4 << 20;

pub(crate) const LIMITS: Limits = Limits {
    connections_max: 16,
    receives_max: 256,
    calls_out_max: 128,
    send_buffers_max: 128,
    call_timeout: HANG,
    ..LIMITS_DEFAULT
};

/// Nothing here takes this long unless it hangs, whatever else the machine does.
pub(crate) const HANG: Duration = Duration::from_secs(120);

/// Keeps what became of the Calls it made.
#[derive(Debug, Default)]
pub(crate) struct Caller {
    pub(crate) ended: Vec<Ended>,
}

#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) token: u64,
    /// The status word of the Reply.
    pub(crate) status: Result<u32, CallError>,
    pub(crate) lease: Option<Local>,
}

impl Service for Caller {
    fn replied(&mut self, _: &mut Cx<'_>, token: u64, finished: Finished<'_>) {
        let Finished { results, arguments, rooms } = finished;
        let (argument, result) = (arguments.into_first(), rooms.into_first());
        let status = results.map(|mut results| results.u32().unwrap_or(u32::MAX));
        self.ended.push(Ended { token, status, lease: argument.or(result) });
    }
}

pub(crate) struct Pair {
    pub(crate) server: Core<Iwarp, KvService>,
    pub(crate) client: Core<Iwarp, Caller>,
    pub(crate) connections: Vec<ConnectionId>,
}

impl Pair {
    pub(crate) fn new(backend: Backend, connections: usize) -> Self {
        let pool = |bytes| {
            Pool::new(&PoolConfig { bytes, pages: PagePreference::Heap, node: None }).unwrap()
        };
        let config =
            Config { backend, connections_max: 64, registrations_max: 1024, ..Config::default() };
        let nic = || Iwarp::new(&config).unwrap();
        let service = KvService::new(256, Seed::fixed(1, 2), VALUE_MAX, 64 << 20);
        let mut server = Core::new(nic(), service, pool(ROOM), LIMITS, 1).unwrap();
        let caller = Caller { ended: Vec::with_capacity(256) };
        let mut client = Core::new(nic(), caller, pool(ROOM), LIMITS, 2).unwrap();
        let at = server.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let connect = |_| client.connect(clock::now(), at, binding(VALUE_MAX)).unwrap();
        let connections = (0..connections).map(connect).collect();
        Self { server, client, connections }
    }

    /// Turns both cores until `done`.
    pub(crate) fn until(&mut self, done: impl Fn(&Self) -> bool) {
        let start: Instant = clock::now();
        while !done(self) {
            let now = clock::now();
            assert!(now.saturating_since(start) < HANG, "no progress");
            self.server.turn(now);
            self.client.turn(now);
        }
    }

    /// Ends both cores in order.
    pub(crate) fn shut_down(&mut self) {
        let now = clock::now();
        self.client.begin_shutdown(now);
        self.server.begin_shutdown(now);
        self.until(|pair| pair.client.is_drained() && pair.server.is_drained());
    }

    pub(crate) fn lease(&mut self, length: usize) -> Local {
        let (cx, _) = self.client.cx(clock::now());
        cx.pool().lease(length).unwrap()
    }

    pub(crate) fn put(&mut self, connection: usize, token: u64, key: &str, value: Local) {
        let empty = value.is_empty();
        let argument = (!empty).then_some(value);
        self.call(connection, token, key, empty, request(Procedure::Put).argument(argument));
    }

    pub(crate) fn get(&mut self, connection: usize, token: u64, key: &str, room: Local) {
        let result = Some(room);
        self.call(connection, token, key, false, request(Procedure::Get).room(result));
    }

    fn call(&mut self, connection: usize, token: u64, key: &str, empty: bool, request: Request) {
        let connection = self.connections[connection];
        let (mut cx, _) = self.client.cx(clock::now());
        cx.call(connection, request, token, |w| {
            w.opaque(key.as_bytes())?;
            if empty { w.opaque(&[]) } else { Ok(()) }
        })
        .unwrap();
    }

    /// Waits until `count` Calls have ended and takes what became of them.
    pub(crate) fn ended(&mut self, count: usize) -> Vec<Ended> {
        self.until(|pair| pair.client.service().ended.len() == count);
        let (_, caller) = self.client.cx(clock::now());
        caller.ended.drain(..).collect()
    }
}

fn request(procedure: Procedure) -> Request {
    Request::new(procedure as u32)
}

/// 64 of the largest values, and what is stored meanwhile.
const ROOM: usize = 320 << 20;
