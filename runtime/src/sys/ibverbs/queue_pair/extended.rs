//! Posting by `ibv_wr_*`: a call for each work request, between one that begins and one that hands over.
//!
//! # Normal operation
//!
//! Nothing reaches the device before `ibv_wr_complete`, and nothing at all if that reports an error or
//! `ibv_wr_abort` is called instead.
//!
//! The libraries of devices (rdma-core 44 to 63) require more than the manual page `ibv_wr_post(3)`: the call that
//! names the octets of a work request finishes it, so that call is made for no octets, too (mlx5, bnxt); and copied
//! octets are looked for in the queue only if the work request has `IBV_SEND_INLINE`, which the manual does not require
//! (rxe, bnxt).

use std::io::ErrorKind;
use std::ptr::{self, NonNull};

use haulage_proto::verbs::Handle;
use rdma_sys::{
    ibv_qp, ibv_qp_create_send_ops_flags as ops, ibv_qp_ex, ibv_qp_to_qp_ex, ibv_wr_abort,
    ibv_wr_bind_mw, ibv_wr_complete, ibv_wr_local_inv, ibv_wr_rdma_read, ibv_wr_rdma_write,
    ibv_wr_send, ibv_wr_send_inv, ibv_wr_set_inline_data, ibv_wr_set_sge, ibv_wr_start,
};

use super::part::{POSTING, Part, RemoteAddress, Work};
use crate::sys::ibverbs::{Refused, WindowUse};

/// A queue pair that has all calls needed to post.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extended {
    qp: NonNull<ibv_qp_ex>,
    /// Whether it has the calls for memory windows.
    windows: WindowUse,
}

/// Checks whether a queue pair has each of these calls.
macro_rules! has {
    ($qp:expr, $($call:ident)*) => {
        // SAFETY: the queue pair is live, and its calls were filled in when it was made.
        $(unsafe { (*$qp.as_ptr()).$call }.is_some())&&*
    };
}

impl Extended {
    /// Returns the operations that a queue pair is to be made for.
    pub(super) fn operations(windows: WindowUse) -> u64 {
        let moves = ops::IBV_QP_EX_WITH_SEND
            | ops::IBV_QP_EX_WITH_SEND_WITH_INV
            | ops::IBV_QP_EX_WITH_RDMA_WRITE
            | ops::IBV_QP_EX_WITH_RDMA_READ;
        let opens = ops::IBV_QP_EX_WITH_BIND_MW | ops::IBV_QP_EX_WITH_LOCAL_INV;
        u64::from(match windows {
            WindowUse::Bound => (moves | opens).0,
            WindowUse::Never => moves.0,
        })
    }

    /// Finds the calls of a queue pair that was made for [`operations`](Self::operations).
    ///
    /// # Safety
    ///
    /// The queue pair is live now, and whenever the returned value is used.
    pub(super) unsafe fn of(qp: *mut ibv_qp, windows: WindowUse) -> Option<Self> {
        // SAFETY: as the caller promises.
        let qp = NonNull::new(unsafe { ibv_qp_to_qp_ex(qp) })?;
        let posts = has!(qp, wr_start wr_complete wr_abort wr_set_sge wr_set_inline_data);
        let moves = has!(qp, wr_send wr_send_inv wr_rdma_write wr_rdma_read);
        let opens = windows == WindowUse::Never || has!(qp, wr_bind_mw wr_local_inv);
        (posts && moves && opens).then_some(Self { qp, windows })
    }

    /// Posts `parts`, in this order.
    ///
    /// # Errors
    ///
    /// The library refused all of them, or the device did some.
    ///
    /// # Safety
    ///
    /// The queue pair is live and used by this thread alone. The windows and regions that `parts` name
    /// are live. The octets they name stay what they are until the device is done with them.
    pub(super) unsafe fn post(&self, parts: &[Part]) -> Result<(), Refused> {
        let qp = self.qp.as_ptr();
        // SAFETY: the queue pair is live, nothing has begun on it, and `of` found the call.
        unsafe { ibv_wr_start(qp) };
        for part in parts {
            // SAFETY: posting has begun, and the caller promises the rest.
            if unsafe { self.add(part) }.is_err() {
                // SAFETY: posting has begun, and `of` found the call.
                unsafe { ibv_wr_abort(qp) };
                return Err(Refused::of(POSTING, ErrorKind::Unsupported.into()));
            }
        }
        // SAFETY: posting has begun, and `of` found the call.
        let result = unsafe { ibv_wr_complete(qp) };
        Refused::check(POSTING, result)
    }

    /// Adds one part; fails if the queue pair was not made for its operation.
    ///
    /// # Safety
    ///
    /// Those of `post` hold, and posting has begun and not ended.
    unsafe fn add(&self, part: &Part) -> Result<(), ()> {
        let qp = self.qp.as_ptr();
        // SAFETY: the queue pair is live, and the field is the caller's to write.
        unsafe { (*qp).wr_id = part.name };
        // SAFETY: as above.
        unsafe { (*qp).wr_flags = part.flags.0 };
        match part.work {
            // SAFETY: posting has begun, and `of` found the call.
            Work::Send => unsafe { ibv_wr_send(qp) },
            // SAFETY: as above.
            Work::SendWithInv(Handle(key)) => unsafe { ibv_wr_send_inv(qp, key) },
            Work::Write(RemoteAddress { handle, offset }) => {
                // SAFETY: as above.
                unsafe { ibv_wr_rdma_write(qp, handle.0, offset) }
            }
            Work::Read(RemoteAddress { handle, offset }) => {
                // SAFETY: as above.
                unsafe { ibv_wr_rdma_read(qp, handle.0, offset) }
            }
            Work::Bind(mw, Handle(key), info) if self.windows == WindowUse::Bound => {
                // SAFETY: as above, for windows; `mw` and the region in `info` are live, as the caller
                // promises, and `info` is for the call, which copies it.
                unsafe { ibv_wr_bind_mw(qp, mw, key, &raw const info) };
                return Ok(());
            }
            Work::LocalInv(Handle(key)) if self.windows == WindowUse::Bound => {
                // SAFETY: as above.
                unsafe { ibv_wr_local_inv(qp, key) };
                return Ok(());
            }
            Work::Bind(..) | Work::LocalInv(_) => return Err(()),
        }
        let (addr, length, lkey) = part.piece.map_or((0, 0, 0), |p| (p.addr, p.length, p.lkey));
        if part.is_copied() {
            let address = usize::try_from(addr).map_err(drop)?;
            let octets = ptr::with_exposed_provenance_mut(address);
            // SAFETY: the work request just begun moves octets, and `of` found the call, which copies
            // them: they are a view's, whose address was exposed, and the call does not write them.
            unsafe { ibv_wr_set_inline_data(qp, octets, length as usize) };
        } else {
            // SAFETY: the work request just begun moves octets, and `of` found the call.
            unsafe { ibv_wr_set_sge(qp, lkey, addr, length) };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
