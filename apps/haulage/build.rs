//! Tells the command which commit it is built from.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let commit = commit(&here);
    println!("cargo::rustc-env=HAULAGE_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    if commit.is_none() {
        return;
    }
    // HEAD, its log and the file of the current branch change whenever another commit is checked out.
    let branch = git(&here, &["symbolic-ref", "--quiet", "HEAD"]);
    for name in [Some("HEAD"), Some("logs/HEAD"), branch.as_deref()].into_iter().flatten() {
        let path = git(&here, &["rev-parse", "--git-path", name]).map(|path| here.join(path));
        // Cargo would run this each time for a file that is not there.
        if let Some(path) = path.filter(|path| path.exists()) {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
}

/// Returns the commit of the checkout whose package is in the directory `here`. Returns `None` if the package is not in a
/// checkout of its own, for example if it is vendored in another repository.
pub(crate) fn commit(here: &Path) -> Option<String> {
    let top = git(here, &["rev-parse", "--show-toplevel"])?;
    let ours =
        here.ancestors().nth(2)?.canonicalize().ok()? == Path::new(&top).canonicalize().ok()?;
    if ours { git(here, &["rev-parse", "--short=12", "HEAD"]) } else { None }
}

/// Returns the output of a git command; `None` if git is missing, fails or prints nothing.
fn git(here: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).current_dir(here).output().ok()?;
    let answer = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    Some(answer.trim_end().to_owned()).filter(|answer| !answer.is_empty())
}
