//! Protection domains, and regions registered for the device's own use.

use std::ops::Range;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use haulage_mr_pool::{Pool, PostedSink, Sink};
use rdma_sys::{
    ibv_access_flags, ibv_alloc_pd, ibv_context, ibv_dealloc_pd, ibv_dereg_mr, ibv_mr, ibv_pd,
    ibv_reg_mr,
};

use super::device::OpenDevice;
use super::{Device, Refused};

/// A protection domain: objects of one domain do not work with objects of another.
#[derive(Debug)]
pub(crate) struct Domain {
    pd: NonNull<ibv_pd>,
    context: *const ibv_context,
    _opened: Arc<OpenDevice>,
}

// SAFETY: the libraries may be called by any thread; the pointers are only ever handed to them, or compared.
unsafe impl Send for Domain {}
// SAFETY: several threads may call the libraries at the same time; the pointers are only ever handed to them, or
// compared.
unsafe impl Sync for Domain {}

impl Domain {
    /// Makes a domain on `device`.
    pub(crate) fn new(device: &Device) -> Result<Arc<Self>, Refused> {
        // SAFETY: the context is live.
        let pd = unsafe { ibv_alloc_pd(device.raw()) };
        let pd = NonNull::new(pd).ok_or_else(|| Refused::last("making a protection domain"))?;
        Ok(Arc::new(Self { pd, context: device.raw(), _opened: device.opened() }))
    }

    /// Returns whether it is on `device`. librdmacm has one context for a device in a process, whose objects work with the
    /// ids of all threads.
    pub(crate) fn is_on(&self, device: &Device) -> bool {
        device.is(self.context)
    }

    pub(super) const fn raw(&self) -> *mut ibv_pd {
        self.pd.as_ptr()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: it came from ibv_alloc_pd and is freed once. Objects made in it hold a count of us, so they are gone.
        unsafe { ibv_dealloc_pd(self.pd.as_ptr()) };
    }
}

/// Whether the memory of a domain is opened by memory windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowUse {
    /// Windows are bound to it and invalidated.
    Bound,
    /// There are no windows.
    Never,
}

/// The memory of a pool, registered for our work requests and for windows.
///
/// No peer can name it: it is registered without remote access.
#[derive(Debug)]
pub(crate) struct Region {
    /// The first field, so that it is dropped before its memory.
    registered: Registered,
    scrap: Rc<Scrap>,
}

/// Octets registered in a protection domain. Registering takes longer than a turn may wait, as every page is looked up
/// and locked, and so does deregistering. So any thread may do either.
#[derive(Debug)]
pub(crate) struct Registered {
    mr: NonNull<ibv_mr>,
    octets: Range<u64>,
    _domain: Arc<Domain>,
}

// SAFETY: the libraries may be called by any thread, and the structure behind the pointer never changes.
unsafe impl Send for Registered {}

/// Octets to be registered in another domain of their device, without windows.
#[derive(Debug)]
pub(crate) struct Again {
    domain: Arc<Domain>,
    octets: Vec<Range<u64>>,
}

/// Octets that hold nothing. Windows for no octets, which devices do not bind, are bound to them. While they are lent,
/// the pool's memory stays mapped, too: a later mapping at these addresses must not be taken for it.
#[derive(Debug)]
struct Scrap {
    sink: Sink,
    _lent: PostedSink,
}

impl Region {
    /// Registers all memory of `pool`, which must have room for one more lease.
    pub(crate) fn new(
        domain: &Arc<Domain>,
        pool: &Pool,
        windows: WindowUse,
    ) -> Result<Self, Refused> {
        let full = || Refused { what: REGISTERING, error: std::io::ErrorKind::OutOfMemory.into() };
        let mut scrap = pool.lease(SCRAP).ok_or_else(full)?;
        scrap.bytes_mut().fill(0);
        let mut lent = scrap.into_sink();
        let sink = lent.sink(0..SCRAP).ok_or_else(full)?;
        let scrap = Rc::new(Scrap { sink, _lent: lent });
        let region = pool.region();
        let start = region.cast::<u8>().as_ptr().expose_provenance() as u64;
        let octets = start..start.saturating_add(region.len() as u64);
        Ok(Self { registered: Registered::new(domain, octets, windows)?, scrap })
    }

    /// Returns a region of the same memory, registered again in another domain.
    pub(crate) fn again(&self, registered: Registered) -> Self {
        Self { registered, scrap: Rc::clone(&self.scrap) }
    }

    /// Returns the registration alone, through which nothing can be posted.
    pub(crate) fn into_registered(self) -> Registered {
        self.registered
    }

    /// Returns whether all `length` octets at `address` are registered here.
    pub(crate) fn holds(&self, address: u64, length: usize) -> bool {
        let (end, octets) = (address.checked_add(length as u64), &self.registered.octets);
        address >= octets.start && end.is_some_and(|end| end <= octets.end)
    }

    /// Returns the address of an octet that holds nothing.
    pub(crate) fn scrap(&self) -> u64 {
        self.scrap.sink.address()
    }

    pub(super) fn lkey(&self) -> u32 {
        // SAFETY: the registration is live, and its key never changes.
        unsafe { self.registered.mr.as_ref() }.lkey
    }

    pub(super) const fn raw(&self) -> *mut ibv_mr {
        self.registered.mr.as_ptr()
    }
}

impl Again {
    /// Plans to register the memory of `regions` in `domain`.
    pub(crate) fn of(regions: &[Region], domain: Arc<Domain>) -> Self {
        let octets = regions.iter().map(|region| region.registered.octets.clone()).collect();
        Self { domain, octets }
    }

    /// Returns how many octets will be registered.
    pub(crate) fn octets(&self) -> u64 {
        self.octets.iter().map(|octets| octets.end - octets.start).sum()
    }

    /// Registers all, in the order of the regions, or nothing.
    pub(crate) fn carry_out(self) -> Result<(Arc<Domain>, Vec<Registered>), Refused> {
        let Self { domain, octets } = self;
        let all =
            octets.into_iter().map(|octets| Registered::new(&domain, octets, WindowUse::Never));
        let all = all.collect::<Result<_, _>>()?;
        Ok((domain, all))
    }
}

impl Registered {
    fn new(domain: &Arc<Domain>, octets: Range<u64>, windows: WindowUse) -> Result<Self, Refused> {
        let bind = match windows {
            WindowUse::Bound => ibv_access_flags::IBV_ACCESS_MW_BIND.0,
            WindowUse::Never => 0,
        };
        let access = (ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 | bind).cast_signed();
        let start = usize::try_from(octets.start).unwrap_or_default();
        let length = usize::try_from(octets.end - octets.start).unwrap_or_default();
        let start = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: the domain is live. Registering lets the device touch what work requests name, each of
        // which holds a view of that; a peer can name nothing. Were the octets not mapped any more it would
        // fail, or lock memory in which no view ever lies.
        let mr = unsafe { ibv_reg_mr(domain.raw(), start, length, access) };
        let mr = NonNull::new(mr).ok_or_else(|| Refused::last(REGISTERING))?;
        Ok(Self { mr, octets, _domain: Arc::clone(domain) })
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: it came from ibv_reg_mr and is freed once; the fields are dropped after this. A device
        // that is still at work on it keeps the pages, or refuses, and then the work fails.
        unsafe { ibv_dereg_mr(self.mr.as_ptr()) };
    }
}

const SCRAP: usize = 64;
const REGISTERING: &str = "registering memory";
