//! Commands that do their work though nobody reads what they print.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use haulage::sys::{clock, process};
use haulage_test_support::Started;

/// Nothing here takes this long unless it hangs.
const HANG_SECONDS: u64 = 120;

fn haulage(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs a command whose standard output nobody reads.
fn unheard(arguments: &[&str]) -> Output {
    haulage(arguments).stdout(closed()).output().unwrap()
}

/// Returns a pipe that has no reader.
fn closed() -> std::io::PipeWriter {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

fn place(name: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unheard");
    fs::create_dir_all(&place).unwrap();
    place.join(name)
}

#[test]
fn every_value_is_stored_and_the_status_is_that_of_storing() {
    let server = Started::new(&mut haulage(&[
        "kv",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--memory",
        "64MiB",
    ]));
    let connect = ["--connect", server.address()];
    let file = place("value");
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    // More octets than are read before some of them are stored.
    let pairs: Vec<_> = (0..20).map(|key| format!("{key}={}", file.display())).collect();
    let pairs: Vec<_> = pairs.iter().map(String::as_str).collect();
    let output = unheard(&[&["kv", "mput"], &connect[..], &pairs].concat());
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let keys = haulage(&[&["kv", "keys"], &connect[..]].concat()).output().unwrap();
    assert_eq!(text(&keys.stdout).lines().count(), 20);
    let output = unheard(&[&["kv", "mput", "a=/nonexistent", pairs[0]], &connect[..]].concat());
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said), (Some(1), "haulage: not stored: 1 of 2\n"));
    // Where standard output fails otherwise, all is stored, too, and the failure is told last.
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let arguments = [&["kv", "mput", "b=/dev/null", "c=/dev/null"], &connect[..]].concat();
    let output = haulage(&arguments).stdout(full).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("standard output"), "{said}");
    let stored = haulage(&[&["kv", "get", "c"], &connect[..]].concat()).output().unwrap();
    assert!(stored.status.success(), "{}", text(&stored.stderr));
}

#[test]
fn what_was_measured_is_drawn() {
    for json in [&[][..], &["--json"]] {
        let file = place("plot.svg");
        let _ = fs::remove_file(&file);
        let arguments = ["perf", "local", "null", "--seconds", "0.05", "--runs", "2", "--plot"];
        let drawn = [&arguments[..], &[file.to_str().unwrap()], json].concat();
        let output = unheard(&drawn);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(fs::read_to_string(&file).unwrap().contains("</svg>"));
    }
}

#[test]
fn a_server_serves() {
    for service in [&["kv"][..], &["perf"], &["store", "--export", "memory:4MiB"]] {
        let told = place("supervisor");
        let _ = fs::remove_file(&told);
        let supervisor = UnixDatagram::bind(&told).unwrap();
        supervisor.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut command = haulage(&[service[0], "serve", "--listen", "127.0.0.1:0"]);
        command.args(&service[1..]).env("NOTIFY_SOCKET", &told);
        if service[0] == "store" {
            command.args(["--mount-listen", "127.0.0.1:0", "--tcp-listen", "off"]);
        }
        let mut server = command.stdout(closed()).spawn().unwrap();
        let start = clock::now();
        let mut word = [0; 512];
        // The supervisor is told once the line is written, or would be.
        while !supervisor.recv(&mut word).is_ok_and(|length| word[..length].starts_with(b"READY=1"))
        {
            assert!(server.try_wait().unwrap().is_none(), "{service:?} has ended");
            assert!(clock::now().saturating_since(start).as_secs() < HANG_SECONDS);
        }
        assert!(process::terminate(&mut server).unwrap().success(), "{service:?}");
    }
}
