//! MOUNT version 3 over files in memory, with Calls from any host that have any arguments.

use std::collections::VecDeque;

use haulage_mr_pool::{PagePreference, Pool, PoolConfig};
use haulage_proto::chunk::PayloadReader;
use haulage_proto::rpc::Credential;
use haulage_proto::time::Instant;
use haulage_proto::xdr::Writer;
use haulage_store::access::{Caller, Policy};
use haulage_store::backend::{Backend, Context, New, NewKind, Progress, Ticket};
use haulage_store::handle::Sealer;
use haulage_store::memory::{self, Memory};
use haulage_store::mount3::{Arguments, Host, Procedure, Results, Status};
use haulage_store::mounts::{Answer, Mounts, Visitor};
use haulage_store::nfs3::binding::Limits;
use haulage_store::nfs3::{Name, SetTime, Time};
use haulage_store::service::{Config, Service, Surroundings};

use super::bound::{PER_OCTET, within};
use super::octets::{Octets, short, some_octets, spoil};
use crate::world::choices::Choices;

/// Makes Calls. Each is refused as garbage or answered as its path demands: every path leads to a directory of the tree
/// or nowhere, and DUMP lists the latest mounts, as many as are remembered.
pub(super) fn run(data: &[u8]) {
    let mut choices = Choices::replayed(data);
    let mut served = Served::new(&mut choices);
    for _ in 0..CALLS_MAX {
        if choices.is_spent() {
            break;
        }
        let number = short(choices.below(7));
        let octets = arguments(&mut choices, number);
        let host = choices.pick(&HOSTS);
        let is_allowed = !choices.one_in(8);
        served.call(number, &octets, host, is_allowed);
    }
}

/// The server, and the mounts it should remember.
struct Served {
    mounts: Mounts,
    service: Service<Memory>,
    pool: Pool,
    /// Hosts and paths of the mounts, the oldest first.
    known: VecDeque<(Vec<u8>, Vec<u8>)>,
    known_max: usize,
    hosts: usize,
}

impl Served {
    fn new(choices: &mut Choices) -> Self {
        let pool = PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None };
        let pool = Pool::new(&pool).expect("memory for a pool");
        let room = memory::Limits { files_max: 16, names_max: 16 };
        let mut backend = Memory::new(&pool, room, RUN, NOW).expect("a fresh pool has room");
        let cx = &Context { pool: &pool, now: NOW, caller: &Caller::new(0, 0, []) };
        let mut made = vec![backend.root()];
        for (parent, name, kind, mode) in TREE {
            let (atime, mtime) = (SetTime::Keep, SetTime::Keep);
            let new = New { kind, mode, uid: 0, gid: 0, size: None, atime, mtime };
            let at = (made[parent], Name(name));
            let Progress::Ended(file) = backend.make(cx, Ticket { number: 0, network: 0 }, at, new)
            else {
                unreachable!("memory answers at once")
            };
            made.push(file.expect("room"));
        }
        let config = Config { policy: Policy::default(), read_only: false, limits: LIMITS };
        let service = Service::new(backend, sealer(), config);
        let (known_max, hosts) = (choices.pick(&[0, 1, 3]), choices.pick(&[0, 1, 200]));
        let networks = (0..hosts).map(|_| [b'h'; 100].as_slice().into()).collect();
        let mounts = Mounts::new(networks, known_max);
        Self { mounts, service, pool, known: VecDeque::new(), known_max, hosts }
    }

    fn call(&mut self, number: u32, octets: &[u8], host: &[u8], is_allowed: bool) {
        let Some(procedure) = Procedure::from_number(number) else { return };
        let arguments = Arguments::decode(procedure, &mut PayloadReader::call(octets, 0, None));
        let Ok(arguments) = arguments else { return };
        let mut again = vec![0; octets.len()];
        let mut w = Writer::new(&mut again);
        arguments.encode(&mut w).expect("as long as they were");
        assert_eq!(w.written().len(), octets.len(), "arguments are all that is there");

        let visitor =
            Visitor { host: Host(host), credential: Credential::None, is_allowed, network: 0 };
        let around =
            Surroundings { pool: &self.pool, now: NOW, clock: Instant::ZERO, arrivals: None };
        let (mounts, service) = (&mut self.mounts, &mut self.service);
        let most = PER_OCTET * octets.len() as u64 + 1024;
        let answer = within(most, || mounts.call(service, around, &visitor, &arguments));
        let Answer::Now(results) = answer else { unreachable!("memory answers at once") };
        let mut memory = vec![0; 64 << 10];
        let mut w = Writer::new(&mut memory);
        results.encode(&mut w).expect("no results are longer");
        let octets = w.written();
        let results = Results::decode(procedure, &mut PayloadReader::call(octets, 0, None));
        let results = results.expect("results that make sense");
        let mut again = vec![0; octets.len()];
        let mut w = Writer::new(&mut again);
        results.encode(&mut w).expect("as long as they were");
        assert_eq!(w.written(), octets, "and say the same again");
        self.check(&arguments, &results, host, is_allowed);
    }

    fn check(
        &mut self,
        arguments: &Arguments<'_>,
        results: &Results<'_>,
        host: &[u8],
        is_allowed: bool,
    ) {
        match (arguments, results) {
            (Arguments::Mnt(path), Results::Mnt(outcome)) => {
                let found = outcome.map(|mounted| {
                    assert!(mounted.flavors.iter().eq([1]));
                    sealer().open(mounted.root).expect("a handle of this server").inode
                });
                let expected = if is_allowed { walk(path.0) } else { Err(Status::Acces) };
                assert_eq!(found, expected, "{path:?}");
                if found.is_ok() {
                    self.note(host, path.0);
                }
            }
            (Arguments::Umnt(path), Results::Nothing) => {
                self.known.retain(|(of, at)| of != host || at != path.0);
            }
            (Arguments::UmntAll, Results::Nothing) => self.known.retain(|(of, _)| of != host),
            (Arguments::Dump, Results::Dump(list)) => {
                let listed = list.iter().map(|one| (one.host.0.to_vec(), one.path.0.to_vec()));
                assert!(listed.eq(self.known.iter().cloned()), "the list of mounts");
            }
            (Arguments::Export, Results::Export(list)) => {
                let exports: Vec<_> = list.iter().collect();
                let [export] = exports.as_slice() else { panic!("{} exports", exports.len()) };
                // A reply has room for these: half of the memory.
                let hosts = self.hosts.min(((16 << 10) - 4) / (4 + 4 + 100));
                assert_eq!((export.path.0, export.hosts.iter().count()), (&b"/"[..], hosts));
            }
            (Arguments::Null, Results::Nothing) => {}
            (_, other) => panic!("{arguments:?} is answered with {other:?}"),
        }
    }

    fn note(&mut self, host: &[u8], path: &[u8]) {
        let mount = (host.to_vec(), path.to_vec());
        if self.known.contains(&mount) || self.known_max == 0 {
            return;
        }
        if self.known.len() == self.known_max {
            self.known.pop_front();
        }
        self.known.push_back(mount);
    }
}

/// Returns the inode of the directory at a path, as an anonymous user finds it.
fn walk(path: &[u8]) -> Result<u64, Status> {
    if !path.is_empty() && path[0] != b'/' {
        return Err(Status::Inval);
    }
    // `at` is an index into `TREE`, from 1, and 0 for the root. Inodes are numbered in the order of `TREE`.
    let mut at = 0;
    for name in path.split(|octet| *octet == b'/').filter(|name| !name.is_empty()) {
        let (kind, mode) = match at {
            0 => (NewKind::Directory, 0o755),
            _ => (TREE[at - 1].2, TREE[at - 1].3),
        };
        if !matches!(kind, NewKind::Directory) {
            return Err(Status::NotDir);
        }
        if mode & 1 == 0 {
            return Err(Status::Acces);
        }
        if name.len() > 255 {
            return Err(Status::NameTooLong);
        }
        if name.contains(&0) {
            return Err(Status::Acces);
        }
        at = match name {
            b"." => at,
            b".." if at == 0 => 0,
            b".." => TREE[at - 1].0,
            _ => {
                let found = TREE.iter().position(|(dir, known, ..)| (*dir, *known) == (at, name));
                1 + found.ok_or(Status::NoEnt)?
            }
        };
    }
    let is_directory = at == 0 || matches!(TREE[at - 1].2, NewKind::Directory);
    if is_directory { Ok(1 + at as u64) } else { Err(Status::NotDir) }
}

/// Draws arguments: a path, or other octets.
fn arguments(choices: &mut Choices, number: u32) -> Vec<u8> {
    if choices.one_in(16) {
        return some_octets(choices, 32);
    }
    let mut octets = Octets::default();
    if matches!(number, 1 | 3) {
        let mut path = Vec::new();
        for _ in 0..choices.below(6) {
            path.push(b'/');
            let names: [&[u8]; 9] =
                [b"d", b"shut", b"in", b"f", b"link", b".", b"..", b"", &[b'n'; 256]];
            path.extend(choices.pick(&names));
        }
        if choices.one_in(4) {
            spoil(choices, &mut path);
        }
        octets = octets.opaque(&path);
    }
    if choices.one_in(16) {
        spoil(choices, &mut octets.0);
    }
    octets.0
}

fn sealer() -> Sealer {
    Sealer::new(&[5; 32], 1)
}

/// The files: directory, name, kind, permission bits. A directory is an index into this table, from 1; the root is 0.
const TREE: [(usize, &[u8], NewKind<'static>, u32); 5] = [
    (0, b"d", NewKind::Directory, 0o755),
    (1, b"shut", NewKind::Directory, 0o700),
    (2, b"in", NewKind::Directory, 0o755),
    (0, b"f", NewKind::Regular, 0o644),
    (0, b"link", NewKind::Symlink(b"/d"), 0o777),
];
const HOSTS: [&[u8]; 3] = [b"one", b"another", &[b'h'; 255]];
const NOW: Time = Time { seconds: 1, nanoseconds: 0 };
const LIMITS: Limits = Limits { read_max: 4096, write_max: 4096, readdir_max: 4096 };
const RUN: u64 = 7;
const CALLS_MAX: usize = 64;
