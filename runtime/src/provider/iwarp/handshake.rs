//! Connection setup: the MPA handshake at both ends.

use std::io::IoSlice;

use haulage_proto::iwarp::mpa::Mulpdu;
use haulage_proto::iwarp::mpa::handshake::{Agreement, Fault, MpaReply, Rtr};
use haulage_proto::iwarp::receive::Receiver;
use haulage_proto::iwarp::transmit::Transmitter;
use haulage_proto::verbs::Handle;

use super::connection::Connection;
use super::nic::Nic;
use super::setup::{Setup, offer};
use crate::provider::base::{ConnectionState, Step};
use crate::provider::{ConnectError, ConnectionParams, DisconnectReason, Event};
use crate::sys::crc::crc32c;

impl Connection {
    /// Handles the end of the TCP connect, successful or not.
    pub(super) fn on_connected(&mut self, nic: &mut Nic) {
        if let Err(error) = self.socket.connected() {
            let reason = match error.kind() {
                std::io::ErrorKind::ConnectionRefused => ConnectError::Refused,
                std::io::ErrorKind::TimedOut => ConnectError::TimedOut,
                kind => ConnectError::System(kind),
            };
            return self.fail_setup(nic, reason);
        }
        if !self.state.step(Step::Connected) {
            return;
        }
        if let Some(Setup::Active { request, .. }) = self.setup.as_deref_mut() {
            let request = std::mem::take(request);
            if !self.send_frame(nic, &request) {
                self.fail_setup(nic, ConnectError::System(std::io::ErrorKind::ConnectionReset));
            }
        }
        self.unsettle(nic);
    }

    /// Takes octets of a handshake; octets behind the peer's Reply stay in `bytes`.
    pub(super) fn on_handshake(&mut self, nic: &mut Nic, bytes: &mut &[u8]) {
        match self.setup.as_deref_mut() {
            Some(Setup::Active { handshake, .. }) => match handshake.handle(bytes) {
                Ok(None) => {}
                Ok(Some(answer)) => self.on_answer(nic, answer),
                Err(fault) => {
                    if let Some(code) = fault.code() {
                        self.send_terminate(nic, code);
                    }
                    self.fail_setup(nic, ConnectError::BadHandshake(fault.rule()));
                }
            },
            Some(Setup::Passive { handshake, listener, peer }) => match handshake.handle(bytes) {
                Ok(None) => {}
                Ok(Some(asked)) => {
                    let (listener, peer) = (*listener, *peer);
                    let private_data = Box::from(asked.private_data());
                    self.setup = Some(Box::new(Setup::Asked(asked, None)));
                    if self.state.step(Step::Requested) {
                        self.deadline = None;
                        let qp = self.qp;
                        nic.reports.push(Event::Request {
                            listener,
                            qp,
                            peer,
                            process: None,
                            private_data,
                        });
                    }
                }
                Err(fault) => {
                    if let Some(reply) = handshake.refusal(fault) {
                        self.send_frame(nic, &reply);
                    }
                    nic.counters.newcomers.malformed += 1;
                    self.end(nic);
                }
            },
            Some(Setup::Asked(_, broken)) => {
                // The violation is reported once the application has answered.
                *broken = Some(DisconnectReason::PeerMisbehaved(Fault::Early.rule()));
                *bytes = &[];
            }
            None => *bytes = &[],
        }
    }

    /// Handles the end of the stream, or a missed deadline, before the connection was open.
    pub(super) fn on_setup_lost(&mut self, nic: &mut Nic, reason: ConnectError) {
        match self.setup.as_deref_mut() {
            Some(Setup::Asked(_, broken)) => {
                broken.get_or_insert(DisconnectReason::Lost);
            }
            Some(Setup::Passive { .. }) => {
                let newcomers = &mut nic.counters.newcomers;
                match reason {
                    ConnectError::TimedOut => newcomers.timed_out += 1,
                    _ => newcomers.closed += 1,
                }
                self.end(nic);
            }
            Some(Setup::Active { .. }) | None => self.fail_setup(nic, reason),
        }
    }

    /// Accepts the peer, as the application asks.
    pub(super) fn accept(&mut self, nic: &mut Nic, params: &ConnectionParams<'_>) {
        if self.state != ConnectionState::Asked {
            return;
        }
        let Some(Setup::Asked(asked, broken)) = self.setup.take().map(|setup| *setup) else {
            return;
        };
        let offer = offer(&nic.config, params);
        let (reply, agreement) = match asked.accept(&offer, params.private_data) {
            Ok(accepted) => accepted,
            Err(fault) => {
                self.send_frame(nic, &asked.reject(&[]));
                return self.fail_setup(nic, ConnectError::BadHandshake(fault.rule()));
            }
        };
        let sent = self.send_frame(nic, &reply);
        self.open(nic, &agreement, Box::default());
        self.rtr = agreement.rtr;
        self.reason = DisconnectReason::Lost;
        if broken.is_some() || !sent {
            self.reason = broken.unwrap_or(DisconnectReason::Lost);
            self.end(nic);
        }
    }

    /// Rejects the peer, as the application asks.
    pub(super) fn reject(&mut self, nic: &mut Nic, private_data: &[u8]) {
        let Some(Setup::Asked(asked, broken)) = self.setup.take().map(|setup| *setup) else {
            return;
        };
        self.send_frame(nic, &asked.reject(private_data));
        self.socket.shutdown_write();
        if self.state.step(Step::Rejected) {
            self.set_deadline(nic, nic.config.close_timeout);
        }
        if broken.is_some() {
            self.end(nic);
        }
        self.unsettle(nic);
    }

    fn on_answer(&mut self, nic: &mut Nic, answer: MpaReply) {
        match answer {
            MpaReply::Rejected { .. } => self.fail_setup(nic, ConnectError::Rejected),
            MpaReply::Accepted { agreement, private_data } => {
                self.setup = None;
                self.open(nic, &agreement, private_data);
                self.may_send = true;
                self.expect_first(nic);
                if agreement.rtr == Some(Rtr::Write) {
                    let indication = self.transmitter.write(Handle(0), 0, &[]);
                    let queue = self.queue.get_or_insert_with(|| nic.lend_queue());
                    queue.batch.push(&indication);
                    nic.wire.fpdus_sent += 1;
                    self.unsettle(nic);
                }
            }
        }
    }

    fn open(&mut self, nic: &mut Nic, agreement: &Agreement, private_data: Box<[u8]>) {
        if !self.state.step(Step::Agreed) {
            return;
        }
        self.deadline = None;
        let crc: Option<haulage_proto::iwarp::Crc32c> = agreement.crc.then_some(crc32c);
        self.receiver = Receiver::new(crc);
        self.transmitter = Transmitter::new(crc, Mulpdu::default());
        self.measure_segments(nic);
        (self.ord, self.ird) = (agreement.ord, agreement.ird);
        nic.reports.push(Event::Established {
            qp: self.qp,
            private_data,
            ord: agreement.ord,
            ird: agreement.ird,
        });
        self.unsettle(nic);
    }

    /// Fits FPDUs to the current size of TCP segments (RFC 5044 section 4.5: one FPDU a segment).
    pub(super) fn measure_segments(&mut self, nic: &mut Nic) {
        nic.counters.syscalls += 1;
        if let Ok(size) = self.socket.segment_size() {
            self.transmitter.set_segment_size(Mulpdu::from_mss(size));
        }
    }

    /// Ends a connection whose setup failed, and reports the reason.
    pub(super) fn fail_setup(&mut self, nic: &mut Nic, reason: ConnectError) {
        self.setup = None;
        nic.stags.destroy(self.qp);
        nic.reports.push(Event::Failed { qp: self.qp, reason });
        self.end(nic);
    }

    /// Sends a whole frame into the empty send buffer of a fresh connection.
    fn send_frame(&self, nic: &mut Nic, frame: &[u8]) -> bool {
        nic.counters.syscalls += 1;
        matches!(self.socket.send(&[IoSlice::new(frame)]), Ok(Some(sent)) if sent == frame.len())
    }

    /// Sends a Terminate about a Reply; RFC 6581 section 4.1 allows it before the stream is open.
    fn send_terminate(&self, nic: &mut Nic, code: haulage_proto::iwarp::terminate::Code) {
        let fpdu = self.transmitter.terminate(code, None);
        self.send_frame(nic, &[fpdu.prefix(), fpdu.trailer()].concat());
    }
}
