//! What is shown on a terminal while something takes long.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};

use haulage::sys::process;
use haulage_test_support::Started;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// The command, with a terminal for standard error.
struct Watched {
    process: Child,
    terminal: File,
    seen: String,
}

impl Watched {
    fn start(arguments: &[&str]) -> Self {
        Self::start_as(arguments, |_, _| ())
    }

    /// Starts the command after `change` has seen it and the terminal.
    fn start_as(arguments: &[&str], change: impl FnOnce(&mut Command, &OwnedFd)) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let theirs = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
        let command = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let command = command.env("TERM", "xterm");
        change(command, &theirs);
        let process = command.stderr(theirs).spawn().unwrap();
        Self { process, terminal: terminal.into(), seen: String::new() }
    }

    /// Reads until `awaited` was shown.
    fn until(&mut self, awaited: &str) -> &mut Self {
        while !self.seen.contains(awaited) {
            let mut room = [0; 4096];
            // A terminal that nobody holds any more ends with an error.
            let length = self.terminal.read(&mut room).unwrap_or(0);
            assert_ne!(length, 0, "{awaited:?} is missing: {:?}", self.seen);
            self.seen.push_str(str::from_utf8(&room[..length]).unwrap());
        }
        self
    }

    /// Waits for its end. Returns all that the terminal was sent, and what stands there in the end.
    fn end(mut self) -> (ExitStatus, String, String) {
        // The read ends when no process holds the terminal any more. Standard output is not read meanwhile, but fits
        // the pipe.
        let mut rest = Vec::new();
        let _ = self.terminal.read_to_end(&mut rest);
        let status = self.process.wait().unwrap();
        self.seen.push_str(str::from_utf8(&rest).unwrap());
        let lines = self.seen.split("\r\n");
        let left: Vec<_> = lines.map(|line| line.rsplit("\r\x1b[K").next().unwrap()).collect();
        (status, self.seen.clone(), left.join("\n"))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const LIMITS: &str = "measuring the machine's limits";

#[test]
fn a_benchmark_says_what_it_does_and_takes_it_away_again() {
    let shown = Watched::start(&["perf", "local", "null", "--seconds", "0.6", "--runs", "2"]);
    let (status, seen, left) = shown.end();
    assert!(status.success(), "{seen:?}");
    for what in [&format!("run 1 of 2  {LIMITS}")[..], "run 2 of 2  starting", " of 0.", "[#####"] {
        assert!(seen.contains(what), "{what:?} in {seen:?}");
    }
    assert_eq!(left, "", "{seen:?}");
}

#[test]
fn a_server_that_is_not_there_is_told_before_the_machine_is_measured() {
    for command in ["kv bench", "perf run null"] {
        let arguments: Vec<_> = command.split(' ').chain(["--connect", "127.0.0.1:1"]).collect();
        let (status, seen, left) = Watched::start(&arguments).end();
        assert_eq!(status.code(), Some(1), "{seen:?}");
        assert!(left.starts_with("haulage: nobody listens at 127.0.0.1:1"), "{left:?}");
        assert_eq!(left.lines().count(), 1, "{left:?}");
        assert!(!seen.contains(LIMITS), "{command}: {seen:?}");
    }
}

#[test]
fn a_server_and_its_clients_say_what_they_wait_for() {
    let mut server = Watched::start(&["kv", "serve", "--listen", ":0", "--memory", "32MiB"]);
    let mut ready = String::new();
    let mut stdout = BufReader::new(server.process.stdout.take().unwrap());
    stdout.read_line(&mut ready).unwrap();
    let address = ready.trim_end().strip_prefix("ready: ").unwrap();
    let arguments = ["kv", "bench", "--connect", address, "--seconds", "0.3", "--keys", "100"];
    let (status, seen, left) = Watched::start(&arguments).end();
    assert!(status.success() && left.is_empty(), "{seen:?}");
    for what in [&format!("connecting to {address}")[..], LIMITS, "storing the keys", " of 0."] {
        assert!(seen.contains(what), "{what:?} in {seen:?}");
    }
    let (status, seen, left) = Watched::start(&["kv", "keys", "--connect", address]).end();
    assert!(status.success() && left.is_empty(), "{seen:?}");
    assert!(seen.contains(&format!("waiting for {address}")), "{seen:?}");
    assert!(process::terminate(&mut server.process).unwrap().success());
    let (_, seen, left) = server.end();
    assert!(seen.contains("filling ") && seen.contains("waiting for calls"), "{seen:?}");
    assert!(!left.contains("filling") && !left.contains("waiting"), "{left:?}");
}

#[test]
fn a_key_is_no_order_to_a_terminal_and_one_line_in_a_pipe() {
    let mut server = Command::new(env!("CARGO_BIN_EXE_haulage"));
    let server = server.args(["kv", "serve", "--listen", ":0", "--memory", "32MiB"]);
    let server = Started::new(server);
    let hostile = "a\u{1b}]0;title\u{7}\u{1b}[2J\nb";
    let to = ["--connect", server.address()];
    let mut put = Command::new(env!("CARGO_BIN_EXE_haulage"));
    let put = put.args(["kv", "put", hostile]).args(to).stdin(Stdio::null()).output().unwrap();
    assert!(put.status.success(), "{put:?}");
    let mut keys = Command::new(env!("CARGO_BIN_EXE_haulage"));
    let piped = keys.args(["kv", "keys"]).args(to).output().unwrap();
    let quoted = "$'a\\x1B]0;title\\x07\\x1B[2J\\nb'\n";
    assert_eq!(str::from_utf8(&piped.stdout), Ok(quoted));
    let mut got = Command::new(env!("CARGO_BIN_EXE_haulage"));
    let got = got.args(["kv", "mget", hostile]).args(to).output().unwrap();
    assert_eq!(String::from_utf8(got.stdout).unwrap(), quoted.replace('\n', " 0\n"));
    let arguments = ["kv", "keys", to[0], to[1]];
    let (status, seen, left) = Watched::start_as(&arguments, |command, terminal| {
        command.stdout(terminal.try_clone().unwrap());
    })
    .end();
    assert!(status.success(), "{seen:?}");
    assert_eq!(left, quoted);
}

#[test]
fn a_terminal_that_cannot_clear_a_line_is_shown_no_progress() {
    let arguments = ["perf", "local", "null", "--seconds", "0.2"];
    let (status, seen, _) =
        Watched::start_as(&arguments, |command, _| _ = command.env("TERM", "dumb")).end();
    assert!(status.success() && seen.is_empty(), "{seen:?}");
}

#[test]
fn a_file_on_its_way_and_a_demo_say_how_far_they_have_come() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap().to_string();
    let mut mounting = Watched::start(&["store", "ls", "--mount-connect", &at]);
    mounting.until(&format!("asking {at} what to mount"));
    drop((mounting, silent));

    let serve = ["store", "serve", "--export", "memory:256MiB", "--listen", ":0", "--json"];
    let ports = ["--mount-listen", ":0", "--tcp-listen", "off"];
    let mut server = Watched::start(&[&serve[..], &ports].concat());
    let mut ready = String::new();
    let mut stdout = BufReader::new(server.process.stdout.take().unwrap());
    stdout.read_line(&mut ready).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    let at = ["listen", "mount_listen"].map(|name| ready[name].as_str().unwrap());
    let put = ["store", "put", "/file", "--connect", at[0], "--mount-connect", at[1]];
    let mut put = Watched::start(&put);
    let mut source = put.process.stdin.take().unwrap();
    // Something is always there to be sent, until the command ends.
    let feed = move || while source.write_all(&[7; 512]).is_ok() {};
    let feed = std::thread::Builder::new().spawn(feed).unwrap();
    put.until("iB sent");
    drop(put);
    feed.join().unwrap();

    let mut demo = Watched::start(&["demo"]);
    demo.until("starting the server").until("measuring values of 64 B").until("values of 4 KiB");
}

/// Returns half of the memory that this machine has available, 4 GiB at most, as an option of servers.
fn much_memory() -> String {
    let told = std::fs::read_to_string("/proc/meminfo").unwrap();
    let available = told.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    let available: u64 = available.trim().trim_end_matches(" kB").parse().unwrap();
    format!("{}KiB", (available / 2).min(4 << 20))
}

#[test]
fn a_server_that_is_told_to_end_while_it_fills_memory_ends_without_being_ready() {
    let memory = much_memory();
    let export = format!("memory:{memory}");
    let elsewhere = ["--mount-listen", ":0", "--tcp-listen", "off"];
    for serve in [
        &["kv", "serve", "--memory", &memory][..],
        &["perf", "serve", "--memory", &memory],
        &[&["store", "serve", "--export", &export][..], &elsewhere].concat(),
    ] {
        let mut server = Watched::start(&[serve, &["--listen", ":0"]].concat());
        server.until("filling ");
        let status = process::terminate(&mut server.process).unwrap();
        let mut said = String::new();
        server.process.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((status.code(), &*said), (Some(0), ""), "{serve:?}");
    }
}
