//! Makes Calls to a core on one thread, with a given number in flight, for `benches/counts` to count the instructions of a
//! Call at both ends, or at the server.
//!
//! `turns null|read|write|nfs-getattr|nfs-read|kv-get-32|kv-get-64k|kv-put-32|kv-put-32-beside|kv-put-32-watched|kv-mget
//! DEPTH BATCHES [group|iwarp|linux|sim|toy|tcp]`: over shm, or over another provider. `DEPTH` Calls are in flight, and each one answered is
//! followed by the next, until `DEPTH` times `BATCHES` Calls were made. `linux` is version 1 with AUTH_SYS credentials over
//! shm, as a Linux NFS client speaks; `sim` is the simulated fabric, whose messages come in Receives as an RDMA device's do;
//! `toy` takes every message. `group` is a server of two cores over shm, each of which serves one of two clients, with
//! `DEPTH` Calls in flight to each.
//!
//! The NFS Calls are those of a Linux client to the storage server, over shm or `tcp`: GETATTRs of the root of a memory
//! export, and READs of 4 KiB of a file in a directory on tmpfs. The key-value Calls are those of our own client over shm,
//! and go through some keys: the octets of the value are in the name, and an MGET is for four values of 32 octets.
//! Over `toy`, the PUTs of `kv-put-32-beside` go beside 127 connections that do nothing, and those of `kv-put-32-watched` beside as
//! many that watch all keys and do not answer.
#![forbid(unsafe_code)]

use std::env;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use haulage::pool::PagePreference;
use haulage::proto::time::Instant;
use haulage::provider::sim::{Fabric, FabricConfig};
use haulage::provider::toy::{Messages, Toy};
use haulage::sys::clock;
use haulage_benches::{Kind, Part, Speech, World, loopback, memory};
use haulage_kv::protocol::Procedure;

#[path = "turns/kv.rs"]
mod kv;
#[path = "turns/nfs.rs"]
mod nfs;

fn main() {
    let mut arguments = env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let mut number = || arguments.next().and_then(|n| n.parse().ok()).expect("DEPTH BATCHES");
    let (depth, batches): (u64, u64) = (number(), number());
    let count = depth * batches;
    let how = arguments.next();
    let kind = match (&*what, how.as_deref()) {
        ("null", _) => Kind::Null,
        ("read", _) => Kind::Read,
        ("write", _) => Kind::Write,
        ("nfs-getattr", None) => return nfs::attributes(depth, count),
        ("nfs-getattr", Some("tcp")) => return nfs::attributes_over_tcp(depth, count),
        ("nfs-read", None) => return nfs::reads(depth, count),
        ("nfs-read", Some("tcp")) => return nfs::reads_over_tcp(depth, count),
        ("kv-get-32", None) => return kv::gets(32, depth, count),
        ("kv-get-64k", None) => return kv::gets(64 << 10, depth, count),
        ("kv-put-32", None) => return kv::puts(depth, count),
        ("kv-put-32-beside", Some("toy")) => {
            return kv::puts_beside(toy_parts(), Procedure::Null, (depth, count));
        }
        ("kv-put-32-watched", Some("toy")) => {
            return kv::puts_beside(toy_parts(), Procedure::Watch, (depth, count));
        }
        ("kv-mget", None) => return kv::gets_of_several(depth, count),
        _ => panic!("the first lines of this example name what there is"),
    };
    match how.as_deref() {
        None => World::over_shm(Speech::Ours).batch(kind, depth, count),
        Some("group") => over_a_group(kind, depth, count),
        Some("iwarp") => World::over_iwarp(Speech::Ours).batch(kind, depth, count),
        Some("linux") => World::over_shm(Speech::Linux).batch(kind, depth, count),
        Some("sim") => over_the_fabric(kind, depth, count),
        Some("toy") => over_the_toy(kind, depth, count),
        Some(_) => panic!("group, iwarp, linux, sim, toy, or nothing for shm"),
    }
}

/// Makes Calls to two cores that serve one address, as many to each.
fn over_a_group(kind: Kind, depth: u64, count: u64) {
    let mut worlds = World::group_over_shm();
    worlds.iter_mut().for_each(|world| world.call(clock::now(), kind, depth, count));
    while !worlds.iter().all(World::is_done) {
        let now = clock::now();
        for world in &mut worlds {
            world.turn(now);
        }
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
    World::new(clock::now(), toy_parts(), loopback(), Speech::Ours).batch(kind, depth, count);
}

fn toy_parts() -> [Part<Toy>; 2] {
    let net = Rc::default();
    let part = || {
        let provider = Toy::join(&net, Messages::Taken).expect("a descriptor for a waker");
        Part { provider, pool: memory(PagePreference::Small) }
    };
    [part(), part()]
}
