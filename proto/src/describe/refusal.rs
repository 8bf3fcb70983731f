//! Errors of describing.

use core::fmt;

/// Why octets are no valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The rule that they break.
    pub rule: &'static str,
    /// The offset of the octet at which they break it.
    pub at: usize,
    /// The specification's name of the error that a receiver reports; `None` if it stays silent.
    pub report: Option<&'static str>,
}

impl Refusal {
    /// Creates a refusal that no receiver reports.
    pub const fn silent(rule: &'static str, at: usize) -> Self {
        Self { rule, at, report: None }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.rule, self.at)
    }
}

impl core::error::Error for Refusal {}
