//! A peer that breaks no rule, and whose chunks have several segments, of a server whose free pages are scattered.

use haulage::core::{Cx, Service};
use haulage::service::{Call, Outcome, Program, Reply};
use haulage_mr_pool::{Local, Pool};
use haulage_proto::verbs::{Access, Segment};

use super::*;

const PAGE: usize = 4096;

/// The service of the other tests, once it has leased all memory but single pages.
#[derive(Default)]
struct Scattered {
    keeper: Keeper,
    kept: Vec<Local>,
}

impl Service for Scattered {
    fn programs(&self) -> Vec<Program> {
        self.keeper.programs()
    }

    fn call(&mut self, cx: &mut Cx<'_>, call: Call<'_>, reply: &mut Reply) -> Outcome {
        if self.kept.is_empty() {
            self.kept = scatter(cx.pool());
            assert_eq!(cx.gauges().largest_run, PAGE);
        }
        self.keeper.call(cx, call, reply)
    }
}

fn scatter(pool: &Pool) -> Vec<Local> {
    let all: Vec<_> = std::iter::from_fn(|| pool.lease(PAGE / 4)).collect();
    let is_even = |lease: &Local| (lease.bytes().as_ptr().addr() / PAGE).is_multiple_of(2);
    all.into_iter().filter(is_even).collect()
}

#[test]
fn segments_and_leases_that_end_anywhere_have_one_item() {
    let server = server_of(|_| Scattered::default());
    let mut peer = Peer::connect(server.started);
    let item: Vec<u8> = (0..60_001_u32).map(|at| (at % 251 + at / 4096).to_le_bytes()[0]).collect();
    let length = u32::try_from(item.len()).unwrap();
    let source = peer.0.expose(&item, item.len(), Access::RemoteRead).unwrap();
    let room = peer.0.expose(&[0xee; 60_100], 60_100, Access::RemoteWrite).unwrap();
    let parts = |of: Segment, lengths: [u32; 4]| {
        let starts = lengths
            .into_iter()
            .scan(of.offset, |at, length| Some(std::mem::replace(at, *at + u64::from(length))));
        let starts: Vec<_> = starts.collect();
        let part = move |(length, offset)| segment(Segment { length, offset, ..of });
        lengths.into_iter().zip(starts).map(part)
    };
    // One segment ends with a page, one within a page, and one has a few octets.
    let reads = parts(source, [8192, 30_003, 2, 21_804]).flat_map(|part| {
        let [handle, length, high, low] = part;
        [1, 44, handle, length, high, low]
    });
    let reads: Vec<_> = reads.chain([0, 0, 0]).collect();
    peer.0.send(&message(7, MSG, &reads, &call(7, PUT, &[length]))).unwrap();
    assert_eq!(peer.answer(), AnswerV1::Reply { xid: 7 });
    let writes = parts(room, [4095, 1, 50_000, 6_004]).flatten();
    let writes: Vec<_> = [0, 1, 4].into_iter().chain(writes).chain([0, 0]).collect();
    peer.0.send(&message(8, MSG, &writes, &call(8, GET, &[]))).unwrap();
    assert_eq!(peer.answer(), AnswerV1::Reply { xid: 8 });
    let lease = peer.0.retire(room.handle).unwrap();
    assert!(lease.bytes()[..item.len()] == item, "another item");
    assert_eq!(lease.bytes()[item.len()..], [0xee; 99]);
    assert_eq!(peer.null(9), AnswerV1::Reply { xid: 9 });
    server.stop().unwrap();
}
