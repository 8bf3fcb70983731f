//! Two ends of each connection that exchange random RPCs in a world where everything may be late.
//!
//! Every connection has two [`Connection`](haulage_proto::negotiate::Connection)s, one at each
//! end, with a Requester and a Responder above each. They speak version 2 or version 1, which they
//! begin with, remember or fall back to; the opt-in profile of RFC 5666 is not among what they do. A
//! step is anything that can happen next at one of the ends; which one happens is drawn from
//! [`choices`]. What a step does is checked while it
//! happens: by the [`fabric`], which refuses what an RNIC would refuse; by [`memory`], which is not
//! read while a peer can reach it; by the [`ledger`], which counts credits; by the [`exercise`], whose
//! every octet is known. At the end nothing may be left of anything.
//!
//! - [`choices`]: every decision, from a seed or a fuzzer.
//! - `connection`: two ends, and what can happen next at either.
//! - [`exercise`]: the RPC program both ends speak.
//! - [`fabric`]: queue pairs whose every step is chosen.
//! - [`ledger`]: what credit words allow.
//! - [`memory`]: blocks that are read only while nobody else may touch them.
//! - [`mix`]: what of all this happened.
//! - [`peer`]: one end of a connection.
//! - [`settings`]: how it behaves.

pub mod choices;
mod connection;
pub mod exercise;
pub mod fabric;
pub mod ledger;
pub mod memory;
pub mod mix;
pub mod peer;
pub mod settings;

use std::fmt;
use std::time::Duration;

use haulage_proto::negotiate::Input;
use haulage_proto::time::Instant;

use choices::Choices;
use connection::Connection;
use mix::Mix;

/// Connections, and what is still to be done on them.
#[derive(Debug)]
pub struct World {
    choices: Choices,
    now: Instant,
    connections: Vec<Connection>,
    steps: usize,
}

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What happened.
    pub mix: Mix,
    /// Steps it took.
    pub steps: usize,
}

impl World {
    /// Makes a world of a few connections that will make about `rpcs` Calls.
    pub fn new(mut choices: Choices, rpcs: usize) -> Self {
        let count = choices.of(1..=3);
        let mut connections: Vec<_> = (0..count).map(|_| Connection::draw(&mut choices)).collect();
        for _ in 0..rpcs {
            let connection = choices.below(count);
            connections[connection].add_call(choices.below(2));
        }
        Self { choices, now: Instant::ZERO, connections, steps: 0 }
    }

    /// Runs until nothing can happen any more, and checks that nothing is left.
    ///
    /// # Panics
    /// If any end does what it must not, or if something can never be done.
    pub fn run(mut self) -> Report {
        for connection in &mut self.connections {
            connection.establish(self.now);
        }
        let steps_max =
            STEPS_PER_CALL * (100 + self.connections.iter().map(Connection::left).sum::<usize>());
        while self.step() {
            self.steps += 1;
            assert!(self.steps < steps_max, "there is no end to it");
        }
        let mut report = Report { steps: self.steps, ..Report::default() };
        for connection in &mut self.connections {
            connection.check_home();
            let [client, server] = &connection.ends;
            let opening = client.line.settings.opening;
            report.mix.add(opening, &client.requester.tally, &server.requester.tally);
        }
        report
    }

    /// Does one of the things that can happen. Returns whether there was one.
    fn step(&mut self) -> bool {
        self.now = self.now.saturating_add(Duration::from_nanos(1));
        let first = self.choices.below(self.connections.len());
        let (before, from) = self.connections.split_at_mut(first);
        let mut connections = from.iter_mut().chain(before);
        connections.any(|connection| connection.step(self.now, &mut self.choices)) || self.wait()
    }

    /// Lets time pass until the next deadline, if there is one. Nothing else can happen.
    fn wait(&mut self) -> bool {
        let ends = self.connections.iter().enumerate().flat_map(|(n, connection)| {
            let ends = connection.ends.iter().enumerate();
            ends.filter_map(move |(at, end)| Some((end.line.engine.poll_deadline()?, n, at)))
        });
        let Some((deadline, n, at)) = ends.min() else { return false };
        self.now = self.now.max(deadline);
        let connection = &mut self.connections[n];
        connection.ends[at].tell(self.now, connection.link.end(at), Input::Deadline);
        true
    }
}

impl Report {
    /// Adds up two runs.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.steps += other.steps;
        self.mix.join(&other.mix);
        self
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{} steps", self.mix, self.steps)
    }
}

/// More than any Call takes, its share of everything else included.
const STEPS_PER_CALL: usize = 4000;
