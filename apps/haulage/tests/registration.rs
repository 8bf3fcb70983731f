//! Servers that register with the real rpcbind, and clients that find them by it, in networks of the tests' own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use haulage::provider::Waker;
use haulage::rpcbind::{Endpoint, Netid, Program, Rpcbind, universal};
use haulage::sys::{clock, process, wake};
use haulage_store::{mount3, nfs3};
use haulage_test_support::Started;
use haulage_test_support::namespaces::{Whereabouts, enter};

const KV: Program =
    Program { program: haulage_kv::protocol::PROGRAM, version: haulage_kv::protocol::VERSION };
const NFS: Program = Program { program: nfs3::PROGRAM, version: nfs3::VERSION };
const MOUNT: Program = Program { program: mount3::PROGRAM, version: mount3::VERSION };

fn haulage(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs a command that ends with this status. Returns what it printed on standard output and standard error.
fn run(arguments: &[&str], status: i32) -> (String, String) {
    let output = haulage(arguments).output().unwrap();
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {stderr}");
    (stdout, stderr)
}

/// Runs a command that fails, and returns what it says last.
fn refused(arguments: &[&str], status: i32) -> String {
    let (_, said) = run(arguments, status);
    said.lines().last().unwrap().strip_prefix("haulage: ").unwrap().to_owned()
}

/// Returns what a program of another package prints, or `None`, with a line that says so, if it is not installed.
fn told_by(program: &str, arguments: &[&str]) -> Option<String> {
    match Command::new(program).args(arguments).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{program} {arguments:?}: {said}");
            Some(String::from_utf8(output.stdout).unwrap())
        }
        Err(_) => {
            eprintln!("skipped: {program} is not installed");
            None
        }
    }
}

/// An rpcbind, killed with the test.
struct Portmapper(Child);

impl Portmapper {
    /// Starts one that knows nothing, and waits until it answers.
    fn start() -> Self {
        let rpcbind = Self(Command::new("rpcbind").arg("-f").spawn().unwrap());
        until("rpcbind answers", || local().dump().is_ok());
        rpcbind
    }
}

impl Drop for Portmapper {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Returns a client of the local rpcbind.
fn local() -> Rpcbind {
    Rpcbind::at(vec![Endpoint::Local("/run/rpcbind.sock".into())], LONG)
}

/// Waits for a condition, and looks at it again and again.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = clock::now().saturating_add(LONG);
    let nobody = Waker::new().unwrap();
    while !is_so() {
        assert!(clock::now() < deadline, "it is not so yet that {what}");
        wake::wait(&nobody, PACE);
    }
}

/// Returns what servers have registered: programs, netids and universal addresses, in order.
fn registered() -> Vec<(u32, String, String)> {
    let known = local().dump().unwrap().into_iter();
    let servers = known.filter(|entry| [KV, NFS, MOUNT].contains(&entry.program));
    let mut all: Vec<_> =
        servers.map(|entry| (entry.program.program, entry.netid, entry.address)).collect();
    all.sort();
    all
}

fn entry(program: Program, netid: Netid, at: &str) -> (u32, String, String) {
    (program.program, netid.to_string(), universal(at.parse().unwrap()))
}

/// Starts a server that registers.
fn serve(arguments: &[&str]) -> Started {
    let mut command = haulage(arguments);
    Started::new(command.args(["--json", "--register"]).stderr(Stdio::piped()))
}

fn kv(listen: &str) -> Started {
    serve(&["kv", "serve", "--memory", "8MiB", "--value-max", "1MiB", "--listen", listen])
}

const STORE: &[&str] = &["store", "serve", "--export", "memory:64MiB", "--listen"];

/// Ends a server in order. Returns what it said.
fn end(mut server: Started) -> String {
    assert!(process::terminate(&mut server.process).unwrap().success());
    let mut said = String::new();
    server.process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    said
}

#[test]
fn servers_are_registered_from_their_start_to_their_end() {
    if enter("servers_are_registered_from_their_start_to_their_end") == Whereabouts::Outside {
        return;
    }
    let _rpcbind = Portmapper::start();
    let ports = ["127.0.0.1:0", "--mount-listen", ":0", "--tcp-listen", ":0"];
    let (kv, store) = (kv("127.0.0.1:0"), serve(&[STORE, &ports].concat()));
    let (nfs, mount) = (store.named("listen").to_owned(), store.named("mount_listen").to_owned());
    let mut expected = [
        entry(KV, Netid::Rdma, kv.named("listen")),
        entry(NFS, Netid::Rdma, &nfs),
        entry(NFS, Netid::Tcp, store.named("tcp_listen")),
        entry(MOUNT, Netid::Rdma, &nfs),
        entry(MOUNT, Netid::Tcp, &mount),
    ];
    expected.sort();
    assert_eq!(registered(), expected);

    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let has = |listed: &str, wanted: &[&str]| {
        listed.lines().any(|line| {
            words(line)
                .starts_with(&wanted.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
        })
    };
    if let Some(listed) = told_by("rpcinfo", &[]) {
        let at = universal(nfs.parse().unwrap());
        assert!(has(&listed, &["100003", "3", "rdma", &at, "nfs", "superuser"]), "{listed}");
    }
    if let Some(listed) = told_by("rpcinfo", &["-p"]) {
        let port = mount.parse::<SocketAddr>().unwrap().port().to_string();
        assert!(has(&listed, &["100005", "3", "tcp", &port, "mountd"]), "{listed}");
    }
    if let Some(listed) = told_by("showmount", &["-e", "127.0.0.1"]) {
        assert!(has(&listed, &["/", "(everyone)"]), "{listed}");
    }
    end(store);
    assert_eq!(registered(), [entry(KV, Netid::Rdma, kv.named("listen"))]);
    end(kv);
    assert_eq!(registered(), []);
    // Without NFS over TCP there is none to find.
    let ports = ["127.0.0.1:0", "--mount-listen", ":0", "--tcp-listen", "off"];
    let _store = serve(&[STORE, &ports].concat());
    let netids: Vec<_> =
        registered().into_iter().map(|(program, netid, _)| (program, netid)).collect();
    let of = |program: Program, netid: &str| (program.program, netid.to_owned());
    assert_eq!(netids, [of(NFS, "rdma"), of(MOUNT, "rdma"), of(MOUNT, "tcp")]);
}

#[test]
fn a_server_at_all_addresses_is_found_by_each_kind() {
    if enter("a_server_at_all_addresses_is_found_by_each_kind") == Whereabouts::Outside {
        return;
    }
    let _rpcbind = Portmapper::start();
    let kv = kv("[::]:0");
    let port = kv.named("listen").parse::<SocketAddr>().unwrap().port();
    let (v4, v6) = (format!("0.0.0.0:{port}"), format!("[::]:{port}"));
    assert_eq!(registered(), [entry(KV, Netid::Rdma, &v4), entry(KV, Netid::Rdma6, &v6)]);
    let place = env!("CARGO_MANIFEST_DIR").to_owned() + "/Cargo.toml";
    run(&["kv", "put", "key", &place, "--connect", "rpcbind:127.0.0.1"], 0);
    assert_eq!(run(&["kv", "keys", "--connect", "rpcbind:[::1]"], 0).0, "key\n");
    end(kv);
    assert_eq!(registered(), []);
}

#[test]
fn a_server_that_rpcbind_has_forgotten_is_registered_again() {
    if enter("a_server_that_rpcbind_has_forgotten_is_registered_again") == Whereabouts::Outside {
        return;
    }
    let rpcbind = Portmapper::start();
    let mut kv = kv("127.0.0.1:0");
    let ours = [entry(KV, Netid::Rdma, kv.named("listen"))];
    let mut said = BufReader::new(kv.process.stderr.take().unwrap()).lines();
    let mut says = |what: &str| said.any(|line| line.unwrap().contains(what));
    drop(rpcbind);
    assert!(says("nobody listens at /run/rpcbind.sock; this server is registered again once it"));
    let rpcbind = Portmapper::start();
    assert!(says("rpcbind did not know this server any more, which is registered again"));
    assert_eq!(registered(), ours);

    // Another server may have come first.
    drop(rpcbind);
    assert!(says("this server is registered again once it answers"));
    let _rpcbind = Portmapper::start();
    let other = "127.0.0.1:9".parse().unwrap();
    if local().set(KV, Netid::Rdma, other).is_ok() {
        assert!(says("at 127.0.0.1:9 by root; clients find that one"));
        local().unset(KV, Netid::Rdma).unwrap();
    }
    assert!(says("which is registered again"));
    assert_eq!(registered(), ours);
    assert!(process::terminate(&mut kv.process).unwrap().success());
    assert_eq!(registered(), []);
}

#[test]
fn what_another_server_has_registered_stays_as_it_is() {
    if enter("what_another_server_has_registered_stays_as_it_is") == Whereabouts::Outside {
        return;
    }
    let _rpcbind = Portmapper::start();
    local().set(MOUNT, Netid::Tcp, "127.0.0.1:9".parse().unwrap()).unwrap();
    let other = [entry(MOUNT, Netid::Tcp, "127.0.0.1:9")];
    let ports = [":0", "--mount-listen", ":0", "--tcp-listen", ":0", "--register"];
    let said = refused(&[STORE, &ports].concat(), 1);
    assert_eq!(
        said,
        "MOUNT (program 100005 version 3) for tcp is registered already, at 127.0.0.1:9 by root: end that server, or \
         leave out --register; if it is gone, `rpcinfo -d 100005 3` of that user removes what it left behind"
    );
    assert_eq!(registered(), other, "nothing of the server that did not start");

    // Another server that took its place is left alone at the end, too.
    let kv = kv("127.0.0.1:0");
    local().unset(KV, Netid::Rdma).unwrap();
    local().set(KV, Netid::Rdma, "127.0.0.1:9".parse().unwrap()).unwrap();
    end(kv);
    let mut others = [&other[..], &[entry(KV, Netid::Rdma, "127.0.0.1:9")]].concat();
    others.sort();
    assert_eq!(registered(), others);
}

#[test]
fn what_a_killed_server_left_behind_is_taken_over() {
    if enter("what_a_killed_server_left_behind_is_taken_over") == Whereabouts::Outside {
        return;
    }
    let _rpcbind = Portmapper::start();
    let mut killed = kv("127.0.0.1:0");
    let at = killed.named("listen").to_owned();
    killed.kill();
    let ours = [entry(KV, Netid::Rdma, &at)];
    assert_eq!(registered(), ours, "it could not end its registration");
    // The system takes back what an io_uring holds, the port too, soon after its process is gone.
    until("the port is free", || TcpListener::bind(&at).is_ok());
    let next = kv(&at);
    assert_eq!(registered(), ours);
    end(next);
    assert_eq!(registered(), []);
}

#[test]
fn clients_find_servers_by_rpcbind() {
    if enter("clients_find_servers_by_rpcbind") == Whereabouts::Outside {
        return;
    }
    let added = Command::new("ip").args(["addr", "add", "192.0.2.7/32", "dev", "lo"]).status();
    assert!(added.unwrap().success());
    let (here, there) = ("rpcbind:127.0.0.1", "rpcbind:192.0.2.7");
    let stat = |server: &str| refused(&["kv", "stat", "--connect", server], 1);
    assert_eq!(
        stat(there),
        "no rpcbind listens at 192.0.2.7; start it there, or give the address of the server with --connect"
    );
    let _rpcbind = Portmapper::start();
    assert_eq!(
        stat(here),
        "the rpcbind of 127.0.0.1 knows of no key-value service (program 541608790 version 1) over RDMA; start `haulage \
         kv serve --register` there, or give the address of the server with --connect"
    );
    let said = refused(&["store", "ls", "--connect", there], 1);
    assert!(said.contains("knows of no NFS (program 100003 version 3) over RDMA"), "{said}");

    let kv = kv("127.0.0.1:0");
    run(&["kv", "keys", "--connect", here], 0);
    run(&["kv", "bench", "--keys", "10", "--seconds", "0.1", "--connect", here], 0);
    let at = kv.named("listen");
    assert_eq!(
        stat(there),
        format!(
            "the rpcbind of 192.0.2.7 has key-value service (program 541608790 version 1) at {at}, which only its own \
             machine reaches; start `haulage kv serve` there with another --listen"
        )
    );

    let ports = ["192.0.2.7:0", "--mount-listen", "192.0.2.7:0", "--tcp-listen", "off"];
    let store = serve(&[STORE, &ports].concat());
    let place = env!("CARGO_MANIFEST_DIR").to_owned() + "/Cargo.toml";
    run(&["store", "put", &place, "/file", "--connect", there], 0);
    let listed = run(&["store", "ls", "--connect", here], 0).0;
    assert!(listed.trim_end().ends_with("file"), "{listed}");
    // What is refused at the port of NFS is asked for over TCP, where rpcbind says.
    let said = refused(&["store", "ls", "--export", "/other", "--connect", there], 1);
    let mount = store.named("mount_listen");
    assert!(said.starts_with(&format!("cannot mount /other of {mount}: ")), "{said}");
}

#[test]
fn a_registered_server_proves_which_host_it_is_under_one_name() {
    if enter("a_registered_server_proves_which_host_it_is_under_one_name") == Whereabouts::Outside {
        return;
    }
    let _rpcbind = Portmapper::start();
    let key = |file: &str| run(&["host-key", "new", file], 0).0;
    let (server, client) = (key("/run/server"), key("/run/client"));
    fs::write("/run/clients", format!("client {client}")).unwrap();
    let proven = ["--host-auth", "required", "--host-key"];
    let hosts = [&proven[..], &["/run/server", "--known-hosts", "/run/clients"]].concat();
    let store = serve(&[STORE, &["127.0.0.1:0"], &hosts].concat());
    // Over TCP no host proves which it is, so nothing is served there.
    let nfs = store.named("listen");
    let ours = [entry(NFS, Netid::Rdma, nfs), entry(MOUNT, Netid::Rdma, nfs)];
    assert_eq!(registered(), ours);

    let hosts = [&proven[..], &["/run/client", "--known-hosts", "/run/servers"]].concat();
    let list = [&["store", "ls", "--connect", "rpcbind:127.0.0.1"], &hosts[..]].concat();
    run(&[&list[..], &["--trust-new-host"]].concat(), 0);
    let known = fs::read_to_string("/run/servers").unwrap();
    assert_eq!(known, format!("rpcbind:127.0.0.1 {server}"));
    run(&list, 0);
    fs::write("/run/servers", format!("127.0.0.1 {server}")).unwrap();
    let said = refused(&list, 1);
    assert!(said.contains("/run/servers has no line of rpcbind:127.0.0.1"), "{said}");
}

#[test]
fn a_server_without_the_rpcbind_that_it_needs_does_not_start() {
    let absent = |serve: &[&str]| refused(&[serve, &["--register=/proc/self/absent"]].concat(), 1);
    for serve in [
        &["kv", "serve", "--memory", "100000GiB"][..],
        &["store", "serve", "--export", "memory:100000GiB"],
    ] {
        let said = absent(serve);
        assert_eq!(
            said,
            "there is no rpcbind: nobody listens at /proc/self/absent; start rpcbind, or leave out --register",
            "before memory is filled"
        );
    }
}

#[test]
fn wrong_arguments_are_refused_in_words() {
    for (arguments, says) in [
        (&["kv", "serve", "--register", "--provider", "shm"][..], "is not for --provider shm"),
        (&["kv", "serve", "--register=a b"], "give the path of rpcbind's socket"),
        (&["kv", "serve", "--register", "/run/rpcbind.sock"], "unexpected argument"),
        (
            &["perf", "run", "null", "--connect", "rpcbind:server"],
            "nothing is looked up with rpcbind here",
        ),
        (&["kv", "stat", "--connect", "rpcbind:"], "give a host"),
        (&["store", "ls", "--connect", "rpcbind:server:111"], "give a host without a port"),
        (
            &["store", "ls", "--mount-connect", "rpcbind:server"],
            "nothing is looked up with rpcbind here",
        ),
    ] {
        let said = refused(arguments, 2);
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
}

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);
/// How often a condition is looked at that nobody tells of.
const PACE: Duration = Duration::from_millis(5);
