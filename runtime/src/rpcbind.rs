//! Registers services and looks them up: a client of rpcbind (RFC 1833, versions 3 and 4).
//!
//! # Normal operation
//! A server registers when it starts and unregisters when it stops; a client looks a service up before it connects.
//! Each call blocks, on its own connection, for at most the timeout: this is for the start and the end of a program,
//! not for a core.
//!
//! A server registers with the rpcbind of its own machine, over the local socket if there is one: there rpcbind knows
//! the user who asks, and lets no other user unregister.
//!
//! ```no_run
//! use haulage::rpcbind::{Need, Netid, Program, Registered, Rpcbind};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let ours = Program { program: 0x2000_1234, version: 1 };
//! let address = "192.0.2.7:20049".parse()?;
//! if let Registered::Absent(why) = Rpcbind::here().register(ours, address, Need::Optional)? {
//!     eprintln!("not registered: {why}");
//! }
//! let found = Rpcbind::of("192.0.2.7".parse()?).look_up(ours, Netid::Rdma)?;
//! assert_eq!(found, Some(address));
//! Rpcbind::here().unset(ours, Netid::Rdma)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Looking up
//! rpcbind answers GETADDR and GETVERSADDR for the transport the question came over and ignores the
//! netid in it, so they never find an RDMA service. [`Rpcbind::look_up`] therefore asks for the whole
//! list (DUMP); GETADDRLIST would be shorter, but Debian's rpcbind does not answer it at all for a
//! netid its `/etc/netconfig` does not list.
//!
//! # Limits
//! A reply has at most [`REPLY_MAX`] octets, which is thousands of services.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use haulage_proto::xdr::Reader;

pub use address::{Netid, parse_universal, universal};
pub use fault::Fault;
pub use message::Entry;
pub use program::Program;
pub use stream::{Endpoint, REPLY_MAX, Stream};

use message::{Mapping, Outcome, Procedure};

use crate::sys::clock;

mod address;
mod fault;
mod message;
mod program;
mod stream;

/// A client of one rpcbind.
#[derive(Clone, Debug)]
pub struct Rpcbind {
    endpoints: Vec<Endpoint>,
    timeout: Duration,
}

/// Whether a server must be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The server runs without it as well.
    Optional,
    /// The server does not run without it.
    Required,
}

/// The outcome of registering.
#[derive(Debug)]
pub enum Registered {
    /// The service is registered.
    Yes,
    /// The service is not registered, because there is no rpcbind, and it need not be. The text of the fault says so.
    Absent(Fault),
}

impl Rpcbind {
    /// Makes a client of the rpcbind of this machine.
    pub fn here() -> Self {
        let loopback = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);
        Self::at(vec![Endpoint::Local(PathBuf::from(SOCKET)), Endpoint::Tcp(loopback)], TIMEOUT)
    }

    /// Makes a client of the rpcbind of another machine.
    pub fn of(host: IpAddr) -> Self {
        Self::at(vec![Endpoint::Tcp(SocketAddr::new(host, PORT))], TIMEOUT)
    }

    /// Makes a client of the rpcbind at the first of `endpoints` that accepts a connection. Each call takes at most
    /// `timeout`, for all endpoints and versions together.
    pub const fn at(endpoints: Vec<Endpoint>, timeout: Duration) -> Self {
        Self { endpoints, timeout }
    }

    /// Registers an RDMA service when its server starts: replaces the registration that an earlier server left behind, and
    /// succeeds without an rpcbind unless `need` requires one.
    pub fn register(
        &self,
        program: Program,
        address: SocketAddr,
        need: Need,
    ) -> Result<Registered, Fault> {
        match self.replace(program, address) {
            Ok(()) => Ok(Registered::Yes),
            Err(fault @ Fault::Absent(_)) if need == Need::Optional => {
                Ok(Registered::Absent(fault))
            }
            Err(fault) => Err(fault),
        }
    }

    /// Registers a version of a program for a netid at an address (SET). Succeeds as well if another user, or an earlier
    /// run of this program, has registered that address already.
    pub fn set(&self, program: Program, netid: Netid, address: SocketAddr) -> Result<(), Fault> {
        let mapping = Mapping { program, netid: netid.name(), address: &universal(address) };
        let (done, _) = self.ask(Procedure::Set, Some(&mapping), message::boolean)?;
        if done { Ok(()) } else { Err(Fault::Taken(program, netid)) }
    }

    /// Ends the registration of a version of a program (UNSET). If there is none, rpcbind may answer with success or as
    /// if another user owned it ([`Fault::NotOurs`]).
    pub fn unset(&self, program: Program, netid: Netid) -> Result<(), Fault> {
        let mapping = Mapping { program, netid: netid.name(), address: "" };
        let (done, _) = self.ask(Procedure::Unset, Some(&mapping), message::boolean)?;
        if done { Ok(()) } else { Err(Fault::NotOurs(program, netid)) }
    }

    /// Finds the address at which a version of a program is served (DUMP).
    ///
    /// If the registered IP address is unspecified, the IP address of the rpcbind takes its place, provided that it is
    /// of the same kind.
    pub fn look_up(&self, program: Program, netid: Netid) -> Result<Option<SocketAddr>, Fault> {
        let (entries, endpoint) = self.ask(Procedure::Dump, None, message::entries)?;
        let wanted = |entry: &&Entry| entry.program == program && entry.netid == netid.name();
        let Some(found) = entries.iter().find(wanted) else { return Ok(None) };
        let mut address = parse_universal(&found.address).ok_or(Fault::Malformed)?;
        if address.ip().is_unspecified() {
            let loopback = netid.loopback();
            address.set_ip(match endpoint {
                Endpoint::Tcp(at) if at.is_ipv6() == loopback.is_ipv6() => at.ip(),
                Endpoint::Tcp(_) => address.ip(),
                Endpoint::Local(_) => loopback,
            });
        }
        Ok(Some(address))
    }

    /// Returns everything that is registered (DUMP).
    pub fn dump(&self) -> Result<Vec<Entry>, Fault> {
        self.ask(Procedure::Dump, None, message::entries).map(|(entries, _)| entries)
    }

    /// Finds the address at which a program is served over TCP, the transport of the question (GETADDR): in this
    /// version, or in another one if there is none in this.
    pub fn get_addr(&self, program: Program) -> Result<Option<SocketAddr>, Fault> {
        self.address_over_tcp(Procedure::GetAddr, program)
    }

    /// Finds the address at which exactly this version of a program is served over TCP (GETVERSADDR, version 4 only).
    pub fn get_vers_addr(&self, program: Program) -> Result<Option<SocketAddr>, Fault> {
        self.address_over_tcp(Procedure::GetVersAddr, program)
    }

    fn replace(&self, program: Program, address: SocketAddr) -> Result<(), Fault> {
        // [V2-12-1] [R5666-12-1] the netid follows the kind of address.
        let netid = Netid::of(address.ip());
        match self.unset(program, netid) {
            // Some rpcbinds answer `NotOurs` also if there is nothing to unregister.
            Ok(()) | Err(Fault::NotOurs(..)) => self.set(program, netid, address),
            Err(fault) => Err(fault),
        }
    }

    fn address_over_tcp(
        &self,
        procedure: Procedure,
        program: Program,
    ) -> Result<Option<SocketAddr>, Fault> {
        let tcp = |endpoint: &&Endpoint| matches!(endpoint, Endpoint::Tcp(_));
        let endpoints: Vec<_> = self.endpoints.iter().filter(tcp).cloned().collect();
        let mapping = Mapping { program, netid: Netid::Tcp.name(), address: "" };
        let asked = Self { endpoints, timeout: self.timeout };
        let (address, _) = asked.ask(procedure, Some(&mapping), message::string)?;
        if address.is_empty() {
            return Ok(None);
        }
        parse_universal(&address).map(Some).ok_or(Fault::Malformed)
    }

    /// Asks at the first endpoint that accepts a connection. Returns the result, and the endpoint.
    fn ask<T>(
        &self,
        procedure: Procedure,
        mapping: Option<&Mapping<'_>>,
        parse: fn(&mut Reader<'_>) -> Option<T>,
    ) -> Result<(T, &Endpoint), Fault> {
        let deadline = clock::now().saturating_add(self.timeout);
        for endpoint in &self.endpoints {
            match Stream::connect(endpoint, deadline) {
                Ok(mut stream) => {
                    return Ok((
                        converse(&mut stream, endpoint, procedure, mapping, parse)?,
                        endpoint,
                    ));
                }
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(Fault::of(endpoint, error)),
            }
        }
        Err(Fault::Absent(self.endpoints.clone()))
    }
}

/// Asks in version 4, and in version 3 if rpcbind does not speak version 4.
fn converse<T>(
    stream: &mut Stream,
    endpoint: &Endpoint,
    procedure: Procedure,
    mapping: Option<&Mapping<'_>>,
    parse: fn(&mut Reader<'_>) -> Option<T>,
) -> Result<T, Fault> {
    for version in procedure.versions() {
        let call = message::call(version, procedure, mapping).ok_or(Fault::Malformed)?;
        let reply = stream.exchange(&call).map_err(|error| Fault::of(endpoint, error))?;
        match message::outcome(&reply) {
            Outcome::Success(mut results) => {
                let parsed = parse(&mut results).filter(|_| results.is_empty());
                return parsed.ok_or(Fault::Malformed);
            }
            Outcome::OtherVersion => {}
            Outcome::Refused(fault) => return Err(fault),
        }
    }
    Err(Fault::Unsupported)
}

fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrNotAvailable, ConnectionRefused, NetworkUnreachable, NotFound};
    matches!(error.kind(), NotFound | ConnectionRefused | NetworkUnreachable | AddrNotAvailable)
}

/// TCP port of rpcbind (RFC 1833 section 3).
const PORT: u16 = 111;
/// Local socket of rpcbind on Linux.
const SOCKET: &str = "/run/rpcbind.sock";
/// Timeout of a call to rpcbind.
const TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
