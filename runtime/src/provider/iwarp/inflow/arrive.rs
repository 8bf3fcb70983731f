//! The parts of messages, and the places they go to.
//!
//! Payload is copied to its place, or, when much of it is to come, received there by the system call itself. No message
//! is acted upon before its FPDU has ended with a right CRC.

use haulage_mr_pool::{Sink, StagFault};
use haulage_proto::iwarp::mpa::handshake::Rtr;
use haulage_proto::iwarp::receive::{Delivery, Event, Header};
use haulage_proto::iwarp::terminate::Fault;
use haulage_proto::verbs::{Completion, Handle, Opcode, Status};

use super::{BEHIND, BULK_AHEAD, Inflow, Target};
use crate::provider::Receive;
use crate::provider::iwarp::life::Life;
use crate::provider::iwarp::nic::Nic;
use crate::provider::iwarp::outflow::Outflow;
use crate::sys::crc::crc32c_of_sink;

/// The result of reading a socket, and the octets asked for.
pub(in crate::provider::iwarp) type Read = (std::io::Result<Option<usize>>, usize);

impl Inflow {
    /// Handles octets up to the end of the next FPDU that is not whole among them, and returns what that delivers, once
    /// its CRC is right. Returns `None` when all octets are used, a Receive is missing, or the connection's turn of
    /// this poll is over.
    pub(in crate::provider::iwarp) fn next(
        &mut self,
        nic: &mut Nic,
        life: &mut Life,
        outflow: &Outflow,
        octets: &mut &[u8],
    ) -> Result<Option<Delivery>, Fault> {
        loop {
            self.feed_whole(nic, life, outflow, octets);
            if self.turn.is_over() && self.receiver.is_between() {
                return Ok(None);
            }
            match self.receiver.next(octets)? {
                None => return Ok(None),
                Some(Event::Payload(payload)) => {
                    if let Err(fault) = self.place(nic, life, payload) {
                        self.receiver.refuse(fault)?;
                    }
                }
                Some(Event::Header(header)) => {
                    if let Err(fault) = self.on_header(nic, life, header) {
                        self.receiver.refuse(fault)?;
                    }
                    if self.is_starved() {
                        return Ok(None);
                    }
                }
                Some(Event::End(delivery)) => {
                    self.on_end(&delivery);
                    return Ok(Some(delivery));
                }
            }
        }
    }

    /// Receives payload into its place, and the next header behind it, into `scratch`. Returns also how many octets
    /// `scratch` got.
    pub(in crate::provider::iwarp) fn read_into_place(
        &mut self,
        nic: &mut Nic,
        life: &Life,
        scratch: &mut [u8],
    ) -> Result<(Read, usize), Fault> {
        let (qp, length) = (life.qp(), self.receiver.payload_remaining());
        let behind = if self.receiver.is_last() { BULK_AHEAD } else { BEHIND };
        let behind = behind.min(scratch.len());
        let behind = scratch.get_mut(..behind).unwrap_or_default();
        let place = match self.target {
            Target::Registration { handle, offset } => {
                nic.stags.sink(handle, qp, offset, length).ok().map(|(s, at)| (s, at, length))
            }
            Target::Response { handle, offset } => nic
                .stags
                .response_sink(handle, qp, offset, length)
                .ok()
                .map(|(s, at)| (s, at, length)),
            Target::Receive { at } => self.receive.as_mut().and_then(|r| part(r, at, length)),
            Target::None => None,
        };
        let Some((sink, at, length)) = place else {
            // The header was checked when it came; only an invalidation since can have changed the result.
            self.receiver.refuse(Fault::TaggedStag)?;
            return Ok(((Ok(None), 0), 0));
        };
        // Where this part of the Receive is shorter than the payload, nothing behind the payload is read yet.
        let whole = length == self.receiver.payload_remaining();
        let behind = if whole { behind } else { &mut [] };
        let wanted = length + behind.len();
        nic.counters.syscalls += 1;
        let mut behind_count = 0;
        let result = life.socket().receive_into(sink, at, length, behind);
        if let Ok(Some(count)) = result {
            let placed = count.min(length);
            if matches!(self.target, Target::Registration { .. }) {
                sink.count_placed(placed);
            }
            self.receiver.placed(placed, |sum| crc32c_of_sink(sum, sink, at, placed));
            nic.counters.bytes_direct += placed as u64;
            nic.counters.bytes_system += placed as u64;
            self.advance(nic, placed);
            behind_count = count - placed;
        }
        Ok(((result, wanted), behind_count))
    }

    /// Takes a whole Send: the Receive that holds it is complete.
    pub(in crate::provider::iwarp) fn on_send(
        &mut self,
        nic: &mut Nic,
        life: &Life,
        outflow: &Outflow,
        length: u32,
        invalidated: Option<Handle>,
    ) -> Result<(), Fault> {
        if let Some(handle) = invalidated {
            // A peer whose Read is being answered cannot retire the memory: the Read would not find it.
            let is_read = outflow.is_read(handle);
            if is_read || nic.stags.invalidate(handle, life.qp()).is_err() {
                return Err(Fault::CannotInvalidate);
            }
            nic.counters.invalidated_remote += 1;
        }
        self.complete_receive(nic, life, length, invalidated)
    }

    /// Checks the length of the Send that waited against the Receive it got.
    pub(in crate::provider::iwarp) fn check_receive_length(&mut self) -> Result<(), Fault> {
        if self.receive_fits() { Ok(()) } else { self.receiver.refuse(Fault::MessageTooLong) }
    }

    /// Finds where the payload of an FPDU goes. Nothing has been placed yet.
    fn on_header(&mut self, nic: &mut Nic, life: &mut Life, header: Header) -> Result<(), Fault> {
        self.target = Target::None;
        match header {
            // RFC 5040 section 5.2.1: a Write of no octets names no memory.
            Header::Write { length: 0, .. } => {}
            Header::Write { handle, offset, length } => {
                let length = length as usize;
                nic.stags.sink(handle, life.qp(), offset, length).map_err(write_fault)?;
                self.target = Target::Registration { handle, offset };
                self.tagged = self.tagged.saturating_add(length);
            }
            Header::ReadResponse { handle, offset, length } => {
                self.target = Target::Response { handle, offset };
                self.tagged = self.tagged.saturating_add(length as usize);
            }
            Header::Send { offset: 0, length: 0 } if life.opening().expects(Rtr::Send) => {}
            Header::Send { offset, .. } => {
                self.target = Target::Receive { at: offset as usize };
                if offset == 0 && self.receive.is_none() {
                    self.turn.send_begun_at = self.turn.fpdus;
                    self.receive = nic.receives.pop_front();
                    if self.receive.is_none() {
                        self.starve(nic, life);
                        return Ok(());
                    }
                }
                self.receive_fits().then_some(()).ok_or(Fault::MessageTooLong)?;
            }
        }
        Ok(())
    }

    /// Copies payload to its place, unless an invalidation since the header has taken that away.
    fn place(&mut self, nic: &mut Nic, life: &Life, payload: &[u8]) -> Result<(), Fault> {
        let placed = match self.target {
            Target::Registration { handle, offset } => {
                nic.stags.place(handle, life.qp(), offset, payload).is_ok()
            }
            Target::Response { handle, offset } => {
                nic.stags.place_response(handle, life.qp(), offset, payload).is_ok()
            }
            Target::Receive { at } => {
                self.receive.as_mut().is_some_and(|receive| scatter(receive, at, payload))
            }
            Target::None => false,
        };
        if !placed {
            return Err(Fault::TaggedStag);
        }
        nic.counters.bytes_copied += payload.len() as u64;
        if matches!(self.target, Target::Registration { .. } | Target::Response { .. }) {
            nic.counters.tagged_copied += payload.len() as u64;
        }
        self.advance(nic, payload.len());
        Ok(())
    }

    /// Notes that an FPDU has ended, with a right CRC.
    fn on_end(&mut self, delivery: &Delivery) {
        self.turn.fpdus += 1;
        if matches!(delivery, Delivery::Write | Delivery::ReadResponse { .. }) {
            self.on_tagged_end();
        }
        let is_empty = match delivery {
            Delivery::Segment | Delivery::Write => self.receiver.payload_length() == 0,
            Delivery::ReadRequest(request) => request.length == 0,
            _ => false,
        };
        self.turn.empty += u32::from(is_empty);
    }

    /// Reports the Receive that holds a whole message.
    #[inline]
    pub(super) fn complete_receive(
        &mut self,
        nic: &mut Nic,
        life: &Life,
        length: u32,
        invalidated: Option<Handle>,
    ) -> Result<(), Fault> {
        // Taking the request apart drops its views.
        let Some(Receive { id, .. }) = self.receive.take() else { return Err(Fault::Local) };
        nic.counters.receives += 1;
        nic.reports.completed(Completion {
            id,
            qp: life.qp(),
            opcode: Opcode::Receive,
            status: Status::Success,
            length,
            invalidated,
        });
        Ok(())
    }

    /// Moves the target behind `count` octets.
    const fn advance(&mut self, nic: &mut Nic, count: usize) {
        match &mut self.target {
            Target::Registration { offset, .. } | Target::Response { offset, .. } => {
                nic.counters.tagged_received += count as u64;
                // Each octet was copied once: by the system, out of the network.
                nic.counters.tagged_copied += count as u64;
                // The end of the FPDU was checked not to wrap.
                *offset = offset.wrapping_add(count as u64);
            }
            Target::Receive { at } => *at += count,
            Target::None => {}
        }
    }

    /// Returns whether the FPDU being received ends within the current Receive.
    fn receive_fits(&self) -> bool {
        let Target::Receive { at } = self.target else { return true };
        let room = self.receive.as_ref().map_or(0, capacity);
        at.checked_add(self.receiver.payload_remaining()).is_some_and(|end| end <= room)
    }
}

/// Returns the octets that a Receive holds.
pub(super) fn capacity(receive: &Receive) -> usize {
    receive.sinks().map(Sink::len).sum()
}

/// Returns the sink that holds octet `at` of a Receive, the offset in it, and how many of `length` octets from there
/// fit into it.
fn part(receive: &mut Receive, mut at: usize, length: usize) -> Option<(&mut Sink, usize, usize)> {
    for sink in receive.sinks_mut() {
        if at < sink.len() {
            let length = length.min(sink.len() - at);
            return Some((sink, at, length));
        }
        at -= sink.len();
    }
    None
}

/// Copies `payload` to octet `at` of a Receive; returns whether it fits.
pub(super) fn scatter(receive: &mut Receive, mut at: usize, mut payload: &[u8]) -> bool {
    while !payload.is_empty() {
        let Some((sink, offset, length)) = part(receive, at, payload.len()) else { return false };
        let (head, rest) = payload.split_at(length);
        if sink.place(offset, head).is_err() {
            return false;
        }
        at += length;
        payload = rest;
    }
    true
}

const fn write_fault(fault: StagFault) -> Fault {
    match fault {
        StagFault::InvalidStag => Fault::TaggedStag,
        StagFault::NotYours => Fault::TaggedNotAssociated,
        StagFault::AccessViolation => Fault::WriteAccess,
        StagFault::BaseOrBounds => Fault::TaggedBounds,
        StagFault::OffsetWraps => Fault::TaggedWrap,
    }
}
