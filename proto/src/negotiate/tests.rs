use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::testing::Xdr;
use crate::v1::connection::{CallLimits, Reverse};

const CLIENT: usize = 0;
const SERVER: usize = 1;
const FIRST_XID: u32 = 0x2bad_cafe;

/// Which versions an end has.
#[derive(Clone, Copy, PartialEq)]
enum Has {
    One,
    Two,
    Both,
}

/// One connection, the messages on their way to it, and what it asked for.
struct End {
    connection: Connection,
    inbox: VecDeque<Vec<u8>>,
    events: Vec<Event>,
    posted: Vec<Vec<u8>>,
    closed: Option<CloseReason>,
}

struct Pair {
    ends: [End; 2],
    now: Instant,
}

fn config(role: Role, has: Has) -> Config {
    let one = v1::connection::Config {
        role,
        credits_wanted: 8,
        credits_max: 4,
        calls: CallLimits { read_chunks_max: 1, write_chunks_max: 1, segments_max: 4 },
        reverse: Reverse::None,
        profile: None,
    };
    let two = v2::connection::Config::new(role, FIRST_XID);
    Config {
        one: (has != Has::Two).then_some(one),
        two: (has != Has::One).then_some(two),
        auth: Policy::Off,
    }
}

impl Pair {
    fn of(client: Config, server: Config, remembered: Remembered) -> Self {
        let end = |config, remembered| {
            let mut connection = Connection::new(config, remembered).unwrap();
            connection.reserve(8);
            let (events, posted) = (Vec::new(), Vec::new());
            End { connection, inbox: VecDeque::new(), events, posted, closed: None }
        };
        let ends = [end(client, remembered), end(server, Remembered::Nothing)];
        let mut pair = Self { ends, now: Instant::ZERO };
        pair.handle(SERVER, Input::Established);
        pair.handle(CLIENT, Input::Established);
        pair
    }

    fn new(client: Has, server: Has) -> Self {
        let (client, server) = (config(Role::Client, client), config(Role::Server, server));
        Self::of(client, server, Remembered::Nothing)
    }

    fn handle(&mut self, at: usize, input: Input<'_>) {
        self.ends[at].connection.handle(self.now, input);
        self.drain(at);
    }

    fn drain(&mut self, at: usize) {
        while let Some(output) = self.ends[at].connection.poll() {
            assert_eq!(self.ends[at].closed, None, "{output:?} after the close");
            match output {
                Output::Post(control) => {
                    let connection = &self.ends[at].connection;
                    let bytes = written(|w| connection.encode(&control, w));
                    self.post(at, bytes);
                }
                Output::Event(event) => {
                    let is_unsupported =
                        matches!(event, Event::One(v1::connection::Event::Unsupported { .. }));
                    if is_unsupported || matches!(event, Event::Reply | Event::Refused { .. }) {
                        self.ends[at].connection.ended();
                    }
                    self.ends[at].events.push(event);
                }
                Output::Close(reason) => self.ends[at].closed = Some(reason),
            }
        }
    }

    fn post(&mut self, from: usize, bytes: Vec<u8>) {
        self.ends[from].posted.push(bytes.clone());
        self.ends[1 - from].inbox.push_back(bytes);
    }

    fn receive(&mut self, at: usize, bytes: &[u8]) {
        assert!(self.ends[at].connection.reserved() > 0, "every message finds a Receive");
        let received = self.ends[at].connection.decode(bytes);
        self.handle(at, Input::Received(&received));
        self.ends[at].connection.reserve(1);
        self.drain(at);
    }

    fn settle(&mut self) {
        for at in [SERVER, CLIENT, SERVER, CLIENT, SERVER, CLIENT] {
            while let Some(bytes) = self.ends[at].inbox.pop_front() {
                self.receive(at, &bytes);
            }
            self.handle(at, Input::Idle);
        }
    }

    fn advance(&mut self, at: usize) {
        self.now = self.ends[at].connection.poll_deadline().expect("a deadline");
        self.handle(at, Input::Deadline);
    }

    fn events(&mut self, at: usize) -> Vec<Event> {
        core::mem::take(&mut self.ends[at].events)
    }

    fn versions(&self) -> [Option<Version>; 2] {
        [CLIENT, SERVER].map(|at| self.ends[at].connection.version())
    }

    fn remembered(&self) -> Remembered {
        self.ends[CLIENT].connection.remembered()
    }

    fn send(&mut self, at: usize, class: Class, xid: u32) {
        assert!(self.ends[at].connection.may_send(class));
        let credit = self.ends[at].connection.try_send(class).unwrap();
        let mtype = u32::from(class == Class::Reply);
        let bytes = match (self.ends[at].connection.version().unwrap(), class) {
            (Version::One, _) => Xdr::common(xid, 1, credit, 0).words(&[0, 0, 0]),
            (Version::Two, Class::Call) => Xdr::common(xid, 2, credit, 10).words(&[0, 0, 0, 0]),
            (Version::Two, Class::Reply) => Xdr::common(xid, 2, credit, 13).words(&[0]),
        };
        self.post(at, bytes.words(&[xid, mtype]).0);
    }

    /// Has the client make a Call that is answered, and one that is refused.
    fn exchange(&mut self) {
        for xid in [7, 8] {
            self.send(CLIENT, Class::Call, xid);
            self.settle();
            assert_eq!(self.events(SERVER), [Event::Call]);
            assert_eq!(self.ends[SERVER].connection.owed(), 1);
            if xid == 7 {
                self.send(SERVER, Class::Reply, xid);
                self.settle();
                assert_eq!(self.events(CLIENT), [Event::Reply]);
            } else {
                self.ends[SERVER].connection.refuse(xid, v2::error::ErrorBody::BadXdr);
                self.drain(SERVER);
                self.settle();
                let error = match self.versions()[CLIENT] {
                    Some(Version::One) => Refusal::One(v1::error::ErrorBody::Chunk),
                    _ => Refusal::Two(v2::error::ErrorBody::BadXdr),
                };
                assert_eq!(self.events(CLIENT), [Event::Refused { xid, error }]);
            }
            assert_eq!(self.ends[SERVER].connection.owed(), 0);
        }
    }
}

fn written(encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>) -> Vec<u8> {
    let mut memory = vec![0; 4096];
    let mut w = Writer::new(&mut memory);
    encode(&mut w).unwrap();
    w.written().to_vec()
}

fn word(bytes: &[u8], n: usize) -> u32 {
    u32::from_be_bytes(bytes[4 * n..4 * n + 4].try_into().unwrap())
}

const UNSUPPORTED_1: CloseReason =
    CloseReason::Two(v2::connection::CloseReason::Unsupported { low: 1, high: 1 });

#[test]
fn two_ends_that_have_both_speak_version_2() {
    let mut pair = Pair::new(Has::Both, Has::Both);
    assert_eq!(pair.versions(), [None, None], "nobody has heard the other");
    assert!(!pair.ends[CLIENT].connection.may_send(Class::Call));
    pair.settle();
    for at in [CLIENT, SERVER] {
        assert_eq!(pair.events(at), [Event::Ready(Version::Two)]);
        assert_eq!(pair.ends[at].connection.version(), Some(Version::Two));
        assert!(pair.ends[at].posted.iter().all(|bytes| word(bytes, 1) == 2));
        assert_eq!(pair.ends[at].connection.poll_deadline(), None);
    }
    assert_eq!(pair.remembered(), Remembered::Nothing);
    pair.exchange();
}

#[test]
fn a_client_goes_on_with_version_1_on_the_same_connection() {
    let mut pair = Pair::new(Has::Both, Has::One);
    assert!(pair.ends[CLIENT].posted[0].len() <= 1024, "[V2-4.3-2]");
    pair.settle();
    // The server answered with an error alone, which has the XID and the version word of the client.
    let answer = Xdr::common(FIRST_XID, 2, 4, 4).words(&[1, 1, 1]).0;
    assert_eq!(pair.ends[SERVER].posted, [answer]);
    assert_eq!(pair.events(CLIENT), [Event::Ready(Version::One)]);
    assert_eq!(pair.events(SERVER), [Event::Ready(Version::One)]);
    assert_eq!(pair.versions(), [Some(Version::One); 2]);
    assert_eq!((pair.ends[CLIENT].closed, pair.ends[SERVER].closed), (None, None));
    // Should the connection be lost now, the next one does not try version 2 again.
    assert_eq!(pair.remembered(), Remembered::OnlyVersionOne);
    assert_eq!(pair.ends[CLIENT].connection.poll_deadline(), None);
    pair.exchange();
    // [V2-7.1.1-3] nothing of version 2 was sent again.
    assert!(pair.ends[CLIENT].posted[1..].iter().all(|bytes| word(bytes, 1) == 1));
}

#[test]
fn a_server_takes_up_the_version_of_the_first_message() {
    for (client, version) in [(Has::One, Version::One), (Has::Two, Version::Two)] {
        let mut pair = Pair::new(client, Has::Both);
        if client == Has::One {
            pair.events(CLIENT);
            pair.send(CLIENT, Class::Call, 6);
            pair.settle();
            assert_eq!(pair.events(SERVER), [Event::Ready(version), Event::Call]);
            pair.send(SERVER, Class::Reply, 6);
        }
        pair.settle();
        assert_eq!(pair.versions(), [Some(version); 2]);
        pair.events(CLIENT);
        pair.events(SERVER);
        pair.exchange();
        // [V2-4.3.3-1]
        let words = |bytes: &Vec<u8>| word(bytes, 1);
        let spoken = if version == Version::One { 1 } else { 2 };
        assert!(pair.ends[SERVER].posted.iter().map(words).all(|word| word == spoken));
    }
}

#[test]
fn ends_without_a_version_in_common_part() {
    let mut pair = Pair::new(Has::Two, Has::One);
    pair.settle();
    assert_eq!(pair.ends[CLIENT].closed, Some(UNSUPPORTED_1));
    let mut pair = Pair::new(Has::One, Has::Two);
    pair.send(CLIENT, Class::Call, 6);
    pair.settle();
    let reason = v1::connection::CloseReason::Unsupported { low: 2, high: 2 };
    assert_eq!(pair.ends[CLIENT].closed, Some(CloseReason::One(reason)));
    // A client does not go on with a range without version 1.
    let mut pair = Pair::new(Has::Both, Has::One);
    pair.receive(CLIENT, &Xdr::common(FIRST_XID, 2, 4, 4).words(&[1, 3, 9]).0);
    let reason = CloseReason::Neither { low: 3, high: 9 };
    assert_eq!(pair.ends[CLIENT].closed, Some(reason));
    assert!(std::format!("{reason}").ends_with("version 3 to 9, we speak 1 and 2"));
}

#[test]
fn a_refusal_may_come_in_version_1() {
    let mut pair = Pair::new(Has::Both, Has::One);
    pair.receive(CLIENT, &Xdr::common(FIRST_XID, 1, 4, 4).words(&[1, 1, 1]).0);
    assert_eq!(pair.events(CLIENT), [Event::Ready(Version::One)]);
    // Other messages of version 1 do not make a client speak version 1.
    let mut pair = Pair::new(Has::Both, Has::One);
    pair.receive(CLIENT, &Xdr::common(FIRST_XID, 1, 4, 4).words(&[2]).0);
    pair.receive(CLIENT, &Xdr::common(FIRST_XID, 1, 4, 0).words(&[0, 0, 0, FIRST_XID, 1]).0);
    assert_eq!((pair.events(CLIENT), pair.versions()[CLIENT]), (vec![], None));
}

#[test]
fn a_silent_server_is_taken_for_one_of_version_1() {
    let mut pair = Pair::new(Has::Both, Has::Both);
    pair.ends[SERVER].inbox.clear();
    assert_eq!(pair.ends[CLIENT].posted.len(), 1);
    // [V2-4.3-1] the client sends nothing else, however long the server is silent.
    for at in 1..5 {
        pair.now = Instant::from_nanos(at * 1_000_000_000);
        pair.handle(CLIENT, Input::Deadline);
        pair.handle(CLIENT, Input::Idle);
        assert_eq!(pair.ends[CLIENT].connection.try_send(Class::Call), None);
    }
    pair.advance(CLIENT);
    assert_eq!((pair.now, pair.ends[CLIENT].posted.len()), (Instant::from_nanos(5_000_000_000), 1));
    let reason = CloseReason::Two(v2::connection::CloseReason::SetupTimedOut);
    assert_eq!(pair.ends[CLIENT].closed, Some(reason));
    assert_eq!(pair.remembered(), Remembered::OnlyVersionOne);
    assert_eq!(pair.ends[CLIENT].connection.poll_deadline(), None);
    // P6: the next connection begins with version 1.
    let (client, server) = (config(Role::Client, Has::Both), config(Role::Server, Has::Both));
    let mut pair = Pair::of(client, server, pair.remembered());
    assert_eq!(pair.events(CLIENT), [Event::Ready(Version::One)]);
    assert_eq!(pair.ends[CLIENT].posted.len(), 0);
    assert_eq!(pair.remembered(), Remembered::OnlyVersionOne);
    pair.send(CLIENT, Class::Call, 6);
    pair.settle();
    assert_eq!(pair.events(SERVER), [Event::Ready(Version::One), Event::Call]);
}

#[test]
fn a_connection_lost_before_the_server_spoke_version_2_is_remembered() {
    let both = |role| config(role, Has::Both);
    let connection = Connection::new(both(Role::Client), Remembered::Nothing).unwrap();
    assert_eq!(connection.remembered(), Remembered::Nothing, "it never was a connection");
    let mut pair = Pair::new(Has::Both, Has::Both);
    assert_eq!(pair.remembered(), Remembered::OnlyVersionOne);
    pair.settle();
    assert_eq!(pair.remembered(), Remembered::Nothing);
}

#[test]
fn a_settled_version_is_not_changed() {
    let mut pair = Pair::new(Has::Both, Has::Both);
    pair.settle();
    // [V2-7.1.2-1] [V2-4.3.3-2]
    pair.receive(SERVER, &Xdr::common(9, 1, 4, 0).words(&[0, 0, 0, 9, 0]).0);
    let last = pair.ends[SERVER].posted.last().unwrap();
    assert_eq!((word(last, 0), word(last, 1), word(last, 3), word(last, 4)), (9, 1, 4, 11));
    // A refusal that comes too late is no invitation to speak version 1.
    pair.receive(CLIENT, &Xdr::common(9, 2, 4, 4).words(&[1, 1, 1]).0);
    assert_eq!(pair.ends[CLIENT].closed, Some(UNSUPPORTED_1));
    assert_eq!(pair.remembered(), Remembered::Nothing);

    let mut pair = Pair::new(Has::One, Has::Both);
    pair.send(CLIENT, Class::Call, 6);
    pair.settle();
    pair.receive(SERVER, &Xdr::common(9, 2, 4, 7).words(&[0]).0);
    assert_eq!(
        *pair.ends[SERVER].posted.last().unwrap(),
        Xdr::common(9, 2, 4, 4).words(&[1, 1, 1]).0
    );
    assert_eq!(pair.versions()[SERVER], Some(Version::One));
}

#[test]
fn a_version_nobody_has_is_told_of_both() {
    let mut pair = Pair::new(Has::One, Has::Both);
    pair.receive(SERVER, &Xdr::common(9, 77, 4, 0).0);
    let answer = &pair.ends[SERVER].posted[0];
    assert_eq!((word(answer, 1), word(answer, 3)), (77, 4));
    assert_eq!([word(answer, 4), word(answer, 5), word(answer, 6)], [1, 1, 2]);
    assert_eq!(pair.versions()[SERVER], None);
    // Version 1 may still be chosen.
    pair.events(CLIENT);
    pair.send(CLIENT, Class::Call, 6);
    pair.settle();
    assert_eq!(pair.events(SERVER), [Event::Ready(Version::One), Event::Call]);
}

#[test]
fn where_authentication_is_required_there_is_no_version_1() {
    // P9
    let required = |role, has| Config { auth: Policy::Required, ..config(role, has) };
    let none = Connection::new(required(Role::Client, Has::One), Remembered::Nothing);
    assert_eq!(none.err(), Some(NoVersion));
    // A client does not fall back, whatever it remembers.
    let server = config(Role::Server, Has::One);
    let client = required(Role::Client, Has::Both);
    let mut pair = Pair::of(client, server, Remembered::OnlyVersionOne);
    assert_eq!(word(&pair.ends[CLIENT].posted[0], 1), 2);
    pair.settle();
    assert_eq!(pair.ends[CLIENT].closed, Some(UNSUPPORTED_1));
    // A server refuses version 1.
    let server = required(Role::Server, Has::Both);
    let mut pair = Pair::of(config(Role::Client, Has::One), server, Remembered::Nothing);
    pair.send(CLIENT, Class::Call, 6);
    pair.settle();
    assert_eq!(pair.events(SERVER), []);
    let reason = v1::connection::CloseReason::Unsupported { low: 2, high: 2 };
    assert_eq!(pair.ends[CLIENT].closed, Some(CloseReason::One(reason)));
}

#[test]
fn what_only_one_version_has_is_passed_on() {
    let mut pair = Pair::new(Has::One, Has::One);
    pair.events(CLIENT);
    pair.send(CLIENT, Class::Call, 6);
    pair.receive(CLIENT, &Xdr::common(6, 1, 4, 0).words(&[0]).0);
    let malformed = v1::connection::Event::Malformed { xid: 6 };
    assert_eq!(pair.events(CLIENT), [Event::One(malformed)]);
    pair.ends[CLIENT].connection.ended();
    assert!(pair.ends[CLIENT].connection.may_send(Class::Call));
    assert!(matches!(pair.ends[SERVER].connection.engine(), Engine::One(_)));
}

#[test]
fn no_version_is_no_connection() {
    let none = Config { one: None, two: None, ..config(Role::Client, Has::Both) };
    assert_eq!(Connection::new(none, Remembered::Nothing).err(), Some(NoVersion));
}
