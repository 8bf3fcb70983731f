//! The command as a process: exit status, and what goes to which stream.

use std::process::{Command, Output, Stdio};

#[test]
fn wrong_usage_is_status_2_and_one_line_that_says_what_to_do() {
    for (arguments, says) in [
        (&[][..], "--help"),
        (&["frobnicate"], "frobnicate"),
        (&["doctor", "--colour"], "--colour"),
        (&["doctor", "now"], "now"),
    ] {
        let output = haulage(arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert_eq!((stderr.lines().count(), output.stdout.len()), (1, 0), "{stderr}");
        assert!(stderr.starts_with("haulage: ") && stderr.contains(says), "{stderr}");
    }
}

#[test]
fn a_wrong_version_of_rpc_over_rdma_is_answered_with_the_three_that_there_are() {
    for command in ["kv keys", "kv serve", "demo", "perf serve", "perf local null", "store ls"] {
        for wrong in ["3", "0", "two", ""] {
            let arguments = command.split(' ').chain(["--rpc-version", wrong]).collect::<Vec<_>>();
            let output = haulage(&arguments);
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
            assert_eq!((stderr.lines().count(), output.stdout.len()), (1, 0), "{stderr}");
            assert!(stderr.contains("--rpc-version") && stderr.contains("auto, 1, 2"), "{stderr}");
        }
    }
}

#[test]
fn help_and_version_are_results() {
    let version = haulage(&["--version"]);
    let expected = format!("haulage {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!((version.status.code(), version.stdout), (Some(0), expected.into_bytes()));
    let help = haulage(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8(help.stdout).unwrap().contains("doctor"));
    assert!(help.stderr.is_empty());
}

#[test]
fn doctor_succeeds_on_any_machine_that_has_tcp() {
    let output = haulage(&["doctor", "--json"]);
    assert_eq!((output.status.code(), output.stderr), (Some(0), vec![]));
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.starts_with(r#"[{"check":"iwarp","state":"ok","detail":""#), "{stdout}");
    assert!(stdout.ends_with("}]\n"), "{stdout}");
    for check in ["hugepages", "memlock", "open_files", "io_uring", "cpu_isolation", "numa", "rdma"]
    {
        assert!(stdout.contains(&format!(r#"{{"check":"{check}","state":""#)), "{check}");
    }
    assert_eq!(haulage(&["--json", "doctor"]).stdout, stdout.as_bytes(), "options may come first");
}

#[test]
fn a_closed_pipe_is_success_and_says_nothing() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command(&["doctor"]).stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), vec![]));
}

#[test]
fn output_that_cannot_be_written_is_status_1() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = command(&["doctor"]).stdout(full).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{stderr}");
}

fn haulage(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the command starts")
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
    command.args(arguments).stdin(Stdio::null());
    command
}
