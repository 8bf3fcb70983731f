//! The stages of a poll, and sleeping: reading hot connections, taking news, continuing and ending connections.

use std::time::Duration;

use haulage_proto::verbs::QpNum;

use super::connection::{Found, Intake, StreamEnd};
use super::contention::HOT_MAX;
use super::reactor::{News, Over};
use super::state::Iwarp;
use crate::provider::base::{ConnectionState, ListenerId};

impl Iwarp {
    /// Does the work of a poll, one bounded stage after the other.
    pub(super) fn advance(&mut self) {
        self.nic.polls = self.nic.polls.wrapping_add(1);
        self.resume_throttled();
        self.end_round();
        self.read_hot();
        self.take_news();
        self.resume_starved();
        self.check_progress();
        self.fire_deadlines();
        self.resume_crowded();
        self.settle_all();
    }

    /// Sleeps until something may have happened, at most `limit`; returns at once if work is left.
    pub(super) fn rest(&mut self, limit: Option<Duration>) {
        let fed = !self.nic.starved.is_empty() && !self.nic.receives.is_empty();
        let roomy = !self.nic.crowded.is_empty() && self.nic.registrations_left() > 0;
        let reported = !self.nic.reports.is_empty() || !self.nic.unsettled.is_empty();
        let left = self.unread || !self.nic.throttled.is_empty() || !self.inbox.is_empty();
        let busy = reported || left || fed || roomy;
        if self.woken {
            self.woken = false;
            self.waker.clear();
            // Ask again for the waker's news; the next sleep would not end otherwise.
            let _ = self.reactor.woken_again(self.waker.fd());
        } else if !busy {
            for qp in self.hot.drain(..) {
                if let Some(connection) = self.slots.get(qp).filter(|c| c.intake == Intake::Hot) {
                    connection.cool(&mut self.nic, &mut self.reactor);
                }
            }
            self.nic.counters.syscalls += 1;
            // An interrupted or failed wait is a short one.
            let _ = self.reactor.wait(limit);
        }
    }

    fn read_hot(&mut self) {
        self.unread = false;
        let mut at = 0;
        while let Some(&qp) = self.hot.get(at) {
            let is_contended = self.hot.len() > HOT_MAX || self.contention.is_high();
            let Some(connection) = self.slots.get(qp).filter(|c| c.intake == Intake::Hot) else {
                self.hot.swap_remove(at);
                continue;
            };
            let looked = connection.looked.take();
            match looked.unwrap_or_else(|| connection.read(&mut self.nic)) {
                Found::Nothing => connection.streak = connection.streak.saturating_add(1),
                Found::All => {
                    connection.streak = 0;
                    self.contention.found();
                }
                Found::Some => {
                    connection.streak = 0;
                    self.contention.found();
                    self.unread = true;
                }
            }
            let others_tell = is_contended && connection.streak > 0;
            if connection.intake == Intake::Hot && (connection.streak > IDLE_MAX || others_tell) {
                connection.cool(&mut self.nic, &mut self.reactor);
                self.hot.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    fn take_news(&mut self) {
        if !self.hot.is_empty()
            && !self.reactor.receives()
            && !self.nic.polls.is_multiple_of(EPOLL_EVERY)
        {
            // Asking epoll costs as much as reading a hot connection.
            return;
        }
        for _ in 0..LOOKS_PER_POLL {
            match self.reactor.look() {
                Ok(None) => return,
                Ok(Some(calls)) => self.nic.counters.syscalls += calls,
                // The only failure is a lack of kernel memory, which may pass.
                Err(_) => return,
            }
            for _ in 0..NEWS_PER_LOOK {
                let Some(news) = self.reactor.pop() else { break };
                self.on_news(news);
            }
            self.settle_all();
            if !self.reactor.receives() {
                return;
            }
        }
    }

    fn on_news(&mut self, news: News) {
        match news {
            News::Received { qp, filled, more } => {
                self.feed_inbox_of(qp);
                if let Some(connection) = self.slots.get(qp) {
                    connection.on_octets(&mut self.nic, self.reactor.bytes(&filled));
                    connection.streak = connection.streak.saturating_add(1);
                    self.contention.heard(qp);
                    if !more {
                        self.on_receive_over(qp, Over::Paused);
                    } else if self.hot.len() < HOT_MAX && !self.contention.is_high() {
                        self.consider_heating(qp);
                    }
                }
                self.reactor.give_back(filled);
            }
            News::ReceiveOver { qp, why } => self.on_receive_over(qp, why),
            News::Readable(qp) => {
                if let Some(connection) = self.slots.get(qp) {
                    if connection.intake == Intake::Armed {
                        connection.heat(&mut self.nic);
                        self.hot.push(qp);
                    }
                    self.unread = true;
                }
            }
            News::Writable(qp) => {
                if let Some(connection) = self.slots.get(qp) {
                    connection.outflow.on_writable();
                    if connection.life.state() == ConnectionState::Connecting {
                        connection.life.on_connected(&mut self.nic);
                    }
                    connection.life.unsettle(&mut self.nic);
                }
            }
            News::Acceptable(listener) => self.accept_all(ListenerId(listener)),
            News::Woken => self.woken = true,
        }
    }

    /// Makes a busy connection hot, if few are busy.
    fn consider_heating(&mut self, qp: QpNum) {
        let Some(connection) = self.slots.get(qp) else { return };
        let busy = connection.streak >= STREAK_MIN || connection.expects_much();
        if busy
            && connection.intake == Intake::Armed
            && connection.life.state() == ConnectionState::Open
        {
            connection.intake = Intake::Pausing;
            // Without room in the ring the connection stays as it is.
            if self.reactor.pause(qp).is_err() {
                connection.intake = Intake::Armed;
            }
        }
    }

    fn on_receive_over(&mut self, qp: QpNum, why: Over) {
        let Some(connection) = self.slots.get(qp) else { return };
        let paused = connection.intake == Intake::Pausing;
        connection.intake = Intake::Off;
        match why {
            Over::End => connection.on_input_end(&mut self.nic, StreamEnd::Orderly),
            Over::Failed => connection.on_input_end(&mut self.nic, StreamEnd::Lost),
            Over::Paused if paused && connection.wants_input() && self.hot.len() < HOT_MAX => {
                connection.heat(&mut self.nic);
                self.hot.push(qp);
            }
            Over::Paused => {}
        }
        connection.life.unsettle(&mut self.nic);
    }

    /// Continues with connections whose turn ended before all their octets were handled.
    fn resume_throttled(&mut self) {
        for _ in 0..self.nic.throttled.len() {
            let Some(qp) = self.nic.throttled.pop_front() else { return };
            if let Some(connection) = self.slots.get(qp) {
                connection.go_on(&mut self.nic);
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

    fn resume_starved(&mut self) {
        for _ in 0..self.nic.starved.len() {
            if self.nic.receives.is_empty() {
                return;
            }
            let Some(qp) = self.nic.starved.pop_front() else { return };
            if let Some(connection) = self.slots.get(qp) {
                connection.resume(&mut self.nic);
            }
        }
    }

    /// Settles connections whose next Read waits for a registration, no more than there is room for.
    fn resume_crowded(&mut self) {
        if self.nic.crowded.is_empty() {
            return;
        }
        for _ in 0..self.nic.registrations_left() {
            let Some(qp) = self.nic.crowded.pop_front() else { return };
            if let Some(connection) = self.slots.get(qp) {
                connection.outflow.on_registrations();
                connection.life.unsettle(&mut self.nic);
            }
        }
    }

    fn fire_deadlines(&mut self) {
        let Self { nic, slots, .. } = self;
        while let Some((deadline, qp)) = nic.deadlines.pop(nic.now) {
            let Some(connection) = slots.get(qp) else { continue };
            if connection.life.take_deadline(deadline) {
                connection.on_deadline(nic);
            }
        }
        if self.accept_retry.is_some_and(|retry| retry <= self.nic.now) {
            self.accept_retry = None;
            self.resume_listeners();
        }
    }

    /// Has every connection that asked for it send, wait for octets, or go.
    pub(super) fn settle_all(&mut self) {
        for _ in 0..self.nic.unsettled.len() {
            let Some(qp) = self.nic.unsettled.pop_front() else { return };
            self.settle(qp);
        }
    }

    fn settle(&mut self, qp: QpNum) {
        let Some(connection) = self.slots.get(qp) else { return };
        connection.life.begin_settling();
        connection.pump(&mut self.nic);
        match (connection.intake, connection.wants_input()) {
            (Intake::Off, true) if self.reactor.receives() => {
                connection.cool(&mut self.nic, &mut self.reactor);
            }
            (Intake::Off, true) => {
                // Epoll reports only octets that come later.
                connection.heat(&mut self.nic);
                self.hot.push(qp);
            }
            (Intake::Hot, false) => {
                connection.intake = Intake::Off;
                self.hot.retain(|hot| *hot != qp);
            }
            (Intake::Armed, false) if self.reactor.receives() => {
                if self.reactor.pause(qp).is_ok() {
                    connection.intake = Intake::Pausing;
                } else {
                    connection.life.unsettle(&mut self.nic);
                }
            }
            (Intake::Armed, false) => connection.intake = Intake::Off,
            _ => {}
        }
        connection.outflow.await_room(&mut self.nic, &mut connection.life, &mut self.reactor);
        if connection.life.state() == ConnectionState::Closed {
            self.release(qp);
        }
    }

    /// Frees the slot of a closed connection, once the ring holds no request of it.
    fn release(&mut self, qp: QpNum) {
        let Some(connection) = self.slots.get(qp) else { return };
        if connection.outflow.is_room_awaited() {
            // Completes a ring request that waits on the socket; `Writable` comes back to us.
            connection.life.socket().shutdown();
        }
        if connection.intake == Intake::Off && !connection.outflow.is_room_awaited() {
            self.slots.remove(qp);
            self.resume_listeners();
        }
    }
}

/// Polls in a row that found nothing, after which a connection is no longer hot.
const IDLE_MAX: u32 = 4096;
/// Receives in a row, after which a connection counts as busy.
const STREAK_MIN: u32 = 4;
/// While there are hot connections, one poll in this many asks epoll.
const EPOLL_EVERY: u32 = 8;
/// Times a poll enters the ring.
const LOOKS_PER_POLL: u32 = 2;
/// The most pieces of news taken in one look.
const NEWS_PER_LOOK: u32 = 256;
