//! RDMA devices through libibverbs and librdmacm.
//!
//! Both are loaded when the program starts, by `rdma-sys`; where they are missing every call fails
//! with `EOPNOTSUPP`, and `Device::all` says so.
//!
//! # Memory ownership
//!
//! Each object of the libraries is owned by one value here and destroyed with it; a value keeps, by
//! count, whatever its object was made from. So a protection domain outlives its regions, windows
//! and queues, and a device outlives its domains.
//!
//! What a device may touch on its own is in views ([`Source`](haulage_mr_pool::Source),
//! [`Sink`](haulage_mr_pool::Sink)). A view of posted memory lies in the queue it was posted to, until
//! a completion of that request, or of a later one on the same send queue, was polled, or until the
//! queue is destroyed: the libraries promise that a device then touches nothing. A view of memory
//! opened to a peer lies in its `Window` until that is invalidated or freed. That of memory which is only
//! copied for a peer lies in its `Bounce`, and no device is told of it.
//!
//! Structures the program allocates, or indexes, are laid out as in the installed headers, which
//! `tests` checks; of those it only ever gets from the libraries, fields are read through pointers to
//! a common beginning.

use std::ffi::c_int;
use std::fmt;
use std::io;

mod address;
mod bounce;
mod completion;
mod connection;
mod descriptor;
mod device;
mod grant;
mod memory;
mod names;
mod queue_pair;
mod receives;
#[cfg(test)]
mod tests;
mod window;

pub(crate) use bounce::Bounce;
pub(crate) use completion::{CompletionQueue, Polled, WorkStatus};
pub(crate) use connection::{Answer, CmEvent, CmEventKind, CmId, EventChannel, Parameters};
pub(crate) use device::{Attributes, Device, Fault, Link};
pub(crate) use grant::Grant;
pub(crate) use memory::{Again, Domain, Region, Registered, WindowUse};
pub(crate) use names::sequence_of;
pub(crate) use queue_pair::{
    Binding, CarriedOut, Chain, Ended, Posting, QueuePair, QueuePairLimits,
};
pub(crate) use receives::{Arrival, SharedReceives};
pub(crate) use window::Window;

/// What a library refused, and why.
#[derive(Debug)]
pub struct Refused {
    /// What was asked for.
    pub what: &'static str,
    /// What the library said.
    pub error: io::Error,
}

impl Refused {
    /// Says what an error was about.
    pub(crate) const fn of(what: &'static str, error: io::Error) -> Self {
        Self { what, error }
    }

    /// Takes the reason from `errno`.
    fn last(what: &'static str) -> Self {
        Self { what, error: io::Error::last_os_error() }
    }

    /// Takes what a function returned: 0, -1 with the reason in `errno`, or the reason itself.
    fn check(what: &'static str, returned: c_int) -> Result<(), Self> {
        match returned {
            0 => Ok(()),
            -1 => Err(Self::last(what)),
            code => Err(Self { what, error: io::Error::from_raw_os_error(code.saturating_abs()) }),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.error)
    }
}

impl std::error::Error for Refused {}
