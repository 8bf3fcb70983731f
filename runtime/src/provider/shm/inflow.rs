//! What a connection takes from: the peer's ring.
//!
//! # Normal operation
//!
//! Messages are copied into Receives (`inflow/records.rs`), or offered to a sink that takes them without one
//! (`inflow/in_place.rs`). A poll takes no messages into Receives that were left to such a sink in its turn.
//!
//! # Memory ownership
//!
//! The Receive that a message in parts fills is here until its last part has come.

use super::nic::Nic;
use super::receives::Filling;
use super::ring::Consumer;
use super::segment::Segment;

mod in_place;
mod records;
mod run;

pub(super) use in_place::Share;
pub(super) use records::Stop;

/// The peer's ring and table, and how far its messages were taken.
#[derive(Debug)]
pub(super) struct Inflow {
    consumer: Consumer,
    /// The Receive that a message in parts fills.
    filling: Option<Filling>,
    rest: Rest,
    last: Last,
    /// A message waits for a Receive.
    is_starved: bool,
}

/// The taker of the records that are in the ring now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// The next poll takes them, into Receives.
    ForReceives,
    /// The next poll leaves them, to be taken without Receives.
    InPlace,
}

/// The way in which the last messages came that were taken without Receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    /// It was one message, and the ring was empty behind it.
    Alone,
    /// There were more, or another record was behind them.
    Together,
}

impl Inflow {
    /// Takes from the ring of a peer's fresh segment.
    pub(super) const fn new(theirs: Segment) -> Self {
        Self {
            consumer: Consumer::new(theirs),
            filling: None,
            rest: Rest::ForReceives,
            last: Last::Together,
            is_starved: false,
        }
    }

    /// Gives the room of taken records back to the peer; returns whether there is any.
    #[inline]
    pub(super) fn release_room(&mut self) -> bool {
        self.consumer.release()
    }

    /// Returns whether the records in the ring were left to be taken without Receives. Only the next poll leaves them.
    #[inline]
    pub(super) fn take_left(&mut self) -> bool {
        std::mem::replace(&mut self.rest, Rest::ForReceives) == Rest::InPlace
    }

    /// Notes that a message waits for a Receive.
    pub(super) fn starve(&mut self, nic: &mut Nic) {
        nic.link.starvations += u64::from(!self.is_starved);
        self.is_starved = true;
    }

    /// Gives back the Receive of a message that will not be completed.
    pub(super) fn give_back(&mut self, nic: &mut Nic) {
        if let Some(filling) = self.filling.take() {
            nic.receives.put_back(filling);
        }
    }

    /// Has the peer ring a doorbell for its next message.
    pub(super) fn ask_for_doorbell(&self) {
        self.consumer.ask_for_doorbell();
    }

    /// Has the peer ring no doorbell, as its ring is read in every poll.
    pub(super) fn need_no_doorbell(&self) {
        self.consumer.need_no_doorbell();
    }

    /// Returns the peer's segment.
    #[inline]
    pub(super) const fn segment(&self) -> &Segment {
        self.consumer.segment()
    }

    pub(super) fn has_record(&self) -> bool {
        self.consumer.has_record()
    }

    /// Returns whether a message has begun, and its last part has not come.
    #[inline]
    pub(super) const fn has_begun(&self) -> bool {
        self.filling.is_some()
    }

    /// Returns whether there is a Receive for the next message.
    pub(super) const fn has_receive(&self, nic: &Nic) -> bool {
        !nic.receives.is_empty() || self.has_begun()
    }
}

#[cfg(test)]
impl Inflow {
    pub(super) fn replace_segment(&mut self, theirs: Segment) {
        self.consumer = Consumer::new(theirs);
    }
}
