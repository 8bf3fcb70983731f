//! FPDUs that lie whole among the octets read: each is handled at once.

use haulage_proto::iwarp::receive::{Carried, Whole};
use haulage_proto::verbs::Handle;

use super::arrive::scatter;
use super::{DIRECT_MIN, Inflow};
use crate::provider::RUN_MAX;
use crate::provider::iwarp::life::Life;
use crate::provider::iwarp::nic::Nic;
use crate::provider::iwarp::outflow::Outflow;

impl Inflow {
    /// Handles FPDUs that are whole and ordinary, as long as there are any.
    #[inline]
    pub(super) fn feed_whole(
        &mut self,
        nic: &mut Nic,
        life: &Life,
        outflow: &Outflow,
        octets: &mut &[u8],
    ) {
        if !life.opening().is_over() {
            return;
        }
        while !self.turn.is_over()
            && let Some(whole) = self.receiver.whole(octets, 0)
        {
            let payload = whole.payload();
            let done = match whole.carried() {
                Some(Carried::Write { handle, offset, last }) => {
                    let placed = self.place_whole(nic, life, handle, offset, payload);
                    if placed && last {
                        self.on_tagged_end();
                    }
                    placed
                }
                Some(Carried::Send { invalidate }) => {
                    self.deliver_whole(nic, life, outflow, payload, invalidate)
                }
                None => false,
            };
            if !done {
                return;
            }
            self.receiver.pass(&whole);
            self.turn.fpdus += 1;
            *octets = octets.get(whole.wire_len()..).unwrap_or_default();
        }
    }

    /// Places the segment of a Write; false if the peer may not write there.
    #[inline]
    pub(in crate::provider::iwarp) fn place_whole(
        &mut self,
        nic: &mut Nic,
        life: &Life,
        handle: Handle,
        offset: u64,
        payload: &[u8],
    ) -> bool {
        // RFC 5040 section 5.2.1: a Write of no octets names no memory.
        if payload.is_empty() {
            self.turn.empty += 1;
        } else if nic.stags.place(handle, life.qp(), offset, payload).is_err() {
            return false;
        }
        let octets = payload.len() as u64;
        nic.counters.bytes_copied += octets;
        nic.counters.tagged_received += octets;
        // Each octet was copied twice: by the system, out of the network, and here.
        nic.counters.tagged_copied += 2 * octets;
        self.tagged = self.tagged.saturating_add(payload.len());
        true
    }

    /// Decides whether the next tagged message is expected to be long, once the last segment of one is in
    /// its place.
    #[inline]
    pub(in crate::provider::iwarp) fn on_tagged_end(&mut self) {
        self.bulk = std::mem::take(&mut self.tagged) >= BULK_MIN;
    }

    /// Passes FPDUs that were looked at and handled.
    #[inline]
    pub(in crate::provider::iwarp) fn pass(&mut self, passed: &Passed<'_>) {
        self.receiver.pass(&passed.last);
        self.turn.fpdus += u64::from(passed.fpdus);
    }

    /// Returns the FPDU that `octets` begin with, if it is whole and ordinary.
    #[inline]
    pub(in crate::provider::iwarp) fn whole<'a>(&self, octets: &'a [u8]) -> Option<Whole<'a>> {
        self.receiver.whole(octets, 0)
    }

    /// Returns the Sends that `octets` begin with, at most `most` of `length_max` octets each. `first` is the first of
    /// them.
    pub(in crate::provider::iwarp) fn run<'a>(
        &self,
        octets: &'a [u8],
        first: Whole<'a>,
        length_max: usize,
        most: usize,
    ) -> ([&'a [u8]; RUN_MAX], Passed<'a>) {
        let mut messages = [&[][..]; RUN_MAX];
        let mut run = Passed::one(first);
        let (before, places) = messages.split_at_mut(1);
        before[0] = first.payload();
        for (place, behind) in places.iter_mut().zip(1..).take(most.saturating_sub(1)) {
            let rest = octets.get(run.octets..).unwrap_or_default();
            let next = self.receiver.whole(rest, behind).filter(|next| {
                next.payload().len() <= length_max
                    && next.carried() == Some(Carried::Send { invalidate: None })
            });
            let Some(next) = next else { break };
            *place = next.payload();
            run = Passed { last: next, fpdus: run.fpdus + 1, octets: run.octets + next.wire_len() };
        }
        (messages, run)
    }

    /// Puts a message into the next Receive; false if it cannot, and then nothing has happened.
    #[inline]
    fn deliver_whole(
        &mut self,
        nic: &mut Nic,
        life: &Life,
        outflow: &Outflow,
        payload: &[u8],
        invalidate: Option<Handle>,
    ) -> bool {
        if self.receive.is_some() {
            return false;
        }
        let Some(receive) = nic.receives.front_mut() else { return false };
        //~ R5666-6-1: `` -> `let payload = payload.get(..super::arrive::capacity(receive)).unwrap_or(payload);`
        if !scatter(receive, 0, payload) {
            return false;
        }
        if let Some(handle) = invalidate {
            let is_read = outflow.is_read(handle);
            if is_read || nic.stags.invalidate(handle, life.qp()).is_err() {
                return false;
            }
            nic.counters.invalidated_remote += 1;
        }
        self.receive = nic.receives.pop_front();
        nic.counters.bytes_copied += payload.len() as u64;
        // A message is no longer than an FPDU.
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        self.complete_receive(nic, life, length, invalidate).is_ok()
    }
}

/// Consecutive FPDUs at the start of the octets read.
pub(in crate::provider::iwarp) struct Passed<'a> {
    pub(in crate::provider::iwarp) last: Whole<'a>,
    /// The number of FPDUs.
    pub(in crate::provider::iwarp) fpdus: u32,
    /// The octets of all FPDUs on the wire.
    pub(in crate::provider::iwarp) octets: usize,
}

impl<'a> Passed<'a> {
    pub(in crate::provider::iwarp) const fn one(whole: Whole<'a>) -> Self {
        Self { last: whole, fpdus: 1, octets: whole.wire_len() }
    }
}

/// Octets of a tagged message from which on the next one is expected to be long as well.
const BULK_MIN: usize = 2 * DIRECT_MIN;
