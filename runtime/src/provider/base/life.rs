//! The life of a connection of a provider in software.
//!
//! # Normal operation
//!
//! `Open`, once the handshake is over (`base/setup.rs`), then `Draining` at the end that closes.
//!
//! # Recovery
//!
//! None: a connection that fails ends. An end over a stream first sends the reason, and reads until its peer closes
//! (`Terminating`, `Lingering`). An end over shared memory waits for a peer that is copying (`Quarantined`).

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    /// Messages flow.
    Open,
    /// We close, once posted requests have left.
    Draining,
    /// We close, once the peer has been sent the reason.
    Terminating,
    /// We have closed, and read until the peer closes.
    Lingering,
    /// The connection ended while the peer was copying.
    Quarantined,
    /// The connection is over; only its slot is left.
    Closed,
}

/// An event in the life of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The application closes the connection.
    Close,
    /// The peer broke a rule, and is to be told which.
    Faulted,
    /// Everything that had to leave has left.
    Drained,
    /// The connection ended, and the peer is still copying.
    Held,
    /// The connection ended, for whatever reason.
    Ended,
}

impl ConnectionState {
    /// Takes the step, if the table has it for this state. Returns whether it had.
    pub(crate) fn step(&mut self, step: Step) -> bool {
        let next = self.on(step);
        *self = next.unwrap_or(*self);
        next.is_some()
    }

    /// The whole transition table; anything not listed changes nothing.
    const fn on(self, step: Step) -> Option<Self> {
        use Step::{Close, Drained, Ended, Faulted, Held};
        Some(match (self, step) {
            (Self::Open, Close) => Self::Draining,
            (Self::Open | Self::Draining, Faulted) => Self::Terminating,
            (Self::Open | Self::Draining, Held) => Self::Quarantined,
            (Self::Draining | Self::Terminating, Drained) => Self::Lingering,
            (Self::Closed, Ended) => return None,
            (_, Ended) => Self::Closed,
            _ => return None,
        })
    }

    /// Returns whether messages are taken.
    #[inline]
    pub(crate) const fn receives(self) -> bool {
        matches!(self, Self::Open | Self::Draining)
    }

    /// Returns whether the queue pair holds views and owes completions.
    #[inline]
    pub(crate) const fn is_live(self) -> bool {
        matches!(self, Self::Open | Self::Draining | Self::Terminating)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [ConnectionState; 6] = {
        use ConnectionState::*;
        [Open, Draining, Terminating, Lingering, Quarantined, Closed]
    };
    const STEPS: [Step; 5] = {
        use Step::*;
        [Close, Faulted, Drained, Held, Ended]
    };

    const MATRIX: &str = "
            Close       Faulted     Drained     Held        Ended
Open        Draining    Terminating -           Quarantined Closed
Draining    -           Terminating Lingering   Quarantined Closed
Terminating -           -           Lingering   -           Closed
Lingering   -           -           -           -           Closed
Quarantined -           -           -           -           Closed
Closed      -           -           -           -           -
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
