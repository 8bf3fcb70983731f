//! The life of a handshake of a provider in software: of what may become a connection, and is none.
//!
//! # Normal operation
//!
//! `Connecting -> Requesting` at the active end, `Awaiting -> Asked` at the passive one. Once both ends have agreed, a
//! connection takes the place of the handshake.
//!
//! # Recovery
//!
//! None: a handshake that fails ends. An end over a stream that rejects its peer reads until the peer closes (`Leaving`).

/// The state of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetupState {
    /// The transport below is being connected.
    Connecting,
    /// Our request has been sent.
    Requesting,
    /// The peer's request has not arrived.
    Awaiting,
    /// The peer's request has arrived, and the application has not answered.
    Asked,
    /// We have rejected the peer, and read until it closes.
    Leaving,
    /// The handshake is over; only its slot is left.
    Closed,
}

/// An event in the life of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetupStep {
    /// The transport below is connected.
    Connected,
    /// The peer's request is complete.
    Requested,
    /// The application rejected the peer.
    Rejected,
    /// The handshake ended, for whatever reason.
    Ended,
}

impl SetupState {
    /// Takes the step, if the table has it for this state. Returns whether it had.
    pub(crate) fn step(&mut self, step: SetupStep) -> bool {
        let next = self.on(step);
        *self = next.unwrap_or(*self);
        next.is_some()
    }

    /// The whole transition table; anything not listed changes nothing.
    const fn on(self, step: SetupStep) -> Option<Self> {
        use SetupStep::{Connected, Ended, Rejected, Requested};
        Some(match (self, step) {
            (Self::Connecting, Connected) => Self::Requesting,
            (Self::Awaiting, Requested) => Self::Asked,
            (Self::Asked, Rejected) => Self::Leaving,
            (Self::Closed, Ended) => return None,
            (_, Ended) => Self::Closed,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [SetupState; 6] = {
        use SetupState::*;
        [Connecting, Requesting, Awaiting, Asked, Leaving, Closed]
    };
    const STEPS: [SetupStep; 4] = {
        use SetupStep::*;
        [Connected, Requested, Rejected, Ended]
    };

    const MATRIX: &str = "
            Connected   Requested   Rejected    Ended
Connecting  Requesting  -           -           Closed
Requesting  -           -           -           Closed
Awaiting    -           Asked       -           Closed
Asked       -           -           Leaving     Closed
Leaving     -           -           -           Closed
Closed      -           -           -           -
";

    #[test]
    fn the_whole_table_is_as_reviewed() {
        let row = |head: String, cells: Vec<String>| {
            let cells: String = cells.iter().map(|cell| format!("{cell:<12}")).collect();
            format!("{head:<12}{cells}").trim_end().to_owned() + "\n"
        };
        let mut matrix =
            format!("\n{}", row(String::new(), STEPS.map(|s| format!("{s:?}")).into()));
        for state in STATES {
            let next = |step| state.on(step).map_or("-".to_owned(), |next| format!("{next:?}"));
            matrix += &row(format!("{state:?}"), STEPS.map(next).into());
        }
        assert_eq!(matrix, MATRIX, "{matrix}");
    }
}
