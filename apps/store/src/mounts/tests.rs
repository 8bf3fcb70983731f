use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::Ordering;

use haulage::provider::Waker;
use haulage_mr_pool::{PagePreference, Pool, PoolConfig};
use haulage_proto::rpc::AuthSys;
use haulage_proto::time::Instant;

use super::*;
use crate::access::{Caller, Policy};
use crate::backend::{Context, New, NewKind, Progress, Ticket};
use crate::directory::{self, Directory};
use crate::handle::{FileId, Sealer};
use crate::memory::{Limits, Memory};
use crate::nfs3::binding::Limits as CallLimits;
use crate::nfs3::{Name, SetTime, Time};
use crate::service::Config;
use crate::testing::TempDir;

struct Bed<B = Memory> {
    mounts: Mounts,
    service: Service<B>,
    pool: Pool,
    /// `/d`, which all callers find, `/d/shut`, which only the superuser looks into, and `/d/shut/in`.
    dirs: [FileId; 3],
}

const DIRECTORY: directory::Config =
    directory::Config { open_max: 8, stable: true, ..crate::testing::CONFIG };

const NOW: Time = Time { seconds: 1, nanoseconds: 0 };

fn sealer() -> Sealer {
    Sealer::new(&[5; 32], 1)
}

fn bed(hosts: &[&str], mounts_max: usize) -> Bed {
    let config = PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None };
    let pool = Pool::new(&config).unwrap();
    let limits = Limits { files_max: 100, names_max: 100 };
    let mut memory = Memory::new(&pool, limits, 7, NOW).unwrap();
    let cx = &Context { pool: &pool, now: NOW, caller: &Caller::new(0, 0, []) };
    let mut make = |dir, name: &[u8], kind, mode| {
        let (atime, mtime) = (SetTime::Keep, SetTime::Keep);
        let new = New { kind, mode, uid: 0, gid: 0, size: None, atime, mtime };
        match memory.make(cx, Ticket { number: 0, network: 0 }, (dir, Name(name)), new) {
            Progress::Ended(made) => made.unwrap(),
            Progress::Later => unreachable!("memory answers at once"),
        }
    };
    let root = FileId { inode: 1, generation: 7 };
    let dir = make(root, b"d", NewKind::Directory, 0o755);
    let shut = make(dir, b"shut", NewKind::Directory, 0o700);
    let inside = make(shut, b"in", NewKind::Directory, 0o755);
    make(root, b"f", NewKind::Regular, 0o644);
    make(root, b"link", NewKind::Symlink(b"/d"), 0o777);
    let service = Service::new(memory, sealer(), service_config());
    let hosts = hosts.iter().map(|host| host.as_bytes().into()).collect();
    Bed { mounts: Mounts::new(hosts, mounts_max), service, pool, dirs: [dir, shut, inside] }
}

fn service_config() -> Config {
    let limits = CallLimits { read_max: 4096, write_max: 4096, readdir_max: 4096 };
    Config { policy: Policy::default(), read_only: false, limits }
}

impl<B: Backend> Bed<B> {
    fn call(&mut self, host: &str, arguments: Arguments<'_>) -> Results<'_> {
        match self.begin(host, arguments) {
            Answer::Now(results) => results,
            Answer::Later(..) => panic!("it was to be answered at once"),
        }
    }

    fn begin(&mut self, host: &str, arguments: Arguments<'_>) -> Answer<'_> {
        let credential = Credential::Sys(AuthSys::new(0, b"tests", 5, 5));
        let is_allowed = host != "stranger";
        let visitor = Visitor { host: Host(host.as_bytes()), credential, is_allowed, network: 0 };
        let around =
            Surroundings { pool: &self.pool, now: NOW, clock: Instant::ZERO, arrivals: None };
        self.mounts.call(&mut self.service, around, &visitor, &arguments)
    }

    fn mount(&mut self, host: &str, path: &str) -> Result<FileId, Status> {
        match self.call(host, Arguments::Mnt(Path(path.as_bytes()))) {
            Results::Mnt(Ok(mounted)) => {
                assert_eq!(mounted.flavors, Flavors::SYS);
                Ok(sealer().open(mounted.root).unwrap())
            }
            Results::Mnt(Err(status)) => Err(status),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the hosts and paths in the list of mounts.
    fn dump(&mut self) -> Vec<(String, String)> {
        let Results::Dump(list) = self.call("anyone", Arguments::Dump) else { panic!("no list") };
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        list.iter().map(|mount| (text(mount.host.0), text(mount.path.0))).collect()
    }
}

#[test]
fn directories_are_mounted_by_their_paths() {
    let mut bed = bed(&[], 9);
    let root = FileId { inode: 1, generation: 7 };
    let [dir, shut, _] = bed.dirs;
    let long = format!("/{}", "n".repeat(256));
    for (path, expected) in [
        ("/", Ok(root)),
        ("//", Ok(root)),
        ("/d", Ok(dir)),
        ("/d/", Ok(dir)),
        ("//d//.", Ok(dir)),
        ("/d/..", Ok(root)),
        ("/../../d", Ok(dir)),
        ("/d/shut", Ok(shut)),
        ("/d/shut/in", Err(Status::Acces)),
        ("/none", Err(Status::NoEnt)),
        ("/f", Err(Status::NotDir)),
        ("/f/d", Err(Status::NotDir)),
        ("/link", Err(Status::NotDir)),
        ("/link/shut", Err(Status::NotDir)),
        ("", Ok(root)),
        ("d", Err(Status::Inval)),
        ("/d\0", Err(Status::Acces)),
        (&long, Err(Status::NameTooLong)),
    ] {
        assert_eq!(bed.mount("host", path), expected, "{path:?}");
    }
    assert_eq!(bed.mount("stranger", "/"), Err(Status::Acces));
}

#[test]
fn a_path_whose_names_are_not_cached_keeps_nobody_waiting() {
    let place = TempDir::new();
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(place.path().join("known")).unwrap();
    let waker = Waker::new().unwrap();
    let open = Directory::open(place.path(), None, None, DIRECTORY).unwrap().woken_by(&waker);
    let gate = open.gate();
    let pool = PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None };
    let (mounts, service) =
        (Mounts::new(Vec::new(), 9), Service::new(open, sealer(), service_config()));
    let dirs = [sealer().open(service.root().as_file_handle()).unwrap(); 3];
    let mut bed = Bed { mounts, service, pool: Pool::new(&pool).unwrap(), dirs };
    gate.store(true, Ordering::Release);
    let mut waiting = BTreeMap::new();
    for path in ["/absent", "/made/in/../in"] {
        match bed.begin("host", Arguments::Mnt(Path(path.as_bytes()))) {
            Answer::Later(ticket, mounting) => waiting.insert(ticket, (path, mounting)),
            Answer::Now(results) => panic!("{results:?}"),
        };
    }
    assert!(bed.mount("other", "/known").is_ok(), "others are served");
    fs::create_dir_all(place.path().join("made/in")).unwrap();
    gate.store(false, Ordering::Release);
    let mut ended = BTreeMap::new();
    while !waiting.is_empty() {
        bed.service.turn();
        let around =
            Surroundings { pool: &bed.pool, now: NOW, clock: Instant::ZERO, arrivals: None };
        let Some((ticket, reply)) = bed.service.poll(around) else {
            std::thread::yield_now();
            continue;
        };
        let (path, mounting) = waiting.remove(&ticket).unwrap();
        match bed.mounts.go_on(&mut bed.service, around, mounting, &reply) {
            Answer::Later(ticket, mounting) => _ = waiting.insert(ticket, (path, mounting)),
            Answer::Now(Results::Mnt(mounted)) => {
                let root = mounted.map(|mounted| sealer().open(mounted.root).unwrap());
                ended.insert(path, root);
            }
            Answer::Now(other) => panic!("{other:?}"),
        }
    }
    let made = bed.mount("other", "/made/in");
    assert!(made.is_ok());
    assert_eq!(ended, BTreeMap::from([("/absent", Err(Status::NoEnt)), ("/made/in/../in", made)]));
    let known = [("other", "/known"), ("host", "/made/in/../in"), ("other", "/made/in")];
    assert_eq!(bed.dump(), known.map(|(host, path)| (host.to_owned(), path.to_owned())));
}

#[test]
fn it_is_known_who_mounted_what_until_they_say_otherwise() {
    let mut bed = bed(&[], 3);
    let known = |pairs: &[(&str, &str)]| -> Vec<_> {
        pairs.iter().map(|(host, path)| ((*host).to_owned(), (*path).to_owned())).collect()
    };
    for (host, path) in [("a", "/"), ("a", "/")] {
        bed.mount(host, path).unwrap();
    }
    assert_eq!(bed.dump(), known(&[("a", "/")]));
    for (host, path) in [("a", "/d"), ("a", "/none"), ("b", "/")] {
        let _ = bed.mount(host, path);
    }
    assert_eq!(bed.dump(), known(&[("a", "/"), ("a", "/d"), ("b", "/")]));
    bed.mount("c", "/").unwrap();
    assert_eq!(bed.dump(), known(&[("a", "/d"), ("b", "/"), ("c", "/")]));
    assert_eq!(bed.call("b", Arguments::Umnt(Path(b"/d"))), Results::Nothing);
    assert_eq!(bed.call("b", Arguments::Umnt(Path(b"/"))), Results::Nothing);
    assert_eq!(bed.dump(), known(&[("a", "/d"), ("c", "/")]));
    assert_eq!(bed.call("a", Arguments::UmntAll), Results::Nothing);
    assert_eq!(bed.dump(), known(&[("c", "/")]));
    assert_eq!(bed.call("a", Arguments::Null), Results::Nothing);
}

#[test]
fn no_mount_is_known_where_none_may_be() {
    let mut bed = bed(&[], 0);
    bed.mount("a", "/").unwrap();
    assert_eq!(bed.dump(), []);
}

#[test]
fn a_list_is_cut_where_its_memory_ends() {
    let mut bed = bed(&[], 1000);
    for number in 0..1000 {
        bed.mount(&format!("{number:0>200}"), "/").unwrap();
    }
    let listed = bed.dump().len();
    assert_eq!(listed, (LIST_MAX - 4) / (4 + 4 + 200 + 4 + 4));
}

#[test]
fn the_export_is_told_with_who_may_mount_it() {
    for hosts in [&[][..], &["10.0.0.0/8"], &["10.0.0.0/8", "fe80::/10"]] {
        let mut bed = bed(hosts, 1);
        let Results::Export(list) = bed.call("a", Arguments::Export) else { panic!("no list") };
        let exports: Vec<_> = list.iter().collect();
        assert_eq!((exports.len(), exports[0].path), (1, Path(b"/")));
        let told: Vec<_> = exports[0].hosts.iter().map(|host| host.0.to_vec()).collect();
        assert_eq!(told, hosts.iter().map(|host| host.as_bytes().to_vec()).collect::<Vec<_>>());
    }
    let many = vec!["255.255.255.255/32"; 2000];
    let mut bed = bed(&many, 1);
    let Results::Export(list) = bed.call("a", Arguments::Export) else { panic!("no list") };
    let told = list.iter().next().unwrap().hosts.iter().count();
    assert_eq!(told, (LIST_MAX / 2 - 4) / (4 + 4 + 20));
}
