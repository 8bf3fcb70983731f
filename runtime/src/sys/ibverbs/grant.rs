//! Memory registered by a call for one use: grants to peers where there are no windows, and the sinks of RDMA Reads on
//! iWARP, which the peer's responses name.

use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::Arc;

use haulage_mr_pool::{Local, Sink, Source};
use haulage_proto::verbs::{Access, Exposure, Handle};
use rdma_sys::{ibv_access_flags, ibv_dereg_mr, ibv_mr, ibv_reg_mr};

use super::{Domain, Refused};

/// A registration with remote access. The memory belongs to a view that outlives it: the one in `open`, or that of the
/// work request it is posted with. Or it belongs to a [`Bounce`](super::Bounce).
#[derive(Debug)]
pub(crate) struct AccessGrant {
    mr: NonNull<ibv_mr>,
    open: RefCell<Option<Exposure<Source, Sink>>>,
    _domain: Arc<Domain>,
}

impl AccessGrant {
    /// Grants every peer of the domain's queue pairs access to the memory of `lease`, which is about to be exposed. As
    /// no octets cannot be registered, an empty lease grants the octet at `scrap`, which is in a [`Region`].
    ///
    /// [`Region`]: super::Region
    pub(crate) fn new(
        domain: &Arc<Domain>,
        lease: &Local,
        access: Access,
        scrap: u64,
    ) -> Result<Self, Refused> {
        let octets = lease.bytes();
        match octets.len() {
            0 => Self::register(domain, scrap, 1, access),
            length => Self::register(domain, octets.as_ptr().addr() as u64, length, access),
        }
    }

    /// Grants the response of an RDMA Read access to its sink, which must not be empty and must outlive the grant.
    pub(super) fn sink(domain: &Arc<Domain>, sink: &Sink) -> Result<Self, Refused> {
        Self::register(domain, sink.address(), sink.len(), Access::RemoteWrite)
    }

    /// Grants every peer of the domain's queue pairs access to octets that stay mapped while the grant lives.
    pub(super) fn register(
        domain: &Arc<Domain>,
        address: u64,
        length: usize,
        access: Access,
    ) -> Result<Self, Refused> {
        let access = match access {
            Access::RemoteRead => ibv_access_flags::IBV_ACCESS_REMOTE_READ.0,
            Access::RemoteWrite => {
                ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0
                    | ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0
            }
        };
        let start = usize::try_from(address).unwrap_or_default();
        let start = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: the domain is live, and the octets are mapped: they are a lease's or a bounce's. The
        // device touches them for a peer only until it is deregistered, while a view keeps them from being
        // lent, or for good in a bounce, which never lends them.
        let mr = unsafe { ibv_reg_mr(domain.raw(), start, length, access.cast_signed()) };
        let mr = NonNull::new(mr).ok_or_else(|| Refused::last("registering memory for a peer"))?;
        Ok(Self { mr, open: RefCell::new(None), _domain: Arc::clone(domain) })
    }

    /// Returns the key by which a peer names it.
    pub(crate) fn key(&self) -> Handle {
        // SAFETY: the registration is live, and its keys never change.
        Handle(unsafe { self.mr.as_ref() }.rkey)
    }

    /// Returns whether it keeps the view of its memory.
    pub(crate) fn is_open(&self) -> bool {
        self.open.borrow().is_some()
    }

    /// Keeps the view of the memory until it is deregistered.
    pub(crate) fn opened(&self, memory: Exposure<Source, Sink>) {
        self.open.replace(Some(memory));
    }

    /// Gives back the view that it keeps.
    pub(super) fn closed(&self) -> Option<Exposure<Source, Sink>> {
        self.open.take()
    }

    pub(super) fn lkey(&self) -> u32 {
        // SAFETY: as in `key`.
        unsafe { self.mr.as_ref() }.lkey
    }
}

impl Drop for AccessGrant {
    fn drop(&mut self) {
        // SAFETY: it came from ibv_reg_mr and is freed once. With it goes the peer's access, before the
        // view does.
        unsafe { ibv_dereg_mr(self.mr.as_ptr()) };
    }
}
