//! What is said of a line that is no message.

use crate::output::json;

/// Why a line is no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What is wrong, and at which octet.
    error: String,
    /// What a receiver answers, by its name in the specification; nothing where it stays silent.
    report: Option<&'static str>,
}

impl Refusal {
    /// Refuses what a receiver answers with `report`.
    pub const fn new(error: String, report: Option<&'static str>) -> Self {
        Self { error, report }
    }

    /// Refuses what no receiver answers.
    pub fn silent(what: &str, at: usize) -> Self {
        Self::new(format!("{what} at byte {at}"), None)
    }

    /// Refuses a line of more than `max` octets.
    pub fn too_long(max: usize) -> Self {
        Self::silent("longer than any message", max)
    }

    /// Returns the line that is printed for it.
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
