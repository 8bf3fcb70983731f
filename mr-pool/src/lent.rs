//! Leases lent to an RNIC, which have no bytes, and the evidence that takes them back.
//!
//! # Memory ownership
//!
//! A lease is lent to our own RNIC ([`PostedSource`], [`PostedSink`]) or through it to a peer
//! ([`Exposed`]). Views are made of lent leases only. Dropping a lent lease never returns its block:
//! whether the other party is done is unknown, so the block becomes an orphan.
//!
//! Three functions take a lease back; each is `unsafe`, or needs a token that is, because the types
//! cannot see an RNIC. All of them ask the caller for the same thing: that every view is gone.

use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::ops::Range;
use std::ptr::NonNull;

use haulage_proto::verbs::{Access, Handle};

use crate::gauges::{State, bump};
use crate::home::Home;
use crate::lease::Local;
use crate::view::{Sink, Source, window};

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
        // SAFETY: the octets are initialized and live until `complete` or longer; its caller promises
        // that this view is gone by then, and dropping `self` keeps them for good. Until then nobody
        // writes them: the owner's lease is in here, where none has `bytes_mut`; a shared one has it
        // nowhere; our RNIC and the peer write only sinks, which this type does not make.
        Some(unsafe { Source::new(start, length) })
    }

    /// Takes the lease back once our RNIC has read it.
    ///
    /// # Safety
    ///
    /// Every view made by `source` has been dropped, and nothing will read the octets through one:
    /// the requests that carried them completed, or a later request of their queue pair did, or the
    /// provider reported that queue pair quiesced.
    pub unsafe fn complete(self) -> L {
        self.loan.end();
        ManuallyDrop::into_inner(self.lease)
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

/// A lease our RNIC may write at any moment: the sink of a posted Receive or Read.
#[derive(Debug)]
pub struct PostedSink {
    loan: Loan,
    lease: ManuallyDrop<Local>,
}

impl PostedSink {
    pub(crate) fn new(lease: Local) -> Self {
        let loan = Loan::begin(lease.home(), State::Local, State::Posted);
        Self { loan, lease: ManuallyDrop::new(lease) }
    }

    /// Returns the RNIC's view of a range, or `None` if it is not within the lease.
    pub fn sink(&self, range: Range<usize>) -> Option<Sink> {
        let (start, length) = self.lease.octets();
        let (start, length) = window(start, length, range)?;
        // SAFETY: the octets live until `complete` or longer; its caller promises that this view is
        // gone by then, and dropping `self` keeps them for good. Until then no reference to them
        // exists: the only lease of the block is in here, and this type makes no readable view.
        Some(unsafe { Sink::new(start, length) })
    }

    /// Takes the lease back once our RNIC has written it.
    ///
    /// # Safety
    ///
    /// Every view made by `sink` has been dropped, and nothing will write the octets through one:
    /// the Receive or Read that carried it completed, or the provider reported its queue pair (of a
    /// Receive: the provider itself) quiesced.
    pub unsafe fn complete(self) -> Local {
        self.loan.end();
        ManuallyDrop::into_inner(self.lease)
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
        // SAFETY: the octets are initialized and live until `fence` or longer; it needs a token whose
        // maker promised that this view is gone, and dropping the lease keeps them for good. Until
        // then nobody writes them: the only lease is in `exposed`, which lends no bytes; our RNIC
        // grants the peer what the view can do, which is to read.
        (exposed, unsafe { Source::new(start, length) })
    }

    pub(crate) fn for_writing(lease: Local, handle: Handle) -> (Self, Sink) {
        let (start, length) = lease.octets();
        let exposed = Self::new(lease, handle, Access::RemoteWrite);
        // SAFETY: the octets live until `fence` or longer; it needs a token whose maker promised that
        // this view is gone, so the peer writes no more, and dropping the lease keeps them for good.
        // Until then no reference to them exists: the only lease is in `exposed`, which lends none.
        (exposed, unsafe { Sink::new(start, length) })
    }

    fn new(lease: Local, handle: Handle, access: Access) -> Self {
        let loan = Loan::begin(lease.home(), State::Local, State::Exposed);
        bump(&lease.home().owner().counters.registrations);
        Self { loan, handle, access, lease: ManuallyDrop::new(lease) }
    }

    /// Takes the memory back, given proof that the peer has lost access.
    ///
    /// # Errors
    ///
    /// Both are returned if the proof is of another handle.
    pub fn fence<'turn>(
        self,
        proof: Invalidated<'turn>,
    ) -> Result<Local, (Self, Invalidated<'turn>)> {
        if proof.handle != self.handle {
            return Err((self, proof));
        }
        self.loan.end();
        bump(&self.lease.home().owner().counters.fenced);
        Ok(ManuallyDrop::into_inner(self.lease))
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

/// That a lease is lent: counts it as such until the loan ends. One that is dropped instead counts
/// an orphan. Stays on the thread of its pool.
#[derive(Debug)]
pub(crate) struct Loan {
    home: Home,
    from: State,
    to: State,
    _here: PhantomData<*const ()>,
}

impl Loan {
    pub(crate) fn begin(home: Home, from: State, to: State) -> Self {
        home.owner().counters.pass(from, to);
        Self { home, from, to, _here: PhantomData }
    }

    fn end(self) {
        self.home.owner().counters.pass(self.to, self.from);
        mem::forget(self);
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.home.owner().counters.orphan(self.to);
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
    /// The registration of `handle` is gone: the view that was exposed under it has been dropped, and
    /// neither our RNIC nor a peer will touch the octets through it. No other lease of this thread is
    /// exposed under the same handle.
    pub const unsafe fn mint(handle: Handle) -> Self {
        Self { handle, _turn: PhantomData }
    }

    /// Returns the handle that is no longer valid.
    pub const fn handle(&self) -> Handle {
        self.handle
    }
}

/// Evidence made up by tests, which hold all the views themselves.
#[cfg(test)]
pub(crate) mod evidence {
    use super::{Exposed, Handle, Invalidated, Local, PostedSink, PostedSource};

    pub(crate) fn completed<L>(posted: PostedSource<L>) -> L {
        // SAFETY: tests drop their views first.
        unsafe { posted.complete() }
    }

    pub(crate) fn filled(posted: PostedSink) -> Local {
        // SAFETY: tests drop their views first.
        unsafe { posted.complete() }
    }

    pub(crate) fn invalidated<'turn>(handle: Handle) -> Invalidated<'turn> {
        // SAFETY: tests drop their views first.
        unsafe { Invalidated::mint(handle) }
    }

    pub(crate) fn fenced(exposed: Exposed) -> Local {
        let proof = invalidated(exposed.handle());
        exposed.fence(proof).expect("the proof is of its handle")
    }
}
