//! A client's connection to a storage server: NFS over RDMA, and MOUNT there or over TCP.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use haulage::core::{ConnectOptions, NoService};
use haulage::cores::{self, CoreThread};
use haulage::identity::Identity;
use haulage::remote::RemoteClient;
use haulage::service::CallError;
use haulage::sys::{clock, process};
use haulage_proto::rpc::Credential;
use haulage_store::client::error::printable;
use haulage_store::client::mount::{Refusal, Way};
use haulage_store::client::requester::Remote;
use haulage_store::client::{Client, Error, File, memory_max};
use haulage_store::mount3;
use haulage_store::nfs3::Status;
use haulage_store::nfs3::binding::{Limits, binding};

use crate::calling::{self, Callee};
use crate::cli::MountOptions;
use crate::cli::VersionOptions;
use crate::cli::values::Switch;
use crate::failure::Failure;
use crate::hosts::ClientHosts;
use crate::node::{Carrier, NodeConfig, client_limits, over};
use crate::output::Output;
use crate::output::progress::Step;
use crate::registration::lookup;
use crate::registration::service::NamedProgram;

/// A mounted file system, on a core of its own.
#[derive(Debug)]
pub struct Session {
    /// The NFS client.
    pub client: Client<Remote>,
    callee: Callee,
    /// Whether the Calls claim to be the superuser's.
    claims_root: bool,
    core: CoreThread<Clients>,
    /// The progress line of the session.
    pub step: Step,
}

impl Session {
    /// Mounts the export and connects.
    pub fn open(options: &MountOptions, output: &Output) -> Result<Self, Failure> {
        let timeout = options.timeout.0;
        let identity = process::identity()
            .map_err(|error| Failure::failed(format!("cannot find out who we are: {error}")))?;
        let to = lookup::server(&options.connect, NamedProgram::NFS, timeout)?;
        let provider = options.core.provider;
        let versions = options.core.versions;
        let hosts =
            ClientHosts::of(&options.hosts, versions.rpc_version, &options.connect, output)?;
        if hosts.as_ref().is_some_and(|hosts| hosts.is_required())
            && options.mount_connect.is_some()
        {
            return Err(Failure::usage(
                "--host-auth required is not for --mount-connect: over TCP no server proves which host it is",
            ));
        }
        let callee = Callee { to, timeout, served_by: "haulage store serve", provider, hosts };
        let placement = calling::one_core("store-client", &options.core)?;

        let mut step = Step::begin(format_args!("waiting for {to}"));
        let claims_root =
            matches!(identity.credential(), Credential::Sys(user) if user.uid == ROOT);
        // Do not ask for CRCs: Linux's software RNIC (siw) rejects a CRC that is split between TCP segments.
        let crc = Some(options.core.crc.unwrap_or(Switch::Off));
        let how = How {
            placement,
            identity: identity.clone(),
            crc,
            versions,
            mounts_there: options.mount_connect.is_none(),
        };
        let mut core = over!(provider, start, (how, callee.clone()))?;
        let clients = core.started.take();
        let (client, mounter) = clients.ok_or_else(|| Failure::failed("a core is asked once"))?;
        let root = find_root(options, &identity, &callee, mounter, &mut step)?;
        step.next(format_args!("waiting for {to}"));
        let client = Client::new(Remote::new(client, timeout), root, LIMITS);
        let client = client.map_err(|error| match error.status() {
            Some(Status::Perm | Status::Acces) => not_from_here(to, &options.export),
            _ => explain(&callee, &error.at(b"/")),
        })?;
        Ok(Self { client, callee, claims_root, core, step })
    }

    /// Converts an error to a one-line message that says what to do.
    pub fn explain(&self, error: &Error) -> Failure {
        match error.status() {
            // Permission bits deny root nothing.
            Some(Status::Acces) if self.claims_root => Failure::failed(format!(
                "{error}; root is served as another user, as --squash of the server has it"
            )),
            _ => explain(&self.callee, error),
        }
    }

    /// Closes the connection. With `-v`, prints details about it.
    pub fn close(self, output: &Output) -> Result<(), Failure> {
        let remote = self.client.into_requester();
        if let Some(version) = remote.version() {
            let to = self.callee.to;
            output.detail(&format!("{to} speaks version {version} of RPC-over-RDMA"));
        }
        drop(remote);
        Ok(self.core.stop()?)
    }
}

/// The configuration of a client's core.
#[derive(Debug)]
struct How {
    placement: cores::Placement,
    identity: Identity,
    crc: Option<Switch>,
    versions: VersionOptions,
    /// Whether MOUNT is asked at the port of NFS.
    mounts_there: bool,
}

/// The client of NFS, and that of MOUNT at the same port if it is asked there, until they are taken.
type Clients = Option<(RemoteClient, Option<RemoteClient>)>;

/// Returns the root directory of the export: as the MOUNT service at the port of NFS says, or that of `--mount-connect`.
fn find_root(
    options: &MountOptions,
    identity: &Identity,
    callee: &Callee,
    mounter: Option<RemoteClient>,
    step: &mut Step,
) -> Result<File, Failure> {
    let Callee { to, timeout, .. } = *callee;
    let export = options.export.as_bytes();
    let mut first = None;
    if let Some(mounter) = mounter {
        let mut way = Way::Rdma(mounter.into(), clock::now().saturating_add(timeout));
        let mounted = way.mount(export);
        if let Way::Rdma(mounter, _) = way {
            mounter.close();
        }
        match mounted {
            Ok(root) => return Ok(root),
            // NFS is at the same address, so a Call of NFS would fail the same way.
            Err(Refusal::Call(
                error @ (CallError::Connect(_)
                | CallError::TimedOut
                | CallError::Disconnected(_)
                | CallError::Unready(_)
                | CallError::Host(_)),
            )) => return Err(callee.explain(&error)),
            // Over TCP it would not prove which host it is.
            Err(refusal) if callee.hosts.as_ref().is_some_and(|hosts| hosts.is_required()) => {
                return Err(no_mount(&refusal, to, &options.export, timeout));
            }
            Err(refusal) => first = Some(refusal),
        }
    }
    let at = match (&options.mount_connect, &options.connect) {
        (Some(asked), _) => calling::reachable(&asked.resolve(Some(timeout))?, timeout)?,
        (None, server) => lookup::over_tcp(server, NamedProgram::MOUNT, (MOUNT_PORT, timeout))?,
    };
    step.next(format_args!("asking {at} what to mount"));
    let way = Way::tcp(at, identity, timeout).map_err(Refusal::from);
    match (way.and_then(|mut way| way.mount(export)), first) {
        (Ok(root), _) => Ok(root),
        // The mount server over TCP cannot be reached, so the refusal of the one over RDMA stands.
        (Err(Refusal::Io(_)), Some(refusal @ (Refusal::Path { .. } | Refusal::Denied))) => {
            Err(no_mount(&refusal, to, &options.export, timeout))
        }
        (Err(refusal), _) => Err(no_mount(&refusal, at, &options.export, timeout)),
    }
}

/// Starts a client's core, and connects, once for NFS and once for MOUNT.
fn start<P: Carrier>(how: How, callee: Callee) -> Result<CoreThread<Clients>, Failure> {
    let How { placement, identity, crc, versions, mounts_there } = how;
    cores::start(placement, move || {
        let room = memory_max(&LIMITS) + OVERHEAD;
        let limits = versions.client(client_limits(callee.timeout));
        let node = NodeConfig { crc, ..NodeConfig::new(room, limits) };
        let (mut core, _) = node.build::<P, _>(|_, _| Ok(NoService))?;
        let mut connect = |binding| {
            let options = ConnectOptions::new(binding).identity(identity.clone());
            let connection = callee.connection(&mut core, options)?;
            let client = RemoteClient::of(&core, connection);
            client.ok_or_else(|| Failure::failed("a core has room for a client"))
        };
        let client = connect(binding(&LIMITS))?;
        let mounter = mounts_there.then(|| connect(mount3::binding())).transpose()?;
        Ok::<_, Failure>((core, Some((client, mounter))))
    })
}

fn explain(callee: &Callee, error: &Error) -> Failure {
    match error {
        Error::Call(error) => callee.explain(error),
        error => Failure::failed(error.to_string()),
    }
}

/// Converts a failed mount to a one-line message that says what to do.
fn no_mount(refusal: &Refusal, at: SocketAddr, export: &OsStr, timeout: Duration) -> Failure {
    let path = printable(export.as_bytes());
    let seconds = timeout.as_secs_f64();
    Failure::failed(match refusal {
        Refusal::Io(error) => match error.kind() {
            ErrorKind::ConnectionRefused => format!(
                "no MOUNT server listens at {at}; start `haulage store serve`, or \
                 give the address with --mount-connect"
            ),
            ErrorKind::TimedOut | ErrorKind::WouldBlock => format!(
                "{at} did not say within {seconds} s what to mount; is this a MOUNT server? check that \
                 it runs, or raise --timeout"
            ),
            ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe
            | ErrorKind::InvalidData => no_mount_server(at, "it closes the connection"),
            _ => format!("cannot ask {at} what to mount: {error}"),
        },
        Refusal::Path { exports, .. } if exports.iter().any(|path| path == export.as_bytes()) => {
            return not_from_here(at, export);
        }
        Refusal::Path { .. } => {
            format!("cannot mount {path} of {at}: {refusal}; choose another with --export")
        }
        Refusal::NotServed | Refusal::Malformed => no_mount_server(at, &refusal.to_string()),
        Refusal::Denied | Refusal::Flavor | Refusal::Call(_) => {
            format!("cannot ask {at} what to mount: {refusal}")
        }
    })
}

/// Returns the message for a service that answers, but is no MOUNT server.
fn no_mount_server(at: SocketAddr, why: &str) -> String {
    format!(
        "cannot ask {at} what to mount ({why}): is this a MOUNT server? give the address of one with \
         --mount-connect"
    )
}

/// Returns the message for a refused mount. A Linux server refuses ports above 1023 without telling the reason, so the
/// message names it as a possible one.
fn not_from_here(at: SocketAddr, export: &OsStr) -> Failure {
    let path = printable(export.as_bytes());
    Failure::failed(format!(
        "cannot mount {path} of {at}, not from here; a Linux server has to export it to this machine, \
         and as `insecure`"
    ))
}

/// The superuser.
const ROOT: u32 = 0;

/// The maximum transfer sizes of one Call.
const LIMITS: Limits = Limits { read_max: 1 << 20, write_max: 1 << 20, readdir_max: 64 << 10 };

/// The default port of MOUNT.
const MOUNT_PORT: u16 = 20048;

/// Memory of a client besides its data, in octets: Calls, Replies, and their slabs.
const OVERHEAD: usize = 2 << 20;
