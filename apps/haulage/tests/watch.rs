//! `kv watch`, with a server, its clients and a watcher as processes of their own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdout, Command, Stdio};

use haulage_test_support::Started;

fn haulage(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A server, killed with the test, and the options of its clients.
struct Server {
    process: Started,
    options: Vec<&'static str>,
}

impl Server {
    fn start(provider: &'static str, version: &'static str) -> Self {
        let mut command = haulage(&["kv", "serve", "--listen", "127.0.0.1:0"]);
        // A connection is idle at once.
        let limits = ["--memory", "32MiB", "--idle-timeout", "1", "--provider", provider];
        let options = vec!["--provider", provider, "--rpc-version", version, "--timeout", "60"];
        Self { process: Started::new(command.args(limits)), options }
    }

    fn client(&self, arguments: &[&str]) -> Command {
        let mut command = haulage(&["kv"]);
        command.args(arguments).args(["--connect", self.process.address()]).args(&self.options);
        command
    }

    fn set(&self, key: &str, length: usize) {
        let mut child = self.client(&["put", key]).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&vec![7; length]).unwrap();
        assert!(child.wait().unwrap().success());
    }

    fn delete(&self, key: &str) {
        assert!(self.client(&["del", key]).status().unwrap().success());
    }

    /// Starts a watch, and waits for its first line.
    fn watch(&self, arguments: &[&str]) -> Watch {
        let mut process = self.client(&["watch"]).args(arguments).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        let mut watch = Watch { process, lines };
        let json = arguments.contains(&"--json");
        assert_eq!(watch.line(), if json { "{\"watching\":true}" } else { "watching" });
        watch
    }
}

/// A watcher, killed with the test.
struct Watch {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Watch {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        assert_eq!(line.pop(), Some('\n'));
        line
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.process.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits for the end. Returns the exit status, and what was printed on standard error.
    fn end(&mut self) -> (Option<i32>, String) {
        let (mut rest, mut said) = (String::new(), String::new());
        self.lines.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
        self.process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.process.wait().unwrap().code(), said)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn changes_are_printed_as_they_happen_until_a_signal_ends_the_watch() {
    for (provider, version) in [("iwarp", "auto"), ("iwarp", "1"), ("shm", "auto"), ("shm", "1")] {
        let server = Server::start(provider, version);
        let (mut some, mut all) = (server.watch(&["k"]), server.watch(&["", "--json"]));
        server.set("k 1", 3);
        assert_eq!(some.line(), "set k 1 3");
        server.set("other", 100_000);
        server.delete("k 1");
        assert_eq!(some.line(), "del k 1");
        for line in [
            "{\"set\":\"k 1\",\"bytes\":3}",
            "{\"set\":\"other\",\"bytes\":100000}",
            "{\"del\":\"k 1\"}",
        ] {
            assert_eq!(all.line(), line, "{provider} {version}");
        }
        // A key that would be two lines is one.
        server.set("k 1\ndel k 2", 1);
        assert_eq!(some.line(), r"set $'k 1\ndel k 2' 1");
        assert_eq!(all.line(), r#"{"set":"k 1\ndel k 2","bytes":1}"#);
        some.signal("-INT");
        all.signal("-TERM");
        assert_eq!((some.end(), all.end()), ((Some(0), String::new()), (Some(0), String::new())));
        // What nobody watches any more is served as before.
        server.set("k 1", 4);
    }
}

#[test]
fn a_watch_that_stands_still_is_told_the_last_state_and_how_many_it_missed() {
    let server = Server::start("iwarp", "auto");
    let mut watch = server.watch(&[""]);
    watch.signal("-STOP");
    for length in 1..=20 {
        server.set("key", length);
    }
    watch.signal("-CONT");
    let (mut lines, mut merged) = (0, 0);
    let mut last = String::new();
    while lines + merged < 20 || last != "set key 20" {
        let line = watch.line();
        match line.strip_prefix("merged ") {
            Some(count) => merged += count.parse::<u32>().unwrap(),
            None => (lines, last) = (lines + 1, line),
        }
    }
    assert_eq!(lines + merged, 20);
    assert!(merged > 10, "{merged}");
    watch.signal("-INT");
    assert_eq!(watch.end(), (Some(0), String::new()));
}

#[test]
fn a_server_that_is_killed_ends_a_watch_with_one_line() {
    for provider in ["iwarp", "shm"] {
        let mut server = Server::start(provider, "auto");
        let mut watch = server.watch(&["k"]);
        server.process.kill();
        let (status, said) = watch.end();
        assert_eq!((status, said.lines().count()), (Some(1), 1), "{said}");
        assert!(said.contains("is lost"), "{said}");
    }
}

#[test]
fn a_prefix_that_no_key_can_have_is_refused() {
    let output = haulage(&["kv", "watch", &"k".repeat(513)]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = str::from_utf8(&output.stderr).unwrap();
    assert_eq!(said, "haulage: a key has at most 512 bytes, so has a prefix\n");
}

#[test]
fn a_watch_ends_with_itsreader_though_nothing_changes() {
    let server = Server::start("iwarp", "auto");
    let mut watch = server.watch(&[""]);
    let Watch { process, lines } = &mut watch;
    // As `head -n 1` ends once it has a line.
    let (reader, unread) = std::io::pipe().unwrap();
    drop(std::mem::replace(lines, BufReader::new(ChildStdout::from(OwnedFd::from(reader)))));
    drop(unread);
    assert_eq!(process.wait().unwrap().code(), Some(0));
    assert_eq!(watch.end(), (Some(0), String::new()));
}
