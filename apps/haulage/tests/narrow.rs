//! The command on machines that give it little: one CPU, few open files, a PID namespace.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::{Command, Output, Stdio};

use haulage::sys::affinity;
use haulage_test_support::Started;

/// Runs it where only one CPU is to be had, which processes inherit from the thread that starts them.
fn on_one_cpu(arguments: &[&str]) -> Output {
    let arguments: Vec<_> = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let narrow = std::thread::Builder::new().spawn(move || {
        affinity::pin(affinity::usable().unwrap()[0]).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
        command.args(arguments).stdin(Stdio::null()).output().unwrap()
    });
    narrow.unwrap().join().unwrap()
}

/// Runs it with at most so many open files.
fn with_files(limit: u32, arguments: &str) -> Output {
    let script = format!("ulimit -n {limit} && exec \"$0\" {arguments}");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_haulage")]).stdin(Stdio::null());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

const SAID: &str = "this machine has one CPU: nothing is pinned and polling is adaptive";

#[test]
fn one_cpu_is_enough_and_it_is_said() {
    let doctor = on_one_cpu(&["doctor", "--json"]);
    assert!(doctor.status.success());
    let found = r#""check":"cpu_isolation","state":"slower","detail":"one CPU:"#;
    assert!(text(&doctor.stdout).contains(found), "{}", text(&doctor.stdout));
    for arguments in [
        &["perf", "local", "null", "--seconds", "0.1"][..],
        &["perf", "local", "read", "--size", "64KiB", "--depth", "4", "--seconds", "0.1"],
        &["perf", "local", "null", "--provider", "shm", "--seconds", "0.1"],
        &["perf", "local", "write", "--provider", "shm", "--threads", "--seconds", "0.1"],
        &["perf", "local", "null", "--server-cores", "0,1", "--seconds", "0.1"],
        &["perf", "local", "null", "--server-cores", "0,1", "--threads", "--seconds", "0.1"],
        &["demo"],
    ] {
        let output = on_one_cpu(arguments);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        assert_eq!(said.matches(SAID).count(), 1, "{arguments:?}: {said}");
    }
}

#[test]
fn a_server_of_several_cores_shares_one_cpu_with_its_clients() {
    let arguments =
        ["perf", "local", "null", "--server-cores", "0,1", "--seconds", "0.1", "--json"];
    let output = on_one_cpu(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_str(text(&output.stdout)).unwrap();
    let cpu = affinity::usable().unwrap()[0];
    assert_eq!(json["shared_cpus"], serde_json::json!([cpu]));
    for side in ["server_cores", "client_cores"] {
        assert_eq!(json[side], serde_json::json!([null, null]), "nothing is pinned");
    }
}

/// A command that a container's host starts in it has no leader of its session there.
#[test]
fn a_session_led_from_outside_of_the_pid_namespace_is_no_hindrance() {
    let inside = |program: &str, arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child", program]);
        command.args(arguments).stdin(Stdio::null()).output()
    };
    if !inside("true", &[]).is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: this machine gives its users no PID namespaces");
        return;
    }
    let haulage = env!("CARGO_BIN_EXE_haulage");
    let output = inside(haulage, &["-v", "perf", "local", "null", "--seconds", "0.05"]).unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("scheduling: ").count(), 1, "{said}");
}

#[test]
fn few_open_files_are_enough_to_serve_many_files() {
    let place = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("narrow-store");
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir(&place).unwrap();
    let script = "ulimit -n 96 && exec \"$0\" store serve --json --export \"$1\" \
                  --listen :0 --mount-listen :0 --tcp-listen off --squash none --connections 20";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_haulage")]).arg(&place);
    let server = Started::new(command.stdin(Stdio::null()).stderr(Stdio::null()));
    let (nfs, mount) = (server.named("listen"), server.named("mount_listen"));
    for file in 0..60 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
        command.args(["store", "put", &format!("/{file}"), "--connect", nfs]);
        let output = command.args(["--mount-connect", mount]).stdin(Stdio::null()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{file}: {}", text(&output.stderr));
    }
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 60);
}

#[test]
fn few_open_files_are_enough_for_few_connections() {
    for limit in [64, 256] {
        let doctor = with_files(limit, "doctor --json");
        assert!(doctor.status.success());
        let found = format!(r#""check":"open_files","state":"slower","detail":"limit {limit}:"#);
        assert!(text(&doctor.stdout).contains(&found), "{}", text(&doctor.stdout));
        for arguments in [
            "perf local null --seconds 0.05",
            "perf local null --seconds 0.05 --connections 16",
            "perf local read --size 4KiB --provider shm --seconds 0.05 --connections 16",
            "perf local null --seconds 0.05 --threads",
            // One `demo` is enough, because most of its time has nothing to do with the limit.
            if limit == 64 { "demo" } else { "doctor" },
        ] {
            let output = with_files(limit, arguments);
            assert!(output.status.success(), "{limit}: {arguments}: {}", text(&output.stderr));
        }
        for arguments in [
            "perf local null --connections 300",
            "perf local null --threads --connections 120",
            "perf serve --listen :0 --connections 300",
        ] {
            let output = with_files(limit, arguments);
            let said = text(&output.stderr);
            let asks =
                said.contains(&format!("the limit is {limit}")) && said.contains("--nofile=");
            assert_eq!((output.status.code(), asks), (Some(1), true), "{arguments}: {said}");
            assert_eq!(said.lines().count(), 1, "{arguments}: {said}");
        }
    }
}
