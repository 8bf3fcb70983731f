//! Prints the messages in a capture of TCP: `read_capture FILE.pcap`.
//!
//! Packets have to be of Ethernet, complete and in order. `haulage wire decode --pcap` is the reader that puts them in
//! order, and says what is missing.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "it is what the example is for")]

use std::collections::HashMap;
use std::error::Error;
use std::{env, fs};

use etherparse::{SlicedPacket, TransportSlice};
use haulage_proto::describe;
use haulage_proto::iwarp::observe::{End, Message, Observer, Seen};
use pcap_parser::PcapCapture;

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).ok_or("usage: read_capture FILE.pcap")?;
    let octets = fs::read(path)?;
    let capture = PcapCapture::from_file(&octets).map_err(|error| format!("{error:?}"))?;
    let mut observers = HashMap::new();
    for block in &capture.blocks {
        let packet = SlicedPacket::from_ethernet(block.data)?;
        let Some(TransportSlice::Tcp(tcp)) = packet.transport else { continue };
        // The end that opens the connection has the port that the other end did not choose.
        let ports = (tcp.source_port(), tcp.destination_port());
        let (end, ports) = match observers.contains_key(&(ports.1, ports.0)) {
            true => (End::Passive, (ports.1, ports.0)),
            false => (End::Active, ports),
        };
        let observer = observers.entry(ports).or_insert_with(|| Observer::new(crc32c, 1 << 20));
        let mut bytes = tcp.payload();
        while let Some(seen) = observer.next(end, &mut bytes)? {
            match seen {
                Seen::Frame(frame) => println!("{}", describe::iwarp::frame(&frame)),
                Seen::Fpdu(_, Message::Part(_)) => {}
                Seen::Fpdu(_, Message::Whole(message)) => match describe::message(message) {
                    Ok(fields) => println!("{fields}"),
                    Err(refusal) => println!("{refusal}"),
                },
                Seen::Fpdu(fpdu, _) => println!("{}", describe::iwarp::fpdu(&fpdu)?),
            }
        }
    }
    Ok(())
}

/// Adds octets to a CRC32C register, bit by bit; a program in earnest uses its machine's instruction.
fn crc32c(state: u32, octets: &[u8]) -> u32 {
    octets.iter().fold(state, |state, octet| {
        let step = |state: u32, _| state >> 1 ^ if state & 1 == 1 { 0x82f6_3b78 } else { 0 };
        (0..8).fold(state ^ u32::from(*octet), step)
    })
}
