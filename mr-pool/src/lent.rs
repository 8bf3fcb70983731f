//! Leases lent to an RNIC, which have no bytes, and the evidence that takes them back.
//!
//! # Memory ownership
//!
//! A lease is lent to our own RNIC ([`PostedSource`], [`PostedSink`]) or through it to a peer
//! ([`Exposed`]). Views are made of lent leases only, and counted. A lease that could be written is
//! taken back only when no view of it is left; a shared one at any time, as nobody writes it, and its
//! block stays out until the last view is gone. Dropping a lent lease never returns its block: whether
//! the other party is done is unknown, so the block becomes an orphan.
//!
//! Proofs that a peer does not write speak of a peer that an RNIC keeps to what is exposed. One that has mapped a
//! shared region itself is trusted instead: see "Shared regions" in the documentation of the crate.
//!
//! What the types cannot see is a peer, so an exposed lease needs a token too, [`Invalidated`], which
//! an `unsafe fn` makes.

use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::ops::Range;
use std::ptr::NonNull;

use haulage_proto::verbs::{Access, Handle};

use crate::gauges::{State, bump};
use crate::home::Count;
use crate::lease::{Local, Shared};
use crate::view::{Sink, Source, window};

impl Local {
    /// Makes it the source of Sends and Writes.
    #[inline]
    pub fn into_source(self) -> PostedSource<Self> {
        let loan = Loan::begin(self.count(), State::Local, State::Posted);
        PostedSource::new(loan, self.octets(), self)
    }

    /// Makes it the sink of Receives and Reads.
    #[inline]
    pub fn into_sink(self) -> PostedSink {
        PostedSink::new(self)
    }

    /// Opens all of it to be read by the peer under `handle`; the view goes into the registration.
    pub fn expose_read(self, handle: Handle) -> (Exposed, Source) {
        Exposed::for_reading(self, handle)
    }

    /// Opens all of it to be written by the peer under `handle`; the view goes into the registration.
    pub fn expose_write(self, handle: Handle) -> (Exposed, Sink) {
        Exposed::for_writing(self, handle)
    }
}

impl Shared {
    /// Makes this reference the source of Sends and Writes.
    #[inline]
    pub fn into_source(self) -> PostedSource<Self> {
        let loan = Loan::begin(self.count(), State::Shared, State::Posted);
        PostedSource::new(loan, self.octets(), self)
    }
}

/// A lease our RNIC may read: the source of posted Sends and Writes. `L` is [`Local`] or
/// [`crate::Shared`].
#[derive(Debug)]
pub struct PostedSource<L> {
    loan: Loan,
    start: NonNull<u8>,
    length: usize,
    lease: ManuallyDrop<L>,
}

impl<L> PostedSource<L> {
    /// Lends a lease whose octets these are.
    pub(crate) fn new(loan: Loan, (start, length): (NonNull<u8>, usize), lease: L) -> Self {
        Self { loan, start, length, lease: ManuallyDrop::new(lease) }
    }

    /// Returns the RNIC's view of a range, or `None` if it is not within the lease.
    pub fn source(&self, range: Range<usize>) -> Option<Source> {
        let (start, length) = window(self.start, self.length, range)?;
        // SAFETY: the octets are the lease's, so initialized. Nobody writes them while the view is
        // counted: a `Local` is in here, where it lends no bytes, until `complete`, which that count
        // makes fail; a `Shared` is written nowhere; our RNIC and the peer write only sinks, which
        // neither makes.
        Some(unsafe { Source::new(start, length, self.loan.count.more()) })
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
    /// Takes the lease back once our RNIC has read it.
    ///
    /// # Errors
    ///
    /// It is returned as it was while a view of it is left.
    #[inline]
    pub fn complete(self) -> Result<Local, Self> {
        if !self.loan.count.is_one() {
            return Err(self);
        }
        self.loan.end();
        Ok(ManuallyDrop::into_inner(self.lease))
    }
}

impl PostedSource<Shared> {
    /// Takes the reference back. Views that are left go on reading.
    #[inline]
    pub fn complete(self) -> Shared {
        self.loan.end();
        ManuallyDrop::into_inner(self.lease)
    }
}

/// A lease our RNIC may write at any moment: the sink of a posted Receive or Read.
#[derive(Debug)]
pub struct PostedSink {
    loan: Loan,
    lease: ManuallyDrop<Local>,
}

impl PostedSink {
    #[inline]
    pub(crate) fn new(lease: Local) -> Self {
        let loan = Loan::begin(lease.count(), State::Local, State::Posted);
        Self { loan, lease: ManuallyDrop::new(lease) }
    }

    /// Returns the RNIC's view of a range, or `None` if it is not within the lease.
    #[inline]
    pub fn sink(&mut self, range: Range<usize>) -> Option<Sink> {
        let (start, length) = self.lease.octets();
        let (start, length) = window(start, length, range)?;
        // SAFETY: the octets are the lease's. No reference to them exists while the view is counted:
        // the only lease of the block is in here, where it lends bytes neither now, as `self` is
        // borrowed alone, nor while that count is more than one; nor does `complete` succeed then; and
        // this type makes no readable view.
        Some(unsafe { Sink::new(start, length, self.loan.count.more()) })
    }

    /// Borrows what our RNIC has written, if no view of it is left, without taking the lease back: the
    /// next request it is the sink of costs nothing but a view.
    #[inline]
    pub fn filled(&self) -> Option<&[u8]> {
        // No view can be made while the bytes are borrowed.
        self.loan.count.is_one().then(|| self.lease.bytes())
    }

    /// Takes the lease back once our RNIC has written it.
    ///
    /// # Errors
    ///
    /// It is returned as it was while a view of it is left.
    #[inline]
    pub fn complete(self) -> Result<Local, Self> {
        if !self.loan.count.is_one() {
            return Err(self);
        }
        self.loan.end();
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

/// A lease a peer may read or write at any moment, under one handle.
///
/// There is deliberately no way to its bytes, not even when the peer may only read: the peer's RNIC
/// is a party the borrow checker cannot see.
///
/// ```compile_fail,E0599
/// # use haulage_mr_pool::Exposed;
/// fn peek(exposed: &Exposed) -> &[u8] {
///     exposed.bytes()
/// }
/// ```
#[derive(Debug)]
pub struct Exposed {
    loan: Loan,
    handle: Handle,
    access: Access,
    lease: ManuallyDrop<Local>,
}

impl Exposed {
    pub(crate) fn for_reading(lease: Local, handle: Handle) -> (Self, Source) {
        let (start, length) = lease.octets();
        let exposed = Self::new(lease, handle, Access::RemoteRead);
        let reference = exposed.loan.count.more();
        // SAFETY: the octets are the lease's, so initialized. Nobody writes them while the view is
        // counted: the only lease is in `exposed`, which lends no bytes, until `fence`, which that
        // count makes fail; our RNIC grants the peer what the view can do, which is to read.
        (exposed, unsafe { Source::new(start, length, reference) })
    }

    pub(crate) fn for_writing(lease: Local, handle: Handle) -> (Self, Sink) {
        let (start, length) = lease.octets();
        let exposed = Self::new(lease, handle, Access::RemoteWrite);
        let reference = exposed.loan.count.more();
        // SAFETY: the octets are the lease's. No reference to them exists while the view is counted:
        // the only lease is in `exposed`, which lends none, until `fence`, which that count makes
        // fail; and it also wants proof that the peer's RNIC does not write on behind the view.
        (exposed, unsafe { Sink::new(start, length, reference) })
    }

    fn new(lease: Local, handle: Handle, access: Access) -> Self {
        let loan = Loan::begin(lease.count(), State::Local, State::Exposed);
        bump(&loan.count.home().owner().counters.registrations);
        loan.count.forget_placed();
        Self { loan, handle, access, lease: ManuallyDrop::new(lease) }
    }

    /// Takes the memory back, given proof that the peer has lost access.
    ///
    /// # Errors
    ///
    /// Both are returned if the proof is of another handle, or while the view is left.
    #[inline]
    pub fn fence<'turn>(
        self,
        proof: Invalidated<'turn>,
    ) -> Result<Local, (Self, Invalidated<'turn>)> {
        if proof.handle != self.handle || !self.loan.count.is_one() {
            return Err((self, proof));
        }
        bump(&self.loan.count.home().owner().counters.fenced);
        self.loan.end();
        Ok(ManuallyDrop::into_inner(self.lease))
    }

    /// Returns how many octets the peer placed, as far as its RNIC counts them
    /// ([`Sink::count_placed`]): octets placed twice count twice, and which ones were placed is not known.
    pub fn placed(&self) -> u32 {
        self.loan.count.placed()
    }

    /// Returns the handle the peer knows.
    pub const fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns what the peer may do.
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

/// That a lease is lent: the pool shows it as such until the loan ends. One that is dropped instead
/// shows an orphan. Stays on the thread of its pool, with the count of the lease and its views.
#[derive(Debug)]
pub(crate) struct Loan {
    count: Count,
    from: State,
    to: State,
}

impl Loan {
    pub(crate) fn begin(count: Count, from: State, to: State) -> Self {
        count.home().owner().counters.pass(from, to);
        Self { count, from, to }
    }

    fn end(self) {
        self.count.home().owner().counters.pass(self.to, self.from);
        mem::forget(self);
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.count.home().owner().counters.orphan(self.to);
    }
}

/// Evidence that a handle was invalidated: a LocalInv completed, a Receive carried Remote
/// Invalidation, or the queue pair is quiesced and its registrations destroyed.
///
/// Spent in the turn that mints it: handles recur, so a token kept could match a later exposure.
/// Safe code cannot make one, nor take it to another thread:
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
    /// Makes the evidence.
    ///
    /// # Safety
    ///
    /// The registration of `handle` is gone, or was never of the memory itself: whatever a peer sends, no
    /// octet of what was exposed as `handle` is read or written under it. (Should another provider have drawn the same handle, it still holds the view, and `fence`
    /// refuses.)
    pub const unsafe fn mint(handle: Handle) -> Self {
        Self { handle, _turn: PhantomData }
    }

    /// Returns the handle that is no longer valid.
    pub const fn handle(&self) -> Handle {
        self.handle
    }
}

/// Evidence made up by tests, which have no peer.
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
