//! Names of requests, which completions return.

use haulage_proto::verbs::QpNum;

/// Returns the name of a queue pair's requests, without their numbers.
pub(super) fn name_of(qp: QpNum) -> u64 {
    let number = u64::from(qp.generation()) << 16 | qp.slot() as u64;
    number << SEQUENCE_BITS
}

/// Returns the queue pair, by slot and generation, and the number of its entry, that a completion names.
pub(crate) fn sequence_of(name: u64) -> (QpNum, u32) {
    let number = name >> SEQUENCE_BITS;
    let low = |value: u64| u16::try_from(value & 0xffff).unwrap_or_default();
    let sequence = u32::try_from(name & u64::from(SEQUENCE_MASK)).unwrap_or_default();
    (QpNum::new(low(number), low(number >> 16)), sequence)
}

/// The bits of an entry's number that its name has room for.
pub(super) const SEQUENCE_MASK: u32 = (1 << SEQUENCE_BITS) - 1;
const SEQUENCE_BITS: u32 = 24;
