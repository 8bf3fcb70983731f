//! The one place where memory comes back from an RNIC.
//!
//! Every function wants the provider's own word for it, [`Done`] or [`Quiesced`], which nobody else
//! can make. The caller pairs that word with the lease it belongs to: `Done` is of the request the
//! lease was posted with or of a later one on the same send queue, `Quiesced` of the connection the
//! lease was posted or exposed on.

use haulage_mr_pool::{Exposed, Invalidated, Local, PostedSink, PostedSource};
use haulage_proto::verbs::Status;

use crate::provider::{Done, Quiesced};

/// Takes back what a Send or a Write was posted from.
pub fn source<L>(posted: PostedSource<L>, _: &Done) -> L {
    // SAFETY: a provider makes a `Done` only after it dropped every view of that request and of the
    // earlier ones of its queue pair, and it touches memory through views alone.
    unsafe { posted.complete() }
}

/// Takes back what a Receive or a Read was to fill. What it holds is defined by the completion.
pub fn sink(posted: PostedSink, _: &Done) -> Local {
    // SAFETY: as for `source`.
    unsafe { posted.complete() }
}

/// Returns the proof, good while `done` is at hand, that the peer has lost access to the memory it
/// knew under the handle `done` names.
pub fn invalidated(done: &Done) -> Option<Invalidated<'_>> {
    let handle = done.invalidated.filter(|_| done.status == Status::Success)?;
    // SAFETY: a provider names a handle in a `Done` only after it dropped the registration's view.
    Some(unsafe { Invalidated::mint(handle) })
}

/// Takes back the source of a request whose connection is gone.
pub fn source_quiesced<L>(posted: PostedSource<L>, _: &Quiesced) -> L {
    // SAFETY: a provider makes a `Quiesced` only after it dropped every view of the queue pair.
    unsafe { posted.complete() }
}

/// Takes back the sink of a Read whose connection is gone.
pub fn sink_quiesced(posted: PostedSink, _: &Quiesced) -> Local {
    // SAFETY: as for `source_quiesced`.
    unsafe { posted.complete() }
}

/// Returns the proof that the peer has lost access to `exposed`, its connection being gone.
pub fn destroyed<'turn>(exposed: &Exposed, _: &'turn Quiesced) -> Invalidated<'turn> {
    // SAFETY: as for `source_quiesced`: the registrations of the queue pair went with it.
    unsafe { Invalidated::mint(exposed.handle()) }
}
