//! Messages that are taken without Receives.

use super::run::Run;
use super::{Inflow, Last, Rest};
use crate::provider::shm::nic::Nic;
use crate::provider::shm::outflow::{Outflow, Shows, Terms};
use crate::provider::shm::ring::Look;
use crate::provider::{MessageSink, RUN_MAX};

/// A connection's share of one poll.
#[derive(Clone, Copy, Debug)]
pub(in crate::provider::shm) struct Share {
    /// Messages.
    pub(in crate::provider::shm) budget: usize,
    /// Octets of the longest message.
    pub(in crate::provider::shm) length_max: usize,
    /// No other connection may have messages.
    pub(in crate::provider::shm) is_only: bool,
}

impl Inflow {
    /// Takes messages, no more than its `share`, as long as they are plain and `sink` takes them, which may answer by
    /// `outflow`. If no other connection can have messages, waits briefly for the next one of a peer that sends one by
    /// one. Returns how many were taken; `None` if nothing was in the ring.
    #[inline]
    pub(in crate::provider::shm) fn take_in_place(
        &mut self,
        nic: &mut Nic,
        outflow: &mut Outflow,
        room: &mut [u8],
        share: Share,
        sink: &mut impl MessageSink,
    ) -> Option<usize> {
        let Self { consumer, rest, last, .. } = self;
        let Share { budget, length_max, is_only } = share;
        let looks = if is_only && *last == Last::Alone { LOOKS } else { 1 };
        let mut terms = Terms::TAKING;
        let (mut taken, mut copied, mut shown) = (0, 0, 0);
        let mut is_left = false;
        // The run is made before a message is there, so that no message waits while it is made.
        let mut run = Run::new();
        if !consumer.await_record(looks) {
            *rest = Rest::InPlace;
            return None;
        }
        while taken < budget {
            let behind = run.copy(consumer, room, length_max, budget - taken);
            let is_dry = behind == Some(Look::Nothing);
            if run.count() == 0 {
                if consumer.learn_next() == Ok(true) {
                    run = Run::new();
                    continue;
                }
                is_left = terms.leaves_rest || is_dry;
                break;
            }
            *last = if run.count() == 1 && is_dry { Last::Alone } else { Last::Together };
            // No other message follows one that came alone: show the peer each answer at once.
            terms.shows = if *last == Last::Alone { Shows::Each } else { Shows::Long };
            let mut port = outflow.port(nic, consumer.segment(), terms);
            let count = run.offer(port.qp(), consumer, sink, &mut port);
            terms = port.terms;
            copied += run.pass(consumer, count);
            taken += count;
            if taken - shown >= RUN_MAX {
                // The peer works on the answers while more messages are taken.
                shown = taken;
                outflow.show(nic);
            }
            let is_all = count == run.count();
            // A record behind a whole run may only not have fitted into `room`.
            if count == 0 || !is_all || is_dry {
                is_left = terms.leaves_rest || is_all && is_dry;
                break;
            }
            is_left = taken == budget;
            run = Run::new();
        }
        *rest = if is_left { Rest::InPlace } else { Rest::ForReceives };
        nic.counters.receives += taken as u64;
        nic.counters.bytes_copied += copied as u64;
        Some(taken)
    }
}

/// Times that a ring is read in a turn while messages come one by one: as often as this takes no longer than the rest
/// of a turn without work.
const LOOKS: u32 = 16;
