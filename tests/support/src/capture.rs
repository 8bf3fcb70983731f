//! Captures, made octet by octet: packets of TCP and UDP over IPv4, and the files that programs keep them in.

/// An address and a port.
pub type Address = ([u8; 4], u16);

/// Flags of a TCP segment.
pub const FIN: u8 = 0x01;
/// Opens a connection.
pub const SYN: u8 = 0x02;
/// Aborts a connection.
pub const RST: u8 = 0x04;
/// The segment acknowledges.
pub const ACK: u8 = 0x10;

/// A TCP segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The sender.
    pub from: Address,
    /// The receiver.
    pub to: Address,
    /// The sequence number.
    pub sequence: u32,
    /// The number that the sender expects next.
    pub acknowledged: u32,
    /// [`SYN`] and the like.
    pub flags: u8,
    /// The octets.
    pub payload: Vec<u8>,
}

impl Segment {
    /// Returns the IP packet of the segment.
    pub fn packet(&self) -> Vec<u8> {
        let mut tcp = Vec::new();
        tcp.extend(self.from.1.to_be_bytes());
        tcp.extend(self.to.1.to_be_bytes());
        tcp.extend(self.sequence.to_be_bytes());
        tcp.extend(self.acknowledged.to_be_bytes());
        // Five words of header, the window, no checksum, nothing urgent.
        tcp.extend([0x50, self.flags, 0x10, 0, 0, 0, 0, 0]);
        tcp.extend(&self.payload);
        ip(6, (self.from.0, self.to.0), &tcp)
    }
}

/// Returns the IP packet of a datagram.
pub fn datagram(from: Address, to: Address, payload: &[u8]) -> Vec<u8> {
    let mut udp = Vec::new();
    udp.extend(from.1.to_be_bytes());
    udp.extend(to.1.to_be_bytes());
    udp.extend(length(8 + payload.len()).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    ip(17, (from.0, to.0), &udp)
}

fn ip(protocol: u8, (from, to): ([u8; 4], [u8; 4]), payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend(length(20 + payload.len()).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
    packet.extend(from);
    packet.extend(to);
    packet.extend(payload);
    packet
}

fn length(count: usize) -> u16 {
    u16::try_from(count).expect("a packet is shorter")
}

/// A connection of TCP: both ends, and what each has sent.
#[derive(Clone, Debug)]
pub struct Connection {
    ends: [Address; 2],
    next: [u32; 2],
}

impl Connection {
    /// Opens a connection: returns it with its first three segments. The first end opens it.
    pub fn open(ends: [Address; 2]) -> (Self, Vec<Segment>) {
        // So that numbers wrap.
        let mut connection = Self { ends, next: [u32::MAX - 40, 1000] };
        let segments = [(0, SYN), (1, SYN | ACK), (0, ACK)];
        let segments = segments.map(|(sender, flags)| {
            let segment = connection.segment(sender, flags, &[]);
            connection.next[sender] =
                connection.next[sender].wrapping_add(u32::from(flags & SYN != 0));
            segment
        });
        (connection, segments.into())
    }

    /// Sends octets from one end.
    pub fn send(&mut self, sender: usize, payload: &[u8]) -> Segment {
        let segment = self.segment(sender, ACK, payload);
        let count = u32::from(length(payload.len()));
        self.next[sender] = self.next[sender].wrapping_add(count);
        segment
    }

    /// Makes a segment without payload, such as an acknowledgment.
    pub fn bare(&self, sender: usize, flags: u8) -> Segment {
        self.segment(sender, flags, &[])
    }

    fn segment(&self, sender: usize, flags: u8, payload: &[u8]) -> Segment {
        let acknowledged = if flags & ACK == 0 { 0 } else { self.next[1 - sender] };
        Segment {
            from: self.ends[sender],
            to: self.ends[1 - sender],
            sequence: self.next[sender],
            acknowledged,
            flags,
            payload: payload.to_vec(),
        }
    }
}

/// What a packet begins with in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Ethernet.
    Ethernet,
    /// Ethernet with a VLAN tag.
    Tagged,
    /// Cooked, version 1.
    Cooked,
    /// Cooked, version 2.
    Cooked2,
    /// The loopback of BSD.
    Loopback,
    /// IP.
    Ip,
}

impl Link {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Ethernet, Self::Tagged, Self::Cooked, Self::Cooked2, Self::Loopback, Self::Ip];

    const fn number(self) -> u16 {
        match self {
            Self::Ethernet | Self::Tagged => 1,
            Self::Cooked => 113,
            Self::Cooked2 => 276,
            Self::Loopback => 0,
            Self::Ip => 101,
        }
    }

    fn frame(self, packet: &[u8]) -> Vec<u8> {
        let mut frame = match self {
            Self::Ethernet => [&[2; 12][..], &[8, 0]].concat(),
            Self::Tagged => [&[2; 12][..], &[0x81, 0, 0, 7, 8, 0]].concat(),
            Self::Cooked => [&[0, 0, 3, 4, 0, 6][..], &[0; 8], &[8, 0]].concat(),
            Self::Cooked2 => [&[8, 0][..], &[0; 18]].concat(),
            Self::Loopback => vec![2, 0, 0, 0],
            Self::Ip => vec![],
        };
        frame.extend(packet);
        frame
    }
}

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// pcapng, or pcap.
    pub kind: Kind,
    /// Whether words are little-endian.
    pub order: Order,
    /// The link of all packets.
    pub link: Link,
}

/// Formats with their resolution of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// pcap, in microseconds.
    Micro,
    /// pcap, in nanoseconds.
    Nano,
    /// pcapng, in nanoseconds.
    Next,
}

/// Orders of octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Least significant first.
    Little,
    /// Most significant first.
    Big,
}

impl Format {
    /// What tcpdump writes.
    pub const USUAL: Self = Self { kind: Kind::Micro, order: Order::Little, link: Link::Ethernet };

    /// All formats, with all links.
    pub fn all() -> impl Iterator<Item = Self> {
        let orders = [Order::Little, Order::Big];
        Link::ALL.into_iter().flat_map(move |link| {
            [Kind::Micro, Kind::Nano, Kind::Next].into_iter().flat_map(move |kind| {
                orders.into_iter().map(move |order| Self { kind, order, link })
            })
        })
    }

    /// Returns a file with these IP packets, one a millisecond.
    pub fn file<'a>(self, packets: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<u8> {
        let mut file = self.head();
        for (index, packet) in packets.into_iter().enumerate() {
            let index = u32::try_from(index).expect("few packets");
            file.extend(self.record(index, packet));
        }
        file
    }

    /// Returns what a file begins with.
    pub fn head(self) -> Vec<u8> {
        let link = self.link.number();
        match self.kind {
            Kind::Micro | Kind::Nano => {
                let magic = if self.kind == Kind::Micro { 0xa1b2_c3d4 } else { 0xa1b2_3c4d };
                let versions = [self.short(2), self.short(4)].concat();
                [self.word(magic).to_vec(), versions, self.words(&[0, 0, 262_144, link.into()])]
                    .concat()
            }
            Kind::Next => {
                let section = self.block(
                    0x0a0d_0d0a,
                    &[
                        self.word(0x1a2b_3c4d).to_vec(),
                        [self.short(1), self.short(0)].concat(),
                        vec![0xff; 8],
                    ],
                );
                // The resolution of time: nanoseconds; and no more options.
                let resolution = [self.short(9), self.short(1)].concat();
                let interface = self.block(
                    1,
                    &[
                        [self.short(link), self.short(0)].concat(),
                        self.word(262_144).to_vec(),
                        resolution,
                        vec![9, 0, 0, 0],
                        vec![0; 4],
                    ],
                );
                [section, interface].concat()
            }
        }
    }

    /// Returns the record of one IP packet: the one of this number.
    pub fn record(self, index: u32, packet: &[u8]) -> Vec<u8> {
        let frame = self.link.frame(packet);
        let length = u32::try_from(frame.len()).expect("a packet is shorter");
        let milliseconds = 1_700_000_000_000 + u64::from(index);
        match self.kind {
            Kind::Micro | Kind::Nano => {
                let seconds = u32::try_from(milliseconds / 1000).expect("before 2106");
                let unit = if self.kind == Kind::Micro { 1_000 } else { 1_000_000 };
                let rest = u32::try_from(milliseconds % 1000).expect("below 1000") * unit;
                [self.words(&[seconds, rest, length, length]), frame].concat()
            }
            Kind::Next => {
                let time = milliseconds * 1_000_000;
                let high = u32::try_from(time >> 32).expect("32 bits");
                let low = u32::try_from(time & u64::from(u32::MAX)).expect("32 bits");
                let padding = vec![0; frame.len().wrapping_neg() & 3];
                self.block(6, &[self.words(&[0, high, low, length, length]), frame, padding])
            }
        }
    }

    fn block(self, kind: u32, pieces: &[Vec<u8>]) -> Vec<u8> {
        let body = pieces.concat();
        let length = u32::try_from(body.len() + 12).expect("a block is shorter");
        [self.words(&[kind, length]), body, self.word(length).to_vec()].concat()
    }

    fn words(self, words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| self.word(*word)).collect()
    }

    const fn word(self, word: u32) -> [u8; 4] {
        match self.order {
            Order::Little => word.to_le_bytes(),
            Order::Big => word.to_be_bytes(),
        }
    }

    const fn short(self, short: u16) -> [u8; 2] {
        match self.order {
            Order::Little => short.to_le_bytes(),
            Order::Big => short.to_be_bytes(),
        }
    }
}
