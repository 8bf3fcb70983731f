//! `haulage store serve`.

use std::net::SocketAddr;

use haulage::cores;
use haulage::limits::{LIMITS_DEFAULT, Limits as CoreLimits};
use haulage_store::access::{Policy, Squash};
use haulage_store::handle::Sealer;
use haulage_store::memory::{Limits as MemoryLimits, Memory};
use haulage_store::nfs3::Time;
use haulage_store::nfs3::binding::Limits;
use haulage_store::server::tcp::{self, Front};
use haulage_store::server::{Admission, Server};
use haulage_store::service::{Config, Service};

use super::secrets::Secrets;
use crate::cli::ServeStore;
use crate::cli::bytes;
use crate::cli::values::{self, Export};
use crate::failure::Failure;
use crate::node::{NodeConfig, Notes};
use crate::output::{Output, json};
use crate::serving::{self, Termination};

/// Where a server has come to listen.
#[derive(Debug)]
struct Bound {
    rdma: SocketAddr,
    mount: SocketAddr,
    tcp: Option<SocketAddr>,
}

/// Serves until SIGTERM or SIGINT.
pub fn run(options: &ServeStore, output: &Output) -> Result<(), Failure> {
    let Export::Memory(size) = options.export;
    let room = usize::try_from(size.0).unwrap_or(usize::MAX);
    if room < MEMORY_MIN {
        let least = bytes::format(MEMORY_MIN as u64);
        return Err(Failure::usage(format!("--export memory: at least {least} of it")));
    }
    let thread = serving::one_core("store-core", &options.core, output)?;
    let addresses = Addresses::resolve(options)?;
    addresses.warn_if_open(options, output);
    let termination = Termination::catch()?;

    let (calls, from_tcp) = tcp::way();
    let admission = Admission {
        networks: options.allow.iter().map(|network| (network.address, network.bits)).collect(),
    };
    let (config, crc) = (config(options), options.core.crc);
    let (secrets, admitted, listen) = (Secrets::draw()?, admission.clone(), addresses.rdma);
    let core = cores::start(thread, move || {
        let node = NodeConfig { room, limits: CORE_LIMITS, crc };
        let (mut core, notes) = node.build(|pool| {
            let files_max = (room / OCTETS_PER_FILE) as u64;
            let limits = MemoryLimits { files_max, names_max: files_max };
            let backend = Memory::new(pool, limits, secrets.run, Time::default());
            let backend =
                backend.ok_or_else(|| Failure::failed("no memory for the first block"))?;
            let nfs = Service::new(backend, Sealer::new(&secrets.key, secrets.fsid), config);
            Ok(Server::new(nfs, &config.limits, admitted, from_tcp, secrets.seed))
        })?;
        let bound = serving::listen(&mut core, &listen)?;
        let waker = core.waker();
        Ok::<_, Failure>((core, (bound, notes, waker)))
    })?;
    let (rdma, notes, waker) = &core.started;
    Notes::tell(notes, output);
    let front = Front::new(calls, waker.clone(), admission, RECORD_MAX);
    let mount = serving::listen_by(&addresses.mount, "--mount-listen", |at| front.listen(at))?;
    let tcp = addresses
        .tcp
        .as_deref()
        .map(|addresses| serving::listen_by(addresses, "--tcp-listen", |at| front.listen(at)));
    let bound = Bound { rdma: *rdma, mount, tcp: tcp.transpose()? };
    ready(&bound, output)?;
    termination.wait(core)
}

/// Every address to listen at, looked up.
#[derive(Debug)]
struct Addresses {
    rdma: Vec<SocketAddr>,
    mount: Vec<SocketAddr>,
    tcp: Option<Vec<SocketAddr>>,
}

impl Addresses {
    fn resolve(options: &ServeStore) -> Result<Self, Failure> {
        let tcp = options.tcp_listen.0.as_ref().map(|address| address.resolve()).transpose()?;
        Ok(Self { rdma: options.listen.resolve()?, mount: options.mount_listen.resolve()?, tcp })
    }

    /// Says once that whoever can reach the port can claim to be anybody.
    fn warn_if_open(&self, options: &ServeStore, output: &Output) {
        let tcp = self.tcp.iter().flatten();
        let mut all = self.rdma.iter().chain(&self.mount).chain(tcp);
        if options.allow.is_empty() && all.any(|address| !address.ip().is_loopback()) {
            output.note(
                "whoever reaches these ports is served and can claim to be any user; --allow says \
                 who may connect",
            );
        }
    }
}

fn config(options: &ServeStore) -> Config {
    let squash = match options.squash {
        values::Squash::None => Squash::Nobody,
        values::Squash::Root => Squash::Root,
        values::Squash::All => Squash::All,
    };
    let (anonymous_uid, anonymous_gid) = (options.anonuid, options.anongid);
    let policy = Policy { squash, anonymous_uid, anonymous_gid };
    Config { policy, read_only: options.read_only, limits: NFS_LIMITS }
}

/// Prints the one line that says that connections are accepted.
fn ready(bound: &Bound, output: &Output) -> Result<(), Failure> {
    if !output.json {
        return output.line(&format!(
            "ready: mount -t nfs -o proto=rdma,port={},vers=3,nolock,mountproto=tcp,mountport={} \
             {}:/ /mnt",
            bound.rdma.port(),
            bound.mount.port(),
            host(bound.rdma),
        ));
    }
    output.line(&json::object(|o| {
        o.flag("ready", true).text("listen", &bound.rdma.to_string());
        o.text("mount_listen", &bound.mount.to_string());
        match bound.tcp {
            Some(tcp) => _ = o.text("tcp_listen", &tcp.to_string()),
            None => _ = o.json("tcp_listen", "null"),
        }
        o.json("metrics", "null").count("pid", u64::from(std::process::id()));
    }))
}

/// Returns what to write before the colon of what is mounted.
fn host(bound: SocketAddr) -> String {
    match bound {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => "HOST".to_owned(),
        SocketAddr::V4(v4) => v4.ip().to_string(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => "HOST".to_owned(),
        SocketAddr::V6(v6) => format!("[{}]", v6.ip()),
    }
}

/// What a client may ask for at once.
const NFS_LIMITS: Limits = Limits { read_max: 1 << 20, write_max: 1 << 20, readdir_max: 64 << 10 };

/// A client's kernel brings its own patience.
const CORE_LIMITS: CoreLimits = LIMITS_DEFAULT;

/// Octets of the longest Call over TCP: a WRITE and what surrounds it.
const RECORD_MAX: usize = (1 << 20) + 4096;

/// Of the memory, there may be one file for so many octets.
const OCTETS_PER_FILE: usize = 1024;

/// Less would be hardly a file.
const MEMORY_MIN: usize = 4 << 20;
