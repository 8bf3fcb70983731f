//! The limits of `store serve` that clients over TCP meet.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::bed::{Export, Kind, Server, User};

/// A NULL Call of NFS version 3 as a record, with AUTH_NONE.
const NULL: [u32; 11] = [0x8000_0028, 1, 0, 2, 100_003, 3, 0, 0, 0, 0, 0];

fn server(options: &[&str]) -> Server {
    Server::start(Kind { export: Export::Memory, user: User::Tester }, options)
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.nfs).unwrap();
    // Less than the limits that hold if the options do nothing.
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

fn null(stream: &mut TcpStream) {
    let octets: Vec<u8> = NULL.iter().flat_map(|word| word.to_be_bytes()).collect();
    stream.write_all(&octets).unwrap();
    stream.read_exact(&mut [0; 28]).unwrap();
}

/// Returns whether the server closes a connection on which it owes nothing.
fn is_closed(mut stream: TcpStream) -> bool {
    stream.read(&mut [0]).is_ok_and(|octets| octets == 0)
}

#[test]
fn the_number_of_connections_holds_over_tcp() {
    let server = server(&["--connections", "4"]);
    let mut streams = [(); 3].map(|()| {
        let mut stream = connect(&server);
        null(&mut stream);
        stream
    });
    // One address has half of them: the one that was idle longest gave way.
    let [first, others @ ..] = &mut streams;
    others.iter_mut().for_each(null);
    assert!(is_closed(first.try_clone().unwrap()));
}

#[test]
fn an_idle_connection_is_closed_over_tcp_when_the_option_says_so() {
    let server = server(&["--idle-timeout", "0.05"]);
    assert!(is_closed(connect(&server)));
}

#[test]
fn a_call_that_has_begun_is_given_the_time_of_the_option_over_tcp() {
    let server = server(&["--progress-timeout", "0.05"]);
    let mut stream = connect(&server);
    stream.write_all(&NULL[0].to_be_bytes()).unwrap();
    assert!(is_closed(stream));
}
