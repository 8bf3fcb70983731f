//! `haulage doctor`: checks of everything that decides whether Haulage runs well on this machine.

use crate::failure::Failure;
use crate::output::table::{self, Align};
use crate::output::{Output, json};

mod checks;
mod files;
mod finding;
mod locks;
mod machine;
#[cfg(feature = "verbs")]
mod verbs;

pub use finding::{Finding, State};
pub use machine::Machine;

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
        checks::server_cores(machine),
        checks::numa(machine),
        checks::rdma(machine),
        locks::finding(machine.no_locks.as_deref()),
    ]
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
