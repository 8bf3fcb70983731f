//! NFS version 3 over a memory backend, with fixed keys and a clock that the schedule moves.

use haulage_mr_pool::{PagePreference, Pool, PoolConfig};
use haulage_proto::chunk::PayloadReader;
use haulage_proto::rpc::{AcceptStat, AuthSys, Binding, Credential};
use haulage_proto::time::Instant;
use haulage_proto::xdr::Writer;
use haulage_store::access::{Policy, Squash};
use haulage_store::handle::{SealedHandle, Sealer};
use haulage_store::memory::{self, Memory};
use haulage_store::nfs3::binding::{Limits, binding};
use haulage_store::nfs3::{Procedure, Results, Time};
use haulage_store::program::{Ended, Origin, Program, RESULTS_KEPT};
use haulage_store::replays::{self, Connection, Replays};
use haulage_store::service::{Config, Service, Surroundings};

use super::super::bound::{PER_OCTET, within};
use super::calls::Asked;
use crate::world::choices::Choices;

/// A server, its pool and its clock.
pub(super) struct Served {
    program: Program<Memory>,
    pool: Pool,
    binding: Binding,
    /// The time of day, in seconds.
    pub(super) seconds: u32,
    /// The XID of the last Call made besides the schedule.
    aside: u32,
}

/// The result that a transport gets for a Call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Got {
    /// Results with the data behind them, padded.
    Results(Vec<u8>),
    /// The error with which the RPC layer answers.
    Failed(AcceptStat),
}

impl Served {
    pub(super) fn new(choices: &mut Choices) -> Self {
        // The smallest pool has no room for data.
        let bytes = choices.pick(&[256 << 10, 1 << 20, 1 << 20, 2 << 20]);
        let pool = PoolConfig { bytes, pages: PagePreference::Heap, node: None };
        let pool = Pool::new(&pool).expect("memory for a pool");
        let files_max = choices.pick(&[4, 64]);
        let room = memory::Limits { files_max, names_max: choices.pick(&[4, 64]) };
        let now = Time { seconds: 1, nanoseconds: 0 };
        let backend = Memory::new(&pool, room, 1, now).expect("a fresh pool has room");
        let squash = choices.pick(&[Squash::Nobody, Squash::Root, Squash::All]);
        let policy = Policy { squash, ..Policy::default() };
        let config = Config { policy, read_only: choices.one_in(16), limits: LIMITS };
        let service = Service::new(backend, Sealer::new(&[5; 32], 1), config);
        let kept = replays::Limits::of_memory(0, RESULTS_KEPT);
        let program = Program::new(service, Replays::new(&kept, 0));
        Self { program, pool, binding: binding(&LIMITS), seconds: 1, aside: 1 << 31 }
    }

    pub(super) fn root(&mut self) -> SealedHandle {
        self.program.service_mut().root()
    }

    /// Carries out a Call, and checks that it allocates no more than its length allows.
    pub(super) fn call(&mut self, xid: u32, asked: &Asked) -> Got {
        let placed = asked.placed.as_ref().and_then(|octets| {
            let mut lease = self.pool.lease(octets.len())?;
            lease.bytes_mut().copy_from_slice(octets);
            Some(lease)
        });
        let chunk = asked.placed.as_ref();
        let chunk = chunk.map(|octets| (asked.position, octets.len() as u64));
        let arguments = PayloadReader::call(&asked.octets, 0, chunk);
        let now = Time { seconds: self.seconds, nanoseconds: 0 };
        let around = Surroundings { pool: &self.pool, now, clock: Instant::ZERO, arrivals: None };
        let (uid, gid) = asked.caller;
        let credential = match asked.is_anonymous {
            true => Credential::None,
            false => Credential::Sys(AuthSys::new(0, b"fuzz", uid, gid)),
        };
        let origin = Origin { client: 1, connection: Connection(0), xid, credential };
        let mut memory = vec![0xee; RESULTS_MAX];
        let mut w = Writer::new(&mut memory);
        let program = &mut self.program;
        let most = PER_OCTET * asked.octets.len() as u64 + ALLOCATED_MAX;
        let ended = within(most, || {
            program.call(around, &origin, asked.procedure, (arguments, placed), &mut w)
        });
        match ended {
            Ended::Done(data) => {
                let procedure = self.binding.procedure(asked.procedure).expect("it was served");
                let most = procedure.results_max as usize;
                assert!(w.position() <= most, "results that a peer made no room for");
                assert!(data.len() <= LIMITS.read_max as usize, "data that nobody asked for");
                data.iter().for_each(|piece| w.put(piece.bytes()).expect("room for data"));
                w.pad(w.position()).expect("room for padding");
                Got::Results(w.written().to_vec())
            }
            Ended::Failed(stat) => {
                assert_eq!(w.position(), 0, "an error has no results");
                Got::Failed(stat)
            }
            Ended::Later(_) => panic!("memory answers at once"),
        }
    }

    /// Carries out a Call as the superuser, besides the schedule. Returns the results.
    pub(super) fn aside(&mut self, procedure: Procedure, octets: Vec<u8>) -> Vec<u8> {
        self.aside += 1;
        let asked = Asked { octets, ..Asked::new(procedure.number()) };
        match self.call(self.aside, &asked) {
            Got::Results(octets) => octets,
            Got::Failed(stat) => panic!("{procedure:?} of our own: {stat:?}"),
        }
    }

    /// Drops the server, and checks that all leases are home.
    pub(super) fn end(self) {
        let Self { program, pool, .. } = self;
        drop(program);
        assert_eq!((pool.gauges().leased_bytes, pool.gauges().orphans), (0, 0));
    }
}

/// Decodes results, and checks that they are well-formed: encoding them gives the same octets.
pub(super) fn results(procedure: Procedure, octets: &[u8]) -> Results<'_> {
    let results = Results::decode(procedure, &mut PayloadReader::reply(octets, 0, None));
    let results = results.unwrap_or_else(|error| panic!("results of {procedure:?}: {error}"));
    let mut again = vec![0; octets.len()];
    let mut w = Writer::new(&mut again);
    results.encode(&mut w).expect("as long as they were");
    assert_eq!(w.written(), octets, "results of {procedure:?}");
    results
}

/// The maximum lengths of reads, writes and directory listings.
pub(super) const LIMITS: Limits = Limits { read_max: 4096, write_max: 4096, readdir_max: 2048 };
const RESULTS_MAX: usize = 8192;
/// Octets allocated for a Call, however short it is: a name, an inode, nodes of maps.
const ALLOCATED_MAX: u64 = 8192;
