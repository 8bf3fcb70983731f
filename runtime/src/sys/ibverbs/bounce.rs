//! Memory set apart for one connection's peer, which reaches it as long as the connection lives: exposed data is copied
//! into it or out of it.
//!
//! # Memory ownership
//!
//! The peer can access the octets from the first moment to the last. No reference to any of them is ever made; they are
//! read and written by raw pointers, a word or an octet at a time, volatile, and any value read is acceptable. The
//! views of the lease that is exposed lie here until it is closed, and only we use them: the device was never told
//! where a lease is, so a peer that names the handle before, after or beyond its grant reaches none.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use haulage_mr_pool::{Sink, Source};
use haulage_proto::verbs::{Access, Exposure, Handle};

use super::{AccessGrant, Domain, Refused};

/// Octets that the peers of a domain's queue pairs may read, or write, and the lease that they stand for now.
#[derive(Debug)]
pub(crate) struct Bounce {
    /// First, so that the grant is dropped before the memory is.
    grant: AccessGrant,
    memory: Memory,
    access: Access,
}

impl Bounce {
    /// Makes a bounce of `octets`, all zero, to which every peer of the domain's queue pairs has `access`.
    pub(crate) fn new(
        domain: &Arc<Domain>,
        octets: usize,
        access: Access,
    ) -> Result<Self, Refused> {
        let memory = Memory::new(octets)?;
        let grant = AccessGrant::register(domain, memory.address(), octets, access)?;
        Ok(Self { grant, memory, access })
    }

    /// Returns the key by which a peer names it.
    pub(crate) fn key(&self) -> Handle {
        self.grant.key()
    }

    /// Returns the offset of its first octet in the peer's terms, which is an address.
    pub(crate) fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Returns how many octets it has.
    pub(crate) const fn octets(&self) -> usize {
        self.memory.length
    }

    /// Returns the access that peers have.
    pub(crate) const fn access(&self) -> Access {
        self.access
    }

    /// Returns whether it stands for a lease.
    pub(crate) fn is_open(&self) -> bool {
        self.grant.is_open()
    }

    /// Opens it for a lease. If the peer is to read the lease, its octets are copied here.
    ///
    /// # Errors
    ///
    /// The lease is longer, or exposed for the other access.
    pub(crate) fn opened(&self, memory: Exposure<Source, Sink>) -> Result<(), ()> {
        let (access, length) = match &memory {
            Exposure::RemoteRead(source) => (Access::RemoteRead, source.len()),
            Exposure::RemoteWrite(sink) => (Access::RemoteWrite, sink.len()),
        };
        if access != self.access || length > self.octets() {
            return Err(());
        }
        if let Exposure::RemoteRead(source) = &memory {
            self.memory.fill(source.bytes());
        }
        self.grant.opened(memory);
        Ok(())
    }

    /// Closes it. If the peer was to write the lease, copies the octets here into it; drops the view. Returns how many
    /// octets were copied for the lease, in either direction.
    pub(crate) fn closed(&self) -> usize {
        match self.grant.closed() {
            Some(Exposure::RemoteRead(source)) => source.len(),
            Some(Exposure::RemoteWrite(mut sink)) => {
                self.memory.take(&mut sink);
                sink.len()
            }
            None => 0,
        }
    }
}

/// Pages of our own that a device reads or writes at any moment.
#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    length: usize,
}

impl Memory {
    /// Takes `length` octets from the system, all zero.
    fn new(length: usize) -> Result<Self, Refused> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping where the system likes it takes no memory from anybody.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, access, flags, -1, 0) };
        let start = NonNull::new(start.cast::<u8>()).filter(|_| start != libc::MAP_FAILED);
        let start = start.ok_or_else(|| Refused::last("taking memory for a peer"))?;
        let memory = Self { start, length };
        // SAFETY: the octets are the mapping's, which is ours alone. What is asked for is that a child has
        // none of them, so that the device and we never see different copies.
        let kept = unsafe { libc::madvise(start.as_ptr().cast(), length, libc::MADV_DONTFORK) };
        Refused::check("keeping memory from children", kept)?;
        Ok(memory)
    }

    fn address(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    /// Writes `octets`, which must not be more than there are, from the beginning on.
    fn fill(&self, octets: &[u8]) {
        assert!(octets.len() <= self.length, "more than there is room for");
        let (words, rest) = octets.as_chunks::<WORD>();
        for (word, at) in words.iter().zip((0..).step_by(WORD)) {
            let place = self.at(at).cast::<u64>();
            // SAFETY: all of the word is in the mapping, as `octets` is no longer; it is aligned, as a page
            // is and `at` is a multiple of its size; and no reference to it exists, ever. The peer's device
            // may be reading: it gets old octets or new ones, both of which this connection was to send.
            unsafe { place.write_volatile(u64::from_ne_bytes(*word)) };
        }
        for (octet, at) in rest.iter().zip(words.len() * WORD..) {
            let place = self.at(at);
            // SAFETY: as above, of a single octet.
            unsafe { place.write_volatile(*octet) };
        }
    }

    /// Copies as much as `sink` takes, from the beginning on.
    fn take(&self, sink: &mut Sink) {
        let Some((into, length)) = sink.raw(0, sink.len().min(self.length)) else { return };
        let words = length / WORD * WORD;
        for at in (0..words).step_by(WORD) {
            let place = self.at(at).cast::<u64>();
            // SAFETY: all of the word is in the mapping, as `length` is no more than that; aligned, as in
            // `fill`; and initialized, by the system at first. The peer's device may be writing: what is
            // read is some octets, whichever, and any will do for integers. The read is volatile, so it
            // happens once, and nothing is concluded from what was there before or will be there later.
            let word = unsafe { place.read_volatile() };
            let place = into.as_ptr().wrapping_add(at).cast::<u64>();
            // SAFETY: the octets are the sink's, at least `length` from `into` on, which live while it does.
            // It is not lent out as bytes, and nobody else writes it: only we ever held a view of it.
            unsafe { place.write_unaligned(word) };
        }
        for at in words..length {
            let place = self.at(at);
            // SAFETY: as the word above.
            let octet = unsafe { place.read_volatile() };
            let place = into.as_ptr().wrapping_add(at);
            // SAFETY: as the word above.
            unsafe { place.write(octet) };
        }
    }

    const fn at(&self, offset: usize) -> *mut u8 {
        self.start.as_ptr().wrapping_add(offset)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and unmapped once. Its registration is gone, and with it every access
        // of a device; of ours none is under way, as each borrows `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Octets copied at once.
const WORD: usize = size_of::<u64>();

#[cfg(test)]
mod tests {
    use haulage_mr_pool::{PagePreference, Pool, PoolConfig};

    use super::*;

    #[test]
    fn every_octet_is_copied_there_and_back_and_no_other() {
        let config = PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None };
        let pool = Pool::new(&config).unwrap();
        let memory = Memory::new(4096).unwrap();
        let all: Vec<u8> = (0..4096_u32).map(|at| (at * 7 % 251) as u8 + 1).collect();
        for length in (0..=40).chain([4087, 4095, 4096]) {
            memory.fill(&vec![0; 4096]);
            memory.fill(&all[..length]);
            // Octets that are not filled keep their value; a sink that starts at an odd address works, too.
            let mut lease = pool.lease(4200).unwrap();
            lease.bytes_mut().fill(0xff);
            let mut lent = lease.into_sink();
            memory.take(&mut lent.sink(1..1 + 4096).unwrap());
            let lease = lent.complete().unwrap();
            assert_eq!(&lease.bytes()[1..=length], &all[..length]);
            assert!(lease.bytes()[1 + length..=4096].iter().all(|octet| *octet == 0));
            assert!(lease.bytes()[4097..].iter().all(|octet| *octet == 0xff));
        }
        // No more is copied than either side has.
        memory.fill(&all);
        for length in [13, 16, 4095, 5000] {
            let mut lease = pool.lease(length).unwrap();
            lease.bytes_mut().fill(0);
            let mut lent = lease.into_sink();
            memory.take(&mut lent.sink(0..length).unwrap());
            let lease = lent.complete().unwrap();
            let (copied, rest) = lease.bytes().split_at(length.min(4096));
            assert!(copied == &all[..copied.len()] && rest.iter().all(|octet| *octet == 0));
        }
    }
}
