//! Serves `rping -c`, the RDMA ping that rdma-core has: what the lab's case `rping` runs.
//!
//! `lab_rping ADDRESS CONNECTIONS CRC` serves so many connections at ADDRESS, one after another, with
//! CRCs asked for if CRC is `crc`. In each round the peer offers memory, which we read, and then
//! offers other memory, into which we write what we read; it compares the two.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a report of what was done is its output")]

use std::env;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use haulage::provider::DisconnectReason;
use haulage::provider::iwarp::{Config, Crc};
use haulage_proto::verbs::{Handle, Segment};
use haulage_proto::xdr::Reader;
use haulage_tests::link::{Failure, Link};

fn main() -> ExitCode {
    match arguments().and_then(|(at, connections, crc)| run(at, connections, crc)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab_rping: {error}");
            ExitCode::FAILURE
        }
    }
}

fn arguments() -> Result<(SocketAddr, u32, Crc), Failure> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let usage = || Failure::Local("usage: lab_rping ADDRESS CONNECTIONS crc|plain".to_owned());
    let [at, connections, crc] = arguments.as_slice() else { return Err(usage()) };
    let crc = match crc.as_str() {
        "crc" => Crc::Always,
        "plain" => Crc::IfAsked,
        _ => return Err(usage()),
    };
    let at = at.parse().map_err(|_| usage())?;
    Ok((at, connections.parse().map_err(|_| usage())?, crc))
}

fn run(at: SocketAddr, connections: u32, crc: Crc) -> Result<(), Failure> {
    let config = Config { crc, connections_max: 4, registrations_max: 64, ..Config::default() };
    let mut link = Link::listen(at, &config)?;
    for number in 1..=connections {
        link.accept(GUEST_BOOTS)?;
        let (rounds, octets) = serve(&mut link)?;
        println!("connection {number}: {rounds} rounds, {octets} octets each way");
        if rounds != ROUNDS {
            return Err(Failure::Local(format!("the peer made {rounds} rounds, not {ROUNDS}")));
        }
    }
    Ok(())
}

/// Serves one connection to its end; returns the rounds and the octets there were.
fn serve(link: &mut Link) -> Result<(u32, usize), Failure> {
    let (mut rounds, mut octets) = (0, 0);
    loop {
        let source = match link.message(None) {
            Ok(Some(message)) => offered(&message)?,
            Err(Failure::Ended(DisconnectReason::Peer)) => break,
            Ok(None) => return Err(Failure::Waited("an offer")),
            Err(other) => return Err(other),
        };
        let contents = link.read(source)?;
        link.send(&GO_ON)?;
        let Some(message) = link.message(None)? else { return Err(Failure::Waited("an offer")) };
        let target = offered(&message)?;
        if target.length != source.length {
            return Err(Failure::Local(format!("offers of {source:?} and {target:?}")));
        }
        link.write(&contents, target)?;
        link.send(&GO_ON)?;
        rounds += 1;
        octets += contents.len();
    }
    link.quiesced()?;
    Ok((rounds, octets))
}

/// Parses what the peer says about its memory: address, key and length.
fn offered(message: &[u8]) -> Result<Segment, Failure> {
    let mut r = Reader::new(message);
    match (r.u64(), r.u32(), r.u32(), r.is_empty()) {
        (Ok(offset), Ok(handle), Ok(length), true) => {
            Ok(Segment { handle: Handle(handle), length, offset })
        }
        _ => Err(Failure::Local(format!("an offer of {} octets", message.len()))),
    }
}

/// As long as an offer; the peer does not look at it.
const GO_ON: [u8; 16] = [0; 16];

/// What the peer is to make of each connection (`-C`).
const ROUNDS: u32 = 20;

/// How long an emulated machine may take until it calls us.
const GUEST_BOOTS: Duration = Duration::from_secs(90);
