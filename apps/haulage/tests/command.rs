//! The command as a process: exit status, and what goes to which stream.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

#[expect(dead_code, clippy::print_stdout, reason = "its main function is for Cargo")]
#[path = "../build.rs"]
mod build;

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
fn a_text_of_version_1_is_not_for_version_2() {
    const COMMANDS: &str = "kv keys|kv serve|kv bench|demo|perf serve|perf run null|perf local null|\
                            store ls|store put - /a|store serve --export memory:64MiB";
    for command in COMMANDS.split('|') {
        let arguments = format!("{command} --profile rfc5666 --rpc-version 2");
        let output = haulage(&arguments.split(' ').collect::<Vec<_>>());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {stderr}");
        assert_eq!((stderr.lines().count(), output.stdout.len()), (1, 0), "{stderr}");
        assert!(stderr.contains("--profile rfc5666 is a text of version 1"), "{stderr}");
    }
}

#[test]
fn odd_sizes_and_counts_are_refused_in_words_before_anything_is_allocated() {
    const HUGE: &[&str] =
        &["18446744073709551615", "9223372036854775808", "17179869183GiB", "100000GiB"];
    const BYTES: &[&str] = &["18446744073709551616", "17179869184GiB", "1e9", "1.5", "-1", ""];
    const NUMBERS: &[&str] = &["18446744073709551616", "4294967296", "1e99x", "-1", ""];
    let kv = "kv serve --listen :0";
    let store = "store serve --listen :0 --mount-listen :0 --tcp-listen off";
    let memory = "store serve --listen :0 --export memory:64MiB";
    let perf = "perf serve --listen :0";
    let bench = "kv bench --connect :1";
    let local = "perf local read";
    for (command, option, wrong, zero) in [
        (store, "--export=memory:", BYTES, "0"),
        (kv, "--memory=", BYTES, "0"),
        (kv, "--value-max=", BYTES, "0"),
        (kv, "--connections=", NUMBERS, "0"),
        (kv, "--progress-timeout=", NUMBERS, "0"),
        // `--idle-timeout=0` is allowed, and means never.
        (kv, "--idle-timeout=", NUMBERS, ""),
        (memory, "--connections=", NUMBERS, "0"),
        // Zero is root, of which the server warns.
        (memory, "--anonuid=", NUMBERS, "4294967295"),
        (memory, "--anongid=", NUMBERS, "4294967295"),
        // A server without memory for items answers the calls that have none.
        (perf, "--memory=", BYTES, ""),
        (perf, "--connections=", NUMBERS, "0"),
        (perf, "--depth=", NUMBERS, "0"),
        (bench, "--value-size=", BYTES, "0"),
        (bench, "--keys=", NUMBERS, "0"),
        (bench, "--depth=", NUMBERS, "0"),
        (bench, "--connections=", NUMBERS, "0"),
        (bench, "--seconds=", NUMBERS, "0"),
        (bench, "--timeout=", NUMBERS, "0"),
        (local, "--size=", BYTES, "0"),
        (local, "--depth=", NUMBERS, "0"),
        (local, "--connections=", NUMBERS, "0"),
        (local, "--active=", NUMBERS, "0"),
        (local, "--runs=", NUMBERS, "0"),
        (local, "--rate=", NUMBERS, "0"),
        (local, "--seconds=", NUMBERS, "0"),
    ] {
        for odd in HUGE.iter().chain(wrong).chain(&[zero]) {
            let odd = format!("{option}{odd}");
            let arguments = command.split(' ').chain([&*odd]).collect::<Vec<_>>();
            let output = haulage(&arguments);
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert!(matches!(output.status.code(), Some(1 | 2)), "{arguments:?}: {stderr}");
            // Notes about this machine come before.
            let error = stderr.lines().last().unwrap();
            assert!(error.starts_with("haulage: "), "{arguments:?}: {stderr}");
            assert!(!stderr.contains("panicked"), "{arguments:?}: {stderr}");
            assert_eq!(output.stdout.len(), 0, "{arguments:?}");
        }
    }
}

#[test]
fn help_and_version_are_results() {
    let expected = format!("haulage {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(haulage(&["-V"]).stdout, expected.as_bytes());
    let version = haulage(&["--version"]);
    let said = String::from_utf8(version.stdout).unwrap();
    assert_eq!(version.status.code(), Some(0));
    let rest: Vec<_> = said.strip_prefix(&expected).expect("that comes first").lines().collect();
    let [commit, features, providers] = rest[..] else { panic!("{said}") };
    let commit = commit.strip_prefix("commit: ").unwrap();
    let known = commit.len() >= 12 && commit.bytes().all(|digit| digit.is_ascii_hexdigit());
    assert!(if build::commit(here()).is_some() { known } else { commit == "unknown" }, "{said}");
    let last = if cfg!(feature = "verbs") { ", verbs" } else { "" };
    assert_eq!(features, format!("features: host-auth{last}"));
    assert_eq!(providers, format!("providers: iwarp, shm{last}"));
    let help = haulage(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8(help.stdout).unwrap().contains("doctor"));
    assert!(help.stderr.is_empty());
}

#[test]
fn a_copy_that_is_no_checkout_of_its_own_is_of_no_known_commit() {
    let inside = place("inside/apps/haulage");
    assert_eq!(build::commit(&inside), None, "it lies inside another checkout at most");
    assert_eq!(build::commit(&inside.join("nowhere")), None);
}

#[test]
fn what_was_meant_is_guessed_in_the_same_line() {
    for (typed, meant) in [
        ("demoo", "demo"),
        ("kv bnech", "bench"),
        ("kv keys --conect :1", "--connect"),
        ("kv keys --provider iwrap", "iwarp"),
        ("kv keys --polling adaptve", "adaptive"),
        ("kv keys --timeout 2s", "2"),
        ("kv serve --memory 64MB", "64MiB"),
        ("store serve --export memroy:1GiB", "memory:1GiB"),
        ("store serve --export memory:1GiB --tcp-listen Off", "off"),
        ("completions bsh", "bash"),
    ] {
        let output = haulage(&typed.split(' ').collect::<Vec<_>>());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{typed}: {stderr}");
        let guess = format!("; did you mean `{meant}`? --help says more\n");
        assert!(stderr.ends_with(&guess) && stderr.lines().count() == 1, "{stderr}");
    }
}

#[test]
fn providers_are_listed_in_help_and_where_one_is_wrong() {
    let help = String::from_utf8(haulage(&["kv", "keys", "--help"]).stdout).unwrap();
    for provider in ["- iwarp: ", "- shm: "] {
        assert!(help.contains(provider), "{help}");
    }
    let short = String::from_utf8(haulage(&["kv", "keys", "-h"]).stdout).unwrap();
    assert!(short.contains("[possible values: iwarp, shm"), "{short}");
    let wrong = haulage(&["kv", "keys", "--provider", "tcp"]);
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(said.contains("'tcp'") && said.contains("[possible values: iwarp, shm"), "{said}");
}

#[test]
fn completions_know_commands_options_and_values() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = haulage(&["completions", shell]);
        assert_eq!((output.status.code(), output.stderr), (Some(0), vec![]));
        let script = String::from_utf8(output.stdout).unwrap();
        for word in ["haulage", "bench", "mount-connect", "doctor"] {
            assert!(script.contains(word), "{word} for {shell}");
        }
    }
    let script = String::from_utf8(haulage(&["completions", "bash"]).stdout).unwrap();
    let complete = "\nCOMP_WORDS=(haulage kv keys --provider i); COMP_CWORD=4\n\
        _haulage haulage i --provider; printf '%s' \"${COMPREPLY[*]}\"\n";
    let bash = Command::new("bash").args(["-c", &(script + complete)]).output().unwrap();
    assert_eq!(String::from_utf8(bash.stdout).unwrap(), "iwarp");
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let directory = place("man").join("man1");
    let output = haulage(&["man", directory.to_str().unwrap()]);
    assert_eq!((output.status.code(), output.stderr, output.stdout), (Some(0), vec![], vec![]));
    let pages = fs::read_dir(&directory).unwrap().map(|page| page.unwrap().file_name());
    let pages: BTreeSet<_> = pages.map(|page| page.into_string().unwrap()).collect();
    assert_eq!(pages, with_commands_below(&["haulage".to_owned()]));
    for page in &pages {
        let text = fs::read_to_string(directory.join(page)).unwrap();
        let name = page.strip_suffix(".1").unwrap();
        assert!(text.contains(&format!(".TH {name} 1")) && text.contains(".SH OPTIONS"), "{page}");
    }
    let text = fs::read_to_string(directory.join("haulage-store-serve.1")).unwrap();
    assert!(text.contains("unstable\\-names") && text.contains("CAP_DAC_OVERRIDE"), "{text}");

    let file = place("no-directory").join("file");
    fs::write(&file, "").unwrap();
    let refused = haulage(&["man", file.to_str().unwrap()]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!((refused.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("cannot write manual pages to"), "{said}");
}

/// Returns the pages of a command and of those that its help lists.
fn with_commands_below(command: &[String]) -> BTreeSet<String> {
    let arguments: Vec<_> = command[1..].iter().map(String::as_str).chain(["-h"]).collect();
    let help = String::from_utf8(haulage(&arguments).stdout).unwrap();
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = listed.take_while(|line| !line.is_empty()).filter_map(|line| {
        line.split_whitespace()
            .next()
            .filter(|_| line.starts_with("  ") && !line.starts_with("   "))
    });
    let below = names.flat_map(|name| with_commands_below(&[command, &[name.to_owned()]].concat()));
    below.chain([format!("{}.1", command.join("-"))]).collect()
}

#[test]
fn doctor_succeeds_on_any_machine_that_has_tcp() {
    let output = haulage(&["doctor", "--json"]);
    assert_eq!((output.status.code(), output.stderr), (Some(0), vec![]));
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.starts_with(r#"[{"check":"iwarp","state":"ok","detail":""#), "{stdout}");
    assert!(stdout.ends_with("}]\n"), "{stdout}");
    for check in [
        "hugepages",
        "memory",
        "memlock",
        "open_files",
        "io_uring",
        "cpu_isolation",
        "cpu_quota",
        "numa",
        "rdma",
        "locks",
    ] {
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

/// A directory of this test's own.
fn place(name: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("command").join(name);
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).unwrap();
    place
}

/// Where the package lies.
fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn haulage(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the command starts")
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
    command.args(arguments).stdin(Stdio::null());
    command
}
