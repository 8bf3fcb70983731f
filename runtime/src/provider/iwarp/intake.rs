//! The way a connection's octets come in: with the reactor's news, or by reading the socket at every poll.
//!
//! # Normal operation
//!
//! Octets come from a receive buffer of the ring, or are read when the connection is hot. A hot connection is also read
//! for messages that need no Receive (`iwarp/in_place.rs`), at most once between two polls; what that found stands for
//! the next poll's reading.

use super::lane::Lane;
use super::nic::Nic;
use super::reactor::Reactor;

/// How a connection's octets come in, and what came lately.
#[derive(Debug)]
pub(super) struct Intake {
    state: State,
    /// Receives in a row, from a ring, or, when hot, polls in a row that found nothing.
    streak: u32,
    /// The result of reading since the last poll, if the connection was read for messages without Receives and none was
    /// refused.
    looked: Option<Found>,
    /// Rounds in which the connection is not read for messages without Receives.
    backoff: u8,
}

/// The way octets come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The connection is not read: not yet, or it waits for something else.
    Off,
    /// The reactor reports octets.
    Armed,
    /// The reactor was asked to stop; its remaining news comes first.
    Pausing,
    /// The socket is read at every poll.
    Hot,
    /// The socket has nothing more for us, ever.
    Over,
}

/// A change of the way octets come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The reactor is to report octets.
    Arm,
    /// The reactor was asked to stop.
    Pause,
    /// The socket is to be read at every poll.
    Heat,
    /// Octets are not wanted now, or the reactor has stopped.
    Stop,
    /// The input of the socket has ended.
    End,
}

/// Whether octets are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Yes,
    No,
}

/// The result of reading a hot connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The socket had nothing to read.
    Nothing,
    /// Octets were read, and there are no more.
    All,
    /// Octets were read, and perhaps there are more.
    Some,
}

/// What settling did to the provider's list of hot connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heat {
    /// The connection is to be on the list.
    Gained,
    /// The connection is to leave the list.
    Lost,
    /// The list stays as it is.
    Kept,
}

impl State {
    /// Takes the step, if the table has it for this state.
    fn step(&mut self, step: Step) {
        *self = self.on(step).unwrap_or(*self);
    }

    /// The whole transition table; anything not listed changes nothing.
    const fn on(self, step: Step) -> Option<Self> {
        use Step::{Arm, End, Heat, Pause, Stop};
        Some(match (self, step) {
            (Self::Off | Self::Hot, Arm) => Self::Armed,
            (Self::Armed, Pause) => Self::Pausing,
            (Self::Off | Self::Armed, Heat) => Self::Hot,
            (Self::Armed | Self::Pausing | Self::Hot, Stop) => Self::Off,
            (Self::Off | Self::Hot, End) => Self::Over,
            _ => return None,
        })
    }
}

impl Intake {
    pub(super) const fn new() -> Self {
        Self { state: State::Off, streak: 0, looked: None, backoff: 0 }
    }

    /// Has the socket read at every poll.
    pub(super) fn heat(&mut self, nic: &mut Nic) {
        self.state.step(Step::Heat);
        (self.streak, self.looked) = (0, None);
        nic.wire.promotions += 1;
    }

    /// Has the socket read at every poll, if the reactor has reported octets without reading them. Returns whether it
    /// is.
    pub(super) fn heat_if_armed(&mut self, nic: &mut Nic) -> bool {
        let is_armed = self.state == State::Armed;
        if is_armed {
            self.heat(nic);
        }
        is_armed
    }

    /// Has the reactor report the connection's octets again.
    pub(super) fn cool(&mut self, nic: &mut Nic, lane: &mut Lane, reactor: &mut Reactor) {
        self.streak = 0;
        if reactor.receive(lane.socket().fd(), lane.qp()).is_ok() {
            self.state.step(Step::Arm);
        } else {
            self.state.step(Step::Stop);
            lane.unsettle(nic);
        }
    }

    /// Asks the reactor to stop, as the connection is to become hot. Without room in the ring all stays as it is.
    pub(super) fn pause_if_armed(&mut self, lane: &Lane, reactor: &mut Reactor) {
        if self.state == State::Armed && reactor.pause(lane.qp()).is_ok() {
            self.state.step(Step::Pause);
        }
    }

    /// Has octets reported or read if they are `wanted`, and not otherwise.
    pub(super) fn settle(
        &mut self,
        nic: &mut Nic,
        lane: &mut Lane,
        reactor: &mut Reactor,
        wanted: Wanted,
    ) -> Heat {
        match (self.state, wanted) {
            (State::Off, Wanted::Yes) if reactor.receives() => self.cool(nic, lane, reactor),
            (State::Off, Wanted::Yes) => {
                // Epoll reports only octets that come later.
                self.heat(nic);
                return Heat::Gained;
            }
            (State::Hot, Wanted::No) => {
                self.state.step(Step::Stop);
                return Heat::Lost;
            }
            (State::Armed, Wanted::No) if reactor.receives() => {
                if reactor.pause(lane.qp()).is_ok() {
                    self.state.step(Step::Pause);
                } else {
                    lane.unsettle(nic);
                }
            }
            (State::Armed, Wanted::No) => self.state.step(Step::Stop),
            _ => {}
        }
        Heat::Kept
    }

    /// Notes that the reactor reports no more. Returns whether it was asked to stop.
    pub(super) fn on_receive_over(&mut self) -> bool {
        let was_pausing = self.state == State::Pausing;
        self.state.step(Step::Stop);
        was_pausing
    }

    /// Notes that the input of the socket has ended.
    pub(super) fn end(&mut self) {
        self.state.step(Step::End);
        debug_assert!(self.is_over(), "the reactor has stopped before");
    }

    /// Notes that octets came with the reactor's news.
    pub(super) const fn on_received(&mut self) {
        self.streak = self.streak.saturating_add(1);
    }

    /// Notes what reading the hot connection in a poll has found.
    pub(super) const fn on_read(&mut self, found: Found) {
        self.streak = match found {
            Found::Nothing => self.streak.saturating_add(1),
            Found::All | Found::Some => 0,
        };
    }

    /// Notes what reading the connection for messages without Receives has found.
    #[inline]
    pub(super) const fn on_looked(&mut self, found: Found) {
        self.looked = Some(found);
    }

    /// Leaves the next message, and all that come in the next `rounds` rounds, to polls.
    pub(super) const fn back_off(&mut self, rounds: u8) {
        (self.looked, self.backoff) = (None, rounds);
    }

    /// Returns what reading the connection since the last poll has found, if it was read.
    pub(super) const fn take_looked(&mut self) -> Option<Found> {
        self.looked.take()
    }

    /// Returns whether the connection may be read for messages without Receives. During a backoff it may not, and one
    /// round of the backoff is over.
    #[inline]
    pub(super) fn may_look(&mut self) -> bool {
        if self.backoff > 0 {
            self.backoff -= 1;
            return false;
        }
        self.is_hot()
    }

    /// Returns whether the connection was read since the last poll.
    pub(super) const fn has_looked(&self) -> bool {
        self.looked.is_some()
    }

    /// Returns whether reading the connection since the last poll has left octets in its socket, perhaps.
    pub(super) fn has_left_some(&self) -> bool {
        self.looked == Some(Found::Some)
    }

    /// Returns whether the socket is read at every poll.
    #[inline]
    pub(super) fn is_hot(&self) -> bool {
        self.state == State::Hot
    }

    /// Returns whether the socket is read at every poll, and more than this many in a row have found nothing.
    pub(super) fn is_idle(&self, polls: u32) -> bool {
        self.is_hot() && self.streak > polls
    }

    /// Returns whether octets have come with the reactor's news at least this many times in a row.
    pub(super) const fn is_busy(&self, receives: u32) -> bool {
        self.streak >= receives
    }

    /// Returns whether the socket has nothing more for us.
    pub(super) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Returns whether no request of the reactor concerns the socket's input.
    pub(super) const fn is_off(&self) -> bool {
        matches!(self.state, State::Off | State::Over)
    }
}

#[cfg(test)]
impl Intake {
    /// Ends a backoff at once.
    pub(super) const fn end_backoff(&mut self) {
        self.backoff = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 5] = [State::Off, State::Armed, State::Pausing, State::Hot, State::Over];
    const STEPS: [Step; 5] = [Step::Arm, Step::Pause, Step::Heat, Step::Stop, Step::End];

    const MATRIX: &str = "
        Arm     Pause   Heat    Stop    End
Off     Armed   -       Hot     -       Over
Armed   -       Pausing Hot     Off     -
Pausing -       -       -       Off     -
Hot     Armed   -       -       Off     Over
Over    -       -       -       -       -
";

    #[test]
    fn the_whole_table_is_as_reviewed() {
        let row = |head: String, cells: Vec<String>| {
            let cells: String = cells.iter().map(|cell| format!("{cell:<8}")).collect();
            format!("{head:<8}{cells}").trim_end().to_owned() + "\n"
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
