use haulage_mr_pool::{PagePreference, PoolConfig};
use haulage_proto::chunk::{Item, PayloadReader};
use haulage_proto::rpc::AuthSys;

use super::*;
use crate::access::Squash;
use crate::memory::{self, Memory};
use crate::nfs3::arguments::*;
use crate::nfs3::{Data, DirName, Path, Procedure, SetAttributes, SetTime, Verifier};
use crate::testing::written;

mod attributes;
mod data;
mod elsewhere;
mod every;
mod judged;
pub(crate) mod later;
mod listing;
mod lists;
mod locked;
mod names;
mod outside;
mod parked;
mod permissions;
mod rights;
mod room;
mod settling;
mod states;
mod waits;

/// A service of one file system, with the caller of its Calls.
struct Bed<B = Memory> {
    service: Service<B>,
    pool: Pool,
    now: Time,
    uid: u32,
    gid: u32,
    /// Whether a Call may be answered later.
    is_patient: bool,
    /// The number under which Calls arrive; `None` if each comes alone.
    arrivals: Option<u64>,
}

pub(crate) fn memory(pool: &Pool, now: Time) -> Memory {
    let limits = memory::Limits { files_max: 1000, names_max: 1000 };
    Memory::new(pool, limits, 77, now).unwrap()
}

/// Serves memory and believes all claims; the default caller is a user in a group of its own.
fn bed() -> Bed {
    bed_of(memory)
}

fn bed_of<B: Backend>(backend: impl FnOnce(&Pool, Time) -> B) -> Bed<B> {
    bed_with(8 << 20, 4096, backend)
}

/// Makes a bed with `bytes` of memory, whose lists of names take at most `readdir_max` octets.
fn bed_with<B: Backend>(
    bytes: usize,
    readdir_max: u32,
    backend: impl FnOnce(&Pool, Time) -> B,
) -> Bed<B> {
    let config = PoolConfig { bytes, pages: PagePreference::Heap, node: None };
    let pool = Pool::new(&config).unwrap();
    let now = Time { seconds: 1_000, nanoseconds: 0 };
    let sealer = Sealer::new(&[5; 32], FSID);
    let limits = Limits { read_max: 1 << 20, write_max: 1 << 16, readdir_max };
    let policy = Policy { squash: Squash::Nobody, ..Policy::default() };
    let config = Config { policy, read_only: false, limits };
    let service = Service::new(backend(&pool, now), sealer, config);
    Bed { service, pool, now, uid: 1, gid: 2, is_patient: false, arrivals: None }
}

impl<B: Backend> Bed<B> {
    /// Makes a Call. Returns its encoded results.
    fn send(&mut self, arguments: Arguments<'_>, placed: Option<Local>) -> Sent {
        let procedure = arguments.procedure();
        let credential = Credential::Sys(AuthSys::new(0, b"tests", self.uid, self.gid));
        let Self { now, arrivals, .. } = *self;
        let around = Surroundings { pool: &self.pool, now, clock: Instant::ZERO, arrivals };
        let call = Call { credential, arguments, placed, room: usize::MAX, network: 0 };
        match self.service.call(around, call) {
            Answer::Now(reply) => return Sent::new(procedure, &reply),
            Answer::Later(_) if self.is_patient => {}
            Answer::Later(_) => panic!("{procedure:?} was to be answered at once"),
        }
        loop {
            self.service.turn();
            if let Some((_, reply)) = self.service.poll(around) {
                return Sent { procedure, bytes: written(|w| reply.encode_inline(w)) };
            }
            std::thread::yield_now();
        }
    }

    fn call(&mut self, arguments: Arguments<'_>) -> Sent {
        self.send(arguments, None)
    }

    /// Makes a Call and returns only its status.
    fn status(&mut self, arguments: Arguments<'_>) -> Status {
        self.call(arguments).results().status()
    }

    fn root(&self) -> Handle {
        Handle(self.service.root().as_file_handle().bytes().to_vec())
    }

    fn look(&mut self, file: &Handle) -> Attributes {
        match self.call(Arguments::GetAttr(file.get())).results() {
            Results::GetAttr(Ok(attributes)) => attributes,
            other => panic!("{other:?}"),
        }
    }

    fn find(&mut self, dir: &Handle, name: &str) -> Result<Handle, Status> {
        match self.call(Arguments::Lookup(dir.at(name))).results() {
            Results::Lookup(Ok(found)) => Ok(Handle(found.file.bytes().to_vec())),
            other => Err(other.status()),
        }
    }

    fn create(&mut self, dir: &Handle, name: &str, how: How) -> Result<Handle, Status> {
        let sent = self.call(Arguments::Create(Create { at: dir.at(name), how }));
        made(&sent)
    }

    /// Creates a file that its owner may read and write.
    fn file(&mut self, dir: &Handle, name: &str) -> Handle {
        self.create(dir, name, How::Guarded(mode(0o600))).unwrap()
    }

    /// Creates a directory with these permission bits.
    fn dir(&mut self, dir: &Handle, name: &str, bits: u32) -> Handle {
        let arguments = MkDir { at: dir.at(name), attributes: mode(bits) };
        made(&self.call(Arguments::MkDir(arguments))).unwrap()
    }

    fn symlink(&mut self, dir: &Handle, name: &str, path: &[u8]) -> Result<Handle, Status> {
        let path = Path(Item::Unreduced(path));
        let arguments = Symlink { at: dir.at(name), attributes: mode(0o777), path };
        made(&self.call(Arguments::Symlink(arguments)))
    }

    fn set(&mut self, file: &Handle, to: SetAttributes) -> Status {
        self.status(Arguments::SetAttr(SetAttr { file: file.get(), to, guard: None }))
    }

    fn write(&mut self, file: &Handle, offset: u64, bytes: &[u8]) -> Status {
        self.status(Arguments::Write(write(file, offset, Item::Unreduced(bytes))))
    }

    fn read(&mut self, file: &Handle, offset: u64, count: u32) -> Result<(Vec<u8>, bool), Status> {
        let sent = self.call(Arguments::Read(Read { file: file.get(), offset, count }));
        match sent.results() {
            Results::Read(Ok(contents)) => {
                let Item::Unreduced(bytes) = contents.data.0 else { panic!("it came unreduced") };
                assert_eq!(contents.count as usize, bytes.len());
                Ok((bytes.to_vec(), contents.eof))
            }
            other => Err(other.status()),
        }
    }

    /// Makes later Calls as another user.
    const fn by(&mut self, uid: u32, gid: u32) -> &mut Self {
        (self.uid, self.gid) = (uid, gid);
        self
    }
}

/// The encoded results of a Call.
struct Sent {
    procedure: Procedure,
    bytes: Vec<u8>,
}

impl Sent {
    fn new(procedure: Procedure, reply: &Reply<'_>) -> Self {
        Self { procedure, bytes: written(|w| reply.encode_inline(w)) }
    }

    fn results(&self) -> Results<'_> {
        let mut r = PayloadReader::reply(&self.bytes, 0, None);
        Results::decode(self.procedure, &mut r).unwrap()
    }
}

/// A file handle, as a client keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Handle(Vec<u8>);

impl Handle {
    fn get(&self) -> FileHandle<'_> {
        FileHandle::new(&self.0).unwrap()
    }

    fn at<'a>(&'a self, name: &'a str) -> DirName<'a> {
        DirName { dir: self.get(), name: Name(name.as_bytes()) }
    }
}

/// Returns the handle of the created file.
fn made(sent: &Sent) -> Result<Handle, Status> {
    match sent.results() {
        Results::Create(outcome)
        | Results::MkDir(outcome)
        | Results::Symlink(outcome)
        | Results::MkNod(outcome) => outcome
            .map(|made| Handle(made.file.unwrap().bytes().to_vec()))
            .map_err(|failure| failure.status),
        other => panic!("{other:?}"),
    }
}

/// Permission bits, and nothing else.
fn mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

fn write<'a>(file: &'a Handle, offset: u64, item: Item<'a>) -> Write<'a> {
    let data = Data(item);
    let count = u32::try_from(data.length()).unwrap();
    Write { file: file.get(), offset, count, stable: Stable::Unstable, data }
}

const FSID: u64 = 0xf51d;
