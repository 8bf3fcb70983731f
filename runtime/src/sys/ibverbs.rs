//! RDMA devices through libibverbs and librdmacm.
//!
//! Both are loaded when the program starts, by `rdma-sys`; where they are missing every call fails
//! with `EOPNOTSUPP`, and `Device::all` says so.
//!
//! # Memory ownership
//!
//! Each object of the libraries is owned by one value here and destroyed with it; a value holds a count of each object
//! that its own was made from. So a protection domain outlives its regions, windows and queues, and a device outlives
//! its domains.
//!
//! A device may access only memory of views ([`Source`](haulage_mr_pool::Source), [`Sink`](haulage_mr_pool::Sink)). A
//! view of posted memory lies in the queue it was posted to, until a completion of that request, or of a later one on
//! the same send queue, was polled, or until the queue is destroyed: the libraries promise that a device then accesses
//! nothing. A view of memory opened to a peer lies in its `Window` until that is invalidated or freed. A view of memory
//! that is only copied for a peer lies in its `Bounce`, and no device knows that memory.
//!
//! Structures that the program allocates, or indexes, are laid out as in the installed headers, which `tests` checks.
//! Of structures that it only gets from the libraries, fields are read through pointers to a common beginning.

use std::ffi::c_int;
use std::io;

use thiserror::Error;

mod address;
mod bounce;
mod channel;
mod completion;
mod connection;
mod descriptor;
mod device;
mod events;
mod grant;
mod memory;
mod migrate;
mod names;
mod news;
mod queue_pair;
mod receives;
#[cfg(test)]
mod tests;
mod window;

pub(crate) use bounce::Bounce;
pub(crate) use channel::EventChannel;
pub(crate) use completion::{CompletionQueue, Polled, WorkStatus};
pub(crate) use connection::{ArrivingId, CmId, Parameters};
pub(crate) use device::{Attributes, Device, Link};
pub(crate) use events::{CmEvent, CmEventKind, PeerParameters};
pub(crate) use grant::AccessGrant;
pub(crate) use memory::{Again, Domain, Region, Registered, WindowUse};
pub(crate) use names::sequence_of;
pub(crate) use news::{Fault, Reader};
pub(crate) use queue_pair::{
    Binding, CarriedOut, Chain, Doorbell, Ended, Posting, QueuePair, QueuePairLimits,
};
pub(crate) use receives::{Arrival, SharedReceives};
pub(crate) use window::Window;

/// An operation that a library refused, and the reason.
#[derive(Debug, Error)]
#[error("{what}: {error}")]
pub struct Refused {
    /// The operation.
    pub what: &'static str,
    /// The library's error.
    pub error: io::Error,
}

impl Refused {
    /// Makes an error of the operation `what`.
    pub(crate) const fn of(what: &'static str, error: io::Error) -> Self {
        Self { what, error }
    }

    /// Makes an error with the reason in `errno`.
    fn last(what: &'static str) -> Self {
        Self { what, error: io::Error::last_os_error() }
    }

    /// Checks the value that a function returned: 0, -1 with the reason in `errno`, or the reason itself.
    fn check(what: &'static str, returned: c_int) -> Result<(), Self> {
        match returned {
            0 => Ok(()),
            -1 => Err(Self::last(what)),
            code => Err(Self { what, error: io::Error::from_raw_os_error(code.saturating_abs()) }),
        }
    }
}
