//! Packets of a capture: pcap in both byte orders with microseconds or nanoseconds, and pcapng, from files and pipes.
//!
//! A block is parsed once it is there as a whole, so that a capture can be read while it is written.

use std::io::{self, Read};
use std::ops::Range;

use pcap_parser::pcap::{PcapHeader, parse_pcap_header};
use pcap_parser::pcap::{parse_pcap_frame, parse_pcap_frame_be, parse_pcap_frame_modified};
use pcap_parser::pcapng::{Block, InterfaceDescriptionBlock, parse_block_be, parse_block_le};
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{IDB_MAGIC, SHB_MAGIC};

use super::lines::{Decimals, Time};
use super::packet::Link;
use crate::failure::Failure;

/// A packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// When it was captured.
    pub at: Time,
    /// What it begins with.
    pub link: Link,
    /// The octets that were captured.
    pub octets: &'a [u8],
}

/// A capture that is being read.
#[derive(Debug)]
pub struct Capture<'n, R> {
    input: R,
    name: &'n str,
    /// Octets that were read; those before `start` are done with.
    held: Vec<u8>,
    start: usize,
    format: Format,
    packets: u64,
}

#[derive(Debug)]
enum Format {
    Pcap { header: PcapHeader, link: Link },
    Pcapng { order: Order, interfaces: Vec<Interface> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

/// What a pcapng file says of an interface.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: Option<Link>,
    /// Ticks in a second.
    resolution: u64,
    /// Seconds to add to a time.
    offset: i64,
}

impl<'n, R: Read> Capture<'n, R> {
    /// Opens a capture, which messages call `name`.
    ///
    /// # Errors
    /// The input cannot be read, or is no capture; the text says what it is and what to do.
    pub fn open(input: R, name: &'n str) -> Result<Self, Failure> {
        let format = Format::Pcapng { order: Order::Little, interfaces: Vec::new() };
        let mut capture = Self { input, name, held: Vec::new(), start: 0, format, packets: 0 };
        capture.fill(MAGIC_LEN)?;
        if capture.held.is_empty() {
            return Err(capture.failure("is empty, and no capture of tcpdump or Wireshark"));
        }
        let magic = capture.held.first_chunk().map(|magic| u32::from_le_bytes(*magic));
        if magic == Some(SHB_MAGIC) {
            return Ok(capture);
        }
        if !magic.is_some_and(|magic| PCAP_MAGICS.contains(&magic)) {
            return Err(capture.refuse());
        }
        if !capture.fill(PCAP_HEADER_LEN)? {
            return Err(capture.cut_off());
        }
        let Ok((_, header)) = parse_pcap_header(&capture.held) else {
            return Err(capture.refuse());
        };
        let Some(link) = Link::of(header.network.0) else {
            return Err(capture.failure(&format!(
                "has packets of link type {}, which are not known here: capture on an Ethernet or loopback device, or \
                 on `any`",
                header.network.0
            )));
        };
        capture.start = PCAP_HEADER_LEN;
        capture.format = Format::Pcap { header, link };
        Ok(capture)
    }

    /// Returns the next packet, or `None` at the end. Packets of interfaces with an unknown link type are left out.
    ///
    /// # Errors
    /// The input cannot be read, is damaged, or ends within a packet.
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, Failure> {
        loop {
            let Some(length) = self.take_block()? else { return Ok(None) };
            let end = self.start;
            let block = self.held.get(end - length..end).unwrap_or_default();
            match read(&mut self.format, block) {
                Found::Nothing => {}
                Found::Damage => {
                    return Err(self.failure(&format!("is damaged after {} packets", self.packets)));
                }
                Found::Packet { at, link, place } => {
                    self.packets += 1;
                    let block = self.held.get(end - length..end).unwrap_or_default();
                    let octets = block.get(place).unwrap_or_default();
                    return Ok(Some(Packet { at, link, octets }));
                }
            }
        }
    }

    /// Returns whether the next packet needs more input than was read.
    pub fn must_wait(&self) -> bool {
        self.wanted().is_ok_and(|wanted| self.left().len() < wanted)
    }

    /// Moves beyond the next block. Returns its length, or `None` at the end.
    fn take_block(&mut self) -> Result<Option<usize>, Failure> {
        loop {
            let wanted = self.wanted()?;
            if self.left().len() >= wanted {
                self.start += wanted;
                return Ok(Some(wanted));
            }
            if !self.fill(wanted)? {
                return if self.left().is_empty() { Ok(None) } else { Err(self.cut_off()) };
            }
        }
    }

    /// Returns the length of the next block, or of its header if that is not there yet.
    fn wanted(&self) -> Result<usize, Failure> {
        let left = self.left();
        let length = match &self.format {
            Format::Pcap { header, .. } => {
                let header_len = if header.is_modified_format() { 24 } else { 16 };
                if left.len() < header_len {
                    return Ok(header_len);
                }
                let order = if header.is_bigendian() { Order::Big } else { Order::Little };
                header_len + usize::try_from(order.word(left, 8)).unwrap_or(usize::MAX / 2)
            }
            Format::Pcapng { order, .. } => {
                if left.len() < PCAPNG_HEADER_LEN {
                    return Ok(PCAPNG_HEADER_LEN);
                }
                let length = order_at(left, *order).word(left, 4);
                if length < 12 {
                    return Err(self.failure(&format!("is damaged after {} packets", self.packets)));
                }
                usize::try_from(length).unwrap_or(usize::MAX)
            }
        };
        if length > BLOCK_MAX {
            return Err(self.failure(&format!(
                "is damaged after {} packets, or has one of {length} bytes, which is more than any",
                self.packets
            )));
        }
        Ok(length)
    }

    /// Reads until `wanted` octets are there. Returns whether they are.
    fn fill(&mut self, wanted: usize) -> Result<bool, Failure> {
        if self.start > READ_LEN {
            self.held.drain(..self.start);
            self.start = 0;
        }
        while self.left().len() < wanted {
            let end = self.held.len();
            self.held.resize(end + READ_LEN, 0);
            let read = self.input.read(self.held.get_mut(end..).unwrap_or_default());
            self.held.truncate(end + read.as_ref().copied().unwrap_or(0).min(READ_LEN));
            match read {
                Ok(0) => return Ok(false),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Failure::failed(format!("cannot read {}: {error}", self.name)));
                }
            }
        }
        Ok(true)
    }

    /// Returns the input, for tests that decide how much it gives.
    #[cfg(test)]
    pub fn meter(&mut self) -> &mut R {
        &mut self.input
    }

    fn left(&self) -> &[u8] {
        self.held.get(self.start..).unwrap_or_default()
    }

    fn failure(&self, what: &str) -> Failure {
        Failure::failed(format!("{} {what}", self.name))
    }

    fn cut_off(&self) -> Failure {
        self.failure(&format!(
            "is cut off: it ends within a packet, after {} whole ones, which are shown",
            self.packets
        ))
    }

    /// Returns the error for a file of another kind.
    fn refuse(&self) -> Failure {
        let held = &self.held;
        let what = match held.as_slice() {
            [0x1f, 0x8b, ..] => "is compressed: decompress it with gzip -dc",
            [0x28, 0xb5, 0x2f, 0xfd, ..] => "is compressed: decompress it with zstd -dc",
            [0xfd, b'7', b'z', b'X', b'Z', ..] => "is compressed: decompress it with xz -dc",
            _ if held.starts_with(b"snoop\0") => "is a capture of snoop: convert it with editcap",
            _ if is_text(held) => {
                "is text, and no capture of tcpdump or Wireshark; messages in hex are decoded without --pcap"
            }
            _ => "is no capture: pcap or pcapng, as `tcpdump -w` and Wireshark write",
        };
        self.failure(what)
    }
}

/// What a block has.
enum Found {
    /// A packet, at this place in the block.
    Packet { at: Time, link: Link, place: Range<usize> },
    /// No packet, or one whose link is not known.
    Nothing,
    /// The block is not valid.
    Damage,
}

fn read(format: &mut Format, block: &[u8]) -> Found {
    match format {
        Format::Pcap { header, link } => read_frame(header, *link, block),
        Format::Pcapng { order, interfaces } => {
            *order = order_at(block, *order);
            let parsed = match order {
                Order::Little => parse_block_le(block),
                Order::Big => parse_block_be(block),
            };
            match parsed {
                Ok((_, parsed)) => read_block(interfaces, &parsed),
                Err(_) => Found::Damage,
            }
        }
    }
}

/// Reads a record of a pcap file.
fn read_frame(header: &PcapHeader, link: Link, block: &[u8]) -> Found {
    let parse = match (header.is_modified_format(), header.is_bigendian()) {
        (true, _) => parse_pcap_frame_modified,
        (false, true) => parse_pcap_frame_be,
        (false, false) => parse_pcap_frame,
    };
    let Ok((_, frame)) = parse(block) else { return Found::Damage };
    let (unit, decimals) = if header.is_nanosecond_precision() {
        (1, Decimals::Nano)
    } else {
        (1_000, Decimals::Micro)
    };
    let nanoseconds = u64::from(frame.ts_sec) * 1_000_000_000 + u64::from(frame.ts_usec) * unit;
    let place = block.len() - frame.data.len()..block.len();
    Found::Packet { at: Time { nanoseconds, decimals }, link, place }
}

/// Reads a block of a pcapng file.
fn read_block(interfaces: &mut Vec<Interface>, block: &Block<'_>) -> Found {
    let (number, ticks, at, length) = match block {
        Block::SectionHeader(_) => {
            interfaces.clear();
            return Found::Nothing;
        }
        Block::InterfaceDescription(_) if interfaces.len() >= INTERFACES_MAX => {
            return Found::Damage;
        }
        Block::InterfaceDescription(described) => {
            interfaces.push(Interface::of(described));
            return Found::Nothing;
        }
        Block::EnhancedPacket(packet) => {
            let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
            (packet.if_id, ticks, 28, packet.packet_data().len())
        }
        // It has no time.
        Block::SimplePacket(packet) => (0, 0, 12, packet.packet_data().len()),
        _ => return Found::Nothing,
    };
    let interface = usize::try_from(number).ok().and_then(|number| interfaces.get(number));
    match interface {
        None => Found::Damage,
        Some(Interface { link: None, .. }) => Found::Nothing,
        Some(interface @ Interface { link: Some(link), .. }) => {
            Found::Packet { at: interface.time(ticks), link: *link, place: at..at + length }
        }
    }
}

impl Interface {
    fn of(described: &InterfaceDescriptionBlock<'_>) -> Self {
        let exponent = u32::from(described.if_tsresol & 0x7f);
        let base: u64 = if described.if_tsresol & 0x80 == 0 { 10 } else { 2 };
        // The parser reads the offset as little-endian; the type of the block says whether it is.
        let offset = match described.block_type {
            IDB_MAGIC => described.if_tsoffset,
            _ => described.if_tsoffset.swap_bytes(),
        };
        Self {
            link: Link::of(described.linktype.0),
            resolution: base.checked_pow(exponent).unwrap_or(u64::MAX),
            offset,
        }
    }

    fn time(&self, ticks: u64) -> Time {
        let resolution = u128::from(self.resolution.max(1));
        let nanoseconds = i128::try_from(u128::from(ticks) * 1_000_000_000 / resolution);
        let nanoseconds = nanoseconds.unwrap_or(0) + i128::from(self.offset) * 1_000_000_000;
        Time {
            nanoseconds: u64::try_from(nanoseconds).unwrap_or(0),
            decimals: if self.resolution > 1_000_000 { Decimals::Nano } else { Decimals::Micro },
        }
    }
}

impl Order {
    /// Returns a word of `octets`; zero if it is not there.
    fn word(self, octets: &[u8], at: usize) -> u32 {
        let word =
            octets.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default();
        match self {
            Self::Little => u32::from_le_bytes(word),
            Self::Big => u32::from_be_bytes(word),
        }
    }
}

/// Returns the byte order of a block of pcapng, which its section header gives.
fn order_at(block: &[u8], order: Order) -> Order {
    if Order::Little.word(block, 0) != SHB_MAGIC {
        return order;
    }
    if Order::Little.word(block, 8) == SECTION_ORDER { Order::Little } else { Order::Big }
}

fn is_text(octets: &[u8]) -> bool {
    octets.iter().all(|octet| octet.is_ascii_graphic() || octet.is_ascii_whitespace())
}

/// The most octets of a packet, or of another block: four times as many as any program captures of one packet.
pub const BLOCK_MAX: usize = 1 << 20;
/// The most interfaces of a section.
const INTERFACES_MAX: usize = 4096;
/// Octets that are read at once.
const READ_LEN: usize = 64 << 10;
/// Octets that tell a capture from other files.
const MAGIC_LEN: usize = 4;
const PCAP_HEADER_LEN: usize = 24;
/// Type, length and, in a section header, byte order.
const PCAPNG_HEADER_LEN: usize = 12;
/// The first words of a pcap file, read as little-endian: either order, microseconds or nanoseconds, and the modified
/// format.
const PCAP_MAGICS: [u32; 5] = [0xa1b2_c3d4, 0xa1b2_3c4d, 0xa1b2_cd34, 0xd4c3_b2a1, 0x4d3c_b2a1];
/// The byte order of a section.
const SECTION_ORDER: u32 = 0x1a2b_3c4d;
