//! How memory is opened to peers on this device: by windows, or by calls.

use std::rc::Rc;

use haulage_mr_pool::{Local, Strategy};
use haulage_proto::verbs::{Access, Handle, QpNum};

use super::Unavailable;
use super::grants::Grants;
use super::windows::Windows;
use crate::provider::Operation;
use crate::sys::ibverbs::{Domain, Subject};

/// The registrations of one provider.
#[derive(Debug)]
pub(super) enum Registrations {
    Windows(Box<Windows>),
    Grants(Grants),
}

impl Registrations {
    pub(super) fn new(
        domain: &Rc<Domain>,
        strategy: Strategy,
        (count, connections): (usize, usize),
    ) -> Result<Self, Unavailable> {
        Ok(match strategy {
            Strategy::Window => Self::Windows(Box::new(Windows::new(domain, count, connections)?)),
            Strategy::FastReg | Strategy::PerCall => Self::Grants(Grants::new(domain, count)),
        })
    }

    /// Tells whether each connection that we ask for is to have a protection domain of its own.
    pub(super) const fn need_domains(&self) -> bool {
        matches!(self, Self::Grants(_))
    }

    /// Tells whether another connection may share the protection domain; see [`Grants`].
    pub(super) fn admit_another(&self) -> bool {
        match self {
            Self::Windows(_) => true,
            Self::Grants(grants) => !grants.in_use(),
        }
    }

    /// Draws a handle for a use by `qp`, whose protection domain is no other's where it is given.
    pub(super) fn reserve(
        &mut self,
        (qp, domain): (QpNum, Option<&Rc<Domain>>),
        lease: &Local,
        access: Access,
        scrap: Option<u64>,
    ) -> Option<Handle> {
        match self {
            Self::Windows(windows) => windows.reserve(qp),
            Self::Grants(grants) => grants.reserve((qp, domain?), lease, access, scrap),
        }
    }

    /// Returns the offset of a lease's first octet: windows begin at zero, a registration where the
    /// memory is, which tells the peer an address.
    pub(super) fn offset(&self, lease: &Local) -> u64 {
        match self {
            Self::Windows(_) => 0,
            Self::Grants(_) => lease.bytes().as_ptr().addr() as u64,
        }
    }

    /// Says what a request that is about to be posted on `qp` is about.
    pub(super) fn subject(&self, operation: &Operation, qp: QpNum) -> Subject<'_> {
        match (self, operation) {
            (Self::Windows(windows), Operation::FastReg { handle, .. }) => {
                windows.reserved(*handle, qp).map_or(Subject::Nothing, Subject::Window)
            }
            (Self::Windows(windows), Operation::LocalInv { handle }) => {
                if windows.is_open(*handle, qp) { Subject::Nothing } else { Subject::Done }
            }
            (Self::Grants(grants), Operation::FastReg { handle, .. }) => {
                grants.reserved(*handle, qp).map_or(Subject::Nothing, Subject::Grant)
            }
            // A call takes it back, when the request's turn has come.
            (Self::Grants(_), Operation::LocalInv { .. }) => Subject::Done,
            _ => Subject::Nothing,
        }
    }

    /// Takes note that `qp`'s `handle` was invalidated. Returns whether it was open.
    pub(super) fn closed(&mut self, handle: Handle, qp: QpNum) -> bool {
        match self {
            Self::Windows(windows) => windows.closed(handle, qp),
            Self::Grants(grants) => grants.close(handle, qp),
        }
    }

    /// Takes note that the device closed what does not belong to who asked.
    pub(super) fn stolen(&mut self, handle: Handle) {
        if let Self::Windows(windows) = self {
            windows.stolen(handle);
        }
    }

    /// Takes everything from a queue pair that has failed.
    pub(super) fn release(&mut self, qp: QpNum) {
        match self {
            Self::Windows(windows) => windows.release(qp),
            Self::Grants(grants) => grants.release(qp),
        }
    }

    /// Takes everything from everybody.
    pub(super) fn clear(&mut self) {
        match self {
            Self::Windows(windows) => windows.clear(),
            Self::Grants(grants) => grants.clear(),
        }
    }
}
