//! How the results of a Call of ours are to come, if it directs that (round-trip extensions).

use haulage_proto::rtrext::direction::{Directed, Direction};
use haulage_proto::verbs::Segment;

use crate::items::Items;

/// How the results of a Call are to come.
#[derive(Clone, Debug, Default)]
pub(super) struct Ways {
    /// Each of them; none if the Call does not direct that.
    pub(super) each: Items<Way>,
    /// The messages that the response may have beyond the first.
    pub(super) further: u32,
}

/// How a result is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// In the Payload stream: there is no room for it.
    Inline,
    /// Along with the response.
    Send,
    /// By RDMA Write.
    Write,
}

impl Way {
    /// Returns the direction for a result that comes this way; `segments` is the room that is exposed for it.
    pub(super) const fn direction(self, segments: &[Segment]) -> Direction<&[Segment]> {
        match self {
            // No item is long enough to be placed.
            Self::Inline => Direction { minlen: u32::MAX, place: Directed::Tbsn },
            // [RTR-6.2-1] what is to come along has no memory.
            //~ RTR-6.2-1: `Directed::Tbsn` -> `Directed::Exrw(segments)`
            Self::Send => Direction { minlen: 0, place: Directed::Tbsn },
            // [RTR-5.3-3]
            //~ RTR-5.3-3: `Directed::Exrw(segments)` -> `Directed::Choice(segments)`
            Self::Write => Direction { minlen: 0, place: Directed::Exrw(segments) },
        }
    }
}
