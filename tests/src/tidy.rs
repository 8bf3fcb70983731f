//! The rules of the house that no compiler checks, each a function from a workspace to its breaches.

use std::collections::BTreeSet;
use std::fmt;

use crate::mutation::is_of_marker;
use crate::source::{Source, Workspace, line_of, words};

mod bounds;
mod circles;
mod fields;
mod modules;
mod mutations;
mod names;
mod pages;
mod phrases;
mod readings;
mod requirements;
mod rooms;
mod signatures;
mod vocabulary;

pub use bounds::{bounds, readable};
pub use circles::circles;
pub use fields::fields;
pub use modules::{orphans, unlisted_tests};
pub use mutations::{mutations, unmutated};
pub use pages::{book, links, walks};
pub use phrases::phrases;
pub use readings::readings;
pub use requirements::{Layer, NamedTest, TestedRow, coverage, tested};
pub use rooms::{rooms, routes};
pub use signatures::signatures;
pub use vocabulary::providers_know_verbs;

/// One place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The file, from the workspace's root.
    pub path: String,
    /// The line, from 1; 0 when the file as a whole is meant.
    pub line: usize,
    /// The complaint, which follows the line.
    pub what: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

impl Breach {
    fn of_file(path: &str, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: 0, what: what.into() }
    }

    fn at(path: &str, text: &str, at: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: line_of(text, at), what: what.into() }
    }
}

/// Runs every rule.
pub fn breaches(workspace: &Workspace) -> Vec<Breach> {
    RULES.iter().flat_map(|rule| rule(workspace)).collect()
}

/// A rule: returns what breaks it.
type Rule = fn(&Workspace) -> Vec<Breach>;

const RULES: [Rule; 22] = [
    unsafe_in_its_files,
    time_and_chance_in_their_modules,
    leftovers,
    ignored_without_reason,
    machine_paths,
    proto_depends_on_nothing,
    orphans,
    unlisted_tests,
    circles,
    fields,
    routes,
    providers_know_verbs,
    coverage,
    mutations,
    unmutated,
    readings,
    signatures,
    phrases,
    links,
    book,
    walks,
    readable,
];

/// The keyword stays in the files whose proofs are reviewed as such.
pub fn unsafe_in_its_files(workspace: &Workspace) -> Vec<Breach> {
    let listed = |path: &str| UNSAFE.contains(&path) || path.starts_with(UNSAFE_DIRECTORY);
    let outside = workspace.rust().filter(|(path, _)| !listed(path));
    outside
        .flat_map(|(path, source)| in_code(path, source, "unsafe", "outside its files"))
        .collect()
}

/// Clocks and randomness enter by argument, from one module each.
pub fn time_and_chance_in_their_modules(workspace: &Workspace) -> Vec<Breach> {
    let mut found = Vec::new();
    for (word, homes) in SOURCES_OF_TIME_AND_CHANCE {
        for (path, source) in workspace.rust().filter(|(path, _)| !homes.contains(path)) {
            found.extend(in_code(path, source, word, "outside its module"));
        }
    }
    found
}

/// Nothing half done stays behind.
pub fn leftovers(workspace: &Workspace) -> Vec<Breach> {
    // In two halves, or this file would be the first breach.
    let notes = [concat!("FIX", "ME"), concat!("TO", "DO"), concat!("XX", "X")];
    let mut found = Vec::new();
    for (path, source) in workspace.files() {
        for note in notes {
            let at = words(&source.text, note);
            found.extend(at.map(|at| Breach::at(path, &source.text, at, note)));
        }
        for marker in ["<<<<<<< ", ">>>>>>> "] {
            let at = source.text.match_indices(marker).map(|(at, _)| at);
            let at = at.filter(|at| *at == 0 || source.text.as_bytes()[at - 1] == b'\n');
            found.extend(
                at.map(|at| Breach::at(path, &source.text, at, "a merge is left half done")),
            );
        }
        for macro_name in ["todo!", "unimplemented!"] {
            found.extend(in_code(path, source, macro_name, "is not an implementation"));
        }
    }
    found
}

/// A test that does not run says why.
pub fn ignored_without_reason(workspace: &Workspace) -> Vec<Breach> {
    let rust = workspace.rust();
    rust.flat_map(|(path, source)| in_code(path, source, "#[ignore]", "without a reason")).collect()
}

/// No file names a directory of one machine.
pub fn machine_paths(workspace: &Workspace) -> Vec<Breach> {
    let mut found = Vec::new();
    for (path, source) in workspace.files() {
        for top in ["home", "work", "root", "farm", "Users"] {
            let directory = format!("/{top}/");
            for (at, _) in source.text.match_indices(&directory) {
                let before = source.text[..at].chars().next_back();
                let continues = |c: char| c.is_alphanumeric() || "_.-~}*".contains(c);
                if !before.is_some_and(continues) {
                    found.push(Breach::at(path, &source.text, at, format!("names {directory}")));
                }
            }
        }
    }
    found
}

/// `proto` builds from nothing but the language: every other dependency is a test's, or optional.
pub fn proto_depends_on_nothing(workspace: &Workspace) -> Vec<Breach> {
    let path = "proto/Cargo.toml";
    let Some(manifest) = workspace.get(path) else {
        return vec![Breach::of_file(path, "is missing")];
    };
    let mut section = "";
    let mut found = Vec::new();
    for (index, line) in manifest.text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
        }
        let required = section.split('.').any(|s| s == "dependencies" || s == "build-dependencies");
        if required && !line.is_empty() && line != format!("[{section}]") && !optional(line) {
            let what = format!("requires `{line}`");
            found.push(Breach { path: path.to_owned(), line: index + 1, what });
        }
    }
    found
}

fn optional(line: &str) -> bool {
    line.split([',', '{', '}']).any(|part| part.replace(' ', "") == "optional=true")
}

/// Says which types have grown beyond the sizes we aim for: nothing fails over them.
pub fn grown(workspace: &Workspace) -> Vec<Breach> {
    [bounds, rooms].into_iter().flat_map(|bound| bound(workspace)).collect()
}

/// Says what exceeds the sizes we aim for, markers not counted. Sizes are aims: nothing fails over them.
pub fn sizes(workspace: &Workspace) -> Vec<String> {
    let mut found = Vec::new();
    for (path, source) in workspace.rust().filter(|(path, _)| !path.starts_with("tests/")) {
        if path.ends_with("/tests.rs") {
            continue;
        }
        let own = source.code.find("#[cfg(test)]\nmod tests {").unwrap_or(source.code.len());
        let code = &source.code[..own];
        let counted = |first: usize, lines: usize| {
            let lines = source.text.lines().skip(first - 1).take(lines);
            lines.filter(|line| !is_of_marker(line)).count()
        };
        let lines = counted(1, code.lines().count());
        if lines > FILE_LINES {
            found.push(format!("{path}: {lines} lines"));
        }
        for (name, first, lines) in functions(code) {
            let lines = counted(first, lines);
            if lines > FUNCTION_LINES {
                found.push(format!("{path}:{first}: fn {name}, {lines} lines"));
            }
        }
    }
    found
}

/// Returns the name, first line and number of lines of each function with a body.
fn functions(code: &str) -> Vec<(&str, usize, usize)> {
    let mut found = Vec::new();
    for at in words(code, "fn") {
        let name = code[at + 2..].trim_start();
        let name = &name[..name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(0)];
        let Some(open) = code[at..].find(['{', ';']).filter(|_| !name.is_empty()) else { continue };
        let Some(length) = block(&code[at + open..]) else { continue };
        let body = &code[at..at + open + length];
        found.push((name, line_of(code, at), body.lines().count()));
    }
    found
}

/// Returns the length of the block `code` begins with.
fn block(code: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return Some(at + 1),
            b'}' => depth = depth.checked_sub(1)?,
            _ if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

fn in_code(path: &str, source: &Source, word: &str, what: &str) -> Vec<Breach> {
    let lines: BTreeSet<_> =
        words(&source.code, word).map(|at| line_of(&source.code, at)).collect();
    let breach = |line| Breach { path: path.to_owned(), line, what: format!("`{word}` {what}") };
    lines.into_iter().map(breach).collect()
}

const FILE_LINES: usize = 400;
const FUNCTION_LINES: usize = 70;

/// Besides the system calls, the files whose invariants the compiler cannot see, and the program that has no standard
/// library to hide them in.
const UNSAFE: [&str; 7] = [
    "mr-pool/src/lent.rs",
    "mr-pool/src/pool_core.rs",
    "mr-pool/src/region/map.rs",
    "mr-pool/src/view.rs",
    "mr-pool/src/zeroes.rs",
    // The name of a trait that is unsafe in the product.
    "tests/models/src/zeroes.rs",
    "tests/no_std/src/bare.rs",
];
const UNSAFE_DIRECTORY: &str = "runtime/src/sys/";

const CLOCK: &[&str] = &["runtime/src/sys/clock.rs"];
/// Reads the time stamp counter to learn what that costs, not what time it is.
const TIME_STAMP: &[&str] = &["runtime/src/sys/cpu.rs"];
/// Handles, the hash of keys that strangers choose, the seed a command gives its core, and the nonces
/// of host authentication; tests give each of them a seed instead.
const ENTROPY: &[&str] = &[
    "mr-pool/src/handles.rs",
    "apps/kv/src/index.rs",
    "apps/haulage/src/node.rs",
    "apps/haulage/src/store/secrets.rs",
    "runtime/src/host_auth/nonce.rs",
];
const NOWHERE: &[&str] = &[];

const SOURCES_OF_TIME_AND_CHANCE: [(&str, &[&str]); 12] = [
    ("Instant::now", CLOCK),
    ("SystemTime::now", CLOCK),
    ("UNIX_EPOCH", CLOCK),
    ("clock_gettime", CLOCK),
    ("_rdtsc", TIME_STAMP),
    ("thread::sleep", NOWHERE),
    ("getrandom", ENTROPY),
    ("rand::rng", NOWHERE),
    ("thread_rng", NOWHERE),
    ("from_os_rng", NOWHERE),
    ("from_entropy", NOWHERE),
    ("RandomState", NOWHERE),
];

#[cfg(test)]
mod tests;
