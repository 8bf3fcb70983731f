//! Makes Calls between two cores on one thread, so many at a time, for `benches/counts` to count the
//! instructions of a Call at both ends.
//!
//! `turns null|read|write DEPTH BATCHES`: a batch is `DEPTH` Calls that the client makes in one turn and
//! the server answers in one. A read and a write move [`ITEM`] octets by direct data placement.
#![forbid(unsafe_code)]

use std::env;
use std::net::{Ipv4Addr, SocketAddr};

use haulage::core::{Core, Cx};
use haulage::limits::{LIMITS_DEFAULT, Limits};
use haulage::pool::{Local, PagePreference, Pool, PoolConfig, Shared};
use haulage::proto::rpc::AcceptStat;
use haulage::provider::shm::{Config, Shm};
use haulage::service::{
    Binding, Call, ConnectionId, Data, Eligible, Finished, NoService, Outcome, Procedure, Reply,
    Request, Service,
};
use haulage::sys::clock;

const LIMITS: Limits =
    Limits { connections_max: 8, receives_max: 1024, send_buffers_max: 256, ..LIMITS_DEFAULT };

fn main() {
    let mut arguments = env::args().skip(1);
    let procedure = match arguments.next().as_deref() {
        Some("null") => 0,
        Some("read") => READ,
        Some("write") => WRITE,
        _ => panic!("null, read or write"),
    };
    let mut number = || arguments.next().and_then(|n| n.parse().ok()).expect("DEPTH BATCHES");
    let (depth, batches): (u64, u64) = (number(), number());
    let mut world = World::new();
    for _ in 0..batches {
        world.batch(procedure, depth);
    }
    assert_eq!(world.client.service().succeeded, depth * batches);
}

struct World {
    server: Core<Shm, Keeper>,
    client: Core<Shm, Caller>,
    connection: ConnectionId,
    made: u64,
}

impl World {
    fn new() -> Self {
        let parts = || {
            let memory = PoolConfig { bytes: 16 << 20, pages: PagePreference::Shared, node: None };
            let pool = Pool::new(&memory).expect("16 MiB of memory");
            (Shm::new(&Config::default(), &pool).expect("the shm provider works"), pool)
        };
        let ((here, ours), (there, theirs)) = (parts(), parts());
        let server = Core::new(there, Keeper { item: None }, theirs, LIMITS, 1);
        let client = Core::new(here, Caller::default(), ours, LIMITS, 2);
        let (mut server, mut client) = server.and_then(|s| Ok((s, client?))).expect("room enough");
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let at = server.listen(any).expect("a free name");
        let connection = client.connect(clock::now(), at, binding()).expect("a queue pair");
        Self { server, client, connection, made: 0 }
    }

    fn batch(&mut self, procedure: u32, depth: u64) {
        let now = clock::now();
        for _ in 0..depth {
            let (mut cx, caller) = self.client.cx(now);
            let mut lease = || caller.leases.pop().or_else(|| cx.pool().lease(ITEM));
            let (argument, result) = match procedure {
                READ => (None, lease()),
                WRITE => (lease(), None),
                _ => (None, None),
            };
            let request = Request { procedure, argument, result, timeout: None };
            let queued = cx.call(self.connection, request, self.made, |_| Ok(()));
            assert!(queued.is_ok(), "{:?}", queued.map_err(|(e, _)| e));
            self.made += 1;
        }
        while self.client.service().succeeded < self.made {
            self.client.turn(now);
            self.server.turn(now);
            if self.made <= depth {
                // Connecting is told by sockets, which are looked at as time passes.
                self.client.turn(clock::now());
                self.server.turn(clock::now());
            }
        }
    }
}

/// Keeps the item that was written last.
struct Keeper {
    item: Option<Shared>,
}

impl Service for Keeper {
    fn binding(&self) -> Binding {
        binding()
    }

    fn call(&mut self, cx: &mut Cx<'_>, call: Call<'_>, reply: &mut Reply) -> Outcome {
        match call.procedure {
            READ => {
                let item = self.item.get_or_insert_with(|| {
                    cx.pool().lease(ITEM).expect("room for an item").share()
                });
                reply.item(Data::Shared(item.clone()));
            }
            WRITE => {
                let (_, Ok(Some(_lease))) = call.arguments.into_parts() else {
                    return Outcome::Failed(AcceptStat::GarbageArgs);
                };
            }
            _ => {}
        }
        Outcome::Done
    }
}

fn binding() -> Binding {
    let procedures = vec![
        Procedure::new("NULL").idempotent(),
        Procedure::new("READ").result(Eligible::opaque(ITEM)).idempotent(),
        Procedure::new("WRITE").argument(Eligible::opaque(ITEM)).idempotent(),
    ];
    Binding { program: 0x2000_0001, version: 1, procedures }
}

const READ: u32 = 1;
const WRITE: u32 = 2;
/// Octets of an item.
const ITEM: usize = 4096;

#[derive(Default)]
struct Caller {
    succeeded: u64,
    leases: Vec<Local>,
}

impl Service for Caller {
    fn binding(&self) -> Binding {
        NoService.binding()
    }

    fn call(&mut self, _: &mut Cx<'_>, _: Call<'_>, _: &mut Reply) -> Outcome {
        Outcome::Failed(AcceptStat::ProcUnavail)
    }

    fn replied(&mut self, _: &mut Cx<'_>, _: u64, finished: Finished<'_>) {
        self.succeeded += u64::from(finished.results.is_ok());
        self.leases.extend(finished.argument.into_iter().chain(finished.result));
    }
}
