//! Protection domains on a device without memory windows: one for each connection.
//!
//! # Normal operation
//!
//! While one connection is in the domain in which our memory was registered at first, every other has one of its own,
//! in which our memory is registered once more; [`Grants`](super::grants::Grants) says why. That locks every page of it
//! again, which takes long for much memory. So a thread beside the core's registers it while the connection is being
//! set up, and deregisters it when the connection is gone.
//!
//! # Limits
//!
//! If the system does not let the memory be locked once more, the connection that it was for fails, and no other. All
//! memory is registered, because it is not known yet which part the connection is going to use.

use std::sync::Arc;

use haulage_proto::verbs::QpNum;

use super::helper::Helper;
use crate::provider::Waker;
use crate::sys::ibverbs::{Again, Device, Domain, Refused, Region, Registered};

/// The protection domains of one provider.
#[derive(Debug)]
pub(super) struct Domains {
    /// The domain in which our memory was registered at first.
    first: Arc<Domain>,
    /// The thread that registers our memory in other domains.
    helper: Helper<Order, Prepared>,
    /// The number of connections being set up whose memory is being registered.
    preparing: usize,
}

impl Domains {
    /// Begins with the domain in which our memory is registered. `waker` is signaled when it is registered in another.
    pub(super) const fn new(first: Arc<Domain>, waker: Waker) -> Self {
        Self { first, helper: Helper::new(waker, Order::carry_out), preparing: 0 }
    }

    /// Returns the domain in which our memory was registered at first.
    pub(super) const fn first(&self) -> &Arc<Domain> {
        &self.first
    }

    /// Returns the first domain, for a connection.
    pub(super) fn first_domain(&self) -> ConnectionDomain {
        ConnectionDomain { domain: Arc::clone(&self.first), regions: Vec::new() }
    }

    /// Has a domain of its own prepared for a connection, which [`next`](Self::next) returns.
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

    /// Returns whether domains are being prepared.
    pub(super) const fn prepares(&self) -> bool {
        self.preparing > 0
    }

    /// Returns the result of preparing a domain, if one is ready.
    pub(super) fn next(&mut self) -> Option<Prepared> {
        let prepared = self.helper.next()?;
        self.preparing -= 1;
        Some(prepared)
    }

    /// Deregisters memory in the domain of a connection that is gone.
    pub(super) fn let_go(&mut self, registered: Vec<Registered>) {
        if !registered.is_empty() {
            // If the helper thread is gone, `order` has dropped the registrations, and so ended them on this thread.
            let _ = self.helper.order(Order::Deregister(registered));
        }
    }
}

/// The protection domain of a connection, and our memory in it, if it is not the first domain.
#[derive(Debug)]
pub(super) struct ConnectionDomain {
    pub(super) domain: Arc<Domain>,
    pub(super) regions: Vec<Region>,
}

/// Work for the thread beside the core's.
#[derive(Debug)]
enum Order {
    /// Register our memory for a connection that is being set up.
    Register(QpNum, Again),
    /// Deregister the memory of a connection that is gone.
    Deregister(Vec<Registered>),
}

/// The result of registering memory for a connection.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) qp: QpNum,
    pub(super) octets: u64,
    pub(super) made: Result<(Arc<Domain>, Vec<Registered>), Refused>,
}

impl Order {
    /// Carries out the order, which may take long.
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
