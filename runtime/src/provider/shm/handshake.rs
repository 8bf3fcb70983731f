//! Connection setup: one request and one answer over an abstract Unix socket.
//!
//! # Normal operation
//!
//! A [`Handshake`] has a socket and the number of a slot, and lives as [`SetupState`] says. The memory that comes with a
//! request is checked at once, and mapped only when the application has accepted the peer. Then a connection takes the
//! slot, and the socket.

use std::io::ErrorKind;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use haulage_proto::time::Instant;
use haulage_proto::verbs::QpNum;

use super::config::Expose;
use super::hello::{ANOTHER_RELEASE, Hello, Kind, LENGTH_MAX, PRIVATE_DATA_MAX, Refusal};
use super::nic::Nic;
use super::segment::{Layout, Segment};
use super::setup::{Exposure, Fit, Setup, Theirs, Unusable, hello};
use crate::provider::base::{SetupState, SetupStep};
use crate::provider::{ConnectError, ConnectionParams, Event};
use crate::sys::elsewhere::drop_elsewhere;
use crate::sys::shared::is_memory;
use crate::sys::unix::{self, Stream};

/// A connection that is being set up.
#[derive(Debug)]
pub(super) struct Handshake {
    qp: QpNum,
    state: SetupState,
    /// `None` while the peer has no room for us in its queue.
    socket: Option<Stream>,
    /// `None` once the handshake is over.
    setup: Option<Setup>,
    deadline: Option<Instant>,
    /// The peer has closed the socket.
    over: bool,
}

/// The terms on which a handshake becomes a connection.
#[derive(Debug)]
pub(super) struct Agreed {
    pub(super) qp: QpNum,
    pub(super) socket: Option<Stream>,
    /// The peer has closed the socket.
    pub(super) over: bool,
    /// The private data of the passive end's answer, at the active end.
    pub(super) private_data: Box<[u8]>,
    /// The memory of both ends; `None` if the system gave no memory, so that the connection is lost already.
    pub(super) joint: Option<Joint>,
}

/// The memory of both ends, and the terms that follow from the two messages of a setup.
#[derive(Debug)]
pub(super) struct Joint {
    /// Our segment.
    pub(super) segment: Segment,
    pub(super) theirs: Theirs,
    /// The peer takes part in heavy barriers.
    pub(super) barriers: bool,
    /// The part of our memory that the peer sees.
    pub(super) exposure: Exposure,
    pub(super) ord: u32,
    pub(super) ird: u32,
}

impl Joint {
    fn between(ours: &Hello, theirs: &Hello, segment: Segment, memory: Theirs) -> Self {
        let exposure = if ours.region.is_some() { Exposure::Whole } else { Exposure::Nothing };
        let (ord, ird) = (ours.ord.min(theirs.ird), ours.ird.min(theirs.ord));
        Self { segment, theirs: memory, barriers: theirs.barriers, exposure, ord, ird }
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

impl Handshake {
    /// Makes a handshake under the number of a slot: with a socket that was accepted, or one that is still to be
    /// connected.
    pub(super) fn new(qp: QpNum, socket: Option<Stream>, setup: Setup) -> Self {
        let state = match setup {
            Setup::Active { .. } => SetupState::Connecting,
            Setup::Passive { .. } | Setup::Asked { .. } => SetupState::Awaiting,
        };
        Self { qp, state, socket, setup: Some(setup), deadline: None, over: false }
    }

    /// Begins the time that the peer has.
    pub(super) fn begin(&mut self, nic: &mut Nic) {
        let deadline = nic.now.saturating_add(nic.config.handshake_timeout);
        self.deadline = Some(deadline);
        nic.deadlines.add(deadline, self.qp);
    }

    /// Tries to connect, and sends the request.
    pub(super) fn connect(&mut self, nic: &mut Nic) -> Result<(), ConnectError> {
        let Some(Setup::Active { name, question, memfd, .. }) = &mut self.setup else {
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
        self.state.step(SetupStep::Connected);
        Ok(())
    }

    /// Reads octets of the peer. Returns what both ends agreed on, once they have.
    pub(super) fn on_octets(&mut self, nic: &mut Nic) -> Option<Agreed> {
        let (Some(socket), Some(setup)) = (&self.socket, &mut self.setup) else { return None };
        let (Setup::Active { answer: partial, .. } | Setup::Passive { question: partial, .. }) =
            setup
        else {
            // The peer has sent its whole message.
            self.over |= !socket.discard();
            return None;
        };
        loop {
            let (mut octets, mut fds) = ([0; LENGTH_MAX], Vec::new());
            nic.counters.syscalls += 1;
            let result = match socket.receive(&mut octets, &mut fds) {
                _ if fds.iter().any(|fd| !is_memory(fd.as_fd())) => {
                    // Closing another kind of file may take as long as the peer likes.
                    drop_elsewhere(fds);
                    let what = "a descriptor of something else than memory";
                    return self.fail(nic, ConnectError::BadHandshake(what));
                }
                Ok(None) => return None,
                Ok(Some(0)) | Err(_) => {
                    return self.fail(nic, ConnectError::System(ErrorKind::ConnectionReset));
                }
                Ok(Some(count)) => partial.take(octets.get(..count).unwrap_or_default(), fds),
            };
            match result {
                Ok(None) => {}
                Ok(Some((hello, fds))) => return self.on_hello(nic, hello, fds),
                Err(what) => {
                    if what == ANOTHER_RELEASE && self.state != SetupState::Requesting {
                        // The peer learns from the format of the answer why it is refused.
                        self.say_no(nic, &[], None);
                    }
                    return self.fail(nic, ConnectError::BadHandshake(what));
                }
            }
        }
    }

    /// Ends the handshake if this is its deadline.
    pub(super) fn on_deadline(&mut self, nic: &mut Nic, deadline: Instant) {
        if self.deadline.take_if(|due| *due == deadline).is_some() {
            self.fail(nic, ConnectError::TimedOut);
        }
    }

    /// Accepts the peer, as the application asks: maps its memory, and makes ours. Returns the terms of the connection, if
    /// there was a request.
    pub(super) fn accept(
        &mut self,
        nic: &mut Nic,
        layout: Layout,
        params: &ConnectionParams<'_>,
    ) -> Option<Agreed> {
        let Some(Setup::Asked { question, memory }) =
            self.setup.take_if(|setup| matches!(setup, Setup::Asked { .. }))
        else {
            return None;
        };
        let exposure = match nic.config.expose {
            Expose::Always => Exposure::Whole,
            Expose::Connecting => Exposure::Nothing,
        };
        let made = hello(nic, Kind::Accept, layout, params, exposure)
            .ok()
            .and_then(|answer| Some((answer, memory.map().ok()?, Segment::create(layout).ok()?)));
        // The application expects a connection: if no memory can be had, it gets one that is lost.
        let joint = made.map(|(answer, theirs, (segment, memfd))| {
            let said = self.socket.as_ref().map(|socket| say(nic, socket, &answer, &memfd));
            self.over |= !matches!(said, Some(Ok(())));
            Joint::between(&answer, &question, segment, theirs)
        });
        Some(self.agreed(joint, Box::default()))
    }

    /// Rejects the peer, as the application asks.
    pub(super) fn reject(&mut self, nic: &mut Nic, private_data: &[u8]) {
        if self.state == SetupState::Asked {
            let length = private_data.len().min(PRIVATE_DATA_MAX);
            self.say_no(nic, private_data.get(..length).unwrap_or_default(), None);
            self.end(nic);
        }
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

    /// Fails, and reports the reason to the application, or counts it if the application does not know of the peer.
    pub(super) fn fail(&mut self, nic: &mut Nic, reason: ConnectError) -> Option<Agreed> {
        match self.state {
            SetupState::Connecting | SetupState::Requesting => {
                nic.reports.push(Event::Failed { qp: self.qp, reason });
            }
            SetupState::Awaiting => nic.counters.newcomers.count(&reason),
            SetupState::Asked | SetupState::Leaving | SetupState::Closed => return None,
        }
        self.end(nic);
        None
    }

    pub(super) const fn socket(&self) -> Option<&Stream> {
        self.socket.as_ref()
    }

    pub(super) fn is_connecting(&self) -> bool {
        self.state == SetupState::Connecting
    }

    /// Returns whether the peer's request has not arrived.
    pub(super) fn is_awaited(&self) -> bool {
        self.state == SetupState::Awaiting
    }

    fn on_hello(&mut self, nic: &mut Nic, hello: Hello, fds: Vec<OwnedFd>) -> Option<Agreed> {
        let is_active = self.state == SetupState::Requesting;
        match hello.kind {
            Kind::Reject if is_active => {
                let refused = |refusal: Refusal| ConnectError::BadHandshake(refusal.reason());
                let reason = hello.refusal.map_or(ConnectError::Rejected, refused);
                return self.fail(nic, reason);
            }
            Kind::Accept if is_active => {}
            Kind::Ask if !is_active => {}
            _ => {
                drop_elsewhere(fds);
                let what = "a request instead of an answer, or the reverse";
                return self.fail(nic, ConnectError::BadHandshake(what));
            }
        }
        let peer = self.socket.as_ref().and_then(|socket| socket.peer().ok());
        let process = peer.map_or(0, |peer| peer.process);
        let memory = match Fit::check(nic, &hello, fds, process) {
            Ok(memory) => memory,
            Err(why) => return self.on_unusable(nic, why),
        };
        match self.setup.take() {
            Some(Setup::Active { question, segment, .. }) => match memory.map() {
                Ok(theirs) => {
                    let joint = Joint::between(&question, &hello, segment, theirs);
                    return Some(self.agreed(Some(joint), hello.private_data));
                }
                Err(why) => return self.on_unusable(nic, why),
            },
            Some(Setup::Passive { listener, peer, place, .. }) => {
                let private_data = hello.private_data.clone();
                self.setup = Some(Setup::Asked { question: hello, memory });
                self.state.step(SetupStep::Requested);
                self.deadline = None;
                let (qp, process) = (self.qp, u32::try_from(process).ok());
                let request = Event::Request { listener, qp, peer, process, private_data, place };
                nic.reports.push(request);
            }
            other => self.setup = other,
        }
        None
    }

    /// Gives the handshake up because of the peer's memory. If a limit of ours is the reason, tells the peer which, if it
    /// sent the request.
    fn on_unusable(&mut self, nic: &mut Nic, why: Unusable) -> Option<Agreed> {
        let what = match why {
            Unusable::Wrong(what) => what,
            Unusable::Refused(refusal) => {
                if self.state != SetupState::Requesting {
                    self.say_no(nic, &[], Some(refusal));
                }
                refusal.own_reason()
            }
        };
        self.fail(nic, ConnectError::BadHandshake(what))
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

    fn agreed(&mut self, joint: Option<Joint>, private_data: Box<[u8]>) -> Agreed {
        let (qp, socket, over) = (self.qp, self.socket.take(), self.over);
        Agreed { qp, socket, over, private_data, joint }
    }

    /// Ends the handshake; its slot is freed, and its socket closed, by the next sweep.
    fn end(&mut self, nic: &mut Nic) {
        self.setup = None;
        if self.state.step(SetupStep::Ended) {
            nic.closed.push(self.qp);
        }
    }
}
