//! A lease that a Call of ours exposes to the peer, and its purpose; and the lease of a Reply that is read.

use haulage_mr_pool::{Exposed, Invalidated, Local};
use haulage_proto::chunk::Reduced;
use haulage_proto::verbs::Handle;

use crate::provider::Quiesced;
use crate::sys::complete;

/// The purpose of a lease that a Call may expose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseRole {
    /// The reduced argument.
    Argument,
    /// The Payload stream of the Call.
    Body,
    /// The room for the reduced result.
    Result,
    /// The room for the Reply.
    Reply,
}

/// A lease that is or was exposed to the peer, or will be.
#[derive(Debug, Default)]
pub(super) enum CallLease {
    #[default]
    None,
    Local(Local),
    Exposed(Exposed),
}

impl CallLease {
    pub(super) fn take_local(&mut self) -> Option<Local> {
        match std::mem::replace(self, Self::None) {
            Self::Local(lease) => Some(lease),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Takes the lease back if `proof` is about its handle; otherwise returns the proof.
    pub(super) fn fence<'t>(&mut self, proof: Invalidated<'t>) -> Option<Invalidated<'t>> {
        match std::mem::replace(self, Self::None) {
            Self::Exposed(exposed) => match exposed.fence(proof) {
                Ok(lease) => {
                    *self = Self::Local(lease);
                    None
                }
                Err((exposed, proof)) => {
                    // The proof is about another handle, or a broken provider still has a view: the lease stays
                    // exposed, out of everyone's reach.
                    debug_assert!(exposed.handle() != proof.handle(), "a view outlived its handle");
                    *self = Self::Exposed(exposed);
                    Some(proof)
                }
            },
            other => {
                *self = other;
                Some(proof)
            }
        }
    }

    /// Returns its octets, whether it is exposed or not; 0 if there is none.
    pub(super) fn octets(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Local(lease) => lease.len(),
            Self::Exposed(exposed) => exposed.len(),
        }
    }

    pub(super) fn quiesce(&mut self, proof: &Quiesced) {
        if let Self::Exposed(exposed) = self {
            let proof = complete::destroyed(exposed, proof);
            let stray = self.fence(proof);
            debug_assert!(stray.is_none(), "the proof was made for this very lease");
        }
    }

    /// Returns the octets that the peer placed so far, as far as the provider counts them.
    pub(super) fn placed(&self) -> Option<u32> {
        match self {
            Self::Exposed(exposed) => Some(exposed.placed()),
            _ => None,
        }
    }

    pub(super) fn exposed(&self) -> Option<Handle> {
        match self {
            Self::Exposed(exposed) => Some(exposed.handle()),
            _ => None,
        }
    }
}

/// The Payload stream of a Reply that its server exposes.
#[derive(Debug, Default)]
pub(super) enum ReadStream {
    #[default]
    None,
    /// It is being read. The results that were reduced from it have places and lengths.
    UnderWay(Box<[Reduced]>),
    Read(Local),
}

impl ReadStream {
    /// Takes the stream, if it was read.
    pub(super) fn take(&mut self) -> Option<Local> {
        match std::mem::take(self) {
            Self::Read(stream) => Some(stream),
            Self::None | Self::UnderWay(_) => None,
        }
    }
}
