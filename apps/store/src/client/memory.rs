//! How much registered memory a client takes.

use super::{read, write};
use crate::nfs3::binding::Limits;

/// Returns the maximum registered memory, in octets, that reading or writing one file takes.
pub const fn memory_max(most: &Limits) -> usize {
    let mut bytes = 0;
    bytes += (write::PIECES + write::WRITES) * most.write_max as usize; // with what was cut in two
    bytes += read::READS * most.read_max as usize;
    bytes += most.readdir_max as usize;
    bytes
}
