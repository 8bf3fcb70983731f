//! MPA (RFC 5044, with the Enhanced data of RFC 6581): the frames that open a TCP stream, and FPDUs without markers.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};

/// The longest wait for octets of the other end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Whether this end asks for CRCs. They are in force if either end does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crc {
    Asked,
    NotAsked,
}

/// An open stream.
pub(crate) struct Stream {
    tcp: TcpStream,
    has_crc: bool,
    /// Reads that the other end may have outstanding.
    pub(crate) ird: u16,
    /// Reads that this end may have outstanding.
    pub(crate) ord: u16,
    /// The private data of the other end.
    pub(crate) private_data: Vec<u8>,
}

impl Stream {
    /// Connects as the active end.
    pub(crate) fn connect(to: SocketAddr, crc: Crc) -> Self {
        let tcp = TcpStream::connect_timeout(&to, PATIENCE).unwrap();
        let mut stream = Self::over(tcp);
        let ours = Frame { flags: crc.flag(), ird: READS, ord: READS };
        stream.tcp.write_all(&ours.encode(REQUEST)).unwrap();
        let theirs = stream.take_frame(REPLY);
        assert_eq!(theirs.flags & REJECTED, 0, "not rejected");
        assert!(theirs.ord <= READS, "the passive end has no more Reads than were offered");
        stream.agreed(ours, theirs)
    }

    /// Accepts the next active end.
    pub(crate) fn accept(listener: &TcpListener, crc: Crc) -> Self {
        set_socket_timeout(listener, Timeout::Recv, Some(PATIENCE)).unwrap();
        let mut stream = Self::over(listener.accept().unwrap().0);
        let theirs = stream.take_frame(REQUEST);
        let (ird, ord) = (READS.min(theirs.ord), READS.min(theirs.ird));
        let ours = Frame { flags: crc.flag(), ird, ord };
        stream.tcp.write_all(&ours.encode(REPLY)).unwrap();
        stream.agreed(ours, theirs)
    }

    /// Sends one FPDU.
    pub(crate) fn send(&mut self, ulpdu: &[u8]) {
        let length = u16::try_from(ulpdu.len()).unwrap();
        let mut fpdu = [&length.to_be_bytes()[..], ulpdu].concat();
        fpdu.resize(fpdu.len().next_multiple_of(4), 0);
        let crc = if self.has_crc { crc32c(&fpdu) } else { !0 };
        fpdu.extend(crc.to_le_bytes());
        // FPDUs end within TCP segments.
        for part in fpdu.chunks(555) {
            self.tcp.write_all(part).unwrap();
        }
    }

    /// Receives the ULPDU of the next FPDU.
    pub(crate) fn receive(&mut self) -> Vec<u8> {
        let mut fpdu = self.octets(2);
        let length = usize::from(u16::from_be_bytes([fpdu[0], fpdu[1]]));
        fpdu.extend(self.octets((length + 2).next_multiple_of(4) - 2));
        let crc = self.octets(4);
        if self.has_crc {
            assert_eq!(crc, crc32c(&fpdu).to_le_bytes(), "the CRC of {length} octets");
        }
        fpdu[2..2 + length].to_vec()
    }

    /// Returns whether octets of the other end have arrived.
    pub(crate) fn has_input(&self) -> bool {
        self.tcp.set_nonblocking(true).unwrap();
        let seen = self.tcp.peek(&mut [0]);
        self.tcp.set_nonblocking(false).unwrap();
        seen.is_ok_and(|length| length > 0)
    }

    fn over(tcp: TcpStream) -> Self {
        tcp.set_nodelay(true).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        tcp.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { tcp, has_crc: false, ird: 0, ord: 0, private_data: Vec::new() }
    }

    fn agreed(self, ours: Frame, theirs: Frame) -> Self {
        let has_crc = (ours.flags | theirs.flags) & CRC != 0;
        Self { has_crc, ird: ours.ird.min(theirs.ord), ord: ours.ord.min(theirs.ird), ..self }
    }

    fn take_frame(&mut self, key: &[u8; 16]) -> Frame {
        let fixed = self.octets(20);
        let [flags, revision, high, low] = fixed[16..] else { unreachable!("20 octets") };
        assert_eq!(&fixed[..16], key, "the key of the frame");
        assert_eq!((flags & !(CRC | REJECTED), revision), (ENHANCED, 2), "no markers");
        let mut data = self.octets(u16::from_be_bytes([high, low]).into());
        self.private_data = data.split_off(4);
        let [ird, ord] = [[data[0], data[1]], [data[2], data[3]]].map(u16::from_be_bytes);
        assert!(ird < 0x3fff && ord < 0x3fff, "numbers of Reads, and no peer-to-peer model");
        Frame { flags, ird, ord }
    }

    fn octets(&mut self, length: usize) -> Vec<u8> {
        let mut octets = vec![0; length];
        self.tcp.read_exact(&mut octets).unwrap();
        octets
    }
}

impl Crc {
    const fn flag(self) -> u8 {
        match self {
            Self::Asked => CRC,
            Self::NotAsked => 0,
        }
    }
}

/// A Request or a Reply with Enhanced data, but for its private data.
#[derive(Clone, Copy)]
struct Frame {
    flags: u8,
    ird: u16,
    ord: u16,
}

impl Frame {
    fn encode(self, key: &[u8; 16]) -> Vec<u8> {
        let fixed = [self.flags | ENHANCED, 2, 0, 11];
        let reads = [self.ird, self.ord].map(u16::to_be_bytes);
        // Private data of no known format.
        [&key[..], &fixed, reads.as_flattened(), b"foreign"].concat()
    }
}

/// Returns the CRC of RFC 3720, which FPDUs carry with its lowest octet first.
fn crc32c(octets: &[u8]) -> u32 {
    let shift = |crc: u32| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
    !octets.iter().fold(!0, |crc, octet| (0..8).fold(crc ^ u32::from(*octet), |crc, _| shift(crc)))
}

const REQUEST: &[u8; 16] = b"MPA ID Req Frame";
const REPLY: &[u8; 16] = b"MPA ID Rep Frame";
const CRC: u8 = 0x40;
const REJECTED: u8 = 0x20;
const ENHANCED: u8 = 0x10;
/// Reads that this end serves, or has outstanding, at once.
const READS: u16 = 4;

#[test]
fn the_crc_is_that_of_iscsi() {
    // RFC 3720 appendix B.4: 32 octets of zeros, and of ones.
    assert_eq!(crc32c(&[0; 32]).to_le_bytes(), [0xaa, 0x36, 0x91, 0x8a]);
    assert_eq!(crc32c(&[0xff; 32]).to_le_bytes(), [0x43, 0xab, 0xa8, 0x62]);
}
