//! Reading the socket, and having the reactor report what it holds.
//!
//! When much payload may follow, little else is read with a header, so that little has to be copied.
//!
//! # Limits
//!
//! A connection is read for at most [`OCTETS_PER_POLL`] at a time.

use super::Connection;
use crate::provider::base::ConnectionState;
use crate::provider::iwarp::inflow::{Read, StreamEnd};
use crate::provider::iwarp::intake::{Found, Heat, Wanted};
use crate::provider::iwarp::nic::Nic;
use crate::provider::iwarp::reactor::Reactor;

impl Connection {
    /// Reads the hot connection, unless it was read since the last poll. Returns what that has found.
    pub(in crate::provider::iwarp) fn look(&mut self, nic: &mut Nic) -> Found {
        let looked = self.intake.take_looked();
        let found = looked.unwrap_or_else(|| self.read(nic));
        self.intake.on_read(found);
        found
    }

    /// Has the reactor report the connection's octets, if it is hot and more than this many polls in a row have found
    /// nothing. Returns whether it does.
    pub(in crate::provider::iwarp) fn cool_if_idle(
        &mut self,
        nic: &mut Nic,
        reactor: &mut Reactor,
        polls: u32,
    ) -> bool {
        let is_idle = self.intake.is_idle(polls);
        if is_idle {
            self.intake.cool(nic, self.life.lane_mut(), reactor);
        }
        is_idle
    }

    /// Has the reactor report the connection's octets, if it is hot.
    pub(in crate::provider::iwarp) fn cool(&mut self, nic: &mut Nic, reactor: &mut Reactor) {
        if self.intake.is_hot() {
            self.intake.cool(nic, self.life.lane_mut(), reactor);
        }
    }

    /// Begins to make the connection hot, if octets were reported at least this many times in a row, or many are to
    /// come.
    pub(in crate::provider::iwarp) fn pause_if_busy(
        &mut self,
        reactor: &mut Reactor,
        receives: u32,
    ) {
        let is_busy = self.intake.is_busy(receives) || self.expects_much();
        if is_busy && self.life.is_open() {
            self.intake.pause_if_armed(self.life.lane_mut(), reactor);
        }
    }

    /// Makes the connection hot, as epoll has reported octets. Returns whether it has become so.
    pub(in crate::provider::iwarp) fn on_readable(&mut self, nic: &mut Nic) -> bool {
        self.intake.heat_if_armed(nic)
    }

    /// Handles the end of the reactor's reports: of all input, if there is an `end`. A connection that was to become hot
    /// does so if `room`, the number of connections that may become hot, is not zero. Returns whether it has.
    pub(in crate::provider::iwarp) fn on_receive_over(
        &mut self,
        nic: &mut Nic,
        end: Option<StreamEnd>,
        room: usize,
    ) -> bool {
        let was_pausing = self.intake.on_receive_over();
        let is_hot = match end {
            Some(end) => {
                self.on_input_end(nic, end);
                false
            }
            None => was_pausing && room > 0 && self.wants_input(),
        };
        if is_hot {
            self.intake.heat(nic);
        }
        self.life.unsettle(nic);
        is_hot
    }

    /// Sends what can be sent, and has the connection wait for what it wants. Returns what that does to the list of hot
    /// connections.
    pub(in crate::provider::iwarp) fn settle(
        &mut self,
        nic: &mut Nic,
        reactor: &mut Reactor,
    ) -> Heat {
        self.life.begin_settling();
        self.pump(nic);
        let wanted = if self.wants_input() { Wanted::Yes } else { Wanted::No };
        let heat = self.intake.settle(nic, self.life.lane_mut(), reactor, wanted);
        self.outflow.await_room(nic, &mut self.life, reactor);
        heat
    }

    /// Returns whether the slot of the closed connection may be freed, since the ring holds no request of it.
    pub(in crate::provider::iwarp) fn is_released(&self) -> bool {
        if self.outflow.is_room_awaited() {
            // Completes a ring request that waits on the socket; `Writable` comes back to us.
            self.life.socket().shutdown();
        }
        self.intake.is_off() && !self.outflow.is_room_awaited()
    }

    /// Returns whether the socket is read at every poll.
    #[inline]
    pub(in crate::provider::iwarp) fn is_hot(&self) -> bool {
        self.intake.is_hot()
    }

    /// Handles the end of the socket's input.
    pub(super) fn on_input_end(&mut self, nic: &mut Nic, end: StreamEnd) {
        self.intake.end();
        self.life.unsettle(nic);
        self.on_stream_end(nic, end);
    }

    /// Reads the socket until it is empty, or enough octets have come.
    fn read(&mut self, nic: &mut Nic) -> Found {
        let mut total = 0;
        while self.intake.is_hot()
            && !self.inflow.is_starved()
            && self.life.state() != ConnectionState::Closed
        {
            if self.inflow.is_throttled() {
                return Found::Some;
            }
            let (result, wanted) = if self.expects_much() {
                self.read_into_place(nic)
            } else {
                self.read_scratch(nic)
            };
            match result {
                Ok(None) => return if total == 0 { Found::Nothing } else { Found::All },
                Ok(Some(0)) => {
                    self.on_input_end(nic, StreamEnd::Orderly);
                    return Found::All;
                }
                Ok(Some(count)) => {
                    total += count;
                    // A short read has emptied the socket.
                    if count < wanted && !self.inflow.is_throttled() {
                        return Found::All;
                    }
                    if total >= OCTETS_PER_POLL {
                        return Found::Some;
                    }
                }
                Err(_) => {
                    self.on_input_end(nic, StreamEnd::Lost);
                    return Found::All;
                }
            }
        }
        Found::All
    }

    /// Receives payload into its place, and the next header behind it.
    fn read_into_place(&mut self, nic: &mut Nic) -> Read {
        let mut scratch = std::mem::take(&mut nic.scratch);
        let read = match self.inflow.read_into_place(nic, &self.life, &mut scratch) {
            Ok((read, behind)) => {
                self.on_octets(nic, scratch.get(..behind).unwrap_or_default());
                read
            }
            Err(fault) => {
                self.fail(nic, fault);
                (Ok(None), 0)
            }
        };
        nic.scratch = scratch;
        read
    }

    fn read_scratch(&mut self, nic: &mut Nic) -> Read {
        let mut scratch = std::mem::take(&mut nic.scratch);
        let wanted = self.inflow.read_ahead().min(scratch.len());
        nic.counters.syscalls += 1;
        let result = self.life.socket().receive(scratch.get_mut(..wanted).unwrap_or_default());
        if let Ok(Some(count)) = result {
            self.on_octets(nic, scratch.get(..count).unwrap_or_default());
        }
        nic.scratch = scratch;
        (result, wanted)
    }

    /// Returns whether enough payload is to come to receive it into its place.
    fn expects_much(&self) -> bool {
        self.life.state().receives() && self.inflow.expects_much()
    }

    /// Returns whether octets should be read or awaited.
    fn wants_input(&self) -> bool {
        let state = self.life.state();
        // A hot connection is read only when it has no backlog.
        let waits = self.inflow.is_starved() || self.inflow.is_throttled() && !self.intake.is_hot();
        state != ConnectionState::Closed && !waits && !self.intake.is_over()
    }
}

/// Octets read from a connection in one poll, before others have their turn.
const OCTETS_PER_POLL: usize = 2 << 20;
