//! Where connections are on a device without memory windows: each in a protection domain to itself.
//!
//! # Normal operation
//!
//! While one connection is in the domain in which our memory was registered at first, every other has one of
//! its own, in which it is registered once more; [`Grants`](super::grants::Grants) says why. That locks every
//! page of it again, which takes long where there is much. So a thread beside the core's registers it while
//! the connection waits on its way up, and lets go of it when the connection is gone.
//!
//! # Limits
//!
//! What the system does not let be locked once more costs the connection that it was for, and no other. All
//! is registered: of what a connection is going to send or to take nobody knows yet.

use std::io::ErrorKind;
use std::sync::Arc;

use haulage_proto::time::Instant;
use haulage_proto::verbs::QpNum;

use super::Verbs;
use super::connection::{Objects, Phase};
use crate::provider::ConnectError;
use crate::sys::ibverbs::{Again, Domain, Refused, Region, Registered};

/// A protection domain, and our memory in it, if it is not the one in which it is anyway.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) domain: Arc<Domain>,
    pub(super) regions: Vec<Region>,
}

/// What is done beside the core's turn.
#[derive(Debug)]
pub(super) enum Order {
    /// For a connection on its way up.
    Register(QpNum, Again),
    /// Of one that is gone.
    Deregister(Vec<Registered>),
}

/// What came of registering for a connection.
#[derive(Debug)]
pub(super) struct Prepared {
    qp: QpNum,
    octets: u64,
    made: Result<(Arc<Domain>, Vec<Registered>), Refused>,
}

impl Order {
    /// Carries it out, which may take long.
    pub(super) fn carry_out(self) -> Option<Prepared> {
        match self {
            Self::Register(qp, again) => {
                let octets = again.octets();
                Some(Prepared { qp, octets, made: again.carry_out() })
            }
            Self::Deregister(registered) => {
                drop(registered);
                None
            }
        }
    }
}

impl Verbs {
    /// Finds a place for a connection on its way up, which goes on when it has one.
    pub(super) fn find_place(&mut self, now: Instant, qp: QpNum) {
        if !self.registrations.need_domains() || self.is_domain_free() {
            let place = Place { domain: Arc::clone(&self.domain), regions: Vec::new() };
            return self.on_place(now, qp, Ok(place));
        }
        let ordered = Domain::new(&self.device).and_then(|domain| {
            let order = Order::Register(qp, Again::of(&self.regions, domain));
            self.helper.order(order).map_err(|error| Refused::of("having memory registered", error))
        });
        match ordered {
            Ok(()) => self.preparing += 1,
            Err(refused) => self.on_place(now, qp, Err(refused)),
        }
    }

    /// Goes on with connections whose places are ready.
    pub(super) fn take_places(&mut self, now: Instant) {
        while let Some(Prepared { qp, octets, made }) = self.helper.next() {
            self.preparing -= 1;
            let waits = self.slots.peek(qp).filter(|c| matches!(c.objects, Objects::Id(_)));
            match (waits.map(|connection| connection.phase), made) {
                (Some(Phase::Resolving | Phase::Accepting), Ok((domain, registered))) => {
                    let both = self.regions.iter().zip(registered);
                    let regions = both.map(|(region, again)| region.again(again)).collect();
                    self.on_place(now, qp, Ok(Place { domain, regions }));
                }
                (Some(Phase::Resolving), Err(refused))
                    if refused.error.kind() == ErrorKind::OutOfMemory =>
                {
                    self.failed(qp, ConnectError::Memory(octets));
                }
                (Some(Phase::Resolving | Phase::Accepting), Err(refused)) => {
                    self.on_place(now, qp, Err(refused));
                }
                // It was given up.
                (_, Ok((_, registered))) => self.let_go(registered),
                (_, Err(_)) => {}
            }
        }
    }

    /// Tells whether no connection is in the domain in which our memory is anyway.
    fn is_domain_free(&self) -> bool {
        let mut domains = self.slots.all().filter_map(|qp| self.slots.peek(qp)?.domain());
        !domains.any(|domain| Arc::ptr_eq(domain, &self.domain))
    }

    /// Frees the slot of a connection that is gone.
    pub(super) fn remove(&mut self, qp: QpNum) {
        let Some(connection) = self.slots.remove(qp) else { return };
        let regions = connection.regions.into_iter();
        self.let_go(regions.map(Region::into_registered).collect());
    }

    fn let_go(&mut self, registered: Vec<Registered>) {
        if !registered.is_empty() {
            // If there is no thread for it, it has been done here.
            let _ = self.helper.order(Order::Deregister(registered));
        }
    }
}
