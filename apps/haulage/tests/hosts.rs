//! Hosts that prove which they are, with servers and clients as processes of their own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{ChildStderr, Command, Output, Stdio};

use haulage_test_support::Started;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

/// A directory of keys, which goes with the test.
struct Keys(PathBuf);

impl Keys {
    fn new(name: &str) -> Self {
        let place =
            std::env::temp_dir().join(format!("haulage-{}-hosts-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).unwrap();
        let keys = Self(place);
        ["server", "client", "other"].iter().for_each(|name| {
            let made = haulage(&["host-key", "new", &keys.path(name)]);
            assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
        });
        keys
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn public(&self, name: &str) -> String {
        let shown = haulage(&["host-key", "show", &self.path(name)]);
        assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
        text(&shown.stdout).trim().to_owned()
    }

    /// Writes a file of known hosts with these names and the keys of these hosts. Returns its path.
    fn known(&self, file: &str, hosts: &[(&str, &str)]) -> String {
        let line = |(name, key): &(&str, &str)| format!("{name} {}\n", self.public(key));
        fs::write(self.0.join(file), hosts.iter().map(line).collect::<String>()).unwrap();
        self.path(file)
    }

    /// Returns the options of an end that has the key of `own` and knows the hosts in `known`.
    fn options(&self, policy: &str, own: &str, known: &str) -> Vec<String> {
        let [own, known] = [own, known].map(|name| self.path(name));
        ["--host-auth", policy, "--host-key", &own, "--known-hosts", &known]
            .map(str::to_owned)
            .to_vec()
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn haulage(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

/// A server, and its log.
struct Server {
    started: Started,
    log: BufReader<ChildStderr>,
}

impl Server {
    fn new(arguments: &[&str], hosts: &[String]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
        command.args(arguments).args(hosts).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut started = Started::new(&mut command);
        let log = BufReader::new(started.process.stderr.take().unwrap());
        Self { started, log }
    }

    fn kv(hosts: &[String]) -> Self {
        Self::new(&["kv", "serve", "--listen", "127.0.0.1:0", "--memory", "16MiB"], hosts)
    }

    /// Reads the log up to a line that has all of these words. Returns the line.
    fn says(&mut self, words: &[&str]) -> String {
        loop {
            if self.log.buffer().is_empty() {
                let mut fds = [PollFd::new(self.log.get_ref(), PollFlags::IN)];
                let patience = Timespec { tv_sec: 30, tv_nsec: 0 };
                assert_eq!(poll(&mut fds, Some(&patience)), Ok(1), "the log has no {words:?}");
            }
            let mut line = String::new();
            assert_ne!(self.log.read_line(&mut line).unwrap(), 0, "the log has no {words:?}");
            if words.iter().all(|word| line.contains(word)) {
                return line;
            }
        }
    }

    /// Runs `kv get` with these options of host authentication. Returns its exit status and its last line.
    fn get(&self, hosts: &[String]) -> (Option<i32>, String) {
        let address = self.started.address();
        let hosts: Vec<_> = hosts.iter().map(String::as_str).collect();
        let got = haulage(&[&["kv", "get", "a key", "--connect", address], &hosts[..]].concat());
        let said = [text(&got.stdout), text(&got.stderr)].concat();
        (got.status.code(), said.lines().last().unwrap_or_default().to_owned())
    }
}

#[test]
fn a_client_with_a_key_that_the_server_knows_is_served_and_others_end_with_1() {
    let keys = Keys::new("policies");
    keys.known("clients", &[("lab-1", "client")]);
    let mut server = Server::kv(&keys.options("required", "server", "clients"));
    server.says(&["every host has to prove which it is", "version 1"]);
    let address = server.started.address().to_owned();
    keys.known("servers", &[(&address, "server")]);
    keys.known("hosts", &[("127.0.0.1", "server")]);
    keys.known("strangers", &[(&address, "other"), ("127.0.0.1:1", "server")]);
    keys.known("nobody", &[]);
    let (server_key, client_key) = (keys.public("server"), keys.public("client"));
    let absent = "no such key";
    for (policy, own, known, status, says) in [
        ("required", "client", "servers", 1, absent),
        ("optional", "client", "servers", 1, absent),
        ("required", "client", "hosts", 1, absent),
        // The server is not the one that the client knows.
        ("required", "client", "strangers", 1, "has another host key than"),
        ("optional", "client", "strangers", 1, &server_key),
        ("required", "client", "nobody", 1, &format!("add `{address} {server_key}`")),
        // The server does not know the client.
        ("required", "other", "servers", 1, &keys.public("other")),
    ] {
        let (code, said) = server.get(&keys.options(policy, own, known));
        assert_eq!(code, Some(status), "{policy} {own} {known}: {said}");
        assert!(said.contains(says), "{policy} {own} {known}: {said}");
    }
    server.says(&["connection.lost", "not a known one", &keys.public("other")]);
    // Without a key, in either version.
    for version in [&[][..], &["--rpc-version".to_owned(), "1".to_owned()]] {
        let (code, said) = server.get(version);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("whether it requires --host-auth"), "{said}");
    }
    server.says(&["connection.lost", "does not prove which host it is"]);
    assert_ne!(server_key, client_key);
}

#[test]
fn what_is_known_is_read_again_on_a_hangup_and_hosts_that_are_gone_lose_their_connections() {
    let keys = Keys::new("hangup");
    let clients = keys.known("clients", &[("lab-1", "client"), ("lab-2", "other")]);
    let mut server = Server::kv(&keys.options("required", "server", "clients"));
    let address = server.started.address().to_owned();
    keys.known("servers", &[(&address, "server")]);
    let watch = |own| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
        command.args(["kv", "watch", "a", "--connect", &address]);
        command.args(keys.options("required", own, "servers"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut told = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        told.read_line(&mut line).unwrap();
        assert_eq!(line, "watching\n");
        (child, told)
    };
    let ((mut gone, _told), (mut stays, mut told)) = (watch("client"), watch("other"));
    let pid = Pid::from_raw(server.started.process.id().cast_signed()).unwrap();
    // What cannot be read changes nothing.
    let good = fs::read_to_string(&clients).unwrap();
    fs::write(&clients, "lab-2\n").unwrap();
    kill_process(pid, Signal::HUP).unwrap();
    server.says(&["the known hosts stay as they were", "line 1"]);
    assert_eq!(gone.try_wait().unwrap(), None);
    fs::write(&clients, good.lines().next_back().unwrap()).unwrap();
    kill_process(pid, Signal::HUP).unwrap();
    server.says(&["was read again"]);
    server.says(&["connection.lost", "lab-1", "not among the known hosts any more"]);
    assert_eq!(gone.wait().unwrap().code(), Some(1));
    let (code, said) = server.get(&keys.options("required", "client", "servers"));
    assert!(code == Some(1) && said.contains("this host's key"), "{said}");
    // The other host is told of changes still.
    let file = keys.path("value");
    fs::write(&file, b"four").unwrap();
    let mut put = vec!["kv", "put", "a key", &file, "--connect", &address];
    let hosts = keys.options("required", "other", "servers");
    put.extend(hosts.iter().map(String::as_str));
    assert_eq!(haulage(&put).status.code(), Some(0));
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    assert_eq!(line, "set a key 4\n");
    stays.kill().unwrap();
    stays.wait().unwrap();
}

#[test]
fn a_new_host_is_trusted_once_and_another_key_never_again() {
    let keys = Keys::new("trust");
    keys.known("clients", &[("lab-1", "client")]);
    let server = Server::kv(&keys.options("required", "server", "clients"));
    let address = server.started.address().to_owned();
    // The last line of the file has no end.
    fs::write(keys.0.join("servers"), "# ours").unwrap();
    let trusting = |known| {
        let mut options = keys.options("required", "client", known);
        options.push("--trust-new-host".to_owned());
        options
    };
    for known in ["servers", "new"] {
        let (code, said) = server.get(&trusting(known));
        assert!(code == Some(1) && said.contains("no such key"), "{said}");
        let (code, said) = server.get(&keys.options("required", "client", known));
        assert!(code == Some(1) && said.contains("no such key"), "{said}");
    }
    let line = format!("{address} {}\n", keys.public("server"));
    assert_eq!(fs::read_to_string(keys.path("servers")).unwrap(), format!("# ours\n{line}"));
    assert_eq!(fs::read_to_string(keys.path("new")).unwrap(), line);
    let mode = fs::metadata(keys.path("new")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    keys.known("wrong", &[(&address, "other")]);
    let before = fs::read_to_string(keys.path("wrong")).unwrap();
    let (code, said) = server.get(&trusting("wrong"));
    assert!(code == Some(1) && said.contains("has another host key than"), "{said}");
    assert_eq!(fs::read_to_string(keys.path("wrong")).unwrap(), before);
}

#[test]
fn wrong_files_and_options_are_refused_in_words() {
    let keys = Keys::new("wrong");
    let path = keys.path("client");
    let refused = |arguments: &[&str], status, says: &str| {
        let output = haulage(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains(says), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    };
    refused(&["host-key", "new", &path], 1, "exists, and is left as it is");
    refused(&["host-key", "show", &keys.path("absent")], 1, "`haulage host-key new ");
    let json = haulage(&["--json", "host-key", "show", &path]);
    let key = keys.public("client");
    assert_eq!(text(&json.stdout), format!("{{\"public_key\":\"{key}\"}}\n"));
    keys.known("known", &[("127.0.0.1", "server")]);
    fs::write(keys.0.join("before"), format!("{key} lab-1\n")).unwrap();
    let get = ["kv", "get", "a", "--connect", "127.0.0.1:1"];
    let with = |options: &[&str], status, says| refused(&[&get, options].concat(), status, says);
    let known = keys.path("known");
    with(&["--host-auth", "required"], 2, "needs --host-key and --known-hosts");
    with(&["--host-key", &path], 2, "are for --host-auth optional or required");
    with(&["--trust-new-host"], 2, "is for --host-auth optional or required");
    let both = ["--host-auth", "required", "--host-key", &path, "--known-hosts"];
    with(&[&both[..], &[&keys.path("before")]].concat(), 1, "line 1: the key is first");
    with(&[&both[..], &[&keys.path("absent")]].concat(), 1, "cannot read it: No such file");
    with(&[&both[..], &[&known, "--rpc-version", "1"]].concat(), 2, "is not for --rpc-version 1");
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    with(&[&both[..], &[&known]].concat(), 1, "chmod 600");
    let store = ["store", "serve", "--export", "memory:16MiB", "--listen", "127.0.0.1:0"];
    let server = keys.path("server");
    let auth = ["--host-auth", "required", "--host-key", &server, "--known-hosts", &known];
    for tcp in ["--tcp-listen", "--mount-listen"] {
        refused(&[&store[..], &auth, &[tcp, ":0"]].concat(), 2, "shuts out TCP");
    }
    refused(&[&store[..], &["--mount-listen", "off"]].concat(), 2, "is for --host-auth required");
    let list = ["store", "ls", "--mount-connect", ":1"];
    refused(&[&list[..], &auth].concat(), 2, "is not for --mount-connect");
}

#[test]
fn a_file_server_that_requires_proofs_has_no_port_over_tcp_and_serves_its_clients() {
    let keys = Keys::new("store");
    keys.known("clients", &[("lab-1", "client")]);
    let hosts = keys.options("required", "server", "clients");
    let arguments =
        ["--json", "store", "serve", "--export", "memory:16MiB", "--listen", "127.0.0.1:0"];
    let mut server = Server::new(&arguments, &hosts);
    server.says(&["every host has to prove which it is", "Linux mounts", "TCP"]);
    let ready = server.started.ready.clone();
    assert!(ready.contains(r#""mount_listen":null,"tcp_listen":null"#), "{ready}");
    let address = server.started.named("listen").to_owned();
    keys.known("servers", &[(&address, "server")]);
    let run = |words: &[&str], options: &[String], input: &[u8]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
        command.arg("store").args(words).args(["--connect", &address]).args(options);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A client that is not let in reads nothing.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    };
    let known = keys.options("required", "client", "servers");
    let put = run(&["put", "-", "/a"], &known, b"some octets");
    assert_eq!(put.status.code(), Some(0), "{}", text(&put.stderr));
    let got = run(&["get", "/a"], &known, b"");
    assert_eq!((got.status.code(), &got.stdout[..]), (Some(0), &b"some octets"[..]));
    for options in [keys.options("required", "other", "servers"), Vec::new()] {
        let refused = run(&["get", "/a"], &options, b"");
        assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
        assert!(refused.stdout.is_empty());
    }
}
