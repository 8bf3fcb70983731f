//! The command as people use it: a server and its clients as processes of their own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use haulage::sys::{affinity, clock, process};
use haulage_test_support::Started;

/// Nothing here takes this long unless it hangs.
const HANG_SECONDS: u64 = 120;

/// Seconds that a Call may take: a busy machine needs more than the default for a long value.
const TIMEOUT: &str = "60";

fn haulage(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

/// A server, killed with the test.
struct Server(Started);

impl Server {
    fn start(arguments: &[&str]) -> Self {
        Self::of("32MiB", arguments)
    }

    /// Starts a server with this memory.
    fn of(memory: &str, arguments: &[&str]) -> Self {
        let mut command = haulage(&["kv", "serve", "--listen", "127.0.0.1:0", "--memory", memory]);
        Self(Started::new(command.args(arguments).stderr(Stdio::piped())))
    }

    fn address(&self) -> &str {
        self.0.address()
    }

    fn client(&self, arguments: &[&str]) -> Command {
        let mut command = haulage(&["kv"]);
        command.args(arguments).args(["--connect", self.address()]);
        command
    }

    fn put(&self, key: &str, value: &[u8]) -> Output {
        let mut command = self.client(&["put", key, "--timeout", TIMEOUT]);
        let mut child = command
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(value).unwrap();
        child.wait_with_output().unwrap()
    }

    fn get(&self, key: &str) -> Output {
        run(&mut self.client(&["get", key, "--timeout", TIMEOUT]))
    }

    /// Returns one figure of `kv stat --json`.
    fn figure(&self, name: &str) -> u64 {
        let stat = run(&mut self.client(&["stat", "--json"]));
        assert!(stat.status.success(), "{}", text(&stat.stderr));
        let json = text(&stat.stdout);
        let at = json.find(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{name} in {json}"));
        let digits = json[at + name.len() + 3..].chars().take_while(char::is_ascii_digit);
        digits.collect::<String>().parse().unwrap()
    }

    /// Waits until only the asker is connected, then checks that nothing of the others is left.
    fn everything_is_home(&self) {
        let start = clock::now();
        while self.figure("connections") > 1 {
            assert!(clock::now().saturating_since(start).as_secs() < HANG_SECONDS);
        }
        for gauge in ["posted", "exposed", "registrations", "orphans"] {
            assert_eq!(self.figure(gauge), 0, "{gauge}");
        }
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 7 + at / 251) % 256).unwrap()).collect()
}

fn complaint(output: &Output) -> &str {
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    said.trim_end()
}

#[test]
fn values_go_there_and_back_between_processes() {
    let server = Server::start(&[]);
    for length in [0, 1, 3, 4095, 4096, 1 << 20, (4 << 20) - 1, 4 << 20] {
        let value = pattern(length);
        let put = server.put("key", &value);
        assert!(put.status.success(), "{}", text(&put.stderr));
        let got = server.get("key");
        assert!(got.status.success(), "{}", text(&got.stderr));
        assert!(got.stdout == value, "{length} bytes differ");
    }
    assert_eq!((server.figure("keys"), server.figure("value_bytes")), (1, 4 << 20));
    assert!(run(&mut server.client(&["del", "key"])).status.success());
    assert_eq!((server.figure("keys"), server.figure("value_bytes")), (0, 0));
    server.everything_is_home();
}

#[test]
fn a_value_longer_than_a_segment_goes_there_and_back() {
    let server = Server::of("144MiB", &["--value-max", "80MiB"]);
    let value = pattern((64 << 20) + 5);
    let put = server.put("long", &value);
    assert!(put.status.success(), "{}", text(&put.stderr));
    let got = server.get("long");
    assert!(got.status.success(), "{}", text(&got.stderr));
    assert!(got.stdout == value, "the value differs");
    assert_eq!(server.figure("value_bytes"), value.len() as u64);
    // There is no memory for another one.
    let full = server.put("longer", &[value, pattern(10 << 20)].concat());
    assert!(complaint(&full).contains("memory is full") && complaint(&full).contains("--memory"));
    assert_eq!((server.figure("keys"), server.figure("value_bytes")), (1, (64 << 20) + 5));
    server.everything_is_home();
}

#[test]
fn what_cannot_be_done_is_said_in_one_line_that_names_the_limit_and_the_fix() {
    let server = Server::start(&["--value-max", "1MiB"]);
    let get = server.get("nothing");
    assert_eq!((get.status.code(), complaint(&get)), (Some(1), "haulage: no such key"));
    let del = run(&mut server.client(&["del", "nothing"]));
    assert_eq!((del.status.code(), complaint(&del)), (Some(1), "haulage: no such key"));
    let put = server.put("large", &pattern((1 << 20) + 1));
    assert_eq!(put.status.code(), Some(1));
    assert!(
        complaint(&put).contains("larger than 1 MiB") && complaint(&put).contains("--value-max")
    );
    let mut puts = (0..40).map(|key| server.put(&format!("{key}"), &pattern(1 << 20)));
    let full = puts.find(|put| !put.status.success()).expect("32 MiB hold fewer than 40 MiB");
    assert!(complaint(&full).contains("memory is full") && complaint(&full).contains("--memory"));
    let long = "k".repeat(513);
    assert_eq!(server.get(&long).status.code(), Some(2));
    server.everything_is_home();
}

#[test]
fn a_port_in_use_and_a_server_that_is_not_there_are_clear_errors() {
    let server = Server::start(&[]);
    let second = run(&mut haulage(&[
        "kv",
        "serve",
        "--memory",
        "8MiB",
        "--value-max",
        "1MiB",
        "--listen",
        server.address(),
    ]));
    assert_eq!(second.status.code(), Some(1));
    assert!(complaint(&second).contains("in use") && complaint(&second).contains("--listen"));
    // Nothing listens at the lowest of ports, and no other test is given it.
    let refused = run(&mut haulage(&["kv", "get", "key", "--connect", "127.0.0.1:1"]));
    assert_eq!(refused.status.code(), Some(1));
    let said = complaint(&refused);
    assert!(said.contains("nobody listens") && said.contains("kv serve"), "{said}");
}

#[test]
fn a_server_that_listens_over_another_provider_is_told_so() {
    for (served, asked) in [("shm", "iwarp"), ("iwarp", "shm")] {
        let server = Server::start(&["--provider", served]);
        let refused = run(&mut server.client(&["keys", "--provider", asked]));
        assert_eq!(refused.status.code(), Some(1));
        let says = format!("it listens over {served}, not {asked}; give --provider {served}");
        assert!(complaint(&refused).contains(&says), "{}", complaint(&refused));
        assert!(run(&mut server.client(&["keys", "--provider", served])).status.success());
    }
}

#[test]
fn clients_killed_at_any_moment_leave_the_server_serving_and_every_lease_home() {
    let server = Server::start(&[]);
    let directory = std::env::temp_dir().join(format!("haulage-test-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let file: PathBuf = directory.join("value");
    fs::write(&file, pattern(8 << 20)).unwrap();
    assert!(server.put("kept", b"value").status.success());
    for moment in 0..12 {
        let arguments = ["put", "torn", file.to_str().unwrap()];
        let mut client = server.client(&arguments).stderr(Stdio::null()).spawn().unwrap();
        // The pause synchronises nothing: each client dies a little later than the one before.
        let end = clock::now().saturating_add(std::time::Duration::from_millis(moment * 3));
        while clock::now() < end && client.try_wait().unwrap().is_none() {
            std::hint::spin_loop();
        }
        client.kill().unwrap();
        client.wait().unwrap();
        assert_eq!(server.get("kept").stdout, b"value");
    }
    fs::remove_dir_all(&directory).unwrap();
    server.everything_is_home();
}

#[test]
fn a_killed_server_is_an_error_for_a_client_that_waits() {
    let mut server = Server::start(&[]);
    // The server is stopped, so that the client is waiting when it dies.
    let stop = Command::new("kill").args(["-STOP", &server.0.process.id().to_string()]).status();
    assert!(stop.unwrap().success());
    let client = server.client(&["stat", "--timeout", "8"]).stderr(Stdio::piped()).spawn().unwrap();
    server.0.kill();
    let output = client.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = complaint(&output);
    assert!(
        said.contains("lost") || said.contains("connect") || said.contains("listens"),
        "{said}"
    );
}

#[test]
fn a_benchmark_stores_its_keys_finds_them_and_leaves_nothing_in_flight() {
    let server = Server::start(&["--value-max", "1MiB"]);
    let options = ["--keys", "50", "--value-size", "10000", "--get-ratio", "0.5", "--depth", "3"];
    let options = [&["bench"], &options[..], &["--seconds", "0.1", "--timeout", "60"]].concat();
    let bench = run(&mut server.client(&[&options[..], &["--json"]].concat()));
    assert!(bench.status.success(), "{}", text(&bench.stderr));
    let json: serde_json::Value = serde_json::from_slice(&bench.stdout).unwrap();
    assert_eq!((&json["test"], &json["size"]), (&"kv".into(), &10_000.into()));
    let figure = |name: &str| json[name].as_u64().unwrap();
    assert!(figure("hits") > 0 && figure("hits") < figure("operations"), "{json}");
    assert_eq!(figure("misses"), 0, "{json}");
    assert!(json["copies_per_byte"].as_f64() >= Some(2.0), "{json}");
    assert_eq!((server.figure("keys"), server.figure("value_bytes")), (50, 500_000));
    let table = run(&mut server.client(&options));
    assert!(text(&table.stdout).contains("values of 10000 B"), "{}", text(&table.stdout));
    let keys = run(&mut server.client(&["keys"]));
    let mut keys: Vec<_> = text(&keys.stdout).lines().map(str::to_owned).collect();
    keys.sort();
    assert!(keys == (0..50).map(|n| format!("bench-{n:08}")).collect::<Vec<_>>(), "{keys:?}");
    let json = run(&mut server.client(&["keys", "--json"]));
    assert!(text(&json.stdout).contains("\"bench-00000007\"\n"));
    server.everything_is_home();
    let full = run(&mut server.client(&["bench", "--value-size", "1MiB", "--timeout", "60"]));
    assert_eq!(full.status.code(), Some(1));
    assert!(complaint(&full).contains("memory is full"), "{}", complaint(&full));
    server.everything_is_home();
}

#[test]
fn a_benchmark_takes_its_keys_and_their_lengths_from_a_trace() {
    let server = Server::start(&["--value-max", "1MiB"]);
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("accesses");
    let path = path.to_str().unwrap();
    std::fs::write(path, "one 20000\ntwo 10\none 20000\n{\"hash_ids\":[1,2]}\n").unwrap();
    let of_trace = ["bench", "--trace", path, "--block-size", "6000", "--seconds", "0.1", "--json"];
    for options in [&["--depth", "3"][..], &["--get-ratio", "0.5", "--inline-max", "0"]] {
        let bench = run(&mut server.client(&[&of_trace[..], options].concat()));
        assert!(bench.status.success(), "{}", text(&bench.stderr));
        let json: serde_json::Value = serde_json::from_slice(&bench.stdout).unwrap();
        assert_eq!(json["size"], (20_000 + 10 + 20_000 + 6000 + 6000) / 5);
        assert!(json["hits"].as_u64() > Some(0) && json["misses"] == 0, "{json}");
    }
    assert_eq!((server.figure("keys"), server.figure("value_bytes")), (4, 32_010));
    for skewed in [&["--zipf", "0.99"][..], &["--hot", "0.5"]] {
        let options = [&["bench", "--keys", "20", "--seconds", "0.1"], skewed].concat();
        let bench = run(&mut server.client(&options));
        assert!(bench.status.success(), "{}", text(&bench.stderr));
    }
    server.everything_is_home();
    std::fs::write(path, "one 1\ntwo\n").unwrap();
    for (options, status, says) in [
        (&of_trace[..], 1, "line 2 of"),
        (&["bench", "--trace", path, "--keys", "3"], 2, "--keys"),
        (&["bench", "--zipf", "0"], 2, "above 0"),
        (&["bench", "--zipf", "1", "--hot", "0.1"], 2, "--hot"),
    ] {
        let refused = run(&mut server.client(options));
        assert_eq!(refused.status.code(), Some(status), "{options:?}");
        assert!(complaint(&refused).contains(says), "{}", complaint(&refused));
    }
}

#[test]
fn a_benchmark_of_fewer_keys_than_calls_in_flight_ends() {
    let server = Server::start(&["--value-max", "1MiB"]);
    for (keys, depth, connections) in [("1", "1", "1"), ("4", "16", "1"), ("16", "8", "2")] {
        let options = ["bench", "--keys", keys, "--depth", depth, "--connections", connections];
        let options = [&options[..], &["--seconds", "0.05", "--timeout", "60", "--json"]].concat();
        let mut child = server.client(&options).stdout(Stdio::piped()).spawn().unwrap();
        let start = clock::now();
        while child.try_wait().unwrap().is_none() {
            let waited = clock::now().saturating_since(start).as_secs();
            if waited >= HANG_SECONDS {
                child.kill().unwrap();
                panic!("{keys} keys, {depth} in flight: it hangs");
            }
            std::thread::park_timeout(std::time::Duration::from_millis(10));
        }
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{keys} keys, {depth} in flight");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(json["hits"].as_u64().unwrap() > 0, "{json}");
        assert_eq!(server.figure("keys").to_string(), keys);
        for key in server_keys(&server) {
            assert!(run(&mut server.client(&["del", &key])).status.success());
        }
    }
    server.everything_is_home();
}

/// Every client has a connection of its own, which is dealt to either core.
#[test]
fn all_cores_of_a_server_have_the_same_keys() {
    let usable = affinity::usable().unwrap();
    let cpus = format!("{},{}", usable[0], usable.get(1).unwrap_or(&(usable[0] + 1)));
    let long = pattern(300_000);
    for provider in ["iwarp", "shm"] {
        let over = ["--provider", provider];
        let server = Server::start(&[&["--cores", &cpus][..], &over].concat());
        let asks = |arguments: &[&str]| run(server.client(arguments).args(over));
        let name = format!("haulage-cores-{}-{provider}", std::process::id());
        let file = std::env::temp_dir().join(name);
        fs::write(&file, &long).unwrap();
        let put = asks(&["mput", "short=/dev/null", &format!("long={}", file.display())]);
        assert!(put.status.success(), "{}", text(&put.stderr));
        for _ in 0..8 {
            assert!(asks(&["get", "long"]).stdout == long, "{provider}");
            let put = asks(&["put", "short", &file.display().to_string()]);
            assert!(put.status.success(), "{}", text(&put.stderr));
        }
        let stat: serde_json::Value =
            serde_json::from_slice(&asks(&["stat", "--json"]).stdout).unwrap();
        assert_eq!(
            (&stat["cores"], &stat["shards"], &stat["keys"]),
            (&2.into(), &2.into(), &2.into())
        );
        let per_core = stat["per_core"].as_array().unwrap();
        let sum =
            |name: &str| per_core.iter().map(|core| core[name].as_i64().unwrap()).sum::<i64>();
        assert_eq!((per_core.len(), sum("keys"), sum("gets"), sum("connections")), (2, 2, 8, 1));
        let bench = [
            "bench",
            "--connections",
            "4",
            "--keys",
            "64",
            "--value-size",
            "4KiB",
            "--seconds",
            "0.1",
        ];
        let bench = asks(&bench);
        assert!(bench.status.success(), "{}", text(&bench.stderr));
        fs::remove_file(file).unwrap();
    }
}

fn server_keys(server: &Server) -> Vec<String> {
    let keys = run(&mut server.client(&["keys"]));
    text(&keys.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn memory_that_the_machine_does_not_have_is_refused_before_any_is_filled() {
    // The index alone would be beyond what this shell lets its children have.
    let serve = "ulimit -v 4000000; exec \"$0\" kv serve --listen 127.0.0.1:0 --memory 64GiB";
    let refused = run(Command::new("sh").args(["-c", serve, env!("CARGO_BIN_EXE_haulage")]));
    let said = complaint(&refused);
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0), "{said}");
    let asked = "cannot have 64 GiB of memory, and ";
    assert!(said.contains(asked) && said.contains(" MiB for connections: "), "{said}");
    let serve = ["kv", "serve", "--listen", "127.0.0.1:0", "--memory", "100000GiB"];
    let refused = run(Command::new(env!("CARGO_BIN_EXE_haulage")).args(serve));
    let said = complaint(&refused);
    let asked = "cannot have 100000 GiB of memory, and ";
    assert!(said.contains(asked) && said.contains(": one core manages at most 16 TiB"), "{said}");
}

#[test]
fn a_server_with_all_keys_that_its_index_holds_says_so_and_how_many() {
    let server = Server::of("1MiB", &["--value-max", "1KiB", "--index-share", "1"]);
    let most = server.figure("keys_max");
    assert!((1..150).contains(&most), "{most}");
    let pairs: Vec<_> = (0..=most).map(|key| format!("{key}=/dev/null")).collect();
    let pairs: Vec<_> = pairs.iter().map(String::as_str).collect();
    let output = run(&mut server.client(&[&["mput"][..], &pairs].concat()));
    let told = text(&output.stdout).lines().last().unwrap().to_owned();
    let why = format!(
        "{most} the server has {most} keys, the most it has an index for; delete keys, or "
    );
    assert_eq!(
        (output.status.code(), told),
        (Some(1), why + "raise its --index-share or --memory")
    );
    assert_eq!((server.figure("keys"), server.figure("refused")), (most, 1));
    let more = Server::of("1MiB", &["--value-max", "1KiB", "--index-share", "2.5"]);
    let part = most * 5 / 2;
    assert!((part..part + 3).contains(&more.figure("keys_max")), "{most}");
}

#[test]
fn a_benchmark_whose_values_another_one_replaces_says_so() {
    for [size, other] in [["32", "8192"], ["8192", "32"], ["8192", "16384"]] {
        let server = Server::start(&[]);
        let bench = ["bench", "--keys", "10", "--seconds", "60", "--json", "--value-size"];
        let writing = [&bench[..], &[other, "--get-ratio", "0"]].concat();
        let mut writing = server.client(&writing).stdout(Stdio::null()).spawn().unwrap();
        let reading = run(&mut server.client(&[&bench[..], &[size, "--get-ratio", "1"]].concat()));
        writing.kill().unwrap();
        writing.wait().unwrap();
        let said = complaint(&reading);
        assert_eq!(reading.status.code(), Some(1), "{said}");
        assert!(
            said.contains("another client, such as a benchmark with another --value-size"),
            "{said}"
        );
    }
}

#[test]
fn sighup_leaves_a_server_serving() {
    let mut server = Server::start(&[]);
    let hang_up = Command::new("kill").args(["-HUP", &server.0.process.id().to_string()]).status();
    assert!(hang_up.unwrap().success());
    assert!(server.put("key", b"value").status.success());
    assert_eq!(server.get("key").stdout, b"value");
    assert!(process::terminate(&mut server.0.process).unwrap().success());
}

#[test]
fn a_peer_that_is_no_peer_disturbs_nobody() {
    let server = Server::start(&[]);
    let connect = || TcpStream::connect(server.address()).unwrap();
    let silent = connect();
    let mut garbage = connect();
    garbage.write_all(&pattern(4096)).unwrap();
    let mut half = connect();
    half.write_all(b"MPA ID Req Fr").unwrap();
    let mut hungry = connect();
    hungry.write_all(b"MPA ID Req Frame\x40\x01\xff\xff").unwrap();
    assert!(server.put("key", b"value").status.success());
    assert_eq!(server.get("key").stdout, b"value");
    // Connections that sent no valid handshake are closed at once, without waiting for a deadline.
    let mut rest = Vec::new();
    let _ = garbage.read_to_end(&mut rest);
    let _ = hungry.read_to_end(&mut rest);
    drop((silent, half));
    server.everything_is_home();
}

#[test]
fn memory_stays_what_was_asked_for_and_idle_connections_cost_little() {
    let server = Server::start(&[]);
    let idle = server.figure("resident_bytes");
    assert!(idle <= (32 + 48) << 20, "{idle} bytes are resident");
    assert_eq!(server.figure("memory_bytes"), 32 << 20);
    assert!(server.figure("connection_bytes") <= server.figure("connections") * (32 << 10));
}

#[test]
fn sigterm_drains_and_ends_with_success() {
    let mut server = Server::start(&[]);
    assert!(server.put("key", b"value").status.success());
    assert!(process::terminate(&mut server.0.process).unwrap().success());
}

#[test]
fn both_versions_move_values_over_both_providers() {
    for provider in ["iwarp", "shm"] {
        let server = Server::start(&["--provider", provider]);
        // The middle one is longer than the room that a client offers at first.
        for (version, length) in [("auto", 70_000), ("1", (5 << 20) + 3), ("2", 70_001)] {
            let value = pattern(length);
            let file =
                std::env::temp_dir().join(format!("haulage-{}-{provider}", std::process::id()));
            fs::write(&file, &value).unwrap();
            let common = ["--provider", provider, "--rpc-version", version];
            let put = [&["put", "key", file.to_str().unwrap()], &common[..]].concat();
            let put = run(&mut server.client(&put));
            fs::remove_file(&file).unwrap();
            assert!(put.status.success(), "{provider} {version}: {}", text(&put.stderr));
            let got = run(&mut server.client(&[&["get", "key"], &common[..]].concat()));
            assert!(got.stdout == value, "{provider} {version}: {}", text(&got.stderr));
        }
    }
}

#[test]
fn a_server_with_the_profile_of_rfc_5666_serves_clients_of_either_text() {
    for provider in ["iwarp", "shm"] {
        let server = Server::start(&["--provider", provider, "--profile", "rfc5666"]);
        for (version, profile) in
            [("1", "rfc8166"), ("1", "rfc5666"), ("auto", "rfc5666"), ("2", "rfc8166")]
        {
            let common = ["--provider", provider, "--rpc-version", version, "--timeout", "60"];
            let common = [&common[..], &["--profile", profile]].concat();
            let of = |words: &[&str]| run(&mut server.client(&[words, &common[..]].concat()));
            for length in [5, 70_000] {
                let value = pattern(length);
                let file = std::env::temp_dir()
                    .join(format!("haulage-{}-{provider}-profile", std::process::id()));
                fs::write(&file, &value).unwrap();
                let put = of(&["put", "key", file.to_str().unwrap()]);
                fs::remove_file(&file).unwrap();
                assert!(put.status.success(), "{provider} {version}: {}", text(&put.stderr));
                let got = of(&["get", "key"]);
                assert!(got.stdout == value, "{provider} {version}: {}", text(&got.stderr));
            }
            let keys = of(&["keys"]);
            assert_eq!(text(&keys.stdout), "key\n", "{provider} {version}: {}", text(&keys.stderr));
        }
    }
}

#[test]
fn ends_without_a_version_in_common_do_not_connect() {
    for (served, spoken) in [("1", "2"), ("2", "1")] {
        let server = Server::start(&["--rpc-version", served]);
        let refused =
            run(&mut server.client(&["keys", "--rpc-version", spoken, "--timeout", "60"]));
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0));
        assert!(complaint(&refused).contains(server.address()), "{}", complaint(&refused));
        for version in [served, "auto"] {
            let keys = run(&mut server.client(&["keys", "--rpc-version", version]));
            assert!(keys.status.success(), "{version} of {served}: {}", text(&keys.stderr));
        }
    }
}

/// Runs the command with a standard descriptor closed, as `closing` says in the shell's words.
fn run_closing(closing: &str, arguments: &[&str]) -> Output {
    let script = format!("exec \"$0\" \"$@\" {closing}");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_haulage")]).args(arguments);
    shell.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_value_is_neither_lost_nor_emptied_by_a_closed_descriptor() {
    let server = Server::start(&[]);
    assert!(server.put("key", b"value").status.success());
    let to = ["--connect", server.address()];
    for (closing, command, which) in [
        (">&-", &["kv", "get", "key"][..], "standard output"),
        (">&-", &["kv", "keys"], "standard output"),
        ("<&-", &["kv", "put", "key"], "standard input"),
    ] {
        let closed = run_closing(closing, &[command, &to].concat());
        let said = text(&closed.stderr);
        assert_eq!(closed.status.code(), Some(1), "{command:?}: {said}");
        assert!(said.contains(which) && said.contains("closed"), "{said}");
    }
    assert_eq!(run(&mut server.client(&["get", "key"])).stdout, b"value");
    // A descriptor that is open to /dev/null was the choice of the caller, and is used.
    for open in ["> /dev/null", "1<> /dev/null"] {
        assert!(run_closing(open, &["kv", "get", "key", to[0], to[1]]).status.success(), "{open}");
    }
    assert!(run_closing("<> /dev/null", &["kv", "put", "key", to[0], to[1]]).status.success());
    let input = run_closing("<&-", &["wire", "decode"]);
    assert_eq!(input.status.code(), Some(1), "{input:?}");
}
