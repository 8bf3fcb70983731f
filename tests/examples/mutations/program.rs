//! The test programs of the copy, and the tests in them.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use haulage_tests::source::Workspace;
use haulage_tests::tidy::NamedTest;

use crate::bounded;
use crate::copy::Copy;

/// A test program, as cargo builds it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Program {
    /// The directory of its package.
    directory: String,
    package: String,
    /// The name of a test target; `None` for the library's unit tests.
    target: Option<String>,
}

/// A test of a program.
pub(crate) struct Member {
    /// The name of the test in rows.
    pub(crate) name: String,
    /// The name of the test in its program.
    pub(crate) filter: String,
}

/// A test program that is built.
pub(crate) struct Built {
    executable: PathBuf,
    directory: PathBuf,
}

/// The outcome of one test.
pub(crate) enum Ended {
    Passed,
    Failed,
    /// The test was still running after [`TEST_LIMIT`].
    Late,
    /// The program has no test of this name.
    NotRun,
}

/// Returns the programs that contain `tests`, each with its tests.
pub(crate) fn by_program(
    workspace: &Workspace,
    tests: &[NamedTest],
) -> Result<BTreeMap<Program, Vec<Member>>, Box<dyn Error>> {
    let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for test in tests {
        let (directory, manifest) =
            manifest(workspace, &test.path).ok_or("a test outside of all crates")?;
        let inside = &test.path[directory.len() + 1..];
        let target = inside.strip_prefix("tests/").map(|file| {
            let root = file.split_once('/').map_or(file, |(root, _)| root);
            root.trim_end_matches(".rs").to_owned()
        });
        let filter = filter(&test.name, directory, target.as_deref());
        let package = package(manifest).ok_or("a crate without a name")?;
        let program = Program { directory: directory.to_owned(), package, target };
        found.entry(program).or_default().push(Member { name: test.name.clone(), filter });
    }
    Ok(found)
}

/// Returns the directory of the crate with this file, and the text of its manifest.
fn manifest<'a>(workspace: &'a Workspace, path: &'a str) -> Option<(&'a str, &'a str)> {
    let mut around = path.match_indices('/').map(|(end, _)| &path[..end]);
    around.find_map(|directory| {
        let manifest = workspace.get(&format!("{directory}/Cargo.toml"))?;
        Some((directory, manifest.text.as_str()))
    })
}

/// Returns a test's full name without its crate's directory and, in a test target, without that target.
fn filter(name: &str, directory: &str, target: Option<&str>) -> String {
    let around = format!("{}::", directory.replace('/', "::").replace('-', "_"));
    let inside = name.strip_prefix(&around).unwrap_or(name);
    let Some(target) = target else { return inside.to_owned() };
    // Names of tests in the test targets of most crates contain `tests`; in the tests' own crate
    // they do not.
    let inside = inside.strip_prefix("tests::").unwrap_or(inside);
    inside.strip_prefix(&format!("{target}::")).unwrap_or(inside).to_owned()
}

/// Returns the package name in a manifest.
fn package(manifest: &str) -> Option<String> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("name = \""))?;
    Some(line.trim_end_matches('"').to_owned())
}

impl Program {
    /// Builds the program. Returns the compiler's errors if it fails.
    pub(crate) fn build(&self, copy: &Copy) -> Result<Result<Built, String>, Box<dyn Error>> {
        let mut cargo = Command::new("cargo");
        cargo.args(["test", "--no-run", "--quiet", "--locked", "--message-format=json"]);
        cargo.args(["--package", &self.package]);
        match &self.target {
            Some(target) => cargo.args(["--test", target]),
            None => cargo.arg("--lib"),
        };
        if self.package == "haulage" {
            // The feature that a build of the whole workspace turns on.
            cargo.args(["--features", "host-auth"]);
        }
        cargo.current_dir(copy.tree()).env("CARGO_TARGET_DIR", copy.target());
        // Builds are faster without debug information, and nobody reads these backtraces.
        cargo.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "1");
        let output = bounded::run(cargo, BUILD_LIMIT)?.ok_or("a build did not end")?;
        let messages: Vec<serde_json::Value> = output
            .stdout
            .split(|octet| *octet == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect();
        if !output.status.success() {
            let errors = messages.iter().filter(|m| m["message"]["level"] == "error");
            let said: String = errors.filter_map(|m| m["message"]["rendered"].as_str()).collect();
            let also = String::from_utf8_lossy(&output.stderr);
            return Ok(Err(if said.is_empty() { also.into_owned() } else { said }));
        }
        // The program that a test runs may be linked after the test.
        let tests = messages.iter().filter(|message| message["profile"]["test"] == true);
        let executable = tests.rev().find_map(|message| message["executable"].as_str());
        let executable = executable.ok_or("cargo named no program")?.into();
        Ok(Ok(Built { executable, directory: copy.tree().join(&self.directory) }))
    }
}

impl Built {
    /// Runs a single test.
    pub(crate) fn run(&self, filter: &str) -> Result<Ended, Box<dyn Error>> {
        // A broken test may allocate without end.
        let mut test = Command::new("prlimit");
        test.arg(format!("--as={MEMORY_LIMIT}")).arg(&self.executable);
        test.args(["--exact", filter]).current_dir(&self.directory);
        let Some(output) = bounded::run(test, TEST_LIMIT)? else { return Ok(Ended::Late) };
        let said = String::from_utf8_lossy(&output.stdout);
        Ok(if !said.contains("\nrunning 1 test\n") {
            Ended::NotRun
        } else if output.status.success() {
            Ended::Passed
        } else {
            Ended::Failed
        })
    }
}

const BUILD_LIMIT: Duration = Duration::from_secs(600);
const TEST_LIMIT: Duration = Duration::from_secs(60);
/// Limit of the address space, in octets.
const MEMORY_LIMIT: u64 = 8 << 30;
