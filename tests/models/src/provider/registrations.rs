//! Registrations that end while the peer copies from or to them.

use std::sync::atomic::Ordering;

use haulage_mr_pool::{Handles, PagePreference, Pool, PoolConfig, PostedSink};
use haulage_proto::verbs::{Access, ClaimedSegment, Exposure, Handle, Segment as Claim};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::ends::segment;
use super::segment::Segment;
use super::table::{CopyGrant, Extent, Registrations, Retired};
use crate::check_deep;

/// The memory of a registration is used again only when the peer is not copying, and a peer that enters a later handle
/// sees the extent of that handle.
pub fn what_a_peer_copies_is_not_used_meanwhile() {
    check_deep(|| {
        let [ours, theirs] = segment(4);
        let (mut owner, handles) = (Owner::new(ours), sequence());
        let octets = Arc::new(UnsafeCell::new(()));
        owner.expose(handles[0], EXTENTS[0]);
        let peer = {
            let octets = octets.clone();
            thread::spawn(move || {
                for (handle, extent) in handles.into_iter().zip(EXTENTS) {
                    copy(&theirs, handle, extent, &octets);
                }
            })
        };
        owner.retire(handles[0]);
        octets.with_mut(|_| ());
        owner.expose(handles[1], EXTENTS[1]);
        peer.join().expect("it copied what it could");
    });
}

/// A peer that is refused because the connection has ended sees that it has ended.
pub fn a_peer_that_is_refused_at_the_end_knows_why() {
    check_deep(|| {
        let [ours, theirs] = segment(4);
        let (mut owner, handle) = (Owner::new(ours), sequence()[0]);
        owner.expose(handle, EXTENTS[0]);
        let octets = Arc::new(UnsafeCell::new(()));
        let peer = {
            let octets = octets.clone();
            thread::spawn(move || {
                if !copy(&theirs, handle, EXTENTS[0], &octets) {
                    assert_eq!(theirs.ended().load(Ordering::SeqCst), 1);
                }
            })
        };
        // The order of `Connection::withdraw`: the reason is written first, then every handle is retired.
        owner.segment.ended().store(1, Ordering::SeqCst);
        while !owner.registrations.retire_all(&owner.segment).1 {
            thread::yield_now();
        }
        octets.with_mut(|_| ());
        peer.join().expect("it copied, or knew why not");
    });
}

/// Writes to the memory under a handle, if it is open. Returns whether it was.
fn copy(theirs: &Segment, handle: Handle, extent: Extent, octets: &UnsafeCell<()>) -> bool {
    let access = Access::RemoteWrite;
    let Ok(grant) = CopyGrant::enter(theirs, 0, handle, access) else { return false };
    let claim = Claim { handle, offset: extent.base, length: 100 };
    let claim = ClaimedSegment::try_from(claim).expect("a segment that can be");
    assert_eq!(grant.locate(&claim, access), Ok(extent.start), "the extent of this handle");
    octets.with_mut(|_| ());
    true
}

/// One end's registrations, and the memory it exposes.
struct Owner {
    registrations: Registrations,
    handles: Handles,
    segment: Segment,
    /// The exposed memory, in a pool of its own.
    exposed: Option<(Pool, PostedSink)>,
}

impl Owner {
    fn new(segment: Segment) -> Self {
        let registrations = Registrations::default();
        Self { registrations, handles: handles(), segment, exposed: None }
    }

    /// Exposes memory under the next handle, which must be `handle`.
    fn expose(&mut self, handle: Handle, extent: Extent) {
        assert_eq!(self.registrations.reserve(&mut self.handles, 1), Some(handle));
        let config = PoolConfig { bytes: 1 << 16, pages: PagePreference::Heap, node: None };
        let pool = Pool::new(&config).expect("a small pool");
        let mut posted = pool.lease(100).expect("room for one").into_sink();
        let memory = Exposure::RemoteWrite(posted.sink(0..100).expect("all of it"));
        assert!(self.registrations.expose(&self.segment, 0, handle, extent, memory));
        self.exposed = Some((pool, posted));
    }

    /// Retires a registration, as soon as the peer is not copying.
    fn retire(&mut self, handle: Handle) {
        loop {
            match self.registrations.retire(&self.segment, 0, handle) {
                Retired::Now => break,
                Retired::NotYet => thread::yield_now(),
                Retired::Unknown => panic!("it is exposed"),
            }
        }
        let (pool, posted) = self.exposed.take().expect("it was exposed");
        drop(posted.complete().expect("no view is left"));
        drop(pool);
    }
}

fn handles() -> Handles {
    Handles::seeded(1, 3)
}

/// Returns the first two handles that the owner will draw.
fn sequence() -> [Handle; 2] {
    let mut handles = handles();
    let first = handles.fresh(0, Handle(0));
    [first, handles.fresh(0, first)]
}

const EXTENTS: [Extent; 2] = [
    Extent { base: 0x7000, start: 50, length: 100 },
    Extent { base: 0x9000, start: 4096, length: 100 },
];
