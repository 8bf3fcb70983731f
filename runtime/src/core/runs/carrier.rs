//! What differs by carrier as Calls are taken.

use haulage_proto::v2::header::SingleChunk;

use super::sender::Sender;
use crate::core::common::Common;
use crate::core::memory::Charge;
use crate::core::program::Programs;
use crate::core::responder::ServedCall;
use crate::core::serve::Acted;
use crate::service::{ReducedArgument, Reply};

/// What brings Calls and takes their Replies: RDMA messages, or records over TCP.
pub(in crate::core) trait Carrier {
    /// Whether a Reply may leave with a lease although its Call has no chunk. The lease is then charged until it has left.
    const LENDS: bool;

    /// What the Replies of a run leave by.
    type Way;

    /// Returns the octets that the Payload stream of a Reply may have, eligible items apart, if its Call is served as it
    /// arrives.
    fn in_place_max(from: &Sender) -> usize;

    /// Begins a run of `count` Calls.
    fn begin(common: &mut Common, from: &Sender, count: usize) -> Self::Way;

    /// Sees to what a Call needs: its argument, and memory for its results. Notes it in `own`, and begins the Reply. Returns
    /// `None` if the Call lacks something now.
    fn provide(
        &mut self,
        common: &mut Common,
        from: &Sender,
        asked: &Asked<'_, '_>,
        reply: &mut Reply,
        own: &mut Own,
    ) -> Option<()>;

    /// Has the Reply leave, if it may leave at once. Returns whether it did. What the Call has of its own is then gone.
    fn leave(
        &mut self,
        common: &mut Common,
        way: &mut Self::Way,
        answered: &Answered<'_>,
        reply: &mut Reply,
        own: &mut Own,
    ) -> bool;

    /// Parks a Call: has it hold what every Call of this carrier holds that waits.
    fn park(common: &mut Common, way: &mut Self::Way, call: ServedCall) -> ServedCall;

    /// Ends the run, of which `answered` Calls are answered or need no answer.
    fn end(common: &mut Common, from: &Sender, way: &Self::Way, answered: u32);
}

/// A Call that is about to be served.
#[derive(Clone, Copy)]
pub(in crate::core) struct Asked<'a, 'm> {
    pub(in crate::core) programs: &'a Programs,
    pub(in crate::core) chunk: Option<&'a SingleChunk>,
    /// The Payload stream; if `header` is given, it may begin with the arguments.
    pub(in crate::core) payload: &'m [u8],
}

/// A Call that the service acted on.
#[derive(Clone, Copy)]
pub(in crate::core) struct Answered<'a> {
    pub(in crate::core) from: &'a Sender,
    pub(in crate::core) xid: u32,
    pub(in crate::core) chunk: Option<&'a SingleChunk>,
    pub(in crate::core) acted: &'a Acted,
}

/// What the Call at hand has of its own.
#[derive(Debug, Default)]
pub(in crate::core) struct Own {
    pub(in crate::core) argument: Option<ReducedArgument>,
    pub(in crate::core) charge: Charge,
}
