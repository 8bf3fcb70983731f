//! The numbers of connections and of other open files that the limit of open files allows.

use haulage::limits::LIMITS_DEFAULT;
use haulage::sys::process;

use crate::cli::perf::Count;
use crate::failure::Failure;
use crate::output::Output;
use crate::serving::supervisor::raising;

/// Checks that the limit of open files allows `connections` connections, of which this process has `ends` ends each.
///
/// # Errors
/// The limit of open files does not allow it.
pub fn check(connections: u32, ends: u64) -> Result<(), Failure> {
    check_beside(connections, ends, 0)
}

/// Like [`check`], with `beside` more open files.
fn check_beside(connections: u32, ends: u64, beside: u64) -> Result<(), Failure> {
    let Ok(limit) = process::raise_open_files() else { return Ok(()) };
    let needed = needed(connections, ends, beside);
    if needed <= limit {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "{connections} connections need {needed} open files and the limit is {limit}; lower \
         --connections, or raise it: {}",
        raising("nofile", &needed.to_string())
    )))
}

/// Returns the maximum number of connections of a server that has `beside` other open files: `asked`, or else the
/// default, lowered to what the limit of open files allows.
///
/// # Errors
/// The limit of open files does not allow the number that was asked for.
pub fn connections(asked: Option<Count>, beside: u64, output: &Output) -> Result<Count, Failure> {
    if let Some(asked) = asked {
        return check_beside(asked.0, 1, beside).map(|()| asked);
    }
    let usual = LIMITS_DEFAULT.connections_max;
    let limit = process::raise_open_files().unwrap_or(u64::MAX);
    let allowed = limit.saturating_sub(needed(0, 1, beside));
    let allowed = u32::try_from(allowed).unwrap_or(u32::MAX).clamp(1, usual);
    if allowed < usual {
        let needed = needed(usual, 1, beside);
        output.note(&format!(
            "the limit of open files is {limit}: {allowed} connections at once, not {usual}; {} raises it",
            raising("nofile", &needed.to_string())
        ));
    }
    Ok(Count(allowed))
}

/// Returns the number of descriptors that a server with `connections` connections has for the files that it serves:
/// half of those that the connections leave. The other half is for clients over TCP.
pub fn for_files(connections: Count) -> u64 {
    let limit = process::raise_open_files().unwrap_or(u64::MAX);
    limit.saturating_sub(needed(connections.0, 1, 0)) / 2
}

/// Returns the open files that `connections` connections need, of which this process has `ends` ends each, with
/// `beside` others.
fn needed(connections: u32, ends: u64, beside: u64) -> u64 {
    ends * u64::from(connections) + beside + BESIDE
}

/// Open files of every command, with room to spare; a few are open only for a moment.
const BESIDE: u64 = 32;
