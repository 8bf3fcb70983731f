//! The bookkeeping of a pool, the pointer by which leases reach it from any thread, and the reference counts that keep
//! a block from being freed.
//!
//! # Memory ownership
//!
//! [`PoolCore`] frees the bookkeeping and the region when the pool is dropped while every block is
//! free, and never otherwise. A lease is a block in use, so [`PoolRef`], the pointer in each lease, is
//! valid as long as the lease. Only the owner's thread accesses anything but [`Returns`] and the counts of common blocks,
//! which [`Bound`] checks.
//!
//! Every `Shared` and every view of a shared, posted or exposed block holds a [`Reference`], and a
//! posted or exposed `Local` counts as one. The block is freed with the last reference, so a view
//! keeps it in use as a lease does.
//!
//! The references of a common block are counted by atomics: the `Common` itself is one, and each core that sends from it
//! has one more, its [`Visit`]. A visit has a plain count of its own, of the references on that core.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::blocks::{Allocation, Block, Blocks, Page, Resident, SLAB_BLOCKS_MAX};
use crate::gauges::{Counters, LeaseState};
use crate::references;
use crate::region::Region;
use crate::returns::Returns;
use crate::size::PAGE;
use crate::zeroes::{Zero, zeroes};

/// The parts of a pool that its leases need.
struct Body {
    returns: Returns,
    owner: Bound<Owner>,
    /// The start and the length of the region.
    start: NonNull<u8>,
    length: usize,
    /// Other pools may have other parts of it.
    region: Arc<Region>,
}

/// The bookkeeping that only the owner's thread accesses.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) blocks: RefCell<Blocks>,
    pub(crate) counters: Counters,
    /// The counts of each block that is shared, posted or exposed.
    counts: Box<[Tally]>,
    visits: Visits,
}

/// The counts of one block that is common, shared, posted or exposed.
#[derive(Debug, Default)]
#[repr(C)]
struct Tally {
    /// Other threads than the owner's have access to it while the block is common, and only then.
    references: AtomicU32,
    /// The number of octets that a peer placed in the block while it was exposed, as far as its
    /// RNIC counts them; or the tag of a block that has one, which is not exposed.
    placed: Cell<u32>,
}

/// The owner of the bookkeeping and the region: dropping it frees both, or leaks both if a block is
/// in use.
#[derive(Debug)]
pub(crate) struct PoolCore(PoolRef);

impl PoolCore {
    /// Creates the bookkeeping of a region, owned by the calling thread, to which all of its pages belong. Returns `None` if there
    /// is no memory for it.
    pub(crate) fn new(region: Arc<Region>) -> Option<Self> {
        let pages = pages_of(&region);
        Self::of(region, Blocks::new(pages)?, Returns::new(pages)?)
    }

    /// Creates the bookkeeping of a region, owned by the calling thread, to which no page of it belongs yet. It takes memory as
    /// pages come. Returns `None` if there is none for it.
    pub(crate) fn without_pages(region: Arc<Region>) -> Option<Self> {
        let pages = pages_of(&region) as usize;
        let returns = Returns::of(zeroes(pages)?, zeroes(pages)?);
        Self::of(region, Blocks::none(zeroes(pages)?), returns)
    }

    fn of(region: Arc<Region>, blocks: Blocks, returns: Returns) -> Option<Self> {
        let owner = Owner {
            blocks: RefCell::new(blocks),
            counters: Counters::default(),
            counts: zeroes(Blocks::counts(pages_of(&region)))?,
            visits: Visits::new()?,
        };
        let (start, length) = (region.at(0), region.len());
        let body = Body { returns, owner: Bound::here(owner), start, length, region };
        Some(Self(PoolRef(NonNull::from(Box::leak(Box::new(body))))))
    }

    /// Returns the pointer that leases hold.
    pub(crate) const fn pool(&self) -> PoolRef {
        self.0
    }

    /// Returns the memfd of the region, if it has one.
    pub(crate) fn memfd(&self) -> Option<BorrowedFd<'_>> {
        self.0.body().region.memfd()
    }

    /// Returns the start of the region. Reading or writing there needs a lease or a view.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.0.body().start
    }
}

impl Drop for PoolCore {
    fn drop(&mut self) {
        self.0.collect();
        let Owner { blocks, visits, .. } = self.0.owner();
        if !blocks.borrow().all_home() || visits.out.get() > 0 {
            // A view of a lent block, or a lease elsewhere, may outlive us: its memory must too.
            return;
        }
        // SAFETY: the pointer is `Box::leak`'s, and only this drop frees it. Every block is home, so
        // nobody holds it: not a lease on another thread, whose last access was the push we collected
        // with its block; not a view (of our RNIC's or through a peer's handle), as its reference
        // keeps its block out, or its visit.
        drop(unsafe { Box::from_raw(self.0.0.as_ptr()) });
    }
}

/// The pointer from a lease to its pool. It exists in the pool, in leases and in views, never
/// longer than these.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct PoolRef(NonNull<Body>);

// SAFETY: from another thread than the owner's only the owner's number, which never changes, and the
// atomics of `Returns` can be reached: `Bound` keeps the rest, and `region` is not handed out.
unsafe impl Send for PoolRef {}
// SAFETY: as above. A `PoolRef` is copied where it is used, so a reference to one gives no more.
unsafe impl Sync for PoolRef {}

impl PoolRef {
    /// Allocates a block by `take`; returns it, and the start of its octets.
    #[inline(always)]
    pub(crate) fn take(
        self,
        mut take: impl FnMut(&mut Blocks) -> Option<Allocation>,
    ) -> Option<(Allocation, NonNull<u8>)> {
        let owner = self.owner();
        let taken = take(&mut owner.blocks.borrow_mut());
        let grant = match taken {
            Some(grant) => grant,
            None if self.collect() => take(&mut owner.blocks.borrow_mut())?,
            None => return None,
        };
        let start = self.body().at(grant.offset);
        owner.counters.enter(LeaseState::Local);
        Some((grant, start))
    }

    /// Frees the block of a `Local`, from any thread.
    pub(crate) fn give(self, block: Block) {
        let body = self.body();
        match body.owner.get() {
            Some(owner) => {
                owner.blocks.borrow_mut().give(block);
                owner.counters.leave(LeaseState::Local, 1);
            }
            None => {
                let Returns { head, marks, links } = &body.returns;
                Returns::push(head, marks, links, block);
            }
        }
    }

    /// Frees a block that was common, whose count is `references` and of which there is no reference left, from any thread.
    fn give_common(self, block: Block, references: &AtomicU32) {
        let body = self.body();
        match body.owner.get() {
            Some(owner) => {
                owner.counters.leave(LeaseState::Shared, 1);
                owner.blocks.borrow_mut().give(block);
            }
            None => {
                references.store(COMMON_ONCE, Ordering::Relaxed);
                let Returns { head, marks, links } = &body.returns;
                Returns::push(head, marks, links, block);
            }
        }
    }

    /// Frees the blocks that other threads returned; returns whether there were any.
    pub(crate) fn collect(self) -> bool {
        let owner = self.owner();
        let count = self.body().returns.drain(|block| {
            let mut blocks = owner.blocks.borrow_mut();
            let Tally { references, .. } = &owner.counts[blocks.count_index(block)];
            let was_common = references.load(Ordering::Relaxed) == COMMON_ONCE;
            if was_common {
                references.store(0, Ordering::Relaxed);
            }
            let state = if was_common { LeaseState::Shared } else { LeaseState::Local };
            owner.counters.leave(state, 1);
            blocks.give(block);
        });
        count > 0
    }

    /// Frees a block with its last plain reference, or ends a visit with that.
    fn release(self, block: Block) {
        let owner = self.owner();
        if block.index == VISIT {
            drop(owner.visits.end(block.first));
        } else {
            owner.blocks.borrow_mut().give(block);
        }
    }

    /// Gives a block a tag, by which its owner finds it when it is to be moved.
    #[inline]
    pub(crate) fn tag(self, block: Block, tag: u32) {
        let owner = self.owner();
        let mut blocks = owner.blocks.borrow_mut();
        blocks.tag(block);
        owner.counts[blocks.count_index(block)].placed.set(tag);
    }

    /// Goes to the next stretch of blocks with tags, and appends them to `found`. Returns the pages of the stretch.
    pub(crate) fn next_stretch(self, found: &mut Vec<Resident>) -> Option<Range<u32>> {
        let owner = self.owner();
        // Once shared, a block of which there is only a `Local` may have one reference, or still the last one's count.
        let tag = |index: usize| {
            let Tally { references, placed } = &owner.counts[index];
            (references.load(Ordering::Relaxed) <= 1).then(|| placed.get())
        };
        owner.blocks.borrow_mut().next_stretch(found, tag)
    }

    /// Has the blocks of a slab, or of a run, leave it, and appends them to `found`, unless that makes no page free.
    pub(crate) fn begin_to_leave(self, found: &mut Vec<Resident>) {
        let owner = self.owner();
        let tag = |index: usize| owner.counts[index].placed.get();
        owner.blocks.borrow_mut().begin_to_leave(found, tag)
    }

    /// Starts counting references to a block. The first reference is the caller's.
    #[inline]
    pub(crate) fn count(self, block: Block) -> Count {
        let owner = self.owner();
        let index = owner.blocks.borrow().count_index(block);
        let tally = NonNull::from(&owner.counts[index]);
        let count = Count { tally, pool: self, block };
        count.tally().references.store(1, Ordering::Relaxed);
        count
    }

    /// Begins a visit: a count of references on this core to a common block, which may be another pool's. The first reference
    /// is the caller's. Returns `None` if there are [`VISITS_MAX`].
    pub(crate) fn visit(self, common: CommonReference) -> Option<Count> {
        let (visit, number) = self.owner().visits.begin(common)?;
        let count = Count {
            tally: NonNull::from(&visit.tally),
            pool: self,
            block: Block { first: number, index: VISIT },
        };
        count.tally().references.store(1, Ordering::Relaxed);
        Some(count)
    }

    /// Returns the owner's bookkeeping.
    ///
    /// # Panics
    ///
    /// On any thread but the owner's.
    pub(crate) fn owner(&self) -> &Owner {
        self.body().owner.get().expect("a lease changes its state only on the thread of its pool")
    }

    fn body(&self) -> &Body {
        // SAFETY: the body is freed only when every block is home and the pool is gone. `self` is part
        // of the pool, or of a lease or a view, hence of a block that is out. No `&mut Body` is ever
        // made. The body lies outside the region, so no peer and no RNIC writes it.
        unsafe { self.0.as_ref() }
    }
}

impl Body {
    /// Returns the address of the octet at `offset`, which must be within the region.
    fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.length, "offset {offset} is beyond the region");
        // SAFETY: the offset is within the one mapping that `start` points to, and `region` keeps.
        unsafe { self.start.add(offset) }
    }
}

/// Returns the number of pages of a region, of which there are fewer than 2^32.
fn pages_of(region: &Region) -> u32 {
    u32::try_from(region.len() / PAGE).unwrap_or(u32::MAX)
}

impl fmt::Debug for PoolRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PoolRef(..)")
    }
}

/// The count of references to a block in use. It exists in the block's leases and views, never longer, and only on the
/// thread of the pool.
#[derive(Clone, Copy)]
pub(crate) struct Count {
    tally: NonNull<Tally>,
    pool: PoolRef,
    block: Block,
}

impl Count {
    /// Adds a reference.
    ///
    /// # Panics
    ///
    /// At 2^32 references, which only leaked references can add up to.
    pub(crate) fn more(self) -> Reference {
        let Tally { references, .. } = self.tally();
        let more = references.load(Ordering::Relaxed).checked_add(1);
        references.store(more.expect("fewer than 2^32 references"), Ordering::Relaxed);
        Reference(self)
    }

    /// Returns the first reference, the one that [`PoolRef::count`] counted.
    pub(crate) const fn into_first(self) -> Reference {
        Reference(self)
    }

    /// Has the block be common from now on: the first reference is counted by atomics.
    pub(crate) fn into_common(self) -> CommonReference {
        CommonReference {
            references: NonNull::from(&self.tally().references),
            pool: self.pool,
            block: self.block,
        }
    }

    /// Returns whether there is only one reference.
    pub(crate) fn is_one(self) -> bool {
        self.tally().references.load(Ordering::Relaxed) == 1
    }

    /// Counts octets that a peer placed in the block.
    pub(crate) fn place(self, octets: u32) {
        let Tally { placed, .. } = self.tally();
        placed.set(placed.get().saturating_add(octets));
    }

    /// Resets the number of octets that a peer placed in the block.
    pub(crate) fn forget_placed(self) {
        self.tally().placed.set(0);
    }

    /// Returns the number of octets that a peer placed in the block since [`Self::forget_placed`].
    pub(crate) fn placed(self) -> u32 {
        self.tally().placed.get()
    }

    /// Returns the pointer to the pool.
    pub(crate) const fn pool(self) -> PoolRef {
        self.pool
    }

    fn tally(&self) -> &Tally {
        // SAFETY: the count is in the pool's books, which live while a block or a visit is out, and `self` is part
        // of a lease or a view of one. The books lie outside the region: neither our RNIC nor a peer writes
        // them, not even a peer that has mapped the whole region. No other block has the count while ours
        // is out. `self` is not `Send` and was made on the owner's thread (`owner` in `PoolRef::count` and
        // `PoolRef::visit`), so no other thread has it: of a common block other threads have `references`, which is
        // atomic, and the owner has no `Count` any more.
        unsafe { self.tally.as_ref() }
    }
}

impl fmt::Debug for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {:?}", self.tally().references.load(Ordering::Relaxed), self.block)
    }
}

/// One reference to a block, which is freed with its last reference.
#[derive(Debug)]
pub(crate) struct Reference(Count);

impl Reference {
    /// Returns the count that this reference is part of.
    pub(crate) const fn count(&self) -> Count {
        self.0
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        let Count { pool, block, .. } = self.0;
        let Tally { references, .. } = self.0.tally();
        let count = references.load(Ordering::Relaxed) - 1;
        references.store(count, Ordering::Relaxed);
        if count == 0 {
            pool.release(block);
        }
    }
}

/// One reference to a common block, which is freed with its last reference, on any thread.
#[derive(Debug)]
pub(crate) struct CommonReference {
    references: NonNull<AtomicU32>,
    pool: PoolRef,
    block: Block,
}

// SAFETY: the references are counted by atomics, which any thread may access while one of them exists; the block is given
// home from any thread.
unsafe impl Send for CommonReference {}
// SAFETY: as above: a reference to a `CommonReference` reads the count, adds to it, and copies the rest.
unsafe impl Sync for CommonReference {}

impl CommonReference {
    /// Adds a reference. There are fewer than 2^32: each but the first is a visit's.
    pub(crate) fn more(&self) -> Self {
        references::add(self.references());
        Self { references: self.references, pool: self.pool, block: self.block }
    }

    /// Returns whether there is only this reference, so that nobody else reads the octets, and only its owner can have
    /// others do so.
    pub(crate) fn is_one(&self) -> bool {
        references::is_one(self.references())
    }

    /// Returns the pointer to the pool of the block.
    pub(crate) const fn pool(&self) -> PoolRef {
        self.pool
    }

    /// Returns the block.
    pub(crate) const fn block(&self) -> Block {
        self.block
    }

    fn references(&self) -> &AtomicU32 {
        // SAFETY: the count is in the books of the block's pool, outside the region, which live while the block is out:
        // `self` keeps it out. The owner accesses it as an atomic, too.
        unsafe { self.references.as_ref() }
    }
}

impl Drop for CommonReference {
    fn drop(&mut self) {
        // Behind this line the books may be gone, unless it was the last one.
        if references::remove(self.references()) {
            self.pool.give_common(self.block, self.references());
        }
    }
}

/// References of one core to common blocks, of which each has a plain count of its own.
#[derive(Debug)]
struct Visits {
    table: Box<[Visit]>,
    /// The first free visit, plus one, of those that were in use before; 0 if there is none.
    free: Cell<u32>,
    /// The number of visits that were ever in use.
    used: Cell<u32>,
    out: Cell<u32>,
}

/// A reference of one core to a common block. Zeroes are a free one.
#[derive(Debug, Default)]
#[repr(C)]
struct Visit {
    tally: Tally,
    references: Cell<Option<NonNull<AtomicU32>>>,
    pool: Cell<Option<PoolRef>>,
    first: Cell<u32>,
    index: Cell<u8>,
    /// The next free visit, plus one.
    next: Cell<u32>,
}

impl Visits {
    fn new() -> Option<Self> {
        let (free, used, out) = Default::default();
        Some(Self { table: zeroes(VISITS_MAX as usize)?, free, used, out })
    }

    fn begin(&self, common: CommonReference) -> Option<(&Visit, u32)> {
        let number = match self.free.get().checked_sub(1) {
            Some(number) => number,
            None => {
                let number = self.used.get();
                (number < VISITS_MAX).then(|| self.used.set(number + 1))?;
                number
            }
        };
        let visit = &self.table[number as usize];
        self.free.set(visit.next.replace(0));
        let CommonReference { references, pool, block } = common;
        std::mem::forget(common);
        visit.references.set(Some(references));
        visit.pool.set(Some(pool));
        visit.first.set(block.first);
        visit.index.set(block.index);
        self.out.set(self.out.get() + 1);
        Some((visit, number))
    }

    /// Ends a visit, and returns the reference that it had.
    fn end(&self, number: u32) -> Option<CommonReference> {
        let visit = &self.table[number as usize];
        let (references, pool) = (visit.references.take()?, visit.pool.take()?);
        visit.next.set(self.free.replace(number + 1));
        self.out.set(self.out.get() - 1);
        let block = Block { first: visit.first.get(), index: visit.index.get() };
        Some(CommonReference { references, pool, block })
    }
}

/// The most visits of a core: Replies that are on their way, with the pieces of their items.
const VISITS_MAX: u32 = 1 << 16;
/// The index of no block: the block is a visit, and its page the number of that.
const VISIT: u8 = u8::MAX;
const _: () = assert!(SLAB_BLOCKS_MAX < VISIT as usize);
/// The references of a common block that came home from another thread: no block has as many.
const COMMON_ONCE: u32 = u32::MAX;

// SAFETY: an atomic and a cell of `u32`, of which zero is a value.
unsafe impl Zero for Tally {}
// SAFETY: the first octet says which variant it is, as its representation is that of `u8`: zero is `Held`, which has nothing else.
unsafe impl Zero for Page {}
// SAFETY: a tally, cells of integers, and cells of options of pointers that are never null, of which zero is `None`.
unsafe impl Zero for Visit {}

/// A value for one thread only.
struct Bound<T> {
    thread: u64,
    value: T,
}

impl<T> Bound<T> {
    fn here(value: T) -> Self {
        Self { thread: thread_number(), value }
    }

    fn get(&self) -> Option<&T> {
        (self.thread == thread_number()).then_some(&self.value)
    }
}

/// Returns the calling thread's number. No two threads of a process ever have the same.
fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static NUMBER: Cell<u64> = const { Cell::new(0) });
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}
