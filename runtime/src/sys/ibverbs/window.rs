//! Memory windows of type 2: part of a region, opened to the peer of one queue pair.
//!
//! # Normal operation
//!
//! A window has a key, whose low octet the program chooses anew for every use. A work request binds it to octets of a
//! region; from then on the peer may use the key. Another work request, or the peer's Send with Invalidate, ends that.

use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::Arc;

use haulage_mr_pool::{Sink, Source};
use haulage_proto::verbs::{Access, Exposure, Handle};
use rdma_sys::{ibv_access_flags, ibv_alloc_mw, ibv_dealloc_mw, ibv_mw, ibv_mw_type};

use super::{Domain, Refused};

/// A memory window, and the view of the memory it opens.
#[derive(Debug)]
pub(crate) struct Window {
    mw: NonNull<ibv_mw>,
    open: RefCell<Option<Exposure<Source, Sink>>>,
    _domain: Arc<Domain>,
}

impl Window {
    /// Makes a window that is bound to nothing.
    pub(crate) fn new(domain: &Arc<Domain>) -> Result<Self, Refused> {
        // SAFETY: the domain is live.
        let mw = unsafe { ibv_alloc_mw(domain.raw(), ibv_mw_type::IBV_MW_TYPE_2) };
        let mw = NonNull::new(mw).ok_or_else(|| Refused::last("making a memory window"))?;
        Ok(Self { mw, open: RefCell::new(None), _domain: Arc::clone(domain) })
    }

    /// Returns the key of its last use.
    pub(crate) fn key(&self) -> Handle {
        // SAFETY: the window is live; nothing changes its key while we read it.
        Handle(unsafe { self.mw.as_ref() }.rkey)
    }

    /// Returns whether a work request was posted that binds it, and it was not closed since.
    pub(crate) fn is_open(&self) -> bool {
        self.open.borrow().is_some()
    }

    /// Notes that the peer has lost access: the binding was invalidated. Drops the view.
    pub(crate) fn closed(&self) {
        self.open.replace(None);
    }

    /// Keeps the view of the memory that a work request binds it to.
    pub(super) fn opened(&self, memory: Exposure<Source, Sink>) {
        self.open.replace(Some(memory));
    }

    /// Sets the key that a posted work request binds it by, because neither library nor kernel does.
    pub(super) fn renamed(&self, key: u32) {
        // SAFETY: the window is live and used by this thread alone, and no reference to it is held.
        unsafe { (*self.mw.as_ptr()).rkey = key };
    }

    pub(super) const fn raw(&self) -> *mut ibv_mw {
        self.mw.as_ptr()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: it came from ibv_alloc_mw and is freed once. With it goes the peer's access, before
        // the view does.
        unsafe { ibv_dealloc_mw(self.mw.as_ptr()) };
    }
}

/// Returns the device's flags for an access. Offsets of a window start at zero, so that peers do not learn the address
/// of our memory.
pub(super) const fn flags(access: Access) -> u32 {
    let access = match access {
        Access::RemoteRead => ibv_access_flags::IBV_ACCESS_REMOTE_READ.0,
        Access::RemoteWrite => ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0,
    };
    access | ibv_access_flags::IBV_ACCESS_ZERO_BASED.0
}
