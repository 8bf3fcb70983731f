//! `haulage wire decode --pcap`: the messages of a capture.
//!
//! - [`file`](mod@file): packets of a pcap or pcapng file or stream.
//! - [`packet`]: Ethernet and its like, IP, TCP and UDP.
//! - [`tcp`]: connections, and the order of their octets; [`exchange`]: MPA, DDP and RDMAP in them.
//! - [`roce`]: packets of RoCEv2.
//! - [`lines`]: what is printed; [`table`]: what is remembered.
//!
//! # Limits
//!
//! Everything in a capture is untrusted. A packet has at most [`file::BLOCK_MAX`] octets, a message [`super::MESSAGE_MAX`]. What
//! is remembered of connections is bounded in number and in octets ([`table`]); what was silent longest is forgotten.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::ANSWERS_MAX;
use crate::failure::Failure;
use crate::output::{self, Output};

pub mod exchange;
pub mod file;
pub mod lines;
pub mod packet;
pub mod roce;
pub mod table;
pub mod tcp;

use file::Capture;
use lines::Lines;
use packet::Carried;

/// Runs `wire decode --pcap FILE|- [--port N]...`.
pub fn decode(path: &Path, ports: &[u16], output: &Output) -> Result<(), Failure> {
    let name = output::source(path);
    let unreadable = |error| Failure::failed(format!("cannot read {name}: {error}"));
    let input: Box<dyn Read> = if path == Path::new("-") {
        Box::new(output::input().map_err(unreadable)?)
    } else {
        Box::new(File::open(path).map_err(unreadable)?)
    };
    let mut decoder = Decoder::new(ports);
    let decoded = print(input, &name, &mut decoder, output);
    if decoded.is_ok() && decoder.lines.is_silent() {
        output.note(&format!(
            "{name} has no connection that can be read, in {} packets: capture from before the connection opens, whole \
             packets (tcpdump -s 0)",
            decoder.packets
        ));
    }
    decoded
}

/// Prints the lines of each packet. Everything is printed before waiting for more input, and before an error is told.
fn print(
    input: impl Read,
    name: &str,
    decoder: &mut Decoder,
    output: &Output,
) -> Result<(), Failure> {
    let mut capture = Capture::open(input, name)?;
    loop {
        if capture.must_wait() || decoder.lines.octets() >= ANSWERS_MAX {
            output.text(&decoder.lines.take())?;
        }
        let ended = match capture.next_packet() {
            Ok(Some(packet)) => {
                decoder.packet(&packet);
                continue;
            }
            Ok(None) => Ok(()),
            Err(failure) => Err(failure),
        };
        decoder.end();
        output.text(&decoder.lines.take())?;
        return ended;
    }
}

/// Returns the lines of a whole capture, and the error that ends it.
///
/// # Errors
/// The octets are no capture, or end early; see the text.
pub fn lines_of(octets: &[u8], ports: &[u16]) -> (String, Result<(), Failure>) {
    let mut decoder = Decoder::new(ports);
    let ended = Capture::open(octets, "the capture").and_then(|mut capture| {
        while let Some(packet) = capture.next_packet()? {
            decoder.packet(&packet);
        }
        Ok(())
    });
    decoder.end();
    (decoder.lines.take(), ended)
}

/// The reader of packets.
struct Decoder {
    ports: Vec<u16>,
    tcp: tcp::Connections,
    roce: roce::Flows,
    lines: Lines,
    packets: u64,
}

impl Decoder {
    fn new(ports: &[u16]) -> Self {
        Self {
            ports: ports.to_vec(),
            tcp: tcp::Connections::new(ports),
            roce: roce::Flows::default(),
            lines: Lines::default(),
            packets: 0,
        }
    }

    /// Reads one packet.
    fn packet(&mut self, packet: &file::Packet<'_>) {
        self.packets += 1;
        self.lines.at(packet.at);
        match packet::carried(packet.link, packet.octets) {
            Some(Carried::Tcp(segment)) if self.has_port(&[segment.from, segment.to]) => {
                self.tcp.segment(&segment, &mut self.lines);
            }
            Some(Carried::Roce(datagram)) if self.has_port(&[datagram.to]) => {
                self.roce.datagram(&datagram, &mut self.lines);
            }
            _ => {}
        }
    }

    /// Tells what is known to be missing at the end of the capture.
    fn end(&mut self) {
        self.tcp.end(&mut self.lines);
    }

    /// Returns whether one of the addresses has a port that was asked for.
    fn has_port(&self, addresses: &[std::net::SocketAddr]) -> bool {
        self.ports.is_empty()
            || addresses.iter().any(|address| self.ports.contains(&address.port()))
    }
}

#[cfg(test)]
mod tests;
