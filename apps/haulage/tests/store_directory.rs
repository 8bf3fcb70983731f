//! A directory served by a process of its own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use haulage::sys::process;
use haulage_test_support::Started;
use rustix::fs::{CWD, FileType, Mode, mknodat};

fn haulage(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Directories of one test.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        // A server keeps no state where others may write, as they may above a checkout.
        let path = std::env::temp_dir().join(format!("haulage-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("served")).unwrap();
        Self(path)
    }

    fn at(&self, below: &str) -> String {
        self.0.join(below).to_str().unwrap().to_owned()
    }

    /// Serves it with more options, which make a server that does not come to serve.
    fn refused(&self, export: &str, state: &str) -> (Option<i32>, String) {
        let (export, state) = (self.at(export), self.at(state));
        let ports = ["--listen", ":0", "--mount-listen", ":0", "--tcp-listen", "off"];
        let mut command = haulage(&["store", "serve", "--export", &export, "--state", &state]);
        let output = command.args(ports).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server, killed with the test.
struct Server(Started);

impl Server {
    fn start(place: &TempDir, options: &[&str]) -> Self {
        let (export, state) = (place.at("served"), place.at("state"));
        let ports = ["--listen", ":0", "--mount-listen", ":0", "--tcp-listen", "off"];
        let mut command = haulage(&["store", "serve", "--export", &export, "--state", &state]);
        let command = command.args(ports).args(["--squash", "none"]).args(options);
        Self(Started::new(command.stderr(Stdio::null())))
    }

    fn run(&self, arguments: &[&str], octets: &[u8]) -> Output {
        let (nfs, mount) = (self.0.named("listen"), self.0.named("mount_listen"));
        let mut command = haulage(&["store"]);
        let command = command.args(arguments).args(["--connect", nfs, "--mount-connect", mount]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut client = command.spawn().unwrap();
        client.stdin.take().unwrap().write_all(octets).unwrap();
        client.wait_with_output().unwrap()
    }
}

#[test]
fn what_is_stored_is_in_the_directory_and_comes_back() {
    let place = TempDir::new("store-directory");
    let octets: Vec<u8> = (0..3_000_001_u32).map(|at| (at / 7).to_le_bytes()[0]).collect();
    for options in [&["--json"][..], &["--json", "--direct"]] {
        let server = Server::start(&place, options);
        let put = server.run(&["put", "/file"], &octets);
        assert!(put.status.success(), "{}", String::from_utf8_lossy(&put.stderr));
        assert!(fs::read(place.at("served/file")).unwrap() == octets);
        drop(server);
        // The server was killed; the next one serves the file that it left.
        let server = Server::start(&place, options);
        assert!(server.run(&["get", "/file"], b"").stdout == octets);
        fs::remove_file(place.at("served/file")).unwrap();
        assert_eq!(server.run(&["get", "/file"], b"").status.code(), Some(1));
    }
}

#[test]
fn the_ready_line_says_whose_the_files_are() {
    let place = TempDir::new("store-owner");
    let server = Server::start(&place, &["--json"]);
    let uid = haulage_store::directory::sole_owner().unwrap().map(|owner| owner.uid);
    let told = uid.map_or_else(|| "null".to_owned(), |uid| uid.to_string());
    assert!(server.0.ready.contains(&format!("\"owner\":{told}")), "{}", server.0.ready);
    drop(server);
    let server = Server::start(&place, &[]);
    let (command, comment) = server.0.ready.split_once(":/ /mnt").unwrap();
    assert!(command.starts_with("ready: mount -t nfs -o proto=rdma,"));
    let said = uid.map_or_else(String::new, |uid| format!("those of user {uid}, who serves them"));
    assert!(comment.trim_end().ends_with(&said) && comment.contains(" # ") == uid.is_some());
}

#[test]
fn what_cannot_be_served_is_said() {
    let place = TempDir::new("store-refused");
    let (code, said) = place.refused("nothing", "state");
    assert!(code == Some(1) && said.contains("cannot serve"), "{said}");
    fs::write(place.at("file"), b"").unwrap();
    let (code, said) = place.refused("file", "state");
    assert!(code == Some(1) && said.contains("not a directory"), "{said}");
    let (code, said) = place.refused("served", "served/own/state");
    assert!(code == Some(2) && said.contains("--state is inside what --export serves"), "{said}");
    assert_eq!(fs::read_dir(place.at("served")).unwrap().count(), 0);
    let _server = Server::start(&place, &["--json"]);
    let (code, said) = place.refused("served", "state");
    assert!(code == Some(1) && said.contains("another server uses it"), "{said}");
    let memory = ["store", "serve", "--export", "memory:64MiB", "--state", "anywhere"];
    assert_eq!(haulage(&memory).output().unwrap().status.code(), Some(2));
}

#[test]
fn state_that_others_may_have_put_there_is_refused_in_words() {
    let place = TempDir::new("store-planted");
    let state = PathBuf::from(place.at("state"));
    fs::create_dir(&state).unwrap();
    let refused = |says: &str| {
        let (code, said) = place.refused("served", "state");
        // Notes come first.
        let last = said.lines().last().unwrap();
        assert!(code == Some(1) && last.contains(says), "{said}");
    };
    let chmod = |mode| fs::set_permissions(&state, Permissions::from_mode(mode)).unwrap();
    for mode in [0o777, 0o755] {
        chmod(mode);
        refused(&format!("`chmod 700 {}` takes them away", state.display()));
    }
    chmod(0o700);
    for name in ["key", "names", "lock"] {
        let path = state.join(name);
        // A server that got far enough in an earlier round made this file.
        let _ = fs::remove_file(&path);
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        refused(&format!("{} is no regular file", path.display()));
        fs::remove_file(&path).unwrap();
        symlink(place.at("target"), &path).unwrap();
        refused(&format!("{} is no regular file", path.display()));
        fs::remove_file(&path).unwrap();
    }
    fs::write(place.at("target"), b"octets").unwrap();
    for name in ["key", "key.new", "names", "names.new", "lock"] {
        let path = state.join(name);
        // Without a key, one is made.
        let _ = fs::remove_file(state.join("key"));
        let _ = fs::remove_file(&path);
        fs::create_dir(&path).unwrap();
        refused(&format!("{} is no regular file; remove it, or", path.display()));
        fs::remove_dir(&path).unwrap();
    }
    for name in ["key.new", "names.new"] {
        symlink(place.at("target"), state.join(name)).unwrap();
    }
    drop(Server::start(&place, &["--json"]));
    assert_eq!(fs::read(place.at("target")).unwrap(), b"octets");
    let names = fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["key", "lock", "names"]);
    // The link leads to a good state directory, so the link itself is the reason for the refusal.
    symlink(&state, place.at("link")).unwrap();
    let (code, said) = place.refused("served", "link");
    assert!(code == Some(1) && said.contains("name the directory itself"), "{said}");
}

#[test]
fn a_server_with_some_of_the_privileges_over_files_is_refused() {
    if haulage_store::directory::sole_owner().unwrap().is_some() {
        return eprintln!("skipped: only the superuser has some of his privileges");
    }
    let place = TempDir::new("store-some-privileges");
    for lacking in ["-chown", "-fowner", "-setuid", "-setgid"] {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", lacking, env!("CARGO_BIN_EXE_haulage"), "store", "serve"]);
        command.args(["--export", &place.at("served"), "--listen", ":0", "--tcp-listen", "off"]);
        let output = command.args(["--mount-listen", ":0"]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.code() == Some(1) && said.contains("CAP_SETUID"),
            "{lacking}: {said}"
        );
    }
}

#[test]
fn a_place_of_which_clients_will_miss_something_is_told_at_start() {
    let place = TempDir::new("store-surroundings");
    let serve = |export: &str, prepare: &str| {
        let script = format!("{prepare} && exec \"$@\"");
        let mut command = Command::new("unshare");
        command.args(["-Urm", "sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_haulage")]);
        command.args(["store", "serve", "--json", "--insecure", "--export", export]);
        command.args(["--listen", ":0", "--mount-listen", ":0", "--tcp-listen", "off"]);
        command.env("PLACE", place.at("")).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut server = Started::new(&mut command);
        assert!(process::terminate(&mut server.process).unwrap().success());
        let mut said = String::new();
        server.process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    };
    let overlay = "cd \"$PLACE\" && mkdir -p low up work over served/a/inner && \
        mount -t overlay -o lowerdir=low,upperdir=up,workdir=work overlay over && \
        mount -t tmpfs none served/a/inner";
    let tried = Command::new("unshare")
        .args(["-Urm", "sh", "-c", overlay])
        .env("PLACE", place.at(""))
        .stderr(Stdio::null())
        .status();
    if !tried.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: this machine lets its users mount nothing");
    }
    let said = serve(&place.at("over"), overlay);
    assert!(said.contains("is on an overlay file system"), "{said}");
    let said = serve(&place.at("served"), overlay);
    assert!(said.contains("served/a/inner is mounted inside the export"), "{said}");
    let said = serve(&place.at("served"), "true");
    assert!(!said.contains("overlay file system") && !said.contains("is mounted inside"), "{said}");
}

#[test]
fn root_of_a_namespace_of_one_user_serves_as_that_user_only_if_told_to() {
    let place = TempDir::new("store-namespace");
    let serve = |options: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["-Ur", env!("CARGO_BIN_EXE_haulage"), "store", "serve", "--json"]);
        command.args(["--export", &place.at("served"), "--listen", ":0", "--mount-listen", ":0"]);
        command.args(["--tcp-listen", "off"]).args(options).stdin(Stdio::null());
        command.stderr(Stdio::piped());
        command
    };
    if !Command::new("unshare").args(["-Ur", "true"]).status().is_ok_and(|status| status.success())
    {
        return eprintln!("skipped: this machine gives its users no user namespaces");
    }
    let refused = serve(&[]).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("this user namespace has no user but root"), "{said}");
    let server = Server(Started::new(&mut serve(&["--insecure"])));
    let put = server.run(&["put", "/file"], b"octets");
    assert!(put.status.success(), "{}", String::from_utf8_lossy(&put.stderr));
    assert_eq!(server.run(&["get", "/file"], b"").stdout, b"octets");
}
