//! Registered memory: where it comes from, who may touch it now, and by which handle.
//!
//! A [`Pool`] belongs to one core. It takes one region from the machine at start, in the largest
//! pages to be had, and lends it out as leases without ever asking for memory again. A lease's type
//! says who may touch the bytes:
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
//! Only [`Local`] and [`Shared`] have bytes. What goes to the RNIC is a view, [`Source`] or [`Sink`].
//! Views are counted: a `Local` comes back from `Posted` and from [`Exposed`] only when no view of it
//! is left, and a shared block goes home only then. What no count shows is a peer: to come back from
//! [`Exposed`] takes an [`Invalidated`] token too, which only an `unsafe fn` makes. Dropping a lease in
//! those states never returns it: it is counted as an orphan and its memory stays out of use.
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
//! # Memory ownership
//!
//! All bookkeeping is outside the region, so no peer can corrupt it: not even one that has mapped all of
//! the region. Contents are not cleared between leases: whoever sends a block to another tenant fills all of
//! it first.
//!
//! # Shared regions
//!
//! A region of [`PagePreference::Shared`] lies in a memfd. A peer that is given it, by
//! [`Pool::memfd`], is its own RNIC: nothing but its honesty keeps it to what is exposed to it. The proofs in
//! this crate that neither our RNIC nor a peer writes certain octets hold on one condition, which whoever
//! passes the memfd vouches for: *the peer writes only octets of leases that are exposed to it for writing, and
//! only until their handle is retired*.
//!
//! Of a peer that breaks the condition this holds:
//!
//! - It can read and change any octet of any lease of the pool, in any state, at any moment, and it can take
//!   pages away, which ends the process by SIGBUS.
//! - It cannot change where a lease lies, how long it is, which state it is in, how many views of it are left,
//!   or which blocks are free.
//! - The slices that leases lend ([`Local::bytes`], [`Local::bytes_mut`], [`Shared::bytes`],
//!   [`PostedSink::filled`], [`Source::bytes`], [`Piece::bytes`]) can change while they are borrowed. Rust's
//!   rules call that undefined behaviour. In practice two reads of an octet can differ, so that a check of the
//!   contents proves nothing about a later read: for instance, a `str` that was valid UTF-8 may be no longer.
//!
//! Copying octets out before they are checked is not enough to make this sound, as the copy begins with a
//! slice. What would be is a memfd that holds only leases to be exposed, which lend no slices before their
//! octets are copied to private memory. Until then, pass the memfd only to peers that are trusted like a part
//! of the program.
//!
//! The crate's `unsafe` code is in four files, each proving its part:
//!
//! - `region/map.rs`: memory comes from the system, once, and goes back once.
//! - `home.rs`: only the owner's thread touches a pool's books; they outlive every lease and view.
//! - `view.rs`: octets are read and written through pointers only here.
//! - `lent.rs`: while a view is counted its lease is not given back; the one thing left for a caller to
//!   prove is that a peer has lost access.
#![deny(unsafe_code)]

mod blocks;
mod error;
mod gauges;
mod handles;
#[allow(unsafe_code, reason = "the pool's books are reached by pointer, from leases on any thread")]
mod home;
mod lease;
#[allow(
    unsafe_code,
    reason = "views are made of lent leases; that a peer is gone is for callers to prove"
)]
mod lent;
mod pieces;
mod pool;
mod region;
mod registration;
mod returns;
mod size;
mod stags;
mod sync;
mod table;
#[allow(unsafe_code, reason = "the RNIC's and the owner's access to the region's octets")]
mod view;

#[cfg(test)]
mod tests;

pub use error::PoolError;
pub use gauges::{ClassGauge, Gauges};
pub use handles::{Handles, NoEntropy};
pub use lease::{Local, Shared};
pub use lent::{Exposed, Invalidated, PostedSink, PostedSource};
pub use pieces::{PIECES_MAX, Piece, Pieces};
pub use pool::{Pool, PoolConfig};
pub use region::{Declined, PageKind, PagePreference, PageReport, map_memfd};
pub use registration::{MrEvent, MrState, Strategy};
pub use stags::{StagFault, Stags};
pub use view::{OutOfBounds, Sink, Source};
