//! A server on the simulated fabric, called over RDMA by a core and over TCP by a thread.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};

use haulage::core::{Core, TcpLimits};
use haulage::limits::{LIMITS_DEFAULT, Limits as CoreLimits, Versions};
use haulage::provider::sim::{Fabric, FabricConfig, Sim};
use haulage::service::{AUTH_SYS, CallError, ConnectionId, Finished, Request, TransportError};
use haulage::sys::clock;
use haulage_mr_pool::{Local, PagePreference, Pool, PoolConfig};
use haulage_proto::chunk::{Item, PayloadReader};
use haulage_proto::rpc::record::Mark;
use haulage_proto::rpc::{AuthSys, CallHeader, Credential, RejectStat, ReplyBody, ReplyHeader};
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::xdr::{Truncated, Writer};

use super::*;
use crate::access::{Policy, Squash};
use crate::handle::Sealer;
use crate::memory::{self, Memory};
use crate::mount3;
use crate::nfs3::arguments::{Create, How, Read, Stable, Write};
use crate::nfs3::{
    self, Arguments, DirName, FileHandle, Name, Procedure, Results, SetAttributes, Status,
};
use crate::program::RESULTS_KEPT;
use crate::replays;
use crate::service::Config;
use crate::testing::{words, written};
use crate::trust::{Claims, Privilege, Trust};

mod stale;
mod turns;
mod twice;

const TCP_LIMITS: TcpLimits = TcpLimits { record_max: 8192, ..TcpLimits::DEFAULT };
const LIMITS: Limits = Limits { read_max: 1 << 20, write_max: 1 << 20, readdir_max: 64 << 10 };

/// A server's core and a client's core.
struct World<B = Memory> {
    fabric: Fabric,
    now: Instant,
    server: Core<Sim, Server<B>>,
    client: Core<Sim, Asker>,
    connection: ConnectionId,
    tcp_limits: TcpLimits,
}

/// A service that records the ends of Calls in order, by number.
#[derive(Debug, Default)]
struct Asker {
    ended: VecDeque<(u64, Ended)>,
}

/// The results of a Call, and the lease of a reduced one.
type Ended = (Result<Vec<u8>, CallError>, Option<Local>);

impl haulage::core::Service for Asker {
    fn replied(&mut self, _: &mut Cx<'_>, number: u64, finished: Finished<'_>) {
        let results = finished.results.map(|results| results.rest().to_vec());
        self.ended.push_back((number, (results, finished.rooms.into_first())));
    }
}

fn pool(bytes: usize) -> Pool {
    Pool::new(&PoolConfig { bytes, pages: PagePreference::Heap, node: None }).unwrap()
}

impl World {
    fn new(versions: Versions, admission: Admission) -> Self {
        Self::with(versions, admission, Trust::ALL, TCP_LIMITS)
    }

    fn with(versions: Versions, admission: Admission, trust: Trust, tcp_limits: TcpLimits) -> Self {
        let gate = Gate::new(admission, trust);
        Self::of(versions, gate, tcp_limits, |pool| {
            let files = memory::Limits { files_max: 100, names_max: 100 };
            Memory::new(pool, files, 1, Time::default()).unwrap()
        })
    }
}

impl<B: Backend> World<B> {
    fn of(
        versions: Versions,
        gate: Gate,
        tcp_limits: TcpLimits,
        backend: impl FnOnce(&Pool) -> B,
    ) -> Self {
        let fabric = Fabric::new(FabricConfig::default());
        let node = |n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
        let core_limits = CoreLimits {
            versions,
            connections_max: 8,
            receives_max: 64,
            send_buffers_max: 64,
            ..LIMITS_DEFAULT
        };
        let own = pool(32 << 20);
        let backend = backend(&own);
        let policy = Policy { squash: Squash::Nobody, ..Policy::default() };
        let config = Config { policy, read_only: false, limits: LIMITS };
        let service = Service::new(backend, Sealer::new(&[7; 32], 9), config);
        let replays = replays::Limits::of_memory(64 << 20, RESULTS_KEPT);
        let replays = Replays::new(&replays, 3);
        let service = Server::new(service, &LIMITS, gate, replays);
        let provider = fabric.provider(node(1)).unwrap();
        let mut server = Core::new(provider, service, own, core_limits, 1).unwrap();
        let provider = fabric.provider(node(2)).unwrap();
        let mut client =
            Core::new(provider, Asker::default(), pool(16 << 20), core_limits, 2).unwrap();
        let at = server.listen(SocketAddr::new(node(1), 20049)).unwrap();
        let connection = client.connect(Instant::ZERO, at, binding(&LIMITS)).unwrap();
        Self { fabric, now: Instant::ZERO, server, client, connection, tcp_limits }
    }

    /// Opens another connection, on which later Calls are made.
    fn connect(&mut self, binding: Binding) {
        let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 20049);
        self.connection = self.client.connect(self.now, at, binding).unwrap();
    }

    fn root(&mut self) -> Vec<u8> {
        let (_, server) = self.server.cx(self.now);
        server.nfs.service_mut().root().as_file_handle().bytes().to_vec()
    }

    fn lease(&mut self, length: usize) -> Local {
        let (cx, _) = self.client.cx(self.now);
        cx.pool().lease(length).unwrap()
    }

    /// Makes a Call over RDMA; an argument that is reduced is the last one.
    fn ask(&mut self, arguments: &Arguments<'_>, leases: [Option<Local>; 2]) -> Ended {
        self.begin(0, arguments, leases);
        let (number, ended) = self.end();
        assert_eq!(number, 0);
        ended
    }

    /// Begins a Call over RDMA.
    fn begin(
        &mut self,
        number: u64,
        arguments: &Arguments<'_>,
        [argument, result]: [Option<Local>; 2],
    ) {
        let mut stream = written(|w| arguments.encode(w));
        // The runtime writes the length of an argument that has a lease.
        stream.truncate(stream.len() - if argument.is_some() { 4 } else { 0 });
        let procedure = arguments.procedure().number();
        let request = Request::new(procedure).argument(argument).room(result);
        let (mut cx, _) = self.client.cx(self.now);
        cx.call(self.connection, request, number, |w| w.put(&stream)).unwrap();
    }

    /// Returns the number and the outcome of the next Call that ends.
    fn end(&mut self) -> (u64, Ended) {
        for _ in 0..100_000 {
            let (_, asker) = self.client.cx(self.now);
            if let Some(ended) = asker.ended.pop_front() {
                return ended;
            }
            let worked = self.server.turn(self.now) | self.client.turn(self.now);
            // Messages under way arrive while a core goes on working.
            let mut next: Vec<_> = self.fabric.next_event().into_iter().collect();
            if !worked {
                next.extend(self.server.poll_deadline());
                next.extend(self.client.poll_deadline());
                assert!(!next.is_empty(), "something is to happen");
            }
            self.now = next.into_iter().min().map_or(self.now, |next| next.max(self.now));
        }
        panic!("no answer");
    }

    /// Serves over TCP at another port.
    fn listen_tcp(&mut self) -> SocketAddr {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        self.server.listen_tcp(at, self.tcp_limits).unwrap()
    }

    /// Turns the server until `client`, which calls it over TCP, is done.
    fn serve<T: Send + 'static>(
        &mut self,
        client: impl FnOnce(SocketAddr) -> T + Send + 'static,
    ) -> T {
        let at = self.listen_tcp();
        let thread = std::thread::Builder::new().spawn(move || client(at)).unwrap();
        let (began, now) = (clock::now(), self.now);
        while !thread.is_finished() {
            self.now = now.saturating_add(clock::now().saturating_since(began));
            self.server.turn(self.now);
            std::thread::yield_now();
        }
        thread.join().unwrap()
    }
}

fn handle(bytes: &[u8]) -> FileHandle<'_> {
    FileHandle::new(bytes).unwrap()
}

fn create<'a>(dir: &'a [u8], name: &'a [u8]) -> Arguments<'a> {
    let how = How::Guarded(SetAttributes { mode: Some(0o600), ..SetAttributes::default() });
    Arguments::Create(Create { at: DirName { dir: handle(dir), name: Name(name) }, how })
}

/// One Call as a record, its arguments being `arguments`.
fn record(
    xid: u32,
    (program, version, procedure): (u32, u32, u32),
    arguments: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
) -> Vec<u8> {
    let credential = Credential::Sys(AuthSys::new(0, b"tests", 0, 0));
    record_of(credential, xid, (program, version, procedure), arguments)
}

/// One Call with this credential as a record.
fn record_of(
    credential: Credential<'_>,
    xid: u32,
    (program, version, procedure): (u32, u32, u32),
    arguments: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
) -> Vec<u8> {
    let header = CallHeader { credential, ..CallHeader::new(xid, program, version, procedure) };
    framed(&written(|w| header.encode(w).and_then(|()| arguments(w))))
}

fn framed(octets: &[u8]) -> Vec<u8> {
    let mark = Mark::last(u32::try_from(octets.len()).unwrap()).unwrap();
    [&mark.encode(), octets].concat()
}

/// Returns the next Reply, as its header and its results; `None` if the server closed the connection.
fn reply(stream: &mut TcpStream) -> Option<(u32, ReplyBody, Vec<u8>)> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).ok()?;
    let mark = Mark::decode(mark);
    assert!(mark.is_last());
    let mut octets = vec![0; mark.length() as usize];
    stream.read_exact(&mut octets).unwrap();
    let (header, at) = ReplyHeader::decode(&octets).unwrap();
    Some((header.xid, header.body, octets[at..].to_vec()))
}

const SUCCESS: ReplyBody = ReplyBody::Accepted(AcceptStat::Success);

#[test]
fn a_file_goes_there_and_comes_back_by_direct_data_placement() {
    for versions in [Versions::OnlyOne, Versions::OnlyTwo] {
        let mut world = World::new(versions, Admission::default());
        let root = world.root();
        let (made, _) = world.ask(&create(&root, b"file"), [None, None]);
        let made = made.unwrap();
        let procedure = Procedure::Create;
        let made = Results::decode(procedure, &mut PayloadReader::call(&made, 0, None)).unwrap();
        let Results::Create(Ok(made)) = made else { panic!("{made:?}") };
        let file = made.file.unwrap().bytes().to_vec();

        let length = 300_001_u32;
        let mut data = world.lease(length as usize);
        data.bytes_mut().iter_mut().zip((0..=250).cycle()).for_each(|(place, n)| *place = n);
        let octets = data.bytes().to_vec();
        let reduced = nfs3::Data(Item::Reduced { length: u64::from(length) });
        let (offset, count, stable) = (10, length, Stable::FileSync);
        let write = Write { file: handle(&file), offset, count, stable, data: reduced };
        let (results, _) = world.ask(&Arguments::Write(write), [Some(data), None]);
        assert_eq!(results.unwrap()[..4], [0; 4], "{versions:?}");

        let room = world.lease(1 << 20);
        let read = Arguments::Read(Read { file: handle(&file), offset: 5, count: 1 << 20 });
        let (results, data) = world.ask(&read, [None, Some(room)]);
        assert_eq!(results.unwrap()[..4], [0; 4]);
        let read = data.unwrap();
        assert_eq!(read.bytes()[..5], [0; 5], "a hole");
        assert!(read.bytes()[5..] == octets, "{versions:?}");
    }
}

/// Declares that READ reduces nothing, and that its Reply has at most `length` octets.
fn whole_reads(length: u32) -> Binding {
    let mut whole = binding(&LIMITS);
    let read = runtime::Procedure::new("READ").results_max(0);
    let header = u32::try_from(read.reply_max(&[])).unwrap();
    whole.procedures[Procedure::Read.number() as usize] = read.results_max(length - header);
    whole
}

#[test]
fn a_read_that_is_refused_is_answered_once_its_reply_chunk_is_as_long_as_told() {
    let mut world = World::new(Versions::OnlyTwo, Admission::default());
    let root = world.root();
    let made = world.ask(&create(&root, b"file"), [None, None]).0.unwrap();
    let made =
        Results::decode(Procedure::Create, &mut PayloadReader::call(&made, 0, None)).unwrap();
    let Results::Create(Ok(made)) = made else { panic!("{made:?}") };
    let file = made.file.unwrap().bytes().to_vec();
    for length in [20_000_u32, 20_001] {
        let mut data = world.lease(length as usize);
        data.bytes_mut().fill(9);
        let reduced = nfs3::Data(Item::Reduced { length: u64::from(length) });
        let (offset, count, stable) = (0, length, Stable::FileSync);
        let write = Write { file: handle(&file), offset, count, stable, data: reduced };
        world.connect(binding(&LIMITS));
        assert_eq!(world.ask(&Arguments::Write(write), [Some(data), None]).0.unwrap()[..4], [0; 4]);

        let read = Arguments::Read(Read { file: handle(&file), offset: 0, count: length });
        world.connect(whole_reads(1000));
        let (refused, _) = world.ask(&read, [None, None]);
        let Err(CallError::Refused(TransportError::Two(ErrorBody::ReplyResource {
            length_needed,
        }))) = refused
        else {
            panic!("{refused:?}")
        };
        world.connect(whole_reads(length_needed));
        let (results, _) = world.ask(&read, [None, None]);
        let results = results.unwrap();
        let results =
            Results::decode(Procedure::Read, &mut PayloadReader::call(&results, 0, None)).unwrap();
        let Results::Read(Ok(read)) = results else { panic!("{results:?}") };
        assert_eq!(read.data.0, Item::Unreduced(&vec![9; length as usize]));
    }
}

#[test]
fn mount_is_served_at_the_port_of_nfs() {
    for versions in [Versions::OnlyOne, Versions::OnlyTwo] {
        let mut world = World::new(versions, Admission::default());
        let root = world.root();
        world.connect(mount3::binding());
        let mut ask = |arguments: mount3::Arguments<'_>| {
            let procedure = arguments.procedure();
            let request = Request::new(procedure.number());
            let (mut cx, _) = world.client.cx(world.now);
            cx.call(world.connection, request, 0, |w| arguments.encode(w)).unwrap();
            let (_, (results, _)) = world.end();
            (procedure, results.unwrap())
        };
        let path = mount3::Path(b"/");
        let lists_us = |(_, octets): (_, Vec<u8>)| octets.windows(8).any(|it| it == b"10.0.0.2");
        assert_eq!(ask(mount3::Arguments::Null).1, []);
        let (_, mounted) = ask(mount3::Arguments::Mnt(path));
        let length = u32::try_from(root.len()).unwrap().to_be_bytes();
        assert!(mounted.starts_with(&[&[0; 4], &length[..], &root].concat()), "{mounted:?}");
        assert!(lists_us(ask(mount3::Arguments::Dump)));
        let (procedure, exports) = ask(mount3::Arguments::Export);
        let mut reader = PayloadReader::call(&exports, 0, None);
        let exports = mount3::Results::decode(procedure, &mut reader).unwrap();
        let mount3::Results::Export(exports) = exports else { panic!("{exports:?}") };
        assert_eq!(exports.iter().map(|export| export.path).collect::<Vec<_>>(), [path]);
        assert_eq!(ask(mount3::Arguments::Umnt(path)).1, []);
        assert!(!lists_us(ask(mount3::Arguments::Dump)));
        let (_, refused) = ask(mount3::Arguments::Mnt(mount3::Path(b"/none")));
        assert_eq!(refused, [0, 0, 0, 2], "there is no such directory");
    }
}

#[test]
fn a_long_listing_comes_in_the_reply_chunk() {
    let mut world = World::new(Versions::OnlyOne, Admission::default());
    let root = world.root();
    let names: Vec<_> = (0..90).map(|n| format!("{n:0>200}")).collect();
    for name in &names {
        assert_eq!(
            world.ask(&create(&root, name.as_bytes()), [None, None]).0.unwrap()[..4],
            [0; 4]
        );
    }
    let all = nfs3::arguments::ReadDirPlus {
        dir: handle(&root),
        cookie: 0,
        verifier: nfs3::Verifier(0),
        count: 60_000,
        count_max: 60_000,
    };
    let (results, _) = world.ask(&Arguments::ReadDirPlus(all), [None, None]);
    let results = results.unwrap();
    let mut reader = PayloadReader::call(&results, 0, None);
    let listed = Results::decode(Procedure::ReadDirPlus, &mut reader).unwrap();
    let Results::ReadDirPlus(Ok(listed)) = listed else { panic!("{listed:?}") };
    assert!(results.len() > 4096);
    // The list also has `.` and `..`.
    assert_eq!(listed.names.iter().count(), names.len() + 2);
}

#[test]
fn what_to_mount_is_found_over_tcp() {
    let mut world = World::new(Versions::Both, Admission::default());
    let root = world.root();
    let results = world.serve(|at| {
        let mut stream = TcpStream::connect(at).unwrap();
        let program =
            |procedure: mount3::Procedure| (mount3::PROGRAM, mount3::VERSION, procedure.number());
        let asked: [&[u8]; 5] = [b"/", b"//", b"", b"/elsewhere", b"elsewhere"];
        let mut results = Vec::new();
        for (xid, path) in (1..).zip(asked) {
            let mnt = record(xid, program(mount3::Procedure::Mnt), |w| w.opaque(path));
            stream.write_all(&mnt).unwrap();
            results.push(reply(&mut stream).unwrap());
        }
        stream.write_all(&record(6, program(mount3::Procedure::Export), |_| Ok(()))).unwrap();
        results.push(reply(&mut stream).unwrap());
        results
    });
    let decode = |procedure, results: &Vec<u8>| {
        let mut reader = PayloadReader::call(results, 0, None);
        format!("{:?}", mount3::Results::decode(procedure, &mut reader).unwrap())
    };
    let mounted = mount3::Results::Mnt(Ok(mount3::Mounted {
        root: handle(&root),
        flavors: mount3::Flavors::SYS,
    }));
    let expected = format!("{mounted:?}");
    for ((xid, body, found), wanted) in results[..3].iter().zip(1..) {
        assert_eq!((*xid, body), (wanted, &SUCCESS));
        assert_eq!(decode(mount3::Procedure::Mnt, found), expected);
    }
    assert_eq!(decode(mount3::Procedure::Mnt, &results[3].2), "Mnt(Err(NoEnt))");
    assert_eq!(decode(mount3::Procedure::Mnt, &results[4].2), "Mnt(Err(Inval))");
    // One export, its path, no hosts, no more exports.
    assert_eq!(results[5].2, words(&[1, 1, u32::from(b'/') << 24, 0, 0]));
}

#[test]
fn a_call_that_comes_twice_is_carried_out_once() {
    let mut world = World::new(Versions::Both, Admission::default());
    let root = world.root();
    let statuses = world.serve(move |at| {
        let create = create(&root, b"once");
        let status = |xid| {
            let program = (nfs3::PROGRAM, nfs3::VERSION, Procedure::Create.number());
            // Each Call comes from another port.
            let mut stream = TcpStream::connect(at).unwrap();
            stream.write_all(&record(xid, program, |w| create.encode(w))).unwrap();
            let (_, body, results) = reply(&mut stream).unwrap();
            assert_eq!(body, SUCCESS);
            break_off(stream);
            results[3]
        };
        [status(1), status(1), status(2)]
    });
    let exists = u8::try_from(Status::Exist.number()).unwrap();
    assert_eq!(statuses, [0, 0, exists], "a new XID is a new Call");
}

/// Closes a connection in the middle of a record, as a client does that gives it up.
fn break_off(mut stream: TcpStream) {
    stream.write_all(&[0x80]).unwrap();
}

#[test]
fn what_is_no_call_of_ours_is_refused_and_what_is_no_call_hangs_up() {
    let mut world = World::new(Versions::Both, Admission::default());
    let ends = world.serve(|at| {
        let asked = |octets: &[u8]| {
            let mut stream = TcpStream::connect(at).unwrap();
            stream.write_all(octets).unwrap();
            reply(&mut stream).map(|(_, body, _)| body)
        };
        let too_long = Mark::last(8193).unwrap().encode();
        [
            asked(&record(1, (nfs3::PROGRAM, nfs3::VERSION, 22), |_| Ok(()))),
            asked(&record(1, (nfs3::PROGRAM, nfs3::VERSION, 1), |_| Ok(()))),
            asked(&record(1, (nfs3::PROGRAM, 4, 0), |_| Ok(()))),
            asked(&record(1, (mount3::PROGRAM, 1, 0), |_| Ok(()))),
            asked(&record(1, (mount3::PROGRAM, mount3::VERSION, 9), |_| Ok(()))),
            asked(&record(1, (100_227, 3, 0), |_| Ok(()))),
            asked(&framed(&[0, 0, 0, 1, 0, 0, 0, 1])),
            asked(&too_long),
        ]
    });
    let accepted = |stat| Some(ReplyBody::Accepted(stat));
    let mismatch = accepted(AcceptStat::ProgMismatch { low: 3, high: 3 });
    let unavailable = accepted(AcceptStat::ProcUnavail);
    assert_eq!(
        ends,
        [
            unavailable,
            accepted(AcceptStat::GarbageArgs),
            mismatch,
            mismatch,
            unavailable,
            accepted(AcceptStat::ProgUnavail),
            None,
            None,
        ]
    );
}

#[test]
fn only_those_are_admitted_who_are_to_be() {
    let networks = vec![("10.0.0.0".parse().unwrap(), 8), ("2001:db8::".parse().unwrap(), 33)];
    let some = Admission { networks };
    for (address, admitted) in [
        ("10.255.0.1", true),
        ("11.0.0.1", false),
        ("::ffff:10.1.2.3", true),
        ("2001:db8:7fff::1", true),
        ("2001:db8:8000::1", false),
    ] {
        assert_eq!(some.admits(address.parse().unwrap()), admitted, "{address}");
        assert!(Admission::default().admits(address.parse().unwrap()), "{address}");
    }
    let everywhere = Admission { networks: vec![("0.0.0.0".parse().unwrap(), 0)] };
    assert!(everywhere.admits("203.0.113.9".parse().unwrap()));
    assert!(!everywhere.admits("::1".parse().unwrap()));

    let nobody = Admission { networks: vec![("192.0.2.1".parse().unwrap(), 32)] };
    let mut world = World::new(Versions::Both, nobody);
    let (refused, _) = world.ask(&Arguments::Null, [None, None]);
    assert!(matches!(refused, Err(CallError::Connect(_))), "{refused:?}");
    let answered = world.serve(|at| {
        let mut stream = TcpStream::connect(at).unwrap();
        let null = record(1, (nfs3::PROGRAM, nfs3::VERSION, 0), |_| Ok(()));
        stream.write_all(&null).is_ok() && reply(&mut stream).is_some()
    });
    assert!(!answered);
}

#[test]
fn an_address_that_may_not_mount_is_told_so() {
    let nobody = Admission { networks: vec![("192.0.2.1".parse().unwrap(), 32)] };
    let mut world = World::new(Versions::Both, nobody);
    let program =
        |procedure: mount3::Procedure| (mount3::PROGRAM, mount3::VERSION, procedure.number());
    let (null, refused, exports, calls) = world.serve(move |at| {
        let mut stream = TcpStream::connect(at).unwrap();
        let mut ask = |procedure: mount3::Procedure| {
            let call = record(1, program(procedure), |w| match procedure {
                mount3::Procedure::Mnt => w.opaque(b"/"),
                _ => Ok(()),
            });
            stream.write_all(&call).ok().and_then(|()| reply(&mut stream))
        };
        let (null, refused) = (ask(mount3::Procedure::Null), ask(mount3::Procedure::Mnt));
        let exports = ask(mount3::Procedure::Export);
        let mut stream = TcpStream::connect(at).unwrap();
        let mut calls = 0;
        // A stranger has a few Calls, then the connection ends.
        while stream.write_all(&record(1, program(mount3::Procedure::Null), |_| Ok(()))).is_ok()
            && reply(&mut stream).is_some()
        {
            calls += 1;
        }
        (null, refused, exports, calls)
    });
    assert_eq!(null, Some((1, SUCCESS, Vec::new())));
    let (_, body, results) = refused.unwrap();
    assert_eq!((body, results), (SUCCESS, words(&[mount3::Status::Acces.number()])));
    assert_eq!(exports, None, "what is exported to whom is not for strangers");
    assert!((2..10).contains(&calls), "{calls}");
    let (_, server) = world.server.cx(world.now);
    assert_eq!(server.figures().mounts_refused, 1);
}

#[test]
fn calls_over_tcp_of_other_flavors_are_denied() {
    let mut world = World::new(Versions::Both, Admission::default());
    let denied = world.serve(|at| {
        let mut stream = TcpStream::connect(at).unwrap();
        let mut ask = |credential, program| {
            stream.write_all(&record_of(credential, 7, program, |_| Ok(()))).unwrap();
            reply(&mut stream).unwrap()
        };
        // RPCSEC_GSS that begins a context, and AUTH_SYS without a body.
        let gss = Credential::Other { flavor: 6, body: &[0, 0, 0, 1, 0, 0, 0, 1] };
        let empty = Credential::Other { flavor: AUTH_SYS, body: &[] };
        let null = Procedure::Null.number();
        let nfs = (nfs3::PROGRAM, nfs3::VERSION, null);
        let mount = (mount3::PROGRAM, mount3::VERSION, null);
        assert_eq!(ask(Credential::None, nfs), (7, SUCCESS, Vec::new()));
        [ask(gss, nfs), ask(gss, mount), ask(empty, nfs)].map(|(_, body, _)| body)
    });
    // AUTH_REJECTEDCRED and AUTH_BADCRED (RFC 5531 section 9).
    let error = |why| ReplyBody::Denied(RejectStat::AuthError(why));
    assert_eq!(denied, [error(2), error(2), error(1)]);
}

#[test]
fn a_privileged_server_believes_no_claim_from_an_unreserved_port() {
    for (privilege, served_as) in [(Privilege::Privileged, 65_534), (Privilege::Unprivileged, 0)] {
        let trust = Trust { privilege, claims: Claims::Vouched, ..Trust::ALL };
        let admission = Admission::default();
        let mut world = World::with(Versions::Both, admission, trust, TCP_LIMITS);
        let root = world.root();
        let results = world.serve(move |at| {
            let mut stream = TcpStream::connect(at).unwrap();
            let program = (nfs3::PROGRAM, nfs3::VERSION, Procedure::Create.number());
            let how = How::Guarded(SetAttributes::default());
            let at = DirName { dir: handle(&root), name: Name(b"file") };
            // The caller claims to be root.
            let call = record(1, program, |w| Arguments::Create(Create { at, how }).encode(w));
            stream.write_all(&call).unwrap();
            reply(&mut stream).unwrap().2
        });
        let mut reader = PayloadReader::call(&results, 0, None);
        let made = Results::decode(Procedure::Create, &mut reader).unwrap();
        let Results::Create(Ok(made)) = made else { panic!("{made:?}") };
        assert_eq!(made.attributes.unwrap().uid, served_as, "{privilege:?}");
        let (_, server) = world.server.cx(world.now);
        let disbelieved = u64::from(privilege == Privilege::Privileged);
        assert_eq!(server.figures().disbelieved_tcp, disbelieved);
    }
}

/// Sends the beginning of a record.
fn begun(at: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(&null_call()[..10]).unwrap();
    stream
}

fn null_call() -> Vec<u8> {
    record(1, (nfs3::PROGRAM, nfs3::VERSION, 0), |_| Ok(()))
}

fn is_answered(stream: &mut TcpStream, rest: &[u8]) -> bool {
    stream.write_all(rest).is_ok() && reply(stream).is_some()
}

#[test]
fn fragments_may_be_empty_and_not_without_end() {
    let mut world = World::new(Versions::Both, Admission::default());
    let answered = world.serve(|at| {
        [64, 65].map(|count: u32| {
            let empty = vec![0; 4 * count as usize];
            let mut stream = TcpStream::connect(at).unwrap();
            is_answered(&mut stream, &[empty, null_call()].concat())
        })
    });
    assert_eq!(answered, [true, false]);
}

#[test]
fn a_record_that_has_begun_ends_within_its_time_however_it_comes() {
    let limits = TcpLimits { progress_timeout: Duration::from_millis(20), ..TCP_LIMITS };
    let mut world = World::with(Versions::Both, Admission::default(), Trust::ALL, limits);
    world.serve(|at| {
        assert_eq!(begun(at).read(&mut [0; 8]).unwrap(), 0, "nothing more comes");
        let mut stream = TcpStream::connect(at).unwrap();
        let mut ours = stream.try_clone().unwrap();
        // Sent octet by octet, the whole record would take far longer than the limit.
        let dribble = move || {
            let record = framed(&[0; 8000]);
            let sent = record.iter().take_while(|octet| {
                std::thread::park_timeout(Duration::from_millis(1));
                ours.write_all(&[**octet]).is_ok()
            });
            sent.count()
        };
        let dribbling = std::thread::Builder::new().spawn(dribble).unwrap();
        // The connection may be reset, because it is closed while octets arrive.
        assert!(!matches!(stream.read(&mut [0; 8]), Ok(1..)), "no Reply");
        assert!(dribbling.join().unwrap() < 8000);
    });
}

#[test]
fn half_sent_records_keep_nobody_out() {
    let limits = TcpLimits { connections_max: 4, ..TCP_LIMITS };
    let mut world = World::with(Versions::Both, Admission::default(), Trust::ALL, limits);
    let apart = world.listen_tcp();
    world.serve(move |at| {
        let mut elsewhere: [_; 2] = std::array::from_fn(|_| begun(apart));
        let mut silent: Vec<_> = (0..20).map(|_| begun(at)).collect();
        for number in 0..10 {
            let mut honest = TcpStream::connect(at).unwrap();
            assert!(is_answered(&mut honest, &null_call()), "{number}");
        }
        // The oldest connection gave way first.
        assert_eq!(silent[0].read(&mut [0; 8]).unwrap_or(0), 0);
        // Each port has its own places: those at the other one are still there.
        for stream in &mut elsewhere {
            assert!(is_answered(stream, &null_call()[10..]));
        }
    });
}

#[test]
fn files_have_the_time_of_day() {
    let mut time = TimeOfDay { origin: Duration::new(1_000, 500), looked: Some(Instant::ZERO) };
    let at = |seconds| Instant::ZERO.saturating_add(Duration::from_secs(seconds));
    assert_eq!(time.at(at(2)), Time { seconds: 1_002, nanoseconds: 500 });
    time.keep(at(0));
    assert_eq!(time.origin, Duration::new(1_000, 500), "not looked at too often");
    time.keep(at(1));
    assert!(time.at(at(1)).seconds > 1_700_000_000, "what the system says");
}
