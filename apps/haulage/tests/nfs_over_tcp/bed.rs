//! Servers for tests: what they export, as which user they run, and the process.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use haulage_test_support::Started;
use nfs3_client::nfs3_types::nfs3::nfs_fh3;
use rustix::process::Pid;

use crate::client::Client;

/// What a server exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Export {
    Memory,
    Directory,
}

/// As whom a server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// The user who runs the tests.
    Tester,
    /// A user without privilege. Only root can run tests as another user.
    Nobody,
}

/// One kind of server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) export: Export,
    pub(crate) user: User,
}

/// Namespaces of a server's own, in which other file systems are mounted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Namespaces {
    /// The options of `unshare` that make them.
    pub(crate) flags: &'static str,
    /// The commands of a shell that mount, in the exported directory.
    pub(crate) mounts: &'static str,
}

/// A server, killed with the test.
#[derive(Debug)]
pub(crate) struct Server {
    kind: Kind,
    /// The namespaces in which the server runs from its next start on, if not in those of the test.
    pub(crate) namespaces: Option<Namespaces>,
    started: Started,
    place: TempDir,
    pub(crate) nfs: SocketAddr,
    pub(crate) mount: SocketAddr,
    /// The user whose all files are, if the server may not act as others.
    pub(crate) owner: Option<u32>,
}

/// A directory of one server's own, removed with it.
#[derive(Debug)]
struct TempDir(PathBuf);

/// A server that believes all claims, and a client that claims to be root.
pub(crate) struct Bed {
    pub(crate) server: Server,
    pub(crate) client: Client,
    pub(crate) root: nfs_fh3,
}

/// Runs a test on every kind of server whose files are kept in another way.
pub(crate) fn each(test: impl Fn(&mut Bed)) {
    let in_memory_again = |kind: &Kind| kind.export == Export::Memory && kind.user == User::Nobody;
    for kind in Kind::all().into_iter().filter(|kind| !in_memory_again(kind)) {
        // The harness shows it if the test fails.
        eprintln!("{kind:?}");
        test(&mut Bed::new(kind, &[]));
    }
}

impl Kind {
    /// Returns the kinds that can be started here.
    pub(crate) fn all() -> Vec<Self> {
        let mut users = vec![User::Tester];
        if is_root() {
            users.push(User::Nobody);
        }
        let exports = [Export::Memory, Export::Directory];
        let both = |user: &User| exports.map(|export| Self { export, user: *user });
        users.iter().flat_map(both).collect()
    }

    /// Returns whether the server may act as other users.
    pub(crate) fn is_privileged(self) -> bool {
        self.user == User::Tester && is_root()
    }
}

/// Returns whether root runs the tests.
fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

impl Bed {
    pub(crate) fn new(kind: Kind, options: &[&str]) -> Self {
        let options = [TRUSTING, options].concat();
        let server = Server::start(kind, &options);
        let mut client = Client::new(&server, ROOT);
        let root = client.mount("/").unwrap();
        Self { server, client, root }
    }

    /// Returns a client that claims to be another user.
    pub(crate) fn stranger(&self) -> Client {
        Client::new(&self.server, STRANGER)
    }

    /// Returns whether callers are the users that they claim to be.
    pub(crate) fn tells_users_apart(&self) -> bool {
        self.server.owner.is_none()
    }
}

impl Server {
    pub(crate) fn start(kind: Kind, options: &[&str]) -> Self {
        let place = TempDir::new(kind.user);
        let mut server = Self {
            kind,
            namespaces: None,
            started: spawn(kind, &place, None, options),
            place,
            nfs: SocketAddr::from(([0; 4], 0)),
            mount: SocketAddr::from(([0; 4], 0)),
            owner: None,
        };
        server.learn();
        server
    }

    /// Kills it and starts it again on the same directories.
    pub(crate) fn restart(&mut self, options: &[&str]) {
        self.started.kill();
        self.started = spawn(self.kind, &self.place, self.namespaces, options);
        self.learn();
    }

    /// Returns a path in the exported directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.0.join("served").join(name)
    }

    /// Returns its process.
    pub(crate) fn process(&self) -> Pid {
        Pid::from_child(&self.started.process)
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Takes what it says when it is ready.
    fn learn(&mut self) {
        let ready: serde_json::Value = serde_json::from_str(&self.started.ready).unwrap();
        let address = |name: &str| ready[name].as_str().unwrap().parse().unwrap();
        (self.nfs, self.mount) = (address("tcp_listen"), address("mount_listen"));
        self.owner = ready["owner"].as_u64().map(|uid| uid.try_into().unwrap());
    }
}

impl TempDir {
    fn new(user: User) -> Self {
        // Other users may have no access to the directory of the build.
        let name = format!("haulage-nfs-{}-{}", std::process::id(), next());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        for (below, mode) in [("", 0o755), ("served", 0o1777), ("state", 0o700)] {
            let path = path.join(below);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            if user == User::Nobody {
                chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        Self(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn next() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    COUNT.fetch_add(1, Ordering::Relaxed)
}

fn spawn(kind: Kind, place: &TempDir, namespaces: Option<Namespaces>, options: &[&str]) -> Started {
    // The program is run by its descriptor, because other users may have no access to the directory of the build.
    let program = File::open(env!("CARGO_BIN_EXE_haulage")).unwrap();
    let mut command = match namespaces {
        None => Command::new(format!("/proc/self/fd/{}", program.as_raw_fd())),
        Some(namespaces) => {
            namespaces.command(&place.0.join("served"), env!("CARGO_BIN_EXE_haulage"))
        }
    };
    if kind.user == User::Nobody {
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
    }
    command.args(["store", "serve", "--json", "--listen", ":0"]);
    command.args(["--mount-listen", ":0", "--tcp-listen", ":0"]);
    match kind.export {
        Export::Memory => command.args(["--export", "memory:16MiB"]),
        Export::Directory => {
            let [served, state] = ["served", "state"].map(|below| place.0.join(below));
            command.arg("--export").arg(served).arg("--state").arg(state)
        }
    };
    Started::new(command.args(options).stdin(Stdio::null()).stderr(Stdio::null()))
}

impl Namespaces {
    /// Returns whether this machine lets its users make them, and mount what is to be mounted.
    pub(crate) fn can_be_made(self, dir: &Path) -> bool {
        let tried = self.command(dir, "true").stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    }

    /// Returns the command that runs a program in them, after the mounts in a directory.
    fn command(self, dir: &Path, program: &str) -> Command {
        let script = format!("cd \"$SERVED\" && {} && exec \"$@\"", self.mounts);
        let mut command = Command::new("unshare");
        command.args([self.flags, "sh", "-ec", &script, "sh", program]).env("SERVED", dir);
        command
    }
}

/// The options of a server that believes all claims.
pub(crate) const TRUSTING: &[&str] = &["--squash", "none", "--insecure"];

/// A user and a group that a client claims to be.
pub(crate) const ROOT: (u32, u32) = (0, 0);
pub(crate) const STRANGER: (u32, u32) = (1000, 1000);

/// The user, and the group, without privilege.
pub(crate) const NOBODY: u32 = 65_534;
