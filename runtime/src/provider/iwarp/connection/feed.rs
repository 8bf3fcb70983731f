//! Handling octets, keeping those that wait, and acting on what they deliver.

use haulage_proto::iwarp::mpa::handshake::Rtr;
use haulage_proto::iwarp::receive::Delivery;
use haulage_proto::iwarp::terminate::{Fault, Terminate};

use super::Connection;
use crate::provider::DisconnectReason;
use crate::provider::iwarp::inflow::StreamEnd;
use crate::provider::iwarp::nic::Nic;

impl Connection {
    /// Takes octets that the reactor has read.
    pub(in crate::provider::iwarp) fn on_received(&mut self, nic: &mut Nic, octets: &[u8]) {
        self.on_octets(nic, octets);
        self.intake.on_received();
    }

    /// Takes octets that arrived, in any state of the connection.
    pub(super) fn on_octets(&mut self, nic: &mut Nic, octets: &[u8]) {
        nic.counters.bytes_system += octets.len() as u64;
        self.take_octets(nic, octets);
    }

    /// Takes octets of an open connection.
    pub(in crate::provider::iwarp) fn take_octets(&mut self, nic: &mut Nic, octets: &[u8]) {
        if octets.is_empty() || !self.life.state().receives() {
            return;
        }
        if self.inflow.waits() {
            self.inflow.keep(octets);
            return;
        }
        let taken = self.feed(nic, octets);
        if self.life.state().receives() {
            self.inflow.keep(octets.get(taken..).unwrap_or_default());
        }
    }

    /// Continues with the Send that waited for a Receive, now that there is one.
    pub(in crate::provider::iwarp) fn resume(&mut self, nic: &mut Nic) {
        if !self.inflow.take_receive(nic) {
            return;
        }
        match self.inflow.check_receive_length() {
            Ok(()) => self.feed_backlog(nic),
            Err(fault) => self.fail(nic, fault),
        }
        self.end_backlog(nic);
    }

    /// Continues with the octets that the turn of the last poll left.
    pub(in crate::provider::iwarp) fn go_on(&mut self, nic: &mut Nic) {
        if self.inflow.take_turn() {
            self.feed_backlog(nic);
            self.end_backlog(nic);
        }
    }

    /// Notes that the stream has ended, or that there will be none.
    pub(super) fn on_stream_end(&mut self, nic: &mut Nic, end: StreamEnd) {
        if self.inflow.defers(end) {
            return;
        }
        if self.life.is_open() {
            self.life.set_reason(match end {
                StreamEnd::Orderly if !self.inflow.is_between() => DisconnectReason::Lost,
                StreamEnd::Orderly if self.outflow.has_left() && self.life.socket().has_left() => {
                    DisconnectReason::PeerHasAll
                }
                StreamEnd::Orderly => DisconnectReason::Peer,
                StreamEnd::Lost => DisconnectReason::Lost,
            });
        }
        self.end(nic);
    }

    /// Ends the connection if its peer sent too many FPDUs that deliver nothing.
    #[inline]
    pub(super) fn end_if_flooded(&mut self, nic: &mut Nic) {
        if self.inflow.is_flooded(nic, &self.life) {
            nic.wire.floods += 1;
            self.end_for(nic, DisconnectReason::Flooded);
        }
    }

    /// Handles the backlog, as far as possible now.
    fn feed_backlog(&mut self, nic: &mut Nic) {
        let backlog = self.inflow.take_backlog();
        let rest = backlog.rest();
        let (taken, length) = (self.feed(nic, rest), rest.len());
        if taken < length && self.life.state().receives() {
            self.inflow.put_back(backlog, taken);
        }
    }

    /// Continues with the stream, if there is no backlog any more.
    fn end_backlog(&mut self, nic: &mut Nic) {
        if !self.inflow.waits() {
            if let Some(end) = self.inflow.take_end() {
                self.on_stream_end(nic, end);
            }
            self.life.unsettle(nic);
        }
    }

    /// Handles octets until all are used, a Receive is missing, or the connection's turn of this poll is over. Returns
    /// how many were used.
    fn feed(&mut self, nic: &mut Nic, octets: &[u8]) -> usize {
        let (mut rest, before) = (octets, self.inflow.begin_turn(nic));
        self.feed_turn(nic, &mut rest);
        nic.wire.fpdus_received += self.inflow.fpdus() - before;
        self.end_if_flooded(nic);
        self.inflow.end_turn(nic, &mut self.life, rest);
        octets.len() - rest.len()
    }

    fn feed_turn(&mut self, nic: &mut Nic, octets: &mut &[u8]) {
        loop {
            let Self { life, inflow, outflow, .. } = self;
            let delivered = match inflow.next(nic, life, outflow, octets) {
                Ok(None) => return,
                Ok(Some(delivery)) => self.on_delivery(nic, delivery),
                Err(fault) => Err(fault),
            };
            if let Err(fault) = delivered {
                return self.fail(nic, fault);
            }
            if !self.life.state().receives() {
                return;
            }
        }
    }

    /// Acts on what an FPDU delivers.
    fn on_delivery(&mut self, nic: &mut Nic, delivery: Delivery) -> Result<(), Fault> {
        let rtr = self.life.heard(nic);
        match delivery {
            Delivery::Segment | Delivery::Write => {}
            // The ready-to-receive indication uses no Receive (RFC 6581 section 4.3).
            Delivery::Send { length: 0, .. } if rtr == Some(Rtr::Send) => {}
            Delivery::Send { length, invalidate, .. } => {
                return self.inflow.on_send(nic, &self.life, &self.outflow, length, invalidate);
            }
            Delivery::ReadResponse { handle } => {
                nic.stags.take_read_sink(handle);
                if let Some(next) = self.outflow.on_read_done() {
                    self.inflow.expect_read(next);
                }
                self.life.unsettle(nic);
            }
            Delivery::ReadRequest(request) => {
                return self.outflow.on_read_request(nic, &mut self.life, request, rtr);
            }
            Delivery::Terminate(terminate) => self.on_terminate(nic, terminate),
        }
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
