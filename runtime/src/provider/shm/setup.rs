//! The state of connection setup.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use super::hello::{Hello, Incoming, Kind, PRIVATE_DATA_MAX, Refusal};
use super::nic::Nic;
use super::regions::{Mapped, Unmapped};
use super::segment::{Layout, Segment};
use crate::provider::base::ListenerId;
use crate::provider::{ConnectError, ConnectionParams};
use crate::sys::shared::Unfit;

/// The state of a connection's setup, until it is open.
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
        incoming: Incoming,
    },
    /// A peer has connected, and its request has not arrived.
    Passive { incoming: Incoming, listener: ListenerId, peer: SocketAddr },
    /// The request has arrived; the peer's memory is mapped.
    Asked { question: Hello, theirs: Theirs },
}

/// The memory that a peer shares.
#[derive(Debug)]
pub(super) struct Theirs {
    pub(super) segment: Segment,
    pub(super) region: Option<Mapped>,
}

impl Theirs {
    /// Checks and maps the memory that came with a message of a process.
    pub(super) fn map(
        nic: &Nic,
        hello: &Hello,
        fds: &[OwnedFd],
        process: i32,
    ) -> Result<Self, Unusable> {
        let segment = fds.first().ok_or(Unusable::Wrong("no memory"))?;
        let segment = Segment::open(segment.as_fd(), hello.layout)
            .map_err(|why| Unusable::Wrong(wrong(&why)))?;
        let region = match (hello.region, fds.get(1)) {
            (Some(length), Some(fd)) => {
                Some(nic.regions.map(fd.as_fd(), length, process).map_err(|why| match why {
                    Unmapped::Refused(refusal) => Unusable::Refused(refusal),
                    Unmapped::Unfit(why) => Unusable::Wrong(wrong(&why)),
                })?)
            }
            _ => None,
        };
        Ok(Self { segment, region })
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
        let (memfd, incoming) = (Some(memfd), Incoming::default());
        Ok(Self::Active { name, question, segment, memfd, incoming })
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
