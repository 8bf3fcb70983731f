//! Calls of a Linux NFS client.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::time::Duration;

use haulage::pool::Pool;
use haulage::provider::Waker;
use haulage::sys::clock;
use haulage_benches::{Asked, Kind, Speech, StreamWorld, World, loopback, shm_part};
use haulage_proto::xdr::Writer;
use haulage_store::access::Policy;
use haulage_store::backend::Backend;
use haulage_store::directory::{self, Directory, Ring};
use haulage_store::handle::{FileId, Sealer};
use haulage_store::memory::{self, Memory};
use haulage_store::nfs3::binding::Limits;
use haulage_store::nfs3::{Procedure, Time};
use haulage_store::program::RESULTS_KEPT;
use haulage_store::replays::{self, Replays};
use haulage_store::server::gate::Gate;
use haulage_store::server::{Admission, Server};
use haulage_store::service::{Config, Service};
use haulage_store::trust::{Claims, Privilege, Trust};

/// Asks for the attributes of the root of a memory export.
pub(super) fn attributes(depth: u64, count: u64) {
    let mut root = Vec::new();
    let server = |pool: &Pool, _: &Waker| in_memory(pool, &mut root);
    let now = clock::now();
    let parts = [shm_part(), shm_part()];
    let mut world = World::serving(now, parts, loopback(), Speech::Linux, server);
    world.asks(now, get_attributes(root));
    world.batch(Kind::Asked, depth, count);
}

/// Like [`attributes`], over TCP.
pub(super) fn attributes_over_tcp(depth: u64, count: u64) {
    let mut root = Vec::new();
    let mut world = StreamWorld::serving(|pool, _| in_memory(pool, &mut root));
    world.batch(&get_attributes(root), depth, count);
}

/// Reads 4 KiB at a time of a file in a directory on tmpfs.
pub(super) fn reads(depth: u64, count: u64) {
    let export = Export::new();
    let mut file = Vec::new();
    let server = |pool: &Pool, waker: &Waker| export.serve(pool, waker, &mut file);
    let now = clock::now();
    let parts = [shm_part(), shm_part()];
    let mut world = World::serving(now, parts, loopback(), Speech::Linux, server);
    world.asks(now, read(&file));
    world.batch(Kind::Asked, depth, count);
}

/// Like [`reads`], over TCP.
pub(super) fn reads_over_tcp(depth: u64, count: u64) {
    let export = Export::new();
    let mut file = Vec::new();
    let mut world = StreamWorld::serving(|pool, waker| export.serve(pool, waker, &mut file));
    world.batch(&read(&file), depth, count);
}

/// Builds a server of a backend.
fn serve<B: Backend>(backend: B) -> Server<B> {
    let limits = Limits { read_max: 1 << 20, write_max: 1 << 20, readdir_max: 1 << 16 };
    let config = Config { policy: Policy::default(), read_only: false, limits };
    let service = Service::new(backend, sealer(), config);
    let kept = replays::Limits::of_memory(1 << 20, RESULTS_KEPT);
    let trust = Trust {
        privilege: Privilege::Unprivileged,
        claims: Claims::All,
        anonymous_gid: 65_534,
        local_ports_reserved: 0,
    };
    let gate = Gate::new(Admission::default(), trust);
    Server::new(service, &limits, gate, Replays::new(&kept, 3))
}

fn sealer() -> Sealer {
    Sealer::new(&[7; 32], 1)
}

/// Returns the encoded handle of a file.
fn handle(file: FileId) -> Vec<u8> {
    let mut room = [0; 64];
    let mut writer = Writer::new(&mut room);
    let sealed = sealer().seal(file);
    writer.opaque(sealed.as_file_handle().bytes()).expect("64 octets hold a file handle");
    writer.written().to_vec()
}

/// Builds a server of a memory export, and encodes the handle of its root.
fn in_memory(pool: &Pool, root: &mut Vec<u8>) -> Server<Memory> {
    let files = memory::Limits { files_max: 100, names_max: 100 };
    let backend = Memory::new(pool, files, 1, Time::default()).expect("room for the files");
    *root = handle(backend.root());
    serve(backend)
}

/// A directory on tmpfs with one file, removed when dropped.
struct Export(PathBuf);

impl Export {
    fn new() -> Self {
        let path = PathBuf::from(format!("/dev/shm/haulage-turns-{}", std::process::id()));
        fs::create_dir(&path).expect("a tmpfs at /dev/shm");
        let export = Self(path);
        let all = Permissions::from_mode(0o755);
        fs::set_permissions(&export.0, all).expect("a directory of ours");
        let mut file = File::create(export.0.join(FILE)).expect("a file");
        file.write_all(&vec![1; LENGTH as usize * BLOCKS as usize]).expect("room for the file");
        file.set_permissions(Permissions::from_mode(0o644)).expect("a file of ours");
        export
    }

    /// Builds a server of the directory, and encodes the handle of its file.
    fn serve(&self, pool: &Pool, waker: &Waker, file: &mut Vec<u8>) -> Server<Directory> {
        let config = directory::Config {
            run: 1,
            open_max: 100,
            search_max: 1000,
            search_turn_max: 128,
            known_octets_max: 1 << 20,
            lists_kept: Duration::from_secs(1),
            stable: true,
            direct: false,
        };
        let ring = Ring::new(pool, waker).ok();
        let opened = Directory::open(&self.0, None, ring, config);
        let mut directory = opened.expect("a directory to serve").woken_by(waker);
        let place = File::options().read(true).custom_flags(O_PATH).open(self.0.join(FILE));
        let place = place.expect("a file of ours").into();
        *file = handle(directory.keep_open(place, FILE.as_bytes()).expect("attributes"));
        serve(directory)
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // What is left behind is small.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn get_attributes(root: Vec<u8>) -> Asked {
    Asked { procedure: Procedure::GetAttr as u32, arguments: vec![root], ..Asked::default() }
}

fn read(file: &[u8]) -> Asked {
    let block = |number: u32| {
        let offset = u64::from(number * LENGTH).to_be_bytes();
        [file, &offset, &LENGTH.to_be_bytes()].concat()
    };
    let arguments = (0..BLOCKS).map(block).collect();
    Asked { procedure: Procedure::Read as u32, arguments, argument: 0, room: LENGTH as usize }
}

/// The name of the file.
const FILE: &str = "file";
/// Octets of each READ.
const LENGTH: u32 = 4096;
/// Number of READs that the file has octets for.
const BLOCKS: u32 = 64;
/// The flag with which a descriptor stands for a file and opens nothing.
const O_PATH: i32 = 0o10_000_000;
