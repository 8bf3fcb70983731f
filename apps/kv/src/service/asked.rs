//! What a core counts, and what it tells clients and other cores of that.

use haulage::core::{CoreNumber, Cx};
use haulage::pool::Step;
use haulage::service::{CallToken, Outcome, Reply};
use haulage::sys::process;

use super::leases::Value;
use super::others::{Others, Post, Told, What};
use super::{KvService, copied_system, copied_user};
use crate::figures::Figures;
use crate::protocol::watch::State;
use crate::protocol::{Answer, Procedure};
use crate::stat::{CoreStat, Stat};

impl KvService {
    /// Answers for all cores, now if this one is alone.
    pub(super) fn answer_for_all(
        &mut self,
        cx: &Cx<'_>,
        (what, token): (What, CallToken),
        reply: &mut Reply,
    ) -> Outcome {
        let own = self.told(cx, what);
        let told = match &mut self.others {
            Some(others) => others.ask(token, what, own),
            None => Some(own),
        };
        match told {
            Some(told) => self.tell(told, reply),
            None => Outcome::Later,
        }
    }

    /// Returns what this core counts.
    fn told(&self, cx: &Cx<'_>, what: What) -> Told {
        match what {
            What::Stat => Told::Stat(self.stat(cx).into()),
            What::Figures => Told::Figures(Figures::of(cx).into()),
        }
    }

    /// Answers a Call by what all cores count.
    pub(super) fn tell(&self, told: Told, reply: &mut Reply) -> Outcome {
        match told {
            Told::Stat(mut stat) => {
                stat.value_bytes_max = self.value_bytes_max(stat.value_bytes, stat.usable_bytes);
                let answer = Answer::Stat(*stat);
                reply.results(|w| answer.encode(Procedure::Stat, w));
            }
            Told::Figures(figures) => reply.results(|w| figures.encode(w)),
        }
        Outcome::Done
    }

    /// Takes in what other cores have sent. Returns whether there was anything, or something is left to do.
    pub(super) fn hear(&mut self, cx: &mut Cx<'_>) -> bool {
        let mut worked = false;
        // Calls that wait for memory have looked at it earlier in this turn.
        self.others.iter_mut().for_each(Others::forget_answer);
        self.others.iter_mut().for_each(|others| others.forget_gone(cx));
        for _ in 0..POSTS_PER_TURN {
            let next = self.others.as_mut().and_then(|others| others.next(cx));
            let Some((from, post)) = next else { break };
            worked = true;
            match post {
                Post::Asks(number, what) => {
                    let told = self.told(cx, what);
                    if let Some(others) = &mut self.others {
                        others.answer(from, number, told);
                    }
                }
                Post::Answers(number, told) => {
                    if let Some(others) = &mut self.others {
                        others.take_in(cx, number, told);
                    }
                }
                Post::Wants => {
                    if let Some(others) = &mut self.others {
                        others.owe(from);
                    }
                }
                Post::Gave(octets) => {
                    if let Some(others) = &mut self.others {
                        others.take_given(octets);
                    }
                }
                Post::Changed(key) => {
                    let set = |value: &Value| State::Set { length: value.len() };
                    let state = self.index.get(&key).map_or(State::Deleted, set);
                    self.watches.changed(&key, state);
                }
            }
        }
        worked |= self.repay(cx);
        let Some(others) = &mut self.others else { return worked };
        if others.has_missed() {
            self.watches.lose_all();
        }
        others.show_watches(self.watches.len());
        others.show(self.index.balance(), self.value_bytes);
        worked | others.send()
    }

    /// Gives memory to the cores that want some: what is free, and what becomes free as keys and values are moved. Returns whether
    /// there are any.
    fn repay(&mut self, cx: &Cx<'_>) -> bool {
        if !self.others.as_ref().is_some_and(Others::owes) {
            return false;
        }
        let passes = self.index.pass();
        let mut given = cx.pool().give_back(0);
        let moves =
            given == 0 && self.mover.step(cx.pool(), &mut self.index, usize::MAX) == Step::More;
        if moves {
            given = cx.pool().give_back(0);
        }
        // What was replaced, or moved, is free once other cores have turned.
        if (given > 0 || !passes && !moves)
            && let Some(others) = &mut self.others
        {
            others.give(given);
        }
        true
    }

    fn stat(&self, cx: &Cx<'_>) -> Stat {
        if !self.is_alone() {
            cx.pool().collect();
        }
        let gauges = cx.gauges();
        let moved = cx.moved();
        let (census, lost) = (cx.census(), moved.newcomers);
        // Receives are always posted, so that they do not count as leases of a connection.
        let posted = gauges.posted.saturating_sub(cx.receives_posted() as u64);
        let resident = process::resident().map_or(0, |resident| resident.total());
        // Those of other cores are added at their places.
        let own = self.others.as_ref().map_or(CoreNumber::FIRST, Others::core);
        let mut per_core = vec![CoreStat::default(); own.get().into()];
        per_core.push(CoreStat {
            keys: self.index.balance(),
            gets: self.answered.hits + self.answered.misses,
            connections: u64::from(cx.connections()),
        });
        let mut stat = Stat {
            shards: 1,
            keys: self.index.balance().cast_unsigned(),
            value_bytes: self.value_bytes,
            memory_bytes: self.memory,
            resident_bytes: resident,
            connection_bytes: cx.connection_bytes() as u64,
            connections: u64::from(cx.connections()),
            leases_local: gauges.local,
            leases_shared: gauges.shared,
            leases_posted: posted,
            leases_exposed: gauges.exposed,
            registrations: gauges.exposed,
            orphans: gauges.orphans,
            invalidations_remote: moved.invalidated_remote,
            invalidations_local: moved.invalidated_local,
            copied_user: copied_user(moved)
                + cx.counters().bytes_unreduced
                + cx.counters().bytes_along,
            copied_system: copied_system(moved),
            connections_held: u64::from(census.connections_held),
            leases_held: census.leases_held as u64,
            handshakes_closed: lost.closed,
            handshakes_malformed: lost.malformed,
            handshakes_timed_out: lost.timed_out,
            handshakes_crowded_out: lost.crowded_out,
            handshakes_forbidden: lost.forbidden,
            accepts_descriptors: lost.accepts.descriptors,
            accepts_memory: lost.accepts.memory,
            accepts_other: lost.accepts.other,
            usable_bytes: self.usable_bytes(cx),
            usable_unmoved_bytes: self.unmoved_bytes(cx),
            moved_bytes: self.moved_bytes(),
            keys_max: self.keys_max(),
            watches: self.watches_count(),
            hits: self.answered.hits,
            misses: self.answered.misses,
            refused: self.answered.refused(),
            per_core,
            ..Stat::default()
        };
        stat.set_pages(cx.pages());
        stat
    }
}

/// Posts of other cores that one turn takes in, at most.
const POSTS_PER_TURN: usize = 64;
