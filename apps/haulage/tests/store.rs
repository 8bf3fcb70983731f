//! The storage server and its client as processes of their own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use haulage::core::{Core, NoService};
use haulage::cores::{self, Placement};
use haulage::limits::LIMITS_DEFAULT;
use haulage::polling::Polling;
use haulage::pool::{PagePreference, Pool, PoolConfig};
use haulage::provider::Provider;
use haulage::provider::iwarp::{self, Iwarp};
use haulage::provider::shm::{self, Shm};
use haulage::remote::RemoteClient;
use haulage::rpcbind::{Program, Rpcbind};
use haulage::service::Request;
use haulage::sys::{clock, process};
use haulage_proto::chunk::PayloadReader;
use haulage_proto::rpc::record::Mark;
use haulage_proto::rpc::{AcceptStat, AuthSys, CallHeader, Credential, ReplyBody, ReplyHeader};
use haulage_proto::xdr::{Truncated, Writer};
use haulage_store::nfs3::arguments::{Create, How, MkDir};
use haulage_store::nfs3::binding::Limits;
use haulage_store::nfs3::{
    Arguments, Attributes, DirName, FileHandle, Name, Procedure, Results, SetAttributes,
};
use haulage_store::{mount3, nfs3};
use haulage_test_support::Started;

fn haulage(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

/// A server, killed with the test.
struct Server(Started);

impl Server {
    fn start(arguments: &[&str]) -> Self {
        Self::of("memory:64MiB", arguments)
    }

    fn of(export: &str, arguments: &[&str]) -> Self {
        let mut command = haulage(&["store", "serve", "--export", export, "--json"]);
        let command = command.args(["--listen", ":0", "--mount-listen", ":0"]);
        if !arguments.contains(&"--tcp-listen") {
            command.args(["--tcp-listen", "off"]);
        }
        Self(Started::new(command.args(arguments).stderr(Stdio::piped())))
    }

    /// Returns where it serves NFS over RDMA.
    fn nfs(&self) -> &str {
        self.0.named("listen")
    }

    /// Returns where it serves MOUNT.
    fn mount(&self) -> &str {
        self.0.named("mount_listen")
    }

    /// Waits until it has said `awaited`, ends it in order, and returns all that it said.
    fn end(&mut self, awaited: &str) -> String {
        let process = &mut self.0.process;
        let mut stderr = BufReader::new(process.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains(awaited) {
            assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "{said}");
        }
        assert!(process::terminate(process).unwrap().success());
        stderr.read_to_string(&mut said).unwrap();
        said
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = haulage(&["store"]);
        command.args(arguments).args(["--connect", self.nfs(), "--mount-connect", self.mount()]);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a client that succeeds, and returns what it printed.
    fn done(&self, arguments: &[&str]) -> Vec<u8> {
        let output = self.run(arguments);
        let said = text(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{arguments:?}: {said}");
        output.stdout
    }

    /// Runs a client that fails, and returns what it said.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert_eq!((said.lines().count(), output.stdout.len()), (1, 0), "{said}");
        said.trim_end().strip_prefix("haulage: ").unwrap().to_owned()
    }

    /// Stores what comes by standard input.
    fn put(&self, path: &str, octets: &[u8]) {
        let mut command = self.command(&["put", path]);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(octets).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
}

/// A directory of this test's own.
fn place(name: &str) -> PathBuf {
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&place);
    fs::create_dir(&place).unwrap();
    place
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 7 + at / 251) % 256).unwrap()).collect()
}

#[test]
fn what_is_no_mount_server_is_asked_whether_it_is_one() {
    // One server closes connections that it does not understand, one answers in another protocol, and one says nothing.
    let closes = Server::start(&[]).nfs().to_owned();
    for answer in [None, Some(&b"SSH-2.0-OpenSSH_9.2\r\n220 ready\r\n"[..])] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let other = std::thread::Builder::new().spawn(move || {
            let (mut caller, _) = listener.accept().unwrap();
            caller.read_exact(&mut [0; 40]).unwrap();
            if let Some(answer) = answer {
                caller.write_all(answer).unwrap();
                let _ = caller.read_to_end(&mut Vec::new());
            }
        });
        let said = of_no_mount_server(&["--mount-connect", &at, "--connect", &closes]);
        assert!(said.contains(&at) && !said.contains("fill whole buffer"), "{said}");
        other.unwrap().join().unwrap();
    }
    let server = Server::start(&[]);
    of_no_mount_server(&["--mount-connect", server.nfs(), "--connect", server.nfs()]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap().to_string();
    of_no_mount_server(&["--mount-connect", &at, "--timeout", "0.2"]);
}

/// Lists what cannot be mounted, and returns what is said about it.
fn of_no_mount_server(arguments: &[&str]) -> String {
    let output = haulage(&["store", "ls"]).args(arguments).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("is this a MOUNT server?"), "{said}");
    said.to_owned()
}

#[test]
fn the_port_of_nfs_says_what_to_mount() {
    let served = place("store-one-port");
    fs::create_dir_all(served.join("dir/inner")).unwrap();
    fs::write(served.join("dir/inner/file"), b"here").unwrap();
    for provider in ["iwarp", "shm"] {
        let server = Server::of(served.to_str().unwrap(), &["--provider", provider]);
        let run = |arguments: &[&str]| {
            let mut command = haulage(&["store"]);
            command.args(arguments).args(["--connect", server.nfs(), "--provider", provider]);
            command.output().unwrap()
        };
        for version in ["1", "2", "auto"] {
            for (export, file) in [("/", "/dir/inner/file"), ("/dir/inner", "/file")] {
                let get = ["get", file, "-", "--export", export, "--rpc-version", version];
                let output = run(&get);
                assert!(output.status.success(), "{get:?}: {}", text(&output.stderr));
                assert_eq!((text(&output.stdout), text(&output.stderr)), ("here", ""));
            }
        }
        let output = run(&["ls", "--export", "/dir/none"]);
        let said = text(&output.stderr);
        assert!(said.contains("there is no such export; it exports /; choose another"), "{said}");
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    }
}

#[test]
fn files_go_there_and_back() {
    let server = Server::start(&["--squash", "none"]);
    for length in [0, 1, 4095, 5001, 1 << 20, (3 << 20) + 1] {
        server.put("/piped", &pattern(length));
        assert!(server.done(&["get", "/piped"]) == pattern(length), "{length}");
    }
    let place = place("store-files");
    let (source, target) = (place.join("source"), place.join("target"));
    fs::write(&source, pattern(10 << 20)).unwrap();
    fs::set_permissions(&source, fs::Permissions::from_mode(0o772)).unwrap();
    let (source, target) = (source.to_str().unwrap(), target.to_str().unwrap());
    server.done(&["put", source, "/file"]);
    server.done(&["get", "/file", target]);
    assert!(fs::read(target).unwrap() == pattern(10 << 20));
    // A longer file is cut to the length of the new one.
    server.put("/file", b"short");
    server.done(&["get", "/file", target]);
    assert_eq!(fs::read(target).unwrap(), b"short");

    let listing = server.done(&["ls"]);
    let lines: Vec<_> = text(&listing).lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[1].starts_with("-rwxr-x---") && lines[1].ends_with("  file"), "{lines:?}");
    assert!(lines[2].starts_with("-rw-r--r--") && lines[2].ends_with("  piped"), "{lines:?}");
    let listing = server.done(&["ls", "/file", "--json"]);
    assert!(text(&listing).starts_with(r#"{"name":"/file","fileid":"#), "{}", text(&listing));
    let stat = server.done(&["stat", "/file"]);
    assert!(text(&stat).contains("size         5\n"), "{}", text(&stat));
    let stat = server.done(&["stat", "/", "--json"]);
    assert!(text(&stat).contains(r#""kind":"directory""#), "{}", text(&stat));
    let room = server.done(&["df", "--json"]);
    assert!(text(&room).contains(r#""total_files":"#), "{}", text(&room));
    assert!(text(&server.done(&["df", "/file"])).contains("used %"));

    // The file belongs to this user, and `-v` tells the version spoken.
    let uid = format!(r#""uid":{},"#, fs::metadata(&place).unwrap().uid());
    let output = server.run(&["stat", "/file", "--json", "-v"]);
    assert!(text(&output.stdout).contains(&uid), "{}", text(&output.stdout));
    let said = text(&output.stderr);
    assert!(said.contains("speaks version 2 of RPC-over-RDMA"), "{said}");
}

#[test]
fn a_directory_has_what_was_put_there() {
    let place = place("store-directory");
    let served = place.join("served");
    let state = place.join("state");
    fs::create_dir(&served).unwrap();
    let options = ["--squash", "none", "--state", state.to_str().unwrap()];
    let server = Server::of(served.to_str().unwrap(), &options);
    // The file is longer than the data that may await a COMMIT.
    server.put("/file", &pattern(40 << 20));
    assert!(fs::read(served.join("file")).unwrap() == pattern(40 << 20));
    fs::create_dir(served.join("dir")).unwrap();
    fs::write(served.join("dir/other"), pattern(5001)).unwrap();
    std::os::unix::fs::symlink("dir", served.join("link")).unwrap();
    assert!(server.done(&["get", "/link/other"]) == pattern(5001));
    let listing = server.done(&["ls"]);
    assert!(text(&listing).ends_with("  link -> dir\n"), "{}", text(&listing));
}

#[test]
fn what_goes_wrong_is_said_in_one_line() {
    let mut server = Server::start(&["--read-only"]);
    let place = place("store-wrong");
    let target = place.join("target");
    let target = target.to_str().unwrap();
    assert_eq!(server.refused(&["get", "/x", target]), "no such file: /x");
    assert!(!fs::exists(target).unwrap(), "what is not there does not come to be here");
    assert_eq!(server.refused(&["ls", "/x/y"]), "no such file: /x");
    assert_eq!(server.refused(&["get", "/"]), "is a directory: /");
    assert_eq!(server.refused(&["put", "/x"]), "read-only file system: /x");
    let said = server.refused(&["put", target, "/x"]);
    assert!(said.starts_with(&format!("cannot read {target}: ")), "{said}");
    let said = server.refused(&["ls", "--export", "/elsewhere"]);
    assert!(said.contains("no such export; it exports /; choose another"), "{said}");

    server.0.kill();
    let said = server.refused(&["ls"]);
    assert!(said.contains("no MOUNT server listens") && said.contains("--mount-connect"), "{said}");
}

#[test]
fn what_is_fetched_has_its_name_once_it_is_whole() {
    let server = Server::start(&[]);
    server.put("/file", &pattern(4 << 20));
    let place = place("store-whole");
    let copy = place.join("copy");
    let get = ["get", "/file", copy.to_str().unwrap()];
    // Files may have 1 MiB. What goes beyond it is an error, whatever the shell does about the signal.
    let limited = |trap: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{trap} ulimit -f 2048; exec \"$0\" \"$@\"")]);
        let client = server.command(&get);
        shell.arg(client.get_program()).args(client.get_args()).output().unwrap()
    };
    for before in [None, Some(b"older")] {
        before.iter().for_each(|octets| fs::write(&copy, octets).unwrap());
        for trap in ["trap '' XFSZ;", ""] {
            let failed = limited(trap);
            let said = text(&failed.stderr);
            let says = said.starts_with("haulage: cannot write to ") && said.contains("large");
            assert!(says, "{said}");
            let names = fs::read_dir(&place).unwrap().count();
            assert_eq!(names, usize::from(before.is_some()), "nothing of it is left");
            assert_eq!(fs::read(&copy).ok().as_deref(), before.map(|octets| &octets[..]));
        }
    }
    server.done(&get);
    assert!(fs::read(&copy).unwrap() == pattern(4 << 20));
}

#[test]
fn a_source_that_cannot_be_read_changes_nothing() {
    let server = Server::start(&[]);
    let place = place("store-sources");
    server.put("/kept", b"kept");
    let before = server.done(&["stat", "/kept"]);
    // A directory cannot be read, nor can the first page of a process.
    for source in [place.to_str().unwrap(), "/proc/self/mem"] {
        for path in ["/kept", "/new"] {
            let said = server.refused(&["put", source, path]);
            assert!(said.starts_with(&format!("cannot read {source}: ")), "{said}");
        }
    }
    assert_eq!(text(&server.done(&["stat", "/kept"])), text(&before));
    assert_eq!(server.done(&["get", "/kept"]), b"kept");
    let listing = server.done(&["ls"]);
    assert_eq!(text(&listing).lines().filter(|line| line.contains("new")).count(), 0);
    assert!(!text(&listing).contains(".part"), "{}", text(&listing));
}

#[test]
fn root_is_told_that_it_is_served_as_another_user() {
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let served = place("store-squashed");
    let closed = served.join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    let server = Server::of(served.to_str().unwrap(), &["--allow", "127.0.0.1/32"]);
    let why = "; root is served as another user, as --squash of the server has it";
    let why = if is_root { why } else { "" };
    for (command, path) in [("ls", "/closed"), ("stat", "/closed/file"), ("put", "/closed/file")] {
        assert_eq!(server.refused(&[command, path]), format!("permission denied: {path}{why}"));
    }
    let server = Server::of(served.to_str().unwrap(), &["--squash", "none"]);
    if is_root {
        server.put("/closed/file", b"");
        assert!(text(&server.done(&["ls", "/closed"])).contains("file"));
    }
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn memory_that_is_full_has_no_space_left_until_a_file_goes() {
    let server = Server::of("memory:4MiB", &["--tcp-listen", ":0", "--squash", "all"]);
    server.put("/kept", &[1; 100_000]);
    let large = place("memory_that_is_full").join("large");
    fs::write(&large, vec![2; 8 << 20]).unwrap();
    let said = server.refused(&["put", large.to_str().unwrap(), "/large"]);
    assert_eq!(said, "no space left: /large");
    assert_eq!(server.done(&["get", "/kept", "-"]), [1; 100_000]);
    // What was stored of the large file has gone, under whatever name it was.
    assert_eq!(server.refused(&["get", "/large"]), "no such file: /large");
    server.put("/again", &pattern(2 << 20));
    assert!(server.done(&["get", "/again", "-"]) == pattern(2 << 20));
}

#[test]
fn what_a_file_loses_is_room_for_others() {
    let server = Server::of("memory:4MiB", &["--tcp-listen", ":0", "--squash", "all"]);
    for name in ["first", "second", "third"] {
        server.put(&format!("/{name}"), &vec![1; 3 << 20]);
        assert_eq!(made_over_tcp(&server, name, truncated(1)).size, 1);
    }
    assert_eq!(server.done(&["get", "/first", "-"]), [1]);
}

#[test]
fn output_that_cannot_be_written_is_not_blamed_on_the_server() {
    let server = Server::start(&[]);
    server.put("/file", &pattern(4 << 20));
    let place = place("store-output");
    let said = server.refused(&["get", "/file", place.to_str().unwrap()]);
    assert!(said.starts_with("cannot create "), "{said}");
    let full = server.refused(&["get", "/file", "/dev/full"]);
    assert!(full.starts_with("cannot write to /dev/full: "), "{full}");
    // The reader of the output closes it early, which is no failure.
    let mut command = server.command(&["get", "/file"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), vec![]));
    assert_eq!(first, pattern(10)[..]);
}

#[test]
fn a_server_that_is_killed_under_a_client_ends_it() {
    let mut server = Server::start(&[]);
    let mut command = server.command(&["put", "/file"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    // A pipe holds less than this, so the client is at work once it has all been written. The rest behind whole pieces
    // is written only at the end of the input, so the PUT is not over yet.
    input.write_all(&pattern((12 << 20) + 5)).unwrap();
    server.0.kill();
    drop(input);
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("lost") && said.contains(server.nfs()), "{said}");
}

#[test]
fn one_file_or_two_are_named() {
    for arguments in [&["store", "put"][..], &["store", "put", "a", "b", "c"], &["store", "get"]] {
        let output = haulage(arguments).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    }
}

/// Makes one Call over TCP, claiming to be user and group 1000. Returns its results.
fn called(
    at: &str,
    (program, version, procedure): (u32, u32, u32),
    encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
) -> Vec<u8> {
    let credential = Credential::Sys(AuthSys::new(0, b"tests", 1000, 1000));
    let header = CallHeader { credential, ..CallHeader::new(1, program, version, procedure) };
    let mut room = [0; 1024];
    let mut w = Writer::new(&mut room);
    header.encode(&mut w).and_then(|()| encode(&mut w)).unwrap();
    let length = u32::try_from(w.written().len()).unwrap();
    let mark = Mark::last(length).unwrap().encode();
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(&[&mark, w.written()].concat()).unwrap();
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let mut reply = vec![0; Mark::decode(mark).length() as usize];
    stream.read_exact(&mut reply).unwrap();
    let (header, at) = ReplyHeader::decode(&reply).unwrap();
    assert_eq!(header.body, ReplyBody::Accepted(AcceptStat::Success));
    reply.split_off(at)
}

/// Returns the handle of the directory at the top, for that user.
fn top(server: &Server) -> Vec<u8> {
    let mnt = (mount3::PROGRAM, mount3::VERSION, mount3::Procedure::Mnt.number());
    let mounted = called(server.mount(), mnt, |w| w.opaque(b"/"));
    let mut reader = PayloadReader::call(&mounted, 0, None);
    let mounted = mount3::Results::decode(mount3::Procedure::Mnt, &mut reader).unwrap();
    let mount3::Results::Mnt(Ok(mounted)) = mounted else { panic!("{mounted:?}") };
    mounted.root.bytes().to_vec()
}

/// Makes a file over TCP, by that claim. Returns its attributes.
fn made_over_tcp(server: &Server, name: &str, how: How) -> Attributes {
    let top = top(server);
    let dir = FileHandle::new(&top).unwrap();
    let at = DirName { dir, name: Name(name.as_bytes()) };
    let create = (nfs3::PROGRAM, nfs3::VERSION, Procedure::Create.number());
    let made = called(server.0.named("tcp_listen"), create, |w| {
        Arguments::Create(Create { at, how }).encode(w)
    });
    let mut reader = PayloadReader::call(&made, 0, None);
    let made = Results::decode(Procedure::Create, &mut reader).unwrap();
    let Results::Create(Ok(made)) = made else { panic!("{made:?}") };
    made.attributes.unwrap()
}

/// Makes a file over TCP, by that claim. Returns whose it is.
fn owner_of_made_over_tcp(server: &Server, name: &str) -> u32 {
    made_over_tcp(server, name, How::Guarded(SetAttributes::default())).uid
}

/// Returns how a file is made that has this size afterwards, if it was there before, too.
fn truncated(size: u64) -> How {
    How::Unchecked(SetAttributes { size: Some(size), ..SetAttributes::default() })
}

/// Makes a directory at the top as a program does that numbers its Calls alike whenever it is run, and ends in order.
fn make_dir<P: Provider + 'static>(server: &Server, top: &[u8], provider: fn(&Pool) -> P) {
    let to = server.nfs().parse().unwrap();
    let placement = Placement { name: "numbers".into(), cpu: None, polling: Polling::ADAPTIVE };
    let mut core = cores::start(placement, move || -> Result<_, Box<dyn Error + Send + Sync>> {
        let (bytes, pages) = (LIMITS_DEFAULT.transport_bytes() + (8 << 20), PagePreference::Shared);
        let pool = Pool::new(&PoolConfig { bytes, pages, node: None })?;
        let (provider, seed) = (provider(&pool), 1);
        let mut core = Core::new(provider, NoService, pool, LIMITS_DEFAULT, seed)?;
        let limits = Limits { read_max: 4096, write_max: 4096, readdir_max: 4096 };
        let connection = core.connect(clock::now(), to, nfs3::binding::binding(&limits))?;
        let client = RemoteClient::of(&core, connection).unwrap();
        Ok((core, client))
    })
    .unwrap();
    let at = DirName { dir: FileHandle::new(top).unwrap(), name: Name(b"dir") };
    let arguments = Arguments::MkDir(MkDir { at, attributes: SetAttributes::default() });
    let procedure = Procedure::MkDir.number();
    let request = Request::new(procedure);
    let made = core.started.call(request, |w| arguments.encode(w)).unwrap();
    assert!(matches!(
        Results::decode(Procedure::MkDir, &mut made.results()),
        Ok(Results::MkDir(Ok(_)))
    ));
    core.stop().unwrap();
}

#[test]
fn a_program_that_numbers_its_calls_from_one_can_be_run_again_over_rdma() {
    fn runs<P: Provider + 'static>(name: &str, provider: fn(&Pool) -> P) {
        let served = place(&format!("store-again-{name}"));
        fs::set_permissions(&served, fs::Permissions::from_mode(0o777)).unwrap();
        let server = Server::of(served.to_str().unwrap(), &["--provider", name]);
        let top = top(&server);
        // Often, as a new connection may be served before the end of the last one is seen.
        for _ in 0..20 {
            make_dir(&server, &top, provider);
            // If the server takes the MKDIR for a repetition of the last one, it makes no directory, and the removal fails.
            fs::remove_dir(served.join("dir")).unwrap();
        }
    }
    runs("iwarp", |_| Iwarp::new(&iwarp::Config::default()).unwrap());
    runs("shm", |pool| Shm::new(&shm::Config::default(), pool).unwrap());
}

#[test]
fn a_claim_that_anybody_could_make_is_not_believed_by_a_server_of_root() {
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let options = ["--squash", "none", "--tcp-listen", ":0", "--metrics", ":0"];
    let mut server = Server::start(&options);
    // The two connections come from ports above 1023.
    let owners = [owner_of_made_over_tcp(&server, "a"), owner_of_made_over_tcp(&server, "b")];
    assert_eq!(owners, if is_root { [65_534; 2] } else { [1000; 2] });
    let page = asked(&server, "GET /metrics HTTP/1.1\r\n\r\n");
    let counted = if is_root { 4 } else { 0 };
    let counter = "haulage_store_claims_disbelieved_total{transport=\"tcp\"}";
    assert!(page.contains(&format!("{counter} {counted}\n")), "MOUNT and CREATE, twice: {page}");
    assert!(page.contains("haulage_store_mounts_refused_total 0\n"), "{page}");
    let notice = "127.0.0.1 claims users";
    let said = server.end(if is_root { notice } else { "" });
    let told = said.lines().filter(|line| line.contains(notice)).count();
    assert_eq!(told, usize::from(is_root), "{said}");
    assert_eq!(said.contains("root of this machine can claim"), is_root, "{said}");
    let manager = Program { program: 100_021, version: 4 };
    let manager = Rpcbind::of(Ipv4Addr::LOCALHOST.into()).get_addr(manager);
    let hangs = !matches!(manager, Ok(Some(_)));
    assert_eq!(said.contains("hang at their first lock"), hangs, "{said}");

    let mut server = Server::start(&[&options[..], &["--insecure"]].concat());
    assert_eq!(owner_of_made_over_tcp(&server, "a"), 1000);
    assert_eq!(server.end("").contains("--insecure"), is_root);
}

#[test]
fn a_local_user_is_itself_over_rdma() {
    let server = Server::start(&["--squash", "none"]);
    server.put("/ours", b"ours");
    let whose = |path: &str| {
        let told = server.done(&["stat", path, "--json"]);
        let told: serde_json::Value = serde_json::from_slice(&told).unwrap();
        [told["uid"].as_u64().unwrap(), told["gid"].as_u64().unwrap()]
    };
    let this = fs::metadata("/proc/self").unwrap();
    assert_eq!(whose("/ours"), [u64::from(this.uid()), u64::from(this.gid())]);
    if this.uid() != 0 {
        return;
    }
    // A user without an account is in no group that the server could look up.
    let mut command = server.command(&["put", "/theirs"]);
    match command.uid(54_321).gid(54_321).stdin(Stdio::piped()).spawn() {
        Ok(mut child) => {
            child.stdin.take().unwrap().write_all(b"theirs").unwrap();
            assert!(child.wait().unwrap().success());
            assert_eq!(whose("/theirs"), [54_321, 65_534]);
        }
        // Other users have no access to the directory of the build.
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied),
    }
}

/// Asks a server for something by HTTP. Returns all it answers.
fn asked(server: &Server, request: &str) -> String {
    let mut stream = TcpStream::connect(server.0.named("metrics")).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn who_watches_the_server_sees_what_it_does() {
    let server = Server::start(&["--metrics", ":0"]);
    server.put("/file", &[7; 100_000]);
    assert_eq!(server.done(&["get", "/file", "-"]), [7; 100_000]);
    let page = asked(&server, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    let (head, page) = page.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", page.len())), "{head}");
    let value = |name: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} is not in\n{page}")).parse::<u64>().unwrap()
    };
    for (name, least) in [
        ("haulage_calls_total{procedure=\"READ\"}", 1),
        ("haulage_calls_total{procedure=\"WRITE\"}", 1),
        ("haulage_call_seconds_count{procedure=\"WRITE\"}", 1),
        ("haulage_call_seconds_bucket{procedure=\"WRITE\",le=\"+Inf\"}", 1),
        ("haulage_chunks_total{kind=\"read\"}", 1),
        ("haulage_chunks_total{kind=\"write\"}", 1),
        ("haulage_tagged_bytes_total{direction=\"received\"}", 100_000),
        ("haulage_tagged_bytes_total{direction=\"sent\"}", 100_000),
        ("haulage_invalidations_total{by=\"peer\"}", 0),
        ("haulage_provider_info{provider=\"iwarp\",registration=\"FastReg\"}", 1),
        ("haulage_calls_repeated_total", 0),
        ("haulage_callbacks_total{by=\"us\"}", 0),
        ("haulage_callbacks_total{by=\"peer\"}", 0),
        ("haulage_connections_opened_total", 2),
    ] {
        assert!(value(name) >= least, "{name} is {}", value(name));
    }
    assert_eq!(value("haulage_errors_total{kind=\"message_bad\"}"), 0);
    // The page tells the type of each figure once.
    let told = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let mut told: Vec<_> = told.collect();
    told.sort_unstable();
    assert!(told.windows(2).all(|pair| pair[0] != pair[1]), "{told:?}");
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "),
        ("POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "),
    ] {
        assert!(asked(&server, request).starts_with(status), "{request}");
    }
    let endless = "x".repeat(100_000);
    let mut stream = TcpStream::connect(server.0.named("metrics")).unwrap();
    // The server hangs up, perhaps before it has taken all octets.
    let _ = stream.write_all(endless.as_bytes());
    assert!(asked(&server, "GET /metrics HTTP/1.1\r\n\r\n").contains("haulage_connections "));
}
