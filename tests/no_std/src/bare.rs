//! The services of a machine that the C library would otherwise provide.

use core::alloc::{GlobalAlloc, Layout};
use core::arch::{asm, naked_asm};
use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The entry point of the program.
///
/// # Safety
/// Only the kernel, or the dynamic loader for it, jumps here.
// SAFETY: no other crate is linked that could have a symbol of this name.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn _start() -> ! {
    // The stack is aligned as a call wants it; nothing was pushed.
    #[cfg(target_arch = "x86_64")]
    naked_asm!("xor ebp, ebp", "call {main}", "ud2", main = sym crate::main);
    #[cfg(target_arch = "aarch64")]
    naked_asm!("mov x29, xzr", "bl {main}", "brk 0", main = sym crate::main);
}

/// Ends the program.
pub(crate) fn exit(status: u32) -> ! {
    // SAFETY: exit_group takes a number, and does not return.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("syscall", in("rax") 231, in("edi") status, options(noreturn));
    }
    // SAFETY: exit_group takes a number, and does not return.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("svc 0", in("x8") 94, in("w0") status, options(noreturn));
    }
}

/// Memory that is handed out once and never taken back.
#[repr(align(16))]
struct Heap {
    octets: UnsafeCell<[u8; Self::SIZE]>,
    used: AtomicUsize,
}

#[global_allocator]
static HEAP: Heap = Heap { octets: UnsafeCell::new([0; Heap::SIZE]), used: AtomicUsize::new(0) };

impl Heap {
    const SIZE: usize = 1 << 16;
}

// SAFETY: the octets are reached only through what `alloc` hands out, and `used` lets it hand out each once.
unsafe impl Sync for Heap {}

// SAFETY: what `alloc` returns is null, or as long and as aligned as was asked for, within a static, and disjoint from
// all it returned before; it never unwinds.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let start = self.octets.get().cast::<u8>();
        let place = |used: usize| {
            let gap = start.wrapping_add(used).align_offset(layout.align());
            let at = used.checked_add(gap)?;
            Some((at, at.checked_add(layout.size()).filter(|end| *end <= Self::SIZE)?))
        };
        let end = |used| place(used).map(|(_, end)| end);
        let used = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end);
        let at = used.ok().and_then(place).map(|(at, _)| at);
        at.map_or(ptr::null_mut(), |at| start.wrapping_add(at))
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

/// The functions that compiled code calls to copy, fill and compare memory, usually in the C library.
mod memory {
    /// Copies `count` octets.
    ///
    /// # Safety
    /// They can be read at `from` and written at `to`, and these do not overlap.
    // SAFETY: the C library, which has a symbol of this name, is not linked.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
        for at in 0..count {
            // SAFETY: the caller can read this octet.
            let octet = unsafe { from.wrapping_add(at).read() };
            // SAFETY: the caller can write this one. Volatile, or this loop would become a call of itself.
            unsafe { to.wrapping_add(at).write_volatile(octet) };
        }
        to
    }

    /// Makes `count` octets the lowest of `value`.
    ///
    /// # Safety
    /// They can be written at `to`.
    // SAFETY: the C library, which has a symbol of this name, is not linked.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memset(to: *mut u8, value: i32, count: usize) -> *mut u8 {
        let [octet, ..] = value.to_le_bytes();
        for at in 0..count {
            // SAFETY: the caller can write this octet. Volatile, or this loop would become a call of itself.
            unsafe { to.wrapping_add(at).write_volatile(octet) };
        }
        to
    }

    /// Compares `count` octets: 0 if all are the same, else the difference of the first that are not.
    ///
    /// # Safety
    /// They can be read at both places.
    // SAFETY: the C library, which has a symbol of this name, is not linked.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, count: usize) -> i32 {
        for at in 0..count {
            // SAFETY: the caller can read this octet. Volatile, or this loop would become a call of itself.
            let of_a = unsafe { a.wrapping_add(at).read_volatile() };
            // SAFETY: the caller can read this one.
            let of_b = unsafe { b.wrapping_add(at).read_volatile() };
            if of_a != of_b {
                return i32::from(of_a) - i32::from(of_b);
            }
        }
        0
    }

    /// Like `memcmp`, but only whether the result is zero matters.
    ///
    /// # Safety
    /// The `count` octets can be read at both places.
    // SAFETY: the C library, which has a symbol of this name, is not linked.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, count: usize) -> i32 {
        // SAFETY: the caller promises the same.
        unsafe { memcmp(a, b, count) }
    }
}

/// The tables of `core` and `alloc`, which were built to unwind, name this function. Nothing calls it, as panics end
/// the program.
// SAFETY: the standard library, which has a symbol of this name, is not linked.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
