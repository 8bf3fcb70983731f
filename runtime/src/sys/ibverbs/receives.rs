//! A shared receive queue, and what lies in it.

use std::collections::VecDeque;
use std::ptr::{self, NonNull};
use std::rc::Rc;

use haulage_mr_pool::Sink;
use haulage_proto::verbs::{SCATTER_MAX, WrId};
use rdma_sys::{
    ibv_create_srq, ibv_destroy_srq, ibv_post_srq_recv, ibv_recv_wr, ibv_sge, ibv_srq,
    ibv_srq_attr, ibv_srq_init_attr,
};

use super::{Domain, Refused, Region};
use crate::provider::Receive;

/// Receives for every queue pair that was made with it.
///
/// # Memory ownership
///
/// The views of a Receive lie in its place here until [`taken`](Self::taken), which is to be called
/// once its completion was polled, or until the queue is destroyed.
#[derive(Debug)]
pub(crate) struct SharedReceives {
    srq: NonNull<ibv_srq>,
    places: Box<[Option<Receive>]>,
    free: VecDeque<u32>,
    _domain: Rc<Domain>,
}

impl SharedReceives {
    /// Makes a queue for `count` Receives.
    pub(crate) fn new(domain: &Rc<Domain>, count: u32) -> Result<Self, Refused> {
        let attr = ibv_srq_attr {
            max_wr: count,
            max_sge: u32::try_from(SCATTER_MAX).unwrap_or(1),
            srq_limit: 0,
        };
        let mut attr = ibv_srq_init_attr { srq_context: ptr::null_mut(), attr };
        // SAFETY: the domain is live, and `attr` for the call.
        let srq = unsafe { ibv_create_srq(domain.raw(), &raw mut attr) };
        let what = "making a shared receive queue";
        let srq = NonNull::new(srq).ok_or_else(|| Refused::last(what))?;
        let places = std::iter::repeat_with(|| None).take(count as usize).collect();
        Ok(Self { srq, places, free: (0..count).collect(), _domain: Rc::clone(domain) })
    }

    /// Returns how many Receives there is room for.
    pub(crate) fn room(&self) -> usize {
        self.free.len()
    }

    /// Posts a Receive, for which there is room.
    ///
    /// # Errors
    ///
    /// Some of its octets are in no region, or the device refused. The views are dropped then.
    pub(crate) fn post(&mut self, receive: Receive, regions: &[Region]) -> Result<(), Refused> {
        let Some(place) = self.free.pop_front() else {
            return Err(Refused { what: POSTING, error: std::io::ErrorKind::OutOfMemory.into() });
        };
        self.places[place as usize] = Some(receive);
        self.hand_over(place, regions)
    }

    /// Posts a Receive again that its queue pair gave back unused.
    pub(crate) fn again(&mut self, place: u32, regions: &[Region]) -> Result<(), Refused> {
        self.hand_over(place, regions)
    }

    /// Takes note that a completion of the Receive at `place` was polled. Drops its views.
    pub(crate) fn taken(&mut self, place: u32) -> Option<WrId> {
        let receive = self.places.get_mut(place as usize)?.take()?;
        self.free.push_back(place);
        Some(receive.id)
    }

    pub(super) const fn raw(&self) -> *mut ibv_srq {
        self.srq.as_ptr()
    }

    fn hand_over(&mut self, place: u32, regions: &[Region]) -> Result<(), Refused> {
        let Some(Some(receive)) = self.places.get(place as usize) else { return Ok(()) };
        let mut list = [ibv_sge { addr: 0, length: 0, lkey: 0 }; SCATTER_MAX];
        let mut count = 0;
        let found = list.iter_mut().zip(receive.sinks()).try_for_each(|(entry, sink)| {
            *entry = scatter(sink, regions)?;
            count += 1;
            Some(())
        });
        if found.is_none() {
            self.taken(place);
            return Err(Refused { what: POSTING, error: std::io::ErrorKind::InvalidInput.into() });
        }
        let mut request = ibv_recv_wr {
            wr_id: KIND | u64::from(place),
            next: ptr::null_mut(),
            sg_list: list.as_mut_ptr(),
            num_sge: count,
        };
        let mut refused = ptr::null_mut();
        // SAFETY: the queue is live and used by this thread alone. `request` and its list are live for
        // the call, which copies them. The octets they name are the views', which stay at `place` until
        // the device is done with them.
        let result =
            unsafe { ibv_post_srq_recv(self.srq.as_ptr(), &raw mut request, &raw mut refused) };
        let result = Refused::check(POSTING, result);
        if result.is_err() {
            self.taken(place);
        }
        result
    }
}

impl Drop for SharedReceives {
    fn drop(&mut self) {
        // SAFETY: it came from ibv_create_srq and is freed once, before the views. The queue pairs made
        // with it are gone: their owner drops them first, and the call fails otherwise.
        if unsafe { ibv_destroy_srq(self.srq.as_ptr()) } != 0 {
            // Then the device may still fill them.
            for receive in self.places.iter_mut().filter_map(Option::take) {
                std::mem::forget(receive);
            }
        }
    }
}

fn scatter(sink: &Sink, regions: &[Region]) -> Option<ibv_sge> {
    let (addr, length) = (sink.address(), sink.len());
    let region = regions.iter().find(|region| region.holds(addr, length))?;
    Some(ibv_sge { addr, length: u32::try_from(length).ok()?, lkey: region.lkey() })
}

/// Returns the place of the Receive that a completion names, if it is of a Receive.
pub(crate) fn place_of(name: u64) -> Option<u32> {
    if name & KIND == 0 { None } else { u32::try_from(name & !KIND).ok() }
}

/// Distinguishes the names of Receives from those of send queue entries.
const KIND: u64 = 1 << 63;
const POSTING: &str = "posting a Receive";
