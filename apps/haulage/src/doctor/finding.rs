//! What a check finds.

use crate::output::json;

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
    /// Returns the JSON object of the finding.
    pub(super) fn to_json(&self) -> String {
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
    /// Returns the name of the state.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Slower => "slower",
            Self::Missing => "missing",
        }
    }
}
