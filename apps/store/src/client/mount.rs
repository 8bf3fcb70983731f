//! A client of MOUNT version 3, over TCP or over RDMA, which returns the root handle of an export.
//!
//! The client unmounts at once: the server's list of mounts only informs operators, and a client that crashed would
//! stay in it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use haulage::identity::Identity;
use haulage::remote::RemoteClient;
use haulage::rpcbind::{Endpoint, Stream};
use haulage::service::{CallError, Request};
use haulage::sys::clock;
use haulage_proto::chunk::PayloadReader;
use haulage_proto::rpc::{AcceptStat, CallHeader, ReplyBody, ReplyHeader};
use haulage_proto::time::Instant;
use haulage_proto::xdr::Writer;

use super::error::printable;
use super::file::File;
use crate::mount3::{Arguments, PROGRAM, Path, Procedure, Results, Status, VERSION};

/// The reason that an export could not be mounted.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The MOUNT service could not be reached, or did not answer.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The Call failed on its way over RDMA.
    #[error(transparent)]
    Call(CallError),
    /// The RPC layer of the service denied the Call.
    #[error("it denied the call")]
    Denied,
    /// The service does not offer MOUNT version 3.
    #[error("it does not serve MOUNT version 3")]
    NotServed,
    /// The service refuses this path.
    #[error("{}", of_path(*status, exports))]
    Path {
        /// The status in the Reply.
        status: Status,
        /// The paths that the service exports.
        exports: Vec<Vec<u8>>,
    },
    /// The service accepts no AUTH_SYS, only flavors that authenticate callers.
    #[error("the server takes only RPCSEC_GSS (Kerberos), which this client does not speak")]
    Flavor,
    /// The Reply is malformed.
    #[error("the reply is not one of a MOUNT service")]
    Malformed,
}

/// The way to a MOUNT service.
#[derive(Debug)]
pub enum Way<'a> {
    /// A connection over TCP.
    Tcp(Session<'a>),
    /// A client of a connection with the binding of [`mount3::binding`](crate::mount3::binding), and the time by which
    /// every Call is to have ended.
    Rdma(Box<RemoteClient>, Instant),
}

/// A TCP connection to the MOUNT service, with the credential of its Calls.
#[derive(Debug)]
pub struct Session<'a> {
    stream: Stream,
    identity: &'a Identity,
    xid: u32,
}

impl<'a> Way<'a> {
    /// Connects over TCP, for Calls that are all to end within `timeout`.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub fn tcp(server: SocketAddr, identity: &'a Identity, timeout: Duration) -> io::Result<Self> {
        let deadline = clock::now().saturating_add(timeout);
        let stream = Stream::connect(&Endpoint::Tcp(server), deadline)?;
        Ok(Self::Tcp(Session { stream, identity, xid: 0 }))
    }

    /// Mounts the export `path` and returns its root directory.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn mount(&mut self, path: &[u8]) -> Result<File, Refusal> {
        let reply = self.call(&Arguments::Mnt(Path(path)))?;
        match results(Procedure::Mnt, &reply)? {
            Results::Mnt(Ok(mounted)) => {
                let root = File::from(mounted.root);
                let mut flavors = mounted.flavors.iter().peekable();
                if flavors.peek().is_some() && !flavors.any(|flavor| flavor <= AUTH_SYS) {
                    return Err(Refusal::Flavor);
                }
                // A failed UMNT leaves an entry in the server's list, no more.
                let _ = self.call(&Arguments::Umnt(Path(path)));
                Ok(root)
            }
            Results::Mnt(Err(status)) => {
                let exports = self.exports().unwrap_or_default();
                Err(Refusal::Path { status, exports })
            }
            _ => Err(Refusal::Malformed),
        }
    }

    /// Returns the exported paths, by EXPORT.
    fn exports(&mut self) -> Result<Vec<Vec<u8>>, Refusal> {
        let reply = self.call(&Arguments::Export)?;
        match results(Procedure::Export, &reply)? {
            Results::Export(exports) => {
                Ok(exports.iter().map(|export| export.path.0.to_vec()).take(EXPORTS_MAX).collect())
            }
            _ => Err(Refusal::Malformed),
        }
    }

    /// Makes a Call and returns its results, which are still encoded.
    fn call(&mut self, arguments: &Arguments<'_>) -> Result<Vec<u8>, Refusal> {
        match self {
            Self::Tcp(session) => session.call(arguments),
            Self::Rdma(client, deadline) => {
                let procedure = arguments.procedure().number();
                let timeout = Some(deadline.saturating_since(clock::now()));
                let request = Request { timeout, ..Request::new(procedure) };
                let reply = client.call(request, |w| arguments.encode(w));
                let reply = reply.map_err(|failed| match failed.error {
                    CallError::Rejected(stat) => Refusal::of(stat),
                    CallError::Denied => Refusal::Denied,
                    error => Refusal::Call(error),
                })?;
                let results = reply.results().rest().to_vec();
                client.recycle(reply);
                Ok(results)
            }
        }
    }
}

impl Session<'_> {
    fn call(&mut self, arguments: &Arguments<'_>) -> Result<Vec<u8>, Refusal> {
        self.xid += 1;
        let procedure = arguments.procedure().number();
        let credential = self.identity.credential();
        let of = CallHeader::new(self.xid, PROGRAM, VERSION, procedure);
        let header = CallHeader { credential, ..of };
        let mut room = [0; CALL_MAX];
        let mut w = Writer::new(&mut room);
        let encoded = header.encode(&mut w).and_then(|()| arguments.encode(&mut w));
        encoded.map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let reply = self.stream.exchange(w.written())?;
        match ReplyHeader::decode(&reply) {
            Ok((ReplyHeader { xid, .. }, _)) if xid != self.xid => Err(Refusal::Malformed),
            Ok((ReplyHeader { body, .. }, at)) => match body {
                ReplyBody::Accepted(AcceptStat::Success) => {
                    Ok(reply.get(at..).unwrap_or_default().to_vec())
                }
                ReplyBody::Accepted(stat) => Err(Refusal::of(stat)),
                ReplyBody::Denied(_) => Err(Refusal::Denied),
            },
            Err(_) => Err(Refusal::Malformed),
        }
    }
}

impl Refusal {
    /// Returns what it means that the RPC layer did not accept a Call.
    const fn of(stat: AcceptStat) -> Self {
        match stat {
            AcceptStat::GarbageArgs | AcceptStat::SystemErr => Self::Malformed,
            _ => Self::NotServed,
        }
    }
}

fn results(procedure: Procedure, results: &[u8]) -> Result<Results<'_>, Refusal> {
    let mut reader = PayloadReader::call(results, 0, None);
    Results::decode(procedure, &mut reader).map_err(|_| Refusal::Malformed)
}

/// Returns the text for a refused path: the reason, and the paths that are exported.
fn of_path(status: Status, exports: &[Vec<u8>]) -> String {
    let why = match status {
        Status::NoEnt => "there is no such export",
        Status::Perm | Status::Acces => "not exported to us",
        Status::NotDir => "not a directory",
        Status::Inval | Status::NameTooLong => "no path that can be exported",
        _ => "the server failed",
    };
    let exports: Vec<_> = exports.iter().map(|path| printable(path)).collect();
    if exports.is_empty() {
        why.to_owned()
    } else {
        format!("{why}; it exports {}", exports.join(", "))
    }
}

/// The number of the flavor AUTH_SYS; the only lower number is AUTH_NONE.
const AUTH_SYS: u32 = 1;

/// Maximum length of a Call, in octets: a path and a credential.
const CALL_MAX: usize = 2048;

/// Maximum number of exports that an error lists.
const EXPORTS_MAX: usize = 8;
