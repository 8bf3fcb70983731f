//! Posting by `ibv_post_send`: a list of work requests, handed over with one call.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

use haulage_proto::verbs::Handle;
use rdma_sys::{
    bind_mw_t, ibv_post_send, ibv_qp, ibv_send_wr, ibv_sge, ibv_wr_opcode,
    imm_data_invalidated_rkey_union_t, rdma_t,
};

use super::part::{POSTING, Part, RemoteAddress, Work};
use crate::sys::ibverbs::Refused;

/// Storage of the work requests of a list.
pub(super) struct List {
    requests: Vec<ibv_send_wr>,
    /// The octets that each request gathers or scatters, if any, by the same index.
    pieces: Vec<ibv_sge>,
}

impl List {
    /// Makes storage for `count` requests.
    pub(super) fn new(count: usize) -> Self {
        Self { requests: Vec::with_capacity(count), pieces: Vec::with_capacity(count) }
    }

    /// Posts `parts` to the send queue of `qp`, in this order.
    ///
    /// # Errors
    ///
    /// The device refused some or all.
    ///
    /// # Safety
    ///
    /// The queue pair is live and used by this thread alone. The windows and regions that `parts` name
    /// are live. The octets they name stay what they are until the device is done with them.
    pub(super) unsafe fn post(&mut self, qp: *mut ibv_qp, parts: &[Part]) -> Result<(), Refused> {
        self.requests.clear();
        self.requests.extend(parts.iter().map(request));
        self.pieces.clear();
        self.pieces.extend(parts.iter().map(|part| part.piece.unwrap_or(NO_PIECE)));
        let mut next = ptr::null_mut();
        for (request, piece) in self.requests.iter_mut().zip(self.pieces.iter_mut()).rev() {
            request.next = next;
            request.sg_list = if request.num_sge == 0 { ptr::null_mut() } else { piece };
            next = ptr::from_mut(request);
        }
        if next.is_null() {
            return Ok(());
        }
        let mut refused = ptr::null_mut();
        // SAFETY: as the caller promises of queue pair, windows, regions and octets. Requests and pieces
        // are live for the call, which copies them.
        let result = unsafe { ibv_post_send(qp, next, &raw mut refused) };
        Refused::check(POSTING, result)
    }
}

fn request(part: &Part) -> ibv_send_wr {
    // SAFETY: it is integers, pointers that may be null, and unions of these.
    let mut request: ibv_send_wr = unsafe { MaybeUninit::zeroed().assume_init() };
    request.wr_id = part.name;
    request.num_sge = c_int::from(part.piece.is_some());
    request.send_flags = part.flags.0;
    request.opcode = match part.work {
        Work::Send => ibv_wr_opcode::IBV_WR_SEND,
        Work::SendWithInv(handle) => {
            request.imm_data_invalidated_rkey_union = key(handle);
            // The place where soft-iWARP's library looks for it.
            request.wr.rdma = rdma_t { remote_addr: 0, rkey: handle.0 };
            ibv_wr_opcode::IBV_WR_SEND_WITH_INV
        }
        Work::Write(address) => {
            request.wr.rdma = remote(address);
            ibv_wr_opcode::IBV_WR_RDMA_WRITE
        }
        Work::Read(address) => {
            request.wr.rdma = remote(address);
            ibv_wr_opcode::IBV_WR_RDMA_READ
        }
        Work::Bind(mw, handle, bind_info) => {
            request.bind_mw_tso_union.bind_mw = bind_mw_t { mw, rkey: handle.0, bind_info };
            ibv_wr_opcode::IBV_WR_BIND_MW
        }
        Work::LocalInv(handle) => {
            request.imm_data_invalidated_rkey_union = key(handle);
            ibv_wr_opcode::IBV_WR_LOCAL_INV
        }
    };
    request
}

const fn remote(address: RemoteAddress) -> rdma_t {
    rdma_t { remote_addr: address.offset, rkey: address.handle.0 }
}

const fn key(handle: Handle) -> imm_data_invalidated_rkey_union_t {
    imm_data_invalidated_rkey_union_t { invalidated_rkey: handle.0 }
}

const NO_PIECE: ibv_sge = ibv_sge { addr: 0, length: 0, lkey: 0 };
