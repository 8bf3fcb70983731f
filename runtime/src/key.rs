//! Names of what a core has: connections, Calls, clients.
//!
//! The type of a name says what it names. It need not be the type of the entry, so code can hold a name without knowing
//! the entry.
//!
//! A name is a prefix of 8 bits, a generation of 24 bits, and a slot of 32 bits. The prefix of a connection is its transport
//! and the number of its core, that of a Call is the number of its core. So no two cores of a server give the same name,
//! and one finds nothing by a name of another.

use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;

use crate::core_number::CoreNumber;

/// Names a connection of a core, by its transport and the number of the core, too.
pub(crate) type ConnectionKey = Key<OfConnection>;
/// Names a Call that a core serves, by the number of the core, too.
pub(crate) type CallKey = Key<OfCall>;

/// Names a client on another thread. Calls may outlive their client, and its slot serves the next one.
///
/// It does not carry the number of the core, which no other core is ever given: it is made at a core's own door, and kept
/// in that core's inbox and table of Calls. The thread itself holds the door.
pub(crate) type ClientKey = Key<OfClient>;

/// Marks the type [`ConnectionKey`].
#[derive(Debug)]
pub(crate) enum OfConnection {}

/// Marks the type [`CallKey`].
#[derive(Debug)]
pub(crate) enum OfCall {}

/// Marks the type [`ClientKey`].
#[derive(Debug)]
pub(crate) enum OfClient {}

/// Names an entry of a [`Table`](crate::core::table::Table); `N` says what it names. A stale name finds nothing.
pub(crate) struct Key<N> {
    /// The slot in the lower half, the prefix and the generation in the upper half: one word, which is passed in a register.
    name: u64,
    of: PhantomData<fn() -> N>,
}

impl<N> Key<N> {
    pub(crate) const fn new(slot: u32, generation: u32) -> Self {
        Self { name: (generation as u64) << 32 | slot as u64, of: PhantomData }
    }

    #[inline]
    pub(crate) const fn generation(self) -> u32 {
        (self.name >> 32) as u32
    }

    /// Returns the upper half of the names that a table with this prefix gives, before the generation is counted in.
    ///
    /// The prefix is in the eight uppermost bits, which [`Self::to_bits`] leaves out.
    pub(crate) const fn prefixed(prefix: u8) -> u32 {
        (prefix as u32) << GENERATION_BITS
    }

    /// Returns the number of the core in the prefix of a name that carries it.
    pub(crate) const fn core(self) -> CoreNumber {
        CoreNumber::of_prefix((self.name >> (64 - 8)) as u8)
    }

    /// Returns the slot, dense from zero.
    #[inline]
    pub(crate) const fn slot(self) -> usize {
        low(self.name) as usize
    }

    /// Returns the slot as it is numbered in the name.
    pub(crate) const fn slot_number(self) -> u32 {
        low(self.name)
    }

    /// Returns the whole name as a number.
    pub(crate) const fn number(self) -> u64 {
        self.name
    }

    /// Packs the name into an integer of which only the low 56 bits are used.
    pub(crate) const fn to_bits(self) -> u64 {
        self.name & 0xff_ffff_ffff_ffff
    }

    /// Returns the slot of a packed name.
    pub(crate) const fn slot_of(bits: u64) -> u32 {
        low(bits)
    }

    /// Compares with a packed name.
    pub(crate) const fn matches(self, bits: u64) -> bool {
        self.to_bits() == bits & 0xff_ffff_ffff_ffff
    }
}

impl ConnectionKey {
    /// Returns what carries the Calls and Replies of the connection.
    #[inline]
    pub(crate) const fn transport(self) -> Transport {
        if self.name >> (64 - 1) == 0 { Transport::Rdma } else { Transport::Tcp }
    }
}

/// What carries the Calls and Replies of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Messages over RDMA.
    Rdma,
    /// Records over TCP (RFC 5531 section 11).
    Tcp,
}

impl Transport {
    /// Returns the prefix of the names of a core's connections with this transport.
    pub(crate) const fn prefix(self, core: CoreNumber) -> u8 {
        match self {
            Self::Rdma => core.get(),
            Self::Tcp => 0x80 | core.get(),
        }
    }
}

/// Bits of the generation in a name.
const GENERATION_BITS: u32 = 24;
/// The generation in the upper half of a name.
pub(crate) const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;

impl<N> Clone for Key<N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<N> Copy for Key<N> {}

impl<N> PartialEq for Key<N> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl<N> Eq for Key<N> {}

impl<N> PartialOrd for Key<N> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<N> Ord for Key<N> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name.cmp(&other.name)
    }
}

impl<N> fmt::Debug for Key<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One core needs no number.
        if self.core() != CoreNumber::FIRST {
            write!(f, "{}:", self.core())?;
        }
        write!(f, "{}.{}", self.slot(), self.generation() & GENERATION_MASK)
    }
}

/// Returns the lower half of a name: the slot.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the rest is the generation")]
const fn low(name: u64) -> u32 {
    name as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core_number::CORES_MAX;

    #[test]
    fn a_name_tells_its_transport_and_its_core_and_is_packed_without_them() {
        for core in (0..CORES_MAX).filter_map(CoreNumber::new) {
            for transport in [Transport::Rdma, Transport::Tcp] {
                let prefix = ConnectionKey::prefixed(transport.prefix(core));
                for generation in [0, GENERATION_MASK] {
                    let key = ConnectionKey::new(7, prefix | generation);
                    assert_eq!((key.transport(), key.core()), (transport, core));
                    assert_eq!(key.to_bits(), u64::from(generation) << 32 | 7);
                    assert!(key.matches(key.to_bits()));
                }
            }
        }
    }

    #[test]
    fn a_name_is_shown_with_its_core_unless_that_is_the_first() {
        let shown = |core: u8, transport: Transport| {
            let prefix = transport.prefix(CoreNumber::new(core).unwrap());
            format!("{:?}", ConnectionKey::new(5, ConnectionKey::prefixed(prefix) | 3))
        };
        assert_eq!([shown(0, Transport::Rdma), shown(0, Transport::Tcp)], ["5.3"; 2]);
        assert_eq!([shown(1, Transport::Rdma), shown(127, Transport::Tcp)], ["1:5.3", "127:5.3"]);
    }
}
