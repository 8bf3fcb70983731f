//! Connection setup: the MPA handshake at both ends.
//!
//! # Normal operation
//!
//! A [`Handshake`] has a socket and the number of a slot, and nothing to send or receive messages with. It lives as
//! [`SetupState`] says. Once both ends have agreed, a connection takes its slot, and its socket.
//!
//! # Recovery
//!
//! None. A passive handshake that fails before the peer's request was reported is counted and forgotten. One whose peer
//! is lost, or breaks a rule, while the application has the request becomes a connection that ends at once.

use std::io::{self, ErrorKind, IoSlice};

use haulage_proto::iwarp::mpa::Mulpdu;
use haulage_proto::iwarp::mpa::handshake::{Agreement, Fault, MpaReply};
use haulage_proto::iwarp::terminate::Code;
use haulage_proto::iwarp::transmit::Transmitter;
use haulage_proto::time::Instant;
use haulage_proto::verbs::QpNum;

use super::intake::{Intake, Wanted};
use super::lane::Lane;
use super::nic::Nic;
use super::opening::Opening;
use super::reactor::Reactor;
use super::setup::{Setup, offer};
use crate::provider::base::{SetupState, SetupStep};
use crate::provider::{ConnectError, ConnectionParams, DisconnectReason, Event, PeerUser};
use crate::sys::socket::Socket;

/// A connection that is being set up.
#[derive(Debug)]
pub(super) struct Handshake {
    lane: Lane,
    intake: Intake,
    state: SetupState,
    /// `None` once the handshake has failed.
    setup: Option<Setup>,
    connecting: Connecting,
}

/// The terms on which a handshake becomes a connection.
#[derive(Debug)]
pub(super) struct Agreed {
    pub(super) agreement: Agreement,
    pub(super) opening: Opening,
    /// The private data of the passive end's answer, at the active end.
    pub(super) private_data: Box<[u8]>,
    /// The reason for which the connection is broken already, if it is.
    pub(super) broken: Option<DisconnectReason>,
}

/// Whether a ring reports the end of the TCP connect.
///
/// | from | to | when |
/// |---|---|---|
/// | `Unasked` | `Asked` | a ring was asked to report when the socket can be written to |
/// | any | `Over` | the socket can be written to |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connecting {
    /// The socket is being connected. With epoll, the report comes without asking.
    Unasked,
    /// A request of the ring holds the socket.
    Asked,
    /// The socket was connected, or could not be.
    Over,
}

impl Handshake {
    /// Makes a handshake under the number of a slot: of a socket that is being connected, or that was accepted.
    pub(super) fn new(qp: QpNum, socket: Socket, setup: Setup) -> Self {
        let (state, connecting) = match setup {
            Setup::Active { .. } => (SetupState::Connecting, Connecting::Unasked),
            Setup::Passive { .. } | Setup::Asked(..) => (SetupState::Awaiting, Connecting::Over),
        };
        let (lane, intake) = (Lane::new(qp, socket), Intake::new());
        Self { lane, intake, state, setup: Some(setup), connecting }
    }

    /// Begins the time that the peer has.
    pub(super) fn begin(&mut self, nic: &mut Nic) {
        self.lane.set_deadline(nic, nic.config.handshake_timeout);
        self.lane.unsettle(nic);
    }

    /// Goes on, as the socket can be written to, or could not be connected.
    pub(super) fn on_writable(&mut self, nic: &mut Nic) {
        self.connecting = Connecting::Over;
        if self.state == SetupState::Connecting {
            self.on_connected(nic);
        }
        self.lane.unsettle(nic);
    }

    /// Takes octets of the peer; those behind its Reply stay in `octets`. Returns what both ends agreed on, once they
    /// have.
    pub(super) fn on_octets(&mut self, nic: &mut Nic, octets: &mut &[u8]) -> Option<Agreed> {
        match &mut self.setup {
            Some(Setup::Active { handshake, .. }) => match handshake.handle(octets) {
                Ok(None) => {}
                Ok(Some(MpaReply::Rejected { .. })) => self.fail(nic, ConnectError::Rejected),
                Ok(Some(MpaReply::Accepted { agreement, private_data })) => {
                    let opening = Opening::Unheard(0);
                    return Some(Agreed { agreement, opening, private_data, broken: None });
                }
                Err(fault) => {
                    if let Some(code) = fault.code() {
                        self.send_terminate(nic, code);
                    }
                    self.fail(nic, ConnectError::BadHandshake(fault.rule()));
                }
            },
            Some(Setup::Passive { .. }) => self.on_request_octets(nic, octets),
            Some(Setup::Asked(_, broken)) => {
                // The violation is reported once the application has answered.
                *broken = Some(DisconnectReason::PeerMisbehaved(Fault::Early.rule()));
            }
            None => {}
        }
        *octets = &[];
        None
    }

    /// Notes that the reactor reports no more octets, unless it is asked again.
    pub(super) fn on_receive_over(&mut self, nic: &mut Nic) {
        self.intake.on_receive_over();
        self.lane.unsettle(nic);
    }

    /// Handles the end of the socket's input.
    pub(super) fn on_input_end(&mut self, nic: &mut Nic) {
        self.intake.end();
        self.lane.unsettle(nic);
        self.on_lost(nic, ConnectError::BadHandshake("closed before it was complete"));
    }

    /// Ends the handshake because this deadline has passed.
    pub(super) fn on_deadline(&mut self, nic: &mut Nic, deadline: Instant) {
        if self.lane.take_deadline(deadline) {
            self.on_lost(nic, ConnectError::TimedOut);
        }
    }

    /// Ends a handshake whose peer is silent. Returns whether the peer's request was awaited.
    pub(super) fn evict(&mut self, nic: &mut Nic) -> bool {
        let is_awaited = self.state == SetupState::Awaiting;
        if is_awaited {
            self.end(nic);
        }
        is_awaited
    }

    /// Accepts the peer, as the application asks. Returns the terms of the connection, if there was a request.
    pub(super) fn accept(
        &mut self,
        nic: &mut Nic,
        params: &ConnectionParams<'_>,
    ) -> Option<Agreed> {
        let Some(Setup::Asked(asked, broken)) = &self.setup else { return None };
        match asked.accept(&offer(&nic.config, params), params.private_data) {
            Ok((reply, agreement)) => {
                let sent = self.send_frame(nic, &reply);
                let broken = broken.or((!sent).then_some(DisconnectReason::Lost));
                let opening = Opening::Listening(agreement.rtr);
                Some(Agreed { agreement, opening, private_data: Box::default(), broken })
            }
            Err(fault) => {
                self.send_frame(nic, &asked.reject(&[]));
                self.fail(nic, ConnectError::BadHandshake(fault.rule()));
                None
            }
        }
    }

    /// Rejects the peer, as the application asks.
    pub(super) fn reject(&mut self, nic: &mut Nic, private_data: &[u8]) {
        let Some(Setup::Asked(asked, broken)) = &self.setup else { return };
        self.send_frame(nic, &asked.reject(private_data));
        self.lane.socket().shutdown_write();
        let is_broken = broken.is_some();
        self.setup = None;
        if self.state.step(SetupStep::Rejected) {
            self.lane.set_deadline(nic, nic.config.close_timeout);
        }
        if is_broken {
            self.end(nic);
        }
        self.lane.unsettle(nic);
    }

    /// Gives the handshake up, as the application asks.
    pub(super) fn disconnect(&mut self, nic: &mut Nic) {
        match self.state {
            SetupState::Connecting | SetupState::Requesting => {
                self.fail(nic, ConnectError::System(ErrorKind::ConnectionAborted));
            }
            SetupState::Asked => self.reject(nic, &[]),
            SetupState::Awaiting | SetupState::Leaving | SetupState::Closed => {}
        }
    }

    /// Has the reactor report what the handshake waits for.
    pub(super) fn settle(&mut self, nic: &mut Nic, reactor: &mut Reactor) {
        self.lane.begin_settling();
        // Epoll reports everything from the start, so nothing is asked of it.
        if !reactor.receives() {
            return;
        }
        let wanted = if self.wants_input() { Wanted::Yes } else { Wanted::No };
        self.intake.settle(nic, &mut self.lane, reactor, wanted);
        if self.state == SetupState::Connecting && self.connecting == Connecting::Unasked {
            if reactor.writable(self.lane.socket().fd(), self.lane.qp()).is_ok() {
                self.connecting = Connecting::Asked;
            } else {
                self.lane.unsettle(nic);
            }
        }
    }

    /// Reads the socket into `room`, as epoll has reported octets.
    pub(super) fn read(&self, nic: &mut Nic, room: &mut [u8]) -> io::Result<Option<usize>> {
        nic.counters.syscalls += 1;
        self.lane.socket().receive(room)
    }

    /// Gives the socket, and the way its octets come in, to a connection.
    pub(super) fn into_parts(self) -> (Lane, Intake) {
        (self.lane, self.intake)
    }

    /// Returns the user at the other end, if the system knows it.
    pub(super) fn peer_user(&self) -> PeerUser {
        self.lane.socket().peer_user()
    }

    /// Returns whether octets should be read or awaited.
    pub(super) fn wants_input(&self) -> bool {
        let is_silent = matches!(self.state, SetupState::Connecting | SetupState::Closed);
        !is_silent && !self.intake.is_over()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state == SetupState::Closed
    }

    /// Returns whether the slot of the closed handshake may be freed, since the ring holds no request of it.
    pub(super) fn is_released(&self) -> bool {
        let is_asked = self.connecting == Connecting::Asked;
        if is_asked {
            // Completes the ring's request; `Writable` comes back to us.
            self.lane.socket().shutdown();
        }
        self.intake.is_off() && !is_asked
    }

    /// Handles the end of the TCP connect, successful or not.
    fn on_connected(&mut self, nic: &mut Nic) {
        if let Err(error) = self.lane.socket().connected() {
            return self.fail(
                nic,
                match error.kind() {
                    ErrorKind::ConnectionRefused => ConnectError::Refused,
                    ErrorKind::TimedOut => ConnectError::TimedOut,
                    kind => ConnectError::System(kind),
                },
            );
        }
        self.state.step(SetupStep::Connected);
        if let Some(Setup::Active { request, .. }) = &mut self.setup {
            let request = std::mem::take(request);
            if !self.send_frame(nic, &request) {
                self.fail(nic, ConnectError::System(ErrorKind::ConnectionReset));
            }
        }
    }

    /// Takes octets of the peer's request, and reports it once it is complete.
    fn on_request_octets(&mut self, nic: &mut Nic, octets: &mut &[u8]) {
        let Some(Setup::Passive { handshake, listener, peer, place }) = &mut self.setup else {
            return;
        };
        match handshake.handle(octets) {
            Ok(None) => {}
            Ok(Some(asked)) => {
                let (listener, peer, place) = (*listener, *peer, std::mem::take(place));
                let (qp, private_data) = (self.lane.qp(), Box::from(asked.private_data()));
                self.setup = Some(Setup::Asked(asked, None));
                self.state.step(SetupStep::Requested);
                self.lane.clear_deadline();
                let process = None;
                let request = Event::Request { listener, qp, peer, process, private_data, place };
                nic.reports.push(request);
            }
            Err(fault) => {
                if let Some(reply) = handshake.refusal(fault) {
                    self.send_frame(nic, &reply);
                }
                nic.counters.newcomers.malformed += 1;
                self.end(nic);
            }
        }
    }

    /// Handles the end of the stream, or a missed deadline.
    fn on_lost(&mut self, nic: &mut Nic, reason: ConnectError) {
        match &mut self.setup {
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
            Some(Setup::Active { .. }) => self.fail(nic, reason),
            None => self.end(nic),
        }
    }

    /// Ends a handshake that the application knows of, and reports the reason.
    fn fail(&mut self, nic: &mut Nic, reason: ConnectError) {
        nic.reports.push(Event::Failed { qp: self.lane.qp(), reason });
        self.end(nic);
    }

    /// Ends the handshake.
    fn end(&mut self, nic: &mut Nic) {
        self.setup = None;
        if self.state.step(SetupStep::Ended) {
            self.lane.unsettle(nic);
        }
    }

    /// Sends a whole frame into the empty send buffer of a fresh socket.
    fn send_frame(&self, nic: &mut Nic, frame: &[u8]) -> bool {
        nic.counters.syscalls += 1;
        let sent = self.lane.socket().send(&[IoSlice::new(frame)]);
        matches!(sent, Ok(Some(sent)) if sent == frame.len())
    }

    /// Sends a Terminate about a Reply; RFC 6581 section 4.1 allows it before the stream is open.
    fn send_terminate(&self, nic: &mut Nic, code: Code) {
        let fpdu = Transmitter::new(None, Mulpdu::default()).terminate(code, None);
        self.send_frame(nic, &[fpdu.prefix(), fpdu.trailer()].concat());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_is_no_connection() {
        assert!(size_of::<Handshake>() <= 512, "{}", size_of::<Handshake>());
    }
}
