use std::os::fd::AsFd as _;

use haulage_mr_pool::{Exposed, PagePreference, Pool, PoolConfig};
use haulage_proto::verbs::Segment as Claim;

use super::super::segment::Layout;
use super::*;

const ENTRIES: u32 = 4;
const OFFSET: u64 = 0x7000;

/// One end's records and segment, and the segment as the peer has it mapped.
struct Bed {
    registrations: Registrations,
    handles: Handles,
    ours: Segment,
    theirs: Segment,
    pool: Pool,
}

impl Bed {
    fn new() -> Self {
        let layout = Layout::new(4096, ENTRIES).unwrap();
        let (ours, fd) = Segment::create(layout).unwrap();
        let theirs = Segment::open(fd.as_fd(), layout).unwrap();
        let config = PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None };
        let (pool, handles) = (Pool::new(&config).unwrap(), Handles::seeded(ENTRIES as usize, 3));
        Self { registrations: Registrations::default(), handles, ours, theirs, pool }
    }

    /// Registers 100 octets for writing, which the table says are 50 octets into the region.
    fn expose(&mut self) -> (Exposed, Handle) {
        let handle = self.registrations.reserve(&mut self.handles, ENTRIES).unwrap();
        let (exposed, sink) = self.pool.lease(100).unwrap().expose_write(handle);
        let extent = Extent { base: OFFSET, start: 50, length: 100 };
        let (slot, memory) = (self.handles.slot(handle), Exposure::RemoteWrite(sink));
        assert!(self.registrations.expose(&self.ours, slot, handle, extent, memory));
        (exposed, handle)
    }

    fn enter(&self, handle: Handle, access: Access) -> Result<CopyGrant<'_>, Fault> {
        CopyGrant::enter(&self.theirs, self.handles.slot(handle), handle, access)
    }

    fn retire(&mut self, handle: Handle) -> Retired {
        self.registrations.retire(&self.ours, self.handles.slot(handle), handle)
    }
}

fn claim(handle: Handle, offset: u64, length: u32) -> ClaimedSegment {
    ClaimedSegment::try_from(Claim { handle, offset, length }).unwrap()
}

#[test]
fn only_the_whole_handle_for_what_it_was_made_for_lets_in() {
    let mut bed = Bed::new();
    let reserved = bed.registrations.reserve(&mut bed.handles, ENTRIES).unwrap();
    assert_eq!(bed.enter(reserved, Access::RemoteRead).err(), Some(Fault::ReadStag));
    let (_exposed, handle) = bed.expose();
    assert!(bed.enter(handle, Access::RemoteWrite).is_ok());
    assert_eq!(bed.enter(handle, Access::RemoteRead).err(), Some(Fault::ReadAccess));
    for bit in 0..32 {
        let other = Handle(handle.0 ^ 1 << bit);
        assert_eq!(bed.enter(other, Access::RemoteWrite).err(), Some(Fault::TaggedStag), "{bit}");
    }
    let beyond = CopyGrant::enter(&bed.theirs, ENTRIES as usize, handle, Access::RemoteWrite);
    assert_eq!(beyond.err(), Some(Fault::TaggedStag));
    // A peer that was refused is not copying, either.
    assert_eq!(bed.retire(handle), Retired::Now);
    assert_eq!(bed.enter(handle, Access::RemoteWrite).err(), Some(Fault::TaggedStag));
    assert_eq!(bed.retire(handle), Retired::Unknown);
}

#[test]
fn no_claim_reaches_out_of_its_registration() {
    let mut bed = Bed::new();
    let (_exposed, handle) = bed.expose();
    let grant = bed.enter(handle, Access::RemoteWrite).unwrap();
    let locate = |offset, length| grant.locate(&claim(handle, offset, length), Access::RemoteWrite);
    for (offset, length, start) in [(0, 100, 50), (0, 0, 50), (100, 0, 150), (99, 1, 149)] {
        assert_eq!(locate(OFFSET + offset, length), Ok(start));
    }
    for (offset, length) in [(0, 101), (100, 1), (101, 0), (u64::MAX - OFFSET, 0), (1 << 62, 1)] {
        assert_eq!(locate(OFFSET + offset, length), Err(Fault::TaggedBounds), "{offset} {length}");
    }
    assert_eq!(locate(OFFSET - 1, 1), Err(Fault::TaggedBounds));
    assert_eq!(locate(0, u32::MAX), Err(Fault::TaggedBounds));
}

#[test]
fn a_table_that_lies_wraps_nowhere() {
    let mut bed = Bed::new();
    let (_exposed, handle) = bed.expose();
    let entry = bed.ours.entry(bed.handles.slot(handle)).unwrap();
    let put = |at, value| bed.ours.memory().u64_at(entry + at).store(value, Ordering::Relaxed);
    put(START, u64::MAX);
    put(LENGTH, u64::MAX);
    let grant = bed.enter(handle, Access::RemoteWrite).unwrap();
    let refused = grant.locate(&claim(handle, OFFSET + 1, 1), Access::RemoteWrite);
    assert_eq!(refused, Err(Fault::TaggedBounds));
    // A range within a false table is checked against the mapped region by the caller.
    assert_eq!(grant.locate(&claim(handle, OFFSET, 1), Access::RemoteWrite), Ok(u64::MAX));
}

#[test]
fn a_registration_ends_when_nobody_copies_any_more() {
    let mut bed = Bed::new();
    let (exposed, handle) = bed.expose();
    let (slot, entry) =
        (bed.handles.slot(handle), bed.ours.entry(bed.handles.slot(handle)).unwrap());
    bed.theirs.memory().u32_at(entry + IN_USE).store(1, Ordering::SeqCst);
    assert_eq!(bed.retire(handle), Retired::NotYet);
    assert_eq!(bed.retire(handle), Retired::NotYet);
    assert_eq!(bed.registrations.retire_all(&bed.ours), (0, false));
    // The view still exists, so the lease is not given back, whatever is claimed.
    let exposed = crate::sys::complete::tests::fence_early(exposed, handle).unwrap_err();
    // But the peer cannot enter again.
    assert_eq!(
        CopyGrant::enter(&bed.theirs, slot, handle, Access::RemoteWrite).err(),
        Some(Fault::TaggedStag)
    );
    bed.theirs.memory().u32_at(entry + IN_USE).store(0, Ordering::SeqCst);
    assert_eq!(bed.retire(handle), Retired::Now);
    assert!(crate::sys::complete::tests::fence_early(exposed, handle).is_ok());
}

#[test]
fn slots_are_limited_and_come_back() {
    let mut bed = Bed::new();
    let kept: Vec<_> = (0..ENTRIES).map(|_| bed.expose()).collect();
    assert_eq!(bed.registrations.reserve(&mut bed.handles, ENTRIES), None);
    assert_eq!(bed.retire(kept[1].1), Retired::Now);
    let again = bed.registrations.reserve(&mut bed.handles, ENTRIES).unwrap();
    assert_ne!(again, kept[1].1);
    assert_eq!(bed.handles.slot(again), bed.handles.slot(kept[1].1));
    // A handle can be exposed only if it is reserved, and once.
    let (_other, sink) = bed.pool.lease(8).unwrap().expose_write(kept[0].1);
    let (slot, memory) = (bed.handles.slot(kept[0].1), Exposure::RemoteWrite(sink));
    let extent = Extent { base: 0, start: 0, length: 8 };
    assert!(!bed.registrations.expose(&bed.ours, slot, kept[0].1, extent, memory));
    assert_eq!(bed.registrations.retire_all(&bed.ours), (ENTRIES as usize, true));
    for (_, handle) in kept {
        assert_eq!(bed.enter(handle, Access::RemoteWrite).err(), Some(Fault::TaggedStag));
    }
}

/// A copy and an invalidation race in every round: the invalidation never succeeds during the copy.
#[test]
fn a_copy_and_an_invalidation_never_overlap() {
    let layout = Layout::new(4096, 1).unwrap();
    let (ours, fd) = Segment::create(layout).unwrap();
    let (inside, round_ends) =
        (std::sync::atomic::AtomicBool::new(false), std::sync::Barrier::new(2));
    std::thread::scope(|threads| {
        let (inside, round_ends, fd) = (&inside, &round_ends, &fd);
        const ROUNDS: u32 = 2000;
        threads.spawn(move || {
            let theirs = Segment::open(fd.as_fd(), layout).unwrap();
            for round in 1..=ROUNDS {
                round_ends.wait();
                if let Ok(grant) = CopyGrant::enter(&theirs, 0, Handle(round), Access::RemoteWrite)
                {
                    inside.store(true, Ordering::SeqCst);
                    std::hint::black_box(&grant);
                    inside.store(false, Ordering::SeqCst);
                }
                round_ends.wait();
            }
        });
        for round in 1..=ROUNDS {
            let entry = ours.entry(0).unwrap();
            let key = key(Handle(round), Access::RemoteWrite);
            ours.memory().u64_at(entry + KEY).store(key, Ordering::SeqCst);
            round_ends.wait();
            while close(&ours, 0) {
                std::hint::spin_loop();
            }
            assert!(!inside.load(Ordering::SeqCst), "copying in round {round}");
            round_ends.wait();
        }
    });
}
