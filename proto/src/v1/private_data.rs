//! RDMA-CM private data (RFC 8797): the properties that both ends exchange while they connect.
//!
//! An end that supports version 1 sends [`PrivateData`] on every connection. [`PrivateData::find`] finds it among other
//! private data. The data of both ends makes an [`Agreement`], which holds for that one connection.

use crate::xdr::{Reader, Truncated, Writer};

/// The private data of one end (FVRS: format identifier, version, R, two sizes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateData {
    /// The flag R. A Responder sets it whenever it can send with invalidation; a Requester only if
    /// every registration on the connection may be invalidated (P8).
    pub invalidation: bool,
    /// The length of the largest message that this end sends, in octets.
    pub send_size: u32,
    /// The length of the largest message that this end accepts, in octets.
    pub receive_size: u32,
}

impl Default for PrivateData {
    /// Returns the values of an end that sent no private data.
    fn default() -> Self {
        // [R8797-5.1-1] [R8797-5.2-1]
        //~ R8797-5.1-1: `send_size: SIZE_MIN, receive_size: SIZE_MIN` -> `send_size: SIZE_MAX, receive_size: SIZE_MAX`
        Self { invalidation: false, send_size: SIZE_MIN, receive_size: SIZE_MIN }
    }
}

impl PrivateData {
    /// The encoded length in octets.
    pub const WIRE_LEN: usize = 8;

    /// Appends the private data to `w`. Sizes are rounded down to a multiple of 1024.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        w.u32(FORMAT)?;
        // [R8797-4-2] the bits beside R are zero.
        //~ R8797-4-2: `{ R }` -> `{ R | 0x80 }`
        let flags = if self.invalidation { R } else { 0 };
        w.put([FORMAT_VERSION, flags, size_code(self.send_size), size_code(self.receive_size)])
    }

    /// Finds RFC 8797 private data at any offset of the private data that the connection manager
    /// delivered.
    ///
    /// Returns `None` if it is absent, is cut short, or has another format version.
    pub fn find(delivered: &[u8]) -> Option<Self> {
        delivered.windows(Self::WIRE_LEN).find_map(Self::parse)
    }

    fn parse(octets: &[u8]) -> Option<Self> {
        let mut r = Reader::new(octets);
        //~ R8797-5.2-1: `!= FORMAT` -> `>> 16 != FORMAT >> 16`
        if r.u32().ok()? != FORMAT {
            return None;
        }
        let [version, flags, send, receive] = r.array().ok()?;
        // [R8797-4-2] the bits beside R are ignored.
        let invalidation = flags & R != 0;
        let (send_size, receive_size) = (size(send), size(receive));
        (version == FORMAT_VERSION).then_some(Self { invalidation, send_size, receive_size })
    }
}

/// The agreement that follows from both ends' private data, for one connection. [R8797-4-1] the
/// next connection has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The inline threshold of messages from the client to the server.
    pub client_to_server: u32,
    /// The inline threshold of messages from the server to the client.
    pub server_to_client: u32,
    /// Whether a Responder may send a Reply with invalidation. A Requester must be ready for it even if this is false:
    /// Linux servers do not set R and invalidate anyway (P8).
    pub invalidation: bool,
}

impl Agreement {
    /// Computes the agreement; `None` stands for an end without private data.
    pub fn new(client: Option<PrivateData>, server: Option<PrivateData>) -> Self {
        // [R8797-5.1-1] [R8797-5.2-1] [R8797-1-1] an end without private data has the defaults.
        let (client, server) = (client.unwrap_or_default(), server.unwrap_or_default());
        Self {
            // E31
            client_to_server: client.send_size.min(server.receive_size),
            server_to_client: server.send_size.min(client.receive_size),
            // [R8797-4.1-1] [R8797-4.1-3]
            //~ R8797-4.1-1: `client.invalidation && server.invalidation` -> `false`
            //~ R8797-4.1-3: `&& server` -> `|| server`
            invalidation: client.invalidation && server.invalidation,
        }
    }
}

/// Returns the size that a size code stands for, in octets.
fn size(code: u8) -> u32 {
    u32::from(code).saturating_add(1).saturating_mul(SIZE_UNIT)
}

/// Returns the code of the largest size that is not above `octets`.
fn size_code(octets: u32) -> u8 {
    let units = octets.checked_div(SIZE_UNIT).unwrap_or_default();
    u8::try_from(units.saturating_sub(1)).unwrap_or(u8::MAX)
}

/// The smallest inline threshold of version 1, and the default.
pub const SIZE_MIN: u32 = 1024;

/// The largest inline threshold that a size code can express.
pub const SIZE_MAX: u32 = 262_144;

const SIZE_UNIT: u32 = 1024;
const FORMAT: u32 = 0xf6ab_0e18;
const FORMAT_VERSION: u8 = 1;
const R: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rng, vectors};
    use std::vec::Vec;

    const LINUX_CLIENT: PrivateData =
        PrivateData { invalidation: true, send_size: 4096, receive_size: 4096 };
    const LINUX_SERVER: PrivateData = PrivateData { invalidation: false, ..LINUX_CLIENT };

    fn encoded(ours: &PrivateData) -> Vec<u8> {
        let mut memory = [0xee; 16];
        let mut w = Writer::new(&mut memory);
        ours.encode(&mut w).unwrap();
        w.written().to_vec()
    }

    #[test]
    fn what_linux_sends_is_found_behind_what_mpa_put_first() {
        let captured = vectors(include_str!("../../vectors/v1/private_data.hex"));
        for ((name, bytes), expected) in captured.iter().zip([LINUX_CLIENT, LINUX_SERVER]) {
            assert_eq!(PrivateData::find(bytes), Some(expected), "{name}");
            assert_eq!(encoded(&expected), bytes[4..], "{name}");
        }
        assert_eq!(captured.len(), 2);
    }

    #[test]
    fn it_is_found_at_any_offset_and_with_anything_behind_it() {
        let ours = encoded(&LINUX_CLIENT);
        for before in 0..32 {
            for after in 0..3 {
                let mut bytes = std::vec![0xf6; before];
                bytes.extend(&ours);
                bytes.extend(std::vec![0xf6; after]);
                assert_eq!(PrivateData::find(&bytes), Some(LINUX_CLIENT), "{before} {after}");
                // [R8797-5.2-1] private data that is cut short is not found.
                bytes.truncate(before + ours.len() - 1);
                assert_eq!(PrivateData::find(&bytes), None, "{before}");
            }
        }
        // Private data of another version in front of ours does not hide ours.
        let mut decoy = ours.clone();
        decoy[4] = 2;
        assert_eq!(PrivateData::find(&decoy), None);
        decoy.extend(&ours);
        assert_eq!(PrivateData::find(&decoy), Some(LINUX_CLIENT));
        assert_eq!(PrivateData::find(&[]), None);
    }

    #[test]
    fn reserved_bits_are_zero_when_sent_and_ignored_when_received() {
        for ours in [LINUX_CLIENT, LINUX_SERVER] {
            let mut bytes = encoded(&ours);
            assert_eq!(bytes[5], u8::from(ours.invalidation));
            bytes[5] |= 0xfe;
            assert_eq!(PrivateData::find(&bytes), Some(ours));
        }
    }

    #[test]
    fn sizes_are_whole_units_from_1024_to_262144() {
        let cases = [
            (0, 0, 1024),
            (1023, 0, 1024),
            (1024, 0, 1024),
            (2047, 0, 1024),
            (2048, 1, 2048),
            (4096, 3, 4096),
            (65536, 63, 65536),
            (SIZE_MAX - 1, 254, SIZE_MAX - 1024),
            (SIZE_MAX, 255, SIZE_MAX),
            (u32::MAX, 255, SIZE_MAX),
        ];
        for (octets, code, back) in cases {
            let ours = PrivateData { invalidation: true, send_size: octets, receive_size: 1024 };
            let bytes = encoded(&ours);
            assert_eq!(bytes[6..], [code, 0], "{octets}");
            assert_eq!(PrivateData::find(&bytes).unwrap().send_size, back, "{octets}");
        }
    }

    #[test]
    fn each_way_has_the_smaller_of_what_is_sent_and_what_is_taken() {
        let client = PrivateData { invalidation: true, send_size: 16384, receive_size: 2048 };
        let server = PrivateData { invalidation: true, send_size: 4096, receive_size: 8192 };
        let agreed = Agreement::new(Some(client), Some(server));
        assert_eq!((agreed.client_to_server, agreed.server_to_client), (8192, 2048));
        assert!(agreed.invalidation);
    }

    #[test]
    fn an_end_that_said_nothing_has_the_defaults_of_version_1() {
        let big = PrivateData { invalidation: true, send_size: 65536, receive_size: 65536 };
        let expected =
            Agreement { client_to_server: 1024, server_to_client: 1024, invalidation: false };
        assert_eq!(Agreement::new(Some(big), None), expected);
        assert_eq!(Agreement::new(None, Some(big)), expected);
        assert_eq!(Agreement::new(None, None), expected);
    }

    #[test]
    fn invalidation_takes_both() {
        for (client, server) in [(false, false), (false, true), (true, false), (true, true)] {
            let said = |invalidation| Some(PrivateData { invalidation, ..LINUX_CLIENT });
            let agreed = Agreement::new(said(client), said(server));
            assert_eq!(agreed.invalidation, client && server);
        }
    }

    #[test]
    fn each_connection_has_its_own_agreement() {
        // [R8797-4-1] the second agreement keeps nothing of the first.
        let first = Agreement::new(Some(LINUX_CLIENT), Some(LINUX_CLIENT));
        let second = Agreement::new(Some(LINUX_CLIENT), None);
        assert_ne!(first, second);
        assert_eq!(second, Agreement::new(Some(LINUX_CLIENT), Some(PrivateData::default())));
    }

    #[test]
    fn any_bytes_may_be_searched() {
        let mut rng = Rng::new(0x8797);
        for _ in 0..5_000 {
            let mut bytes: Vec<u8> = (0..rng.below(64)).map(|_| rng.octet()).collect();
            let planted = rng.below(2) == 0;
            if planted {
                let at = rng.below(bytes.len() + 1);
                let ours = encoded(&LINUX_SERVER);
                bytes.splice(at..at, ours);
            }
            assert_eq!(PrivateData::find(&bytes), planted.then_some(LINUX_SERVER));
        }
    }
}
