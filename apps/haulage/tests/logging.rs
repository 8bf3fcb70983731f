//! The log on standard error, as people and collectors of logs read it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use haulage::sys::process;
use haulage_test_support::Started;
use serde_json::Value;

fn haulage(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
    command.args(arguments).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

/// A server, killed with the test.
struct Server {
    started: Started,
    address: String,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let mut command = haulage(&["kv", "serve", "--listen", "127.0.0.1:0", "--memory", "32MiB"]);
        Self::of(command.args(arguments), |started| started.address())
    }

    /// Starts one whose address `find` returns.
    fn of(command: &mut Command, find: impl FnOnce(&Started) -> &str) -> Self {
        let started = Started::new(command.stderr(Stdio::piped()));
        let address = find(&started).to_owned();
        Self { started, address }
    }

    fn keys(&self, arguments: &[&str]) -> Command {
        let mut command = haulage(&["kv", "keys", "--connect", &self.address]);
        command.args(arguments);
        command
    }

    /// Ends it in order; returns what it said.
    fn end(mut self) -> String {
        let process = &mut self.started.process;
        assert!(process::terminate(process).unwrap().success());
        let mut said = String::new();
        process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap()
}

/// Reads a log of one JSON object a line.
fn entries(said: &str) -> Vec<Value> {
    let entry = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    let entries: Vec<Value> = said.lines().map(entry).collect();
    for entry in &entries {
        for key in ["timestamp", "level", "message", "target"] {
            assert!(entry[key].is_string(), "{key} in {entry}");
        }
    }
    entries
}

#[test]
fn a_log_for_programs_is_one_json_object_a_line() {
    let server = Server::start(&["--log-format", "json", "-v"]);
    let port = server.address.rsplit_once(':').unwrap().1.to_owned();
    let client = run(&mut server.keys(&["--log-format", "json", "-v"]));
    assert!(client.status.success(), "{}", text(&client.stderr));
    let client = entries(text(&client.stderr));
    let ready = client.iter().find(|entry| entry["message"] == "connection.ready").unwrap();
    assert_eq!(
        (&ready["level"], &ready["target"], &ready["provider"], &ready["version"]),
        (&"INFO".into(), &"haulage".into(), &"iwarp".into(), &2.into())
    );
    assert!(ready["peer"].as_str().unwrap().ends_with(&port), "{ready}");
    let server = entries(&server.end());
    let events: Vec<_> = server.iter().filter(|entry| entry["target"] == "haulage").collect();
    let names: Vec<_> = events.iter().map(|entry| entry["message"].as_str().unwrap()).collect();
    assert_eq!(names, ["connection.accepted", "connection.ready", "connection.lost"]);
    assert!(events[2]["calls_received"].as_u64() > Some(0), "{}", events[2]);
    // The command's own messages are in the same form.
    let told = server.iter().filter(|entry| entry["target"] == "haulage::command");
    assert!(told.map(|entry| entry["message"].as_str().unwrap()).any(|m| m.starts_with("memory")));
}

#[test]
fn a_failure_is_one_line_in_either_form_whatever_is_logged() {
    // Nothing listens at the lowest of ports.
    let refused = ["kv", "keys", "--connect", "127.0.0.1:1"];
    for level in ["off", "error", "warn"] {
        let output = run(haulage(&refused).env("RUST_LOG", level));
        let said = text(&output.stderr);
        assert!(said.starts_with("haulage: nobody listens at"), "{said}");
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        let output = run(haulage(&refused).args(["--log-format", "json"]).env("RUST_LOG", level));
        let said = entries(text(&output.stderr));
        let [entry] = &said[..] else { panic!("{level}: {said:?}") };
        assert_eq!((output.status.code(), &entry["level"]), (Some(1), &"ERROR".into()));
        assert!(entry["message"].as_str().unwrap().starts_with("nobody listens at"), "{entry}");
    }
}

#[test]
fn changes_of_connections_are_logged_on_request_alone() {
    let server = Server::start(&[]);
    for (variable, arguments, logged) in [
        ("", &[][..], false),
        ("", &["-v"], true),
        ("haulage=info", &[], true),
        ("warn", &["-v"], false),
    ] {
        let output = run(server.keys(arguments).env("RUST_LOG", variable));
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert_eq!(said.contains(" INFO haulage: connection.ready "), logged, "{said}");
    }
    assert!(!server.end().contains("connection."));
}

#[test]
fn newcomers_turned_away_are_logged_without_request() {
    let serve = ["store", "serve", "--export", "memory:64MiB", "--allow", "10.0.0.0/8", "--json"];
    let mut command = haulage(&serve);
    command.args(["--listen", ":0", "--mount-listen", ":0", "--tcp-listen", "off"]);
    let server = Server::of(&mut command, |started| started.named("listen"));
    let refused = run(&mut server.keys(&[]));
    assert_eq!((refused.status.code(), text(&refused.stderr).lines().count()), (Some(1), 1));
    let said = server.end();
    assert!(said.contains(" WARN haulage: connection.refused peer=127.0.0.1:"), "{said}");
}

#[test]
fn wrong_usage_is_one_json_object_where_the_log_is_json() {
    for (arguments, why) in [
        (&["kv", "get", "--log-format", "json"][..], "<KEY>"),
        (&["--log-format=json", "kv", "gat"], "gat"),
        (&["kv", "serve", "--log-format", "json", "--memory", "much"], "much"),
        (
            &["perf", "local", "null", "--log-format", "json", "--plot", "x.png"],
            "ends in .svg, not x.png",
        ),
        (&["doctor", "--log-format", "json", "--log-format", "xml"], "--log-format"),
    ] {
        let output = run(&mut haulage(arguments));
        let said = entries(text(&output.stderr));
        let [entry] = &said[..] else { panic!("{arguments:?}: {said:?}") };
        assert_eq!((output.status.code(), &entry["level"]), (Some(2), &"ERROR".into()));
        assert!(entry["message"].as_str().unwrap().contains(why), "{entry}");
    }
    let wrong = run(haulage(&["doctor", "--log-format", "json"]).env("RUST_LOG", "haulage=loud"));
    let said = entries(text(&wrong.stderr));
    assert!(
        said.len() == 1 && said[0]["message"].as_str().unwrap().starts_with("RUST_LOG: "),
        "{said:?}"
    );
    assert_eq!(wrong.status.code(), Some(2));
    assert!(!Path::new("x.png").exists());
}

#[test]
fn that_connections_give_way_is_said_at_both_ends_with_the_bound() {
    let server = Server::start(&["--connections", "8"]);
    let bench = ["kv", "bench", "--connections", "40", "--seconds", "0.1", "--keys", "10"];
    let bench = run(haulage(&bench).args(["--connect", &server.address]));
    let said = text(&bench.stderr);
    assert_eq!((bench.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    let why = "check that the server runs, and that one address may have 40 connections there: half of its --connections";
    assert!(said.contains(why), "{said}");
    let said = server.end();
    // Connections that are set up give way; while none of them is, newcomers are turned away.
    let replaced = said.lines().filter(|line| line.contains("connection.replaced"));
    let replaced: Vec<_> = replaced.collect();
    let refused = said.lines().filter(|line| line.contains("connection.refused"));
    let refused = refused.filter(|line| line.contains("as one address may have")).count();
    assert!(!replaced.is_empty() || refused > 0, "{said}");
    assert!(replaced.len() <= 1, "not a line for each: {said}");
    for line in replaced {
        let most = r#" WARN haulage: connection.replaced "#;
        assert!(line.contains(most) && line.contains(r#"of="one address" most=4 "#), "{line}");
        assert!(line.contains("raise --connections"), "{line}");
    }
}

#[test]
fn that_a_client_goes_on_with_another_version_is_nothing_to_warn_of() {
    let server = Server::start(&["--rpc-version", "1"]);
    let keys = run(&mut server.keys(&[]));
    assert!(keys.status.success(), "{}", text(&keys.stderr));
    let said = server.end();
    assert!(!said.contains("refused"), "{said}");
}

#[test]
fn a_wrong_variable_and_a_wrong_form_are_wrong_usage() {
    let wrong = run(haulage(&["doctor"]).env("RUST_LOG", "haulage=loud"));
    let said = text(&wrong.stderr);
    assert_eq!((wrong.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.starts_with("haulage: RUST_LOG: "), "{said}");
    let wrong = run(&mut haulage(&["doctor", "--log-format", "xml"]));
    let said = text(&wrong.stderr);
    assert_eq!((wrong.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("text, json"), "{said}");
}
