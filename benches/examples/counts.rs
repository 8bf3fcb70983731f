//! Runs one wire operation a number of times, for `benches/counts` to count its instructions.
//!
//! `counts OPERATION TIMES`; without arguments it prints the operations. The rest of the program's work does not depend
//! on `TIMES`, so the difference of two runs is the operations and a loop around them; the operation `nothing` is the
//! loop alone. Fails if an operation allocates.
#![forbid(unsafe_code)]

use std::env;
use std::hint::black_box;
use std::process::ExitCode;

use haulage::sys::alloc::{Counting, allocations_on_this_thread};
use haulage_proto::rpc::{AcceptStat, CallHeader, ReplyHeader};
use haulage_proto::v2::header::{
    self, CallLists, Returned, encode_call_inline, encode_grant, encode_reply_inline,
};
use haulage_proto::verbs::{Handle, Segment};
use haulage_proto::xdr::{Truncated, Writer};

/// Counts the allocations of an operation.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let operation = arguments.next();
    let times = arguments.next().and_then(|times| times.parse().ok());
    let (Some(operation), Some(times)) = (operation, times) else {
        OPERATIONS.iter().for_each(|(name, _)| eprintln!("{name}"));
        return ExitCode::SUCCESS;
    };
    let Some((_, run)) = OPERATIONS.iter().find(|(name, _)| *name == operation) else {
        eprintln!("no operation {operation}");
        return ExitCode::FAILURE;
    };
    let allocations = run(times);
    if allocations > 0 {
        eprintln!("{operation}: {allocations} allocations");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Runs an operation the given number of times. Returns the number of allocations.
type Operation = fn(u32) -> u64;

const OPERATIONS: [(&str, Operation); 9] = [
    ("nothing", nothing),
    ("encode-null-call", |times| encode(times, null_call)),
    ("decode-null-call", |times| {
        decode(
            times,
            &written(|w| {
                null_call(w)?;
                RPC.encode(w)
            }),
        )
    }),
    ("encode-call-write-chunk", |times| encode(times, call)),
    ("decode-call-write-chunk", |times| {
        decode(
            times,
            &written(|w| {
                call(w)?;
                RPC.encode(w)
            }),
        )
    }),
    ("encode-reply-write-chunk", |times| encode(times, reply)),
    ("decode-reply-write-chunk", |times| {
        decode(
            times,
            &written(|w| {
                reply(w)?;
                DONE.encode(w)
            }),
        )
    }),
    ("encode-grant", |times| encode(times, grant)),
    ("decode-grant", |times| decode(times, &written(grant))),
];

/// The loop alone.
fn nothing(times: u32) -> u64 {
    let message = [0; ROOM];
    let before = allocations_on_this_thread();
    for _ in 0..times {
        assert!(!black_box(black_box(message.as_slice())).is_empty(), "there is room");
    }
    allocations_on_this_thread() - before
}

fn encode(times: u32, operation: fn(&mut Writer<'_>) -> Result<(), Truncated>) -> u64 {
    let mut room = [0; ROOM];
    let before = allocations_on_this_thread();
    for _ in 0..times {
        let mut w = Writer::new(black_box(&mut room));
        assert!(black_box(&operation(&mut w)).is_ok(), "the room is enough");
    }
    allocations_on_this_thread() - before
}

fn decode(times: u32, message: &[u8]) -> u64 {
    let before = allocations_on_this_thread();
    for _ in 0..times {
        assert!(black_box(&header::decode(black_box(message))).is_ok(), "the message is valid");
    }
    allocations_on_this_thread() - before
}

fn null_call(w: &mut Writer<'_>) -> Result<(), Truncated> {
    encode_call_inline(w, XID, 64, &CallLists::default())
}

/// A GET: the result goes into one Write chunk, whose handle the Reply may invalidate.
fn call(w: &mut Writer<'_>) -> Result<(), Truncated> {
    let writes: &[&[Segment]] = &[&[SEGMENT]];
    encode_call_inline(
        w,
        XID,
        64,
        &CallLists { inv_handle: SEGMENT.handle, writes, ..CallLists::default() },
    )
}

fn reply(w: &mut Writer<'_>) -> Result<(), Truncated> {
    encode_reply_inline(w, XID, 64, &[Returned { offered: &[SEGMENT], length: 4096 }])
}

fn grant(w: &mut Writer<'_>) -> Result<(), Truncated> {
    encode_grant(w, 64)
}

fn written(encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>) -> Vec<u8> {
    let mut room = [0; ROOM];
    let mut w = Writer::new(&mut room);
    assert!(encode(&mut w).is_ok(), "the room is enough");
    w.written().to_vec()
}

const XID: u32 = 7;
const RPC: CallHeader<'_> = CallHeader::new(XID, 0x2000_0001, 1, 0);
const DONE: ReplyHeader = ReplyHeader::accepted(XID, AcceptStat::Success);
const SEGMENT: Segment = Segment { handle: Handle(0x0102_0304), length: 1 << 20, offset: 1 << 40 };
const ROOM: usize = 256;
