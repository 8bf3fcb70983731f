//! Memory that a command asks for: the check that this process can have it, and the words for a refusal.

use std::fmt;

use haulage::pool::Allowance;

use crate::cli::bytes;
use crate::failure::Failure;

/// Memory that a core takes, as its user knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// What the user asked for, in octets, and what connections take besides.
    Asked {
        /// Octets that were asked for.
        asked: u64,
        /// Octets for connections.
        besides: u64,
    },
    /// All of it, in octets: the user asked for no amount.
    All(u64),
}

impl Wanted {
    /// Returns the error that there is not so much.
    pub(crate) fn refused(self, reason: &str) -> Failure {
        Failure::failed(format!(
            "cannot have {self}: {reason}; ask for less or free memory (it is filled at start, once per core)"
        ))
    }

    /// Returns the error that no core manages so much.
    pub(crate) fn beyond(self) -> Failure {
        Failure::failed(format!(
            "cannot have {self}: one core manages at most 16 TiB; ask for less"
        ))
    }

    /// Checks that this process can take the last octets of it, once it has the others.
    ///
    /// # Errors
    /// The machine has less available, or the control groups leave less.
    pub(crate) fn check_rest(self, octets: usize) -> Result<(), Failure> {
        match Allowance::here().available {
            Some(available) if octets > available => {
                let [available, rest] = [available, octets].map(|n| bytes::rounded(n as u64));
                Err(self.refused(&format!("{available} is available for the last {rest}")))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked { asked, besides } => {
                let (asked, besides) = (bytes::format(*asked), bytes::rounded(*besides));
                write!(f, "{asked} of memory, and {besides} for connections")
            }
            Self::All(octets) => write!(f, "{} of memory", bytes::rounded(*octets)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_any_machine_has_is_refused() {
        assert!(Wanted::All(0).check_rest(0).is_ok());
        assert!(Wanted::All(u64::MAX).check_rest(usize::MAX).is_err());
    }

    #[test]
    fn a_refusal_names_what_was_asked_for() {
        let asked = Wanted::Asked { asked: 100_000 << 30, besides: 3 << 19 };
        assert_eq!(asked.to_string(), "100000 GiB of memory, and 1.5 MiB for connections");
        assert_eq!(Wanted::All(5 << 29).to_string(), "2.5 GiB of memory");
    }
}
