//! Two clients of one NFS server that work on the same files: the program of the lab's case `two_clients`.
//!
//! `lab_clients DIRECTORY DIRECTORY` takes two mounts of one export, which share no cache. It checks three promises
//! that NFS makes without locks: a client that opens a file sees what other clients wrote before they closed it; a
//! change of a name happens once; and an open file can be read until the server has lost it.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a report of what was done is its output")]

mod races;
mod turns;
mod unlinked;

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs, io};

fn main() -> ExitCode {
    match Clients::from_arguments().and_then(|clients| run(&clients)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab_clients: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(clients: &Clients) -> Result<(), Failure> {
    for (name, check) in CHECKS {
        println!("lab: {name}");
        check(clients).map_err(|error| Failure(format!("{name}: {error}")))?;
        for place in clients.both() {
            let left = names(&place)?;
            if !left.is_empty() {
                return Err(Failure(format!("{name}: {left:?} are left in {}", place.display())));
            }
        }
    }
    Ok(())
}

/// The name of a check, and its function.
type Check = (&'static str, fn(&Clients) -> Result<(), Failure>);

const CHECKS: [Check; 15] = [
    ("what one client closes the other sees when it opens", turns::rewrites),
    ("a file that grows and shrinks by turns", turns::sizes),
    ("appends by turns", turns::appends),
    ("a file replaced by rename, seen when it is opened again", turns::replacements),
    ("mkdir of one name by both", races::mkdir),
    ("exclusive creation of one name by both", races::create_new),
    ("link to one name by both", races::link),
    ("symlink at one name by both", races::symlink),
    ("rename of one name by both", races::rename_from),
    ("rename to one name by both", races::rename_to),
    ("unlink of one name by both", races::unlink),
    ("rmdir of one name by both", races::rmdir),
    ("a file that the other renames is read on", unlinked::renamed_by_other),
    ("a file that its own client unlinks is read on", unlinked::unlinked_by_itself),
    ("a file that the other unlinks or replaces is stale", unlinked::lost_to_other),
];

/// One directory of the server, in the mounts of two clients.
struct Clients {
    one: PathBuf,
    other: PathBuf,
}

impl Clients {
    fn from_arguments() -> Result<Self, Failure> {
        let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
        let Ok([one, other]) = <[PathBuf; 2]>::try_from(arguments) else {
            return Err(Failure("usage: lab_clients DIRECTORY DIRECTORY".to_owned()));
        };
        Ok(Self { one, other })
    }

    /// Returns the path of `name` at the client whose turn `round` is, then at the other.
    fn turn(&self, round: usize, name: &str) -> [PathBuf; 2] {
        let [one, other] = [self.one.join(name), self.other.join(name)];
        if round.is_multiple_of(2) { [one, other] } else { [other, one] }
    }

    fn both(&self) -> [PathBuf; 2] {
        [self.one.clone(), self.other.clone()]
    }
}

/// The reason why a check failed.
#[derive(Debug)]
struct Failure(String);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

/// Fails with the result of `describe` unless `holds`.
fn expect(holds: bool, describe: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure(describe())) }
}

/// Returns the names in a directory, sorted.
fn names(directory: &PathBuf) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}
