//! What a handshake has come to, and the memory that a peer passes.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use super::hello::{Hello, Kind, PRIVATE_DATA_MAX, PartialHello, Refusal};
use super::nic::Nic;
use super::regions::{Mapped, Room, Unmapped};
use super::segment::{Layout, Segment};
use crate::provider::base::ListenerId;
use crate::provider::{ConnectError, ConnectionParams, Place};
use crate::sys::elsewhere::drop_elsewhere;
use crate::sys::shared::Unfit;

/// The part of a handshake that is left to be done.
#[derive(Debug)]
pub(super) enum Setup {
    /// We connect.
    Active {
        /// The name of the socket to connect to.
        name: Vec<u8>,
        question: Hello,
        segment: Segment,
        /// The descriptor of the segment, until it is passed.
        memfd: Option<OwnedFd>,
        answer: PartialHello,
    },
    /// A peer has connected, and its request has not arrived.
    Passive { question: PartialHello, listener: ListenerId, peer: SocketAddr, place: Place },
    /// The request has arrived.
    Asked { question: Hello, memory: Fit },
}

/// The memory that a peer passed, which was found fit. Nothing of it is mapped.
#[derive(Debug)]
pub(super) struct Fit {
    /// The segment and, if there is room for it, the region.
    fds: Vec<OwnedFd>,
    layout: Layout,
    room: Option<Room>,
}

/// The memory that a peer shares.
#[derive(Debug)]
pub(super) struct Theirs {
    pub(super) segment: Segment,
    pub(super) region: Option<Mapped>,
}

impl Fit {
    /// Checks the memory that came with a message of a process.
    pub(super) fn check(
        nic: &Nic,
        hello: &Hello,
        fds: Vec<OwnedFd>,
        process: i32,
    ) -> Result<Self, Unusable> {
        let mut this = Self { fds, layout: hello.layout, room: None };
        let segment = this.fds.first().ok_or(Unusable::Wrong("no memory"))?;
        Segment::check(segment.as_fd(), hello.layout)
            .map_err(|why| Unusable::Wrong(wrong(&why)))?;
        if let (Some(length), Some(region)) = (hello.region, this.fds.get(1)) {
            let room = nic.regions.check(region.as_fd(), length, process);
            this.room = Some(room.map_err(|why| match why {
                Unmapped::Refused(refusal) => Unusable::Refused(refusal),
                Unmapped::Unfit(why) => Unusable::Wrong(wrong(&why)),
            })?);
        }
        Ok(this)
    }

    /// Maps the memory.
    pub(super) fn map(mut self) -> Result<Theirs, Unusable> {
        let wrong = |why| Unusable::Wrong(wrong(&why));
        let segment = self.fds.first().ok_or(Unusable::Wrong("no memory"))?;
        let segment = Segment::open(segment.as_fd(), self.layout).map_err(wrong)?;
        let region = match (self.room.take(), self.fds.get(1)) {
            (Some(room), Some(region)) => Some(room.map(region.as_fd()).map_err(wrong)?),
            _ => None,
        };
        Ok(Theirs { segment, region })
    }
}

/// Closing the last descriptor of memory that is not mapped frees its pages.
impl Drop for Fit {
    fn drop(&mut self) {
        drop_elsewhere(std::mem::take(&mut self.fds));
    }
}

/// The reason that a peer's memory cannot be used.
pub(super) enum Unusable {
    /// It is not as the peer describes it.
    Wrong(&'static str),
    /// It exceeds a limit of ours.
    Refused(Refusal),
}

const fn wrong(why: &Unfit) -> &'static str {
    match why {
        Unfit::NotSealed => "memory that can be shrunk",
        Unfit::Length => "memory of another length than announced",
        Unfit::System(_) => "memory that cannot be mapped",
    }
}

impl Setup {
    /// Prepares to connect to the listener `name`.
    pub(super) fn active(
        nic: &Nic,
        name: Vec<u8>,
        layout: Layout,
        params: &ConnectionParams<'_>,
    ) -> Result<Self, ConnectError> {
        let question = hello(nic, Kind::Ask, layout, params, Exposure::Whole)?;
        let (segment, memfd) =
            Segment::create(layout).map_err(|e| ConnectError::System(e.kind()))?;
        let (memfd, answer) = (Some(memfd), PartialHello::default());
        Ok(Self::Active { name, question, segment, memfd, answer })
    }
}

/// The part of our memory that goes with a message of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exposure {
    /// The whole region, if there is one.
    Whole,
    /// None of it.
    Nothing,
}

/// Makes our message of connection setup.
pub(super) fn hello(
    nic: &Nic,
    kind: Kind,
    layout: Layout,
    params: &ConnectionParams<'_>,
    exposure: Exposure,
) -> Result<Hello, ConnectError> {
    if params.private_data.len() > PRIVATE_DATA_MAX {
        return Err(ConnectError::BadHandshake("too much private data"));
    }
    Ok(Hello {
        kind,
        ord: params.ord.min(nic.config.ord_max),
        ird: params.ird.min(nic.config.ird_max),
        layout,
        region: nic
            .region
            .as_ref()
            .filter(|_| exposure == Exposure::Whole)
            .map(|region| region.length),
        barriers: nic.barriers,
        refusal: None,
        private_data: params.private_data.into(),
    })
}
