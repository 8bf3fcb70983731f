//! A check that this process can have enough memory.

use haulage::pool::Allowance;

use crate::cli::bytes;
use crate::failure::Failure;

/// Checks that this process can take this much memory, in octets.
///
/// # Errors
/// The machine has less available, or the control groups leave less.
pub(crate) fn check(octets: usize) -> Result<(), Failure> {
    match Allowance::here().available {
        Some(available) if octets > available => {
            let reason = format!("{} is available", bytes::rounded(available as u64));
            Err(Failure::failed(refusal(&bytes::rounded(octets as u64), &reason)))
        }
        _ => Ok(()),
    }
}

/// Returns the error text for a request of more memory than is available.
pub(crate) fn refusal(size: &str, reason: &str) -> String {
    format!(
        "cannot have {size} of memory: {reason}; ask for less or free memory (it is filled at start, \
         once per core)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_any_machine_has_is_refused() {
        assert!(check(0).is_ok());
        assert!(check(usize::MAX).is_err());
    }
}
