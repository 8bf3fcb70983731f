//! Makes Calls between two cores on one thread, with a given number in flight, for `benches/counts` to count the
//! instructions of a Call at both ends.
//!
//! `turns null|read|write|getattr DEPTH BATCHES [iwarp|linux|sim|toy]`: over shm, or over another provider. `DEPTH`
//! Calls are in flight, and each one answered is followed by the next, until `DEPTH` times `BATCHES` Calls were made.
//! `linux` is version 1 with AUTH_SYS credentials over shm, as a Linux NFS client speaks; `sim` is the simulated fabric,
//! whose messages come in Receives as an RDMA device's do; `toy` takes every message. `getattr` asks the storage server
//! for the attributes of the root of a memory export, as a Linux client does.
#![forbid(unsafe_code)]

use std::env;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use haulage::pool::{PagePreference, Pool};
use haulage::proto::time::Instant;
use haulage::provider::shm::Shm;
use haulage::provider::sim::{Fabric, FabricConfig};
use haulage::provider::toy::{Messages, Toy};
use haulage::sys::clock;
use haulage_benches::{Kind, Part, Speech, World, loopback, memory, shm_part};
use haulage_proto::xdr::Writer;
use haulage_store::access::Policy;
use haulage_store::handle::Sealer;
use haulage_store::memory::{self, Memory};
use haulage_store::nfs3::Time;
use haulage_store::nfs3::binding::Limits;
use haulage_store::program::RESULTS_KEPT;
use haulage_store::replays::{self, Replays};
use haulage_store::server::gate::Gate;
use haulage_store::server::{Admission, Server};
use haulage_store::service::{Config, Service};
use haulage_store::trust::{Claims, Privilege, Trust};

fn main() {
    let mut arguments = env::args().skip(1);
    let kind = match arguments.next().as_deref() {
        Some("null") => Kind::Null,
        Some("read") => Kind::Read,
        Some("write") => Kind::Write,
        Some("getattr") => Kind::GetAttr,
        _ => panic!("null, read, write or getattr"),
    };
    let mut number = || arguments.next().and_then(|n| n.parse().ok()).expect("DEPTH BATCHES");
    let (depth, batches): (u64, u64) = (number(), number());
    let count = depth * batches;
    match (kind, arguments.next().as_deref()) {
        (Kind::GetAttr, None) => storage().batch(kind, depth, count),
        (_, None) => World::over_shm(Speech::Ours).batch(kind, depth, count),
        (_, Some("iwarp")) => World::over_iwarp(Speech::Ours).batch(kind, depth, count),
        (_, Some("linux")) => World::over_shm(Speech::Linux).batch(kind, depth, count),
        (_, Some("sim")) => over_the_fabric(kind, depth, count),
        (_, Some("toy")) => over_the_toy(kind, depth, count),
        (_, Some(_)) => panic!("iwarp, linux, sim, toy, or nothing for shm"),
    }
}

/// Makes Calls over the simulated fabric, whose time is virtual.
fn over_the_fabric(kind: Kind, depth: u64, count: u64) {
    let fabric = Fabric::new(FabricConfig { latency_max_ns: 1_000, ..FabricConfig::default() });
    let node = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
    let part = |last| {
        let provider = fabric.provider(node(last)).expect("a node of its own");
        Part { provider, pool: memory(PagePreference::Small) }
    };
    let mut now = Instant::ZERO;
    let at = SocketAddr::new(node(1), 20050);
    let mut world = World::new(now, [part(2), part(1)], at, Speech::Ours);
    world.call(now, kind, depth, count);
    while !world.is_done() {
        if !world.turn(now) {
            now = fabric.next_event().expect("a Call under way").max(now);
        }
    }
}

/// Makes Calls over the toy provider, which takes each message and reports it complete once it has arrived.
fn over_the_toy(kind: Kind, depth: u64, count: u64) {
    let net = Rc::default();
    let part = || {
        let provider = Toy::join(&net, Messages::Taken).expect("a descriptor for a waker");
        Part { provider, pool: memory(PagePreference::Small) }
    };
    World::new(clock::now(), [part(), part()], loopback(), Speech::Ours).batch(kind, depth, count);
}

/// Builds a storage server with a client that asks for the attributes of its root.
fn storage() -> World<Shm, Server<Memory>> {
    let limits = Limits { read_max: 1 << 20, write_max: 1 << 20, readdir_max: 1 << 16 };
    let mut root = Vec::new();
    let server = |pool: &Pool| {
        let files = memory::Limits { files_max: 100, names_max: 100 };
        let backend = Memory::new(pool, files, 1, Time::default()).expect("room for the files");
        let config = Config { policy: Policy::default(), read_only: false, limits };
        let service = Service::new(backend, Sealer::new(&[7; 32], 1), config);
        let mut arguments = [0; 64];
        let mut writer = Writer::new(&mut arguments);
        let encoded = writer.opaque(service.root().as_file_handle().bytes());
        encoded.expect("64 octets hold a file handle");
        root = writer.written().to_vec();
        let kept = replays::Limits::of_memory(1 << 20, RESULTS_KEPT);
        let trust = Trust {
            privilege: Privilege::Unprivileged,
            claims: Claims::All,
            anonymous_gid: 65_534,
            local_ports_reserved: 0,
        };
        let gate = Gate::new(Admission::default(), trust);
        Server::new(service, &limits, gate, Replays::new(&kept, 3))
    };
    let now = clock::now();
    let mut world =
        World::serving(now, [shm_part(), shm_part()], loopback(), Speech::Linux, server);
    world.names(now, root);
    world
}
