//! Posted and exposed leases, whose octets cannot be read, and the evidence that ends these states.
//!
//! # Memory ownership
//!
//! A lease is posted to the local RNIC ([`PostedSource`], [`PostedSink`]) or exposed through it to a peer
//! ([`Exposed`]). Only posted and exposed leases have views, which are counted. A writable lease leaves the state only
//! when no view of it is left. A shared lease may leave it at any time, because it is immutable; its block stays in use
//! until the last view is dropped. Dropping a posted or exposed lease never returns its block: it is not known whether
//! the other party has finished, so the block becomes an orphan.
//!
//! Proofs that a peer does not write assume an RNIC that restricts the peer to exposed memory. A peer that has mapped a
//! shared region itself is trusted instead: see "Shared regions" in the documentation of the crate.
//!
//! The type system cannot track a peer, so ending an exposure also needs an [`Invalidated`] token, which an `unsafe fn`
//! makes.

use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::ops::Range;
use std::ptr::NonNull;

use haulage_proto::verbs::{Access, Handle};

use crate::gauges::{LeaseState, bump};
use crate::lease::{Local, Shared};
use crate::pool_core::Count;
use crate::view::{Sink, Source, window};

impl Local {
    /// Makes the lease the source of Sends and Writes.
    #[inline]
    pub fn into_source(self) -> PostedSource<Self> {
        let record = LeaseRecord::begin(self.count(), LeaseState::Local, LeaseState::Posted);
        PostedSource::new(record, self.octets(), self)
    }

    /// Makes the lease the sink of Receives and Reads.
    #[inline]
    pub fn into_sink(self) -> PostedSink {
        PostedSink::new(self)
    }

    /// Exposes the whole lease for reading by the peer under `handle`. The registration takes the view.
    pub fn expose_read(self, handle: Handle) -> (Exposed, Source) {
        Exposed::for_reading(self, handle)
    }

    /// Exposes the whole lease for writing by the peer under `handle`. The registration takes the view.
    pub fn expose_write(self, handle: Handle) -> (Exposed, Sink) {
        Exposed::for_writing(self, handle)
    }
}

impl Shared {
    /// Makes this reference the source of Sends and Writes.
    #[inline]
    pub fn into_source(self) -> PostedSource<Self> {
        let record = LeaseRecord::begin(self.count(), LeaseState::Shared, LeaseState::Posted);
        PostedSource::new(record, self.octets(), self)
    }

    /// Returns a view of a range for the RNIC, or `None` if the range is not within the lease. The view is a reference
    /// of its own: this one may be dropped before it.
    pub fn source(&self, range: Range<usize>) -> Option<Source> {
        let (start, length) = self.octets();
        let (start, length) = window(start, length, range)?;
        // SAFETY: the octets are a shared lease's, so initialized, and the block is counted by `more`. Nobody writes
        // them while the view is counted: a shared block has no `Local` until the count is zero, our RNIC and the peer
        // write only sinks, and a shared lease makes none.
        Some(unsafe { Source::new(start, length, self.count().more()) })
    }
}

/// A lease that the local RNIC may read: the source of posted Sends and Writes. `L` is [`Local`] or
/// [`crate::Shared`].
#[derive(Debug)]
pub struct PostedSource<L> {
    record: LeaseRecord,
    start: NonNull<u8>,
    length: usize,
    lease: ManuallyDrop<L>,
}

impl<L> PostedSource<L> {
    /// Makes a posted source of a lease with these octets.
    pub(crate) fn new(
        record: LeaseRecord,
        (start, length): (NonNull<u8>, usize),
        lease: L,
    ) -> Self {
        Self { record, start, length, lease: ManuallyDrop::new(lease) }
    }

    /// Returns a view of a range for the RNIC, or `None` if the range is not within the lease.
    pub fn source(&self, range: Range<usize>) -> Option<Source> {
        let (start, length) = window(self.start, self.length, range)?;
        // SAFETY: the octets are the lease's, so initialized. Nobody writes them while the view is
        // counted: a `Local` is in here, where it lends no bytes, until `complete`, which that count
        // makes fail; a `Shared` is written nowhere; our RNIC and the peer write only sinks, which
        // neither makes.
        Some(unsafe { Source::new(start, length, self.record.count.more()) })
    }

    /// Returns the length in octets.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns whether the length is zero.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl PostedSource<Local> {
    /// Ends the posted state, once the local RNIC has read the lease.
    ///
    /// # Errors
    ///
    /// Returns the lease unchanged while a view of it exists.
    #[inline]
    pub fn complete(self) -> Result<Local, Self> {
        if !self.record.count.is_one() {
            return Err(self);
        }
        self.record.end();
        Ok(ManuallyDrop::into_inner(self.lease))
    }
}

impl PostedSource<Shared> {
    /// Ends the posted state. Remaining views may still read the octets.
    #[inline]
    pub fn complete(self) -> Shared {
        self.record.end();
        ManuallyDrop::into_inner(self.lease)
    }
}

/// A lease that the local RNIC may write at any moment: the sink of a posted Receive or Read.
#[derive(Debug)]
pub struct PostedSink {
    record: LeaseRecord,
    lease: ManuallyDrop<Local>,
}

impl PostedSink {
    #[inline]
    pub(crate) fn new(lease: Local) -> Self {
        let record = LeaseRecord::begin(lease.count(), LeaseState::Local, LeaseState::Posted);
        Self { record, lease: ManuallyDrop::new(lease) }
    }

    /// Returns a view of a range for the RNIC, or `None` if the range is not within the lease.
    #[inline]
    pub fn sink(&mut self, range: Range<usize>) -> Option<Sink> {
        let (start, length) = self.lease.octets();
        let (start, length) = window(start, length, range)?;
        // SAFETY: the octets are the lease's. No reference to them exists while the view is counted:
        // the only lease of the block is in here, where it lends bytes neither now, as `self` is
        // borrowed alone, nor while that count is more than one; nor does `complete` succeed then; and
        // this type makes no readable view.
        Some(unsafe { Sink::new(start, length, self.record.count.more()) })
    }

    /// Borrows the octets that the local RNIC has written, if no view is left, without ending the posted state. The
    /// next request into the same lease then needs only a view.
    #[inline]
    pub fn filled(&self) -> Option<&[u8]> {
        // No view can be made while the bytes are borrowed.
        self.record.count.is_one().then(|| self.lease.bytes())
    }

    /// Ends the posted state, once the local RNIC has written the lease.
    ///
    /// # Errors
    ///
    /// Returns the lease unchanged while a view of it exists.
    #[inline]
    pub fn complete(self) -> Result<Local, Self> {
        if !self.record.count.is_one() {
            return Err(self);
        }
        self.record.end();
        Ok(ManuallyDrop::into_inner(self.lease))
    }

    /// Returns the length in octets.
    pub fn len(&self) -> usize {
        self.lease.len()
    }

    /// Returns whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An exposed lease, which a peer may read or write at any moment under one handle.
///
/// Its octets are deliberately inaccessible, even if the peer may only read them, because the
/// borrow checker cannot track the peer's RNIC.
///
/// ```compile_fail,E0599
/// # use haulage_mr_pool::Exposed;
/// fn peek(exposed: &Exposed) -> &[u8] {
///     exposed.bytes()
/// }
/// ```
#[derive(Debug)]
pub struct Exposed {
    record: LeaseRecord,
    handle: Handle,
    access: Access,
    lease: ManuallyDrop<Local>,
}

impl Exposed {
    pub(crate) fn for_reading(lease: Local, handle: Handle) -> (Self, Source) {
        let (start, length) = lease.octets();
        let exposed = Self::new(lease, handle, Access::RemoteRead);
        let reference = exposed.record.count.more();
        // SAFETY: the octets are the lease's, so initialized. Nobody writes them while the view is
        // counted: the only lease is in `exposed`, which lends no bytes, until `fence`, which that
        // count makes fail; our RNIC grants the peer what the view can do, which is to read.
        (exposed, unsafe { Source::new(start, length, reference) })
    }

    pub(crate) fn for_writing(lease: Local, handle: Handle) -> (Self, Sink) {
        let (start, length) = lease.octets();
        let exposed = Self::new(lease, handle, Access::RemoteWrite);
        let reference = exposed.record.count.more();
        // SAFETY: the octets are the lease's. No reference to them exists while the view is counted:
        // the only lease is in `exposed`, which lends none, until `fence`, which that count makes
        // fail; and it also wants proof that the peer's RNIC does not write on behind the view.
        (exposed, unsafe { Sink::new(start, length, reference) })
    }

    fn new(lease: Local, handle: Handle, access: Access) -> Self {
        let record = LeaseRecord::begin(lease.count(), LeaseState::Local, LeaseState::Exposed);
        bump(&record.count.pool().owner().counters.registrations);
        record.count.forget_placed();
        Self { record, handle, access, lease: ManuallyDrop::new(lease) }
    }

    /// Ends the exposure, given proof that the peer has lost access.
    ///
    /// # Errors
    ///
    /// Returns the lease and the proof if the proof is for another handle, or if the view still
    /// exists.
    #[inline]
    pub fn fence<'turn>(
        self,
        proof: Invalidated<'turn>,
    ) -> Result<Local, (Self, Invalidated<'turn>)> {
        if proof.handle != self.handle || !self.record.count.is_one() {
            return Err((self, proof));
        }
        bump(&self.record.count.pool().owner().counters.fenced);
        self.record.end();
        Ok(ManuallyDrop::into_inner(self.lease))
    }

    /// Returns the number of octets that the peer placed, as far as the RNIC counts them ([`Sink::count_placed`]).
    /// Octets placed twice count twice, and the count does not say which octets were placed.
    pub fn placed(&self) -> u32 {
        self.record.count.placed()
    }

    /// Returns the handle under which the lease is exposed.
    pub const fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns the access that the peer has.
    pub const fn access(&self) -> Access {
        self.access
    }

    /// Returns the length in octets.
    pub fn len(&self) -> usize {
        self.lease.len()
    }

    /// Returns whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The record of a posted or exposed lease: the pool's gauges show the lease in that state until
/// the record ends. A record that is dropped instead counts as an orphan. It stays on the thread of
/// its pool, with the count of the lease and its views.
#[derive(Debug)]
pub(crate) struct LeaseRecord {
    count: Count,
    from: LeaseState,
    to: LeaseState,
}

impl LeaseRecord {
    pub(crate) fn begin(count: Count, from: LeaseState, to: LeaseState) -> Self {
        count.pool().owner().counters.pass(from, to);
        Self { count, from, to }
    }

    fn end(self) {
        self.count.pool().owner().counters.pass(self.to, self.from);
        mem::forget(self);
    }
}

impl Drop for LeaseRecord {
    fn drop(&mut self) {
        self.count.pool().owner().counters.orphan(self.to);
    }
}

/// Evidence that a handle was invalidated: a LocalInv completed, a Receive carried Remote
/// Invalidation, or the queue pair is quiesced and its registrations destroyed.
///
/// A token must be used in the turn that made it: handles recur, so that an old token could match a
/// later exposure. Safe code can neither make a token nor move it to another thread:
///
/// ```compile_fail,E0133
/// # use haulage_mr_pool::Invalidated;
/// # use haulage_proto::verbs::Handle;
/// let proof = Invalidated::mint(Handle(1));
/// ```
/// ```compile_fail,E0451
/// # use haulage_mr_pool::Invalidated;
/// # use haulage_proto::verbs::Handle;
/// let proof = Invalidated { handle: Handle(1), _turn: std::marker::PhantomData };
/// ```
#[derive(Debug)]
pub struct Invalidated<'turn> {
    handle: Handle,
    _turn: PhantomData<(&'turn (), *const ())>,
}

impl Invalidated<'_> {
    /// Makes the evidence that the registration of `handle` has ended.
    ///
    /// # Safety
    ///
    /// The registration of `handle` has ended, or never covered the memory itself: whatever a peer sends, no octet of
    /// the lease exposed as `handle` is read or written under it. (If another provider has chosen the same handle, it
    /// still holds the view, and `fence` refuses.)
    pub const unsafe fn mint(handle: Handle) -> Self {
        Self { handle, _turn: PhantomData }
    }

    /// Returns the handle that is no longer valid.
    pub const fn handle(&self) -> Handle {
        self.handle
    }
}

/// Evidence for tests, which have no peer.
#[cfg(test)]
pub(crate) mod evidence {
    use super::{Exposed, Handle, Invalidated, Local};

    pub(crate) fn invalidated<'turn>(handle: Handle) -> Invalidated<'turn> {
        // SAFETY: no RNIC ever learned the handle.
        unsafe { Invalidated::mint(handle) }
    }

    pub(crate) fn fenced(exposed: Exposed) -> Local {
        let proof = invalidated(exposed.handle());
        exposed.fence(proof).expect("the proof is of its handle and no view is left")
    }
}
