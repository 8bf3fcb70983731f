//! The errors of requests to rpcbind.

use std::fmt;
use std::io;

use thiserror::Error;

use super::address::Netid;
use super::program::Program;
use super::stream::Endpoint;

/// Why rpcbind did not do what it was asked.
#[derive(Debug, Error)]
pub enum Fault {
    /// No program listens at any of these endpoints.
    #[error(fmt = absent)]
    Absent(Vec<Endpoint>),
    /// rpcbind did not answer in time.
    #[error("rpcbind at {0} did not answer in time")]
    TimedOut(Endpoint),
    /// The connection to rpcbind failed.
    #[error("rpcbind at {0}: {1}")]
    Io(Endpoint, #[source] io::Error),
    /// rpcbind does not permit the request.
    #[error("rpcbind does not let us do that")]
    Denied,
    /// The program that answers is not rpcbind of version 3 or 4.
    #[error("what answers is not rpcbind of version 3 or 4")]
    Unsupported,
    /// rpcbind failed to do what it was asked.
    #[error("rpcbind failed to do what it was asked")]
    Failed,
    /// The reply of rpcbind cannot be parsed.
    #[error("rpcbind's reply cannot be parsed")]
    Malformed,
    /// The version of the program is registered already, with another address.
    #[error("{0} is registered for {1} already, at another address")]
    Taken(Program, Netid),
    /// Another user registered the version of the program.
    #[error("{0} was registered for {1} by another user")]
    NotOurs(Program, Netid),
}

impl Fault {
    /// Returns why asking the rpcbind at `endpoint` failed.
    pub(super) fn of(endpoint: &Endpoint, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => Self::TimedOut(endpoint.clone()),
            io::ErrorKind::InvalidData => Self::Malformed,
            _ => Self::Io(endpoint.clone(), error),
        }
    }
}

/// Says that nothing listens at any of `endpoints`.
fn absent(endpoints: &[Endpoint], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if endpoints.is_empty() {
        return f.write_str("there is no rpcbind to ask over TCP: no address of one is named");
    }
    f.write_str("there is no rpcbind: nobody listens at ")?;
    for (index, endpoint) in endpoints.iter().enumerate() {
        write!(f, "{}{endpoint}", if index == 0 { "" } else { " or " })?;
    }
    Ok(())
}
