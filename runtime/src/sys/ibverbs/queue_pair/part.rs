//! Entries of a send queue, before either way of posting encodes them.

use haulage_proto::verbs::Handle;
use rdma_sys::{ibv_mw, ibv_mw_bind_info, ibv_send_flags, ibv_sge};

/// One entry of a send queue: a work request, or one of the parts it is split into.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) work: Work,
    /// The octets that it gathers or scatters, if any.
    pub(super) piece: Option<ibv_sge>,
    pub(super) flags: ibv_send_flags,
    /// The name that its completion carries.
    pub(super) name: u64,
}

/// The operation of an entry.
#[derive(Clone, Copy)]
pub(super) enum Work {
    Send,
    SendWithInv(Handle),
    Write(RemoteAddress),
    Read(RemoteAddress),
    /// Binds a window by a key.
    Bind(*mut ibv_mw, Handle, ibv_mw_bind_info),
    LocalInv(Handle),
}

/// The address of a peer's memory.
#[derive(Clone, Copy)]
pub(super) struct RemoteAddress {
    pub(super) handle: Handle,
    pub(super) offset: u64,
}

impl Part {
    /// Makes an entry that asks for no completion and has no name yet.
    pub(super) const fn new(work: Work, piece: Option<ibv_sge>) -> Self {
        Self { work, piece, flags: ibv_send_flags(0), name: 0 }
    }

    /// Returns whether its octets are sent from within the queue.
    pub(super) const fn is_copied(&self) -> bool {
        self.flags.0 & ibv_send_flags::IBV_SEND_INLINE.0 != 0
    }
}

impl Work {
    /// One that does nothing but complete, after all before it: a Write of nothing to nowhere.
    pub(super) const NOTHING: Self = Self::Write(RemoteAddress { handle: Handle(0), offset: 0 });
}

/// The operation that an error of posting names.
pub(super) const POSTING: &str = "posting to a send queue";
