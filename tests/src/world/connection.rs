//! A connection in the world: its two ends, and the actions possible at either.

use haulage_proto::negotiate::Input;
use haulage_proto::time::Instant;
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::properties::REVERSE_NONE;

use super::choices::Choices;
use super::exercise::{Exercise, Sizes};
use super::fabric::{Link, Traits};
use super::peer::{Peer, Tag};
use super::settings::Settings;

/// Two ends and the link between them.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) link: Link<Tag>,
    pub(super) ends: [Peer; 2],
    /// Number of Calls that each end will still make.
    to_call: [usize; 2],
    /// Number of times that each end will still change the credits it grants.
    to_resize: [usize; 2],
}

impl Connection {
    pub(super) fn draw(choices: &mut Choices) -> Self {
        let settings = Settings::draw(choices);
        let traits = Traits { eager: choices.one_in(2), reads_max: choices.of(1..=8) };
        let sizes = settings.each_ref().map(|end| end.properties.receive_buffer_size as usize);
        let mut link = Link::new(traits, sizes);
        let [client, server] = settings;
        let ends = [
            Peer::new(client.clone(), &server, link.end(CLIENT)),
            Peer::new(server, &client, link.end(1 - CLIENT)),
        ];
        Self { link, ends, to_call: [0; 2], to_resize: [0, 0].map(|_| choices.below(6)) }
    }

    /// Adds a Call to be made by the end `at`, or by the client if the server may make none.
    pub(super) fn add_call(&mut self, at: usize) {
        let client = &self.ends[CLIENT].line.settings;
        let serves = at == CLIENT || client.properties.reverse != REVERSE_NONE;
        self.to_call[if serves { at } else { CLIENT }] += 1;
    }

    pub(super) fn establish(&mut self, now: Instant) {
        for (at, end) in self.ends.iter_mut().enumerate() {
            end.tell(now, self.link.end(at), Input::Established);
        }
    }

    /// Returns the number of Calls that are not made or have not ended.
    pub(super) fn left(&self) -> usize {
        let open: u32 = self.ends.iter().map(|end| end.requester.in_use()).sum();
        self.to_call.iter().sum::<usize>() + open as usize
    }

    /// Takes one of the actions possible on this connection. Returns whether there was one.
    pub(super) fn step(&mut self, now: Instant, choices: &mut Choices) -> bool {
        let mut possible = [(0, Action::Idle); 2 * ACTIONS.len()];
        let mut count = 0;
        for at in [0, 1] {
            for action in ACTIONS {
                if self.may(now, at, action) {
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

    fn may(&mut self, now: Instant, at: usize, action: Action) -> bool {
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
            Action::Deadline => end.line.engine.poll_deadline().is_some_and(|at| at <= now),
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
                let exercise = Exercise::draw(choices, end.procedures(), SIZES);
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
            Action::Deadline => end.tell(now, link.end(at), Input::Deadline),
        }
    }

    pub(super) fn check_home(&mut self) {
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

/// An action of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// The next work request is carried out.
    Transmit,
    /// The next message, Write or Read on its way arrives.
    Arrive,
    /// Octets of a Read arrive.
    Respond,
    /// The end takes the completion of a work request.
    Complete,
    /// The end takes a message.
    Receive,
    /// The end posts Receives again.
    Repost,
    /// The application makes a Call.
    Call,
    /// The service carries out a Call.
    Serve,
    /// The end sends a Call that waited.
    SendCall,
    /// The end sends a Reply that waited.
    SendReply,
    /// The connection is told that nothing more happens for now.
    Idle,
    /// The end changes the credits it grants.
    Resize,
    /// The connection's deadline has passed.
    Deadline,
}

const ACTIONS: [Action; 13] = [
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
    Action::Deadline,
];

const CLIENT: usize = 0;

const SIZES: Sizes = Sizes { item_max: 300_000, rest_max: 60_000 };
