//! A storage server framework, and a client.
//!
//! Its layers, all but [`server`], [`crowd`] and [`client`] independent of a transport:
//!
//! - [`nfs3`] and [`mount3`]: the arguments and results of NFS version 3 and MOUNT version 3, for both
//!   roles, with the Upper-Layer Binding of RFC 8267.
//! - [`handle`]: file handles that name a file and cannot be forged.
//! - [`backend`]: the storage interface of the server. READ data is sent from registered memory as
//!   [`Pieces`](haulage_mr_pool::Pieces), WRITE data stays in the lease it was placed in.
//! - [`memory`]: a file system in registered memory.
//! - [`directory`]: the files of a directory tree, whose data the kernel reads into leases and writes
//!   from them.
//! - [`access`]: callers after squashing, and the permission checks.
//! - [`trust`]: the AUTH_SYS claims that the server believes.
//! - [`service`]: NFS version 3 over any backend: one Call in, one Reply out.
//! - [`mounts`]: MOUNT version 3 for one export: one Call in, one Reply out.
//! - [`replays`]: the duplicate request cache.
//! - [`program`]: the service with the cache, from encoded Calls to encoded Replies.
//! - [`server`]: the program over RDMA and over TCP, and MOUNT beside it.
//! - [`crowd`]: connection limits of one TCP port.
//! - [`client`]: an NFS client that finds, lists, reads and writes files.
//!
//! ```
//! use haulage_mr_pool::{PagePreference, Pool, PoolConfig};
//! use haulage_proto::rpc::Credential;
//! use haulage_proto::time::Instant;
//! use haulage_store::access::Policy;
//! use haulage_store::handle::Sealer;
//! use haulage_store::memory::{self, Memory};
//! use haulage_store::nfs3::binding::Limits;
//! use haulage_store::nfs3::{Arguments, DirName, Name, Status, Time};
//! use haulage_store::service::{Answer, Call, Config, Service, Surroundings};
//!
//! let pool = Pool::new(&PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None })?;
//! let now = Time { seconds: 1, nanoseconds: 0 };
//! let around = Surroundings { pool: &pool, now, clock: Instant::ZERO, arrivals: None };
//! let room = memory::Limits { files_max: 1000, names_max: 1000 };
//! let backend = Memory::new(&pool, room, 1, around.now).expect("a fresh pool has room");
//!
//! let limits = Limits { read_max: 1 << 20, write_max: 1 << 20, readdir_max: 1 << 16 };
//! let config = Config { policy: Policy::default(), read_only: false, limits };
//! let mut service = Service::new(backend, Sealer::new(&[7; 32], 1), config);
//!
//! let root = service.root();
//! let at = DirName { dir: root.as_file_handle(), name: Name(b"nothing") };
//! let (credential, arguments) = (Credential::None, Arguments::Lookup(at));
//! let answer = service.call(around, Call { credential, arguments, placed: None, room: usize::MAX, network: 0 });
//! let Answer::Now(reply) = answer else { unreachable!("memory answers at once") };
//! assert_eq!(reply.results.status(), Status::NoEnt);
//! # Ok::<(), haulage_mr_pool::PoolError>(())
//! ```
#![forbid(unsafe_code)]

pub mod access;
pub mod backend;
pub mod client;
pub mod codec;
pub mod crowd;
pub mod directory;
pub mod handle;
pub mod memory;
pub mod mount3;
pub mod mounts;
pub mod nfs3;
pub mod program;
pub mod replays;
pub mod server;
pub mod service;
pub mod trust;

#[cfg(test)]
mod testing;
