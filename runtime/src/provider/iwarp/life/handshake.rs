//! Connection setup: the MPA handshake at both ends.

use std::io::IoSlice;

use haulage_proto::iwarp::mpa::Mulpdu;
use haulage_proto::iwarp::mpa::handshake::{Agreement, Fault, MpaReply};
use haulage_proto::iwarp::terminate::Code;
use haulage_proto::iwarp::transmit::Transmitter;

use super::Life;
use crate::provider::base::{ConnectionState, Step};
use crate::provider::iwarp::nic::Nic;
use crate::provider::iwarp::opening::{Opening, keepalive_after};
use crate::provider::iwarp::setup::{Setup, offer};
use crate::provider::{ConnectError, ConnectionParams, DisconnectReason, Event};

impl Life {
    /// Handles the end of the TCP connect, successful or not.
    pub(in crate::provider::iwarp) fn on_connected(&mut self, nic: &mut Nic) {
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

    /// Takes octets of a handshake; octets behind the peer's Reply stay in `bytes`. Returns what both ends agreed on,
    /// once they have.
    pub(in crate::provider::iwarp) fn on_handshake(
        &mut self,
        nic: &mut Nic,
        bytes: &mut &[u8],
    ) -> Option<Agreement> {
        match self.setup.as_deref_mut() {
            Some(Setup::Active { handshake, .. }) => match handshake.handle(bytes) {
                Ok(None) => {}
                Ok(Some(answer)) => return self.on_answer(nic, answer),
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
                    self.end_setup(nic);
                }
            },
            Some(Setup::Asked(_, broken)) => {
                // The violation is reported once the application has answered.
                *broken = Some(DisconnectReason::PeerMisbehaved(Fault::Early.rule()));
                *bytes = &[];
            }
            None => *bytes = &[],
        }
        None
    }

    /// Handles the end of the stream, or a missed deadline, before the connection was open.
    pub(in crate::provider::iwarp) fn on_setup_lost(
        &mut self,
        nic: &mut Nic,
        reason: ConnectError,
    ) {
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
                self.end_setup(nic);
            }
            Some(Setup::Active { .. }) | None => self.fail_setup(nic, reason),
        }
    }

    /// Accepts the peer, as the application asks. Returns what both ends agreed on, and why the connection is broken
    /// already, if it is.
    pub(in crate::provider::iwarp) fn accept(
        &mut self,
        nic: &mut Nic,
        params: &ConnectionParams<'_>,
    ) -> Option<(Agreement, Option<DisconnectReason>)> {
        if self.state != ConnectionState::Asked {
            return None;
        }
        let Setup::Asked(asked, broken) = *self.setup.take()? else { return None };
        let offer = offer(&nic.config, params);
        let (reply, agreement) = match asked.accept(&offer, params.private_data) {
            Ok(accepted) => accepted,
            Err(fault) => {
                self.send_frame(nic, &asked.reject(&[]));
                self.fail_setup(nic, ConnectError::BadHandshake(fault.rule()));
                return None;
            }
        };
        let sent = self.send_frame(nic, &reply);
        self.open(nic, &agreement, Box::default());
        self.opening = Opening::Listening(agreement.rtr);
        Some((agreement, broken.or((!sent).then_some(DisconnectReason::Lost))))
    }

    /// Rejects the peer, as the application asks.
    pub(in crate::provider::iwarp) fn reject(&mut self, nic: &mut Nic, private_data: &[u8]) {
        let Some(Setup::Asked(asked, broken)) = self.setup.take().map(|setup| *setup) else {
            return;
        };
        self.send_frame(nic, &asked.reject(private_data));
        self.socket.shutdown_write();
        if self.state.step(Step::Rejected) {
            self.set_deadline(nic, nic.config.close_timeout);
        }
        if broken.is_some() {
            self.end_setup(nic);
        }
        self.unsettle(nic);
    }

    /// Ends a connection whose setup failed, and reports the reason.
    pub(in crate::provider::iwarp) fn fail_setup(&mut self, nic: &mut Nic, reason: ConnectError) {
        self.setup = None;
        nic.stags.destroy(self.qp);
        nic.reports.push(Event::Failed { qp: self.qp, reason });
        self.end_setup(nic);
    }

    /// Returns whether the connection is being set up, and the next octets are part of that.
    pub(in crate::provider::iwarp) const fn is_in_setup(&self) -> bool {
        self.setup.is_some()
    }

    fn on_answer(&mut self, nic: &mut Nic, answer: MpaReply) -> Option<Agreement> {
        match answer {
            MpaReply::Rejected { .. } => {
                self.fail_setup(nic, ConnectError::Rejected);
                None
            }
            MpaReply::Accepted { agreement, private_data } => {
                self.setup = None;
                self.open(nic, &agreement, private_data);
                self.opening = Opening::Unheard(0);
                self.set_deadline(nic, keepalive_after(0));
                Some(agreement)
            }
        }
    }

    fn open(&mut self, nic: &mut Nic, agreement: &Agreement, private_data: Box<[u8]>) {
        if !self.state.step(Step::Agreed) {
            return;
        }
        self.deadline = None;
        nic.reports.push(Event::Established {
            qp: self.qp,
            private_data,
            ord: agreement.ord,
            ird: agreement.ird,
        });
        self.unsettle(nic);
    }

    /// Ends a connection that is not open.
    fn end_setup(&mut self, nic: &mut Nic) {
        let owes = self.end(nic);
        debug_assert!(!owes, "a queue pair that was never open owes no completions");
    }

    /// Sends a whole frame into the empty send buffer of a fresh connection.
    fn send_frame(&self, nic: &mut Nic, frame: &[u8]) -> bool {
        nic.counters.syscalls += 1;
        matches!(self.socket.send(&[IoSlice::new(frame)]), Ok(Some(sent)) if sent == frame.len())
    }

    /// Sends a Terminate about a Reply; RFC 6581 section 4.1 allows it before the stream is open.
    fn send_terminate(&self, nic: &mut Nic, code: Code) {
        let fpdu = Transmitter::new(None, Mulpdu::default()).terminate(code, None);
        self.send_frame(nic, &[fpdu.prefix(), fpdu.trailer()].concat());
    }
}
