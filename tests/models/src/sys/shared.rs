//! Shared memory of two ends, made of the model checker's words, with the functions of `runtime::sys::shared` that the
//! ring, the table and the segment use.
//!
//! Octets are copied a double word at a time. In a ring, all double words are watched: one end at a time may access
//! them by relaxed loads and stores.

use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::Ordering;

use haulage_mr_pool::Sink;

pub(crate) use crate::sync::{AtomicU32, AtomicU64};
use crate::sync::{Watch, cell};

/// One end's view of the memory. All threads of a model run on one thread of the system.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    memory: Rc<Memory>,
}

/// Each array covers the whole memory, as no place is accessed both as double words and as words.
#[derive(Debug)]
struct Memory {
    doubles: Box<[AtomicU64]>,
    words: Box<[AtomicU32]>,
}

/// The reason why a peer's memory is not mapped.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// The memory of a model has no descriptor.
    System,
}

impl Shared {
    /// Makes `length` octets of zeroed memory with a ring in them.
    pub(crate) fn with_ring(length: usize, ring: &Range<usize>) -> Self {
        let double = |at: usize| {
            let plain = ring.contains(&(8 * at)).then(cell);
            AtomicU64::watched(0, Watch { plain, ..Watch::default() })
        };
        let word = |_| AtomicU32::watched(0, Watch { is_flag: true, ..Watch::default() });
        let doubles = (0..length / 8).map(double).collect();
        Self { memory: Rc::new(Memory { doubles, words: (0..length / 8).map(word).collect() }) }
    }

    pub(crate) fn create(_: &std::ffi::CStr, _: usize) -> io::Result<(Self, OwnedFd)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn open(_: BorrowedFd<'_>, _: usize) -> Result<Self, Unfit> {
        Err(Unfit::System)
    }

    pub(crate) fn check(_: BorrowedFd<'_>, _: usize) -> Result<(), Unfit> {
        Err(Unfit::System)
    }

    pub(crate) fn u32_at(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(8), "a word at {offset} is not the first of a double word");
        &self.memory.words[offset / 8]
    }

    pub(crate) fn u64_at(&self, offset: usize) -> &AtomicU64 {
        &self.doubles(offset)[0]
    }

    pub(crate) fn copy_in(&self, offset: usize, bytes: &[u8]) {
        put(&self.doubles(offset)[..bytes.len().div_ceil(8)], bytes);
    }

    pub(crate) fn copy_out(
        &self,
        offset: usize,
        sink: &mut Sink,
        at: usize,
        length: usize,
    ) -> bool {
        let mut bytes = vec![0; length];
        self.copy_to(offset, &mut bytes);
        sink.place(at, &bytes).is_ok()
    }

    pub(crate) fn copy_to(&self, offset: usize, to: &mut [u8]) {
        get(&self.doubles(offset)[..to.len().div_ceil(8)], to);
    }

    /// Returns the double words from `offset` on.
    fn doubles(&self, offset: usize) -> &[AtomicU64] {
        assert!(offset.is_multiple_of(8), "no double word begins at {offset}");
        &self.memory.doubles[offset / 8..]
    }
}

fn put(words: &[AtomicU64], bytes: &[u8]) {
    for (word, octets) in words.iter().zip(bytes.chunks(8)) {
        word.store(last_word(octets), Ordering::Relaxed);
    }
}

fn get(words: &[AtomicU64], to: &mut [u8]) {
    for (word, octets) in words.iter().zip(to.chunks_mut(8)) {
        let found = word.load(Ordering::Relaxed).to_ne_bytes();
        octets.copy_from_slice(&found[..octets.len()]);
    }
}

/// A part of the memory that holds a ring of cache lines.
#[derive(Debug)]
pub(crate) struct Ring {
    memory: Shared,
    offset: usize,
    length: usize,
}

impl Ring {
    pub(crate) const fn new(memory: Shared, offset: usize, length: usize) -> Self {
        Self { memory, offset, length }
    }

    pub(crate) const fn memory(&self) -> &Shared {
        &self.memory
    }

    pub(crate) fn line(&self, position: u64) -> Line<'_> {
        let position = usize::try_from(position).expect("a short run") & (self.length - LINE);
        let (lines, _) = self.memory.doubles(self.offset + position).as_chunks();
        Line { words: &lines[0] }
    }
}

/// A cache line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    words: &'a [AtomicU64; LINE / 8],
}

impl<'a> Line<'a> {
    pub(crate) const fn word(self) -> &'a AtomicU64 {
        &self.words[0]
    }

    pub(crate) const fn words(self) -> &'a [AtomicU64; LINE / 8] {
        self.words
    }

    pub(crate) fn copy_in(self, bytes: &[u8]) {
        put(&self.words[1..], bytes);
    }

    pub(crate) fn store(self, octets: &[u64; LINE_OCTETS / 8]) {
        for (word, octets) in self.words[1..].iter().zip(octets) {
            word.store(*octets, Ordering::Relaxed);
        }
    }

    pub(crate) fn get<const AT: usize, const N: usize>(self, octets: &mut [u8; N]) {
        let mut all = [0; LINE_OCTETS];
        self.copy_to(&mut all);
        octets.copy_from_slice(&all[AT..AT + N]);
    }

    pub(crate) fn copy_to(self, to: &mut [u8; LINE_OCTETS]) {
        get(&self.words[1..], to);
    }

    pub(crate) const fn prefetch(self) {}

    pub(crate) const fn prefetch_to_write(self) {}
}

/// Returns at most eight octets as a word, with zeros behind them.
pub(crate) fn last_word(octets: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.iter_mut().zip(octets).for_each(|(to, from)| *to = *from);
    u64::from_ne_bytes(word)
}

pub(crate) const LINE: usize = 64;
pub(crate) const LINE_OCTETS: usize = LINE - 8;

/// Has nothing fetched: a model has no cache.
pub(crate) const fn prefetch_value<T>(_: &T) {}
