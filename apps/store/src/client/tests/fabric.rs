//! The client and our server, each on a core, on the simulated fabric.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use haulage::core::{ConnectOptions, Core, Cx, Service as Runtime};
use haulage::identity::{Identity, User};
use haulage::limits::{LIMITS_DEFAULT, Limits as CoreLimits, Versions};
use haulage::provider::sim::{Fabric, FabricConfig, Sim};
use haulage::service::{ConnectionId, Finished, Request};
use haulage_proto::time::Instant;

use super::super::listing::Listing;
use super::*;
use crate::access::Squash;
use crate::nfs3::binding::binding;
use crate::program::RESULTS_KEPT;
use crate::replays::{self, Replays};
use crate::server::gate::Gate;
use crate::server::{Admission, Server};
use crate::trust::Trust;

/// A client's core and a server's core, turned while the client waits.
struct Far {
    fabric: Fabric,
    now: Instant,
    server: Core<Sim, Server<Memory>>,
    client: Core<Sim, Collector>,
    connection: ConnectionId,
    next: u64,
}

/// A service that keeps the results of Calls.
#[derive(Debug, Default)]
struct Collector {
    ended: Vec<(u64, Result<Answer, CallError>)>,
}

impl Runtime for Collector {
    fn replied(&mut self, _: &mut Cx<'_>, token: u64, finished: Finished<'_>) {
        let Finished { results, arguments, rooms } = finished;
        let (argument, result) = (arguments.into_first(), rooms.into_first());
        let outcome = results.map(|reader| Answer::new(&reader, Items { argument, result }));
        self.ended.push((token, outcome));
    }
}

fn pool(bytes: usize) -> Pool {
    Pool::new(&PoolConfig { bytes, pages: PagePreference::Heap, node: None }).unwrap()
}

impl Far {
    fn client(versions: Versions) -> Client<Self> {
        let fabric = Fabric::new(FabricConfig::default());
        let node = |n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
        let limits = |versions| CoreLimits {
            versions,
            connections_max: 8,
            receives_max: 64,
            calls_out_max: 32,
            send_buffers_max: 64,
            ..LIMITS_DEFAULT
        };
        let own = pool(48 << 20);
        let files = memory::Limits { files_max: 1000, names_max: 1000 };
        let backend = Memory::new(&own, files, 1, Time::default()).unwrap();
        let policy = Policy { squash: Squash::Nobody, ..Policy::default() };
        let config = Config { policy, read_only: false, limits: LARGE };
        let service = Service::new(backend, Sealer::new(&[7; 32], 9), config);
        let root = File::from(service.root().as_file_handle());
        let gate = Gate::new(Admission::default(), Trust::ALL);
        let replays = replays::Limits::of_memory(4 << 20, RESULTS_KEPT);
        let replays = Replays::new(&replays, 3);
        let service = Server::new(service, &LARGE, gate, replays);
        let mut server =
            Core::new(fabric.provider(node(1)).unwrap(), service, own, limits(versions), 1)
                .unwrap();
        let provider = fabric.provider(node(2)).unwrap();
        let room = pool(memory_max(&LARGE) + (4 << 20));
        let ours = limits(Versions::Both);
        let mut client = Core::new(provider, Collector::default(), room, ours, 2).unwrap();
        let at = server.listen(SocketAddr::new(node(1), 20049)).unwrap();
        let us = Identity::User(User::new("tests", 0, 0, &[7]));
        let options = ConnectOptions::new(binding(&LARGE)).identity(us);
        let connection = client.connect(Instant::ZERO, at, options).unwrap();
        let far = Self { fabric, now: Instant::ZERO, server, client, connection, next: 0 };
        Client::new(far, root, LARGE).unwrap()
    }

    fn turn(&mut self) {
        if !(self.server.turn(self.now) | self.client.turn(self.now)) {
            let next = self.fabric.next_event().into_iter();
            let next = next.chain(self.server.poll_deadline()).chain(self.client.poll_deadline());
            self.now = next.min().expect("something is to happen").max(self.now);
        }
    }
}

impl Requester for Far {
    fn lease(&mut self, length: usize) -> Result<Local, CallError> {
        let (cx, _) = self.client.cx(self.now);
        cx.pool().lease(length).ok_or(CallError::Busy)
    }

    fn begin(&mut self, arguments: &Arguments<'_>, items: Items) -> Result<u64, CallError> {
        let Items { argument, result } = items;
        let reduced = argument.is_some();
        let procedure = arguments.procedure().number();
        let request = Request::new(procedure).argument(argument).room(result);
        self.next += 1;
        let (mut cx, _) = self.client.cx(self.now);
        let encode = |w: &mut Writer<'_>| {
            if reduced { encode_reduced(arguments, w) } else { arguments.encode(w) }
        };
        cx.call(self.connection, request, self.next, encode).map_err(|(error, _)| error)?;
        Ok(self.next)
    }

    fn ended(&mut self) -> Result<(u64, Result<Answer, CallError>), CallError> {
        for _ in 0..1_000_000 {
            let (_, collector) = self.client.cx(self.now);
            if let Some(ended) = collector.ended.pop() {
                return Ok(ended);
            }
            self.turn();
        }
        panic!("no Reply");
    }

    fn pause(&mut self, time: Duration) {
        let until = self.now.saturating_add(time);
        while self.now < until {
            self.turn();
        }
    }
}

const LARGE: Limits = Limits { read_max: 256 << 10, write_max: 256 << 10, readdir_max: 32 << 10 };

const SPOKEN: [(Versions, Version); 2] =
    [(Versions::OnlyOne, Version::One), (Versions::Both, Version::Two)];

#[test]
fn files_go_there_and_back_in_either_version() {
    for (versions, version) in SPOKEN {
        let mut client = Far::client(versions);
        let root = client.root;
        for (n, length) in [0, 1, 3, 2000, 4093, 4096, 5001, (3 << 20) + 5].into_iter().enumerate()
        {
            let made = client.create(&root, format!("{n}").as_bytes(), 0o600).unwrap();
            let octets = pattern(length);
            let mut rest = &octets[..];
            let written = client.write(&made.file, |room| std::io::Read::read(&mut rest, room));
            assert_eq!(written.unwrap(), length as u64, "{version}");
            let mut back = Vec::new();
            let read = client.read(&made.file, length as u64, |piece| {
                back.extend_from_slice(piece);
                Ok(())
            });
            assert_eq!(read.unwrap(), length as u64, "{version}");
            assert!(back == octets, "{version}, {length}");
        }
        let counters = client.requester.client.provider_counters();
        assert!(counters.invalidated_remote > 0, "{version}: by chunks");
    }
}

#[test]
fn paths_and_listings_work_in_either_version() {
    for (versions, version) in SPOKEN {
        let mut client = Far::client(versions);
        let root = client.root;
        for n in 0..500 {
            client.create(&root, format!("{n:0>100}").as_bytes(), 0o600).unwrap();
        }
        let mut listing = Listing::new(root);
        let mut count = 0;
        while let Some(entry) = listing.next(&mut client).unwrap() {
            assert_eq!((entry.name.len(), entry.file.is_some()), (100, true));
            count += 1;
        }
        assert_eq!(count, 500, "{version}");
        let at = DirName { dir: root.handle(), name: Name(b"link") };
        for target in ["0", &"./".repeat(2000)] {
            let attributes = SetAttributes::default();
            let mut lease = client.requester.lease(target.len()).unwrap();
            lease.bytes_mut().copy_from_slice(target.as_bytes());
            let path = Path(Item::Reduced { length: target.len() as u64 });
            let link = Arguments::Symlink(Symlink { at, attributes, path });
            let mut lease = Some(lease);
            let items = || Items { argument: lease.take(), result: None };
            let made = ask(&mut client.requester, &link, items).unwrap();
            assert_eq!(made.status(), Some(Status::Ok), "{version}");
            let found = client.look_up(&root, b"link").unwrap();
            assert_eq!(client.read_link(&found.file).unwrap(), target.as_bytes(), "{version}");
            let gone = client.ask(&Arguments::Remove(at)).unwrap();
            assert_eq!(gone.status(), Some(Status::Ok));
        }
    }
}

#[test]
fn a_server_knows_who_calls() {
    let mut client = Far::client(Versions::Both);
    let root = client.root;
    let made = client.create(&root, b"ours", 0o600).unwrap();
    assert_eq!((made.attributes.uid, made.attributes.gid), (0, 0), "not a nobody");
}
