//! `haulage doctor`: checks of everything that decides whether Haulage runs well on this machine.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;

use haulage::sys::process;

use crate::failure::Failure;
use crate::output::table::{self, Align};
use crate::output::{Output, json};
use crate::placement::Cpus;

mod checks;
mod files;
mod locks;
#[cfg(feature = "verbs")]
mod verbs;

/// Examines this machine and prints the findings.
///
/// Fails if the default provider cannot run.
pub fn run(output: &Output) -> Result<(), Failure> {
    #[cfg_attr(
        not(feature = "verbs"),
        expect(unused_mut, reason = "there is nothing more to find")
    )]
    let mut findings = examine(&Machine::here()?);
    #[cfg(feature = "verbs")]
    findings.push(verbs::finding());
    let printed = if output.json {
        output.line(&json::array(findings.iter().map(Finding::to_json)))
    } else {
        output.text(&report(&findings))
    };
    // The status says what was found, whether anybody reads the rest or not.
    printed.or_else(Failure::unless_closed)?;
    let provider = findings.iter().find(|finding| finding.check == checks::PROVIDER);
    match provider.filter(|finding| finding.state == State::Missing) {
        None => Ok(()),
        Some(finding) => Err(Failure::failed(format!("{}; {}", finding.detail, finding.fix))),
    }
}

/// Runs all checks, the most important first.
pub fn examine(machine: &Machine) -> Vec<Finding> {
    vec![
        checks::provider(machine),
        checks::hugepages(machine),
        checks::memory(machine),
        checks::memlock(machine),
        checks::open_files(machine),
        checks::io_uring(machine),
        checks::cpu_isolation(machine),
        checks::cpu_quota(machine),
        checks::numa(machine),
        checks::rdma(machine),
        locks::finding(machine.no_locks.as_deref()),
    ]
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The name of the check.
    pub check: &'static str,
    /// The state that the check found.
    pub state: State,
    /// The details of the state, in numbers.
    pub detail: String,
    /// The command that improves the state; empty if none is needed.
    pub fix: String,
}

impl Finding {
    fn to_json(&self) -> String {
        json::object(|o| {
            o.text("check", self.check).text("state", self.state.name());
            o.text("detail", &self.detail).text("fix", &self.fix);
        })
    }
}

/// The state of a checked feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The feature is there, at full speed.
    Ok,
    /// Haulage works, more slowly.
    Slower,
    /// The feature is missing.
    Missing,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Slower => "slower",
            Self::Missing => "missing",
        }
    }
}

/// The input of the checks: files under a root, and answers of the system.
#[derive(Debug)]
pub struct Machine {
    /// The directory that holds `proc` and `sys`.
    pub root: PathBuf,
    /// The CPUs this process can run on.
    pub cpus: Cpus,
    /// Maximum octets that this process may lock; `None` means no limit.
    pub memlock: Option<u64>,
    /// Maximum number of files that this process may have open.
    pub open_files: u64,
    /// The error of creating an io_uring; `None` if it succeeded.
    pub io_uring: Option<io::Error>,
    /// The error of listening on a TCP socket; `None` if it succeeded.
    pub tcp: Option<io::Error>,
    /// Why clients find no lock manager at the loopback; `None` if they find one.
    pub no_locks: Option<String>,
}

impl Machine {
    /// Describes the machine on which this process runs.
    pub fn here() -> Result<Self, Failure> {
        Ok(Self {
            root: PathBuf::from("/"),
            cpus: Cpus::here()?,
            memlock: process::memlock_limit(),
            open_files: process::raise_open_files().map_err(|error| {
                Failure::failed(format!("cannot read the limit of open files: {error}"))
            })?,
            io_uring: process::probe_io_uring().err(),
            tcp: TcpListener::bind("127.0.0.1:0").err(),
            no_locks: crate::locks::lacking(Ipv4Addr::LOCALHOST.into()),
        })
    }
}

fn report(findings: &[Finding]) -> String {
    let columns = [("CHECK", Align::Left), ("STATE", Align::Left), ("DETAIL", Align::Left)];
    let cells = |f: &Finding| vec![f.check.to_owned(), f.state.name().to_owned(), f.detail.clone()];
    let mut text = table::layout(&columns, &findings.iter().map(cells).collect::<Vec<_>>());
    let fixes: Vec<_> = findings.iter().filter(|f| !f.fix.is_empty()).collect();
    if !fixes.is_empty() {
        text.push_str("\nTo improve it:\n");
    }
    for finding in fixes {
        text.push_str(&format!("  {}: {}\n", finding.check, finding.fix));
    }
    text
}

#[cfg(test)]
mod tests;
