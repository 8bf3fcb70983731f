//! The benchmark as people and programs run it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};

use haulage::sys::{clock, process};
use haulage_test_support::Started;
use serde_json::Value;

/// Nothing here takes this long unless it hangs.
const HANG_SECONDS: u64 = 120;

fn haulage(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    haulage(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

/// Runs a benchmark that succeeds; returns each line it printed.
fn lines(arguments: &[&str]) -> Vec<String> {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

/// Returns the names in the order in which they stand in an object, those within others behind a dot.
fn keys(json: &str) -> Vec<String> {
    let mut keys = Vec::new();
    let mut within = Vec::new();
    let mut rest = json;
    while let Some(at) = rest.find(['"', '{', '}']) {
        let found = rest.as_bytes()[at];
        rest = &rest[at + 1..];
        if found == b'{' {
            within.push(keys.last().map_or(String::new(), |key| format!("{key}.")));
        } else if found == b'}' {
            within.pop();
        } else {
            let end = rest.find('"').unwrap();
            let (name, behind) = rest.split_at(end);
            rest = &behind[1..];
            if rest.starts_with(':') {
                keys.push(format!("{}{name}", within.last().unwrap()));
            }
        }
    }
    keys
}

const KEYS: &str = "test provider size depth connections seconds operations rate_per_s gib_per_s p50_us \
    p99_us p999_us max_us client_cpu server_cpu allocations syscalls mean_batch mean_batch.send \
    mean_batch.recv copies_per_byte limits limits.memcpy_gib_per_s limits.tcp_stream_gib_per_s \
    limits.tcp_rtt_us limits.cacheline_rtt_us";

/// Checks what holds of every object.
fn judge(line: &str, test: &str, size: u64, depth: u64) -> Value {
    assert_eq!(keys(line)[..26].join(" "), KEYS, "{line}");
    let json: Value = serde_json::from_str(line).unwrap();
    assert_eq!(
        (&json["test"], &json["provider"], &json["size"], &json["depth"]),
        (&test.into(), &"iwarp".into(), &size.into(), &depth.into())
    );
    let number = |key: &str| json[key].as_f64().unwrap_or_else(|| panic!("{key} in {line}"));
    assert!(number("operations") >= 1.0 && number("seconds") > 0.0, "{line}");
    let rate = number("operations") / number("seconds");
    assert!((number("rate_per_s") / rate - 1.0).abs() < 0.05, "{line}");
    let gib = number("rate_per_s") * size as f64 / (1_u64 << 30) as f64;
    assert!((number("gib_per_s") - gib).abs() < 0.001 + gib * 0.01, "{line}");
    let [p50, p99, p999, max] = ["p50_us", "p99_us", "p999_us", "max_us"].map(number);
    assert!(p50 > 0.0 && p50 <= p99 && p99 <= p999 && p999 <= max, "{line}");
    for cpu in ["client_cpu", "server_cpu"] {
        assert!(number(cpu) > 0.0 && number(cpu) < 1.2, "{line}");
    }
    // On a crowded machine, a limit may be rounded to zero.
    let limits = json["limits"].as_object().unwrap();
    assert!(limits.values().all(|limit| limit.is_null() || limit.as_f64() >= Some(0.0)), "{line}");
    json
}

#[test]
fn every_test_runs_between_processes_and_between_threads() {
    for (test, size) in [("null", 0), ("read", 65_536), ("write", 65_536), ("inline", 512)] {
        for (ends, depth) in [(&["--auth", "sys"][..], 1), (&["--threads"], 4)] {
            let (size_text, depth_text) = (size.max(1).to_string(), depth.to_string());
            let mut arguments = vec!["perf", "local", test, "--seconds", "0.1", "--json"];
            arguments.extend(["--size", &size_text, "--depth", &depth_text]);
            arguments.extend(ends);
            let lines = lines(&arguments);
            assert_eq!(lines.len(), 1, "{lines:?}");
            let json = judge(&lines[0], test, size, depth);
            assert!(json["limits"].as_object().unwrap().values().all(Value::is_number), "{json}");
            // A steady core allocates nothing; one that others disturb may see larger batches than before.
            assert!(json["allocations"].as_u64() < Some(32), "{json}");
            assert!(json["mean_batch"]["send"].as_f64() >= Some(1.0), "{json}");
            match (test, json["copies_per_byte"].as_f64()) {
                ("null", copies) => assert_eq!(copies, None),
                // The system copies each octet at both ends; we copy those that were not received straight into place.
                ("read" | "write", Some(copies)) => {
                    assert!((2.0..=3.001).contains(&copies), "{json}");
                }
                // Headers are copied too.
                (_, copies) => assert!(copies > Some(4.0), "{json}"),
            }
        }
    }
}

#[test]
fn every_test_runs_in_both_versions() {
    for version in ["1", "2"] {
        for (test, size) in [("null", 0), ("read", 65_536), ("write", 65_536), ("inline", 512)] {
            let size_text = size.max(1).to_string();
            let mut arguments = vec!["perf", "local", test, "--seconds", "0.1", "--json"];
            arguments.extend(["--size", &size_text, "--depth", "4", "--rpc-version", version]);
            let lines = lines(&arguments);
            assert_eq!(lines.len(), 1, "{lines:?}");
            judge(&lines[0], test, size, 4);
        }
    }
}

#[test]
fn several_runs_come_to_their_median_and_the_best() {
    let lines = lines(&[
        "perf",
        "local",
        "null",
        "--seconds",
        "0.05",
        "--runs",
        "3",
        "--connections",
        "2",
        "--depth",
        "2",
        "--json",
    ]);
    assert_eq!(lines.len(), 4, "{lines:?}");
    let rates = lines[..3].iter().map(|line| judge(line, "null", 0, 2)["rate_per_s"].as_f64());
    let mut rates: Vec<_> = rates.map(Option::unwrap).collect();
    rates.sort_by(f64::total_cmp);
    let last = judge(&lines[3], "null", 0, 2);
    assert_eq!(last["rate_per_s"].as_f64(), Some(rates[1]));
    assert_eq!((&last["runs"], last["best"]["rate_per_s"].as_f64()), (&3.into(), Some(rates[2])));
    let names = keys(&lines[3]);
    assert!(names.join(" ").contains(" runs best best.test "), "{names:?}");
}

#[test]
fn many_connections_have_a_call_each_in_flight() {
    let arguments = ["perf", "local", "null", "--connections", "100", "--seconds", "0.1", "--json"];
    let json = judge(&lines(&arguments)[0], "null", 0, 1);
    assert_eq!(json["connections"], 100);
    assert!(json["operations"].as_u64() >= Some(100), "{json}");
}

#[test]
fn over_either_provider_a_core_has_as_many_calls_in_flight_as_are_asked_for() {
    for provider in ["iwarp", "shm"] {
        let many = ["--connections", "40", "--depth", "32", "--provider", provider];
        let arguments = ["perf", "local", "null", "--seconds", "0.1", "--json"];
        let line = &lines(&[&arguments[..], &many].concat())[0];
        let json: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&json["provider"], &json["depth"]), (&provider.into(), &32.into()));
        assert!(json["operations"].as_u64() >= Some(1280), "{json}");
    }
}

#[test]
fn thousands_of_idle_connections_cost_little_and_are_measured() {
    let many = ["--connections", "2500", "--active", "10", "--depth", "2"];
    let arguments = ["perf", "local", "null", "--seconds", "0.1", "--json"];
    let json = judge(&lines(&[&arguments[..], &many].concat())[0], "null", 0, 2);
    assert_eq!((&json["connections"], &json["active"]), (&2500.into(), &10.into()));
    // The figure is beyond the shared Receives; chance may add a page for each connection in a debug build.
    for end in ["idle_connection_bytes", "idle_connection_bytes_client"] {
        let bytes = json[end].as_u64().unwrap();
        assert!((512..8192).contains(&bytes), "{end}: {json}");
    }
    assert!(json["operations"].as_u64() >= Some(20), "{json}");
}

#[test]
fn what_stays_in_memory_is_compared_with_memory() {
    let arguments = ["--seconds", "0.05", "--runs", "2", "--provider", "shm", "--size", "4KiB"];
    for (test, says, not) in
        [("read", "over its memcpy", "raw TCP:"), ("null", "over its cache line", "raw TCP:")]
    {
        let said = lines(&[&["perf", "local", test][..], &arguments].concat()).join("\n");
        assert!(said.contains(says) && !said.contains(not), "{said}");
    }
}

#[test]
fn an_open_loop_makes_calls_when_they_are_due() {
    let line =
        &lines(&["perf", "local", "null", "--rate", "2000", "--seconds", "0.5", "--json"])[0];
    let json = judge(line, "null", 0, 128);
    let operations = json["operations"].as_f64().unwrap() + json["late"].as_f64().unwrap();
    // A thousand Calls are due, give or take chance.
    assert!((850.0..1150.0).contains(&operations), "{json}");
    assert_eq!(json["offered_per_s"], 2000.0);
    // Programs compare the tails of the latency with these figures.
    let noise = |key: &str| json["noise"][key].as_f64().unwrap();
    assert!(noise("wait_p999_us") >= noise("wait_p99_us"), "{json}");
}

#[test]
fn people_get_a_table_and_a_drawing() {
    let file = std::env::temp_dir().join(format!("haulage-perf-{}.svg", std::process::id()));
    let name = file.to_str().unwrap();
    let said = lines(&[
        "perf",
        "local",
        "read",
        "--size",
        "4KiB",
        "--seconds",
        "0.05",
        "--runs",
        "2",
        "--touch",
        "--plot",
        name,
    ])
    .join("\n");
    for part in
        ["read of 4 KiB over iwarp", "every byte summed", "p99.9 us", "raw TCP stream of 4 KiB"]
    {
        assert!(said.contains(part), "{part} in {said}");
    }
    let svg = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert_eq!(svg.matches("<polyline").count(), 2);
}

#[test]
fn what_cannot_be_asked_is_status_2_and_one_line() {
    for (arguments, says) in [
        (&["perf", "local"][..], "TEST"),
        (&["perf", "local", "ping"], "ping"),
        (&["perf", "local", "read", "--size", "0"], "1 to"),
        (&["perf", "local", "read", "--size", "1073741825"], "1073741824"),
        (&["perf", "local", "write", "--size", "1025MiB"], "1073741824"),
        (&["perf", "local", "inline", "--size", "4609"], "inline"),
        (&["perf", "local", "read", "--depth", "0"], "--depth"),
        (&["perf", "local", "null", "--connections", "16384", "--depth", "16"], "lower"),
        (&["perf", "local", "null", "--connections", "1024", "--depth", "4"], "4095"),
        (&["perf", "local", "null", "--connections", "4", "--active", "5"], "--connections"),
        (&["perf", "local", "read", "--size", "64MiB", "--depth", "128"], "lower"),
        (&["perf", "local", "read", "--size", "1GiB", "--depth", "4"], "lower"),
        (&["perf", "local", "null", "--rate", "0"], "--rate"),
        (&["perf", "local", "null", "--provider", "verbs"], "verbs"),
        (&["perf", "run", "null", "--threads"], "--threads"),
        (&["perf", "serve", "--runs", "2"], "--runs"),
    ] {
        let output = run(arguments);
        let said = text(&output.stderr);
        assert_eq!(
            (output.status.code(), said.lines().count()),
            (Some(2), 1),
            "{arguments:?}: {said}"
        );
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
}

#[test]
fn more_connections_than_open_files_are_refused_with_the_fix() {
    let script = "ulimit -n 128 && exec \"$0\" perf local null --connections 100 --seconds 0.05";
    let program = env!("CARGO_BIN_EXE_haulage");
    let output = Command::new("sh").args(["-c", script, program]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("limit is 128") && said.contains("--nofile="), "{said}");
}

#[test]
fn what_cannot_be_done_is_said_before_anything_is_measured() {
    for (option, value, says) in [
        ("--plot", "/nonexistent/plot.svg", "cannot create /nonexistent/plot.svg"),
        ("--cores", "0,8000", "no CPU 8000 here ("),
    ] {
        let output = run(&["perf", "local", "null", "--seconds", "86400", option, value]);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn a_server_that_is_not_there_is_told_before_anything_is_measured() {
    // The limits of raw TCP are measured at the port after the server's. Nothing may connect there.
    let (next, at) = loop {
        let next = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = next.local_addr().unwrap().port() - 1;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            break (next, format!("127.0.0.1:{port}"));
        }
    };
    let file = format!("{}/refused.svg", env!("CARGO_TARGET_TMPDIR"));
    let output = run(&["perf", "run", "null", "--connect", &at, "--plot", &file]);
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(
        said.contains(&format!("nobody listens at {at}; start `haulage perf serve`")),
        "{said}"
    );
    next.set_nonblocking(true).unwrap();
    assert_eq!(next.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "nothing was measured");
    assert!(!std::path::Path::new(&file).exists(), "nothing is drawn");
}

#[test]
fn another_server_is_told_from_the_one_that_is_called() {
    let server = server(&[]);
    let output = run(&["kv", "bench", "--connect", server.address()]);
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("is another server than `haulage kv serve`"), "{said}");
}

fn server(arguments: &[&str]) -> Started {
    let mut command = haulage(&["perf", "serve", "--listen", "127.0.0.1:0"]);
    Started::new(command.args(arguments).stderr(Stdio::piped()))
}

#[test]
fn a_server_elsewhere_is_measured_and_answers_raw_tcp_too() {
    let mut server = server(&["--memory", "8MiB"]);
    let run_it = |test, size: u64| {
        let size_text = size.to_string();
        let arguments = ["perf", "run", test, "--connect", server.address(), "--seconds", "0.1"];
        let patience = ["--timeout", "60", "--size", &size_text, "--json"];
        let json = judge(&lines(&[&arguments[..], &patience].concat())[0], test, size, 1);
        json["limits"]["tcp_rtt_us"].is_number()
    };
    // Lengths one after the other, and again: the server keeps an item of each.
    let sizes = [100, 1 << 20, 100];
    let raw = sizes.map(|size| [run_it("read", size), run_it("write", size)]);
    assert!(raw.as_flattened().contains(&true), "raw TCP was answered");
    let refused = run(&[
        "perf",
        "run",
        "write",
        "--connect",
        server.address(),
        "--size",
        "32MiB",
        "--timeout",
        "60",
    ]);
    let said = text(&refused.stderr);
    assert_eq!((refused.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("no memory for items") && said.contains("--memory"), "{said}");
    assert!(process::terminate(&mut server.process).unwrap().success());
}

#[test]
fn a_server_that_is_killed_is_an_error_in_one_line() {
    let mut server = server(&[]);
    let mut client = haulage(&["perf", "run", "null", "--seconds", "100", "--connect"])
        .arg(server.address())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Until the client is connected, its death would not be noticed.
    let start = clock::now();
    let port = server.address().rsplit(':').next().unwrap().parse::<u16>().unwrap();
    while !connected(port) {
        assert!(clock::now().saturating_since(start).as_secs() < HANG_SECONDS);
        assert!(client.try_wait().unwrap().is_none());
    }
    server.kill();
    let output = client.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    // The server may die before the handshake is over, when there is no connection to be lost.
    assert!(said.contains("connect") && said.contains(server.address()), "{said}");
    let refused = run(&["perf", "run", "null", "--connect", "127.0.0.1:1"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("perf serve"), "{}", text(&refused.stderr));
}

/// Returns whether there is an established connection to this port of 127.0.0.1.
fn connected(port: u16) -> bool {
    let to = format!(" 0100007F:{port:04X} 01 ");
    std::fs::read_to_string("/proc/net/tcp").unwrap().contains(&to)
}
