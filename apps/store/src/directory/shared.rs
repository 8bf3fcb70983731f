//! What several cores of one server will have in common one day, beside what each has for itself.
//!
//! Each core will have descriptors, open files, lists, changes under way, and a ring of its own. In common they have what
//! is kept for all clients alike: the journal of where files are, one write verifier, and the order in which files were
//! last changed. So is the cache of Replies ([`Replays`](crate::replays::Replays)), which belongs to the program above
//! all backends.
//!
//! Nothing here knows a core, a descriptor or a helper. Who compacts the journal gives it all records, so the cores' tables
//! of where files were seen have to be put together for that.

pub(super) mod changed;
pub(super) mod journal;
pub(super) mod records;
mod verifier;

use changed::LastChanges;
use journal::Journal;
use records::Records;
use verifier::WriteVerifier;

/// What cores have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) records: Records,
    pub(super) verifier: WriteVerifier,
    pub(super) changed: LastChanges,
}

impl Shared {
    /// Begins a run with a number that no earlier one had. Records where files are in a journal if there is one.
    pub(super) fn new(run: u64, journal: Option<Journal>) -> Self {
        let (verifier, changed) = (WriteVerifier::new(run), LastChanges::new());
        Self { records: Records::new(journal), verifier, changed }
    }
}
