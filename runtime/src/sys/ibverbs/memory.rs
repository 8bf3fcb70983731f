//! Protection domains, and regions registered for the device's own use.

use std::ops::Range;
use std::ptr::NonNull;
use std::rc::Rc;

use haulage_mr_pool::{Pool, PostedSink, Sink};
use rdma_sys::{
    ibv_access_flags, ibv_alloc_pd, ibv_dealloc_pd, ibv_dereg_mr, ibv_mr, ibv_pd, ibv_reg_mr,
};

use super::{Device, Refused};

/// A protection domain: what is made in one works with nothing made in another.
#[derive(Debug)]
pub(crate) struct Domain {
    pd: NonNull<ibv_pd>,
    _device: Device,
}

impl Domain {
    /// Makes one on `device`.
    pub(crate) fn new(device: &Device) -> Result<Rc<Self>, Refused> {
        // SAFETY: the context is live.
        let pd = unsafe { ibv_alloc_pd(device.raw()) };
        let pd = NonNull::new(pd).ok_or_else(|| Refused::last("making a protection domain"))?;
        Ok(Rc::new(Self { pd, _device: device.clone() }))
    }

    pub(super) const fn raw(&self) -> *mut ibv_pd {
        self.pd.as_ptr()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: it came from ibv_alloc_pd and is freed once. What was made in it holds a count of us,
        // so it is gone.
        unsafe { ibv_dealloc_pd(self.pd.as_ptr()) };
    }
}

/// The memory of a pool, registered for work requests of ours and for windows.
///
/// No peer can name it: it is registered without remote access.
#[derive(Debug)]
pub(crate) struct Region {
    mr: NonNull<ibv_mr>,
    octets: Range<u64>,
    _domain: Rc<Domain>,
    scrap: Rc<Scrap>,
}

/// Octets nobody wants: what windows are bound to that are for no octets, which devices do not bind.
/// While they are lent the pool's memory stays where it is, too: the next who gets these addresses must
/// not be taken for it.
#[derive(Debug)]
struct Scrap {
    sink: Sink,
    _lent: PostedSink,
}

impl Region {
    /// Registers all memory of `pool`, which has room for one lease more.
    pub(crate) fn new(domain: &Rc<Domain>, pool: &Pool, windows: bool) -> Result<Self, Refused> {
        let full = || Refused { what: REGISTERING, error: std::io::ErrorKind::OutOfMemory.into() };
        let mut scrap = pool.lease(SCRAP).ok_or_else(full)?;
        scrap.bytes_mut().fill(0);
        let mut lent = scrap.into_sink();
        let sink = lent.sink(0..SCRAP).ok_or_else(full)?;
        let scrap = Rc::new(Scrap { sink, _lent: lent });
        let region = pool.region();
        let start = region.cast::<u8>().as_ptr().expose_provenance() as u64;
        let octets = start..start.saturating_add(region.len() as u64);
        Self::register(domain, octets, scrap, windows)
    }

    /// Registers the same memory in another domain of the device, without windows.
    pub(crate) fn again(&self, domain: &Rc<Domain>) -> Result<Self, Refused> {
        Self::register(domain, self.octets.clone(), Rc::clone(&self.scrap), false)
    }

    /// Registers `octets`, which stay mapped while `scrap` is lent.
    fn register(
        domain: &Rc<Domain>,
        octets: Range<u64>,
        scrap: Rc<Scrap>,
        windows: bool,
    ) -> Result<Self, Refused> {
        let bind = if windows { ibv_access_flags::IBV_ACCESS_MW_BIND.0 } else { 0 };
        let access = (ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 | bind).cast_signed();
        let start = usize::try_from(octets.start).unwrap_or_default();
        let length = usize::try_from(octets.end - octets.start).unwrap_or_default();
        let start = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: the domain is live, and the pool's memory is mapped, here and until `scrap` is not lent
        // any more, which is after the region was deregistered. Registering lets the device touch what
        // work requests name, each of which holds a view of that.
        let mr = unsafe { ibv_reg_mr(domain.raw(), start, length, access) };
        let mr = NonNull::new(mr).ok_or_else(|| Refused::last(REGISTERING))?;
        Ok(Self { mr, octets, _domain: Rc::clone(domain), scrap })
    }

    /// Tells whether all `length` octets at `address` are in it.
    pub(crate) fn holds(&self, address: u64, length: usize) -> bool {
        let end = address.checked_add(length as u64);
        address >= self.octets.start && end.is_some_and(|end| end <= self.octets.end)
    }

    /// Returns the address of an octet whose content is nobody's.
    pub(crate) fn scrap(&self) -> u64 {
        self.scrap.sink.address()
    }

    pub(super) fn lkey(&self) -> u32 {
        // SAFETY: the registration is live, and its key never changes.
        unsafe { self.mr.as_ref() }.lkey
    }

    pub(super) const fn raw(&self) -> *mut ibv_mr {
        self.mr.as_ptr()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: it came from ibv_reg_mr and is freed once; the fields are dropped after this. A device
        // that is still at work on it keeps the pages, or refuses, and then the work fails.
        unsafe { ibv_dereg_mr(self.mr.as_ptr()) };
    }
}

const SCRAP: usize = 64;
const REGISTERING: &str = "registering memory";
