//! Benchmarks of several cores: `haulage perf local --server-cores`, one server of several cores and a client for each, and
//! `haulage kv bench --client-cores`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};

use haulage::sys::affinity;
use haulage_test_support::Started;
use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

/// Two CPUs for the cores of a server, as a list. Where this machine has one, nothing is pinned.
fn two_cpus() -> String {
    let usable = affinity::usable().unwrap();
    format!("{},{}", usable[0], usable.get(1).unwrap_or(&(usable[0] + 1)))
}

/// Measures a server of two cores for a moment. Returns the objects that are printed.
fn measured(arguments: &[&str]) -> Vec<Value> {
    let cpus = two_cpus();
    let of_two = ["--server-cores", &cpus, "--seconds", "0.1", "--json"];
    let output = run(&[&["perf", "local"], arguments, &of_two].concat());
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Checks what holds of a server of so many cores: each has its part of the Calls and connections.
fn judge(json: &Value, cores: usize, connections: u64) {
    let per_core = json["per_core"].as_array().unwrap();
    for side in [
        per_core,
        json["server_cores"].as_array().unwrap(),
        json["client_cores"].as_array().unwrap(),
    ] {
        assert_eq!(side.len(), cores, "{json}");
    }
    assert!(json["shared_cpus"].is_array(), "{json}");
    for core in per_core {
        assert_eq!(core["connections"], connections, "{json}");
        assert!(core["calls"].as_u64() > Some(0), "{json}");
        assert!(core["server_cpu"].as_f64() > Some(0.0), "{json}");
    }
    let shares = per_core.iter().map(|core| core["server_cpu"].as_f64().unwrap());
    let (sum, all) = (shares.sum::<f64>(), json["server_cpu"].as_f64().unwrap());
    assert!(all < sum * 1.5 && sum < all * 1.5, "each core counts once: {json}");
    let [p50, max] = ["p50_us", "max_us"].map(|key| json[key].as_f64().unwrap());
    assert!(p50 > 0.0 && p50 <= max, "{json}");
    let number = |key: &str| json[key].as_f64().unwrap();
    let rate = number("operations") / number("seconds");
    assert!((number("rate_per_s") / rate - 1.0).abs() < 0.05, "{json}");
}

#[test]
fn connections_are_dealt_to_all_cores_and_the_clients_add_up() {
    for (test, size) in [("null", "1"), ("read", "64KiB"), ("write", "64KiB"), ("inline", "512")] {
        for provider in ["iwarp", "shm"] {
            for ends in [&[][..], &["--threads"]] {
                let arguments = [&[test, "--size", size, "--provider", provider], ends].concat();
                let lines = measured(&arguments);
                assert_eq!(lines.len(), 1, "{lines:?}");
                judge(&lines[0], 2, 1);
                // Each client is on a core of its own, which serves nobody else.
                let per_core = lines[0]["per_core"].as_array().unwrap();
                let calls = per_core.iter().map(|core| core["calls"].as_u64().unwrap());
                assert_eq!(lines[0]["operations"], calls.sum::<u64>(), "{arguments:?}: {lines:?}");
            }
        }
    }
}

#[test]
fn connections_are_those_of_each_client() {
    for provider in ["iwarp", "shm"] {
        let many = ["null", "--connections", "4", "--depth", "8", "--provider", provider];
        let lines = measured(&[&many[..], &["--runs", "2"]].concat());
        assert_eq!(lines.len(), 3, "two runs and their median: {lines:?}");
        for json in &lines {
            assert_eq!((&json["connections"], &json["depth"]), (&4.into(), &8.into()));
            judge(json, 2, 4);
        }
    }
}

#[test]
fn the_arrivals_of_an_open_loop_are_divided_among_the_clients() {
    let json = &measured(&["null", "--rate", "2000"])[0];
    assert_eq!(json["offered_per_s"], 2000.0);
    let due = json["operations"].as_f64().unwrap() + json["late"].as_f64().unwrap();
    // Two hundred Calls are due, give or take chance.
    assert!((120.0..300.0).contains(&due), "{json}");
}

#[test]
fn people_read_where_the_ends_are_and_what_each_core_did() {
    let cpus = two_cpus();
    let list = ["--server-cores", &cpus, "--client-cores", &cpus, "--seconds", "0.05"];
    let output = run(&[&["perf", "local", "null", "--connections", "2"], &list[..]].concat());
    let (said, noted) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{noted}");
    for part in [
        "2 connections of each client",
        "processes: 2 clients ",
        ", 2 server cores ",
        "shared by several ends",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let cores = said.lines().filter(|line| line.starts_with("core "));
    assert!(cores.clone().all(|line| line.contains(" calls on 2 connections, CPU ")), "{said}");
    assert_eq!((cores.count(), noted.lines().count()), (2, 1), "{noted}{said}");
}

#[test]
fn a_sweep_has_a_row_for_each_number_of_cores_and_a_drawing() {
    let file = format!("{}/sweep.svg", env!("CARGO_TARGET_TMPDIR"));
    let drawn = |svg: &str| {
        let bars = svg.lines().filter(|line| line.starts_with("<rect x")).count();
        (bars, svg.contains("by number of server cores"))
    };
    let lines = measured(&["null", "--sweep", "--plot", &file, "--provider", "shm"]);
    assert_eq!(lines.len(), 2, "{lines:?}");
    (1..).zip(&lines).for_each(|(cores, json)| judge(json, cores, 1));
    assert_eq!(drawn(&std::fs::read_to_string(&file).unwrap()), (2, true));
    let several = measured(&["null", "--sweep", "--runs", "2", "--threads"]);
    let runs: Vec<_> = several.iter().map(|json| json["runs"].as_u64()).collect();
    assert_eq!(runs, [None, None, Some(2), None, None, Some(2)], "{several:?}");
    let cpus = two_cpus();
    let list = ["--server-cores", &cpus, "--seconds", "0.05", "--runs", "2"];
    let output =
        run(&[&["perf", "local", "read", "--size", "4KiB", "--sweep"], &list[..]].concat());
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let title = said.lines().next().unwrap();
    assert!(
        title.contains(": 1 to 2 server cores ") && title.contains("median of 2 runs"),
        "{said}"
    );
    let rows: Vec<Vec<_>> =
        said.lines().skip(3).map(|row| row.split_whitespace().collect()).collect();
    let counts: Vec<_> = rows.iter().map(|row| row[0]).collect();
    assert_eq!((counts, rows[0][2]), (vec!["1", "2"], "1.00"), "{said}");
}

#[test]
fn lists_that_cannot_be_served_are_refused_in_one_line() {
    for (arguments, says) in [
        (&["local", "null", "--server-cores", "0,1", "--cores", "0,1"][..], "cannot be used with"),
        (&["local", "null", "--client-cores", "0", "--cores", "0,1"], "--c"),
        (&["local", "null", "--client-cores", "0"], "--server-cores"),
        (&["local", "null", "--sweep"], "--server-cores"),
        (&["local", "null", "--server-cores", "0,1", "--client-cores", "0"], "one client"),
        (&["local", "null", "--server-cores", "0-128"], "at most 128 cores"),
        (&["local", "null", "--server-cores", "1-0"], "--server-cores"),
        (&["local", "null", "--server-cores", ""], "--server-cores"),
        (&["local", "null", "--server-cores", "0,1", "--connections", "16384"], "lower"),
        (&["run", "null", "--server-cores", "0"], "--server-cores"),
        (&["serve", "--server-cores", "0"], "--server-cores"),
    ] {
        let output = run(&[&["perf"], arguments].concat());
        let said = text(&output.stderr);
        let (status, lines) = (output.status.code(), said.lines().count());
        assert_eq!((status, lines), (Some(2), 1), "{arguments:?}: {said}");
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
}

#[test]
fn cpus_that_are_not_there_are_named_with_their_option() {
    let [first, _, ..] = affinity::usable().unwrap() else {
        eprintln!("skipped: on one CPU nothing is pinned");
        return;
    };
    let server = ["--server-cores", &first.to_string()];
    for (before, option) in [(&[][..], "--server-cores"), (&server, "--client-cores")] {
        let output = run(&[&["perf", "local", "null"], before, &[option, "8000"]].concat());
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        let ends = format!("; name others with {option}\n");
        assert!(said.contains("no CPU 8000 here (") && said.ends_with(&ends), "{said}");
    }
}

#[test]
fn a_server_of_several_cores_elsewhere_tells_of_all_of_them() {
    let cpus = two_cpus();
    let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
    command.args(["perf", "serve", "--listen", "127.0.0.1:0", "--cores", &cpus]);
    let server = Started::new(command.stdin(Stdio::null()).stderr(Stdio::null()));
    let one = ["perf", "run", "null", "--connect", server.address(), "--seconds", "0.1", "--json"];
    let output = run(&[&one[..], &["--connections", "4", "--depth", "4"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value = serde_json::from_str(text(&output.stdout)).unwrap();
    let per_core = json["per_core"].as_array().unwrap();
    let connections = per_core.iter().map(|core| core["connections"].as_u64().unwrap());
    assert_eq!((per_core.len(), connections.sum()), (2, 4_u64), "{json}");
    assert!(per_core.iter().all(|core| core["calls"].as_u64() > Some(0)), "{json}");
    assert!(json.get("server_cores").is_none(), "only the server knows its CPUs");
    let output = run(&one[..7]);
    let said = text(&output.stdout);
    let rows: Vec<_> = said.lines().filter(|line| line.starts_with("core ")).collect();
    let unreached = rows.iter().filter(|row| row.contains(": 0 calls on 0 connections"));
    assert_eq!((rows.len(), unreached.count()), (2, 1), "one connection is on one core: {said}");
}

/// Starts a key-value server with cores on these CPUs, which counts what it does.
fn kv_server(provider: &str, cpus: &str) -> Started {
    let any = "127.0.0.1:0";
    let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
    command.args(["kv", "serve", "--memory", "32MiB", "--listen", any, "--metrics", any]);
    command.args(["--cores", cpus, "--provider", provider, "--json"]);
    Started::new(command.stdin(Stdio::null()).stderr(Stdio::null()))
}

/// Returns the sum over all cores of what a server counts under a name and this label.
fn counted(server: &Started, name: &str, label: &str) -> u64 {
    let mut stream = TcpStream::connect(server.named("metrics")).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let lines = page.lines().filter(|line| line.starts_with(name) && line.contains(label));
    lines.map(|line| line.split_whitespace().last().unwrap().parse::<u64>().unwrap()).sum()
}

/// Runs `kv bench` for a moment.
fn kv_bench(server: &Started, arguments: &[&str]) -> Output {
    let bench = ["kv", "bench", "--connect", server.named("listen"), "--seconds", "0.1"];
    run(&[&bench[..], arguments].concat())
}

#[test]
fn the_client_cores_of_a_key_value_benchmark_share_its_connections_and_fill_once() {
    for provider in ["iwarp", "shm"] {
        let cpus = two_cpus();
        let server = kv_server(provider, &cpus);
        let over = ["--provider", provider, "--client-cores", &cpus];
        let asked = ["--connections", "5", "--depth", "4", "--keys", "501", "--get-ratio", "1"];
        let output = kv_bench(&server, &[&asked[..], &over, &["--json"]].concat());
        assert!(output.status.success(), "{provider}: {}", text(&output.stderr));
        let json: Value = serde_json::from_str(text(&output.stdout)).unwrap();
        assert_eq!((&json["connections"], &json["depth"]), (&5.into(), &4.into()), "{json}");
        let number = |key: &str| json[key].as_u64().unwrap();
        assert_eq!((number("hits"), number("misses")), (number("operations"), 0), "{json}");
        assert!(number("hits") > 0, "{json}");
        assert_eq!(
            counted(&server, "haulage_kv_results_total", "\"stored\""),
            501,
            "each key once"
        );
        // One more each made sure that a server is there.
        assert_eq!(counted(&server, "haulage_connections_opened_total", ""), 6);
        for (connections, timed) in [("2", "each call"), ("3", "one call in 17")] {
            let few = ["--connections", connections, "--keys", "1"];
            let output = kv_bench(&server, &[&few[..], &over].concat());
            let said = text(&output.stdout);
            assert!(output.status.success(), "{}", text(&output.stderr));
            let parts = ["client 2 cores ", &format!("{connections} connections; "), timed];
            assert!(parts.iter().all(|part| said.contains(part)), "{parts:?}: {said}");
        }
    }
}

#[test]
fn a_benchmark_of_uneven_keys_tells_the_share_of_the_busiest_core() {
    let file = format!("{}/two-accesses", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&file, "one 10\ntwo 2000\n").unwrap();
    let server = kv_server("iwarp", &two_cpus());
    let share = |arguments: &[&str]| {
        let output = kv_bench(&server, &[&["--json"], arguments].concat());
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        let mut json: Value = serde_json::from_str(text(&output.stdout)).unwrap();
        json.as_object_mut().unwrap().remove("busiest_share")
    };
    for uneven in [
        &["--zipf", "1", "--keys", "50"][..],
        &["--hot", "0.5", "--keys", "50"],
        &["--trace", &file],
    ] {
        // The only connection is one core's, which has all GETs, twice its even share of those of two cores.
        assert_eq!(share(uneven), Some(2.0.into()), "{uneven:?}");
        let many = &["--connections", "4", "--get-ratio", "1"];
        let both = share(&[uneven, many].concat()).unwrap().as_f64().unwrap();
        assert!((1.0..2.0).contains(&both), "each core has two connections: {both}");
        let clients = share(&[uneven, many, &["--client-cores", &two_cpus()]].concat());
        let clients = clients.unwrap().as_f64().unwrap();
        assert!((1.0..=2.0).contains(&clients), "told by one of the clients: {clients}");
    }
    assert_eq!(share(&["--zipf", "1", "--keys", "50", "--get-ratio", "0"]), Some(Value::Null));
    assert_eq!(share(&["--keys", "50"]), None, "all keys alike");
    let output = kv_bench(&server, &["--hot", "1", "--keys", "10"]);
    let said = text(&output.stdout);
    assert!(said.contains("2.00 times an even share of the gets, of 2 cores\n"), "{said}");
    let first = affinity::usable().unwrap()[0].to_string();
    let alone = kv_server("iwarp", &first);
    let output = kv_bench(&alone, &["--zipf", "1", "--keys", "10", "--json"]);
    let json: Value = serde_json::from_str(text(&output.stdout)).unwrap();
    assert_eq!(json["busiest_share"], 1.0, "{json}");
}

#[test]
fn client_cores_that_cannot_share_the_connections_are_refused_in_one_line() {
    for (arguments, says) in [
        (&["--client-cores", "0,1"][..], "2 CPUs; raise --connections, which is 1"),
        (&["--client-cores", "0-7", "--connections", "7"], "8 CPUs; raise --connections"),
        (&["--client-cores", "0", "--cores", "0"], "cannot be used with"),
        (&["--client-cores", ""], "--client-cores"),
        (&["--client-cores", "1-0"], "such as 0,2-3"),
        (&["--client-cores", "two"], "such as 0,2-3"),
    ] {
        let output = run(&[&["kv", "bench"], arguments].concat());
        let said = text(&output.stderr);
        let (status, lines) = (output.status.code(), said.lines().count());
        assert_eq!((status, lines), (Some(2), 1), "{arguments:?}: {said}");
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
    if affinity::usable().unwrap().len() > 1 {
        let output = run(&["kv", "bench", "--client-cores", "8000"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("no CPU 8000 here (") && said.contains("with --client-cores"));
    }
}
