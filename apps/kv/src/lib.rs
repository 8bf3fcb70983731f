//! A key-value service, and its client.
//!
//! Values live in registered memory: a GET is an RDMA Write from where the value lies, a PUT an RDMA
//! Read to where it stays. Short values travel in the messages.
//!
//! - [`protocol`]: the RPC program, its arguments and results.
//! - [`index`]: the hash table of keys.
//! - [`service`]: the server.
//! - [`client`]: the client; [`inline`]: which values travel in the messages.
//! - [`watch`]: a client that the server tells of changes.
//! - [`stat`]: the statistics of a server; [`figures`]: the resource counters of one end.
//!
//! ```
//! use haulage::core::{Core, NoService};
//! use haulage::cores::{self, Placement};
//! use haulage::limits::LIMITS_DEFAULT;
//! use haulage::polling::Polling;
//! use haulage::pool::{PagePreference, Pool, PoolConfig};
//! use haulage::provider::iwarp::{Config, Iwarp};
//! use haulage::remote::RemoteClient;
//! use haulage::sys::clock;
//! use haulage_kv::client::Client;
//! use haulage_kv::index::Seed;
//! use haulage_kv::protocol::Key;
//! use haulage_kv::service::{KvService, binding};
//!
//! type Failure = Box<dyn std::error::Error + Send + Sync>;
//! const VALUE_MAX: usize = 1 << 20;
//!
//! fn parts() -> Result<(Iwarp, Pool), Failure> {
//!     let memory = PoolConfig { bytes: 16 << 20, pages: PagePreference::Heap, node: None };
//!     Ok((Iwarp::new(&Config::default())?, Pool::new(&memory)?))
//! }
//!
//! fn placement(name: &str) -> Placement {
//!     Placement { name: name.to_owned(), cpu: None, polling: Polling::ADAPTIVE }
//! }
//!
//! let server = cores::start(placement("server"), || {
//!     let (provider, pool) = parts()?;
//!     let service = KvService::new(1000, Seed::random()?, VALUE_MAX, 16 << 20);
//!     let mut core = Core::new(provider, service, pool, LIMITS_DEFAULT, 1)?;
//!     let at = core.listen(([127, 0, 0, 1], 0).into())?;
//!     Ok::<_, Failure>((core, at))
//! })?;
//! let at = server.started;
//! let mut connected = cores::start(placement("client"), move || {
//!     let (provider, pool) = parts()?;
//!     let mut core = Core::new(provider, NoService, pool, LIMITS_DEFAULT, 2)?;
//!     let connection = core.connect(clock::now(), at, binding(VALUE_MAX))?;
//!     let remote = RemoteClient::of(&core, connection).ok_or("no room for a client")?;
//!     Ok::<_, Failure>((core, remote))
//! })?;
//!
//! let key = Key::new(b"greeting")?;
//! let mut client = Client::new(&mut connected.started, None);
//! client.put(key, b"good morning")?;
//! let value = client.get(key, 64)?;
//! assert_eq!(value.bytes(), b"good morning");
//! client.del(key)?;
//! drop(value);
//! connected.stop()?;
//! server.stop()?;
//! # Ok::<(), Failure>(())
//! ```
#![forbid(unsafe_code)]

pub mod client;
pub mod figures;
#[cfg(test)]
mod histories;
pub mod index;
pub mod inline;
pub mod protocol;
pub mod service;
pub mod stat;
pub mod watch;
