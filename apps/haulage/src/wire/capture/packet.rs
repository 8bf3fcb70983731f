//! The layers below TCP and UDP.

use std::net::{IpAddr, SocketAddr};

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_parser::Linktype;

/// What begins a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// An Ethernet header.
    Ethernet,
    /// The header of Linux for packets of all devices, version 1.
    Cooked,
    /// The header of Linux for packets of all devices, version 2.
    Cooked2,
    /// The header of a loopback device of BSD: four octets.
    Loopback,
    /// An IP header.
    Ip,
}

impl Link {
    /// Returns the link of its number in a capture, if it is known here.
    pub fn of(number: i32) -> Option<Self> {
        // The upper half of the word in a pcap file says how long the frame check sequence is.
        match Linktype(number & 0xffff) {
            Linktype::ETHERNET => Some(Self::Ethernet),
            Linktype::LINUX_SLL => Some(Self::Cooked),
            Linktype::LINUX_SLL2 => Some(Self::Cooked2),
            Linktype::NULL | Linktype::LOOP => Some(Self::Loopback),
            Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 | RAW_OF_BSD => Some(Self::Ip),
            _ => None,
        }
    }
}

/// `DLT_RAW`, which some programs write instead of the number for files.
const RAW_OF_BSD: Linktype = Linktype(12);

/// A packet that may be of a connection.
#[derive(Clone, Copy, Debug)]
pub enum Carried<'a> {
    /// A segment of TCP.
    Tcp(TcpSegment<'a>),
    /// A datagram of RoCEv2.
    Roce(Datagram<'a>),
}

/// A segment of TCP.
#[derive(Clone, Copy, Debug)]
pub struct TcpSegment<'a> {
    /// The sender.
    pub from: SocketAddr,
    /// The receiver.
    pub to: SocketAddr,
    /// The sequence number of the first octet of the payload, or of SYN.
    pub sequence: u32,
    /// The sequence number that the sender expects next.
    pub acknowledged: Option<u32>,
    /// Whether it opens a connection.
    pub syn: bool,
    /// Whether it ends its direction.
    pub fin: bool,
    /// Whether it aborts the connection.
    pub rst: bool,
    /// The octets that were captured, which may be fewer than were sent.
    pub payload: &'a [u8],
}

/// A datagram of RoCEv2.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The sender.
    pub from: SocketAddr,
    /// The receiver.
    pub to: SocketAddr,
    /// The octets from the base transport header on.
    pub payload: &'a [u8],
    /// Whether octets at the end were not captured.
    pub is_cut: bool,
}

/// Returns what a packet carries, if it may be of a connection. Fragments of IP packets are not put together.
pub fn carried(link: Link, octets: &[u8]) -> Option<Carried<'_>> {
    let packet = sliced(link, octets)?;
    let is_cut = packet.ip_payload()?.incomplete;
    let (from, to) = match packet.net? {
        LaxNetSlice::Ipv4(ip) => {
            (ip.header().source_addr().into(), ip.header().destination_addr().into())
        }
        LaxNetSlice::Ipv6(ip) => {
            (ip.header().source_addr().into(), ip.header().destination_addr().into())
        }
        LaxNetSlice::Arp(_) => return None,
    };
    let ends = |ports: [u16; 2]| -> [SocketAddr; 2] {
        let [from, to]: [IpAddr; 2] = [from, to];
        [(from, ports[0]).into(), (to, ports[1]).into()]
    };
    match packet.transport? {
        TransportSlice::Tcp(tcp) => {
            let [from, to] = ends([tcp.source_port(), tcp.destination_port()]);
            Some(Carried::Tcp(TcpSegment {
                from,
                to,
                sequence: tcp.sequence_number(),
                acknowledged: tcp.ack().then(|| tcp.acknowledgment_number()),
                syn: tcp.syn(),
                fin: tcp.fin(),
                rst: tcp.rst(),
                payload: tcp.payload(),
            }))
        }
        TransportSlice::Udp(udp) if udp.destination_port() == ROCE_PORT => {
            let [from, to] = ends([udp.source_port(), udp.destination_port()]);
            Some(Carried::Roce(Datagram { from, to, payload: udp.payload(), is_cut }))
        }
        _ => None,
    }
}

fn sliced(link: Link, octets: &[u8]) -> Option<LaxSlicedPacket<'_>> {
    let of_type = |at: usize, header_len: usize| {
        let number = octets.get(at..)?.first_chunk()?;
        let number = EtherType(u16::from_be_bytes(*number));
        Some(LaxSlicedPacket::from_ether_type(number, octets.get(header_len..)?))
    };
    match link {
        Link::Ethernet => LaxSlicedPacket::from_ethernet(octets).ok(),
        Link::Cooked => of_type(14, 16),
        Link::Cooked2 => of_type(0, 20),
        Link::Loopback => LaxSlicedPacket::from_ip(octets.get(4..)?).ok(),
        Link::Ip => LaxSlicedPacket::from_ip(octets).ok(),
    }
}

/// The port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;
