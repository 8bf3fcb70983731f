//! `haulage doctor`: what decides whether Haulage runs well on this machine.

use std::io;
use std::net::TcpListener;
use std::path::PathBuf;

use haulage::sys::process;

use crate::failure::Failure;
use crate::output::table::{self, Align};
use crate::output::{Output, json};
use crate::placement::Cpus;

mod checks;
mod files;
#[cfg(feature = "verbs")]
mod verbs;

/// Examines this machine and prints what was found.
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
    if output.json {
        output.line(&json::array(findings.iter().map(Finding::to_json)))?;
    } else {
        output.text(&report(&findings))?;
    }
    let provider = findings.iter().find(|finding| finding.check == checks::PROVIDER);
    match provider.filter(|finding| finding.state == State::Missing) {
        None => Ok(()),
        Some(finding) => Err(Failure::failed(format!("{}; {}", finding.detail, finding.fix))),
    }
}

/// Looks at everything that matters, in the order in which it matters.
pub fn examine(machine: &Machine) -> Vec<Finding> {
    vec![
        checks::provider(machine),
        checks::hugepages(machine),
        checks::memlock(machine),
        checks::open_files(machine),
        checks::io_uring(machine),
        checks::cpu_isolation(machine),
        checks::numa(machine),
        checks::rdma(machine),
    ]
}

/// What was found about one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub check: &'static str,
    /// How good it is.
    pub state: State,
    /// What is there, in numbers.
    pub detail: String,
    /// The command that makes it better; empty if nothing needs to be.
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

/// How good something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// As good as Haulage can use.
    Ok,
    /// It works, with less speed.
    Slower,
    /// It is not there.
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

/// What the checks look at: files under a root, and what only the system's answers tell.
#[derive(Debug)]
pub struct Machine {
    /// Where `proc` and `sys` are.
    pub root: PathBuf,
    /// The CPUs this process can run on.
    pub cpus: Cpus,
    /// Octets this process may lock; `None`: any number.
    pub memlock: Option<u64>,
    /// Files this process may have open.
    pub open_files: u64,
    /// Why no ring can be made; `None`: it can.
    pub io_uring: Option<io::Error>,
    /// Why no TCP socket can listen on this machine; `None`: it can.
    pub tcp: Option<io::Error>,
}

impl Machine {
    /// Asks the system this process runs on.
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
