use haulage_mr_pool::{PagePreference, Pool, PoolConfig};
use haulage_proto::chunk::Item;
use haulage_proto::rpc::AuthSys;

use super::*;
use crate::access::Policy;
use crate::handle::{SealedHandle, Sealer};
use crate::nfs3::arguments::{Create, How, Read, Stable, Write};
use crate::nfs3::binding::{Limits, binding};
use crate::nfs3::{Data, DirName, FileHandle, Name, Path, SetAttributes, Time};
use crate::replays;
use crate::service::Config;
use crate::service::tests::later::Slow;
use crate::service::tests::memory;
use crate::testing::written;

struct Bed<B> {
    program: Program<B>,
    pool: Pool,
    client: u128,
}

const HERE: Connection = Connection(0);
const NOW: Time = Time { seconds: 1, nanoseconds: 0 };
const REPLAYS: replays::Limits = replays::Limits::of_memory(4 << 20, RESULTS_KEPT);
const LIMITS: Limits = Limits { read_max: 4096, write_max: 4096, readdir_max: 4096 };

fn bed<B: Backend>(backend: impl FnOnce(&Pool, Time) -> B) -> Bed<B> {
    let config = PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None };
    let pool = Pool::new(&config).unwrap();
    let config = Config { policy: Policy::default(), read_only: false, limits: LIMITS };
    let service = Service::new(backend(&pool, NOW), Sealer::new(&[5; 32], 1), config);
    let program = Program::new(service, Replays::new(&REPLAYS, 0));
    Bed { program, pool, client: 1 }
}

/// The answer that a transport got.
#[derive(Debug, PartialEq, Eq)]
enum Got {
    Results(Vec<u8>),
    Failed(AcceptStat),
    Later(Ticket),
}

impl<B: Backend> Bed<B> {
    fn octets(&mut self, xid: u32, number: u32, octets: &[u8]) -> Got {
        self.arguments(xid, number, (PayloadReader::call(octets, 0, None), None))
    }

    /// Makes a WRITE whose data was placed.
    fn placed(&mut self, xid: u32, file: FileHandle<'_>, octets: &[u8]) -> Got {
        let length = octets.len() as u64;
        let data = Data(Item::Reduced { length });
        let count = u32::try_from(length).unwrap();
        let write = Write { file, offset: 0, count, stable: Stable::Unstable, data };
        let stream = written(|w| Arguments::Write(write).encode(w));
        let at = u32::try_from(stream.len()).unwrap();
        let mut lease = self.pool.lease(octets.len()).unwrap();
        lease.bytes_mut().copy_from_slice(octets);
        let reader = PayloadReader::call(&stream, 0, Some((at, length)));
        self.arguments(xid, Procedure::Write.number(), (reader, Some(lease)))
    }

    fn arguments(
        &mut self,
        xid: u32,
        number: u32,
        arguments: (PayloadReader<'_>, Option<Local>),
    ) -> Got {
        let around =
            Surroundings { pool: &self.pool, now: NOW, clock: Instant::ZERO, arrivals: None };
        let credential = Credential::Sys(AuthSys::new(0, b"tests", 1, 2));
        let origin = Origin { client: self.client, connection: HERE, xid, credential };
        let mut memory = [0xee; 8192];
        let mut w = Writer::new(&mut memory);
        // The word stands for the RPC header of a transport.
        w.u32(0xaaaa_aaaa).unwrap();
        match self.program.call(around, &origin, number, arguments, &mut w) {
            Ended::Done(data) => {
                for piece in data.iter() {
                    w.put(piece.bytes()).unwrap();
                }
                w.pad(w.position()).unwrap();
                Got::Results(w.written()[4..].to_vec())
            }
            Ended::Failed(stat) => {
                assert_eq!(w.position(), 4);
                Got::Failed(stat)
            }
            Ended::Later(ticket) => Got::Later(ticket),
        }
    }

    fn call(&mut self, xid: u32, arguments: Arguments<'_>) -> Got {
        let octets = written(|w| arguments.encode(w));
        self.octets(xid, arguments.procedure().number(), &octets)
    }

    fn status(&mut self, xid: u32, arguments: Arguments<'_>) -> Status {
        match self.call(xid, arguments) {
            Got::Results(octets) => {
                Status::from_number(u32::from_be_bytes(octets[..4].try_into().unwrap())).unwrap()
            }
            other => panic!("{other:?}"),
        }
    }

    fn root(&mut self) -> SealedHandle {
        self.program.service_mut().root()
    }

    fn poll(&mut self) -> Option<(Ticket, Vec<u8>)> {
        let around =
            Surroundings { pool: &self.pool, now: NOW, clock: Instant::ZERO, arrivals: None };
        let (ticket, reply) = self.program.poll(around)?;
        Some((ticket, written(|w| reply.encode(w))))
    }
}

fn at<'a>(dir: &'a SealedHandle, name: &'a str) -> DirName<'a> {
    DirName { dir: dir.as_file_handle(), name: Name(name.as_bytes()) }
}

fn create<'a>(dir: &'a SealedHandle, name: &'a str) -> Arguments<'a> {
    let how = How::Guarded(SetAttributes { mode: Some(0o600), ..SetAttributes::default() });
    Arguments::Create(Create { at: at(dir, name), how })
}

fn write<'a>(file: FileHandle<'a>, data: &'a [u8]) -> Arguments<'a> {
    let (count, stable) = (u32::try_from(data.len()).unwrap(), Stable::Unstable);
    Arguments::Write(Write { file, offset: 0, count, stable, data: Data(Item::Unreduced(data)) })
}

/// Creates a file. Returns its handle.
fn file<B: Backend>(bed: &mut Bed<B>) -> Vec<u8> {
    let root = bed.root();
    let Got::Results(octets) = bed.call(1, create(&root, "f")) else { panic!("it is made") };
    // Status, the mark of a handle, its length.
    octets[12..12 + SealedHandle::WIRE_LEN].to_vec()
}

#[test]
fn a_call_that_comes_again_is_answered_as_before() {
    let mut bed = bed(memory);
    let root = bed.root();
    let made = bed.call(1, create(&root, "f"));
    assert_eq!(bed.call(1, create(&root, "f")), made);
    assert_eq!(bed.status(2, create(&root, "f")), Status::Exist);
    let remove = Arguments::Remove(at(&root, "f"));
    let removed = bed.call(3, remove);
    assert_eq!((bed.call(3, remove), bed.status(4, remove)), (removed, Status::NoEnt));
    // A repeated Call that failed fails again, even if it would now succeed.
    bed.status(5, create(&root, "f"));
    assert_eq!((bed.status(4, remove), bed.status(6, remove)), (Status::NoEnt, Status::Ok));
}

#[test]
fn another_client_and_other_arguments_make_another_call() {
    let mut bed = bed(memory);
    let root = bed.root();
    assert_eq!(bed.status(1, create(&root, "f")), Status::Ok);
    assert_eq!(bed.status(1, create(&root, "g")), Status::Ok);
    bed.client = 2;
    assert_eq!(bed.status(1, create(&root, "f")), Status::Exist);
}

#[test]
fn data_that_was_placed_tells_writes_apart_to_the_last_octet() {
    let mut bed = bed(memory);
    let file = file(&mut bed);
    let file = FileHandle::new(&file).unwrap();
    let data = |last: u8| [&[b'H'; 2000][..], &[last]].concat();
    let (one, two) = (data(1), data(2));
    let first = bed.placed(7, file, &one);
    // The same data is the same Call, whether it was placed or came unreduced.
    assert_eq!(bed.placed(7, file, &one), first);
    assert_eq!(bed.call(7, write(file, &one)), first);
    bed.placed(7, file, &two);
    let read = Arguments::Read(Read { file, offset: 2000, count: 1 });
    let Got::Results(octets) = bed.call(8, read) else { panic!("it is read") };
    assert_eq!(octets[octets.len() - 4], 2, "the second was carried out");
    // A late copy of the first Call changes nothing.
    bed.placed(7, file, &one);
    assert_eq!(bed.call(9, read), Got::Results(octets));
}

#[test]
fn what_does_no_harm_is_carried_out_each_time() {
    let mut bed = bed(memory);
    let root = bed.root();
    let lookup = Arguments::Lookup(at(&root, "f"));
    assert_eq!(bed.status(1, lookup), Status::NoEnt);
    bed.status(2, create(&root, "f"));
    assert_eq!(bed.status(1, lookup), Status::Ok);
}

#[test]
fn what_makes_no_sense_is_refused_each_time_and_not_remembered() {
    let mut bed = bed(memory);
    assert_eq!(bed.octets(1, 22, b""), Got::Failed(AcceptStat::ProcUnavail));
    assert_eq!(bed.octets(1, 0, b""), Got::Results(Vec::new()));
    assert_eq!(bed.octets(1, 0, b"\0\0\0\0"), Got::Failed(AcceptStat::GarbageArgs));
    let remove = Procedure::Remove.number();
    for _ in 0..2 {
        assert_eq!(bed.octets(1, remove, b"\0\0\0\0"), Got::Failed(AcceptStat::GarbageArgs));
    }
}

#[test]
fn results_that_do_not_fit_are_a_failure_of_the_server() {
    let mut bed = bed(memory);
    let around = Surroundings { pool: &bed.pool, now: NOW, clock: Instant::ZERO, arrivals: None };
    let origin = Origin { client: 1, connection: HERE, xid: 1, credential: Credential::None };
    let root = bed.program.service_mut().root();
    let octets = written(|w| create(&root, "f").encode(w));
    let arguments = (PayloadReader::call(&octets, 0, None), None);
    let mut memory = [0; 16];
    let mut w = Writer::new(&mut memory);
    let number = Procedure::Create.number();
    let ended = bed.program.call(around, &origin, number, arguments, &mut w);
    assert!(matches!(ended, Ended::Failed(AcceptStat::SystemErr)));
}

#[test]
fn data_follows_the_results() {
    let mut bed = bed(memory);
    let file = file(&mut bed);
    let file = FileHandle::new(&file).unwrap();
    assert_eq!(bed.status(2, write(file, b"hello!!!")), Status::Ok);
    let read = Arguments::Read(Read { file, offset: 0, count: 99 });
    let Got::Results(octets) = bed.call(3, read) else { panic!("it is read") };
    assert_eq!(octets[octets.len() - 12..], *b"\0\0\0\x08hello!!!");
}

#[test]
fn a_write_that_waits_is_not_begun_again() {
    let mut bed = bed(|pool, now| Slow::new(memory(pool, now)));
    let file = file(&mut bed);
    let file = FileHandle::new(&file).unwrap();
    let writing = write(file, b"hello");
    let Got::Later(ticket) = bed.call(2, writing) else { panic!("it waits") };
    assert_eq!(bed.call(2, writing), Got::Later(ticket));
    bed.program.service_mut().backend_mut().open();
    let (ended, results) = bed.poll().unwrap();
    assert_eq!((ended, bed.poll()), (ticket, None));
    // The Call's connection may be gone; a copy on the next connection is answered.
    assert_eq!(bed.call(2, writing), Got::Results(results));
    let Got::Later(_) = bed.call(3, writing) else { panic!("it waits") };
}

#[test]
fn the_longest_results_are_kept() {
    let longest =
        binding(&LIMITS).procedures.iter().filter(|p| !p.idempotent).map(|p| p.results_max).max();
    assert_eq!(longest.map(|longest| longest as usize), Some(RESULTS_KEPT));
    // The longest results of this service are kept.
    let mut bed = bed(memory);
    let root = bed.root();
    let path = Path(Item::Unreduced(b"to"));
    let attributes = SetAttributes::default();
    let symlink = crate::nfs3::arguments::Symlink { at: at(&root, "l"), attributes, path };
    let made = bed.call(1, Arguments::Symlink(symlink));
    assert_eq!(bed.call(1, Arguments::Symlink(symlink)), made);
}
