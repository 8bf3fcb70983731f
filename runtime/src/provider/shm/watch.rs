//! When rings are read, and when sockets are listened to.
//!
//! # Normal operation
//!
//! The rings of hot connections are read in every poll. The sockets, which announce doorbells, newcomers and ends, cost
//! a system call: they are listened to when nothing else happens, and now and then when much does, more often if a peer
//! may ring. No doorbell rings while every peer is hot.

use std::time::Duration;

use haulage_proto::time::Instant;
use haulage_proto::verbs::QpNum;

use super::connection::{Connection, Cooled};
use super::inflow::Share;
use super::names::{LISTENERS, WAKER};
use super::state::Shm;
use crate::provider::base::ListenerId;
use crate::provider::{Event, MessageSink};
use crate::sys::barrier;
use crate::sys::bus_error;
use crate::sys::epoll::Ready;

impl Shm {
    /// Reads the rings of the hot connections; returns whether anything happened.
    #[inline]
    pub(super) fn read_hot(&mut self, events: &mut Vec<Event<ListenerId>>, limit: usize) -> bool {
        let count = self.hot.len();
        // Every poll begins with another connection, or a busy one would use up the budget of the others.
        let mut moved = self.round.taken > 0;
        self.turn = if self.turn < count { self.turn } else { 0 };
        let mut at = self.turn;
        self.turn += 1;
        for _ in 0..count {
            let Some(&qp) = self.hot.get(at) else { break };
            at = if at + 1 < count { at + 1 } else { 0 };
            let Some(connection) = self.slots.get(qp) else { continue };
            moved |= connection.go_on(&mut self.nic);
            if connection.read_ring(&mut self.nic, events, limit) {
                self.nic.counters.receive_batches += 1;
                moved = true;
            }
            if events.len() >= limit {
                break;
            }
        }
        self.round.begin(self.turn, count);
        moved
    }

    /// Ends the connections whose shared memory lost pages.
    #[cold]
    pub(super) fn end_broken(&mut self) {
        self.faults_seen = bus_error::faults();
        for connection in self.slots.iter_mut() {
            connection.end_if_broken(&mut self.nic);
        }
    }

    /// Takes messages without Receives from the hot connections, each of which is asked once in a `Round`.
    #[inline]
    pub(super) fn take_in_place(
        &mut self,
        room: &mut [u8],
        length_max: usize,
        budget: usize,
        sink: &mut impl MessageSink,
    ) -> usize {
        // Messages that lie in Receives and are not yet reported come before these.
        if self.nic.has_reports() {
            return 0;
        }
        let mut taken = 0;
        let is_only = self.hot.len() == 1;
        while self.round.left > 0 {
            let qp = self.hot.get(self.round.at).copied();
            if let Some(connection) = qp.and_then(|qp| self.slots.get(qp)) {
                let share = Share { budget: budget - taken, length_max, is_only };
                taken += connection.take_in_place(&mut self.nic, room, share, sink);
            }
            if taken == budget {
                break;
            }
            self.round.go_on(self.hot.len());
        }
        self.round.taken += taken;
        taken
    }

    /// Does the work that need not be done in every poll.
    #[inline(never)]
    pub(super) fn do_chores(&mut self) {
        self.chores_at = self.nic.now.saturating_add(LOOK_IDLE);
        if self.is_time_to_look() {
            self.look(Some(Duration::ZERO));
            if self.hot.len() > HOT_MAX {
                self.cool(|connection, now| {
                    connection.is_idle() && connection.silence(now) >= COOL_AFTER
                });
            }
        }
        self.check_progress();
        self.fire_deadlines();
        self.sweep();
        self.resume_listeners();
    }

    /// Returns whether it is time to listen to the sockets, which costs a system call.
    fn is_time_to_look(&self) -> bool {
        let since = self.nic.now.saturating_since(self.looked);
        if self.nic.now.saturating_since(self.moved) >= IDLE_AFTER {
            return since >= LOOK_IDLE;
        }
        let all_hot = self.hot.len() == self.slots.in_use();
        let listening = self.listeners.is_any_open();
        let listens = listening || self.hot.len() > 1;
        match (all_hot, listens) {
            (false, _) => since >= LOOK_BUSY,
            (true, true) => since >= LOOK_RARELY,
            // Every peer is hot, and none can ring.
            (true, false) => false,
        }
    }

    /// Listens to the sockets for at most `limit` and handles their events.
    pub(super) fn look(&mut self, limit: Option<Duration>) {
        self.nic.counters.syscalls += 1;
        self.looked = self.nic.now;
        let mut news = std::mem::take(&mut self.news);
        news.extend(self.epoll.wait(limit));
        for ready in news.drain(..) {
            self.on_ready(ready);
        }
        self.news = news;
        for qp in std::mem::take(&mut self.connecting) {
            self.go_on_connecting(qp);
        }
    }

    fn on_ready(&mut self, Ready { token, readable, .. }: Ready) {
        if token == WAKER {
            self.woken |= readable;
        } else if token >= LISTENERS {
            let listener = u16::try_from(token - LISTENERS).unwrap_or(u16::MAX);
            self.listeners.announce(ListenerId(listener));
        } else if readable {
            let slot = u16::try_from(token & 0xffff).unwrap_or_default();
            let generation = u16::try_from(token >> 16 & 0xffff).unwrap_or_default();
            self.on_readable(QpNum::new(slot, generation));
        }
    }

    fn on_readable(&mut self, qp: QpNum) {
        let Some(connection) = self.slots.get(qp) else { return self.read_handshake(qp) };
        connection.on_readable(&mut self.nic);
        self.heat(qp);
    }

    /// Has a connection's ring read in every poll from now on.
    pub(super) fn heat(&mut self, qp: QpNum) {
        let Some(connection) = self.slots.get(qp) else { return };
        if connection.warm(self.nic.now) {
            self.hot.push(qp);
        }
    }

    /// Heats the connections that cooled while there was no Receive for them.
    pub(super) fn feed_starved(&mut self) {
        while let Some(qp) = self.starved.pop() {
            if let Some(connection) = self.slots.get(qp) {
                connection.unlist();
                self.heat(qp);
            }
        }
    }

    /// Asks the peer of every hot connection that `may_cool` accepts for a doorbell; returns whether all are silent, so
    /// that a doorbell will ring for any message.
    fn cool(&mut self, may_cool: impl Fn(&Connection, Instant) -> bool) -> bool {
        let now = self.nic.now;
        let (slots, nic) = (&mut self.slots, &mut self.nic);
        let mut asked = false;
        for &qp in &self.hot {
            let Some(connection) = slots.get(qp) else { continue };
            asked |= may_cool(connection, now) && connection.ask_for_doorbell();
        }
        if asked {
            nic.counters.syscalls += 1;
            barrier::heavy();
        }
        let (mut silent, starved) = (true, &mut self.starved);
        self.hot.retain(|&qp| {
            let Some(connection) = slots.get(qp) else { return false };
            if !may_cool(connection, now) {
                silent = false;
                return true;
            }
            match connection.cool(nic) {
                Cooled::Silent => {}
                Cooled::Starved => starved.push(qp),
                Cooled::Not => {
                    silent = false;
                    return true;
                }
                Cooled::Ended => return true,
            }
            false
        });
        silent
    }

    /// Sleeps until something may have happened, at most `limit`. Does not sleep when memory of a peer lost pages: the
    /// next poll ends its connection.
    pub(super) fn rest(&mut self, limit: Option<Duration>) {
        if std::mem::take(&mut self.woken) {
            return self.waker.clear();
        }
        let has_work = self.nic.has_reports() || !self.nic.closed.is_empty();
        if has_work || self.listeners.is_any_waiting() || self.is_fault_new() {
            return;
        }
        let idle = |connection: &Connection, _| connection.is_idle();
        // Nothing announces room in a ring: check for it again.
        let retry = Some(limit.unwrap_or(RETRY).min(RETRY));
        let sleeps = match self.cool(idle) {
            true => Some(limit),
            false if self.may_any_go_on() => None,
            false => Some(retry),
        };
        // The rings were read since the last poll, and may have lost pages.
        if let Some(limit) = sleeps.filter(|_| !self.is_fault_new()) {
            self.look(limit);
        }
        if std::mem::take(&mut self.woken) {
            self.waker.clear();
        }
    }

    /// Returns whether memory lost pages since the last poll looked.
    fn is_fault_new(&self) -> bool {
        bus_error::faults() != self.faults_seen
    }

    /// Returns whether the next poll is likely to do something for a hot connection.
    fn may_any_go_on(&mut self) -> bool {
        let (slots, nic) = (&mut self.slots, &self.nic);
        self.hot.iter().any(|&qp| slots.get(qp).is_some_and(|c| c.may_go_on(nic)))
    }

    fn fire_deadlines(&mut self) {
        let Self { nic, slots, handshakes, .. } = self;
        while let Some((deadline, qp)) = nic.deadlines.pop(nic.now) {
            if let Some(connection) = slots.get(qp) {
                connection.on_deadline(nic, deadline);
            } else if let Some(handshake) = handshakes.get_mut(&qp) {
                handshake.on_deadline(nic, deadline);
            }
        }
    }

    /// Ends connections whose peers make no progress.
    fn check_progress(&mut self) {
        while let Some(qp) = self.nic.watches.pop(self.nic.now) {
            if let Some(connection) = self.slots.get(qp) {
                connection.check_progress(&mut self.nic);
            }
        }
    }

    /// Frees quarantined connections whose peers are done, and the slots of closed ones.
    pub(super) fn sweep(&mut self) {
        if !self.nic.quarantined.is_empty() {
            let mut quarantined = std::mem::take(&mut self.nic.quarantined);
            quarantined.retain(|&qp| {
                self.slots.get(qp).is_some_and(|connection| !connection.try_release(&mut self.nic))
            });
            self.nic.quarantined.append(&mut quarantined);
        }
        if self.nic.closed.is_empty() {
            return;
        }
        for qp in std::mem::take(&mut self.nic.closed) {
            self.handshakes.remove(&qp);
            self.slots.remove(qp);
        }
        let slots = &mut self.slots;
        self.hot.retain(|&qp| slots.get(qp).is_some_and(|connection| connection.is_hot()));
    }
}

/// The number of hot connections beyond which silent ones ask for a doorbell: reading a ring costs a few nanoseconds.
pub(super) const HOT_MAX: usize = 64;
/// The time for which a connection is silent before it asks for a doorbell.
const COOL_AFTER: Duration = Duration::from_millis(1);
/// The time without events after which we count as idle.
const IDLE_AFTER: Duration = Duration::from_micros(20);
/// The interval at which sockets are listened to while idle.
const LOOK_IDLE: Duration = Duration::from_micros(20);
/// The interval while busy, when a doorbell may ring or a connection is being set up.
const LOOK_BUSY: Duration = Duration::from_micros(100);
/// The interval while busy, when the sockets can only announce newcomers and ends.
const LOOK_RARELY: Duration = Duration::from_millis(10);
/// The interval at which events that nothing announces are checked for.
pub(super) const RETRY: Duration = Duration::from_millis(1);
