//! Why rpcbind did not do what it was asked.

use std::fmt;
use std::io;

use super::address::Netid;
use super::program::Program;
use super::stream::Place;

/// Why rpcbind did not do what it was asked.
#[derive(Debug)]
pub enum Fault {
    /// Nobody listens at any of these places.
    Absent(Vec<Place>),
    /// It did not answer in time.
    TimedOut(Place),
    /// The connection to it failed.
    Io(Place, io::Error),
    /// It does not let us do that.
    Denied,
    /// What answers is not rpcbind, or too old a one.
    Unsupported,
    /// It failed.
    Failed,
    /// Its reply cannot be parsed.
    Malformed,
    /// The program's version is registered already, with another address.
    Taken(Program, Netid),
    /// It is registered by another user.
    NotOurs(Program, Netid),
}

impl Fault {
    /// Says why asking the rpcbind at `place` failed.
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
