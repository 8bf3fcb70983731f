//! The system calls that map memory, configure it and unmap it.

use std::alloc::{self, Layout};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::size::{GIB, MIB_2, PAGE};

/// A mapping of zeroed, writable memory, which dropping it unmaps. It is private to the process unless it maps a memfd.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    length: usize,
    origin: Origin,
}

// SAFETY: the mapping is unmapped by whichever thread drops it. All else hands out its address, which is no access.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// The origin of the memory, which frees it.
#[derive(Debug)]
enum Origin {
    /// A mapping of memmap2, of which this mapping may use only a part.
    Mapped(#[expect(dead_code, reason = "its drop gives the memory back")] MmapRaw),
    /// A mapping of this memfd, which another process can map as well.
    Memfd(OwnedFd),
    HugepageRs,
    /// An allocation on the heap, which starts some octets before the mapping.
    Heap {
        skip: usize,
    },
}

impl Mapping {
    /// Maps `length` octets of 1 GiB pages; `length` is a multiple of 1 GiB.
    pub(super) fn gigantic(length: usize) -> io::Result<Self> {
        // memmap2 could not unmap a region of another length.
        multiple(length, GIB)?;
        Self::map(MmapOptions::new().len(length).huge(Some(GIB_LOG2)), 1)
    }

    /// Maps `length` octets of 2 MiB pages; `length` is a multiple of 2 MiB, which must be the system's default huge
    /// page size.
    pub(super) fn huge(length: usize) -> io::Result<Self> {
        let layout = layout(length, MIB_2)?;
        multiple(length, MIB_2)?;
        // SAFETY: the layout is not of zero octets.
        let start = unsafe { hugepage_rs::alloc(layout) };
        let start = NonNull::new(start).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { start, length, origin: Origin::HugepageRs })
    }

    /// Maps `length` octets, aligned to 2 MiB, for which the system may use transparent huge pages.
    pub(super) fn transparent(length: usize) -> io::Result<Self> {
        multiple(length, MIB_2)?;
        let with_slack = length.checked_add(MIB_2).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Self::map(MmapOptions::new().len(with_slack), MIB_2)?;
        mapping.advise(libc::MADV_HUGEPAGE)?;
        Ok(mapping)
    }

    /// Maps `length` octets of 4 KiB pages; `length` is a multiple of 4 KiB.
    pub(super) fn small(length: usize) -> io::Result<Self> {
        multiple(length, PAGE)?;
        Self::map(MmapOptions::new().len(length), 1)
    }

    /// Maps `length` octets of a new memfd that another process can map as well; `length` is a multiple of 2 MiB. The
    /// memfd is sealed against shrinking.
    pub(super) fn shared(length: usize) -> io::Result<Self> {
        Self::sealed(length, MemfdFlags::empty())
    }

    /// Maps `length` octets of a new memfd in 2 MiB pages that another process can map as well;
    /// `length` is a multiple of 2 MiB. The memfd is sealed against shrinking.
    pub(super) fn shared_huge(length: usize) -> io::Result<Self> {
        Self::sealed(length, MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB)
    }

    fn sealed(length: usize, pages: MemfdFlags) -> io::Result<Self> {
        multiple(length, MIB_2)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | pages;
        let memfd = memfd_create(c"haulage-region", flags)?;
        ftruncate(&memfd, length as u64)?;
        fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let start = map_memfd(memfd.as_fd(), length)?;
        Ok(Self { start, length, origin: Origin::Memfd(memfd) })
    }

    /// Allocates `length` octets on the heap.
    pub(super) fn heap(length: usize) -> io::Result<Self> {
        // The base is aligned here: an allocator asked for aligned zeroed memory would touch every page.
        let with_slack = length.checked_add(PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: `layout` refuses a length of zero.
        let base = unsafe { alloc::alloc_zeroed(layout(with_slack, HEAP_ALIGN)?) };
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        let skip = base.addr().get().wrapping_neg() % PAGE;
        // SAFETY: less than a page is skipped, and there is a page of slack.
        let start = unsafe { base.add(skip) };
        Ok(Self { start, length, origin: Origin::Heap { skip } })
    }

    /// Returns the address of the octet at `offset`, which must be within the mapping.
    pub(super) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.length, "offset {offset} is beyond the region");
        // SAFETY: the offset is within the one allocation `start` points to.
        unsafe { self.start.add(offset) }
    }

    /// Returns the length of the mapping in octets.
    pub(super) const fn len(&self) -> usize {
        self.length
    }

    /// Binds the mapping to one NUMA node. A system without NUMA has only node 0.
    pub(super) fn bind(&self, node: u32) -> io::Result<()> {
        let mut mask = [0_u64; NODES_MAX / 64];
        let word = usize::try_from(node / 64).ok().and_then(|word| mask.get_mut(word));
        *word.ok_or(io::ErrorKind::InvalidInput)? = 1 << (node % 64);
        // SAFETY: the range is a mapping of ours that holds nothing yet; the mask is live, and as long
        // as the call is told, which counts one bit too many by convention.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start.as_ptr(),
                self.length,
                libc::MPOL_BIND,
                mask.as_ptr(),
                NODES_MAX + 1,
                0,
            )
        };
        match check(result == 0) {
            Err(error) if node == 0 && error.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
            other => other,
        }
    }

    /// Excludes the memory from forked children, because copy on write would replace pages that an
    /// RNIC has pinned.
    pub(super) fn keep_from_children(&self) -> io::Result<()> {
        self.advise(libc::MADV_DONTFORK)
    }

    /// Fills the mapping with pages.
    pub(super) fn populate(&self) -> io::Result<()> {
        match self.advise(libc::MADV_POPULATE_WRITE) {
            // Before Linux 5.14 there is no such advice.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                self.touch();
                Ok(())
            }
            other => other,
        }
    }

    /// Asks the system to replace the small pages of the mapping by huge pages, as far as it has
    /// any: a memfd gets none otherwise.
    pub(super) fn collapse(&self) -> io::Result<()> {
        self.advise(libc::MADV_COLLAPSE)
    }

    /// Returns the memfd by which another process can map the memory, if there is one.
    pub(super) fn memfd(&self) -> Option<BorrowedFd<'_>> {
        match &self.origin {
            Origin::Memfd(memfd) => Some(memfd.as_fd()),
            Origin::Mapped(_) | Origin::HugepageRs | Origin::Heap { .. } => None,
        }
    }

    /// Locks the pages in memory.
    pub(super) fn lock(&self) -> io::Result<()> {
        // SAFETY: the range is a mapping of ours; locking changes neither contents nor access.
        check(unsafe { libc::mlock(self.start.as_ptr().cast(), self.length) } == 0)
    }

    fn touch(&self) {
        for offset in (0..self.length).step_by(PAGE) {
            // SAFETY: the octet is within the mapping, which is zero, ours alone and not yet lent to
            // any RNIC or peer.
            unsafe { self.at(offset).write_volatile(0) };
        }
    }

    /// Maps private memory and uses it from the first multiple of `align` on. The mapping made is longer than the part
    /// used by the slack for the alignment: none, or one `align`.
    fn map(options: &MmapOptions, align: usize) -> io::Result<Self> {
        let mapped = MmapRaw::from(options.map_anon()?);
        let skip = mapped.as_ptr().addr().wrapping_neg() % align;
        let start = NonNull::new(mapped.as_mut_ptr().wrapping_add(skip));
        let start = start.ok_or(io::ErrorKind::OutOfMemory)?;
        let slack = if align > 1 { align } else { 0 };
        Ok(Self { start, length: mapped.len() - slack, origin: Origin::Mapped(mapped) })
    }

    fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: the range is a mapping of ours. None of the advices we give takes its contents away.
        let result = unsafe { libc::madvise(self.start.as_ptr().cast(), self.length, advice) };
        check(result == 0)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        match self.origin {
            // `MmapRaw` unmaps itself: no lease and no view is left.
            Origin::Mapped(_) => {}
            Origin::Memfd(_) => {
                // SAFETY: the whole mapping is ours. The pool gives its region up only when no lease
                // and no view is left, so neither we nor an RNIC, for us or a peer, will touch it.
                unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
            }
            Origin::HugepageRs => {
                let Ok(layout) = layout(self.length, MIB_2) else { return };
                // SAFETY: as above, and `huge` took it with this layout.
                unsafe { hugepage_rs::dealloc(self.start.as_ptr(), layout) };
            }
            Origin::Heap { skip } => {
                let Ok(layout) = layout(self.length + PAGE, HEAP_ALIGN) else { return };
                // SAFETY: `heap` skipped so many octets of its allocation.
                let base = unsafe { self.start.sub(skip) };
                // SAFETY: as above, and `heap` took it with this layout.
                unsafe { alloc::dealloc(base.as_ptr(), layout) };
            }
        }
    }
}

/// Maps the first `length` octets of a memfd, readable, writable and shared. If `length` is a multiple of 2 MiB, the
/// address is aligned for huge pages if possible. The caller unmaps the memory.
///
/// # Errors
///
/// The error of the system, after which no address is mapped.
pub fn map_memfd(memfd: BorrowedFd<'_>, length: usize) -> io::Result<NonNull<u8>> {
    if length.is_multiple_of(MIB_2) {
        for _ in 0..ALIGNED_TRIES {
            let start = map_memfd_near(aligned_room(length)?, memfd, length)?;
            if start.addr().get().is_multiple_of(MIB_2) {
                return Ok(start);
            }
            // SAFETY: the range was mapped just now, and nobody has been given it.
            check(unsafe { libc::munmap(start.as_ptr().cast(), length) } == 0)?;
        }
    }
    map_memfd_near(ptr::null_mut(), memfd, length)
}

/// Maps a memfd at `hint` if nothing is mapped there, or else at any address.
///
/// `MAP_FIXED` into a reserved range would be wrong: if the memfd cannot be mapped, the system may already have freed
/// the range, and another thread may map memory there before this one unmaps the rest.
fn map_memfd_near(
    hint: *mut libc::c_void,
    memfd: BorrowedFd<'_>,
    length: usize,
) -> io::Result<NonNull<u8>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the address is a hint, so no mapping is replaced.
    let start = unsafe { libc::mmap(hint, length, access, libc::MAP_SHARED, memfd.as_raw_fd(), 0) };
    check(start != libc::MAP_FAILED)?;
    NonNull::new(start.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Returns an address, a multiple of 2 MiB, from which `length` octets were unmapped a moment ago.
fn aligned_room(length: usize) -> io::Result<*mut libc::c_void> {
    let with_slack = length.checked_add(MIB_2).ok_or(io::ErrorKind::OutOfMemory)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: no address is asked for, so no mapping is replaced.
    let room = unsafe { libc::mmap(ptr::null_mut(), with_slack, libc::PROT_NONE, flags, -1, 0) };
    check(room != libc::MAP_FAILED)?;
    // SAFETY: the whole range was mapped just now, and nobody has been given it.
    check(unsafe { libc::munmap(room, with_slack) } == 0)?;
    Ok(room.wrapping_byte_add(room.addr().wrapping_neg() % MIB_2))
}

/// The most tries to find an aligned range: another thread may map memory in the range found.
const ALIGNED_TRIES: usize = 8;

/// The size of a 1 GiB page, as `mmap` encodes it.
const GIB_LOG2: u8 = 30;
const _: () = assert!(1 << GIB_LOG2 == GIB);

/// The alignment that every allocator guarantees.
const HEAP_ALIGN: usize = 16;

fn layout(length: usize, align: usize) -> io::Result<Layout> {
    let layout = Layout::from_size_align(length, align).ok().filter(|layout| layout.size() > 0);
    layout.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn multiple(length: usize, page: usize) -> io::Result<()> {
    if length.is_multiple_of(page) { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

fn check(ok: bool) -> io::Result<()> {
    if ok { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The most NUMA nodes of a Linux system.
const NODES_MAX: usize = 1024;
