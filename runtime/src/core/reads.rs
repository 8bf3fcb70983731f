//! Posting the RDMA Reads that fetch a Call, its arguments, or a Reply.

use std::ops::Range;

use haulage_mr_pool::PostedSinks;
use haulage_proto::verbs::ClaimedSegment;

use super::common::Common;
use super::work::{Held, Reader};
use crate::key::ConnectionKey;
use crate::provider::{Operation, WorkRequest};
use crate::work::Parts;

impl Common {
    /// Posts the Reads that fill `sinks` for `reader`, one behind the other: of each part of the peer's memory, which goes
    /// to a range of them, one for each lease. The last one is signaled, and there is at least one.
    pub(crate) fn read(
        &mut self,
        key: ConnectionKey,
        sources: impl Iterator<Item = (ClaimedSegment, Range<usize>)>,
        mut sinks: PostedSinks,
        reader: Reader,
    ) {
        let Some(connection) = self.connections.get_mut(key) else {
            panic!("a Read is posted on a connection that is there");
        };
        connection.share.begin_reading();
        let mut parts = Parts::default();
        let mut last: Option<WorkRequest> = None;
        for (source, to) in sources {
            let mut done = 0;
            sinks.sinks(to, |sink| {
                // A segment has fewer than 2^32 octets.
                let part = u32::try_from(sink.len()).unwrap_or(u32::MAX);
                let Ok(source) = source.window(done, part) else { return };
                done += u64::from(part);
                let next = parts.next(Operation::Read { sink, source });
                last.replace(next).into_iter().for_each(|request| connection.outbox.push(request));
            });
        }
        let id = self.enter_work(key, Held::Read { sinks, reader });
        if let Some(mut request) = last
            && let Some(connection) = self.connections.get_mut(key)
        {
            request.id = id;
            request.flags.signaled = true;
            connection.outbox.push(request);
        }
        self.connections.touch(key);
    }
}
