//! The stages of a poll, and sleeping: reading hot connections, taking news, continuing and ending connections.

use std::time::Duration;

use haulage_proto::verbs::QpNum;

use super::contention::HOT_MAX;
use super::inflow::StreamEnd;
use super::intake::{Found, Heat};
use super::reactor::{News, Over};
use super::state::Iwarp;
use crate::provider::base::ListenerId;

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
        let busy = reported || left || fed || roomy || self.listeners.is_any_waiting();
        if self.woken {
            self.woken = false;
            self.waker.clear();
            // Ask again for the waker's news; the next sleep would not end otherwise.
            let _ = self.reactor.woken_again(self.waker.fd());
        } else if !busy {
            for qp in self.hot.drain(..) {
                if let Some(connection) = self.slots.get(qp) {
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
            let Some(connection) = self.slots.get(qp).filter(|c| c.is_hot()) else {
                self.hot.swap_remove(at);
                continue;
            };
            match connection.look(&mut self.nic) {
                Found::Nothing => {}
                Found::All => self.contention.found(),
                Found::Some => {
                    self.contention.found();
                    self.unread = true;
                }
            }
            // With many busy connections, the reactor tells which.
            let idle_max = if is_contended { 0 } else { IDLE_MAX };
            if connection.cool_if_idle(&mut self.nic, &mut self.reactor, idle_max) {
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
                    connection.on_received(&mut self.nic, self.reactor.bytes(&filled));
                    self.contention.heard(qp);
                    if !more {
                        self.on_receive_over(qp, Over::Paused);
                    } else if self.hot.len() < HOT_MAX && !self.contention.is_high() {
                        // Few connections are busy, so this one becomes hot if it is.
                        connection.pause_if_busy(&mut self.reactor, STREAK_MIN);
                    }
                } else if self.handshakes.get(qp).is_some() {
                    let Self { handshakes, slots, nic, reactor, .. } = self;
                    handshakes.feed(slots, nic, qp, reactor.bytes(&filled));
                    self.contention.heard(qp);
                    if !more {
                        self.on_receive_over(qp, Over::Paused);
                    }
                }
                self.reactor.give_back(filled);
            }
            News::ReceiveOver { qp, why } => self.on_receive_over(qp, why),
            News::Readable(qp) => {
                if let Some(connection) = self.slots.get(qp) {
                    if connection.on_readable(&mut self.nic) {
                        self.hot.push(qp);
                    }
                    self.unread = true;
                } else {
                    self.read_handshake(qp);
                }
            }
            News::Writable(qp) => {
                if let Some(connection) = self.slots.get(qp) {
                    connection.on_writable(&mut self.nic);
                } else if let Some(handshake) = self.handshakes.get(qp) {
                    handshake.on_writable(&mut self.nic);
                }
            }
            News::Acceptable(listener) => self.listeners.announce(ListenerId(listener)),
            News::Woken => self.woken = true,
        }
    }

    /// Reads the socket of a handshake, if epoll reports its octets.
    pub(super) fn read_handshake(&mut self, qp: QpNum) {
        if self.reactor.receives() {
            return;
        }
        let Self { handshakes, slots, nic, .. } = self;
        let mut scratch = std::mem::take(&mut nic.scratch);
        for _ in 0..READS_PER_NEWS {
            let Some(handshake) = handshakes.get(qp).filter(|one| one.wants_input()) else { break };
            match handshake.read(nic, &mut scratch) {
                Ok(None) => break,
                Ok(Some(0)) | Err(_) => {
                    handshake.on_input_end(nic);
                    break;
                }
                Ok(Some(count)) => {
                    handshakes.feed(slots, nic, qp, scratch.get(..count).unwrap_or_default());
                }
            }
        }
        nic.scratch = scratch;
    }

    fn on_receive_over(&mut self, qp: QpNum, why: Over) {
        let Some(connection) = self.slots.get(qp) else {
            let Some(handshake) = self.handshakes.get(qp) else { return };
            handshake.on_receive_over(&mut self.nic);
            if matches!(why, Over::End | Over::Failed) {
                handshake.on_input_end(&mut self.nic);
            }
            return;
        };
        let end = match why {
            Over::End => Some(StreamEnd::Orderly),
            Over::Failed => Some(StreamEnd::Lost),
            Over::Paused => None,
        };
        let room = HOT_MAX.saturating_sub(self.hot.len());
        if connection.on_receive_over(&mut self.nic, end, room) {
            self.hot.push(qp);
        }
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
                connection.on_registrations(&mut self.nic);
            }
        }
    }

    fn fire_deadlines(&mut self) {
        let Self { nic, slots, handshakes, .. } = self;
        while let Some((deadline, qp)) = nic.deadlines.pop(nic.now) {
            if let Some(connection) = slots.get(qp) {
                connection.on_deadline(nic, deadline);
            } else if let Some(handshake) = handshakes.get(qp) {
                handshake.on_deadline(nic, deadline);
            }
        }
        if self.accept_retry.is_some_and(|retry| retry <= self.nic.now) {
            self.accept_retry = None;
            self.listeners.resume();
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
        let Some(connection) = self.slots.get(qp) else { return self.settle_handshake(qp) };
        match connection.settle(&mut self.nic, &mut self.reactor) {
            Heat::Gained => self.hot.push(qp),
            Heat::Lost => self.hot.retain(|hot| *hot != qp),
            Heat::Kept => {}
        }
        if connection.is_closed() {
            self.release(qp);
        }
    }

    fn settle_handshake(&mut self, qp: QpNum) {
        let Some(handshake) = self.handshakes.get(qp) else { return };
        handshake.settle(&mut self.nic, &mut self.reactor);
        if handshake.is_closed() && handshake.is_released() {
            self.handshakes.remove(qp);
            self.free(qp);
        }
    }

    /// Frees the slot of a closed connection, once the ring holds no request of it.
    fn release(&mut self, qp: QpNum) {
        if self.slots.get(qp).is_some_and(|connection| connection.is_released()) {
            self.free(qp);
        }
    }

    fn free(&mut self, qp: QpNum) {
        self.slots.remove(qp);
        self.listeners.resume();
    }
}

/// Times a handshake's socket is read when epoll has reported octets.
const READS_PER_NEWS: u32 = 16;
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
