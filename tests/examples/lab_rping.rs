//! Serves `rping -c`, the RDMA ping of rdma-core: the program of the lab's case `rping`.
//!
//! `lab_rping ADDRESS CONNECTIONS CRC` serves CONNECTIONS connections at ADDRESS, one after another, and asks for CRCs
//! if CRC is `crc`. In each round the peer offers memory, which this program reads, and then offers other memory, into
//! which it writes the same contents; the peer compares the two.
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

/// Serves one connection to its end. Returns the number of rounds, and of octets in each direction.
fn serve(link: &mut Link) -> Result<(u32, usize), Failure> {
    let (mut rounds, mut octets) = (0, 0);
    loop {
        let source = match link.message(None) {
            Ok(Some(message)) => offered(&message)?,
            Err(Failure::Ended(DisconnectReason::Peer | DisconnectReason::PeerHasAll)) => break,
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

/// Parses an offer of memory: address, key and length.
fn offered(message: &[u8]) -> Result<Segment, Failure> {
    let mut r = Reader::new(message);
    match (r.u64(), r.u32(), r.u32(), r.is_empty()) {
        (Ok(offset), Ok(handle), Ok(length), true) => {
            Ok(Segment { handle: Handle(handle), length, offset })
        }
        _ => Err(Failure::Local(format!("an offer of {} octets", message.len()))),
    }
}

/// A message that continues the round; the peer ignores its contents.
const GO_ON: [u8; 16] = [0; 16];

/// The number of rounds that the peer makes on each connection (`-C`).
const ROUNDS: u32 = 20;

/// Maximum time until an emulated machine connects.
const GUEST_BOOTS: Duration = Duration::from_secs(90);
