//! Memory that another process can write at any moment: sealed memfds, mapped.
//!
//! No Rust reference to such memory exists except to atomics, which may change under us; octets are copied in and out
//! by pointer. Any value read from here is a claim of the peer.
//!
//! # Memory ownership
//!
//! Before a peer's memfd is mapped, its seals and its length are checked: it cannot be shrunk, nor can the seals change
//! later. A peer can still punch holes into it, for which the system may find no page. Such a page is replaced when we
//! touch it (see [`bus_error`](super::bus_error)), and [`Shared::is_broken`] reports it. From then on the mapping and
//! the memfd hold different octets there, so the owner must give the mapping up.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64};

use haulage_mr_pool::{Sink, map_memfd};
#[cfg(test)]
use rustix::fs::{FallocateFlags, fallocate};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstatfs, memfd_create};

use super::bus_error::Guard;
use super::elsewhere::drop_elsewhere;

/// A mapping of a memfd that a peer has mapped, too; unmapped when dropped.
#[derive(Debug)]
pub struct Shared {
    start: NonNull<u8>,
    length: usize,
    /// Dropped before the mapping is.
    guard: Option<Guard>,
}

/// The reason that memory of a peer is not mapped.
#[derive(Debug)]
pub enum Unfit {
    /// The descriptor is no memfd, or a memfd that could be shrunk.
    NotSealed,
    /// The memfd's length is not the one announced.
    Length,
    /// The system reported an error.
    System(io::Error),
}

impl Shared {
    /// Makes `length` octets of zeroed memory; any process that gets the descriptor can map them, too.
    pub fn create(name: &CStr, length: usize) -> io::Result<(Self, OwnedFd)> {
        let file = File::from(memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        file.set_len(length as u64)?;
        fcntl_add_seals(&file, SEALS)?;
        Ok((Self::map(file.as_fd(), length)?, file.into()))
    }

    /// Maps a memfd of exactly `length` octets that a peer passed.
    pub fn open(memfd: BorrowedFd<'_>, length: usize) -> Result<Self, Unfit> {
        Self::check(memfd, length)?;
        Self::map(memfd, length).map_err(Unfit::System)
    }

    /// Finds out whether [`Self::open`] would map a memfd, without mapping it. One that is fit stays so.
    pub fn check(memfd: BorrowedFd<'_>, length: usize) -> Result<(), Unfit> {
        // Asking for the seals fails on a file that is no memfd.
        if !fcntl_get_seals(memfd).is_ok_and(|seals| seals.contains(SEALS)) {
            return Err(Unfit::NotSealed);
        }
        // The size is read after the check of the seals, because a sealed file cannot change its size.
        let file = File::from(memfd.try_clone_to_owned().map_err(Unfit::System)?);
        let size = file.metadata().map_err(Unfit::System)?.len();
        if length == 0 || size != length as u64 {
            return Err(Unfit::Length);
        }
        Ok(())
    }

    /// Maps a memfd that can be truncated: a test truncates it instead of punching holes for which there is no page,
    /// which requires huge pages.
    #[cfg(test)]
    pub(crate) fn open_unsealed(memfd: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        Self::map(memfd, length)
    }

    /// Returns the length in octets.
    #[inline]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns whether the length is zero, which it never is.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns whether pages were missing when we touched them, and were replaced by ours.
    pub fn is_broken(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::is_broken)
    }

    /// Returns the word at `offset`.
    ///
    /// # Panics
    ///
    /// If the word is not in the memory, or `offset` is no multiple of 4.
    #[inline]
    pub fn u32_at(&self, offset: usize) -> &AtomicU32 {
        let place = self.place::<AtomicU32>(offset);
        // SAFETY: `place` checked bounds and alignment, and the mapping lives as long as the borrow.
        // Zeroed or whatever the peer wrote, four octets are a valid value. Other accesses to them, by us
        // or the peer, are atomic too, or by pointer and of octets nobody reads as atomics meanwhile.
        unsafe { place.as_ref() }
    }

    /// Returns the double word at `offset`.
    ///
    /// # Panics
    ///
    /// If the word is not in the memory, or `offset` is no multiple of 8.
    #[inline]
    pub fn u64_at(&self, offset: usize) -> &AtomicU64 {
        let place = self.place::<AtomicU64>(offset);
        // SAFETY: as in `u32_at`, of eight octets.
        unsafe { place.as_ref() }
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Panics
    ///
    /// If not all of the octets are in the memory.
    #[inline]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        let to = self.range(offset, bytes.len());
        // SAFETY: `range` checked that the octets are in the mapping. `bytes` is elsewhere: no reference
        // to octets of a mapping is ever made here, and another mapping of the same memfd, such as our
        // own pool when both ends are in one process, has the octets at another address. The peer may
        // read or write what we write: it sees or leaves octets of no meaning, in memory that is its to
        // spoil; nothing of ours is read through this.
        unsafe { copy(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
    }

    /// Copies `length` octets from `offset` to `at` in `sink`; returns whether it has room there.
    ///
    /// # Panics
    ///
    /// If not all of the octets are in the memory.
    #[inline]
    pub fn copy_out(&self, offset: usize, sink: &mut Sink, at: usize, length: usize) -> bool {
        let from = self.range(offset, length);
        let Some((to, length)) = sink.raw(at, length) else { return false };
        // SAFETY: `range` checked that the source is in the mapping, `raw` that the target is in the sink,
        // which nobody but its holder reads or writes. They do not overlap: the sink is in a pool's own
        // mapping. The peer may change the source meanwhile: any octets are as good as any others.
        unsafe { copy(from.as_ptr(), to.as_ptr(), length) };
        true
    }

    /// Copies octets from `offset` on to all of `to`.
    ///
    /// # Panics
    ///
    /// If not all of the octets are in the memory.
    #[inline]
    pub fn copy_to(&self, offset: usize, to: &mut [u8]) {
        let from = self.range(offset, to.len());
        // SAFETY: `range` checked that the source is in the mapping. `to` is elsewhere: no reference to
        // octets of a mapping is ever made here. The peer may change the source meanwhile: any octets are
        // as good as any others.
        unsafe { copy(from.as_ptr(), to.as_mut_ptr(), to.len()) };
    }

    fn map(memfd: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        let start = map_memfd(memfd, length)?;
        let mut mapped = Self { start, length, guard: None };
        // SAFETY: the range is a mapping of ours; the advice changes what children inherit.
        if unsafe { libc::madvise(start.as_ptr().cast(), length, libc::MADV_DONTFORK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let page = page_size(memfd)?;
        let pages = length.checked_next_multiple_of(page).ok_or(io::ErrorKind::OutOfMemory)?;
        let extent = page.max(MIB_2);
        // SAFETY: the range is a mapping of ours, all whole pages of the memfd's size that `length` octets take;
        // `extent` is a multiple of a page, as both are powers of two; `drop` takes the guard first. Only methods
        // of `mapped` and what borrows from it access the range. Its octets are the peer's to change, and mean
        // nothing.
        mapped.guard = Some(unsafe { Guard::new(start, pages, extent) }?);
        Ok(mapped)
    }

    /// Returns the address of the `T` at `offset`.
    #[inline]
    fn place<T>(&self, offset: usize) -> NonNull<T> {
        if !offset.is_multiple_of(align_of::<T>()) {
            misplaced(offset, align_of::<T>(), self.length);
        }
        self.range(offset, size_of::<T>()).cast()
    }

    #[inline]
    fn range(&self, offset: usize, length: usize) -> NonNull<u8> {
        if length > self.length.saturating_sub(offset) || offset > self.length {
            misplaced(offset, length, self.length);
        }
        // SAFETY: `offset` is within the mapping or at its end.
        unsafe { self.start.add(offset) }
    }
}

/// Returns the size of the pages of a memfd, in octets.
fn page_size(memfd: BorrowedFd<'_>) -> io::Result<usize> {
    usize::try_from(fstatfs(memfd)?.f_bsize).map_err(|_| io::ErrorKind::Unsupported.into())
}

/// Memory that is [`Shared`], of which a part is a ring of cache lines.
#[derive(Debug)]
pub struct Ring {
    /// Never given away, so that the mapping lives as long as the ring.
    memory: Shared,
    /// The first line, and the offset of the last line from there, which is also a mask.
    start: NonNull<u8>,
    mask: usize,
}

impl Ring {
    /// Makes a ring of the `length` octets at `offset`: whole lines, whose number is a power of two.
    ///
    /// # Panics
    ///
    /// If not all of them are in the memory, or they are no such lines.
    pub fn new(memory: Shared, offset: usize, length: usize) -> Self {
        let is_ring = length.is_power_of_two() && length >= LINE && offset.is_multiple_of(LINE);
        assert!(is_ring, "{length} octets at {offset} are no ring of cache lines");
        let start = memory.range(offset, length);
        Self { memory, start, mask: length - LINE }
    }

    /// Returns all of the memory.
    #[inline]
    pub const fn memory(&self) -> &Shared {
        &self.memory
    }

    /// Returns the line at `position`, which is counted in octets and wraps around.
    #[inline]
    pub fn line(&self, position: u64) -> Line<'_> {
        #[allow(clippy::cast_possible_truncation, reason = "the mask has no more bits than that")]
        let offset = position as usize & self.mask;
        // SAFETY: of the length, a power of two of which `start` is the first of as many octets in the
        // mapping, the mask has all lower bits but those within a line. So the offset is that of a line, all
        // of which is in the mapping.
        Line { start: unsafe { self.start.add(offset) }, of: PhantomData }
    }
}

/// A cache line of memory that is [`Shared`]: a word, and octets behind it.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// `LINE` octets from here on are in the mapping, at an address that is a multiple of `LINE`.
    start: NonNull<u8>,
    of: PhantomData<&'a Shared>,
}

impl<'a> Line<'a> {
    /// Returns the first word of the line.
    #[inline]
    pub fn word(self) -> &'a AtomicU64 {
        &self.words()[0]
    }

    /// Returns all of it as words.
    #[inline]
    pub fn words(self) -> &'a [AtomicU64; LINE / 8] {
        // SAFETY: as in `Shared::u64_at`; all of the line is in the mapping, and it is aligned to its length.
        unsafe { self.start.cast::<[AtomicU64; LINE / 8]>().as_ref() }
    }

    /// Copies `bytes` behind the first word, a word at a time, as they were written: the processor would have to wait
    /// for a larger read of words just written.
    ///
    /// # Panics
    ///
    /// If the line has no room for them.
    #[inline(always)]
    pub fn copy_in(self, bytes: &[u8]) {
        if bytes.len() > LINE_OCTETS {
            misplaced(LINE - LINE_OCTETS, bytes.len(), LINE);
        }
        // At most four words, then two, then one, and the rest.
        let (four, rest) = bytes.as_chunks::<32>();
        let (two, rest) = rest.as_chunks::<16>();
        let (one, rest) = rest.as_chunks::<8>();
        let [_, words @ ..] = self.words();
        let mut words = words.iter();
        let mut put = |octets: &[u8]| {
            for (octets, word) in octets.as_chunks().0.iter().zip(&mut words) {
                word.store(u64::from_ne_bytes(*octets), Ordering::Relaxed);
            }
        };
        if let Some(octets) = four.first() {
            put(octets);
        }
        if let Some(octets) = two.first() {
            put(octets);
        }
        if let Some(octets) = one.first() {
            put(octets);
        }
        if !rest.is_empty()
            && let Some(word) = words.next()
        {
            word.store(last_word(rest), Ordering::Relaxed);
        }
    }

    /// Copies words behind the first word.
    #[inline]
    pub fn store(self, octets: &[u64; LINE_OCTETS / 8]) {
        let [_, words @ ..] = self.words();
        for (word, octets) in words.iter().zip(octets) {
            word.store(*octets, Ordering::Relaxed);
        }
    }

    /// Copies the octets from `AT` behind the first word on to all of `octets`. Both are constants, so that no check is
    /// left to be made at run time.
    #[inline]
    pub fn get<const AT: usize, const N: usize>(self, octets: &mut [u8; N]) {
        const { assert!(AT + N <= LINE_OCTETS, "a line has fewer octets") };
        // SAFETY: the word and the `AT` octets behind it are part of the line, as was just checked.
        let from = unsafe { self.start.add(LINE - LINE_OCTETS + AT) };
        // SAFETY: the `N` octets from there are part of the line, too, as was just checked. For the rest, as in
        // `Shared::copy_to`.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), octets.as_mut_ptr(), N) };
    }

    /// Copies all octets behind the first word.
    #[inline]
    pub fn copy_to(self, to: &mut [u8; LINE_OCTETS]) {
        // SAFETY: the word is part of the line.
        let from = unsafe { self.start.add(LINE - LINE_OCTETS) };
        // SAFETY: `LINE_OCTETS` octets of the line follow. For the rest, as in `Shared::copy_to`.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), LINE_OCTETS) };
    }

    /// Prefetches the line for reading.
    #[inline]
    pub fn prefetch(self) {
        prefetch(self.start.as_ptr());
    }

    /// Prefetches the line for writing.
    #[inline]
    pub fn prefetch_to_write(self) {
        prefetch_to_write(self.start.as_ptr());
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.guard = None;
        let mapping = Mapping { start: self.start, length: self.length };
        if self.length >= LONG {
            drop_elsewhere(mapping);
        }
    }
}

/// A mapping without a guard, whose [`Shared`] is dropped; unmapped when dropped. If a peer is gone, its pages are freed
/// then.
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: every reference to the mapping borrowed the `Shared` that is gone, so nobody else uses it, and any thread may
// unmap it.
unsafe impl Send for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the whole mapping is ours, as it was the `Shared`'s, and every reference to it borrowed that. The peer
        // has its own. Pages that replaced some of it are in the same range.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Returns whether a descriptor is of memory, such as a memfd. Asking waits for nobody, whatever the descriptor is of.
pub fn is_memory(fd: BorrowedFd<'_>) -> bool {
    fcntl_get_seals(fd).is_ok()
}

/// Panics for an access out of the memory, which only our own mistake can cause, and no peer.
#[cold]
#[inline(never)]
fn misplaced(offset: usize, length: usize, all: usize) -> ! {
    panic!("{length} octets at {offset} are misaligned, or beyond the {all} there are");
}

/// Copies `length` octets, most often those of a short message.
///
/// # Safety
///
/// The contract of [`ptr::copy_nonoverlapping`].
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
    match length {
        // SAFETY: the caller keeps the contract of `copy_nonoverlapping`, and `length` is within the bounds of
        // `copy_ends::<16>`.
        16..32 => unsafe { copy_ends::<16>(from, to, length) },
        // SAFETY: as above, with the bounds of `copy_ends::<32>`.
        32..64 => unsafe { copy_ends::<32>(from, to, length) },
        // SAFETY: as above, with the bounds of `copy_ends::<64>`.
        64..=128 => unsafe { copy_ends::<64>(from, to, length) },
        // SAFETY: the caller keeps the contract of `copy_nonoverlapping`.
        _ => unsafe { ptr::copy_nonoverlapping(from, to, length) },
    }
}

/// Copies the first and the last `N` octets of `length`, which together are all: the compiler copies a constant number
/// of octets without a call.
///
/// # Safety
///
/// The contract of [`ptr::copy_nonoverlapping`], and `length` is from `N` to twice as much.
#[inline]
unsafe fn copy_ends<const N: usize>(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: the caller keeps the contract of `copy_nonoverlapping` for `length` octets, which are at least `N`.
    unsafe { ptr::copy_nonoverlapping(from, to, N) };
    // SAFETY: `length` is at least `N`, so the last `N` octets begin within the range.
    let from = unsafe { from.add(length - N) };
    // SAFETY: as above.
    let to = unsafe { to.add(length - N) };
    // SAFETY: `N` octets follow in each. They may overlap those copied before, which are then copied twice.
    unsafe { ptr::copy_nonoverlapping(from, to, N) };
}

/// Returns fewer than eight octets as a word, padded with zeros.
#[inline]
pub fn last_word(octets: &[u8]) -> u64 {
    match *octets {
        // Messages are whole units of XDR.
        [a, b, c, d] => u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0]),
        _ => {
            let mut word = [0; 8];
            word.iter_mut().zip(octets).for_each(|(to, from)| *to = *from);
            u64::from_ne_bytes(word)
        }
    }
}

/// Prefetches the line of `sink`'s first octet for writing.
#[inline]
pub fn prefetch_sink(sink: &Sink) {
    prefetch_to_write(ptr::without_provenance(usize::try_from(sink.address()).unwrap_or(0)));
}

/// Has the processor fetch the line of a value's first octet, which is read soon.
#[inline]
pub fn prefetch_value<T>(value: &T) {
    prefetch(ptr::from_ref(value).cast());
}

/// Has the processor fetch all lines of these octets, which are read soon.
#[inline]
pub fn prefetch_octets(octets: &[u8]) {
    for line in octets.chunks(LINE) {
        prefetch(line.as_ptr());
    }
}

#[inline]
fn prefetch(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint: it neither faults nor changes anything, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

#[inline]
fn prefetch_to_write(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint: it neither faults nor changes anything, whatever the address. Every
    // 64-bit processor knows the instruction, some as one that does nothing.
    unsafe {
        std::arch::asm!(
            "prefetchw [{line}]",
            line = in(reg) line,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

/// Octets of a cache line.
pub const LINE: usize = 64;
/// Octets of a [`Line`] behind its first word.
pub const LINE_OCTETS: usize = LINE - 8;

/// Octets of a mapping that takes long to unmap.
const LONG: usize = 4 << 20;

/// Octets of a huge page.
const MIB_2: usize = 2 << 20;

/// The seals that a memfd must have before a peer maps it.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Operations on memfds that no honest process makes.
#[cfg(test)]
pub(crate) mod rogue {
    use super::*;

    /// Makes a memfd that can be truncated.
    pub(crate) fn unsealed(length: usize) -> File {
        let file = File::from(memfd_create(c"test", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(length as u64).unwrap();
        file
    }

    /// Makes a sealed memfd of one huge page, which is taken at once.
    pub(crate) fn huge_page() -> io::Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let flags = flags | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        let file = File::from(memfd_create(c"test", flags)?);
        file.set_len(MIB_2 as u64)?;
        fallocate(&file, FallocateFlags::empty(), 0, MIB_2 as u64)?;
        fcntl_add_seals(&file, SEALS)?;
        Ok(file.into())
    }

    /// Gives the page of a huge-page memfd back to the system.
    pub(crate) fn punch(memfd: &OwnedFd) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(memfd, flags, 0, MIB_2 as u64)?)
    }
}

#[cfg(test)]
mod tests {
    use haulage_mr_pool::{PagePreference, Pool, PoolConfig};

    use super::*;

    fn memfd(length: u64, seals: SealFlags) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create(c"test", flags).unwrap());
        file.set_len(length).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file.into()
    }

    #[test]
    fn what_one_end_writes_the_other_reads() {
        let (ours, fd) = Shared::create(c"test", 8192).unwrap();
        let theirs = Shared::open(fd.as_fd(), 8192).unwrap();
        ours.copy_in(8190, b"ab");
        theirs.u64_at(8).store(7, Ordering::Release);
        assert_eq!(ours.u32_at(8).load(Ordering::Acquire), 7);
        let config = PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None };
        let posted = Pool::new(&config).unwrap().lease(4).unwrap();
        let mut posted = posted;
        posted.bytes_mut().fill(b'.');
        let mut posted = posted.into_sink();
        let mut sink = posted.sink(0..4).unwrap();
        assert!(theirs.copy_out(8190, &mut sink, 1, 2));
        assert!(!theirs.copy_out(8190, &mut sink, 3, 2), "it does not fit");
        drop(sink);
        assert_eq!(posted.complete().unwrap().bytes(), b".ab.");
    }

    #[test]
    fn whole_huge_pages_are_mapped_where_one_can_begin() {
        for length in [MIB_2, 2 * MIB_2] {
            let (ours, fd) = Shared::create(c"test", length).unwrap();
            let theirs = Shared::open(fd.as_fd(), length).unwrap();
            for shared in [&ours, &theirs] {
                assert_eq!(ptr::from_ref(shared.u32_at(0)).addr() % MIB_2, 0);
            }
            ours.u32_at(length - 4).store(5, Ordering::Release);
            assert_eq!(theirs.u32_at(length - 4).load(Ordering::Acquire), 5);
        }
    }

    #[test]
    fn memory_that_could_be_taken_from_under_us_is_refused() {
        for missing in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
            let fd = memfd(4096, SEALS - missing);
            assert!(matches!(Shared::open(fd.as_fd(), 4096), Err(Unfit::NotSealed)));
        }
        let file = File::open("/proc/self/exe").unwrap();
        assert!(matches!(Shared::open(file.as_fd(), 4096), Err(Unfit::NotSealed)));
        let fd = memfd(4096, SEALS);
        for length in [0, 4095, 4097, 8192, usize::MAX] {
            assert!(matches!(Shared::open(fd.as_fd(), length), Err(Unfit::Length)));
        }
        // A memfd that we may not write is of no use.
        let fd = memfd(4096, SEALS | SealFlags::WRITE);
        assert!(matches!(Shared::open(fd.as_fd(), 4096), Err(Unfit::System(_))));
        assert_eq!(Shared::open(memfd(4096, SEALS).as_fd(), 4096).unwrap().len(), 4096);
    }

    #[test]
    #[should_panic(expected = "beyond the 4096 there are")]
    fn nothing_outside_is_touched() {
        let (ours, _fd) = Shared::create(c"test", 4096).unwrap();
        ours.copy_in(4095, b"ab");
    }
}
