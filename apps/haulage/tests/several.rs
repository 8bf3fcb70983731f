//! `kv mget` and `kv mput`: several keys in one command, with a server and its clients as processes of their own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use haulage_test_support::Started;

/// A server, and a directory of files; both go with the test.
struct Place {
    server: Started,
    files: PathBuf,
}

impl Place {
    fn new(name: &str, arguments: &[&str]) -> Self {
        let files = std::env::temp_dir().join(format!("haulage-{}-{name}", std::process::id()));
        fs::create_dir_all(&files).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
        command.args(["kv", "serve", "--listen", "127.0.0.1:0", "--memory", "64MiB"]);
        command.args(arguments).stdin(Stdio::null()).stderr(Stdio::piped());
        Self { server: Started::new(&mut command), files }
    }

    /// Runs a command of `haulage kv` with this standard input.
    fn run_with(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
        command.arg("kv").args(arguments).args(["--connect", self.server.address()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.run_with(arguments, b"")
    }

    /// Writes a file, and returns the argument that stores it under `key`.
    fn pair(&self, key: &str, value: &[u8]) -> String {
        let file = self.files.join(format!("{}", value.len()));
        fs::write(&file, value).unwrap();
        format!("{key}={}", file.display())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.files);
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 7 + at / 251) % 256).unwrap()).collect()
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

/// Returns the exit status, and the only line on standard error if there is one.
fn end(output: &Output) -> (Option<i32>, &str) {
    let said = text(&output.stderr);
    assert!(said.lines().count() <= 1, "{said}");
    (output.status.code(), said.trim_end())
}

/// The chunks of one Call share 16 segments, which have 1 MiB in version 1.
#[test]
fn long_values_come_in_either_version_though_they_do_not_fit_one_call() {
    let place = Place::new("long", &[]);
    let value = pattern((15 << 20) + 5);
    let stored = place.run(&["mput", &place.pair("a", &value)]);
    assert!(stored.status.success(), "{}", text(&stored.stderr));
    let expected = [format!("a {}\n", value.len()).as_bytes(), &value].concat().repeat(5);
    for version in ["1", "2"] {
        let found = place.run(&["mget", "a", "a", "a", "a", "a", "--rpc-version", version]);
        assert!(found.status.success(), "{version}: {}", text(&found.stderr));
        assert!(found.stdout == expected, "{version}: the values differ");
    }
}

#[test]
fn several_values_go_there_and_back_whatever_their_lengths() {
    // One value is longer than the room for it, another than the memory that a client has at first. There are more short ones
    // than a client has under way.
    let long = [0, 1, 4096, 70_000, 12 << 20, 3, 2 << 20, 65_536, 100];
    let lengths: Vec<_> = long.into_iter().chain(200..400).collect();
    for (provider, version) in [("iwarp", "auto"), ("iwarp", "1"), ("shm", "auto"), ("shm", "1")] {
        let common = ["--provider", provider, "--rpc-version", version, "--timeout", "60"];
        let place = Place::new(&format!("{provider}-{version}"), &["--provider", provider]);
        let keys: Vec<_> = lengths.iter().map(|length| format!("a={length}")).collect();
        let pairs: Vec<_> = keys
            .iter()
            .zip(&lengths)
            .map(|(key, length)| place.pair(key, &pattern(*length)))
            .collect();
        let pairs: Vec<_> = pairs.iter().map(String::as_str).collect();
        let put = place.run(&[&["mput"], &pairs[..], &common].concat());
        assert_eq!(end(&put), (Some(0), ""));
        let expected: String = keys.iter().map(|key| format!("{key} stored\n")).collect();
        assert_eq!(text(&put.stdout), expected);
        let asked: Vec<_> = keys.iter().map(String::as_str).collect();
        let get = place.run(&[&["mget"], &asked[..], &common].concat());
        assert_eq!(end(&get), (Some(0), ""));
        let mut expected = Vec::new();
        for (key, length) in keys.iter().zip(&lengths) {
            expected.extend(format!("{key} {length}\n").into_bytes());
            expected.extend(pattern(*length));
        }
        assert!(get.stdout == expected, "{provider} {version}: {} bytes", get.stdout.len());
    }
}

#[test]
fn keys_that_are_missing_are_told_apart_and_fail_the_command() {
    let place = Place::new("missing", &[]);
    let put = place.run_with(&["mput", "a=-"], b"value");
    assert_eq!((end(&put), text(&put.stdout)), ((Some(0), ""), "a stored\n"));
    let get = place.run(&["mget", "nobody", "a", "b", "c", "a", "a", "none"]);
    assert_eq!(end(&get), (Some(1), "haulage: no such key: 4 of 7"));
    let expected = "nobody -\na 5\nvalueb -\nc -\na 5\nvaluea 5\nvaluenone -\n";
    assert_eq!(text(&get.stdout), expected);
    let json = place.run(&["mget", "a", "\"b", "--json"]);
    assert_eq!(json.status.code(), Some(1));
    let expected = "{\"key\":\"a\",\"found\":true,\"bytes\":5}\n\
                    {\"key\":\"\\\"b\",\"found\":false,\"bytes\":null}\n";
    assert_eq!(text(&json.stdout), expected);
}

#[test]
fn what_cannot_be_stored_is_told_key_by_key_and_the_rest_is_stored() {
    let place = Place::new("unstored", &["--value-max", "1MiB"]);
    let large = place.pair("large", &pattern((1 << 20) + 1));
    let (small, other) = (place.pair("small", b"1"), place.pair("last", b"22"));
    let put = place.run(&["mput", &small, "no=/nonexistent/file", &large, &other]);
    assert_eq!(end(&put), (Some(1), "haulage: not stored: 2 of 4"));
    let lines: Vec<_> = text(&put.stdout).lines().collect();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert_eq!((lines[0], lines[3]), ("small stored", "last stored"));
    assert!(lines[1].starts_with("no cannot read /nonexistent/file: "), "{}", lines[1]);
    assert!(lines[2].starts_with("large the value is larger than 1 MiB"), "{}", lines[2]);
    let json = place.run(&["mput", &small, &large, "--json"]);
    assert_eq!(json.status.code(), Some(1));
    let lines: Vec<serde_json::Value> =
        text(&json.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0], serde_json::json!({"key": "small", "stored": true}));
    assert_eq!((&lines[1]["stored"], &lines[1]["key"]), (&false.into(), &"large".into()));
    assert!(lines[1]["why"].as_str().unwrap().contains("--value-max"));
    let get = place.run(&["mget", "small", "last"]);
    assert_eq!((end(&get), text(&get.stdout)), ((Some(0), ""), "small 1\n1last 2\n22"));
}

#[test]
fn many_keys_take_their_last_value_and_more_memory_than_a_client_has_at_once() {
    let place = Place::new("many", &[]);
    let pairs: Vec<_> = (0..40)
        .map(|n| place.pair(&format!("{}", n % 13), &pattern(if n < 13 { 1 << 20 } else { n })))
        .collect();
    let pairs: Vec<_> = pairs.iter().map(String::as_str).collect();
    let put = place.run(&[&["mput", "--timeout", "60"], &pairs[..]].concat());
    assert_eq!(end(&put), (Some(0), ""));
    assert_eq!(text(&put.stdout).lines().count(), 40);
    let get = place.run(&["mget", "0", "1", "12"]);
    assert_eq!(end(&get), (Some(0), ""));
    let expected = [b"0 39\n", &pattern(39)[..], b"1 27\n", &pattern(27), b"12 38\n", &pattern(38)];
    assert!(get.stdout == expected.concat());
}

#[test]
fn a_command_line_that_names_no_pairs_or_no_keys_is_wrong_usage() {
    let place = Place::new("usage", &[]);
    let long = "k".repeat(513);
    for arguments in [
        &["mput", "key"][..],
        &["mput", "=file"],
        &["mput", "key="],
        &["mput", "a=-", "b=-"],
        &["mput"],
        &["mget"],
        &["mget", "a", ""],
        &["mget", &long],
    ] {
        let wrong = place.run(arguments);
        let (status, said) = end(&wrong);
        assert_eq!((status, text(&wrong.stdout)), (Some(2), ""), "{arguments:?}: {said}");
    }
    assert_eq!(place.run(&["keys"]).stdout, b"", "nothing was stored");
}

#[test]
fn a_server_that_is_not_there_is_one_error_for_all_keys() {
    let none = ["--connect", "127.0.0.1:1"];
    for arguments in [["mget", "a", "b"], ["mput", "a=/dev/null", "b=/dev/null"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
        let output = command.arg("kv").args(arguments).args(none).output().unwrap();
        let (status, said) = end(&output);
        assert_eq!((status, text(&output.stdout)), (Some(1), ""), "{said}");
        assert!(said.contains("nobody listens"), "{said}");
    }
}
