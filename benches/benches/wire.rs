//! The cost of each message in `haulage-proto`: one Call with a Read chunk, one Reply with a Write
//! chunk, the RPC header inside, and the credits of both directions.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use haulage_proto::rpc::CallHeader;
use haulage_proto::v2::credit::{Arrived, Class, Credits, PeerCalls};
use haulage_proto::v2::header::{
    self, CallLists, Returned, encode_call_inline, encode_reply_inline,
};
use haulage_proto::verbs::{Handle, Segment};
use haulage_proto::xdr::Writer;

const SEGMENT: Segment = Segment { handle: Handle(0x0102_0304), length: 1 << 20, offset: 1 << 40 };
const CALL: CallLists<'_> =
    CallLists { inv_handle: SEGMENT.handle, reads: &[(60, &[SEGMENT])], writes: &[], reply: None };
const REPLY: &[Returned<'_>] = &[Returned { offered: &[SEGMENT], length: 4096 }];
const RPC: CallHeader<'_> = CallHeader::new(7, 0x2000_0001, 1, 1);

fn headers(c: &mut Criterion) {
    let mut buffer = [0; 256];
    c.bench_function("wire/encode call with read chunk", |b| {
        b.iter(|| {
            encode_call_inline(&mut Writer::new(black_box(&mut buffer)), 7, 64, black_box(&CALL))
        });
    });
    c.bench_function("wire/encode reply with write chunk", |b| {
        b.iter(|| {
            encode_reply_inline(&mut Writer::new(black_box(&mut buffer)), 7, 64, black_box(REPLY))
        });
    });
    c.bench_function("wire/encode rpc call header", |b| {
        b.iter(|| black_box(&RPC).encode(&mut Writer::new(black_box(&mut buffer))));
    });

    let call =
        written(|w| encode_call_inline(w, 7, 64, &CALL).and_then(|()| RPC.encode(w)).is_ok());
    c.bench_function("wire/decode call with read chunk", |b| {
        b.iter(|| header::decode(black_box(&call)).is_ok());
    });
    let reply = written(|w| encode_reply_inline(w, 7, 64, REPLY).and_then(|()| w.u32(7)).is_ok());
    c.bench_function("wire/decode reply with write chunk", |b| {
        b.iter(|| header::decode(black_box(&reply)).is_ok());
    });
    let rpc = written(|w| RPC.encode(w).is_ok());
    c.bench_function("wire/decode rpc call header", |b| {
        b.iter(|| CallHeader::decode(black_box(&rpc)).map(|(header, _)| header.procedure));
    });
}

/// Counts credits for one Call and its Reply at both ends: each message is sent and received, and
/// its Receive replaced.
fn credits(c: &mut Criterion) {
    let (mut client, mut server) =
        (Credits::new(PeerCalls::Refused), Credits::new(PeerCalls::Served));
    client.reserve(64);
    server.reserve(64);
    c.bench_function("wire/credits of a call and its reply", |b| {
        b.iter(|| {
            let word = client.on_sent(Class::Call);
            let taken = server.on_received(black_box(word), Arrived::Other);
            server.owe(1);
            server.reserve(1);
            let word = server.on_sent(Class::Reply);
            let replied = client.on_received(black_box(word), Arrived::Other);
            client.reserve(1);
            assert!(taken.is_ok() && replied.is_ok() && client.may_send(Class::Call));
        });
    });
}

fn written(encode: impl FnOnce(&mut Writer<'_>) -> bool) -> Vec<u8> {
    let mut buffer = [0; 256];
    let mut writer = Writer::new(&mut buffer);
    assert!(encode(&mut writer), "the buffer holds any of these messages");
    writer.written().to_vec()
}

criterion_group!(benches, headers, credits);
criterion_main!(benches);
