//! Arrivals on an open connection, and the places they go to.
//!
//! Payload is copied to its place, or, when much of it is to come, received there by the system call itself. No message
//! is acted upon before its FPDU has ended with a right CRC.

use haulage_mr_pool::{Sink, StagFault};
use haulage_proto::iwarp::mpa::handshake::Rtr;
use haulage_proto::iwarp::receive::{Carried, Delivery, Event, Header};
use haulage_proto::iwarp::terminate::{Fault, Terminate};
use haulage_proto::verbs::{Completion, Handle, Opcode, Status};

use super::connection::{Connection, Target};
use super::intake::{BEHIND, BULK_AHEAD, DIRECT_MIN};
use super::nic::Nic;
use crate::provider::{DisconnectReason, Receive};
use crate::sys::crc::crc32c_of_sink;

impl Connection {
    /// Receives `length` octets of payload into their place, and the next header behind them.
    pub(super) fn read_into_place(
        &mut self,
        nic: &mut Nic,
        length: usize,
    ) -> (std::io::Result<Option<usize>>, usize) {
        let mut scratch = std::mem::take(&mut nic.scratch);
        let behind = if self.receiver.is_last() { BULK_AHEAD } else { BEHIND };
        let behind = behind.min(scratch.len());
        let behind = scratch.get_mut(..behind).unwrap_or_default();
        let qp = self.life.qp();
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
            nic.scratch = scratch;
            let refused = self.receiver.refuse(Fault::TaggedStag);
            if let Err(fault) = refused {
                self.fail(nic, fault);
            }
            return (Ok(None), 0);
        };
        // Where this part of the Receive is shorter than the payload, nothing behind the payload is read yet.
        let whole = length == self.receiver.payload_remaining();
        let behind = if whole { behind } else { &mut [] };
        let wanted = length + behind.len();
        nic.counters.syscalls += 1;
        let result = self.life.socket().receive_into(sink, at, length, behind);
        if let Ok(Some(count)) = result {
            let placed = count.min(length);
            if matches!(self.target, Target::Registration { .. }) {
                sink.count_placed(placed);
            }
            self.receiver.placed(placed, |sum| crc32c_of_sink(sum, sink, at, placed));
            nic.counters.bytes_direct += placed as u64;
            nic.counters.bytes_system += placed as u64;
            self.advance(nic, placed);
            let behind = scratch.get(..count - placed).unwrap_or_default();
            self.on_octets(nic, behind);
        }
        nic.scratch = scratch;
        (result, wanted)
    }

    /// Handles octets until all are used, a Receive is missing, or the connection's turn of this poll is over. Returns
    /// how many were used.
    pub(super) fn feed(&mut self, nic: &mut Nic, octets: &[u8]) -> usize {
        self.turn.begin(nic.polls);
        let (mut rest, before) = (octets, self.turn.fpdus);
        self.feed_turn(nic, &mut rest);
        nic.wire.fpdus_received += self.turn.fpdus - before;
        self.end_if_flooded(nic);
        if self.life.state().receives() && !self.starved {
            if !rest.is_empty() {
                self.throttle(nic);
            }
            self.watch_input(nic);
        }
        octets.len() - rest.len()
    }

    fn feed_turn(&mut self, nic: &mut Nic, octets: &mut &[u8]) {
        loop {
            self.feed_whole(nic, octets);
            if self.turn.is_over() && self.receiver.is_between() {
                return;
            }
            match self.receiver.next(octets) {
                Ok(None) => return,
                Ok(Some(Event::Payload(payload))) => {
                    if let Err(fault) = self.place(nic, payload)
                        && let Err(fault) = self.receiver.refuse(fault)
                    {
                        return self.fail(nic, fault);
                    }
                }
                Ok(Some(Event::Header(header))) => {
                    if let Err(fault) = self.on_header(nic, header)
                        && let Err(fault) = self.receiver.refuse(fault)
                    {
                        return self.fail(nic, fault);
                    }
                    if self.starved {
                        return;
                    }
                }
                Ok(Some(Event::End(delivery))) => {
                    self.turn.fpdus += 1;
                    if let Err(fault) = self.on_end(nic, delivery) {
                        return self.fail(nic, fault);
                    }
                    if !self.life.state().receives() {
                        return;
                    }
                }
                Err(fault) => return self.fail(nic, fault),
            }
        }
    }

    /// Handles FPDUs that are whole and ordinary, as long as there are any.
    #[inline]
    fn feed_whole(&mut self, nic: &mut Nic, octets: &mut &[u8]) {
        if !self.is_at_ease() {
            return;
        }
        while !self.turn.is_over()
            && let Some(whole) = self.receiver.whole(octets, 0)
        {
            let payload = whole.payload();
            let done = match whole.carried() {
                Some(Carried::Write { handle, offset, last }) => {
                    let placed = self.place_whole(nic, handle, offset, payload);
                    if placed && last {
                        self.on_write_ended();
                    }
                    placed
                }
                Some(Carried::Send { invalidate }) => self.deliver_whole(nic, payload, invalidate),
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

    /// Returns whether the connection is past its first FPDUs, which do more than the others.
    #[inline]
    pub(super) const fn is_at_ease(&self) -> bool {
        self.life.opening().is_over()
    }

    /// Places the segment of a Write; false if the peer may not write there.
    #[inline]
    pub(super) fn place_whole(
        &mut self,
        nic: &mut Nic,
        handle: Handle,
        offset: u64,
        payload: &[u8],
    ) -> bool {
        // RFC 5040 section 5.2.1: a Write of no octets names no memory.
        if payload.is_empty() {
            self.turn.empty += 1;
        } else if nic.stags.place(handle, self.life.qp(), offset, payload).is_err() {
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

    /// Decides whether the next tagged message is expected to be long, once the last segment of a Write has been
    /// placed.
    #[inline]
    pub(super) fn on_write_ended(&mut self) {
        self.bulk = std::mem::take(&mut self.tagged) >= BULK_MIN;
    }

    /// Puts a message into the next Receive; false if it cannot, and then nothing has happened.
    #[inline]
    fn deliver_whole(&mut self, nic: &mut Nic, payload: &[u8], invalidate: Option<Handle>) -> bool {
        if self.receive.is_some() {
            return false;
        }
        let Some(receive) = nic.receives.front_mut() else { return false };
        //~ R5666-6-1: `` -> `let payload = payload.get(..capacity(receive)).unwrap_or(payload);`
        if !scatter(receive, 0, payload) {
            return false;
        }
        if let Some(handle) = invalidate {
            let is_read = self.outflow.is_read(handle);
            if is_read || nic.stags.invalidate(handle, self.life.qp()).is_err() {
                return false;
            }
            nic.counters.invalidated_remote += 1;
        }
        self.receive = nic.receives.pop_front();
        nic.counters.bytes_copied += payload.len() as u64;
        // A message is no longer than an FPDU.
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        self.complete_receive(nic, length, invalidate).is_ok()
    }

    /// Finds where the payload of an FPDU goes. Nothing has been placed yet.
    fn on_header(&mut self, nic: &mut Nic, header: Header) -> Result<(), Fault> {
        self.target = Target::None;
        match header {
            // RFC 5040 section 5.2.1: a Write of no octets names no memory.
            Header::Write { length: 0, .. } => {}
            Header::Write { handle, offset, length } => {
                let length = length as usize;
                nic.stags.sink(handle, self.life.qp(), offset, length).map_err(write_fault)?;
                self.target = Target::Registration { handle, offset };
                self.tagged = self.tagged.saturating_add(length);
            }
            Header::ReadResponse { handle, offset, length } => {
                self.target = Target::Response { handle, offset };
                self.tagged = self.tagged.saturating_add(length as usize);
            }
            Header::Send { offset: 0, length: 0 } if self.life.opening().expects(Rtr::Send) => {}
            Header::Send { offset, .. } => {
                self.target = Target::Receive { at: offset as usize };
                if offset == 0 && self.receive.is_none() {
                    self.turn.send_begun_at = self.turn.fpdus;
                    self.receive = nic.receives.pop_front();
                    if self.receive.is_none() {
                        self.starved = true;
                        nic.starved.push_back(self.life.qp());
                        nic.wire.starvations += 1;
                        self.life.unsettle(nic);
                        return Ok(());
                    }
                }
                self.receive_fits().then_some(()).ok_or(Fault::MessageTooLong)?;
            }
        }
        Ok(())
    }

    /// Checks the length of the Send that waited against the Receive it got.
    pub(super) fn check_receive_length(&mut self, nic: &mut Nic) -> bool {
        if self.receive_fits() {
            return true;
        }
        match self.receiver.refuse(Fault::MessageTooLong) {
            Ok(()) => true,
            Err(fault) => {
                self.fail(nic, fault);
                false
            }
        }
    }

    /// Returns whether the FPDU being received ends within the current Receive.
    fn receive_fits(&self) -> bool {
        let Target::Receive { at } = self.target else { return true };
        let room = self.receive.as_ref().map_or(0, capacity);
        at.checked_add(self.receiver.payload_remaining()).is_some_and(|end| end <= room)
    }

    /// Copies payload to its place, unless an invalidation since the header has taken that away.
    fn place(&mut self, nic: &mut Nic, payload: &[u8]) -> Result<(), Fault> {
        let placed = match self.target {
            Target::Registration { handle, offset } => {
                nic.stags.place(handle, self.life.qp(), offset, payload).is_ok()
            }
            Target::Response { handle, offset } => {
                nic.stags.place_response(handle, self.life.qp(), offset, payload).is_ok()
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

    /// Moves the target behind `count` octets.
    const fn advance(&mut self, nic: &mut Nic, count: usize) {
        match &mut self.target {
            Target::Registration { offset, .. } | Target::Response { offset, .. } => {
                nic.counters.tagged_received += count as u64;
                // The system's copy, out of the network.
                nic.counters.tagged_copied += count as u64;
                // The end of the FPDU was checked not to wrap.
                *offset = offset.wrapping_add(count as u64);
            }
            Target::Receive { at } => *at += count,
            Target::None => {}
        }
    }

    /// Handles an FPDU that is whole and has a right CRC.
    fn on_end(&mut self, nic: &mut Nic, delivery: Delivery) -> Result<(), Fault> {
        let rtr = self.life.heard(nic);
        if matches!(delivery, Delivery::Write | Delivery::ReadResponse { .. }) {
            self.bulk = std::mem::take(&mut self.tagged) >= BULK_MIN;
        }
        if self.receiver.payload_length() == 0
            && matches!(delivery, Delivery::Segment | Delivery::Write)
        {
            self.turn.empty += 1;
        }
        match delivery {
            Delivery::Segment | Delivery::Write => {}
            // The ready-to-receive indication uses no Receive (RFC 6581 section 4.3).
            Delivery::Send { length: 0, .. } if rtr == Some(Rtr::Send) => {}
            Delivery::Send { length, invalidate, .. } => {
                return self.on_send(nic, length, invalidate);
            }
            Delivery::ReadResponse { handle } => {
                nic.stags.take_read_sink(handle);
                if let Some(next) = self.outflow.on_read_done() {
                    self.receiver.expect_read(next.handle, next.offset, next.length);
                }
                self.life.unsettle(nic);
            }
            Delivery::ReadRequest(request) => {
                if request.length == 0 {
                    self.turn.empty += 1;
                }
                return self.outflow.on_read_request(nic, &mut self.life, request, rtr);
            }
            Delivery::Terminate(terminate) => self.on_terminate(nic, terminate),
        }
        Ok(())
    }

    fn on_send(
        &mut self,
        nic: &mut Nic,
        length: u32,
        invalidated: Option<Handle>,
    ) -> Result<(), Fault> {
        if let Some(handle) = invalidated {
            // A peer whose Read is being answered cannot retire the memory: the Read would not find it.
            let is_read = self.outflow.is_read(handle);
            if is_read || nic.stags.invalidate(handle, self.life.qp()).is_err() {
                return Err(Fault::CannotInvalidate);
            }
            nic.counters.invalidated_remote += 1;
        }
        self.complete_receive(nic, length, invalidated)
    }

    /// Reports the Receive that holds a whole message.
    #[inline]
    fn complete_receive(
        &mut self,
        nic: &mut Nic,
        length: u32,
        invalidated: Option<Handle>,
    ) -> Result<(), Fault> {
        // Taking the request apart drops its views.
        let Some(Receive { id, .. }) = self.receive.take() else { return Err(Fault::Local) };
        nic.counters.receives += 1;
        nic.reports.completed(Completion {
            id,
            qp: self.life.qp(),
            opcode: Opcode::Receive,
            status: Status::Success,
            length,
            invalidated,
        });
        Ok(())
    }

    fn on_terminate(&mut self, nic: &mut Nic, terminate: Terminate) {
        let code = terminate.code;
        let (layer, etype) = (code.layer, code.etype);
        // RFC 5040 section 4.8: a protection error of layer 0 is about a Read of ours.
        if (layer, etype) == (0, 1) {
            self.outflow.on_read_refused();
        }
        self.end_for(nic, DisconnectReason::Terminated { layer, etype, code: code.code });
    }
}

/// Returns the octets that a Receive holds.
fn capacity(receive: &Receive) -> usize {
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
fn scatter(receive: &mut Receive, mut at: usize, mut payload: &[u8]) -> bool {
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

/// Octets of a tagged message from which on the next one is expected to be long as well.
const BULK_MIN: usize = 2 * DIRECT_MIN;
