//! What several cores of one server will have in common one day, beside what each has for itself.
//!
//! Each core will have descriptors, open files, lists, changes under way, and a ring of its own. In common they have what
//! clients are told of all of them alike: one write verifier, and when files were last changed.

pub(super) mod changed;
mod verifier;

use changed::LastChanges;
use verifier::WriteVerifier;

/// What cores have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) verifier: WriteVerifier,
    pub(super) changed: LastChanges,
}

impl Shared {
    /// Begins a run with a number that no earlier one had.
    pub(super) fn new(run: u64) -> Self {
        Self { verifier: WriteVerifier::new(run), changed: LastChanges::new() }
    }
}
