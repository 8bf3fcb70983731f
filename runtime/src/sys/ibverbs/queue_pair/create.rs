//! Making queue pairs, for either way of posting.

use std::mem::MaybeUninit;
use std::sync::Arc;

use rdma_sys::{
    ibv_create_qp_ex, ibv_destroy_qp, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_qp_init_attr_mask,
    ibv_qp_type, rdma_create_qp, rdma_create_qp_ex, rdma_destroy_qp,
};

use super::extended::Extended;
use crate::sys::ibverbs::{CmId, CompletionQueue, Device, Domain, WindowUse};

/// The way work requests are handed to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posting {
    /// By `ibv_post_send`, which takes a list of them, on every device.
    List,
    /// By `ibv_wr_*`, with a call for each.
    Extended {
        /// Whether there are calls for memory windows, too.
        windows: WindowUse,
    },
}

/// The way work requests are handed to the device of one queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    List,
    Extended(Extended),
}

impl Posting {
    /// Finds the better way that the library of `device` supports, by having it make a queue pair.
    pub(crate) fn probe(device: &Device, domain: &Arc<Domain>, windows: WindowUse) -> Self {
        let Ok(queue) = CompletionQueue::new(device, 1) else { return Self::List };
        let mut attr = blank();
        attr.send_cq = queue.raw();
        attr.recv_cq = queue.raw();
        attr.cap.max_send_wr = 1;
        attr.cap.max_send_sge = 1;
        attr.cap.max_recv_wr = 1;
        attr.cap.max_recv_sge = 1;
        let mut attr = extended(&attr, domain, windows);
        // SAFETY: device, domain and queue are live and belong together; `attr` is live for the call.
        let qp = unsafe { ibv_create_qp_ex(device.raw(), &raw mut attr) };
        if qp.is_null() {
            return Self::List;
        }
        // SAFETY: the queue pair is live, and what is found is not used.
        let found = unsafe { Extended::of(qp, windows) };
        // SAFETY: it was made above, and is destroyed once, before its queue.
        unsafe { ibv_destroy_qp(qp) };
        found.map_or(Self::List, |_| Self::Extended { windows })
    }

    /// Returns the name of the functions it calls.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::List => "ibv_post_send",
            Self::Extended { .. } => "ibv_wr",
        }
    }
}

/// Makes a queue pair for the connection of `id`, whose device is known, and updates `attr` with the limits it got.
/// `None` if the library refuses.
pub(super) fn make(
    id: &CmId,
    domain: &Arc<Domain>,
    attr: &mut ibv_qp_init_attr,
    posting: Posting,
) -> Option<Way> {
    let Posting::Extended { windows } = posting else {
        // SAFETY: id, domain and the queues in `attr` are live and of one device, which the library
        // checks; `attr` is live for the call.
        let result = unsafe { rdma_create_qp(id.raw(), domain.raw(), attr) };
        return (result == 0).then_some(Way::List);
    };
    let mut wider = extended(attr, domain, windows);
    // SAFETY: as above.
    if unsafe { rdma_create_qp_ex(id.raw(), &raw mut wider) } != 0 {
        return None;
    }
    attr.cap = wider.cap;
    // SAFETY: the queue pair is live, and what is found is used by its owner only.
    let found = unsafe { Extended::of(id.get().qp, windows) };
    if found.is_none() {
        // SAFETY: it was made with this id above, and is destroyed once: the library forgets it.
        unsafe { rdma_destroy_qp(id.raw()) };
    }
    found.map(Way::Extended)
}

/// Returns the attributes of a reliable connection, without queues.
pub(super) fn blank() -> ibv_qp_init_attr {
    // SAFETY: it is integers and pointers that may be null.
    let mut attr: ibv_qp_init_attr = unsafe { MaybeUninit::zeroed().assume_init() };
    // [V2-4.2-1] reliable connections are the only kind used.
    attr.qp_type = ibv_qp_type::IBV_QPT_RC;
    attr
}

/// Returns the same attributes for a queue pair in `domain` with calls to post by.
fn extended(
    attr: &ibv_qp_init_attr,
    domain: &Arc<Domain>,
    windows: WindowUse,
) -> ibv_qp_init_attr_ex {
    // SAFETY: it is integers and pointers that may be null.
    let mut wider: ibv_qp_init_attr_ex = unsafe { MaybeUninit::zeroed().assume_init() };
    wider.send_cq = attr.send_cq;
    wider.recv_cq = attr.recv_cq;
    wider.srq = attr.srq;
    wider.cap = attr.cap;
    wider.qp_type = attr.qp_type;
    wider.sq_sig_all = attr.sq_sig_all;
    wider.pd = domain.raw();
    wider.send_ops_flags = Extended::operations(windows);
    let given = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD
        | ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    wider.comp_mask = given.0;
    wider
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_queue_pair_is_a_reliable_connection() {
        assert_eq!(blank().qp_type, ibv_qp_type::IBV_QPT_RC);
    }
}
