//! Encodes and decodes a Call of version 2 without an operating system, except for the call that ends the program.
//!
//! It proves that the protocol library needs `core` and `alloc` alone: a crate that linked `std` would bring a second
//! panic handler, and the C library, which `std` needs, is not linked.
//!
//! The program ends with 0 if the decoded header equals the encoded one, with 1 if not, and with 2 if it panics.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::vec;
use core::panic::PanicInfo;

use haulage_proto::v2::header::{CallLists, Message, decode, encode_call_inline};
use haulage_proto::verbs::{Handle, Segment};
use haulage_proto::xdr::Writer;

mod bare;

/// The main function, which the entry point calls.
extern "C" fn main() -> ! {
    bare::exit(if is_the_same_again() { 0 } else { 1 })
}

/// Encodes the header of a Call with chunks, decodes it, and compares the two.
fn is_the_same_again() -> bool {
    const XID: u32 = 0x0102_0304;
    let segment = |handle| Segment { handle: Handle(handle), length: 4096, offset: 1 << 40 };
    let (argument, result) = ([segment(1)], [segment(2), segment(3)]);
    let lists = CallLists {
        inv_handle: Handle(2),
        reads: &[(40, &argument)],
        writes: &[&result],
        reply: None,
    };
    let mut memory = vec![0; 256];
    let mut w = Writer::new(&mut memory);
    let encoded = encode_call_inline(&mut w, XID, 32, &lists).and_then(|()| w.u32(XID));
    let Ok(Message::CallInline(call)) = decode(w.written()) else { return false };
    encoded.is_ok()
        && (call.prefix.xid, call.prefix.credit, call.inv_handle) == (XID, 32, Handle(2))
        && call.reads.entries().eq([(40, argument[0])])
        && call.writes.chunks().flat_map(|chunk| chunk.segments()).eq(result)
        && call.reply.is_none()
        && call.payload == XID.to_be_bytes()
}

#[panic_handler]
fn panicked(_: &PanicInfo<'_>) -> ! {
    bare::exit(2)
}
