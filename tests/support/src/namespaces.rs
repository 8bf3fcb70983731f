//! Namespaces in which a test has a real rpcbind, and a network, of its own.

use std::env;
use std::io::{self, Write as _};
use std::process::Command;

/// Where a test is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// In namespaces of its own. All processes in them end with the test, rpcbind too.
    Inside,
    /// Outside: it has run inside, or was skipped, which one line on standard error says.
    Outside,
}

/// Runs the test `name` of this executable again, in new namespaces, where this returns [`Whereabouts::Inside`].
///
/// # Panics
/// If the test fails inside.
pub fn enter(name: &str) -> Whereabouts {
    if env::var_os(INSIDE).is_some() {
        return Whereabouts::Inside;
    }
    let Some(namespaces) = namespaces() else {
        // The test harness hides the output of passing tests, but not what goes straight to standard error.
        let line = "skipped: rpcbind: this user may not make network namespaces with unshare";
        writeln!(io::stderr(), "{line}").expect("standard error is open");
        return Whereabouts::Outside;
    };
    let status = Command::new("unshare")
        .args(namespaces)
        .args(["sh", "-ec", PREPARE])
        .arg(env::current_exe().expect("the test is a file"))
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .status();
    match status.expect("there is unshare").code() {
        // The script has printed the reason.
        Some(0 | SKIPPED) => Whereabouts::Outside,
        other => panic!("inside the namespaces: {other:?}"),
    }
}

/// Returns the arguments that make unshare create namespaces, if this user may.
fn namespaces() -> Option<&'static [&'static str]> {
    const OURS: &[&str] = &["--net", "--mount", "--pid", "--fork", "--kill-child"];
    const USER: &[&str] =
        &["--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child"];
    let works = |arguments: &&&[&str]| {
        let tried = Command::new("unshare").args(**arguments).arg("true").output();
        tried.is_ok_and(|output| output.status.success())
    };
    [OURS, USER].iter().find(works).copied()
}

/// A script that prepares the namespaces for rpcbind, and runs the command behind it. rpcbind needs a writable `/run`,
/// and gives up groups, which a user namespace made without privileges does not allow.
const PREPARE: &str = r#"
    PATH=$PATH:/usr/sbin:/sbin
    skip() { echo "skipped: rpcbind: $1" >&2; exit 77; }
    for tool in rpcbind ip mount; do
        command -v $tool >/dev/null || skip "$tool is not installed"
    done
    [ "$(cat /proc/self/setgroups)" = allow ] || skip "it cannot give up groups here; be root"
    mount -t tmpfs none /run
    mkdir /run/rpcbind
    ip link set lo up
    "$0" "$@"
"#;
const SKIPPED: i32 = 77;
const INSIDE: &str = "HAULAGE_TEST_INSIDE_NAMESPACES";
