//! Clients of a server that is stopped, not killed, while it copies: a debugger, a frozen container and a paused
//! machine do that.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use haulage::sys::clock;
use haulage_test_support::Started;

/// Far more than the timeouts of a client and the bounds of its end add up to.
const HANG: Duration = Duration::from_secs(30);

fn haulage(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn signal(name: &str, child: &Child) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(sent.unwrap().success(), "{name}");
}

/// A server over shared memory that has a long value. It is killed with the test, stopped or not.
fn server(tries: u32) -> Started {
    let serve = ["kv", "serve", "--provider", "shm", "--listen", "127.0.0.1:0"];
    let server = Started::new(haulage(&serve).args(["--memory", "256MiB", "--value-max", "64MiB"]));
    let name = format!("haulage-stopped-{}-{tries}", std::process::id());
    let value = std::env::temp_dir().join(name);
    fs::write(&value, vec![7; 64 << 20]).unwrap();
    let put = ["kv", "put", "--provider", "shm", "--connect", server.address(), "big"];
    let put = haulage(&put).arg(&value).status();
    fs::remove_file(&value).unwrap();
    assert!(put.unwrap().success());
    server
}

/// Waits for the end of a client; `None` if it hangs, and then it is killed.
fn end_of(client: &mut Child) -> Option<ExitStatus> {
    let start = clock::now();
    while clock::now().saturating_since(start) < HANG {
        if let Some(status) = client.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    client.kill().unwrap();
    client.wait().unwrap();
    None
}

/// Starts clients that fetch the value, and stops the server while it copies for them: a little later than for the client
/// before if that failed, and a little sooner if that had its value.
fn stop_at_each_moment(tries: u32) {
    let server = server(tries);
    let address = server.address();
    let connect = ["--provider", "shm", "--timeout", "1", "--connect", address];
    let client = || haulage(&["kv", "get", "big"]).args(connect).spawn().unwrap();
    let start = clock::now();
    assert!(client().wait().unwrap().success());
    let mut moment = clock::now().saturating_since(start);
    let step = moment / 16;
    for number in 0..tries {
        let start = clock::now();
        let mut client = client();
        // The pause synchronises nothing: it chooses the moment at which the server is stopped.
        while clock::now().saturating_since(start) < moment {
            std::hint::spin_loop();
        }
        signal("-STOP", &server.process);
        let ended = end_of(&mut client);
        signal("-CONT", &server.process);
        let is_late = ended.unwrap_or_else(|| panic!("client {number} of {tries} hangs")).success();
        moment = if is_late { moment.saturating_sub(step) } else { moment + step / 2 };
    }
    let keys = haulage(&["kv", "keys"]).args(connect).status();
    assert!(keys.unwrap().success(), "the server does not serve any more");
}

#[test]
fn a_client_ends_though_its_server_has_stopped_at_any_moment() {
    stop_at_each_moment(5);
}

#[test]
#[ignore = "it takes minutes: tests/check --full runs it"]
fn clients_end_though_their_server_has_stopped_at_any_of_many_moments() {
    stop_at_each_moment(200);
}
