use std::collections::VecDeque;
use std::string::String;
use std::vec::Vec;
use std::{format, vec};

use super::*;
use crate::v2::host_auth::Progress as AuthProgress;

/// Says so many octets in each of its turns, and takes as many as it was told to expect.
///
/// Its octets count up, so one that is lost, doubled or out of order is noticed.
#[derive(Debug)]
struct Talker {
    turns: VecDeque<usize>,
    said: usize,
    taken: usize,
    expected: usize,
    /// Messages after which it is never satisfied again.
    patience: usize,
    /// The messages heard: each one's speaker, whether it was a FINAL, and the properties.
    heard: Vec<u8>,
}

impl Talker {
    fn new(turns: &[usize], theirs: &[usize]) -> Self {
        let (turns, expected) = (turns.iter().copied().collect(), theirs.iter().sum());
        Self { turns, said: 0, taken: 0, expected, patience: usize::MAX, heard: Vec::new() }
    }

    fn progress(&self) -> AuthProgress {
        if self.turns.len() > 1 || self.patience == 0 {
            AuthProgress::More
        } else {
            AuthProgress::Done
        }
    }
}

fn octet(index: usize) -> u8 {
    u8::try_from(index % 251).unwrap()
}

impl Authenticator for Talker {
    fn bind(&mut self, _: Role, _: u32, _: &[u8], _: &[u8]) {}

    fn hear(&mut self, from: Role, kind: ConnPropKind, properties: &[u8]) {
        let last = kind == ConnPropKind::Final;
        self.heard.extend([u8::from(from == Role::Client), u8::from(last)]);
        self.heard.extend(properties);
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<AuthProgress, Refused> {
        let turn = self.turns.pop_front().unwrap_or_default();
        out.extend((self.said..self.said + turn).map(octet));
        self.said += turn;
        Ok(self.progress())
    }

    fn receive(&mut self, octets: &[u8]) -> Result<AuthProgress, Refused> {
        if octets.iter().enumerate().any(|(at, &found)| found != octet(self.taken + at)) {
            return Err(Refused::Malformed);
        }
        self.taken += octets.len();
        self.patience = self.patience.saturating_sub(1);
        Ok(self.progress())
    }

    fn peer(&self) -> Option<&[u8]> {
        (self.taken == self.expected).then_some(&self.heard[..])
    }
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

/// Two ends that exchange property sets, and what was said.
struct Pair {
    ends: [Setup; 2],
    /// The messages sent: the end that sent each one, whether it was a FINAL, and its octets with the header.
    said: Vec<(usize, bool, usize)>,
    grants: usize,
}

impl Pair {
    fn new() -> Self {
        let end = |role, segment_count_max| {
            let ours = Properties { segment_count_max, ..Properties::default() };
            Setup::new(role, &ours)
        };
        let ends = [end(Role::Client, 40), end(Role::Server, 50)];
        Self { ends, said: Vec::new(), grants: 0 }
    }

    fn authenticate(&mut self, at: usize, policy: Policy, turns: &[usize], theirs: &[usize]) {
        self.ends[at].authenticate(policy, Box::new(Talker::new(turns, theirs)));
    }

    /// Lets the two ends talk until both fall silent.
    fn run(&mut self) -> Result<(), (usize, Fault)> {
        let mut turn = (CLIENT, self.ends[CLIENT].on_event(Event::Start));
        assert_eq!(self.ends[SERVER].on_event(Event::Start), SetupAction::Nothing);
        loop {
            let (at, answer) = turn;
            let peer = 1 - at;
            let next = match answer {
                SetupAction::Speak => {
                    let kind = self.ends[at].speak().map_err(|fault| (at, fault))?;
                    let message = self.ends[at].message().to_vec();
                    self.said.push((
                        at,
                        kind == ConnPropKind::Final,
                        message.len() + Prefix::WIRE_LEN,
                    ));
                    let set = PropertySet::decode(&mut Reader::new(&message)).unwrap();
                    self.ends[peer].on_properties(kind, &set).map_err(|fault| (peer, fault))?
                }
                SetupAction::Grant => {
                    self.grants += 1;
                    self.ends[peer].on_event(Event::Grant)
                }
                SetupAction::Nothing => return Ok(()),
                SetupAction::OutOfPlace => panic!("the two ends take turns"),
            };
            turn = (peer, next);
        }
    }

    fn is_over(&self) -> [bool; 2] {
        [self.ends[CLIENT].is_over(), self.ends[SERVER].is_over()]
    }

    fn check_sizes(&self) {
        for (index, &(_, _, length)) in self.said.iter().enumerate() {
            assert!(length <= if index == 0 { 1024 } else { 4096 }, "message {index}: {length}");
        }
    }
}

#[test]
fn properties_take_one_message_each_way() {
    let mut pair = Pair::new();
    assert!(!pair.ends[SERVER].has_begun());
    pair.run().unwrap();
    assert_eq!(pair.said, [(CLIENT, true, 80), (SERVER, true, 80)]);
    assert_eq!(pair.is_over(), [true; 2]);
    assert_eq!(pair.ends[CLIENT].theirs().segment_count_max, 50);
    assert_eq!(pair.ends[SERVER].theirs().segment_count_max, 40);
    assert_eq!((pair.ends[CLIENT].peer(), pair.ends[SERVER].peer()), (None, None));
}

#[test]
fn what_one_message_cannot_hold_takes_several_in_turns() {
    let mut pair = Pair::new();
    assert!(!pair.ends[CLIENT].announce(1000, &[0; PROPERTY_MAX + 1]));
    for which in 1000..1030 {
        assert!(pair.ends[CLIENT].announce(which, &[7; PROPERTY_MAX - 3]));
    }
    pair.run().unwrap();
    pair.check_sizes();
    assert_eq!(pair.is_over(), [true; 2]);
    // The server's first answer has all its properties; from then on its grants carry the credit.
    let server: Vec<_> = pair.said.iter().filter(|said| said.0 == SERVER).collect();
    assert_eq!(server.len(), 1);
    assert!(pair.grants > 3);
    let lasts: Vec<_> = pair.said.iter().filter(|said| said.0 == CLIENT).map(|s| s.1).collect();
    assert_eq!(lasts.iter().position(|&last| last), Some(lasts.len() - 1), "the FINAL is the last");
    let octets: usize = pair.said.iter().filter(|s| s.0 == CLIENT).map(|s| s.2 - HEADER_LEN).sum();
    assert_eq!(octets, 60 + 30 * (8 + 512), "all of it, once");
}

#[test]
fn a_server_with_more_to_say_than_its_client_goes_on_at_its_grants() {
    let mut pair = Pair::new();
    for which in 1000..1016 {
        assert!(pair.ends[SERVER].announce(which, &[7; PROPERTY_MAX]));
    }
    pair.run().unwrap();
    let expected = [(CLIENT, true), (SERVER, false), (SERVER, false), (SERVER, true)];
    assert_eq!(pair.said.iter().map(|s| (s.0, s.1)).collect::<Vec<_>>(), expected);
    assert_eq!((pair.grants, pair.is_over()), (2, [true; 2]));
    pair.check_sizes();
}

#[test]
fn properties_add_up_over_messages() {
    let mut setup = Setup::new(Role::Server, &Properties::default());
    let mut take = |kind, which, data: &[u8]| {
        let mut message = vec![0, 0, 0, 1];
        push_property(&mut message, which, data);
        let set = PropertySet::decode(&mut Reader::new(&message)).unwrap();
        setup.on_properties(kind, &set).unwrap();
        *setup.theirs()
    };
    let default = Properties::default();
    let first = take(ConnPropKind::Middle, 1, &[0, 0, 16, 1]);
    assert_eq!(first, Properties { send_size_max: 4097, ..default });
    let second = take(ConnPropKind::Middle, 4, &[0, 0, 0, 3]);
    assert_eq!(second, Properties { send_size_max: 4097, segment_count_max: 3, ..default });
    // An absent value stands for the default; an unknown property changes nothing.
    assert_eq!(take(ConnPropKind::Middle, 1, &[]), Properties { segment_count_max: 3, ..default });
    let last = take(ConnPropKind::Final, 99, &[1, 2, 3]);
    assert_eq!(last, Properties { segment_count_max: 3, ..default });
}

#[test]
fn both_ends_authenticate_over_as_many_messages_as_it_takes() {
    let cases: [(&str, &[usize], &[usize]); 7] = [
        ("three messages", &[32, 64], &[96, 0]),
        ("nothing at first", &[0, 64], &[96, 0]),
        ("five messages", &[32, 32, 64], &[96, 96, 0]),
        ("a long first message", &[3000, 64], &[96, 0]),
        ("a long answer", &[32, 64, 0, 0, 0], &[12_000, 0]),
        ("both long", &[9_000, 64], &[12_000, 0]),
        ("the longest", &[OCTETS - 64, 64], &[OCTETS, 0]),
    ];
    for (name, client, server) in cases {
        let mut pair = Pair::new();
        pair.authenticate(CLIENT, Policy::Required, client, server);
        pair.authenticate(SERVER, Policy::Required, server, client);
        assert!(pair.ends[CLIENT].is_required());
        assert_eq!(pair.ends[CLIENT].peer(), None);
        assert_eq!(pair.run(), Ok(()), "{name}");
        pair.check_sizes();
        assert_eq!(pair.is_over(), [true; 2], "{name}");
        let heard = pair.ends.each_ref().map(|end| end.peer().expect(name).to_vec());
        assert_eq!(heard[CLIENT], heard[SERVER], "{name}: the same in the same order");
    }
}

/// The most octets of one direction.
const OCTETS: usize = 64 << 10;

#[test]
fn policies_meet_as_the_table_says() {
    use Policy::{Off, Optional, Required};
    let refused = |at| Err((at, Fault::Unauthenticated));
    let cases = [
        (Off, Off, Ok(false)),
        (Off, Optional, Ok(false)),
        (Off, Required, refused(SERVER)),
        (Optional, Off, Ok(false)),
        (Optional, Optional, Ok(true)),
        (Optional, Required, Ok(true)),
        (Required, Off, refused(CLIENT)),
        (Required, Optional, Ok(true)),
        (Required, Required, Ok(true)),
    ];
    for (client, server, expected) in cases {
        let mut pair = Pair::new();
        pair.authenticate(CLIENT, client, &[32, 64], &[96, 0]);
        pair.authenticate(SERVER, server, &[96, 0], &[32, 64]);
        let outcome = pair.run().map(|()| pair.ends[CLIENT].peer().is_some());
        assert_eq!(outcome, expected, "client {client:?}, server {server:?}");
        if let Ok(authenticated) = expected {
            assert_eq!(pair.is_over(), [true; 2], "client {client:?}, server {server:?}");
            assert_eq!(pair.ends[SERVER].peer().is_some(), authenticated);
        }
    }
}

#[test]
fn a_final_before_the_proof_ends_the_connection() {
    // The client has said all that it has to say; the server still waits for more.
    let mut pair = Pair::new();
    pair.authenticate(CLIENT, Policy::Optional, &[32, 64], &[96, 0]);
    pair.authenticate(SERVER, Policy::Optional, &[96, 0, 0, 0], &[32, 64]);
    assert_eq!(pair.run(), Err((SERVER, Fault::Refused(Refused::Unfinished))));

    // Both ends have said all that they have to say; the client waited for more than the server's last message.
    let mut pair = Pair::new();
    let mut client = Talker::new(&[32, 64], &[96, 0]);
    client.patience = 2;
    pair.ends[CLIENT].authenticate(Policy::Optional, Box::new(client));
    pair.authenticate(SERVER, Policy::Optional, &[96, 0], &[32, 64]);
    assert_eq!(pair.run(), Err((CLIENT, Fault::Refused(Refused::Unfinished))));
}

#[test]
fn what_an_authenticator_refuses_ends_the_connection() {
    let mut pair = Pair::new();
    pair.authenticate(CLIENT, Policy::Optional, &[32, 64], &[96, 0]);
    let mut other = Talker::new(&[96, 0], &[32, 64]);
    other.taken = 1;
    pair.ends[SERVER].authenticate(Policy::Optional, Box::new(other));
    assert_eq!(pair.run(), Err((SERVER, Fault::Refused(Refused::Malformed))));
}

#[test]
fn authentication_is_bounded() {
    let mut pair = Pair::new();
    pair.authenticate(CLIENT, Policy::Optional, &[OCTETS + 1, 0], &[0, 0]);
    pair.authenticate(SERVER, Policy::Optional, &[0, 0], &[0]);
    assert_eq!(pair.run(), Err((CLIENT, Fault::TooLong)), "what we say at once");

    let turns = [OCTETS / 2, OCTETS / 2 + 1, 0];
    let mut pair = Pair::new();
    pair.authenticate(CLIENT, Policy::Optional, &turns, &[0; 90]);
    pair.authenticate(SERVER, Policy::Optional, &[0; 90], &turns);
    assert_eq!(pair.run(), Err((SERVER, Fault::TooLong)), "what the peer says in all");

    let mut pair = Pair::new();
    pair.authenticate(CLIENT, Policy::Optional, &[0, 5000], &[0, 0]);
    pair.authenticate(SERVER, Policy::Optional, &[0, 0], &[0, 5000]);
    assert_eq!(pair.run(), Err((CLIENT, Fault::TooLong)), "a FINAL holds no more");

    let mut pair = Pair::new();
    pair.authenticate(CLIENT, Policy::Optional, &[0; 200], &[0; 200]);
    pair.authenticate(SERVER, Policy::Optional, &[0; 200], &[0; 200]);
    assert_eq!(pair.run(), Err((SERVER, Fault::TooLong)), "messages without end");
}

/// What each event comes to in every state: our side and the peer's, the peer's new side, the answer.
const TABLE: &str = "\
ours   theirs Start          Middle         Final          Grant          Other
Silent Silent Silent Speak   Middle Speak   Final Speak    Silent Nothing Silent Nothing
Silent Middle Middle Nothing Middle Speak   Final Speak    Middle Nothing Middle OutOfPlace
Silent Final  Final Nothing  Final OutOfPlace Final OutOfPlace Final Nothing  Final Nothing
Middle Silent Silent Nothing Middle Speak   Final Speak    Silent Nothing Silent Nothing
Middle Middle Middle Nothing Middle Speak   Final Speak    Middle Nothing Middle OutOfPlace
Middle Final  Final Nothing  Final OutOfPlace Final OutOfPlace Final Speak    Final Nothing
Final  Silent Silent Nothing Middle Grant   Final Nothing  Silent Nothing Silent Nothing
Final  Middle Middle Nothing Middle Grant   Final Nothing  Middle Nothing Middle OutOfPlace
Final  Final  Final Nothing  Final OutOfPlace Final OutOfPlace Final Nothing  Final Nothing
";

#[test]
fn every_event_meets_every_state_as_the_table_says() {
    const EVENTS: [Event; 5] =
        [Event::Start, Event::Middle, Event::Final, Event::Grant, Event::Other];
    const SIDES: [Side; 3] = [Side::Silent, Side::Middle, Side::Final];
    let mut table = String::from("ours   theirs");
    for event in EVENTS {
        table.push_str(&format!(" {:<14}", format!("{event:?}")));
    }
    table.truncate(table.trim_end().len());
    table.push('\n');
    for (ours, theirs) in SIDES.iter().flat_map(|ours| SIDES.iter().map(move |t| (*ours, *t))) {
        let mut line = format!("{:<6} {:<6}", format!("{ours:?}"), format!("{theirs:?}"));
        for event in EVENTS {
            let (side, answer) = Progress { ours, theirs }.on(Role::Client, event);
            line.push_str(&format!(" {:<14}", format!("{side:?} {answer:?}")));
            // A server differs in one thing.
            let server = Progress { ours, theirs }.on(Role::Server, event);
            let expected =
                if event == Event::Start { (theirs, SetupAction::Nothing) } else { (side, answer) };
            assert_eq!(server, expected);
        }
        table.push_str(line.trim_end());
        table.push('\n');
    }
    assert_eq!(table, TABLE, "\n{table}");
}
