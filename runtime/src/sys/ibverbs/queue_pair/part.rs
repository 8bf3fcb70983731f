//! What is handed to a device: entries of a send queue, before either way of posting has a form for them.

use haulage_proto::verbs::Handle;
use rdma_sys::{ibv_mw, ibv_mw_bind_info, ibv_send_flags, ibv_sge};

/// One entry of a send queue: a work request, or one of the parts it takes.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) work: Work,
    /// What it gathers or scatters, if anything.
    pub(super) piece: Option<ibv_sge>,
    pub(super) flags: ibv_send_flags,
    /// What its completion is named.
    pub(super) name: u64,
}

/// What an entry has the device do.
#[derive(Clone, Copy)]
pub(super) enum Work {
    Send,
    SendWithInv(Handle),
    Write(Place),
    Read(Place),
    /// Binds a window by a key.
    Bind(*mut ibv_mw, Handle, ibv_mw_bind_info),
    LocalInv(Handle),
}

/// Where a peer's memory begins.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) handle: Handle,
    pub(super) offset: u64,
}

impl Part {
    /// Makes one that neither asks for a completion nor has a name yet.
    pub(super) const fn new(work: Work, piece: Option<ibv_sge>) -> Self {
        Self { work, piece, flags: ibv_send_flags(0), name: 0 }
    }

    /// Tells whether its octets leave from within the queue.
    pub(super) const fn is_inline(&self) -> bool {
        self.flags.0 & ibv_send_flags::IBV_SEND_INLINE.0 != 0
    }
}

impl Work {
    /// One that does nothing but complete, after all before it: a Write of nothing to nowhere.
    pub(super) const NOTHING: Self = Self::Write(Place { handle: Handle(0), offset: 0 });
}

/// What handing entries to a device is called where one is refused.
pub(super) const POSTING: &str = "posting to a send queue";
