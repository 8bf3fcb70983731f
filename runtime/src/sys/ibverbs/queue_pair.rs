//! Queue pairs, and the requests in their send queues.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use haulage_mr_pool::{Sink, Source};
use haulage_proto::verbs::{Handle, Opcode, QpNum, SCATTER_MAX, WrId};
use rdma_sys::{
    ibv_modify_qp, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_init_attr, ibv_qp_state,
    ibv_query_qp, rdma_destroy_qp,
};

use super::names::SEQUENCE_MASK;
use super::news::NEWS;
use super::receives::OwnReceives;
use super::{
    AccessGrant, CmId, CompletionQueue, Domain, Fault, Refused, Region, SharedReceives, WorkStatus,
};
use crate::work::Receive;

mod create;
mod extended;
mod list;
mod part;
mod posting;

pub(crate) use create::Posting;
use create::Way;
pub(crate) use posting::{Binding, CarriedOut, Chain, Doorbell};

/// One end of a connection that has queues.
///
/// # Memory ownership
///
/// The views of a request lie in `posted` until a completion of it or of a later one was polled
/// ([`completed`](Self::completed)), or until the queue pair is destroyed. The views of a Receive lie in `receives`
/// until its completion was polled ([`received`](Self::received)), or until the queue pair is destroyed, unless
/// receives are shared.
#[derive(Debug)]
pub(crate) struct QueuePair {
    id: CmId,
    posted: VecDeque<Posted>,
    /// The number that the next entry of the device's queue gets.
    next: u32,
    /// Entries of the device's queue not known to be free.
    occupied: u32,
    /// The last entry of the device's queue whose completion was polled.
    reached: Option<u32>,
    /// The Receives in its own queue, if it has one.
    receives: OwnReceives,
    limits: QueuePairLimits,
    way: Way,
    /// When it was made: reports of before are of others.
    made: u64,
    domain: Arc<Domain>,
    _queue: Rc<CompletionQueue>,
}

/// The limits of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuePairLimits {
    /// Entries of the send queue.
    pub(crate) send_queue: u32,
    /// Entries of its own receive queue; zero if it shares one.
    pub(crate) receive_queue: u32,
    /// Octets that may be sent from within the queue.
    pub(crate) copied_max: u32,
    /// Octets of the longest message.
    pub(crate) message_max: u32,
    /// The device is one for iWARP: peers name the sinks of our Reads, each of which is registered for
    /// that, and a Send that invalidates is not sent from within the queue.
    pub(crate) is_iwarp: bool,
    /// The way it is posted to.
    pub(crate) posting: Posting,
}

/// A work request whose end the device has not reported.
#[derive(Debug)]
struct Posted {
    /// The consumer's id and the kind of request; `None` for the provider's own, which no completion reports.
    named: Option<(WrId, Opcode)>,
    /// To be reported even if it succeeded.
    is_signaled: bool,
    /// The handle that a LocalInv retires.
    handle: Option<Handle>,
    /// Octets of a Read or a Write.
    octets: u64,
    /// Entries of the device's queue that it took, and the number of the last of them.
    entries: u32,
    last: u32,
    /// Only its own completion reports its end: that of a Read on iWARP, where later requests may complete before it,
    /// or that of a request that the device never got.
    is_told: bool,
    status: Option<WorkStatus>,
    /// The registration of a Read's sink: dropped before its view is.
    _grant: Option<AccessGrant>,
    _held: Held,
}

/// The views of a work request. The view of a binding is in its window.
#[derive(Debug)]
#[expect(dead_code, reason = "views are held, not read")]
enum Held {
    Nothing,
    Source(Source),
    Sink(Sink),
}

/// A work request that the device is done with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// The consumer's id and the kind of request; `None` for the provider's own, which no completion reports.
    pub(crate) named: Option<(WrId, Opcode)>,
    pub(crate) is_signaled: bool,
    pub(crate) handle: Option<Handle>,
    pub(crate) octets: u64,
    pub(crate) status: WorkStatus,
}

impl QueuePair {
    /// Makes a queue pair for the connection of `id`, whose device is known. Without a `shared` receive queue it has
    /// one of its own.
    pub(crate) fn new(
        id: CmId,
        domain: &Arc<Domain>,
        queue: &Rc<CompletionQueue>,
        shared: Option<&SharedReceives>,
        mut limits: QueuePairLimits,
    ) -> Result<Self, (CmId, Refused)> {
        let moment = NEWS.moment();
        // Some devices refuse more octets than they can send from within the queue.
        let sizes = [u32::MAX, 128, 64, 0].map(|most| limits.copied_max.min(most));
        let made = sizes.iter().find_map(|copied_max| {
            let mut attr = create::blank();
            attr.send_cq = queue.raw();
            attr.recv_cq = queue.raw();
            attr.srq = shared.map_or(ptr::null_mut(), SharedReceives::raw);
            attr.cap.max_recv_wr = limits.receive_queue;
            attr.cap.max_recv_sge = limits.receive_queue.min(SCATTER);
            attr.cap.max_send_wr = limits.send_queue;
            attr.cap.max_send_sge = 1;
            attr.cap.max_inline_data = *copied_max;
            let way = create::make(&id, domain, &mut attr, limits.posting)?;
            Some((way, attr.cap.max_inline_data.min(*copied_max)))
        });
        let Some((way, copied_max)) = made else {
            return Err((id, Refused::last("making a queue pair")));
        };
        limits.copied_max = copied_max;
        Ok(Self {
            id,
            posted: VecDeque::with_capacity(limits.send_queue as usize),
            next: 0,
            reached: None,
            occupied: 0,
            receives: OwnReceives::default(),
            limits,
            way,
            made: moment,
            domain: Arc::clone(domain),
            _queue: Rc::clone(queue),
        })
    }

    /// Returns the id of the connection.
    pub(crate) const fn id(&mut self) -> &mut CmId {
        &mut self.id
    }

    /// Returns the protection domain it is in.
    pub(crate) const fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Returns the device's number of it.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the queue pair is live, and its number never changes.
        unsafe { self.raw().as_ref() }.map_or(0, |qp| qp.qp_num)
    }

    /// Sets how long the peer waits before it sends again a message that met no Receive, in the encoding of verbs.
    pub(crate) fn set_no_receive_timer(&mut self, timer: u8) {
        // SAFETY: it is integers.
        let mut attr: ibv_qp_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        attr.min_rnr_timer = timer;
        let mask = ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER.0.cast_signed();
        // A device that cannot set it keeps the longest time.
        // SAFETY: the queue pair is live, and `attr` for the call.
        unsafe { ibv_modify_qp(self.raw(), &raw mut attr, mask) };
    }

    /// Returns whether the device has put it into the error state.
    pub(crate) fn has_failed(&self) -> bool {
        // SAFETY: it is integers.
        let mut attr: ibv_qp_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: it is integers and pointers that may be null.
        let mut init: ibv_qp_init_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        let mask = ibv_qp_attr_mask::IBV_QP_STATE.0.cast_signed();
        // SAFETY: the queue pair is live, and both places for the call.
        let result = unsafe { ibv_query_qp(self.raw(), &raw mut attr, mask, &raw mut init) };
        result == 0 && attr.qp_state == ibv_qp_state::IBV_QPS_ERR
    }

    /// Returns whether `entries` more fit into the send queue, beside the one kept for the mark.
    const fn fits(&self, entries: u32) -> bool {
        entries <= self.free()
    }

    /// Returns how many entries of the send queue are free, beside the one kept for the mark.
    pub(crate) const fn free(&self) -> u32 {
        self.limits.send_queue.saturating_sub(1).saturating_sub(self.occupied)
    }

    /// Returns whether a fault concerns this queue pair by itself.
    pub(crate) fn is(&self, fault: &Fault) -> bool {
        match fault {
            // An older report is of one whose memory this one has now.
            Fault::QueuePair { at, moment } => *at == self.raw().addr() && *moment >= self.made,
            Fault::Missed => self.has_failed(),
            Fault::Device | Fault::Port => false,
        }
    }

    /// Returns whether everything posted is known to have ended.
    pub(crate) fn is_idle(&self) -> bool {
        self.posted.is_empty()
    }

    /// Returns whether a request is posted whose end will be reported.
    pub(crate) fn owes_report(&self) -> bool {
        self.posted.iter().any(|posted| posted.is_signaled && posted.named.is_some())
    }

    /// Returns the entries of the device's queue not known to be free.
    pub(crate) const fn occupied(&self) -> u32 {
        self.occupied
    }

    /// Notes that the completion of entry `last` was polled, and hands each request that has thereby ended to `each`,
    /// oldest first.
    ///
    /// A completion implies the success of every earlier request, except those that only their own completion reports.
    pub(crate) fn completed(&mut self, last: u32, status: WorkStatus, mut each: impl FnMut(Ended)) {
        let own = |posted: &&mut Posted| posted.last == last && posted.entries > 0;
        let Some(told) = self.posted.iter_mut().find(own) else { return };
        told.status = Some(status);
        // Modulo 2^24: fewer than 2^23 are posted.
        let is_after = |a: u32, b: u32| a.wrapping_sub(b) & SEQUENCE_MASK <= SEQUENCE_MASK / 2;
        if self.reached.is_none_or(|reached| is_after(last, reached)) {
            self.reached = Some(last);
        }
        while let (Some(front), Some(reached)) = (self.posted.front(), self.reached) {
            let implied = !front.is_told && is_after(reached, front.last);
            let Some(status) = front.status.or(implied.then_some(WorkStatus::Success)) else {
                return;
            };
            self.pop(status).into_iter().for_each(&mut each);
        }
    }

    /// Removes the oldest request, which ended with `status`.
    fn pop(&mut self, status: WorkStatus) -> Option<Ended> {
        let posted = self.posted.pop_front()?;
        self.occupied = self.occupied.saturating_sub(posted.entries);
        let Posted { named, is_signaled, handle, octets, .. } = posted;
        Some(Ended { named, is_signaled, handle, octets, status })
    }

    /// Destroys the queue pair, then hands each request that its send queue still held to `each`, oldest first, and
    /// returns the Receives left in its own receive queue, oldest first.
    pub(crate) fn destroy<F: FnMut(Ended)>(
        mut self,
        mut each: F,
    ) -> impl Iterator<Item = Receive> + use<F> {
        self.release();
        while let Some(ended) = self.pop(WorkStatus::Flushed) {
            each(ended);
        }
        self.receives.left()
    }

    /// Returns whether its own receive queue has room.
    pub(crate) fn takes_receives(&self) -> bool {
        self.receives.len() < self.limits.receive_queue as usize
    }

    /// Posts a Receive to its own queue. `name` is the queue pair's number. Gives the Receive back if the queue is
    /// full, the device refuses it, or some of its octets are in no region.
    pub(crate) fn post_receive(
        &mut self,
        name: QpNum,
        receive: Receive,
        regions: &[Region],
    ) -> Result<(), (Receive, Refused)> {
        if !self.takes_receives() {
            let error = std::io::ErrorKind::OutOfMemory.into();
            return Err((receive, Refused::of("posting a Receive", error)));
        }
        let qp = self.raw();
        // SAFETY: the queue pair is live and this thread's, like its id, and has a receive queue of its
        // own, or its limit would be zero. `receives` has all that was posted to it. What is taken out of
        // it was polled, as `received` asks, or is left when the queue pair has been destroyed, which
        // `destroy` and `drop` do first.
        unsafe { self.receives.post(qp, name, receive, regions) }
    }

    /// Notes that the completion of the Receive `number` in its own queue was polled, and returns that Receive.
    pub(crate) fn received(&mut self, number: u32) -> Option<Receive> {
        self.receives.taken(number)
    }

    /// Destroys the queue pair, after which the device accesses no memory for it.
    fn release(&mut self) {
        if !self.id.get().qp.is_null() {
            // SAFETY: the queue pair was made with this id, and is destroyed once: the library forgets
            // it. When the call returns the device touches nothing on its behalf.
            unsafe { rdma_destroy_qp(self.id.raw()) };
        }
    }

    fn raw(&self) -> *mut ibv_qp {
        self.id.get().qp
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        self.release();
    }
}

/// Entries of a Receive's scatter list.
#[expect(clippy::cast_possible_truncation, reason = "it is a handful")]
const SCATTER: u32 = SCATTER_MAX as u32;
