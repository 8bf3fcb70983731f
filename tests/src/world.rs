//! Two ends of each connection that exchange random RPCs in a world where everything may be late.
//!
//! Every connection has two [`Connection`](haulage_proto::v2::connection::Connection)s, one at each
//! end, with a Requester and a Responder above each. A step is anything that can happen next at one
//! of the ends; which one happens is drawn from [`choices`]. What a step does is checked while it
//! happens: by the [`fabric`], which refuses what an RNIC would refuse; by [`memory`], which is not
//! read while a peer can reach it; by the [`ledger`], which counts credits; by the [`exercise`], whose
//! every octet is known. At the end nothing may be left of anything.
//!
//! - [`choices`]: every decision, from a seed or a fuzzer.
//! - [`exercise`]: the RPC program both ends speak.
//! - [`fabric`]: queue pairs whose every step is chosen.
//! - [`ledger`]: what credit words allow.
//! - [`memory`]: blocks that are read only while nobody else may touch them.
//! - [`peer`]: one end of a connection.
//! - [`settings`]: how it behaves.

pub mod choices;
pub mod exercise;
pub mod fabric;
pub mod ledger;
pub mod memory;
pub mod peer;
pub mod settings;

use std::time::Duration;

use haulage_proto::time::Instant;
use haulage_proto::v2::connection::Input;
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::properties::REVERSE_NONE;

use choices::Choices;
use exercise::{ECHO, Exercise, ONCE, SWAP, Sizes, TELL};
use fabric::{Link, Traits};
use peer::{Peer, Tag};
use settings::Settings;

/// Connections, and what is still to be done on them.
#[derive(Debug)]
pub struct World {
    choices: Choices,
    now: Instant,
    connections: Vec<Connection>,
    steps: usize,
}

/// What came of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// RPCs that ended as they should.
    pub well: usize,
    /// RPCs that were planned again after a refusal.
    pub again: usize,
    /// RPCs that ended with a refusal.
    pub refused: usize,
    /// Calls in each format: simple, continued, special.
    pub calls: [usize; 3],
    /// Replies in each format.
    pub replies: [usize; 3],
    /// Steps it took.
    pub steps: usize,
}

/// Two ends and what is between them.
#[derive(Debug)]
struct Connection {
    link: Link<Tag>,
    ends: [Peer; 2],
    /// Calls that each end will still make.
    to_call: [usize; 2],
    /// How often each end will still change the credits it gives.
    to_resize: [usize; 2],
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
            report.add(connection);
        }
        report
    }

    /// Does one of the things that can happen. Returns whether there was one.
    fn step(&mut self) -> bool {
        self.now = self.now.saturating_add(Duration::from_nanos(1));
        let first = self.choices.below(self.connections.len());
        let (before, from) = self.connections.split_at_mut(first);
        let mut connections = from.iter_mut().chain(before);
        connections.any(|connection| connection.step(self.now, &mut self.choices))
    }
}

/// What can happen at one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// The next work request is carried out.
    Transmit,
    /// The next of what is on its way arrives.
    Arrive,
    /// Octets of a Read arrive.
    Respond,
    /// The end learns that a work request has ended.
    Complete,
    /// The end takes a message.
    Receive,
    /// Receives are posted again.
    Repost,
    /// The application makes a Call.
    Call,
    /// The service carries out a Call.
    Serve,
    /// A Call is sent that waited.
    SendCall,
    /// A Reply is sent that waited.
    SendReply,
    /// The connection learns that nothing more happens.
    Idle,
    /// The end decides to give more credits or fewer.
    Resize,
}

const ACTIONS: [Action; 12] = [
    Action::Transmit,
    Action::Arrive,
    Action::Respond,
    Action::Complete,
    Action::Receive,
    Action::Repost,
    Action::Call,
    Action::Serve,
    Action::SendCall,
    Action::SendReply,
    Action::Idle,
    Action::Resize,
];

impl Connection {
    fn draw(choices: &mut Choices) -> Self {
        let settings = Settings::draw(choices);
        let traits = Traits { eager: choices.one_in(2), reads_max: choices.of(1..=8) };
        let sizes = settings.each_ref().map(|end| end.properties.receive_buffer_size as usize);
        let mut link = Link::new(traits, sizes);
        let stingy = settings.each_ref().map(|end| end.is_stingy);
        let mut at = 0;
        let ends = settings.map(|settings| {
            let mut end = Peer::new(settings, link.end(at));
            end.line.may_refuse = stingy[1 - at];
            at += 1;
            end
        });
        Self { link, ends, to_call: [0; 2], to_resize: [0, 0].map(|_| choices.below(6)) }
    }

    /// Lets an end make one Call more; its peer makes it if this one may make none.
    fn add_call(&mut self, at: usize) {
        let client = &self.ends[CLIENT].line.settings;
        let serves = at == CLIENT || client.properties.reverse != REVERSE_NONE;
        self.to_call[if serves { at } else { CLIENT }] += 1;
    }

    fn establish(&mut self, now: Instant) {
        for (at, end) in self.ends.iter_mut().enumerate() {
            end.tell(now, self.link.end(at), Input::Established);
        }
    }

    /// Returns how many Calls are to be made or to be ended.
    fn left(&self) -> usize {
        let open: u32 = self.ends.iter().map(|end| end.requester.in_use()).sum();
        self.to_call.iter().sum::<usize>() + open as usize
    }

    /// Does one of the things that can happen here. Returns whether there was one.
    fn step(&mut self, now: Instant, choices: &mut Choices) -> bool {
        let mut possible = [(0, Action::Idle); 2 * ACTIONS.len()];
        let mut count = 0;
        for at in [0, 1] {
            for action in ACTIONS {
                if self.may(at, action) {
                    possible[count] = (at, action);
                    count += 1;
                }
            }
        }
        if count > 0 {
            let (at, action) = possible[choices.below(count)];
            self.act(now, choices, at, action);
        }
        count > 0
    }

    fn may(&mut self, at: usize, action: Action) -> bool {
        let end = &self.ends[at];
        match action {
            Action::Transmit => self.link.may_transmit(at),
            Action::Arrive => self.link.may_arrive(at),
            Action::Respond => self.link.end(at).may_respond(),
            Action::Complete => self.link.end(at).may_complete(),
            Action::Receive => self.link.end(at).may_receive(),
            Action::Repost => end.free_receives() > 0,
            Action::Call => self.to_call[at] > 0 && end.requester.has_slot() && end.line.may_call(),
            Action::Serve => end.responder.is_ready(),
            Action::SendCall => end.may_send(Kind::Call),
            Action::SendReply => end.may_send(Kind::Reply),
            Action::Idle => end.is_restless(),
            Action::Resize => self.to_resize[at] > 0,
        }
    }

    fn act(&mut self, now: Instant, choices: &mut Choices, at: usize, action: Action) {
        let (end, link) = (&mut self.ends[at], &mut self.link);
        match action {
            Action::Transmit => assert!(link.transmit(at)),
            Action::Arrive => assert!(link.arrive(at)),
            Action::Respond => assert!(link.end(at).respond()),
            Action::Complete => end.complete(link.end(at)),
            Action::Receive => end.receive(now, link.end(at), choices),
            Action::Repost => {
                let count = choices.of(1..=end.free_receives());
                end.repost(link.end(at), count);
            }
            Action::Call => {
                let exercise =
                    Exercise::draw(choices, &[ECHO, SWAP, SWAP, SWAP, ONCE, TELL], SIZES);
                if end.requester.call(&end.line, choices, exercise) {
                    self.to_call[at] -= 1;
                }
            }
            Action::Serve => end.serve(link.end(at), choices),
            Action::SendCall => end.send(link.end(at), choices, Kind::Call),
            Action::SendReply => end.send(link.end(at), choices, Kind::Reply),
            Action::Idle => end.idle(now, link.end(at)),
            Action::Resize => {
                self.to_resize[at] -= 1;
                end.resize(choices);
            }
        }
    }

    fn check_home(&mut self) {
        assert_eq!(
            self.left(),
            0,
            "RPCs wait for ever: {:#?}",
            self.ends.each_ref().map(Peer::state)
        );
        assert!(self.link.is_quiet(), "work requests wait for ever");
        for (at, end) in self.ends.iter().enumerate() {
            end.check_home(self.link.end(at));
        }
    }
}

impl Report {
    fn add(&mut self, connection: &Connection) {
        for end in &connection.ends {
            let ended = &end.requester.ended;
            self.well += ended.well;
            self.again += ended.again;
            self.refused += ended.refused;
            for n in 0..3 {
                self.calls[n] += ended.formats[n];
                self.replies[n] += ended.reply_formats[n];
            }
        }
    }

    /// Adds up two runs.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.well += other.well;
        self.again += other.again;
        self.refused += other.refused;
        self.steps += other.steps;
        for n in 0..3 {
            self.calls[n] += other.calls[n];
            self.replies[n] += other.replies[n];
        }
        self
    }
}

const CLIENT: usize = 0;

const SIZES: Sizes = Sizes { item_max: 300_000, rest_max: 60_000 };

/// More than any Call takes, its share of everything else included.
const STEPS_PER_CALL: usize = 4000;
