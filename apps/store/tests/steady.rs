//! What goes on while files are read and written takes nothing from the heap.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use haulage::sys::alloc::{Counting, allocations_on_this_thread};
use haulage_mr_pool::{Local, PagePreference, Pool, PoolConfig};
use haulage_proto::chunk::Item;
use haulage_proto::rpc::{AuthSys, Credential};
use haulage_proto::time::Instant;
use haulage_store::access::Policy;
use haulage_store::handle::{SealedHandle, Sealer};
use haulage_store::memory::{self, Memory};
use haulage_store::nfs3::arguments::*;
use haulage_store::nfs3::binding::Limits;
use haulage_store::nfs3::{
    Arguments, Data, DirName, Name, Results, SetAttributes, Status, Time, Verifier,
};
use haulage_store::service::{Answer, Call, Config, Service, Surroundings};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Makes a Call. Returns its status, and the handle of what it made.
fn call(
    service: &mut Service<Memory>,
    pool: &Pool,
    arguments: Arguments<'_>,
    placed: Option<Local>,
) -> (Status, Option<[u8; SealedHandle::WIRE_LEN]>) {
    let around = Surroundings {
        pool,
        now: Time { seconds: 1, nanoseconds: 0 },
        clock: Instant::ZERO,
        arrivals: None,
    };
    let credential = Credential::Sys(AuthSys::new(0, b"tests", 1, 2));
    let Answer::Now(reply) =
        service.call(around, Call { credential, arguments, placed, room: usize::MAX, network: 0 })
    else {
        panic!("memory answers at once")
    };
    let made = match reply.results {
        Results::Create(Ok(made)) => made.file.map(|file| file.bytes().try_into().unwrap()),
        _ => None,
    };
    (reply.results.status(), made)
}

#[test]
fn reading_writing_and_looking_take_nothing_from_the_heap() {
    let config = PoolConfig { bytes: 16 << 20, pages: PagePreference::Heap, node: None };
    let pool = Pool::new(&config).unwrap();
    let room = memory::Limits { files_max: 100, names_max: 100 };
    let backend = Memory::new(&pool, room, 1, Time::default()).unwrap();
    let limits = Limits { read_max: 1 << 20, write_max: 1 << 20, readdir_max: 1 << 16 };
    let config = Config { policy: Policy::default(), read_only: false, limits };
    let mut service = Service::new(backend, Sealer::new(&[7; 32], 1), config);
    let root = service.root();
    let dir = root.as_file_handle();
    let at = DirName { dir, name: Name(b"file") };
    let how = How::Guarded(SetAttributes { mode: Some(0o600), ..SetAttributes::default() });
    let create = Arguments::Create(Create { at, how });
    let (_, made) = call(&mut service, &pool, create, None);
    let made = made.unwrap();
    let file = haulage_store::nfs3::FileHandle::new(&made).unwrap();

    let (offset, count, stable) = (0, 1 << 20, Stable::FileSync);
    let data = Data(Item::Reduced { length: 1 << 20 });
    let small = Data(Item::Unreduced(b"hello"));
    let (cookie, verifier) = (0, Verifier(0));
    let rounds = [
        Arguments::Write(Write { file, offset, count, stable, data }),
        Arguments::Read(Read { file, offset, count }),
        Arguments::Write(Write { file, offset: 70_000, count: 5, stable, data: small }),
        Arguments::Read(Read { file, offset: 65_000, count: 10_000 }),
        Arguments::Commit(Commit { file, offset, count: 0 }),
        Arguments::GetAttr(file),
        Arguments::SetAttr(SetAttr { file, to: SetAttributes::default(), guard: None }),
        Arguments::Lookup(at),
        Arguments::Access(Access { file, rights: 0x3f }),
        Arguments::ReadDir(ReadDir { dir, cookie, verifier, count: 4096 }),
        Arguments::ReadDirPlus(ReadDirPlus { dir, cookie, verifier, count: 4096, count_max: 4096 }),
        Arguments::FsStat(dir),
    ];
    let mut before = 0;
    for round in 0..20 {
        if round == 1 {
            before = allocations_on_this_thread();
        }
        for arguments in rounds {
            let placed = match arguments {
                Arguments::Write(write) if write.count == count => pool.lease(1 << 20),
                _ => None,
            };
            let (status, _) = call(&mut service, &pool, arguments, placed);
            assert_eq!(status, Status::Ok, "{arguments:?}");
        }
    }
    assert_eq!(allocations_on_this_thread(), before);
}
