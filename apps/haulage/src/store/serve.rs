//! The command `haulage store serve`.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc::{self, SyncSender};
use std::thread;

use haulage::core::{Cx, TcpLimits};
use haulage::cores;
use haulage::pool::Allowance;
use haulage::sys::socket::Listener as Ports;
use haulage_store::access::{Policy, Squash};
use haulage_store::backend::Backend;
use haulage_store::crowd::Listener;
use haulage_store::directory::{self, Ids, Owner};
use haulage_store::handle::Sealer;
use haulage_store::nfs3::binding::Limits;
use haulage_store::program::RESULTS_KEPT;
use haulage_store::replays::{self, Replays};
use haulage_store::server::gate::{Gate, Notice};
use haulage_store::server::{Admission, Server};
use haulage_store::service::{Config, Service};
use haulage_store::trust::{self, Claims, Privilege, Trust};

use super::export::{self, Export, How};
use super::statuses;
use crate::cli::address::Address;
use crate::cli::perf::Count;
use crate::cli::values::{self, HostPolicy, Maybe};
use crate::cli::{PeerOptions, ServeStore};
use crate::failure::Failure;
use crate::hosts::ServerHosts;
use crate::locks;
use crate::metrics::{Counted, Metered, Metric, http};
use crate::node::{Carrier, NodeConfig, Notes, over, server_limits};
use crate::open_files;
use crate::output::{Output, json};
use crate::registration::service::NamedProgram;
use crate::registration::{self, Registration};
use crate::serving::{self, Termination};

/// The bound addresses of a server, and the owner of created files.
#[derive(Debug)]
struct Bound {
    rdma: SocketAddr,
    mount: Option<SocketAddr>,
    tcp: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
    owner: Option<Owner>,
}

impl Bound {
    /// Returns what is served at these addresses. MOUNT is answered at the RDMA port, too.
    fn services(&self) -> Vec<registration::service::Service> {
        let Self { rdma, mount, tcp, .. } = *self;
        let over_rdma = [NamedProgram::NFS, NamedProgram::MOUNT].map(|of| of.over_rdma(rdma));
        let over_tcp = [NamedProgram::NFS.over_tcp(tcp), NamedProgram::MOUNT.over_tcp(mount)];
        [over_rdma, over_tcp].concat().concat()
    }
}

/// Serves until SIGTERM or SIGINT.
pub fn run(options: &ServeStore, output: &Output) -> Result<(), Failure> {
    match &options.export {
        values::Export::Memory(_) if options.state.is_some() => Err(Failure::usage(
            "--state is for a directory: what is in memory ends with the server",
        )),
        values::Export::Memory(size) => {
            let export = export::memory(size.0)?;
            let connections = open_files::connections(options.connections, 0, output)?;
            over!(options.core.provider, serve, (options, export, connections, output))
        }
        values::Export::Directory(path) => {
            let beside = export::DESCRIPTORS_MIN;
            let connections = open_files::connections(options.connections, beside, output)?;
            let (stable, direct) = (!options.unstable_names, options.direct);
            let lists_kept = options.lists_kept.0.unwrap_or_default();
            let how = How { stable, direct, lists_kept, connections };
            let state = options.state.as_deref();
            let export = export::directory(path, state, how, output)?;
            if export.owner.is_none() {
                check_anonymous(options, &Ids::users(), &Ids::groups())?;
            }
            over!(options.core.provider, serve, (options, export, connections, output))
        }
    }
}

fn serve<P: Carrier>(
    options: &ServeStore,
    export: Export<impl Backend + 'static>,
    connections: Count,
    output: &Output,
) -> Result<(), Failure> {
    let Export { room, asked, owner, secrets, make } = export;
    let rpcbind = registration::prepare(&options.register, options.core.provider)?;
    let thread = serving::one_core("store-core", &options.core, output)?;
    let addresses = Addresses::resolve(options)?;
    let hosts = ServerHosts::of(&options.hosts, options.core.versions.rpc_version, NO_TCP, output)?;
    let privilege = Privilege::here();
    check_owner(owner, privilege, claims(options))?;
    addresses.warn_if_open(options, privilege, output);
    warn_of_ports(options, privilege, output);
    if owner.is_none() {
        anonymous_root(options).into_iter().flatten().for_each(|note| output.note(note));
    }
    warn_of_locks(&addresses.rdma, output);
    addresses.check::<P>()?;
    serving::check_metrics(options.metrics.as_ref())?;
    let auth = hosts.as_ref().map(ServerHosts::auth);
    let termination = Termination::catch(hosts)?;

    let admission = Admission {
        networks: options.allow.iter().map(|network| (network.address, network.bits)).collect(),
    };
    // No option sets a timeout for Calls: the client's kernel has timeouts of its own.
    let limits = server_limits(&options.peers, connections);
    let limits = options.core.versions.server(limits, room);
    let (config, crc) = (config(options, owner), options.core.crc);
    let trusted = trust_in_callers(options, privilege);
    let gate = Gate::new(admission, trusted).telling(tell_notices(*output)?);
    let (asking, questions) = http::way();
    let tcp_limits = tcp_limits(&options.peers, connections);
    let core = cores::start(thread, move || {
        let node = NodeConfig { asked, crc, hosts: auth, ..NodeConfig::new(room, limits) };
        let (mut core, notes) = node.build::<P, _>(|pool, waker| {
            let sealer = Sealer::new(&secrets.key, secrets.fsid);
            let nfs = Service::new(make(pool, waker)?, sealer, config);
            let replays = replays::Limits::of_memory(room, RESULTS_KEPT);
            // The pool is allocated by now; the rest of the memory is for kept Replies.
            node.wanted().check_rest(replays.octets_max)?;
            let replays = Replays::new(&replays, secrets.seed);
            let server = Server::new(nfs, &config.limits, gate, replays);
            Ok(Metered::new(server, questions))
        })?;
        let rdma = serving::listen(&mut core, &addresses.rdma)?;
        let mut listen = |addresses: &[SocketAddr], option| {
            serving::listen_by(addresses, option, |at| core.listen_tcp(at, tcp_limits))
        };
        let mount =
            addresses.mount.as_deref().map(|at| listen(at, "--mount-listen")).transpose()?;
        let tcp = addresses.tcp.as_deref().map(|at| listen(at, "--tcp-listen")).transpose()?;
        let waker = core.waker();
        Ok::<_, Failure>((core, ((rdma, mount, tcp), notes, waker)))
    })?;
    let ((rdma, mount, tcp), notes, waker) = &core.started;
    Notes::tell(notes, output);
    let metrics = serving::metrics(options.metrics.as_ref(), &asking, std::slice::from_ref(waker))?;
    let bound = Bound {
        rdma: *rdma,
        mount: *mount,
        tcp: *tcp,
        metrics: metrics.as_ref().map(Listener::address),
        owner,
    };
    let registration = Registration::begin(rpcbind, bound.services(), output)?;
    serving::ready(&ready(&bound, output), output)?;
    termination.wait(core.into(), registration, metrics, output)
}

/// The resolved addresses to listen at.
#[derive(Debug)]
struct Addresses {
    rdma: Vec<SocketAddr>,
    mount: Option<Vec<SocketAddr>>,
    tcp: Option<Vec<SocketAddr>>,
}

impl Addresses {
    fn resolve(options: &ServeStore) -> Result<Self, Failure> {
        let ServeStore { mount_listen: Maybe(mount), tcp_listen: Maybe(tcp), .. } = options;
        match (options.hosts.host_auth, mount, tcp) {
            (HostPolicy::Required, None, None) => {}
            (HostPolicy::Required, ..) => {
                return Err(Failure::usage(
                    "--host-auth required shuts out TCP, where no host proves which it is; leave out --mount-listen and \
                     --tcp-listen",
                ));
            }
            (_, Some(_), _) => {}
            (_, None, _) => {
                return Err(Failure::usage("--mount-listen off is for --host-auth required"));
            }
        }
        let resolved = |address: &Option<Address>| {
            address.as_ref().map(|address| address.resolve(None)).transpose()
        };
        Ok(Self {
            rdma: options.listen.resolve(None)?,
            mount: resolved(mount)?,
            tcp: resolved(tcp)?,
        })
    }

    /// Finds out whether the ports can be listened at.
    fn check<P: Carrier>(&self) -> Result<(), Failure> {
        serving::check(&self.rdma, "--listen", P::check_listen)?;
        for (addresses, option) in [(&self.mount, "--mount-listen"), (&self.tcp, "--tcp-listen")] {
            let addresses = addresses.as_deref();
            addresses.map_or(Ok(()), |at| serving::check(at, option, Ports::check))?;
        }
        Ok(())
    }

    /// Warns once of the claims that are believed without proof.
    fn warn_if_open(&self, options: &ServeStore, privilege: Privilege, output: &Output) {
        let tcp = self.mount.iter().chain(&self.tcp).flatten();
        let mut all = self.rdma.iter().chain(tcp);
        let is_open = all.any(|address| !address.ip().is_loopback());
        let proves = options.hosts.host_auth == HostPolicy::Required;
        let is_bounded = !options.allow.is_empty() || proves;
        let note = match (privilege, options.insecure, is_open) {
            (Privilege::Privileged, true, _) => {
                "whoever can connect can claim to be any user, as --insecure has it; --allow says which \
                 clients may connect"
            }
            _ if is_bounded => return,
            (Privilege::Privileged, false, true) => {
                "other machines, and containers and virtual machines with addresses of their own, can claim \
                 to be any user over RDMA, and so can their root over TCP; --allow says which clients may \
                 connect"
            }
            (Privilege::Privileged, false, false) => {
                "root of this machine can claim to be any user; other local users are themselves over \
                 RDMA and the anonymous user over TCP"
            }
            (Privilege::Unprivileged, _, true) => {
                "whoever reaches these ports is served and can claim to be any user; --allow says which \
                 clients may connect"
            }
            (Privilege::Unprivileged, _, false) => return,
        };
        output.note(note);
    }
}

/// Warns once if this machine lets all users open some ports below 1024.
fn warn_of_ports(options: &ServeStore, privilege: Privilege, output: &Output) {
    if privilege == Privilege::Privileged
        && !options.insecure
        && let Some(first) = trust::ports_for_all()
    {
        output.note(&format!(
            "every user of this machine may open ports from {first} on, so callers of this machine are believed \
             over TCP only from ports below; `sysctl -w net.ipv4.ip_unprivileged_port_start=1024` reserves them"
        ));
    }
}

/// Returns warnings that callers whom nobody vouches for have the rights of root.
const fn anonymous_root(options: &ServeStore) -> [Option<&'static str>; 2] {
    let user = "--anonuid 0 makes every caller root who is squashed or not believed; give the ID of a user without \
                rights, such as 65534";
    let group = "--anongid 0 puts every caller who is squashed or not believed into root's group; give the ID of a \
                 group without rights, such as 65534";
    [
        if options.anonuid == 0 { Some(user) } else { None },
        if options.anongid == 0 { Some(group) } else { None },
    ]
}

/// Warns once that locks hang where clients find no lock manager.
fn warn_of_locks(addresses: &[SocketAddr], output: &Output) {
    let Some(host) = addresses.first().map(|address| match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        _ => address.ip(),
    }) else {
        return;
    };
    if let Some(lack) = locks::lacking(host) {
        output.note(&format!(
            "{lack}; programs on a client that mounts without `nolock` hang at their first lock"
        ));
    }
}

/// Fails if files cannot be given to the anonymous user.
fn check_anonymous(options: &ServeStore, users: &Ids, groups: &Ids) -> Result<(), Failure> {
    for (id, option, ids) in
        [(options.anonuid, "--anonuid", users), (options.anongid, "--anongid", groups)]
    {
        if !ids.has(id) {
            return Err(Failure::failed(format!(
                "{option} {id} is not in this user namespace; choose another, or map it"
            )));
        }
    }
    Ok(())
}

/// Fails if the server runs as root, or has some of root's privileges over files, but may not act as other users: it
/// would serve every caller as root, or with these privileges.
fn check_owner(owner: Option<Owner>, privilege: Privilege, claims: Claims) -> Result<(), Failure> {
    let why = match (owner, privilege, claims) {
        (Some(Owner { uid: 0, .. }), _, Claims::Vouched) if directory::is_alone() => {
            "this user namespace has no user but root, as whom every caller would be served; map more users, or \
             allow that with --insecure"
        }
        (Some(_), Privilege::Privileged, Claims::Vouched) => {
            "running as root, or with some of these, needs CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_SETGID and \
             CAP_SETUID; give them all, or run it as another user without any"
        }
        _ => return Ok(()),
    };
    Err(Failure::failed(why))
}

/// Returns the claims that are believed.
const fn claims(options: &ServeStore) -> Claims {
    if options.insecure { Claims::All } else { Claims::Vouched }
}

/// Returns the rules by which claims are believed.
fn trust_in_callers(options: &ServeStore, privilege: Privilege) -> Trust {
    let claims = claims(options);
    let local_ports_reserved = trust::ports_for_all().unwrap_or(trust::RESERVED_PORTS);
    Trust { privilege, claims, anonymous_gid: options.anongid, local_ports_reserved }
}

/// Starts a thread that prints notices, so that no core waits for a terminal.
fn tell_notices(output: Output) -> Result<SyncSender<Notice>, Failure> {
    let (sender, notices) = mpsc::sync_channel::<Notice>(NOTICES_MAX);
    let tell = move || notices.iter().for_each(|notice| output.note(&notice.to_string()));
    let thread = thread::Builder::new().name("notices".to_owned()).spawn(tell);
    thread.map_err(|error| Failure::failed(format!("cannot start a thread: {error}")))?;
    Ok(sender)
}

/// Returns the limits of each port over TCP: those of RDMA, and for long records at most a quarter of the memory that this
/// process can still take.
fn tcp_limits(peers: &PeerOptions, Count(connections): Count) -> TcpLimits {
    let usual = TcpLimits::DEFAULT;
    let part = Allowance::here().available.map_or(usize::MAX, |available| available / 4);
    TcpLimits {
        connections_max: connections,
        records_octets: usual.records_octets.min(part).max(2 * usual.record_max),
        idle_timeout: peers.idle_timeout.0,
        progress_timeout: peers.progress_timeout.0,
        ..usual
    }
}

/// Returns the configuration of the service. If all created files belong to one owner, all callers act as that owner;
/// otherwise no caller could write the files it created.
fn config(options: &ServeStore, owner: Option<Owner>) -> Config {
    let squash = match options.squash {
        values::Squash::None => Squash::Nobody,
        values::Squash::Root => Squash::Root,
        values::Squash::All => Squash::All,
    };
    let (anonymous_uid, anonymous_gid) = (options.anonuid, options.anongid);
    let policy = match owner {
        None => Policy { squash, anonymous_uid, anonymous_gid },
        Some(Owner { uid, gid }) => {
            Policy { squash: Squash::All, anonymous_uid: uid, anonymous_gid: gid }
        }
    };
    Config { policy, read_only: options.read_only, limits: NFS_LIMITS }
}

impl<B: Backend> Counted for Server<B> {
    fn metrics(&self, _: &Cx<'_>) -> Vec<Metric> {
        let figures = self.figures();
        let disbelieved = |label, value| Metric {
            name: "haulage_store_claims_disbelieved_total",
            label,
            help: "NFS and MOUNT calls served as the anonymous user because the AUTH_SYS claim was not believed.",
            value,
        };
        let others = [
            disbelieved("transport=\"tcp\"", figures.disbelieved_tcp),
            disbelieved("transport=\"rdma\"", figures.disbelieved_rdma),
            Metric {
                name: "haulage_store_mounts_refused_total",
                label: "",
                help: "MOUNT requests refused because --allow does not name the client's address.",
                value: figures.mounts_refused,
            },
        ];
        others.into_iter().chain(statuses::metrics(self.told())).collect()
    }
}

/// Returns the `ready:` line.
fn ready(bound: &Bound, output: &Output) -> String {
    if !output.json {
        // The note about the owner is a comment to the shell.
        let owner = bound.owner.map_or_else(String::new, |Owner { uid, .. }| {
            format!(" # all files made here are those of user {uid}, who serves them")
        });
        let Some(mount) = bound.mount else { return format!("ready: {}{owner}", bound.rdma) };
        return format!(
            "ready: mount -t nfs -o proto=rdma,port={},vers=3,nolock,mountproto=tcp,mountport={} \
             {}:/ /mnt{owner}",
            bound.rdma.port(),
            mount.port(),
            host(bound.rdma),
        );
    }
    json::object(|o| {
        o.flag("ready", true).text("listen", &bound.rdma.to_string());
        o.place("mount_listen", bound.mount);
        o.place("tcp_listen", bound.tcp);
        o.place("metrics", bound.metrics);
        o.count("pid", u64::from(std::process::id()));
        match bound.owner {
            Some(owner) => _ = o.count("owner", owner.uid),
            None => _ = o.json("owner", "null"),
        }
    })
}

/// Returns the host part of the `mount` command.
fn host(bound: SocketAddr) -> String {
    match bound {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => "HOST".to_owned(),
        SocketAddr::V4(v4) => v4.ip().to_string(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => "HOST".to_owned(),
        // The name of a link-local interface differs on each machine, so the user has to put in the client's.
        SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("[{}%INTERFACE]", v6.ip()),
        SocketAddr::V6(v6) => format!("[{}]", v6.ip()),
    }
}

/// Whom a server shuts out to which hosts have to prove which they are.
const NO_TCP: &str = "clients of version 1 of RPC-over-RDMA, as Linux mounts are, and those over TCP are shut out; MOUNT is \
                      answered at the port of NFS";

/// The maximum transfer sizes of one Call.
const NFS_LIMITS: Limits = Limits { read_max: 1 << 20, write_max: 1 << 20, readdir_max: 64 << 10 };

/// Maximum number of notices queued for printing.
const NOTICES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{self, Command, Parsed, Store};

    fn options() -> ServeStore {
        let line = ["haulage", "store", "serve", "--export", "memory:64MiB"];
        let Ok(Parsed::Command(Command::Store(Store::Serve(options)), _)) =
            cli::parse(&line.map(Into::into))
        else {
            panic!("a server of files")
        };
        options
    }

    #[test]
    fn the_anonymous_user_and_group_are_of_the_namespace() {
        let [few, all] = ["0 100000 1000\n", "0 0 4294967295\n"].map(Ids::parse);
        assert!(check_anonymous(&options(), &all, &all).is_ok());
        for (users, groups, option) in [(&few, &all, "--anonuid"), (&all, &few, "--anongid")] {
            let failure = check_anonymous(&options(), users, groups).unwrap_err().to_string();
            assert!(failure.starts_with(&format!("{option} 65534 is not in")), "{failure}");
        }
    }

    #[test]
    fn an_anonymous_user_with_the_rights_of_root_is_warned_of() {
        let warned = |anonuid, anongid| {
            let notes = anonymous_root(&ServeStore { anonuid, anongid, ..options() });
            notes.map(|note| note.is_some_and(|note| note.contains("squashed or not believed")))
        };
        assert_eq!(warned(65_534, 65_534), [false, false]);
        assert_eq!(
            [warned(0, 1), warned(1, 0), warned(0, 0)],
            [[true, false], [false, true], [true; 2]]
        );
    }

    #[test]
    fn nfs_is_served_over_tcp_at_its_port_unless_told_otherwise() {
        let Addresses { rdma, tcp, .. } = Addresses::resolve(&options()).unwrap();
        let at_2049: Vec<_> = rdma.iter().map(|at| SocketAddr::new(at.ip(), 2049)).collect();
        assert_eq!(tcp, Some(at_2049), "at the addresses at which it is over RDMA");
    }

    #[test]
    fn a_part_of_the_rights_of_root_serves_nobody_with_them_unless_told_to() {
        use Claims::{All, Vouched};
        use Privilege::{Privileged, Unprivileged};
        let [root, user] = [0, 1000].map(|uid| Some(Owner { uid, gid: 0 }));
        for owner in [root, user] {
            assert!(check_owner(owner, Privileged, Vouched).is_err(), "{owner:?}");
        }
        for (owner, privilege, claims) in [
            (root, Privileged, All),
            (user, Privileged, All),
            (user, Unprivileged, Vouched),
            (None, Privileged, Vouched),
        ] {
            assert!(check_owner(owner, privilege, claims).is_ok(), "{owner:?} {claims:?}");
        }
    }
}
