//! Why rpcbind did not do what it was asked.

use std::fmt;
use std::io;

use super::address::Netid;
use super::program::Program;
use super::stream::Place;

/// Why rpcbind did not do what it was asked.
#[derive(Debug)]
pub enum Fault {
    /// No program listens at any of these places.
    Absent(Vec<Place>),
    /// rpcbind did not answer in time.
    TimedOut(Place),
    /// The connection to rpcbind failed.
    Io(Place, io::Error),
    /// rpcbind does not permit the request.
    Denied,
    /// The program that answers is not rpcbind of version 3 or 4.
    Unsupported,
    /// rpcbind failed to do what it was asked.
    Failed,
    /// The reply of rpcbind cannot be parsed.
    Malformed,
    /// The version of the program is registered already, with another address.
    Taken(Program, Netid),
    /// Another user registered the version of the program.
    NotOurs(Program, Netid),
}

impl Fault {
    /// Returns why asking the rpcbind at `place` failed.
    pub(super) fn of(place: &Place, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => Self::TimedOut(place.clone()),
            io::ErrorKind::InvalidData => Self::Malformed,
            _ => Self::Io(place.clone(), error),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(places) if places.is_empty() => {
                f.write_str("there is no rpcbind to ask over TCP: no address of one is named")
            }
            Self::Absent(places) => {
                f.write_str("there is no rpcbind: nobody listens at ")?;
                for (index, place) in places.iter().enumerate() {
                    write!(f, "{}{place}", if index == 0 { "" } else { " or " })?;
                }
                Ok(())
            }
            Self::TimedOut(place) => write!(f, "rpcbind at {place} did not answer in time"),
            Self::Io(place, error) => write!(f, "rpcbind at {place}: {error}"),
            Self::Denied => f.write_str("rpcbind does not let us do that"),
            Self::Unsupported => f.write_str("what answers is not rpcbind of version 3 or 4"),
            Self::Failed => f.write_str("rpcbind failed to do what it was asked"),
            Self::Malformed => f.write_str("rpcbind's reply cannot be parsed"),
            Self::Taken(program, netid) => {
                write!(f, "{program} is registered for {netid} already, at another address")
            }
            Self::NotOurs(program, netid) => {
                write!(f, "{program} was registered for {netid} by another user")
            }
        }
    }
}

impl std::error::Error for Fault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(_, error) => Some(error),
            _ => None,
        }
    }
}
