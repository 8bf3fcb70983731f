//! Random RPCs over connections in a world where every event may be late.
//!
//! Every connection has two [`Connection`](haulage_proto::negotiate::Connection)s, one at each end, with a Requester
//! and a Responder above each. They speak version 2 or version 1, and begin with it, remember it, or fall back to it.
//! The opt-in profile of RFC 5666 is not used. A step is one event that is possible at one of the ends, drawn from
//! [`choices`]. Each step is checked while it happens: the [`fabric`] refuses a request that an RNIC would refuse; the
//! [`memory`] is not read while a peer can reach it; the [`ledger`] counts credits; every octet of the [`exercise`] is
//! known. At the end no Call, block, handle or Receive may be left.
//!
//! - [`choices`]: every decision, from a seed or a fuzzer.
//! - `connection`: two ends, and the actions possible at either.
//! - [`exercise`]: the RPC program that both ends speak.
//! - [`fabric`]: queue pairs whose every step is chosen.
//! - [`ledger`]: a second count of credits.
//! - [`memory`]: blocks that cannot be read while the peer or a work request may use them.
//! - [`mix`]: counts of the events in a run.
//! - [`peer`]: one end of a connection.
//! - [`settings`]: the configuration of an end.

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

/// Connections, with the Calls still to be made on them.
#[derive(Debug)]
pub struct World {
    choices: Choices,
    now: Instant,
    connections: Vec<Connection>,
    steps: usize,
}

/// The outcome of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Counts of the events in the run.
    pub mix: Mix,
    /// Steps that the run took.
    pub steps: usize,
}

impl World {
    /// Builds a world of a few connections that will make about `rpcs` Calls.
    pub fn new(mut choices: Choices, rpcs: usize) -> Self {
        let count = choices.of(1..=3);
        let mut connections: Vec<_> = (0..count).map(|_| Connection::draw(&mut choices)).collect();
        for _ in 0..rpcs {
            let connection = choices.below(count);
            connections[connection].add_call(choices.below(2));
        }
        Self { choices, now: Instant::ZERO, connections, steps: 0 }
    }

    /// Runs until no action is possible any more, and checks that nothing is left.
    ///
    /// # Panics
    /// If an end breaks a rule that is checked, or if the world makes no progress.
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

    /// Takes one of the possible actions. Returns whether there was one.
    fn step(&mut self) -> bool {
        self.now = self.now.saturating_add(Duration::from_nanos(1));
        let first = self.choices.below(self.connections.len());
        let (before, from) = self.connections.split_at_mut(first);
        let mut connections = from.iter_mut().chain(before);
        connections.any(|connection| connection.step(self.now, &mut self.choices)) || self.wait()
    }

    /// Lets time pass until the next deadline, as no other action is possible. Returns whether there was a deadline.
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
    /// Adds the counts of another run.
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

/// More steps than any Call takes, its share of the other steps included.
const STEPS_PER_CALL: usize = 4000;
