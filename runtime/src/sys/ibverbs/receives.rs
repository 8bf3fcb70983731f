//! Receive queues, and the Receives in them: one queue for all queue pairs, or one for each.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use haulage_mr_pool::Sink;
use haulage_proto::verbs::{QpNum, SCATTER_MAX, WrId};
use rdma_sys::{
    ibv_create_srq, ibv_destroy_srq, ibv_post_recv, ibv_post_srq_recv, ibv_qp, ibv_recv_wr,
    ibv_sge, ibv_srq, ibv_srq_attr, ibv_srq_init_attr,
};

use super::names::{SEQUENCE_MASK, name_of, sequence_of};
use super::{Domain, Refused, Region};
use crate::work::Receive;

/// Receives for every queue pair that was made with it.
///
/// # Memory ownership
///
/// The views of a Receive lie in its place here until [`taken`](Self::taken), which must be called only once its
/// completion was polled, or until the queue is destroyed.
#[derive(Debug)]
pub(crate) struct SharedReceives {
    srq: NonNull<ibv_srq>,
    places: Box<[Option<Receive>]>,
    free: VecDeque<u32>,
    _domain: Arc<Domain>,
}

impl SharedReceives {
    /// Makes a queue for `count` Receives.
    pub(crate) fn new(domain: &Arc<Domain>, count: u32) -> Result<Self, Refused> {
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
        Ok(Self { srq, places, free: (0..count).collect(), _domain: Arc::clone(domain) })
    }

    /// Returns how many more Receives fit.
    pub(crate) fn room(&self) -> usize {
        self.free.len()
    }

    /// Posts a Receive, for which there is room.
    ///
    /// # Errors
    ///
    /// Some of its octets are in no region, or the device refused. The views are then dropped.
    pub(crate) fn post(&mut self, receive: Receive, regions: &[Region]) -> Result<(), Refused> {
        let Some(place) = self.free.pop_front() else {
            return Err(Refused { what: POSTING, error: std::io::ErrorKind::OutOfMemory.into() });
        };
        self.places[place as usize] = Some(receive);
        self.hand_over(place, regions)
    }

    /// Posts a Receive again that a queue pair gave back unused.
    pub(crate) fn again(&mut self, place: u32, regions: &[Region]) -> Result<(), Refused> {
        self.hand_over(place, regions)
    }

    /// Notes that a completion of the Receive at `place` was polled. Drops its views.
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
        let srq = self.srq.as_ptr();
        let result = with_request(receive, SHARED | u64::from(place), regions, |request| {
            let mut refused = ptr::null_mut();
            // SAFETY: the queue is live and used by this thread alone. The request and its list are live
            // for the call, which copies them. The octets they name are the views', which stay at `place`
            // until the device is done with them.
            unsafe { ibv_post_srq_recv(srq, request, &raw mut refused) }
        });
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
            // The device may still fill them.
            for receive in self.places.iter_mut().filter_map(Option::take) {
                std::mem::forget(receive);
            }
        }
    }
}

/// The Receives in the receive queue of one queue pair.
///
/// # Memory ownership
///
/// The views of a Receive lie here until [`taken`](Self::taken), which must be called only once its completion was
/// polled, or until the queue pair is destroyed.
#[derive(Debug, Default)]
pub(super) struct OwnReceives {
    /// The Receives in the order they were posted; `None` if taken.
    posted: VecDeque<Option<Receive>>,
    /// The number of the first of them.
    first: u32,
}

impl OwnReceives {
    /// Returns how many are posted, including those taken before an earlier one.
    pub(super) fn len(&self) -> usize {
        self.posted.len()
    }

    /// Posts a Receive to the queue of `qp`, whose number is `name`. Gives it back if the device refuses it, or some of
    /// its octets are in no region.
    ///
    /// # Safety
    ///
    /// `qp` is live, used by this thread alone, and has a receive queue of its own. Nothing here is
    /// dropped or taken before its completion was polled or `qp` was destroyed, and all Receives of `qp`
    /// are posted here.
    pub(super) unsafe fn post(
        &mut self,
        qp: *mut ibv_qp,
        name: QpNum,
        receive: Receive,
        regions: &[Region],
    ) -> Result<(), (Receive, Refused)> {
        let count = u32::try_from(self.posted.len()).unwrap_or_default();
        let number = self.first.wrapping_add(count) & SEQUENCE_MASK;
        let name = OWN | name_of(name) | u64::from(number);
        let result = with_request(&receive, name, regions, |request| {
            let mut refused = ptr::null_mut();
            // SAFETY: the queue pair is live and this thread's, as the caller promises. The request and
            // its list are live for the call, which copies them. The octets they name are the views',
            // which are put into `posted` below and stay until the device is done with them.
            unsafe { ibv_post_recv(qp, request, &raw mut refused) }
        });
        match result {
            Ok(()) => {
                self.posted.push_back(Some(receive));
                Ok(())
            }
            Err(refused) => Err((receive, refused)),
        }
    }

    /// Notes that a completion of the Receive `number` was polled, and returns that Receive.
    pub(super) fn taken(&mut self, number: u32) -> Option<Receive> {
        // Modulo 2^24: fewer are posted.
        let at = number.wrapping_sub(self.first) & SEQUENCE_MASK;
        let receive = self.posted.get_mut(at as usize)?.take()?;
        while let Some(None) = self.posted.front() {
            self.posted.pop_front();
            self.first = self.first.wrapping_add(1) & SEQUENCE_MASK;
        }
        Some(receive)
    }

    /// Returns the Receives that are left once the queue pair was destroyed, oldest first.
    pub(super) fn left(&mut self) -> impl Iterator<Item = Receive> + use<> {
        std::mem::take(&mut self.posted).into_iter().flatten()
    }
}

/// Builds the request of a Receive and has `post` post it.
fn with_request(
    receive: &Receive,
    name: u64,
    regions: &[Region],
    post: impl FnOnce(*mut ibv_recv_wr) -> c_int,
) -> Result<(), Refused> {
    let mut list = [ibv_sge { addr: 0, length: 0, lkey: 0 }; SCATTER_MAX];
    let mut count = 0;
    let found = list.iter_mut().zip(receive.sinks()).try_for_each(|(entry, sink)| {
        *entry = scatter(sink, regions)?;
        count += 1;
        Some(())
    });
    if found.is_none() {
        return Err(Refused { what: POSTING, error: std::io::ErrorKind::InvalidInput.into() });
    }
    let mut request = ibv_recv_wr {
        wr_id: name,
        next: ptr::null_mut(),
        sg_list: list.as_mut_ptr(),
        num_sge: count,
    };
    Refused::check(POSTING, post(&raw mut request))
}

fn scatter(sink: &Sink, regions: &[Region]) -> Option<ibv_sge> {
    let (addr, length) = (sink.address(), sink.len());
    let region = regions.iter().find(|region| region.holds(addr, length))?;
    Some(ibv_sge { addr, length: u32::try_from(length).ok()?, lkey: region.lkey() })
}

/// The Receive that a completion names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The Receive at a place of the shared queue.
    Shared(u32),
    /// The Receive with a number in a queue pair's own queue.
    Own(QpNum, u32),
}

impl Arrival {
    /// Decodes the name in a completion; `None` if it does not name a Receive.
    pub(crate) fn of(name: u64) -> Option<Self> {
        if name & SHARED != 0 {
            u32::try_from(name & !SHARED).ok().map(Self::Shared)
        } else if name & OWN != 0 {
            let (qp, number) = sequence_of(name & !OWN);
            Some(Self::Own(qp, number))
        } else {
            None
        }
    }
}

/// These bits distinguish the names of Receives from those of send queue entries, which take 56 bits.
const SHARED: u64 = 1 << 63;
const OWN: u64 = 1 << 62;
const POSTING: &str = "posting a Receive";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_receives_are_told_apart() {
        let qp = QpNum::new(u16::MAX, u16::MAX);
        assert_eq!(Arrival::of(SHARED | 70_000), Some(Arrival::Shared(70_000)));
        let own = OWN | name_of(qp) | u64::from(SEQUENCE_MASK);
        assert_eq!(Arrival::of(own), Some(Arrival::Own(qp, SEQUENCE_MASK)));
        assert_eq!(Arrival::of(name_of(qp) | 5), None, "it is of the send queue");
    }

    #[test]
    fn a_receive_is_taken_once_and_by_its_own_number() {
        let config = haulage_mr_pool::PoolConfig {
            bytes: 1 << 20,
            pages: haulage_mr_pool::PagePreference::Heap,
            node: None,
        };
        let pool = haulage_mr_pool::Pool::new(&config).unwrap();
        let mut lease = pool.lease(8).unwrap().into_sink();
        let mut receive = |id| Receive::single(WrId(id), lease.sink(0..1).unwrap());
        // The numbers wrap around.
        let mut own = OwnReceives { posted: VecDeque::new(), first: SEQUENCE_MASK - 1 };
        own.posted.extend((0..4).map(|id| Some(receive(id))));
        let mut taken = |number| own.taken(number).map(|receive| receive.id.0);
        assert_eq!(taken(SEQUENCE_MASK - 2), None, "it was before these");
        assert_eq!(taken(2), None, "none has that number yet");
        assert_eq!(taken(0), Some(2), "before those that were posted earlier");
        assert_eq!(taken(0), None);
        assert_eq!(taken(SEQUENCE_MASK - 1), Some(0));
        assert_eq!(own.len(), 3);
        assert_eq!(own.taken(SEQUENCE_MASK).map(|receive| receive.id.0), Some(1));
        assert_eq!((own.len(), own.first), (1, 1));
        assert_eq!(own.left().map(|receive| receive.id.0).collect::<Vec<_>>(), [3]);
    }
}
