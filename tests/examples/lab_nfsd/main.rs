//! Calls a Linux NFS server in version 1 of RPC-over-RDMA, through the `iwarp` provider: the program of the lab's case
//! `nfsd`.
//!
//! `lab_nfsd NFS MOUNT [whole]` takes two addresses. The server exports `/exp`, writable, with a file `hello` that
//! contains "hello from nfsd". `whole` tells that TCP carries segments as they are sent; otherwise siw fails CRCs.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a report of what was done is its output")]

use std::env;
use std::net::SocketAddr;
use std::process::ExitCode;

use haulage::provider::iwarp::{Config, Crc};
use haulage::provider::{ConnectError, DisconnectReason};
use haulage_proto::iwarp::terminate::{Code, Fault};
use haulage_proto::negotiate::Version;
use haulage_tests::link::{Failure, Link, MESSAGE};
use haulage_tests::pattern;

use client::{Client, Speak};
use nfs::FileHandle;

mod client;
mod mount;
mod nfs;

/// The result of a step.
type Outcome<T> = Result<T, String>;

fn main() -> ExitCode {
    match Options::parse().and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab_nfsd: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Options {
    rdma: SocketAddr,
    mount: SocketAddr,
    whole: bool,
}

impl Options {
    fn parse() -> Outcome<Self> {
        let arguments: Vec<String> = env::args().skip(1).collect();
        let address = |at: usize| {
            let address = arguments.get(at).and_then(|address| address.parse().ok());
            address.ok_or_else(|| "two addresses are wanted".to_owned())
        };
        let whole = arguments.get(2).is_some_and(|word| word == "whole");
        Ok(Self { rdma: address(0)?, mount: address(1)?, whole })
    }
}

fn run(options: &Options) -> Outcome<()> {
    let rdma = options.rdma;
    let root = mount::root_of(options.mount, "/exp")?;
    println!("mounted, its root has a handle of {} octets", root.len());
    one_connection_after_another(rdma)?;
    files(rdma, &plain(), &root, "plain", &LENGTHS)?;
    // siw fails the CRCs of messages that arrive in two pieces; short messages arrive in one.
    files(rdma, &checked(), &root, "checked", if options.whole { &LENGTHS } else { &[64] })?;
    comes_with_right_crcs(rdma, &root)?;
    falls_back(rdma)?;
    is_rejected_without_reads(rdma)?;
    for _ in 0..5 {
        hears_what_it_did_wrong(rdma)?;
        // The client leaves as soon as it is connected, as one that is killed.
        drop(Link::connect(rdma, &plain(), b"", 1)?);
    }
    one_connection_after_another(rdma)
}

/// Makes several connections in turn. The server answers a Call sent as soon as each is up.
fn one_connection_after_another(rdma: SocketAddr) -> Outcome<()> {
    for number in 1..=CONNECTS {
        let mut client = Client::connect(rdma, &plain(), Speak::One)?;
        let asked = haulage::sys::clock::now();
        client.null().map_err(|error| format!("connection {number}: {error}"))?;
        let took = haulage::sys::clock::now().saturating_since(asked);
        println!("connection {number}: answered after {} ms", took.as_millis());
        client.close()?;
    }
    Ok(())
}

/// Writes files with Read chunks, reads them with Write chunks, and compares.
fn files(
    rdma: SocketAddr,
    config: &Config,
    root: &FileHandle,
    prefix: &str,
    lengths: &[usize],
) -> Outcome<()> {
    let mut client = Client::connect(rdma, config, Speak::One)?;
    client.null()?;
    let attributes = nfs::getattr(&mut client, root)?;
    if attributes.kind != nfs::DIRECTORY {
        return Err(format!("the root is of kind {}", attributes.kind));
    }
    let limits = nfs::fsinfo(&mut client, root)?;
    println!("reads of {} octets at most, writes of {}", limits.read_max, limits.write_max);
    let hello = nfs::lookup(&mut client, root, "hello")?;
    if nfs::read_inline(&mut client, &hello, 100)? != b"hello from nfsd\n" {
        return Err("hello does not say what it should".to_owned());
    }
    for &length in lengths {
        let file = nfs::create(&mut client, root, &format!("{prefix}-{length}"))?;
        let written = pattern::of(length, 7);
        nfs::write(&mut client, &file, &written)?;
        let found = nfs::getattr(&mut client, &file)?.size;
        if found != length as u64 {
            return Err(format!("{found} octets where {length} were written"));
        }
        if nfs::read(&mut client, &file, length)? != written {
            return Err(format!("{length} octets came back changed"));
        }
        println!("{prefix}: {length} octets written and read");
    }
    println!("{} of {} invalidations were the server's", client.remote(), client.exposed());
    client.close()
}

/// Reads a file over a connection with CRCs, and checks those of the server.
fn comes_with_right_crcs(rdma: SocketAddr, root: &FileHandle) -> Outcome<()> {
    let mut client = Client::connect(rdma, &checked(), Speak::One)?;
    let file = nfs::lookup(&mut client, root, "plain-300000")?;
    if nfs::read(&mut client, &file, 300_000)? != pattern::of(300_000, 7) {
        return Err("300000 octets came back changed".to_owned());
    }
    println!("CRCs of 300000 octets were right");
    client.close()
}

/// Falls back from version 2 to version 1 on the same connection.
fn falls_back(rdma: SocketAddr) -> Outcome<()> {
    let mut client = Client::connect(rdma, &plain(), Speak::TwoThenOne)?;
    client.null()?;
    match client.version() {
        Some(Version::One) => println!("version 2 was offered, version 1 is spoken"),
        other => return Err(format!("{other:?} is spoken")),
    }
    client.close()
}

/// Offers no Reads: Linux rejects the connection, and the client sees the rejection.
fn is_rejected_without_reads(rdma: SocketAddr) -> Outcome<()> {
    match Link::connect(rdma, &plain(), b"", 0) {
        Err(Failure::Setup(ConnectError::Rejected)) => Ok(()),
        Err(other) => Err(format!("without Reads: {other}")),
        Ok(_) => Err("a connection without Reads was accepted".to_owned()),
    }
}

/// Sends a message longer than the server takes. The server answers with a Terminate message, in which Linux swaps
/// layer and type.
fn hears_what_it_did_wrong(rdma: SocketAddr) -> Outcome<()> {
    let (mut link, _) = Link::connect(rdma, &plain(), b"", 1)?;
    link.send(&[0; MESSAGE + 4])?;
    let reason = link.ended()?;
    let DisconnectReason::Terminated { layer, etype, code } = reason else {
        return Err(format!("after too long a message: {reason}"));
    };
    let told = Code { layer, etype, code };
    if [Some(told), told.swapped()].contains(&Some(Fault::NoBuffer.code())) {
        println!("{reason}");
        Ok(())
    } else {
        Err(format!("after too long a message: {reason}"))
    }
}

fn plain() -> Config {
    Config { crc: Crc::IfAsked, connections_max: 4, registrations_max: 64, ..Config::default() }
}

fn checked() -> Config {
    Config { crc: Crc::Always, ..plain() }
}

/// Lengths of the files written and read.
const LENGTHS: [usize; 4] = [1, 5_001, 300_000, 1 << 20];

/// Number of connections made in turn.
const CONNECTS: u32 = 20;
