//! Calls of the library, recorded by a queue pair of the test's own.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use rdma_sys::{ibv_mw, ibv_mw_bind_info, ibv_send_flags, ibv_sge};

use super::*;

thread_local! {
    static CALLS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn called(what: String) {
    CALLS.with_borrow_mut(|calls| calls.push(what));
}

unsafe extern "C" fn start(_: *mut ibv_qp_ex) {
    called("start".to_owned());
}

unsafe extern "C" fn complete(_: *mut ibv_qp_ex) -> c_int {
    called("complete".to_owned());
    libc::ENOSPC
}

unsafe extern "C" fn abort(_: *mut ibv_qp_ex) {
    called("abort".to_owned());
}

unsafe extern "C" fn send(qp: *mut ibv_qp_ex) {
    // SAFETY: the test's queue pair is live.
    let name = unsafe { (*qp).wr_id };
    // SAFETY: as above.
    let flags = unsafe { (*qp).wr_flags };
    called(format!("send {name} flags {flags}"));
}

unsafe extern "C" fn send_inv(_: *mut ibv_qp_ex, key: u32) {
    called(format!("send_inv {key}"));
}

unsafe extern "C" fn write(_: *mut ibv_qp_ex, key: u32, offset: u64) {
    called(format!("write {key} at {offset}"));
}

unsafe extern "C" fn read(_: *mut ibv_qp_ex, key: u32, offset: u64) {
    called(format!("read {key} at {offset}"));
}

unsafe extern "C" fn bind(
    _: *mut ibv_qp_ex,
    _: *mut ibv_mw,
    key: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: it is live for the call.
    let ibv_mw_bind_info { addr, length, .. } = unsafe { *info };
    called(format!("bind {key} to {length} at {addr}"));
}

unsafe extern "C" fn local_inv(_: *mut ibv_qp_ex, key: u32) {
    called(format!("local_inv {key}"));
}

unsafe extern "C" fn set_sge(_: *mut ibv_qp_ex, lkey: u32, at: u64, length: u32) {
    called(format!("{length} octets at {at} of region {lkey}"));
}

unsafe extern "C" fn set_inline(_: *mut ibv_qp_ex, octets: *mut c_void, length: usize) {
    called(format!("{length} octets at {} inline", octets.addr()));
}

/// Posts `parts`; returns whether that succeeded, and the calls.
fn post(windows: WindowUse, parts: &[Part]) -> (bool, Vec<String>) {
    // SAFETY: it is integers, and pointers that may be null.
    let mut qp: ibv_qp_ex = unsafe { MaybeUninit::zeroed().assume_init() };
    qp.wr_start = Some(start);
    qp.wr_complete = Some(complete);
    qp.wr_abort = Some(abort);
    qp.wr_send = Some(send);
    qp.wr_send_inv = Some(send_inv);
    qp.wr_rdma_write = Some(write);
    qp.wr_rdma_read = Some(read);
    qp.wr_set_sge = Some(set_sge);
    qp.wr_set_inline_data = Some(set_inline);
    if windows == WindowUse::Bound {
        qp.wr_bind_mw = Some(bind);
        qp.wr_local_inv = Some(local_inv);
    }
    let extended = Extended { qp: NonNull::from(&mut qp), windows };
    CALLS.take();
    // SAFETY: the queue pair is live, has the calls, and nothing looks at what `parts` name.
    let result = unsafe { extended.post(parts) };
    (result.is_ok(), CALLS.take())
}

fn piece(length: u32) -> Option<ibv_sge> {
    Some(ibv_sge { addr: 4096, length, lkey: 5 })
}

fn bound() -> Part {
    let info = ibv_mw_bind_info { mr: ptr::null_mut(), addr: 8192, length: 12, mw_access_flags: 0 };
    Part::new(Work::Bind(ptr::null_mut(), Handle(7), info), None)
}

#[test]
fn each_part_is_begun_and_finished_and_a_refusal_of_all_is_told() {
    let place = RemoteAddress { handle: Handle(9), offset: 64 };
    let mut short = Part::new(Work::Send, piece(20));
    short.flags = ibv_send_flags::IBV_SEND_INLINE | ibv_send_flags::IBV_SEND_SIGNALED;
    short.name = 3;
    let parts = [
        bound(),
        Part::new(Work::Read(place), piece(1 << 20)),
        Part::new(Work::LocalInv(Handle(7)), None),
        Part::new(Work::Write(place), piece(300)),
        Part::new(Work::SendWithInv(Handle(8)), piece(200)),
        // This part moves no octets, and has to be finished all the same.
        Part::new(Work::NOTHING, None),
        short,
    ];
    let (is_posted, calls) = post(WindowUse::Bound, &parts);
    assert!(!is_posted, "the last call said that the queue is full");
    let both = short.flags.0;
    assert_eq!(
        calls,
        [
            "start",
            "bind 7 to 12 at 8192",
            "read 9 at 64",
            "1048576 octets at 4096 of region 5",
            "local_inv 7",
            "write 9 at 64",
            "300 octets at 4096 of region 5",
            "send_inv 8",
            "200 octets at 4096 of region 5",
            "write 0 at 0",
            "0 octets at 0 of region 0",
            &format!("send 3 flags {both}"),
            "20 octets at 4096 inline",
            "complete",
        ]
    );
}

#[test]
fn what_the_queue_pair_was_not_made_for_takes_all_back() {
    for part in [bound(), Part::new(Work::LocalInv(Handle(7)), None)] {
        let (is_posted, calls) = post(WindowUse::Never, &[Part::new(Work::Send, piece(200)), part]);
        assert!(!is_posted);
        let sent = "200 octets at 4096 of region 5";
        assert_eq!(calls, ["start", "send 0 flags 0", sent, "abort"]);
    }
}
