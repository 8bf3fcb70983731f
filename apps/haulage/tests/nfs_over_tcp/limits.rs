//! The limits of `store serve` that clients over TCP meet.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::Duration;

use nfs3_client::Nfs3Client;
use nfs3_client::io::{AsyncRead, AsyncWrite};
use nfs3_client::nfs3_types::nfs3::{Nfs3Result, WRITE3args, nfsstat3, sattrguard3, stable_how};
use nfs3_client::nfs3_types::rpc::opaque_auth;
use nfs3_client::nfs3_types::xdr_codec::Opaque;
use rustix::net::{AddressFamily, SocketType, bind, connect as connect_socket, socket};
use rustix::process::{Resource, Rlimit, prlimit};

use crate::bed::{Bed, Export, Kind, ROOT, Server, User};
use crate::client::{claim, now, size};

/// A NULL Call of NFS version 3 as a record, with AUTH_NONE.
const NULL: [u32; 11] = [0x8000_0028, 1, 0, 2, 100_003, 3, 0, 0, 0, 0, 0];

/// How long to wait for what the server does: less than the limits that hold if the options do nothing.
const PATIENCE: Duration = Duration::from_secs(8);

fn server(options: &[&str]) -> Server {
    Server::start(Kind { export: Export::Memory, user: User::Tester }, options)
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.nfs).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Connects from another address of this machine.
fn connect_from(address: [u8; 4], server: &Server) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::from(address), 0)).unwrap();
    connect_socket(&socket, &server.nfs).unwrap();
    TcpStream::from(socket)
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
    // One address may have half of the connections, so the one that was idle longest gave way.
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

#[test]
fn a_call_that_stops_halfway_is_given_up_over_tcp() {
    let server = server(&["--progress-timeout", "0.05"]);
    let mut stream = connect(&server);
    // A record of 1 MiB, of which more than one step comes. The server may give up even before.
    let _ = stream.write_all(&[&0x8010_0000_u32.to_be_bytes()[..], &[0; 100_000]].concat());
    // If the server closes with octets unread, the end is a reset.
    let ended = stream.read(&mut [0]);
    let is_reset = |error: &io::Error| error.kind() == ErrorKind::ConnectionReset;
    assert!(matches!(&ended, Ok(0)) || ended.as_ref().is_err_and(is_reset), "{ended:?}");
}

/// A client's end that sends slowly and steadily: before each step of 64 KiB it looks for a while whether the server has
/// given up.
struct Slow(TcpStream);

impl AsyncRead for Slow {
    async fn async_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl AsyncWrite for Slow {
    async fn async_write(&mut self, octets: &[u8]) -> io::Result<usize> {
        // The pace is the work that the server is given, and synchronises nothing: a slower machine sends more slowly.
        self.0.set_read_timeout(Some(Duration::from_millis(300)))?;
        let closed = self.0.read(&mut [0]);
        assert!(closed.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "it gave up");
        self.0.set_read_timeout(Some(PATIENCE))?;
        self.0.write(octets.get(..64 << 10).unwrap_or(octets))
    }
}

#[test]
fn a_call_that_goes_on_may_take_longer_than_the_option_says_over_tcp() {
    let kind = Kind { export: Export::Memory, user: User::Tester };
    // The whole Call takes 4.8 s at least, and each step far less than the limit.
    let Bed { server, mut client, root } = Bed::new(kind, &["--progress-timeout", "4"]);
    let file = client.file(&root, "file", 0o600);
    let line = Slow(connect(&server));
    let mut slow = Nfs3Client::new_with_auth(line, claim(ROOT), opaque_auth::default());
    let data = vec![7; 1 << 20];
    let (offset, count, stable) = (0, 1 << 20, stable_how::UNSTABLE);
    let write =
        WRITE3args { file: file.clone(), offset, count, stable, data: Opaque::borrowed(&data) };
    let Nfs3Result::Ok(written) = now(slow.write(&write)).unwrap() else {
        panic!("it is not done")
    };
    assert_eq!(written.count, count);
    assert_eq!(client.attributes(&file).unwrap().size, u64::from(count));
}

/// Returns the memory that a server has in pages, in KiB.
fn resident(server: &Server) -> usize {
    let path = format!("/proc/{}/status", server.process().as_raw_nonzero());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim_end_matches("kB").trim().parse().unwrap()
}

#[test]
fn calls_that_stop_halfway_take_bounded_memory_and_leave_some_to_others() {
    let kind = Kind { export: Export::Memory, user: User::Tester };
    let Bed { server, mut client, root } = Bed::new(kind, &[]);
    let file = client.file(&root, "file", 0o600);
    let before = resident(&server);
    let call = [&0x8010_0000_u32.to_be_bytes()[..], &[1; (1 << 20) - 10]].concat();
    let begun: Vec<_> = (0..120).map(|_| connect_from([127, 0, 0, 2], &server)).collect();
    for mut stream in &begun {
        // The server reads nothing from some of the connections.
        stream.set_nonblocking(true).unwrap();
        let _ = stream.write_all(&call);
    }
    let data = vec![7; 1 << 20];
    for _ in 0..8 {
        client.write(&file, 0, &data, stable_how::UNSTABLE).unwrap();
    }
    let taken = resident(&server).saturating_sub(before);
    assert!(taken < 64 << 10, "{taken}");
    let closed = begun.iter().filter(|stream| (&mut &**stream).read(&mut [0]).is_ok()).count();
    assert_eq!(closed, 0, "they wait for their time");
}

#[test]
fn a_size_beyond_the_limit_of_file_sizes_is_refused_and_the_server_goes_on() {
    for kind in Kind::all()
        .into_iter()
        .filter(|kind| kind.export == Export::Directory && kind.user == User::Tester)
    {
        let Bed { server, mut client, root } = Bed::new(kind, &[]);
        let file = client.file(&root, "file", 0o600);
        let limit = Rlimit { current: Some(1 << 20), maximum: Some(1 << 20) };
        prlimit(Some(server.process()), Resource::Fsize, limit).unwrap();
        assert_eq!(
            client.set(&file, size(3 << 20), sattrguard3::None),
            Err(nfsstat3::NFS3ERR_FBIG)
        );
        let beyond = client.write(&file, 3 << 20, b"beyond", stable_how::FILE_SYNC);
        assert_eq!(beyond.unwrap_err(), nfsstat3::NFS3ERR_FBIG);
        assert_eq!(client.set(&file, size(1 << 20), sattrguard3::None), Ok(()));
        assert_eq!(client.attributes(&file).unwrap().size, 1 << 20);
    }
}
