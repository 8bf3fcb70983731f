//! Tests of the client against the service, without a network: with Replies in any order, and with servers that behave
//! unlike ours.

use std::time::Duration;

use haulage::service::CallError;
use haulage_mr_pool::{Local, PagePreference, Pool, PoolConfig};
use haulage_proto::chunk::{Item, PayloadReader};
use haulage_proto::negotiate::Version;
use haulage_proto::rpc::{AuthSys, Credential};
use haulage_proto::time::Instant;
use haulage_proto::xdr::Writer;

use super::requester::{BUSY_MAX, encode_reduced};
use super::*;
use crate::access::Policy;
use crate::handle::Sealer;
use crate::memory::{self, Memory};
use crate::nfs3::arguments::{MkDir, Symlink};
use crate::nfs3::{FileHandle, Path, Status, Time};
use crate::service::{self, Call, Config, Service, Surroundings};
use crate::testing::{Rng, written};

mod fabric;
mod listing;
mod mount;
mod path;
mod put;
mod transfers;

/// A function that replaces the server's results; the Call is not executed.
type Instead = Box<dyn FnMut(&Arguments<'_>) -> Option<Vec<u8>>>;
/// A function that changes the results after the server has executed the Call.
type Edit = Box<dyn FnMut(&Arguments<'_>, &Results<'_>) -> Option<Vec<u8>>>;

/// A memory server without a network.
struct Near {
    service: Service<Memory>,
    pool: Pool,
    next: u64,
    /// Calls that have ended, reported in random order.
    ended: Vec<(u64, Answer)>,
    rng: Rng,
    instead: Instead,
    edit: Edit,
    /// The Calls received.
    asked: Vec<Procedure>,
    /// Maximum number of Calls that were in flight at once.
    under_way_max: usize,
    pauses: u32,
    /// Number of leases taken.
    leases: usize,
}

impl Near {
    fn new(limits: Limits) -> Self {
        let config = PoolConfig { bytes: 64 << 20, pages: PagePreference::Heap, node: None };
        let pool = Pool::new(&config).unwrap();
        let room = memory::Limits { files_max: 2000, names_max: 2000 };
        let backend = Memory::new(&pool, room, 1, Time::default()).unwrap();
        let config = Config { policy: Policy::default(), read_only: false, limits };
        Self {
            service: Service::new(backend, Sealer::new(&[7; 32], 9), config),
            pool,
            next: 0,
            ended: Vec::new(),
            rng: Rng::new(3),
            instead: Box::new(|_| None),
            edit: Box::new(|_, _| None),
            asked: Vec::new(),
            under_way_max: 0,
            pauses: 0,
            leases: 0,
        }
    }

    fn client(self) -> Client<Self> {
        let root = File::from(self.service.root().as_file_handle());
        Client::new(self, root, LIMITS).unwrap()
    }

    fn count(&self, procedure: Procedure) -> usize {
        self.asked.iter().filter(|asked| **asked == procedure).count()
    }

    /// Executes a Call like our server, after fetching its reduced argument.
    fn serve(&mut self, arguments: &Arguments<'_>, mut items: Items) -> Answer {
        let copied = |lease: &Local| {
            let mut copy = self.pool.lease(lease.len()).unwrap();
            copy.bytes_mut().copy_from_slice(lease.bytes());
            copy
        };
        let placed = items.argument.as_ref().map(copied);
        let around = Surroundings {
            pool: &self.pool,
            now: Time::default(),
            clock: Instant::ZERO,
            arrivals: None,
        };
        let credential = Credential::Sys(AuthSys::new(0, b"tests", 1000, 1000));
        let call = Call { credential, arguments: *arguments, placed, room: usize::MAX, network: 0 };
        let service::Answer::Now(reply) = self.service.call(around, call) else {
            panic!("memory answers at once")
        };
        if let Some(results) = (self.edit)(arguments, &reply.results) {
            return Answer::new(&PayloadReader::reply(&results, 0, None), items);
        }
        let data: Vec<u8> = reply.data.iter().flat_map(|piece| piece.bytes().to_vec()).collect();
        let mut room = vec![0; 2 << 20];
        let mut w = Writer::new(&mut room);
        match items.result.as_mut().filter(|_| data.len() > 1000) {
            Some(lease) => {
                reply.results.encode(&mut w).unwrap();
                // On version 1, padding is placed with the data.
                lease.set_len(data.len().next_multiple_of(4).min(lease.capacity()));
                lease.bytes_mut()[..data.len()].copy_from_slice(&data);
                let reduced = u32::try_from(lease.len()).ok();
                let reader = PayloadReader::reply(w.written(), 0, reduced);
                Answer::new(&reader.of_version(Version::One), items)
            }
            None => {
                reply.encode_inline(&mut w).unwrap();
                Answer::new(&PayloadReader::reply(w.written(), 0, None), items)
            }
        }
    }
}

impl Requester for Near {
    fn lease(&mut self, length: usize) -> Result<Local, CallError> {
        self.leases += 1;
        self.pool.lease(length).ok_or(CallError::Busy)
    }

    fn begin(&mut self, arguments: &Arguments<'_>, items: Items) -> Result<u64, CallError> {
        // The runtime, too, writes the length of an argument that has a lease.
        let mut octets = written(|w| match items.argument {
            Some(_) => encode_reduced(arguments, w),
            None => arguments.encode(w),
        });
        let chunk = items.argument.as_ref().map(|lease| {
            octets.extend(u32::try_from(lease.len()).unwrap().to_be_bytes());
            (u32::try_from(octets.len()).unwrap(), lease.len() as u64)
        });
        let mut reader = PayloadReader::call(&octets, 0, chunk);
        let arguments = Arguments::decode(arguments.procedure(), &mut reader).unwrap();
        self.asked.push(arguments.procedure());
        let answer = match (self.instead)(&arguments) {
            Some(results) => Answer::new(&PayloadReader::reply(&results, 0, None), items),
            None => self.serve(&arguments, items),
        };
        self.next += 1;
        self.ended.push((self.next, answer));
        self.under_way_max = self.under_way_max.max(self.ended.len());
        Ok(self.next)
    }

    fn ended(&mut self) -> Result<(u64, Result<Answer, CallError>), CallError> {
        assert!(!self.ended.is_empty(), "nothing is waited for that was not begun");
        let (token, answer) = self.ended.swap_remove(self.rng.below(self.ended.len()));
        Ok((token, Ok(answer)))
    }

    fn pause(&mut self, _: Duration) {
        self.pauses += 1;
    }
}

impl Client<Near> {
    fn make_dir(&mut self, dir: &File, name: &str) -> File {
        let at = DirName { dir: dir.handle(), name: Name(name.as_bytes()) };
        let attributes = SetAttributes { mode: Some(0o755), ..SetAttributes::default() };
        let answer = self.ask(&Arguments::MkDir(MkDir { at, attributes })).unwrap();
        let made = answer.results(Procedure::MkDir).unwrap();
        let Results::MkDir(Ok(made)) = made else { panic!("{made:?}") };
        made.file.unwrap().into()
    }

    fn make_link(&mut self, dir: &File, name: &str, target: &str) {
        let at = DirName { dir: dir.handle(), name: Name(name.as_bytes()) };
        let attributes = SetAttributes::default();
        let path = Path(Item::Unreduced(target.as_bytes()));
        let answer = self.ask(&Arguments::Symlink(Symlink { at, attributes, path })).unwrap();
        assert_eq!(answer.status(), Some(Status::Ok));
    }

    /// Creates a file with these octets.
    fn make_file(&mut self, dir: &File, name: &str, octets: &[u8]) -> Found {
        let made = self.create(dir, name.as_bytes(), 0o644).unwrap();
        let mut rest = octets;
        let length = self.write(&made.file, |room| std::io::Read::read(&mut rest, room));
        assert_eq!(length.unwrap(), octets.len() as u64);
        made
    }

    fn contents(&mut self, file: &File, size: u64) -> Result<Vec<u8>, Error> {
        let mut octets = Vec::new();
        let length = self.read(file, size, |piece| {
            octets.extend_from_slice(piece);
            Ok(())
        })?;
        assert_eq!(length, octets.len() as u64);
        Ok(octets)
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 7 + at / 251) % 256).unwrap()).collect()
}

/// Returns the results of a refused procedure.
fn refusal(results: &Results<'_>) -> Option<Vec<u8>> {
    Some(written(|w| results.encode(w)))
}

const LIMITS: Limits = Limits { read_max: 64 << 10, write_max: 64 << 10, readdir_max: 8 << 10 };

#[test]
fn what_is_moved_at_once_is_what_both_allow() {
    let small = Limits { read_max: 4096, write_max: 8192, readdir_max: 8192 };
    let agreed = Near::new(small).client().limits();
    assert_eq!((agreed.read_max, agreed.write_max), (4096, 8192));
    let large = Limits { read_max: 1 << 20, write_max: 1 << 20, readdir_max: 1 << 20 };
    assert_eq!(Near::new(large).client().limits(), LIMITS);
}

#[test]
fn a_busy_server_is_asked_again_and_not_for_ever() {
    let mut client = Near::new(LIMITS).client();
    let mut left = 3;
    client.requester.instead = Box::new(move |arguments| {
        let busy = matches!(arguments, Arguments::GetAttr(_)) && left > 0;
        left -= u32::from(busy);
        let failure = crate::nfs3::Failure { status: Status::Jukebox, rest: () };
        busy.then(|| refusal(&Results::GetAttr(Err(failure)))).flatten()
    });
    let root = client.root;
    assert!(client.attributes(&root).is_ok());
    assert_eq!(client.requester.pauses, 3);
    client.requester.instead = Box::new(|_| {
        let failure = crate::nfs3::Failure { status: Status::Jukebox, rest: () };
        refusal(&Results::GetAttr(Err(failure)))
    });
    let refused = client.attributes(&root).unwrap_err();
    assert_eq!(refused.status(), Some(Status::Jukebox));
    assert_eq!(client.requester.pauses, 3 + BUSY_MAX);
}

#[test]
fn a_file_that_is_there_is_as_good_as_a_new_one_and_cut_to_size() {
    let mut client = Near::new(LIMITS).client();
    let root = client.root;
    let first = client.make_file(&root, "file", &pattern(5000));
    let again = client.create(&root, b"file", 0o600).unwrap();
    assert_eq!((again.file, again.attributes.size), (first.file, 5000));
    client.truncate(&again.file, 3).unwrap();
    assert_eq!(client.contents(&again.file, 5000).unwrap(), pattern(3));
}

#[test]
fn a_server_that_does_not_say_what_it_made_is_asked() {
    let mut client = Near::new(LIMITS).client();
    client.requester.edit = Box::new(|_, results| match results {
        Results::Create(Ok(made)) => {
            let silent = crate::nfs3::results::Made { file: None, attributes: None, ..*made };
            refusal(&Results::Create(Ok(silent)))
        }
        Results::Lookup(Ok(found)) => {
            let silent = crate::nfs3::results::Found { attributes: None, ..*found };
            refusal(&Results::Lookup(Ok(silent)))
        }
        _ => None,
    });
    let root = client.root;
    let made = client.create(&root, b"file", 0o640).unwrap();
    assert_eq!(made.attributes.mode & 0o777, 0o640);
    assert_eq!(client.requester.count(Procedure::Lookup), 1);
}

#[test]
fn results_that_are_cut_off_make_no_sense() {
    let mut client = Near::new(LIMITS).client();
    client.requester.instead = Box::new(|_| Some(vec![0, 0, 0]));
    let root = client.root;
    let error = client.attributes(&root).unwrap_err();
    assert!(matches!(error, Error::Malformed(Procedure::GetAttr, _)), "{error:?}");
}
