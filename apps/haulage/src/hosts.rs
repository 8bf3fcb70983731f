//! Host authentication of the commands: its options, its files, and what is said about hosts that are refused.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haulage::core::ConnectOptions;
use haulage::host_auth::{HostKeys, KeyFault, KnownHosts, PublicKey, SecretKey};
use haulage::hosts::{HostAuth, HostRefusal, Policy, Refused};

use crate::cli::HostKey;
use crate::cli::rpcbind::ServerAddress;
use crate::cli::values::{HostPolicy, RpcVersion};
use crate::cli::{ClientHostOptions, HostOptions};
use crate::failure::Failure;
use crate::output::{Output, json};

/// Runs `haulage host-key`.
pub fn run(command: &HostKey, output: &Output) -> Result<(), Failure> {
    let key = match command {
        HostKey::New { file } => {
            let made = SecretKey::create(file).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => Failure::failed(format!(
                    "{} exists, and is left as it is; choose another file, or remove it",
                    file.display()
                )),
                _ => Failure::failed(format!("cannot make {}: {error}", file.display())),
            })?;
            made.public()
        }
        HostKey::Show { file } => read_secret(file)?.public(),
    };
    output.line(&if output.json {
        json::object(|o| {
            o.text("public_key", &key.to_string());
        })
    } else {
        key.to_string()
    })
}

/// Whom a server over RDMA alone shuts out to which hosts have to prove which they are.
pub const NO_VERSION_ONE: &str = "clients of version 1 of RPC-over-RDMA are shut out";

/// The host authentication of a server, whose known hosts may be read again.
#[derive(Debug)]
pub struct ServerHosts {
    policy: Policy,
    keys: Arc<HostKeys>,
    known: PathBuf,
}

impl ServerHosts {
    /// Reads the keys that a server is started with, if hosts prove themselves to it. `lost` says whom it shuts out if they have
    /// to, which is told.
    pub fn of(
        options: &HostOptions,
        versions: RpcVersion,
        lost: &str,
        output: &Output,
    ) -> Result<Option<Self>, Failure> {
        let Some(Files { policy, key, known }) = files(options, versions)? else { return Ok(None) };
        let keys = HostKeys::new(read_secret(key)?, read_known(known)?);
        if policy.requires() {
            output.note(&format!("every host has to prove which it is: {lost}"));
        }
        Ok(Some(Self { policy, keys: Arc::new(keys), known: known.to_owned() }))
    }

    /// Returns what a core of the server is to have.
    pub fn auth(&self) -> HostAuth {
        HostAuth { policy: self.policy, hosts: Arc::clone(&self.keys) as _ }
    }

    /// Reads the known hosts again. Those of before stay if that fails, which is said.
    ///
    /// Returns whether they were read.
    pub fn read_again(&self, output: &Output) -> bool {
        match read_known(&self.known) {
            Ok(known) => {
                self.keys.replace(known);
                output.note(&format!("{} was read again", self.known.display()));
                true
            }
            Err(failure) => {
                output.note(&format!("the known hosts stay as they were: {failure}"));
                false
            }
        }
    }
}

/// The host authentication of a client, for the server that it connects to.
#[derive(Debug)]
pub struct ClientHosts {
    policy: Policy,
    keys: Arc<HostKeys>,
    known: PathBuf,
    /// The server, as `--connect` says.
    name: String,
    /// Whether a key of that name is known.
    is_known: bool,
}

impl ClientHosts {
    /// Reads the keys that a client of the server at `connect` is started with, if the ends prove themselves.
    pub fn of(
        options: &ClientHostOptions,
        versions: RpcVersion,
        connect: &ServerAddress,
        output: &Output,
    ) -> Result<Option<Arc<Self>>, Failure> {
        let ClientHostOptions { hosts, trust_new_host } = options;
        let Some(Files { policy, key, known }) = files(hosts, versions)? else {
            return match trust_new_host {
                true => {
                    Err(Failure::usage("--trust-new-host is for --host-auth optional or required"))
                }
                false => Ok(None),
            };
        };
        let secret = read_secret(key)?;
        let all = match KnownHosts::read(known) {
            Err(KeyFault::Unreadable(error))
                if *trust_new_host && error.kind() == io::ErrorKind::NotFound =>
            {
                KnownHosts::default()
            }
            read => read.map_err(|fault| wrong_known(known, &fault))?,
        };
        let hosts = all.named(|name| connect.is_named(name));
        let (is_known, name, known) = (!hosts.is_empty(), connect.to_string(), known.to_owned());
        let mut keys = HostKeys::new(secret, hosts);
        if *trust_new_host {
            let (name, known, output) = (name.clone(), known.clone(), *output);
            keys = keys.meeting(move |key| {
                meet(&name, key, &known, &output);
                name.clone()
            });
        }
        Ok(Some(Arc::new(Self { policy, keys: Arc::new(keys), known, name, is_known })))
    }

    /// Returns whether the server has to prove which host it is.
    pub fn is_required(&self) -> bool {
        self.policy.requires()
    }

    /// Has the ends of a connection prove themselves.
    pub fn with(&self, options: ConnectOptions) -> ConnectOptions {
        let hosts = Arc::clone(&self.keys) as _;
        options.host_auth(HostAuth { policy: self.policy, hosts })
    }

    /// Says what to do about a server at `to` that is refused.
    pub fn explain(&self, to: SocketAddr, refusal: &HostRefusal) -> String {
        let Self { known, name, is_known, .. } = self;
        let known = known.display();
        match refusal {
            HostRefusal::Unproven => format!(
                "{to} does not prove which host it is; start the server with --host-auth, or connect with \
                 --host-auth optional if it need not"
            ),
            HostRefusal::Refused { why: Refused::UnknownPeer, claimed: Some(key) } if *is_known => {
                format!(
                    "{to} has another host key than {known} says of {name}: it is {key}; if the server has a new key, \
                     change the line, and if not, another host answers at its address"
                )
            }
            HostRefusal::Refused { why: Refused::UnknownPeer, claimed: Some(key) } => format!(
                "{known} has no line of {name}, whose host key is {key}; if that is its key, add `{name} {key}`, or give \
                 --trust-new-host"
            ),
            refusal => format!("{to}: {refusal}"),
        }
    }

    /// Returns what a server that lets this host not in may lack.
    pub fn unknown_here(&self) -> String {
        format!("whether its known hosts have this host's key {}", self.keys.public())
    }
}

/// What the options of host authentication name, if it is on.
struct Files<'a> {
    policy: Policy,
    key: &'a Path,
    known: &'a Path,
}

fn files(options: &HostOptions, versions: RpcVersion) -> Result<Option<Files<'_>>, Failure> {
    let HostOptions { host_auth, host_key, known_hosts } = options;
    let policy = match host_auth {
        HostPolicy::Off => Policy::Off,
        HostPolicy::Optional => Policy::Optional,
        HostPolicy::Required => Policy::Required,
    };
    match (policy, host_key, known_hosts) {
        (Policy::Off, None, None) => Ok(None),
        (Policy::Off, ..) => Err(Failure::usage(
            "--host-key and --known-hosts are for --host-auth optional or required",
        )),
        (Policy::Required, ..) if versions == RpcVersion::One => Err(Failure::usage(
            "--host-auth required is not for --rpc-version 1, which has no host authentication",
        )),
        (_, Some(key), Some(known)) => Ok(Some(Files { policy, key, known })),
        _ => Err(Failure::usage(
            "--host-auth needs --host-key and --known-hosts; `haulage host-key new FILE` makes a key",
        )),
    }
}

fn read_secret(path: &Path) -> Result<SecretKey, Failure> {
    SecretKey::read(path).map_err(|fault| {
        let path = path.display();
        Failure::failed(match fault {
            KeyFault::Unreadable(error) if error.kind() == io::ErrorKind::NotFound => {
                format!("there is no host key {path}; `haulage host-key new {path}` makes one")
            }
            fault => format!("cannot take the host key from {path}: {fault}"),
        })
    })
}

fn read_known(path: &Path) -> Result<KnownHosts, Failure> {
    KnownHosts::read(path).map_err(|fault| wrong_known(path, &fault))
}

fn wrong_known(path: &Path, fault: &KeyFault) -> Failure {
    Failure::failed(format!("cannot take the known hosts from {}: {fault}", path.display()))
}

/// Writes down the key of a server that is met for the first time.
fn meet(name: &str, key: &PublicKey, known: &Path, output: &Output) {
    let file = known.display();
    output.note(&match add(name, key, known) {
        Ok(()) => format!("{name} is trusted from now on: its host key {key} was added to {file}"),
        Err(error) => {
            format!("{name} with the host key {key} is trusted this once, as {file} cannot be written: {error}")
        }
    });
}

/// Adds a line to a file of known hosts, which is made if there is none.
fn add(name: &str, key: &PublicKey, known: &Path) -> io::Result<()> {
    let mut options = File::options();
    let mut file = options.read(true).append(true).create(true).mode(0o600).open(known)?;
    let mut last = [b'\n'];
    if file.seek(SeekFrom::End(0))? > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    let end = if last == [b'\n'] { "" } else { "\n" };
    file.write_all(format!("{end}{name} {key}\n").as_bytes())?;
    file.sync_all()
}
