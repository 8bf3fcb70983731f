//! Completion queues, and being woken by them.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::rc::Rc;

use haulage_proto::verbs::Handle;
use rdma_sys::{
    ibv_ack_cq_events, ibv_comp_channel, ibv_cq, ibv_create_comp_channel, ibv_create_cq,
    ibv_destroy_comp_channel, ibv_destroy_cq, ibv_get_cq_event, ibv_poll_cq, ibv_req_notify_cq,
    ibv_wc, ibv_wc_flags, ibv_wc_opcode, ibv_wc_status,
};

use super::descriptor::nonblocking;
use super::{Device, Refused};

/// A completion queue, for any number of queues.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    cq: NonNull<ibv_cq>,
    channel: NonNull<ibv_comp_channel>,
    _device: Device,
}

/// One completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Polled {
    /// The name the work request was posted with.
    pub(crate) name: u64,
    /// The status of the work request.
    pub(crate) status: WorkStatus,
    /// Octets that a Receive took.
    pub(crate) length: u32,
    /// The key that the peer's Send invalidated.
    pub(crate) invalidated: Option<Handle>,
    /// The device's number of the queue pair.
    pub(crate) number: u32,
}

/// The status of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkStatus {
    /// It succeeded.
    Success,
    /// Its queue pair failed before it.
    Flushed,
    /// It was invalid.
    Local,
    /// The peer's device did not grant the access.
    RemoteAccess,
    /// The peer's device found it invalid: a message longer than the Receive it met, a key to
    /// invalidate that is not the peer's.
    RemoteInvalid,
    /// The peer has no Receive, and retries are spent.
    NoReceive,
    /// The peer does not answer, or has failed.
    Lost,
}

impl CompletionQueue {
    /// Makes a queue for `entries` completions.
    pub(crate) fn new(device: &Device, entries: usize) -> Result<Rc<Self>, Refused> {
        let what = "making a completion queue";
        let entries = c_int::try_from(entries).unwrap_or(c_int::MAX);
        // SAFETY: the context is live.
        let channel = unsafe { ibv_create_comp_channel(device.raw()) };
        let channel = NonNull::new(channel).ok_or_else(|| Refused::last(what))?;
        // SAFETY: context and channel are live.
        let cq =
            unsafe { ibv_create_cq(device.raw(), entries, ptr::null_mut(), channel.as_ptr(), 0) };
        let Some(cq) = NonNull::new(cq) else {
            let refused = Refused::last(what);
            // SAFETY: it was made above, and nothing uses it.
            unsafe { ibv_destroy_comp_channel(channel.as_ptr()) };
            return Err(refused);
        };
        let queue = Self { cq, channel, _device: device.clone() };
        nonblocking(queue.fd()).map_err(|error| Refused { what, error })?;
        Ok(Rc::new(queue))
    }

    /// Takes completions, at most as many as `into` has room for in all.
    pub(crate) fn poll(&self, into: &mut Vec<Polled>) {
        let room = into.capacity().saturating_sub(into.len()).min(BATCH);
        let mut found = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
        let count = c_int::try_from(room).unwrap_or(0);
        // SAFETY: the queue is live and used by this thread alone; `found` has room for `count`.
        let count = unsafe { ibv_poll_cq(self.cq.as_ptr(), count, found.as_mut_ptr().cast()) };
        let count = usize::try_from(count).unwrap_or(0);
        for one in found.iter().take(count) {
            // SAFETY: the call filled the first `count`.
            let one = unsafe { one.assume_init_ref() };
            into.push(Polled::new(one));
        }
    }

    /// Asks for a wake-up by the next completion. Earlier completions cause none: poll after this.
    pub(crate) fn arm(&self) {
        // SAFETY: the queue is live.
        unsafe { ibv_req_notify_cq(self.cq.as_ptr(), 0) };
    }

    /// Takes the event that caused a wake-up.
    pub(crate) fn disarm(&self) {
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is live and does not block; both places are live for the call.
        let got = unsafe { ibv_get_cq_event(self.channel.as_ptr(), &raw mut cq, &raw mut context) };
        if got == 0 {
            // SAFETY: one event of our only queue was taken above.
            unsafe { ibv_ack_cq_events(self.cq.as_ptr(), 1) };
        }
    }

    /// Returns the descriptor that becomes readable by a completion after [`arm`](Self::arm).
    pub(crate) fn fd(&self) -> RawFd {
        // SAFETY: the channel is live, and its descriptor never changes.
        unsafe { self.channel.as_ref() }.fd
    }

    pub(super) const fn raw(&self) -> *mut ibv_cq {
        self.cq.as_ptr()
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: it came from ibv_create_cq and is freed once; queues that complete here hold a count of
        // us, so none is left, and every event was acknowledged.
        unsafe { ibv_destroy_cq(self.cq.as_ptr()) };
        // SAFETY: it came from ibv_create_comp_channel and is freed once, and its only queue is gone.
        unsafe { ibv_destroy_comp_channel(self.channel.as_ptr()) };
    }
}

impl Polled {
    fn new(found: &ibv_wc) -> Self {
        // The opcode is defined only for successful work.
        let received = found.status == ibv_wc_status::IBV_WC_SUCCESS
            && found.opcode & ibv_wc_opcode::IBV_WC_RECV != 0;
        let told = received && found.wc_flags & INVALIDATED != 0;
        // SAFETY: both fields of the union are a u32; which of them counts is in the flags.
        let key = unsafe { found.imm_data_invalidated_rkey_union.invalidated_rkey };
        Self {
            name: found.wr_id,
            status: WorkStatus::of(found.status),
            length: if received { found.byte_len } else { 0 },
            invalidated: told.then_some(Handle(key)),
            number: found.qp_num,
        }
    }
}

impl WorkStatus {
    const fn of(status: ibv_wc_status::Type) -> Self {
        match status {
            ibv_wc_status::IBV_WC_SUCCESS => Self::Success,
            ibv_wc_status::IBV_WC_WR_FLUSH_ERR => Self::Flushed,
            ibv_wc_status::IBV_WC_LOC_LEN_ERR
            | ibv_wc_status::IBV_WC_LOC_QP_OP_ERR
            | ibv_wc_status::IBV_WC_LOC_PROT_ERR
            | ibv_wc_status::IBV_WC_LOC_ACCESS_ERR
            | ibv_wc_status::IBV_WC_MW_BIND_ERR => Self::Local,
            ibv_wc_status::IBV_WC_REM_ACCESS_ERR => Self::RemoteAccess,
            ibv_wc_status::IBV_WC_REM_INV_REQ_ERR | ibv_wc_status::IBV_WC_REM_OP_ERR => {
                Self::RemoteInvalid
            }
            ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR => Self::NoReceive,
            _ => Self::Lost,
        }
    }
}

/// The flags that report a key invalidated by the peer's Send. Soft-RoCE has the kernel's value of the flag, which in
/// user space means a good checksum, and is reported for datagrams only.
const INVALIDATED: u32 = ibv_wc_flags::IBV_WC_WITH_INV.0 | ibv_wc_flags::IBV_WC_IP_CSUM_OK.0;

/// Completions taken by one call.
const BATCH: usize = 32;
