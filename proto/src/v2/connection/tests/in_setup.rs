//! Setup as the connection carries it out.

use std::boxed::Box;

use super::*;
use crate::v2::host_auth::{Authenticator, Policy, Progress, Refused};

#[test]
fn properties_of_extensions_are_said_with_our_own() {
    let mut pair = Pair::new(8);
    assert!(pair.ends[CLIENT].engine.announce(0x5254_0003, &[0, 0, 0, 1]));
    assert!(!pair.ends[CLIENT].engine.announce(0x5254_0003, &[0; 600]));
    pair.handle(CLIENT, Input::Established);
    let Ok(header::Message::ConnProp(said)) = header::decode(&pair.ends[CLIENT].posted[0]) else {
        panic!("properties come first");
    };
    assert_eq!(said.set.properties(), config(Role::Client).properties);
    let other = said.set.entries().find(|(which, _)| *which == 0x5254_0003);
    assert_eq!(other, Some((0x5254_0003, &[0, 0, 0, 1][..])));
}

#[test]
fn setup_takes_as_many_messages_as_it_needs() {
    for talkative in [CLIENT, SERVER] {
        let mut pair = Pair::new(8);
        for which in 0..20 {
            assert!(pair.ends[talkative].engine.announce(1000 + which, &[1; 512]));
        }
        pair.handle(CLIENT, Input::Established);
        pair.handle(SERVER, Input::Established);
        while pair.deliver(SERVER) | pair.deliver(CLIENT) {
            let speaking = pair.ends.iter().any(|end| end.engine.setup.is_speaking());
            if speaking {
                for end in &mut pair.ends {
                    assert_eq!(end.engine.try_send(Class::Reply), None, "not before the FINAL");
                }
            }
        }
        let mut lengths = pair.ends[CLIENT].posted.iter().map(Vec::len);
        assert!(lengths.next().is_some_and(|first| first <= 1024) && lengths.all(|l| l <= 4096));
        for (end, role) in pair.ends.iter().zip([Role::Server, Role::Client]) {
            assert_eq!(end.events, [Event::Ready(config(role).properties)]);
            assert_eq!((end.closed, end.engine.phase), (None, Phase::Open));
            assert_eq!(end.engine.peer_properties(), &config(role).properties);
        }
        assert!(pair.call(CLIENT, 7) && pair.call(SERVER, 7));
        let htypes = |at: usize| pair.ends[at].posted.iter().map(|b| prefix(b).htype).collect();
        let expected: [Vec<u32>; 2] = match talkative {
            CLIENT => [vec![6, 6, 6, 7, 10], vec![7, 5, 5, 10]],
            _ => [vec![7, 5, 5, 10], vec![6, 6, 7, 10]],
        };
        let found: [Vec<u32>; 2] = [htypes(CLIENT), htypes(SERVER)];
        assert_eq!(found, expected, "E12: a grant where no MIDDLE may answer");
    }
}

#[test]
fn only_properties_follow_a_middle() {
    let middle = Xdr::common(7, 2, 8, 6).propset(&[(4, &[0, 0, 0, 9])]).0;
    let others: [(&str, Vec<u8>); 6] = [
        ("a Call", call(9, 8, &[], &[])),
        ("a continued Call", Xdr::common(9, 2, 8, 9).words(&[4, 9]).0),
        (
            "a Call chunk",
            Xdr::common(9, 2, 8, 8).words(&[0]).read_list(&[(0, (7, 4, 0))]).words(&[0, 0, 0]).0,
        ),
        ("a Reply", Xdr::common(9, 2, 8, 13).words(&[0, 9]).0),
        ("an unknown type", Xdr::common(9, 2, 8, 77).0),
        ("a malformed Call", Xdr::common(9, 2, 8, 10).0),
    ];
    for (name, bytes) in others {
        let mut pair = Pair::new(8);
        // The server sends its FINAL only after the client's.
        pair.ends[SERVER].engine.config.continued_call_max = 100;
        pair.handle(SERVER, Input::Established);
        pair.receive(SERVER, &middle);
        pair.ends[SERVER].posted.clear();
        pair.receive(SERVER, &bytes);
        assert_eq!(pair.errors(SERVER), [(9, 2, 5)], "{name}: INVAL_CONT");
        let is_event = |event: &Event| !matches!(event, Event::Refused { xid: 9, .. });
        assert!(!pair.ends[SERVER].events.iter().any(is_event), "{name}");
        assert_eq!(pair.ends[SERVER].engine.phase, Phase::Setup, "{name}");
        // A grant and an error of an unknown code do not count; the FINAL ends the setup.
        pair.receive(SERVER, &Xdr::common(0, 2, 8, 5).0);
        pair.receive(SERVER, &Xdr::common(7, 2, 8, 4).words(&[77]).0);
        pair.receive(SERVER, &Xdr::common(7, 2, 8, 7).propset(&[]).0);
        let theirs = Properties { segment_count_max: 9, ..Properties::default() };
        assert_eq!(pair.ends[SERVER].events.last(), Some(&Event::Ready(theirs)), "{name}");
    }
}

#[test]
fn a_call_that_may_not_be_begun_is_refused_once() {
    let mut pair = Pair::new(8);
    pair.ends[SERVER].engine = Connection::new(Config {
        continued_call_max: 100,
        continued_reply_max: 100,
        ..config(Role::Server)
    });
    pair.ends[SERVER].engine.reserve(7);
    pair.handle(SERVER, Input::Established);
    pair.receive(SERVER, &Xdr::common(7, 2, 8, 6).propset(&[]).0);
    pair.receive(SERVER, &Xdr::common(9, 2, 8, 9).words(&[4, 9]).0);
    pair.receive(SERVER, &Xdr::common(9, 2, 8, 10).words(&[0, 0, 0, 0, 1]).0);
    assert_eq!(pair.errors(SERVER), [(9, 2, 5)], "INVAL_CONT");
}

#[test]
fn nothing_but_properties_follows_a_middle_of_ours() {
    let mut pair = Pair::new(8);
    for which in 0..20 {
        assert!(pair.ends[SERVER].engine.announce(1000 + which, &[1; 512]));
    }
    pair.handle(SERVER, Input::Established);
    // A client that calls before it says its properties.
    pair.receive(SERVER, &call(9, 20, &[], &[]));
    assert!(pair.ends[SERVER].engine.may_send(Class::Reply));
    pair.receive(SERVER, &Xdr::common(7, 2, 20, 6).propset(&[]).0);
    assert_eq!(pair.ends[SERVER].engine.try_send(Class::Reply), None);
    assert!(!pair.ends[SERVER].engine.may_send(Class::Reply));
    pair.ends[SERVER].engine.reserve(9);
    pair.handle(SERVER, Input::Idle);
    let htypes: Vec<_> = pair.ends[SERVER].posted.iter().map(|bytes| prefix(bytes).htype).collect();
    assert_eq!(htypes, [6], "not even a grant");
    for _ in 0..3 {
        pair.receive(SERVER, &Xdr::common(7, 2, 20, 6).propset(&[]).0);
    }
    assert_eq!(prefix(&pair.ends[SERVER].posted[2]).htype, 7, "its FINAL");
    assert!(pair.reply(SERVER, 9));
}

#[test]
fn nothing_of_a_bad_message_is_applied() {
    let mut pair = Pair::new(8);
    pair.handle(SERVER, Input::Established);
    pair.receive(SERVER, &Xdr::common(7, 2, 8, 6).propset(&[(4, &[0, 0, 0, 9])]).0);
    let bad = [(1, &[0, 0, 0, 99][..]), (2, &[1, 2])];
    pair.receive(SERVER, &Xdr::common(8, 2, 8, 6).propset(&bad).0);
    assert_eq!(pair.errors(SERVER), [(8, 2, 3)], "BAD_PROPVAL");
    pair.receive(SERVER, &Xdr::common(9, 2, 8, 7).propset(&[]).0);
    let theirs = Properties { segment_count_max: 9, ..Properties::default() };
    assert_eq!(pair.ends[SERVER].events, [Event::Ready(theirs)]);
}

#[test]
fn properties_without_room_for_a_refusal_are_refused() {
    let mut pair = Pair::new(8);
    pair.handle(SERVER, Input::Established);
    for small in [0, 63] {
        pair.receive(SERVER, &Xdr::common(7, 2, 8, 7).propset(&[(2, &[0, 0, 0, small])]).0);
        assert_eq!(pair.errors(SERVER).last(), Some(&(7, 2, 3)), "BAD_PROPVAL");
    }
    pair.receive(SERVER, &Xdr::common(8, 2, 8, 7).propset(&[(2, &[0, 0, 0, 64])]).0);
    let theirs = Properties { receive_buffer_size: 64, ..Properties::default() };
    assert_eq!(pair.ends[SERVER].events, [Event::Ready(theirs)]);
}

#[test]
fn nothing_follows_a_final() {
    for htype in [6, 7] {
        let mut pair = Pair::open(8);
        for at in [CLIENT, SERVER] {
            let theirs = *pair.ends[at].engine.peer_properties();
            let properties = Xdr::common(77, 2, pair.credit(at), htype);
            pair.receive(at, &properties.propset(&[(4, &[0, 0, 0, 99])]).0);
            assert_eq!(pair.errors(at), [(77, 2, 5)], "INVAL_CONT");
            assert_eq!(pair.ends[at].engine.peer_properties(), &theirs);
            assert!(pair.ends[at].engine.try_send(Class::Call).is_some(), "nothing else changed");
        }
    }
}

#[test]
fn a_version_that_was_refused_is_not_used_again() {
    let mut pair = Pair::open(8);
    let bytes = Xdr::common(7, 2, pair.credit(CLIENT), 4).words(&[11]).0;
    pair.receive(CLIENT, &bytes);
    assert_eq!(pair.ends[CLIENT].closed, Some(CloseReason::VersionRefused));
    // During setup, the error says which versions the server speaks. A client that speaks one of them may go on with
    // the connection, on which only one message went each way.
    let mut pair = Pair::new(8);
    pair.handle(CLIENT, Input::Established);
    pair.receive(CLIENT, &Xdr::common(FIRST_XID, 2, 32, 4).words(&[1, 1, 1]).0);
    let reason = CloseReason::Unsupported { low: 1, high: 1 };
    assert_eq!((pair.ends[CLIENT].closed, pair.ends[CLIENT].posted.len()), (Some(reason), 1));
    assert_eq!(pair.ends[CLIENT].engine.reserved(), 9, "a Receive each for what was reserved");
}

#[test]
fn another_version_after_properties_is_a_mismatch() {
    let mut pair = Pair::new(8);
    pair.handle(SERVER, Input::Established);
    pair.receive(SERVER, &Xdr::common(7, 2, 8, 6).propset(&[]).0);
    pair.receive(SERVER, &Xdr::common(8, 1, 8, 0).0);
    assert_eq!(pair.errors(SERVER), [(8, 1, 11)], "VERS_MISMATCH");
}

#[test]
fn a_server_can_start_from_a_message_that_was_received_before_it() {
    let first = Xdr::common(7, 2, 8, 7).propset(&[]).0;
    let mut engine = Connection::new(config(Role::Server));
    engine.reserve(7);
    engine.handle(Instant::ZERO, Input::Established);
    assert_eq!(engine.poll(), None);
    engine.handle(Instant::ZERO, Input::Received(&header::decode_transport(&first)));
    let Some(Output::Post(answer)) = engine.poll() else { panic!("it is answered") };
    assert_eq!((answer.xid, answer.body), (7, ControlBody::Properties { last: true }));
    assert_eq!(engine.poll(), Some(Output::Event(Event::Ready(Properties::default()))));
}

/// Shows a name and believes any but "nobody".
#[derive(Debug)]
struct Named {
    name: &'static str,
    bound: Vec<u8>,
    peer: Vec<u8>,
}

impl Authenticator for Named {
    fn bind(&mut self, role: Role, version: u32, client: &[u8], server: &[u8]) {
        assert_eq!(version, 2);
        self.bound = [client, server, &[u8::from(role == Role::Client)]].concat();
    }

    fn hear(&mut self, _: Role, _: ConnPropKind, _: &[u8]) {
        assert_eq!(self.bound[..2], [1, 2], "bound before all else");
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<Progress, Refused> {
        if self.name != "silent" {
            out.extend(self.name.bytes());
        }
        Ok(if self.peer.is_empty() { Progress::More } else { Progress::Done })
    }

    fn receive(&mut self, octets: &[u8]) -> Result<Progress, Refused> {
        if octets == b"nobody" {
            return Err(Refused::UnknownPeer);
        }
        self.peer = octets.to_vec();
        Ok(Progress::Done)
    }

    fn peer(&self) -> Option<&[u8]> {
        Some(&self.peer)
    }
}

fn authenticating(client: (Policy, &'static str), server: (Policy, &'static str)) -> Pair {
    let mut pair = Pair::new(8);
    for (end, (policy, name)) in pair.ends.iter_mut().zip([client, server]) {
        let named = Named { name, bound: Vec::new(), peer: Vec::new() };
        end.engine.authenticate(policy, Box::new(named), &[1], &[2]);
    }
    pair.handle(CLIENT, Input::Established);
    pair.handle(SERVER, Input::Established);
    pair
}

#[test]
fn both_ends_know_each_other_when_setup_is_over() {
    let mut pair = authenticating((Policy::Required, "alice"), (Policy::Optional, "bob"));
    assert_eq!(pair.ends[CLIENT].engine.peer_identity(), None);
    pair.settle();
    assert_eq!(pair.ends[CLIENT].engine.peer_identity(), Some(&b"bob"[..]));
    assert_eq!(pair.ends[SERVER].engine.peer_identity(), Some(&b"alice"[..]));
    assert!(pair.call(CLIENT, 7));
}

// [V2-6.3.3-1]
#[test]
fn no_call_overtakes_the_last_properties_where_the_caller_holds_them_back() {
    let mut pair = authenticating((Policy::Required, "alice"), (Policy::Required, "bob"));
    pair.deliver(SERVER);
    let answer = pair.ends[CLIENT].inbox.pop_front().unwrap();
    let decoded = header::decode_transport(&answer);
    let client = &mut pair.ends[CLIENT].engine;
    client.handle(Instant::ZERO, Input::Received(&decoded));
    client.reserve(1);
    // There is no buffer for a message now.
    assert_eq!(client.poll_event(), None);
    assert!(!client.decides(Class::Call) && client.try_send(Class::Call).is_none());
    let Some(Output::Post(last)) = client.poll() else { panic!("its proof is due") };
    assert_eq!(last.body, ControlBody::Properties { last: true });
    assert!(matches!(client.poll(), Some(Output::Event(Event::Ready(_)))));
    assert!(client.try_send(Class::Call).is_some());
}

#[test]
fn who_is_not_who_it_should_be_is_closed() {
    let mut pair = authenticating((Policy::Optional, "nobody"), (Policy::Optional, "bob"));
    pair.deliver(SERVER);
    let reason = CloseReason::HostAuth(Refused::UnknownPeer);
    assert_eq!(pair.ends[SERVER].closed, Some(reason));
    assert!(format!("{reason}").contains("known"), "{reason}");
}

#[test]
fn who_does_not_say_who_it_is_is_closed_where_that_is_required() {
    let mut pair = authenticating((Policy::Off, "alice"), (Policy::Required, "bob"));
    pair.deliver(SERVER);
    assert_eq!(pair.ends[SERVER].closed, Some(CloseReason::Unauthenticated));
    let mut pair = authenticating((Policy::Required, "alice"), (Policy::Off, "bob"));
    pair.deliver(SERVER);
    pair.deliver(CLIENT);
    assert_eq!(pair.ends[CLIENT].closed, Some(CloseReason::Unauthenticated));
    assert_eq!(pair.ends[CLIENT].events, []);
}

#[test]
fn only_grants_and_errors_pass_before_authentication() {
    let cases = [
        ("a grant", Xdr::common(0, 2, 8, 5).0, None),
        ("an error of no known code", Xdr::common(9, 2, 8, 4).words(&[77]).0, None),
        ("a Call", call(9, 8, &[], &[]), Some(CloseReason::Unauthenticated)),
        ("a Reply", Xdr::common(9, 2, 8, 13).words(&[0, 9]).0, Some(CloseReason::Unauthenticated)),
        ("a part", Xdr::common(9, 2, 8, 9).words(&[4, 9]).0, Some(CloseReason::Unauthenticated)),
    ];
    for (name, bytes, closed) in cases {
        let mut pair = authenticating((Policy::Required, "alice"), (Policy::Required, "bob"));
        pair.ends[SERVER].inbox.clear();
        pair.receive(SERVER, &bytes);
        assert_eq!(
            (pair.ends[SERVER].closed, pair.ends[SERVER].events.len()),
            (closed, 0),
            "{name}"
        );
        assert!(!pair.ends[SERVER].engine.may_send(Class::Reply));
    }
}
