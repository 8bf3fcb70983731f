use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use super::*;

const LIMITS: CrowdLimits = CrowdLimits { connections_max: 6, each_max: 4 };

/// Connections as letters of their address, phase and age: `"a idle 3"`.
fn crowd(lines: &[&str]) -> Vec<Candidate<usize, u64>> {
    let candidate = |(key, line): (usize, &&str)| {
        let words: Vec<_> = line.split(' ').collect();
        let age = words[2].parse().unwrap();
        let (phase, lasted) = match words[1] {
            "idle" => (Phase::Idle, Duration::from_secs(age)),
            "transfer" => (Phase::Transferring, Duration::from_secs(age)),
            "serving" => (Phase::Serving, Duration::from_millis(age)),
            "slow" => (Phase::Serving, Duration::from_secs(age)),
            other => panic!("{other}"),
        };
        Candidate { key, origin: u64::from(words[0].as_bytes()[0]), phase, lasted }
    };
    lines.iter().enumerate().map(candidate).collect()
}

fn chosen(lines: &[&'static str], newcomer: char) -> &'static str {
    match choose(&crowd(lines), u64::from(u32::from(newcomer)), LIMITS) {
        Choice::Welcome => "welcome",
        Choice::Replace(at) => lines[at],
        Choice::Refuse => "refuse",
    }
}

#[test]
fn a_crowd_that_closes_lets_answers_out_and_ends_what_is_idle() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (stream, peer) = listener.accept().unwrap();
    let mut crowd = Crowd::new(LIMITS);
    let seat = crowd.admit(stream, peer.ip()).unwrap();
    crowd.close();
    let time = Duration::from_secs(9);
    seat.within(time).write_all(b"answer").unwrap();
    assert_eq!(seat.within(time).read(&mut [0]).unwrap(), 0);
    drop(seat);
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"answer");
}

#[test]
fn whoever_takes_most_gives_way() {
    let some = ["a idle 9", "a transfer 1", "a serving 1", "b idle 5"];
    assert_eq!(chosen(&some, 'a'), "welcome");
    let full = ["a idle 1", "a idle 2", "a transfer 9", "b idle 8", "b idle 9", "c idle 9"];
    assert_eq!(chosen(&full, 'd'), "a idle 2", "of the address with most, the one idle longest");
    assert_eq!(chosen(&full, 'b'), "a idle 2");
    let half_sent =
        ["a transfer 1", "a transfer 7", "a transfer 3", "a serving 9", "b idle 9", "c idle 5"];
    assert_eq!(chosen(&half_sent, 'b'), "a transfer 7", "others' idle ones stay");
    let served = ["a serving 1", "a serving 2", "a serving 3", "b idle 4", "b idle 5", "c idle 9"];
    assert_eq!(chosen(&served, 'd'), "b idle 5", "requests are not cut off");
    assert_eq!(chosen(&["a serving 1"; 6], 'd'), "refuse");
    let slow = ["a slow 8", "a slow 9", "a serving 1", "b slow 9", "b slow 9", "c slow 9"];
    assert_eq!(chosen(&slow, 'd'), "a slow 9", "of the address with most");
    assert_eq!(chosen(&slow, 'c'), "a slow 9");
    assert_eq!(chosen(&slow[..5], 'a'), "welcome");
    let even = ["a slow 9", "a slow 9", "a slow 9", "b slow 9", "b slow 9", "b slow 9"];
    assert_eq!(chosen(&even, 'a'), "refuse", "not for one that has as many");
}

#[test]
fn an_address_that_has_its_share_replaces_its_own() {
    let share = ["a idle 1", "a transfer 9", "a idle 2", "a serving 3"];
    assert_eq!(chosen(&share, 'a'), "a idle 2");
    assert_eq!(chosen(&share, 'b'), "welcome");
    assert_eq!(chosen(&["a serving 1"; 4], 'a'), "refuse");
    let five = ["a idle 1", "a idle 1", "a idle 1", "b idle 9", "b idle 1"];
    assert_eq!(chosen(&five, 'a'), "welcome", "below its share");
}

#[test]
fn the_one_that_is_replaced_is_closed_and_those_who_leave_make_room() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let connect = || {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap())
    };
    let mut crowd = Crowd::new(CrowdLimits { connections_max: 2, each_max: 2 });
    let mut admit = |stream: TcpStream, peer: SocketAddr| crowd.admit(stream, peer.ip());
    let (mut first_client, (stream, peer)) = connect();
    let first = admit(stream, peer).unwrap();
    let (_second_client, (stream, peer)) = connect();
    let second = admit(stream, peer).unwrap();
    second.enter(Phase::Serving);
    let (third_client, (stream, peer)) = connect();
    let third = admit(stream, peer).unwrap();
    assert_eq!(first_client.read(&mut [0; 8]).unwrap(), 0, "closed for the third");
    third.enter(Phase::Serving);
    let (mut refused, (stream, peer)) = connect();
    assert!(admit(stream, peer).is_none());
    assert_eq!(refused.read(&mut [0; 8]).unwrap(), 0);
    drop((first, third));
    let (_, (stream, peer)) = connect();
    assert!(admit(stream, peer).is_some(), "the third has left");
    drop(third_client);
}

#[test]
fn a_deadline_is_for_all_reads_together() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (stream, peer) = listener.accept().unwrap();
    let mut crowd = Crowd::new(LIMITS);
    let seat = crowd.admit(stream, peer.ip()).unwrap();
    client.write_all(&[7; 3]).unwrap();
    let mut octets = [0; 2];
    seat.within(Duration::from_secs(60)).read_exact(&mut octets).unwrap();
    assert_eq!(octets, [7; 2]);
    // An octet waits, but the time is over.
    let late = seat.within(Duration::ZERO).read(&mut octets).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    let late = seat.within(Duration::ZERO).write(&[1]).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    // Nothing more comes: the read gives up by itself.
    let mut short = seat.within(Duration::from_millis(2));
    assert!(short.read_exact(&mut octets).is_err());
}
