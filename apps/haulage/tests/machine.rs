//! The command where a container or a supervisor sets the terms: control groups, process 1, a socket to notify.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use haulage::sys::process;
use haulage_test_support::Started;

const HAULAGE: &str = env!("CARGO_BIN_EXE_haulage");

/// Makes control groups of files, `FILE=TEXT` each below `/sys/fs/cgroup`, and `$1` the groups of this process, in a
/// mount namespace. Status 77: that is not possible here.
const GROUPS: &str = r#"
    mount -t tmpfs none /sys/fs/cgroup || exit 77
    printf '%b' "$1" > /sys/fs/cgroup/own
    mount --bind /sys/fs/cgroup/own /proc/$$/cgroup || exit 77
    shift
    for file; do
        path="/sys/fs/cgroup/${file%%=*}"
        mkdir -p "${path%/*}" && printf '%s\n' "${file#*=}" > "$path" || exit 77
    done
    exec "$0" kv serve --listen 127.0.0.1:0 --memory 512MiB
"#;

#[test]
fn more_memory_than_the_control_group_leaves_is_refused_before_it_is_filled() {
    let free = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    if free.is_ok_and(|free| free.trim() != "0") {
        eprintln!("skipped: huge pages are reserved here, which are not of the group's memory");
        return;
    }
    for (own, files, left) in [
        ("0::/unit\n", &["unit/memory.max=134217728"][..], "128 MiB"),
        ("4:memory:/unit\n0::/\n", &["memory/memory.limit_in_bytes=134217728"], "128 MiB"),
        ("0::/\n", &["memory.max=1073741824", "memory.current=943718400"], "124 MiB"),
    ] {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", GROUPS, HAULAGE, own]);
        let streams = (Stdio::piped(), Stdio::piped());
        let spawned = command.args(files).stdin(Stdio::null()).stdout(streams.0).stderr(streams.1);
        let Ok(mut server) = spawned.spawn() else {
            eprintln!("skipped: there is no unshare");
            return;
        };
        let mut ready = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        if !ready.is_empty() {
            server.kill().unwrap();
        }
        let mut said = String::new();
        server.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let status = server.wait().unwrap().code();
        if ready.is_empty() && !said.contains("haulage: ") {
            eprintln!("skipped: no control groups can be made up here: {said}");
            return;
        }
        assert_eq!((status, ready.as_str()), (Some(1), ""), "{own:?}: {said}");
        assert!(said.contains(&format!(": {left} is available; ask for less")), "{own:?}: {said}");
    }
}

/// In a container without an init the command is process 1, from which the kernel keeps signals without a handler.
#[test]
fn as_process_1_it_ends_by_the_signals_that_end_others() {
    for (signal, status) in [("TERM", 143), ("INT", 130), ("QUIT", 131), ("HUP", 129)] {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]);
        command.args(["--mount-proc", HAULAGE, "wire", "decode"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let Ok(mut outside) = command.spawn() else {
            eprintln!("skipped: there is no unshare");
            return;
        };
        let mut stdin = outside.stdin.take().unwrap();
        // An answer to the first line shows that the command runs and waits for the next line.
        let asked = stdin.write_all(b"00\n");
        let mut answer = String::new();
        BufReader::new(outside.stdout.take().unwrap()).read_line(&mut answer).unwrap();
        if asked.is_err() || answer.is_empty() {
            eprintln!("skipped: this machine gives its users no PID namespaces");
            let _ = outside.wait();
            return;
        }
        let id = outside.id();
        let inside = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        let kill = Command::new("kill").args(["-s", signal, inside.trim()]).status().unwrap();
        assert!(kill.success());
        // A command that ignores the signal reads the end of its input, and succeeds.
        drop(stdin);
        assert_eq!(outside.wait().unwrap().code(), Some(status), "{signal}");
    }
}

#[test]
fn a_supervisor_is_told_that_a_server_is_ready_alive_and_stopping() {
    let place =
        TempPath(std::env::temp_dir().join(format!("haulage-notify-{}", std::process::id())));
    let TempPath(path) = &place;
    let _ = std::fs::remove_file(path);
    let name = format!("haulage-notify-{}", std::process::id());
    let of_abstract = SocketAddr::from_abstract_name(&name).unwrap();
    for (socket, variable) in [
        (UnixDatagram::bind(path), path.to_str().unwrap()),
        (UnixDatagram::bind_addr(&of_abstract), &format!("@{name}")),
    ] {
        let socket = socket.unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let next = || {
            let mut octets = [0; 64];
            let length = socket.recv(&mut octets).unwrap();
            String::from_utf8(octets[..length].to_vec()).unwrap()
        };
        let mut command = Command::new(HAULAGE);
        command.args(["kv", "serve", "--listen", "127.0.0.1:0", "--memory", "64MiB"]);
        command.env("NOTIFY_SOCKET", variable).env("WATCHDOG_USEC", "2000");
        command.env_remove("WATCHDOG_PID");
        let mut server = Started::new(command.stdin(Stdio::null()).stderr(Stdio::null()));
        assert_eq!(next(), "READY=1");
        for _ in 0..3 {
            assert_eq!(next(), "WATCHDOG=1");
        }
        assert!(process::terminate(&mut server.process).unwrap().success());
        let last = std::iter::repeat_with(next).find(|said| said != "WATCHDOG=1");
        assert_eq!(last.as_deref(), Some("STOPPING=1"));
    }
}

/// The name of a socket, which goes with the test however it ends.
struct TempPath(PathBuf);

impl Drop for TempPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_supervisor_that_cannot_be_reached_is_a_warning() {
    let mut command = Command::new(HAULAGE);
    command.args(["kv", "serve", "--listen", "127.0.0.1:0", "--memory", "64MiB"]);
    command.env("NOTIFY_SOCKET", "/nowhere/notify").stdin(Stdio::null()).stderr(Stdio::piped());
    let mut server = Started::new(&mut command);
    let mut stderr = server.process.stderr.take().unwrap();
    assert!(process::terminate(&mut server.process).unwrap().success());
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    assert!(said.contains("the supervisor at /nowhere/notify (NOTIFY_SOCKET) is told nothing"));
}

#[test]
fn a_unit_of_systemd_is_told_of_its_own_settings_and_has_the_version_in_its_log() {
    let script = "ulimit -S -n 64 && ulimit -H -n 64 && exec \"$0\" kv serve --listen :0 --memory 1MiB --value-max 1KiB";
    let serve = |notify: &[(&str, &str)]| {
        let mut command = Command::new("sh");
        command.args(["-c", script, HAULAGE]).envs(notify.iter().copied());
        let mut server = Started::new(command.stdin(Stdio::null()).stderr(Stdio::piped()));
        assert!(process::terminate(&mut server.process).unwrap().success());
        let mut said = String::new();
        server.process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    };
    let version = format!("haulage: haulage {} serves, commit ", env!("CARGO_PKG_VERSION"));
    let shell = serve(&[]);
    assert!(shell.contains("as root `prlimit --pid $$ --nofile="), "{shell}");
    assert!(!shell.contains(&version) && !shell.contains("LimitNOFILE"), "{shell}");
    let unit = serve(&[("NOTIFY_SOCKET", "@haulage-nobody-listens-here")]);
    assert!(unit.contains("`LimitNOFILE=") && unit.contains("in the unit raises it"), "{unit}");
    assert!(unit.contains(&version) && !unit.contains("$$"), "{unit}");
}

/// Returns the page of metrics of a server.
fn page(at: &str) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(b"GET /metrics?format=prometheus HTTP/1.1\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
    page
}

/// Returns the value of a metric on a page.
fn value(page: &str, metric: &str) -> u64 {
    let value = page.lines().find_map(|line| line.strip_prefix(metric));
    value.unwrap_or_else(|| panic!("no {metric}: {page}")).trim().parse().unwrap()
}

#[test]
fn newcomers_that_are_lost_are_counted_and_a_lack_of_descriptors_is_said_once() {
    let mut command = Command::new("sh");
    let script = "ulimit -n 64 && exec \"$0\" kv serve --json --memory 64MiB --listen 127.0.0.1:0 \
                  --metrics 127.0.0.1:0";
    command.args(["-c", script, HAULAGE]).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut server = Started::new(&mut command);
    let (at, metrics) = (server.named("listen").to_owned(), server.named("metrics").to_owned());
    let mut browser = TcpStream::connect(&at).unwrap();
    browser.write_all(b"GET / HTTP/1.1\r\nHost: nobody\r\n\r\n").unwrap();
    assert_eq!(browser.read(&mut [0; 8]).unwrap_or(0), 0, "it is no RDMA");
    let mut hasty = TcpStream::connect(&at).unwrap();
    hasty.write_all(b"MPA ID").unwrap();
    hasty.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(hasty.read(&mut [0; 8]).unwrap_or(0), 0);
    let counted = page(&metrics);
    for (reason, count) in
        [("malformed", 1), ("closed", 1), ("timed_out", 0), ("crowded_out", 0), ("forbidden", 0)]
    {
        let metric = format!("haulage_handshakes_failed_total{{reason=\"{reason}\"}}");
        assert_eq!(value(&counted, &metric), count, "{reason}");
    }
    let stat = Command::new(HAULAGE).args(["kv", "stat", "--json", "--connect", &at]).output();
    let stat = String::from_utf8(stat.unwrap().stdout).unwrap();
    let lost = r#""handshakes_failed":{"closed":1,"malformed":1,"timed_out":0,"#;
    assert!(stat.contains(lost), "{stat}");
    let lacking = "haulage_accepts_failed_total{listener=\"rdma\",reason=\"descriptors\"}";
    assert_eq!(value(&counted, lacking), 0);

    // 100 connections are more than the server has descriptors for.
    let silent: Vec<_> = (0..100).map(|_| TcpStream::connect(&at).unwrap()).collect();
    let mut stderr = BufReader::new(server.process.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("accept.failed") {
        assert!(stderr.read_line(&mut said).unwrap() > 0, "no warning: {said}");
    }
    assert!(said.contains("ulimit -n"), "{said}");
    drop(silent);
    let counted = page(&metrics);
    assert!(value(&counted, lacking) > 0);
    let crowded_out = "haulage_handshakes_failed_total{reason=\"crowded_out\"}";
    assert!(value(&counted, crowded_out) > 0, "they gave way");
    assert!(process::terminate(&mut server.process).unwrap().success());
    said.clear();
    stderr.read_to_string(&mut said).unwrap();
    assert!(!said.contains("provider=\"iwarp\" descriptors="), "only once: {said}");
}
