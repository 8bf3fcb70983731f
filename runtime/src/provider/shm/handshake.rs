//! Connection setup: one request and one answer over an abstract Unix socket.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use super::config::Expose;
use super::connection::Connection;
use super::ended::Ended;
use super::hello::{ANOTHER_RELEASE, Hello, Kind, LENGTH_MAX, PRIVATE_DATA_MAX, Refusal};
use super::nic::Nic;
use super::port::Outflow;
use super::ring::{Consumer, Producer};
use super::segment::{Layout, Segment};
use super::setup::{Exposure, Setup, Theirs, Unusable, hello};
use super::table::Registrations;
use crate::provider::base::{ConnectionState, Step};
use crate::provider::{ConnectError, ConnectionParams, DisconnectReason, Event};
use crate::sys::barrier::Barrier;
use crate::sys::elsewhere::drop_elsewhere;
use crate::sys::shared::is_memory;
use crate::sys::unix::{self, Stream};

/// The terms that follow from the two messages of a setup.
#[derive(Clone, Copy, Debug)]
struct Agreed {
    /// The peer takes part in heavy barriers.
    barriers: bool,
    /// The part of our memory that the peer sees.
    exposure: Exposure,
    ord: u32,
    ird: u32,
}

impl Agreed {
    fn between(ours: &Hello, theirs: &Hello) -> Self {
        let exposure = if ours.region.is_some() { Exposure::Whole } else { Exposure::Nothing };
        let (ord, ird) = (ours.ord.min(theirs.ird), ours.ird.min(theirs.ord));
        Self { barriers: theirs.barriers, exposure, ord, ird }
    }
}

/// Sends a message, and the memory that goes with it.
fn say(nic: &mut Nic, socket: &Stream, hello: &Hello, segment: &OwnedFd) -> std::io::Result<()> {
    nic.counters.syscalls += 1;
    let region = nic.region.as_ref().filter(|_| hello.region.is_some());
    let fds: Vec<BorrowedFd<'_>> =
        [segment.as_fd()].into_iter().chain(region.map(|region| region.memfd.as_fd())).collect();
    socket.send(&hello.encode(), &fds)
}

impl Connection {
    /// Tries to connect, and sends the request.
    pub(super) fn connect(&mut self, nic: &mut Nic) -> Result<(), ConnectError> {
        let Some(Setup::Active { name, question, memfd, .. }) = self.setup.as_deref_mut() else {
            return Ok(());
        };
        nic.counters.syscalls += 2;
        let socket = Stream::connect(name).map_err(|e| match e.kind() {
            ErrorKind::ConnectionRefused => ConnectError::Refused,
            kind => ConnectError::System(kind),
        })?;
        let Some(socket) = socket else { return Ok(()) };
        // Any process can take the name first and listen there.
        let peer = socket.peer().map_err(|e| ConnectError::System(e.kind()))?;
        if !peer.may_share_with(unix::user()) {
            return Err(ConnectError::System(ErrorKind::PermissionDenied));
        }
        if let Some(memfd) = memfd.take() {
            say(nic, &socket, question, &memfd).map_err(|e| ConnectError::System(e.kind()))?;
        }
        self.socket = Some(socket);
        self.state.step(Step::Connected);
        Ok(())
    }

    /// Reads octets of a peer before the connection is open.
    pub(super) fn on_setup_octets(&mut self, nic: &mut Nic) {
        let (Some(socket), Some(setup)) = (&self.socket, self.setup.as_deref_mut()) else { return };
        let (Setup::Active { incoming, .. } | Setup::Passive { incoming, .. }) = setup else {
            // The peer has sent its whole message.
            self.over |= !socket.discard();
            return;
        };
        loop {
            let (mut octets, mut fds) = ([0; LENGTH_MAX], Vec::new());
            nic.counters.syscalls += 1;
            let result = match socket.receive(&mut octets, &mut fds) {
                _ if fds.iter().any(|fd| !is_memory(fd.as_fd())) => {
                    // Closing another kind of file may take as long as the peer likes.
                    drop_elsewhere(fds);
                    let what = "a descriptor of something else than memory";
                    return self.fail_setup(nic, ConnectError::BadHandshake(what));
                }
                Ok(None) => return,
                Ok(Some(0)) | Err(_) => {
                    return self.fail_setup(nic, ConnectError::System(ErrorKind::ConnectionReset));
                }
                Ok(Some(count)) => incoming.take(octets.get(..count).unwrap_or_default(), fds),
            };
            match result {
                Ok(None) => {}
                Ok(Some((hello, fds))) => {
                    self.on_hello(nic, hello, &fds);
                    return drop_elsewhere(fds);
                }
                Err(what) => {
                    if what == ANOTHER_RELEASE && self.state != ConnectionState::Requesting {
                        // The peer learns from the format of the answer why it is refused.
                        self.say_no(nic, &[], None);
                    }
                    return self.fail_setup(nic, ConnectError::BadHandshake(what));
                }
            }
        }
    }

    fn on_hello(&mut self, nic: &mut Nic, hello: Hello, fds: &[OwnedFd]) {
        let active = self.state == ConnectionState::Requesting;
        match hello.kind {
            Kind::Reject if active => {
                let refused = |refusal: Refusal| ConnectError::BadHandshake(refusal.reason());
                let reason = hello.refusal.map_or(ConnectError::Rejected, refused);
                return self.fail_setup(nic, reason);
            }
            Kind::Accept if active => {}
            Kind::Ask if !active => {}
            _ => {
                let what = "a request instead of an answer, or the reverse";
                return self.fail_setup(nic, ConnectError::BadHandshake(what));
            }
        }
        let peer = self.socket.as_ref().and_then(|socket| socket.peer().ok());
        let process = peer.map_or(0, |peer| peer.process);
        let theirs = match Theirs::map(nic, &hello, fds, process) {
            Ok(theirs) => theirs,
            Err(Unusable::Wrong(what)) => {
                return self.fail_setup(nic, ConnectError::BadHandshake(what));
            }
            Err(Unusable::Refused(refusal)) => return self.refuse(nic, refusal),
        };
        match self.setup.take().map(|setup| *setup) {
            Some(Setup::Active { question, segment, .. }) => {
                let agreed = Agreed::between(&question, &hello);
                self.open(nic, segment, theirs, agreed);
                self.established(nic, hello.private_data, (agreed.ord, agreed.ird));
            }
            Some(Setup::Passive { listener, peer, .. }) => {
                let private_data = hello.private_data.clone();
                self.setup = Some(Box::new(Setup::Asked { question: hello, theirs }));
                self.state.step(Step::Requested);
                self.deadline = None;
                nic.reports.push(Event::Request {
                    listener,
                    qp: self.qp,
                    peer,
                    process: self.peer_process(),
                    private_data,
                });
            }
            other => self.setup = other.map(Box::new),
        }
    }

    /// Returns the process at the other end, if the system names it.
    fn peer_process(&self) -> Option<u32> {
        u32::try_from(self.socket.as_ref()?.peer().ok()?.process).ok()
    }

    /// Accepts the peer.
    pub(super) fn accept(&mut self, nic: &mut Nic, layout: Layout, params: &ConnectionParams<'_>) {
        let Some(Setup::Asked { question, theirs }) = self.setup.take().map(|setup| *setup) else {
            return;
        };
        let exposure = match nic.config.expose {
            Expose::Always => Exposure::Whole,
            Expose::Connecting => Exposure::Nothing,
        };
        let made = hello(nic, Kind::Accept, layout, params, exposure)
            .map_err(|_| ())
            .and_then(|answer| Ok((answer, Segment::create(layout).map_err(drop)?)));
        let Ok((answer, (segment, memfd))) = made else {
            // The application expects a connection: it gets one that is lost.
            self.state.step(Step::Agreed);
            self.established(nic, Box::default(), (0, 0));
            let reason = DisconnectReason::Lost;
            return self.end(nic, Ended::Closed, reason, None);
        };
        let said = self.socket.as_ref().map(|socket| say(nic, socket, &answer, &memfd));
        self.over |= !matches!(said, Some(Ok(())));
        let agreed = Agreed::between(&answer, &question);
        self.open(nic, segment, theirs, agreed);
        self.established(nic, Box::default(), (agreed.ord, agreed.ird));
    }

    /// Rejects the peer.
    pub(super) fn reject(&mut self, nic: &mut Nic, private_data: &[u8]) {
        if self.state == ConnectionState::Asked {
            let length = private_data.len().min(PRIVATE_DATA_MAX);
            self.say_no(nic, private_data.get(..length).unwrap_or_default(), None);
            self.state.step(Step::Ended);
            nic.closed.push(self.qp);
        }
    }

    /// Gives up connection setup because of a limit of ours, and tells the peer which, if it sent the request.
    fn refuse(&mut self, nic: &mut Nic, refusal: Refusal) {
        if self.state != ConnectionState::Requesting {
            self.say_no(nic, &[], Some(refusal));
        }
        self.fail_setup(nic, ConnectError::BadHandshake(refusal.own_reason()));
    }

    fn say_no(&self, nic: &mut Nic, private_data: &[u8], refusal: Option<Refusal>) {
        let params = ConnectionParams { private_data, ord: 0, ird: 0 };
        let answer = hello(nic, Kind::Reject, nic.layout, &params, Exposure::Nothing);
        if let (Some(socket), Ok(answer)) = (&self.socket, answer) {
            nic.counters.syscalls += 1;
            // A peer that misses the message notices that the socket closes.
            let _ = socket.send(&Hello { refusal, ..answer }.encode(), &[]);
        }
    }

    /// Gives up connection setup.
    pub(super) fn fail_setup(&mut self, nic: &mut Nic, reason: ConnectError) {
        let active =
            matches!(self.state, ConnectionState::Connecting | ConnectionState::Requesting);
        if !self.state.step(Step::Ended) {
            return;
        }
        if active {
            nic.reports.push(Event::Failed { qp: self.qp, reason });
        } else {
            nic.counters.newcomers.count(&reason);
        }
        nic.closed.push(self.qp);
    }

    fn open(&mut self, nic: &Nic, segment: Segment, theirs: Theirs, agreed: Agreed) {
        let Agreed { barriers, exposure, ord, .. } = agreed;
        self.state.step(Step::Agreed);
        let barrier = if nic.barriers && barriers { Barrier::Light } else { Barrier::Full };
        self.outflow = Some(Outflow {
            qp: self.qp,
            producer: Producer::new(segment, barrier),
            region: theirs.region,
            exposes: exposure == Exposure::Whole,
            registrations: Registrations::default(),
            pending: VecDeque::new(),
            ord,
            rings: false,
        });
        self.consumer = Some(Consumer::new(theirs.segment));
        (self.deadline, self.heard) = (None, nic.now);
    }

    fn established(&self, nic: &mut Nic, private_data: Box<[u8]>, (ord, ird): (u32, u32)) {
        let qp = self.qp;
        nic.reports.push(Event::Established { qp, private_data, ord, ird });
    }
}
