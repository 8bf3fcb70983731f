//! The life of a connection of a provider in software.
//!
//! # Normal operation
//!
//! `Connecting -> Requesting -> Open` at the active end, `Awaiting -> Asked -> Open` at the passive one, then
//! `Draining` at the end that closes.
//!
//! # Recovery
//!
//! None: a connection that fails ends. An end over a stream first says why, and reads what its peer still sends
//! (`Terminating`, `Lingering`). An end over shared memory waits for a peer that is copying (`Quarantined`).

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The way to the peer is not there yet.
    Connecting,
    /// Our question is out.
    Requesting,
    /// A peer's question is to come.
    Awaiting,
    /// It came; the application is to answer.
    Asked,
    /// Messages flow.
    Open,
    /// We close, once what was posted has left.
    Draining,
    /// We close, once the peer has been told why.
    Terminating,
    /// We have closed and read to the end.
    Lingering,
    /// It ended while the peer was copying.
    Quarantined,
    /// Nothing is left but the slot.
    Closed,
}

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is a way to the peer.
    Connected,
    /// The peer's question is complete.
    Requested,
    /// Both ends said yes.
    Agreed,
    /// We said no.
    Rejected,
    /// The application closes.
    Close,
    /// The peer broke a rule we tell it about.
    Faulted,
    /// What was to leave first has left.
    Drained,
    /// It is over, but for a peer that is copying.
    Held,
    /// It is over, for whatever reason.
    Ended,
}

impl State {
    /// Moves on, if the table knows the step from here.
    pub(crate) fn step(&mut self, step: Step) -> bool {
        let next = self.on(step);
        *self = next.unwrap_or(*self);
        next.is_some()
    }

    /// The whole transition table; anything not listed changes nothing.
    const fn on(self, step: Step) -> Option<Self> {
        use Step::{Agreed, Close, Connected, Drained, Ended, Faulted, Held, Rejected, Requested};
        Some(match (self, step) {
            (Self::Connecting, Connected) => Self::Requesting,
            (Self::Awaiting, Requested) => Self::Asked,
            (Self::Requesting | Self::Asked, Agreed) => Self::Open,
            (Self::Asked, Rejected) => Self::Lingering,
            (Self::Open, Close) => Self::Draining,
            (Self::Connecting | Self::Requesting | Self::Awaiting | Self::Asked, Close) => {
                Self::Closed
            }
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

    const STATES: [State; 10] = {
        use State::*;
        [
            Connecting,
            Requesting,
            Awaiting,
            Asked,
            Open,
            Draining,
            Terminating,
            Lingering,
            Quarantined,
            Closed,
        ]
    };
    const STEPS: [Step; 9] = {
        use Step::*;
        [Connected, Requested, Agreed, Rejected, Close, Faulted, Drained, Held, Ended]
    };

    const MATRIX: &str = "
            Connected   Requested   Agreed      Rejected    Close       Faulted     Drained     Held        Ended
Connecting  Requesting  -           -           -           Closed      -           -           -           Closed
Requesting  -           -           Open        -           Closed      -           -           -           Closed
Awaiting    -           Asked       -           -           Closed      -           -           -           Closed
Asked       -           -           Open        Lingering   Closed      -           -           -           Closed
Open        -           -           -           -           Draining    Terminating -           Quarantined Closed
Draining    -           -           -           -           -           Terminating Lingering   Quarantined Closed
Terminating -           -           -           -           -           -           Lingering   -           Closed
Lingering   -           -           -           -           -           -           -           -           Closed
Quarantined -           -           -           -           -           -           -           -           Closed
Closed      -           -           -           -           -           -           -           -           -
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
