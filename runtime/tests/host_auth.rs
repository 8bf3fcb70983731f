//! Two version 2 connections that authenticate each other with host keys during setup.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::VecDeque;

use haulage::host_auth::{HostKeys, KnownHosts, SecretKey};
use haulage::hosts::Policy;
use haulage::proto::time::Instant;
use haulage::proto::v2::connection::{CloseReason, Config, Connection, Event, Input, Output, Role};
use haulage::proto::v2::credit::Class;
use haulage::proto::v2::header::decode_transport;
use haulage::proto::v2::host_auth::Refused;
use haulage::proto::xdr::{Reader, Writer};

const CLIENT: usize = 0;
const SERVER: usize = 1;
const STRANGER: u8 = 9;

/// One connection, and what became of it.
struct End {
    connection: Connection,
    inbox: VecDeque<Vec<u8>>,
    ready: bool,
    closed: Option<CloseReason>,
}

/// How the two ends are set up.
#[derive(Clone, Copy)]
struct Scene {
    policies: [Policy; 2],
    /// The ends' own keys, and the ones they know.
    own: [u8; 2],
    known: [u8; 2],
    /// What each end takes for the private data of client and server.
    private: [[&'static [u8]; 2]; 2],
    /// The lengths of further properties of both ends.
    further: [usize; 2],
}

const SCENE: Scene = Scene {
    policies: [Policy::Required; 2],
    own: [1, 2],
    known: [2, 1],
    private: [[b"client's", b"server's"]; 2],
    further: [0; 2],
};

impl Scene {
    fn end(&self, at: usize) -> End {
        let role = [Role::Client, Role::Server][at];
        let mut connection = Connection::new(Config::new(role, 0x2bad_cafe));
        connection.reserve(8);
        let mut known = KnownHosts::default();
        known.add("peer", key(self.known[at]).public());
        let keys = HostKeys::new(key(self.own[at]), known);
        let auth = Box::new(keys.authenticator().unwrap());
        let [client, server] = self.private[at];
        for (which, length) in (0x5254_0000..).zip(self.further).filter(|(_, length)| *length > 0) {
            assert!(connection.announce(which, &vec![0; length]));
        }
        connection.authenticate(self.policies[at], auth, client, server);
        End { connection, inbox: VecDeque::new(), ready: false, closed: None }
    }

    /// Lets the ends talk until nothing is left to say, each message changed on its way by `attack`,
    /// which is told the message's number.
    fn play(&self, mut attack: impl FnMut(usize, &mut Vec<u8>)) -> [End; 2] {
        let mut ends = [self.end(CLIENT), self.end(SERVER)];
        let mut sent = 0;
        for at in [CLIENT, SERVER] {
            ends[at].connection.handle(Instant::ZERO, Input::Established);
            carry_out(&mut ends, at, &mut sent, &mut attack);
        }
        for turn in 0..40 {
            let at = turn % 2;
            let message = ends[at].inbox.pop_front();
            let end = &mut ends[at];
            match message {
                Some(message) => {
                    let decoded = decode_transport(&message);
                    end.connection.handle(Instant::ZERO, Input::Received(&decoded));
                    end.connection.reserve(1);
                }
                None => end.connection.handle(Instant::ZERO, Input::Idle),
            }
            carry_out(&mut ends, at, &mut sent, &mut attack);
        }
        assert!(ends.iter().all(|end| end.inbox.is_empty()), "they have come to an end");
        ends
    }
}

fn carry_out(
    ends: &mut [End; 2],
    at: usize,
    sent: &mut usize,
    attack: &mut impl FnMut(usize, &mut Vec<u8>),
) {
    while let Some(output) = ends[at].connection.poll() {
        match output {
            Output::Post(control) => {
                let mut memory = [0; 4096];
                let mut w = Writer::new(&mut memory);
                ends[at].connection.encode(&control, &mut w).unwrap();
                let mut message = w.written().to_vec();
                attack(*sent, &mut message);
                *sent += 1;
                if ends[1 - at].closed.is_none() {
                    ends[1 - at].inbox.push_back(message);
                }
            }
            Output::Event(Event::Ready(_)) => ends[at].ready = true,
            Output::Event(_) => {}
            Output::Close(reason) => {
                ends[at].closed = Some(reason);
                ends[1 - at].inbox.clear();
            }
        }
    }
}

impl End {
    /// Whether RPC messages pass, and whether the peer has proved who it is.
    fn state(&self) -> (bool, bool) {
        let open = self.ready && self.closed.is_none();
        assert_eq!(open, self.connection.decides(Class::Call));
        (open, self.connection.peer_identity().is_some())
    }
}

fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed(&[seed; 32])
}

fn reasons(ends: &[End; 2]) -> [Option<CloseReason>; 2] {
    [ends[CLIENT].closed, ends[SERVER].closed]
}

#[test]
fn every_pair_of_policies_comes_to_its_own_end() {
    use Policy::{Off, Optional, Required};
    let refused = Some(CloseReason::Unauthenticated);
    for (client, server, authenticated, closed) in [
        (Off, Off, false, [None, None]),
        (Off, Optional, false, [None, None]),
        (Off, Required, false, [None, refused]),
        (Optional, Off, false, [None, None]),
        (Optional, Optional, true, [None, None]),
        (Optional, Required, true, [None, None]),
        (Required, Off, false, [refused, None]),
        (Required, Optional, true, [None, None]),
        (Required, Required, true, [None, None]),
    ] {
        let ends = Scene { policies: [client, server], ..SCENE }.play(|_, _| {});
        let pair = format!("{client:?} {server:?}");
        assert_eq!(reasons(&ends), closed, "{pair}");
        let open = closed == [None, None];
        for (at, end) in ends.iter().enumerate() {
            if open {
                assert_eq!(end.state(), (true, authenticated), "{pair}");
                let peer = key(SCENE.own[1 - at]).public();
                let identity = authenticated.then_some(&peer.octets()[..]);
                assert_eq!(end.connection.peer_identity(), identity, "{pair}");
            } else {
                assert_eq!(end.connection.peer_identity(), None, "{pair}");
            }
        }
        // An end that requires authentication lets no RPC message pass to a peer that has not proved who it is.
        for (end, policy) in ends.iter().zip([client, server]) {
            assert!(policy != Required || end.state() != (true, false), "{pair}");
        }
    }
}

#[test]
fn long_properties_leave_room_for_authentication() {
    // Lengths around the room in the client's first message, beside host authentication or without it.
    for further in [[340; 2], [360; 2], [400; 2], [432; 2], [456; 2], [460; 2], [512; 2]] {
        let ends = Scene { further, ..SCENE }.play(|_, _| {});
        assert_eq!(reasons(&ends), [None, None], "{further:?}");
        assert!(ends.iter().all(|end| end.state() == (true, true)), "{further:?}");
    }
}

// [V2-4.3-2]
#[test]
fn what_a_client_says_first_fits_a_message_of_version_1() {
    for policy in [Policy::Off, Policy::Required] {
        let mut longest = 0;
        // Two properties, which leave room in that message, fill it, and are one unit too long for it.
        for length in (440..=512).step_by(4) {
            let mut lengths = Vec::new();
            let scene = Scene { policies: [policy; 2], further: [464, length], ..SCENE };
            let ends = scene.play(|_, message| lengths.push(message.len()));
            assert!(ends.iter().all(|end| end.state() == (true, policy == Policy::Required)));
            assert!(lengths[0] <= 1024, "{policy:?}, {length}: {lengths:?}");
            longest = lengths[0].max(longest);
        }
        assert!(policy != Policy::Off || longest == 1024, "{longest}");
    }
}

#[test]
fn a_stranger_is_not_let_in_even_where_authentication_is_optional() {
    for policy in [Policy::Optional, Policy::Required] {
        for at in [CLIENT, SERVER] {
            let mut scene = Scene { policies: [policy; 2], ..SCENE };
            scene.own[at] = STRANGER;
            let ends = scene.play(|_, _| {});
            let expected = Some(CloseReason::HostAuth(Refused::UnknownPeer));
            assert_eq!(ends[1 - at].closed, expected);
            assert!(ends.iter().all(|end| end.connection.peer_identity().is_none()));
        }
    }
}

#[test]
fn private_data_that_differs_between_the_ends_is_noticed() {
    for at in [CLIENT, SERVER] {
        for of in [CLIENT, SERVER] {
            let mut scene = SCENE;
            scene.private[at][of] = b"another";
            let ends = scene.play(|_, _| {});
            let expected = Some(CloseReason::HostAuth(Refused::WrongProof));
            assert!(reasons(&ends).contains(&expected), "{:?}", reasons(&ends));
        }
    }
}

#[test]
fn no_property_can_be_changed_on_its_way() {
    let mut messages = Vec::new();
    SCENE.play(|_, message| messages.push(message.clone()));
    let connprops: Vec<_> = (0..4).map(|at| properties(&messages[at])).collect();
    assert!(connprops.iter().all(|properties| properties.iter().any(|p| p.which == 6)));
    assert!(connprops.iter().any(|properties| properties.iter().any(|p| p.which != 6)));
    for (number, properties) in connprops.iter().enumerate() {
        for property in properties {
            // The change makes a code point unknown, or changes a value. The value of host authentication is an opaque
            // with its length in front: with another length, the property would not decode.
            let value = property.at + if property.which == 6 { 12 } else { 8 };
            for (offset, bit) in [(property.at, 0x40), (value, 0x01)] {
                let ends = SCENE.play(|at, message| {
                    if at == number {
                        message[offset] ^= bit;
                    }
                });
                let which = property.which;
                assert_ne!(reasons(&ends), [None, None], "message {number}, property {which}");
            }
        }
    }
}

#[test]
fn a_middle_cannot_be_made_a_final_or_the_other_way_round() {
    for number in 0..4 {
        let ends = SCENE.play(|at, message| {
            if at == number {
                message[HTYPE + 3] ^= 1;
            }
        });
        let authenticated = ends.iter().filter(|end| end.state() == (true, true)).count();
        assert!(authenticated < 2, "message {number}: {:?}", reasons(&ends));
    }
}

#[test]
fn no_property_can_be_added_or_dropped() {
    for number in 0..4 {
        let attacks: [fn(&mut Vec<u8>); 2] = [add, drop_first];
        for attack in attacks {
            let ends = SCENE.play(|at, message| {
                if at == number {
                    attack(message);
                }
            });
            assert_ne!(reasons(&ends), [None, None], "message {number}");
        }
    }
}

#[test]
fn removing_host_authentication_is_noticed_wherever_it_is_required() {
    use Policy::{Optional, Required};
    for policies in [[Required, Required], [Required, Optional], [Optional, Required]] {
        for number in 0..4 {
            let ends = Scene { policies, ..SCENE }.play(|at, message| {
                if at == number {
                    strip(message);
                }
            });
            assert_ne!(reasons(&ends), [None, None], "{policies:?}, message {number}");
        }
    }
    // Where authentication is optional at both ends, removing all of it goes unnoticed, as the documentation says.
    let ends = Scene { policies: [Optional; 2], ..SCENE }.play(|_, message| strip(message));
    assert_eq!(reasons(&ends), [None, None]);
    assert!(ends.iter().all(|end| end.state() == (true, false)));
}

/// A property in a message: its code point, and where it is.
struct Property {
    which: u32,
    at: usize,
    length: usize,
}

const HTYPE: usize = 12;
const COUNT: usize = 16;
const MIDDLE: u32 = 6;
const FINAL: u32 = 7;

fn word(message: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(message[at..at + 4].try_into().unwrap())
}

/// Returns the properties of a message; none if it is no CONNPROP message.
fn properties(message: &[u8]) -> Vec<Property> {
    let mut found = Vec::new();
    if ![MIDDLE, FINAL].contains(&word(message, HTYPE)) {
        return found;
    }
    let mut r = Reader::new(message);
    r.take(COUNT + 4).unwrap();
    for _ in 0..word(message, COUNT) {
        let at = r.position();
        let which = r.u32().unwrap();
        r.opaque(usize::MAX).unwrap();
        found.push(Property { which, at, length: r.position() - at });
    }
    found
}

fn set_count(message: &mut [u8], count: u32) {
    message[COUNT..COUNT + 4].copy_from_slice(&count.to_be_bytes());
}

fn add(message: &mut Vec<u8>) {
    let count = word(message, COUNT);
    set_count(message, count + 1);
    // The largest segment: four octets' worth.
    message.extend([0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 4]);
}

fn drop_first(message: &mut Vec<u8>) {
    let all = properties(message);
    let first = all.first().unwrap();
    message.drain(first.at..first.at + first.length);
    let count = word(message, COUNT);
    set_count(message, count - 1);
}

fn strip(message: &mut Vec<u8>) {
    let all = properties(message);
    let Some(property) = all.iter().find(|property| property.which == 6) else { return };
    message.drain(property.at..property.at + property.length);
    let count = word(message, COUNT);
    set_count(message, count - 1);
}
