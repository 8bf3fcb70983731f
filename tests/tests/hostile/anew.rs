//! Servers that do not answer version 2 on an iWARP connection, but speak version 1 on the next one.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use haulage::core::NoService;
use haulage::limits::{LIMITS_DEFAULT, Limits};
use haulage::provider::ConnectError;
use haulage::service::{Binding, CallError, Procedure, Request};
use haulage_tests::ends::client_within;
use haulage_tests::link::PATIENCE;

use super::caller::Pair;
use super::two::{CONNPROP_FINAL, CREDIT};
use super::{MSG, NULL, PROGRAM, octets};

/// What a server does about properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Nothing,
    Closes,
}

/// Takes the client's properties, does `manner` about them, and accepts the next connection.
fn begins_anew(pair: &mut Pair, manner: Does) {
    let first = pair.message();
    assert_eq!((first[1], first[3]), (2, CONNPROP_FINAL), "{manner:?}");
    match manner {
        Does::Nothing => drop(pair.link.ended().unwrap()),
        Does::Closes => pair.link.hang_up().unwrap(),
    }
    pair.link.accept(PATIENCE).unwrap();
}

/// Answers the next message, which is a Call of version 1.
fn answer(pair: &mut Pair) {
    let called = pair.message();
    let xid = called[0];
    assert_eq!((called[1], called[3], &called[7..9]), (1, MSG, &[xid, 0][..]));
    pair.send(&octets(&[xid, 1, CREDIT, MSG, 0, 0, 0, xid, 1, 0, 0, 0, 0]));
}

#[test]
fn a_server_that_does_not_answer_version_2_is_called_in_version_1() {
    for manner in [Does::Nothing, Does::Closes] {
        // Silence takes two seconds, which leaves four.
        let limits = Limits { setup_timeout: Duration::from_secs(6), ..LIMITS_DEFAULT };
        let mut pair = Pair::within(limits, NoService);
        pair.begin(NULL, 0);
        begins_anew(&mut pair, manner);
        answer(&mut pair);
        assert_eq!(pair.outcome(), Ok(()), "{manner:?}");
        // The name that the caller has is good still.
        pair.begin(NULL, 0);
        answer(&mut pair);
        assert_eq!(pair.outcome(), Ok(()), "{manner:?}");
        pair.thread.stop().unwrap();
    }
}

#[test]
fn a_server_that_loses_both_connections_is_not_tried_again() {
    let mut pair = Pair::within(LIMITS_DEFAULT, NoService);
    pair.begin(NULL, 0);
    begins_anew(&mut pair, Does::Closes);
    pair.link.hang_up().unwrap();
    let outcome = pair.outcome();
    assert!(matches!(outcome, Err(CallError::Disconnected(_))), "{outcome:?}");
    pair.thread.stop().unwrap();
}

#[test]
fn a_refused_connection_is_no_silence() {
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at: SocketAddr = nobody.local_addr().unwrap();
    drop(nobody);
    let procedures = vec![Procedure::new("NULL")];
    let binding = Binding { program: PROGRAM, version: 1, procedures };
    let mut thread = client_within(LIMITS_DEFAULT, || NoService, binding, at);
    let request = Request::new(NULL);
    // The connection may have ended before the Call is made, whose error is then the same.
    let outcome = match thread.started.begin(request, |_| Ok(())) {
        Ok(_) => thread.started.ended().unwrap().1.map(drop).map_err(CallError::from),
        Err(failed) => Err(failed.into()),
    };
    assert_eq!(outcome, Err(CallError::Connect(ConnectError::Refused)));
    thread.stop().unwrap();
}
