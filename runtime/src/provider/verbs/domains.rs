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

use std::sync::Arc;

use haulage_proto::verbs::QpNum;

use super::helper::Helper;
use crate::provider::Waker;
use crate::sys::ibverbs::{Again, Device, Domain, Refused, Region, Registered};

/// The protection domains of one provider.
#[derive(Debug)]
pub(super) struct Domains {
    /// The one in which our memory was registered at first.
    first: Arc<Domain>,
    /// Registers our memory in others.
    helper: Helper<Order, Prepared>,
    /// For how many connections on their way up.
    preparing: usize,
}

impl Domains {
    /// Begins with the domain in which our memory is registered. `waker` tells when it is in another, too.
    pub(super) const fn new(first: Arc<Domain>, waker: Waker) -> Self {
        Self { first, helper: Helper::new(waker, Order::carry_out), preparing: 0 }
    }

    /// Returns the domain in which our memory was registered at first.
    pub(super) const fn first(&self) -> &Arc<Domain> {
        &self.first
    }

    /// Returns the place in the first domain.
    pub(super) fn first_place(&self) -> Place {
        Place { domain: Arc::clone(&self.first), regions: Vec::new() }
    }

    /// Has a place prepared for a connection in a domain of its own, which [`next`](Self::next) returns.
    pub(super) fn prepare(
        &mut self,
        device: &Device,
        regions: &[Region],
        qp: QpNum,
    ) -> Result<(), Refused> {
        let domain = Domain::new(device)?;
        let order = Order::Register(qp, Again::of(regions, domain));
        let ordered = self.helper.order(order);
        ordered.map_err(|error| Refused::of("having memory registered", error))?;
        self.preparing += 1;
        Ok(())
    }

    /// Returns whether places are being prepared.
    pub(super) const fn prepares(&self) -> bool {
        self.preparing > 0
    }

    /// Returns what came of preparing a place, if one is ready.
    pub(super) fn next(&mut self) -> Option<Prepared> {
        let prepared = self.helper.next()?;
        self.preparing -= 1;
        Some(prepared)
    }

    /// Lets go of memory in the domain of a connection that is gone.
    pub(super) fn let_go(&mut self, registered: Vec<Registered>) {
        if !registered.is_empty() {
            // If there is no thread for it, it has been done here.
            let _ = self.helper.order(Order::Deregister(registered));
        }
    }
}

/// A protection domain, and our memory in it, if it is not the one in which it is anyway.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) domain: Arc<Domain>,
    pub(super) regions: Vec<Region>,
}

/// What is done beside the core's turn.
#[derive(Debug)]
enum Order {
    /// For a connection on its way up.
    Register(QpNum, Again),
    /// Of one that is gone.
    Deregister(Vec<Registered>),
}

/// What came of registering for a connection.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) qp: QpNum,
    pub(super) octets: u64,
    pub(super) made: Result<(Arc<Domain>, Vec<Registered>), Refused>,
}

impl Order {
    /// Carries it out, which may take long.
    fn carry_out(self) -> Option<Prepared> {
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
