//! Registered memory: regions, leases that say who may access the memory, and registrations.
//!
//! A [`Pool`] belongs to one core. At start it takes one region from the system, in the largest
//! pages available, and hands it out as leases without allocating again. The pools of several cores may take memory from one
//! region instead, as they need it ([`Reservoir`]). The type of a lease says who may access its octets:
//!
//! ```text
//!            share            into_source           complete
//!   Local ----------> Shared -------------> Posted -----------> Shared
//!     |                         (our RNIC reads)
//!     | into_source / into_sink             complete
//!     +-----------------------------------> Posted -----------> Local
//!     | expose_read / expose_write          fence
//!     +-----------------------------------> Exposed ----------> Local
//!                               (a peer reads or writes)
//! ```
//!
//! A [`Local`] can also become a [`Common`], which any thread reads and drops, and any core sends from.
//!
//! Only [`Local`], [`Shared`] and [`Common`] give access to octets. The RNIC gets a view, [`Source`] or [`Sink`]. Views are
//! counted: a `Local` leaves the states `Posted` and [`Exposed`] only when no view of it is left, and a shared block
//! returns to the pool only then. No count can track a peer: leaving [`Exposed`] also takes an [`Invalidated`] token,
//! which only an `unsafe fn` makes. A lease that is dropped in those states never returns to the pool: it is counted as
//! an orphan and its memory is never reused.
//!
//! ```
//! use haulage_mr_pool::{Invalidated, PagePreference, Pool, PoolConfig};
//! use haulage_proto::verbs::Handle;
//!
//! let pool = Pool::new(&PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None })?;
//! let mut result = pool.lease(100).expect("a fresh pool has room");
//! result.bytes_mut().fill(0);
//!
//! let handle = Handle(0x1234_5601); // a provider reserves it
//! let (exposed, mut sink) = result.expose_write(handle);
//! sink.place(0, b"placed by the peer").expect("it fits"); // the RNIC's part
//! drop(sink);
//!
//! // SAFETY: no RNIC knows this handle any more: none ever did.
//! let proof = unsafe { Invalidated::mint(handle) };
//! let result = exposed.fence(proof).expect("the handles match");
//! assert!(result.bytes().starts_with(b"placed by the peer"));
//!
//! drop(result);
//! assert_eq!(pool.gauges().leased_bytes, 0);
//! # Ok::<(), haulage_mr_pool::PoolError>(())
//! ```
//!
//! An item for which no block is long enough lies in several leases ([`Leases`], [`Pieces`]).
//!
//! # Memory ownership
//!
//! All bookkeeping is outside the region, so that no peer can corrupt it, not even one that has mapped the whole
//! region. Contents are not cleared between leases: a caller that sends a block to another tenant must fill all of it
//! first.
//!
//! # Shared regions
//!
//! A region of [`PagePreference::Shared`] is in a memfd. A peer that receives the memfd ([`Pool::memfd`]) is its own
//! RNIC: nothing enforces that it accesses exposed memory only. The proofs in this crate that neither the local RNIC
//! nor a peer writes certain octets hold on one condition, for which the caller that passes the memfd is responsible:
//! *the peer writes only octets of leases that are exposed to it for writing, and only until their handle is retired*.
//!
//! A peer that breaks the condition has this power:
//!
//! - It can read and change any octet of any lease of the pool, in any state, at any moment, and it can remove pages,
//!   which ends the process by SIGBUS.
//! - It cannot change the place, the length or the state of a lease, the number of its views, or the set of free
//!   blocks.
//! - The slices that leases lend ([`Local::bytes`], [`Local::bytes_mut`], [`Shared::bytes`], [`PostedSink::filled`],
//!   [`Source::bytes`], [`Piece::bytes`]) can change while they are borrowed, which is undefined behaviour in Rust. In
//!   practice two reads of an octet can differ, so that a check of the contents proves nothing about a later read: for
//!   instance, a `str` that was valid UTF-8 may become invalid.
//!
//! Copying octets before checking them does not make this sound, because the copy begins with a slice. A sound design
//! would put only exposed leases into the memfd, and lend no slices of them before their octets are copied to private
//! memory. Until then, pass the memfd only to peers that are trusted like a part of the program.
//!
//! The crate's `unsafe` code is in five files, each of which proves one part:
//!
//! - `region/map.rs`: memory is mapped once and unmapped once.
//! - `pool_core.rs`: only the owner's thread accesses a pool's bookkeeping, which outlives every lease
//!   and view.
//! - `view.rs`: octets are read and written through pointers only here.
//! - `zeroes.rs`: memory that the system zeroed is taken for values of which zeroes are one.
//! - `lent.rs`: a lease stays posted or exposed while a view of it exists; the caller has to prove only that a peer has
//!   lost access.
#![deny(unsafe_code)]

mod allowance;
mod blocks;
mod common;
mod config;
mod error;
mod gauges;
mod handles;
mod lease;
mod leases;
#[allow(
    unsafe_code,
    reason = "views are made of lent leases; that a peer is gone is for callers to prove"
)]
mod lent;
mod mover;
mod pieces;
mod pool;
#[allow(unsafe_code, reason = "the pool's books are reached by pointer, from leases on any thread")]
mod pool_core;
mod references;
mod region;
mod registration;
mod reservoir;
mod returns;
mod size;
mod stags;
mod sync;
mod table;
#[allow(unsafe_code, reason = "the RNIC's and the owner's access to the region's octets")]
mod view;
#[allow(unsafe_code, reason = "memory that is zero is taken for values")]
mod zeroes;

#[cfg(test)]
mod tests;

pub use allowance::{Allowance, CpuQuota, GroupLimit};
pub use common::Common;
pub use config::PoolConfig;
pub use error::PoolError;
pub use gauges::{ClassGauge, Gauges};
pub use handles::{Handles, NoEntropy};
pub use lease::{LeasePlace, Local, Shared};
pub use leases::{Leases, PostedSinks};
pub use lent::{Exposed, Invalidated, PostedSink, PostedSource};
pub use mover::{Keeper, Movable, Moved, Mover, Replaced, Step};
pub use pieces::{Piece, Pieces};
pub use pool::{Density, Pool};
pub use region::{Declined, PageKind, PagePreference, PageReport, map_memfd};
pub use registration::{MrEvent, MrState, Strategy};
pub use reservoir::Reservoir;
pub use stags::{StagFault, Stags};
pub use view::{OutOfBounds, Sink, Source};
#[doc(hidden)]
pub use zeroes::{Zero, zeroes};
