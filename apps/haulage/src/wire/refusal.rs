//! Errors of decoding a line.

use crate::output::json;

/// The reason that a line is no valid message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error, with the offset of the octet.
    error: String,
    /// The name in the specification of the error that a receiver reports; `None` if it stays silent.
    report: Option<&'static str>,
}

impl Refusal {
    /// Creates an error that a receiver answers with `report`.
    pub const fn new(error: String, report: Option<&'static str>) -> Self {
        Self { error, report }
    }

    /// Creates an error that no receiver answers.
    pub fn silent(what: &str, at: usize) -> Self {
        Self::new(format!("{what} at byte {at}"), None)
    }

    /// Creates the error for a line of more than `max` octets.
    pub fn too_long(max: usize) -> Self {
        Self::silent("longer than any message", max)
    }

    /// Returns the JSON line of the error.
    pub fn to_json(&self) -> String {
        json::object(|line| {
            line.text("error", &self.error);
            match self.report {
                Some(report) => line.text("report", report),
                None => line.json("report", "null"),
            };
        })
    }
}
