//! What can be refused early is refused early: before memory is filled, of which these servers ask for more than there is.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::net::TcpListener;
use std::process::{Command, Stdio};

use haulage_test_support::Started;

/// Runs a server that fails, and returns what it says last.
fn refused(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
    let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
    let said = str::from_utf8(&output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), &*output.stdout),
        (Some(1), &b""[..]),
        "{arguments:?}: {said}"
    );
    said.lines().last().unwrap().to_owned()
}

const KV: &[&str] = &["kv", "serve", "--memory", "100000GiB", "--listen"];
const PERF: &[&str] = &["perf", "serve", "--memory", "100000GiB", "--listen"];
const STORE: &[&str] = &["store", "serve", "--export", "memory:100000GiB", "--listen"];

#[test]
fn an_address_that_is_not_ours_is_refused_before_memory_is_filled() {
    // No machine has an address that is for documentation alone.
    let strange = "192.0.2.1:0";
    for serve in [KV, PERF, STORE] {
        let said = refused(&[serve, &[strange]].concat());
        assert!(said.contains(&format!("{strange} is not an address of this machine")), "{said}");
    }
    for option in ["--mount-listen", "--tcp-listen", "--metrics"] {
        let ports = ["--mount-listen", "--tcp-listen"].into_iter().filter(|other| *other != option);
        let ports: Vec<_> = ports.flat_map(|other| [other, ":0"]).collect();
        let said = refused(&[STORE, &[":0", option, strange], &ports].concat());
        assert!(
            said.contains(&format!("not an address of this machine; choose another {option}")),
            "{said}"
        );
    }
    let said = refused(&[KV, &[strange, "--provider", "shm"]].concat());
    assert!(said.contains("is not an address of this machine"), "{said}");
}

#[test]
fn a_port_in_use_is_refused_before_memory_is_filled() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for serve in [KV, PERF, STORE] {
        let said = refused(&[serve, &[&*taken]].concat());
        assert!(said.contains(&format!("{taken} is in use")), "{said}");
    }
    let said = refused(&[KV, &[":0", "--metrics", &taken]].concat());
    assert!(said.contains("is in use") && said.contains("--metrics"), "{said}");
    // Ports of shared memory are others than those of TCP.
    let mut shm = Command::new(env!("CARGO_BIN_EXE_haulage"));
    shm.args(["kv", "serve", "--memory", "1MiB", "--value-max", "1KiB", "--listen", &taken]);
    let shm = Started::new(shm.args(["--provider", "shm"]).stderr(Stdio::null()));
    assert_eq!(shm.address(), taken);
    let said = refused(&[KV, &[&*taken, "--provider", "shm"]].concat());
    assert!(said.contains(&format!("{taken} is in use")), "{said}");
}
