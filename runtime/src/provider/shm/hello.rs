//! The messages of connection setup: one from each end, with descriptors.
//!
//! ```text
//!  magic[8] kind:u32 ord:u32 ird:u32 ring_bytes:u32 entries:u32 flags:u32 region:u64 private_length:u32
//!  private data
//! ```
//! All big-endian. Of the flags, bit 0 is set if a region is passed, bit 1 if the sender takes part in heavy
//! barriers, and bits 2 and 3 say why the sender refuses, if it does so by itself. The sender's segment comes
//! with the message and, if the sender exposes memory, its region. A refusal carries neither.

use std::mem;
use std::os::fd::OwnedFd;

use super::segment::Layout;
use crate::sys::elsewhere::drop_elsewhere;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A request, by the end that connects.
    Ask,
    /// An acceptance, by the end that listens.
    Accept,
    /// A rejection, by the end that listens.
    Reject,
}

/// Why an end refuses a connection by itself, without asking the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The peer's region is longer than any that this end maps.
    RegionTooLong,
    /// The regions that are mapped leave no room for the peer's.
    NoRoomForRegion,
}

impl Refusal {
    /// Returns the reason in the words for the end that is refused.
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::RegionTooLong => "the memory to be shared is longer than the peer maps",
            Self::NoRoomForRegion => "the peer maps no more memory of others now",
        }
    }

    /// Returns the reason in the words for the end that refuses.
    pub(super) const fn own_reason(self) -> &'static str {
        match self {
            Self::RegionTooLong => "the peer's memory is longer than this end maps",
            Self::NoRoomForRegion => "this end maps no more memory of others now",
        }
    }

    const fn encode(this: Option<Self>) -> u32 {
        match this {
            None => 0,
            Some(Self::RegionTooLong) => 1,
            Some(Self::NoRoomForRegion) => 2,
        }
    }

    const fn decode(code: u32) -> Option<Self> {
        match code {
            1 => Some(Self::RegionTooLong),
            2 => Some(Self::NoRoomForRegion),
            _ => None,
        }
    }
}

/// The message of one end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) kind: Kind,
    pub(super) ord: u32,
    pub(super) ird: u32,
    /// The layout of the sender's segment.
    pub(super) layout: Layout,
    /// The octets of the sender's region, if it passes one.
    pub(super) region: Option<u64>,
    /// The sender takes part in heavy barriers.
    pub(super) barriers: bool,
    /// The sender's reason to reject, if its application was not asked.
    pub(super) refusal: Option<Refusal>,
    pub(super) private_data: Box<[u8]>,
}

impl Hello {
    /// Encodes the message.
    pub(super) fn encode(&self) -> Vec<u8> {
        let kind: u32 = match self.kind {
            Kind::Ask => 1,
            Kind::Accept => 2,
            Kind::Reject => 3,
        };
        let flags = u32::from(self.region.is_some())
            | u32::from(self.barriers) << 1
            | Refusal::encode(self.refusal) << 2;
        let mut bytes = MAGIC.to_vec();
        let (ring_bytes, entries) = (self.layout.ring_bytes(), self.layout.entries());
        for word in [kind, self.ord, self.ird, ring_bytes, entries, flags] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        bytes.extend_from_slice(&self.region.unwrap_or(0).to_be_bytes());
        let length = u32::try_from(self.private_data.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&self.private_data);
        bytes
    }
}

/// The part of a peer's message that has arrived.
#[derive(Debug, Default)]
pub(super) struct PartialHello {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

/// Closing the last descriptor of memory frees its pages.
impl Drop for PartialHello {
    fn drop(&mut self) {
        if !self.fds.is_empty() {
            drop_elsewhere(mem::take(&mut self.fds));
        }
    }
}

impl PartialHello {
    /// Takes octets and descriptors; returns the message once it is complete. Octets behind the message are ignored.
    ///
    /// # Errors
    ///
    /// The octets are no valid message, for this reason.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        fds: Vec<OwnedFd>,
    ) -> Result<Option<(Hello, Vec<OwnedFd>)>, &'static str> {
        let room = LENGTH_MAX - self.bytes.len();
        self.bytes.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        self.fds.extend(fds);
        let told = self.bytes.len().min(MAGIC.len());
        if self.bytes.get(..told) != MAGIC.get(..told) {
            let [name @ .., _] = &MAGIC;
            let is_ours = self.bytes.starts_with(name);
            return Err(if is_ours { ANOTHER_RELEASE } else { "not a setup message" });
        }
        if self.fds.len() > 2 {
            return Err("too many descriptors");
        }
        let mut words = Words(self.bytes.get(MAGIC.len()..).unwrap_or_default());
        let Some(fields) = words.fields() else { return Ok(None) };
        let Fields { kind, ord, ird, ring_bytes, entries, flags, region, private_length } = fields;
        if private_length as usize > PRIVATE_DATA_MAX {
            return Err("too much private data");
        }
        let Some(private_data) = words.0.get(..private_length as usize) else { return Ok(None) };
        let kind = match kind {
            1 => Kind::Ask,
            2 => Kind::Accept,
            3 => Kind::Reject,
            _ => return Err("neither request nor answer"),
        };
        let layout =
            Layout::new(ring_bytes, entries).ok_or("a segment size that is not allowed")?;
        let region = (flags & 1 != 0).then_some(region);
        let expected = match kind {
            Kind::Ask | Kind::Accept => 1 + usize::from(region.is_some()),
            Kind::Reject => 0,
        };
        if self.fds.len() != expected {
            return Err("the descriptors do not match the message");
        }
        let private_data = Box::from(private_data);
        let barriers = flags & 2 != 0;
        let refusal = Refusal::decode(flags >> 2 & 3);
        let hello = Hello { kind, ord, ird, layout, region, barriers, refusal, private_data };
        Ok(Some((hello, mem::take(&mut self.fds))))
    }
}

/// Octets of a message that have not been read.
struct Words<'a>(&'a [u8]);

struct Fields {
    kind: u32,
    ord: u32,
    ird: u32,
    ring_bytes: u32,
    entries: u32,
    flags: u32,
    region: u64,
    private_length: u32,
}

impl Words<'_> {
    /// Reads the fields that every message has; `None` if they are incomplete.
    fn fields(&mut self) -> Option<Fields> {
        Some(Fields {
            kind: self.word()?,
            ord: self.word()?,
            ird: self.word()?,
            ring_bytes: self.word()?,
            entries: self.word()?,
            flags: self.word()?,
            region: u64::from(self.word()?) << 32 | u64::from(self.word()?),
            private_length: self.word()?,
        })
    }

    fn word(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*word))
    }
}

/// The most octets of private data, as with MPA.
pub(super) const PRIVATE_DATA_MAX: usize = 512;
/// The most octets of a message.
pub(super) const LENGTH_MAX: usize = MAGIC.len() + 36 + PRIVATE_DATA_MAX;
/// Its last octet names the format of the messages, the rings and the tables: ends of different formats refuse each
/// other.
const MAGIC: [u8; 8] = *b"haulshm4";
/// The reason for which a peer of another format is refused.
pub(super) const ANOTHER_RELEASE: &str = "the peer is of a release with another format of shared memory; run the same release at both ends";

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn hello(kind: Kind, region: Option<u64>, private_data: &[u8]) -> Hello {
        let layout = Layout::new(4096, 7).unwrap();
        Hello {
            kind,
            ord: 3,
            ird: 4,
            layout,
            region,
            barriers: true,
            refusal: None,
            private_data: private_data.into(),
        }
    }

    fn fds(count: usize) -> Vec<OwnedFd> {
        (0..count).map(|_| File::open("/dev/null").unwrap().into()).collect()
    }

    #[test]
    fn what_is_said_is_understood_however_it_arrives() {
        let said = [
            (hello(Kind::Ask, Some(1 << 40), b"hello"), 2),
            (hello(Kind::Accept, None, &[7; PRIVATE_DATA_MAX]), 1),
            (hello(Kind::Reject, None, b""), 0),
            (Hello { refusal: Some(Refusal::RegionTooLong), ..hello(Kind::Reject, None, b"") }, 0),
            (
                Hello { refusal: Some(Refusal::NoRoomForRegion), ..hello(Kind::Reject, None, b"") },
                0,
            ),
        ];
        for (hello, count) in said {
            let bytes = hello.encode();
            assert!(bytes.len() <= LENGTH_MAX);
            for step in [1, 7, bytes.len()] {
                let mut incoming = PartialHello::default();
                let (last, whole) = bytes.split_last().unwrap();
                for part in whole.chunks(step) {
                    assert!(incoming.take(part, Vec::new()).unwrap().is_none());
                }
                // Doorbells may follow.
                let (found, came) = incoming.take(&[*last, 0, 0], fds(count)).unwrap().unwrap();
                assert_eq!((found, came.len()), (hello.clone(), count));
            }
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let good = hello(Kind::Ask, None, b"").encode();
        let with = |at: usize, word: u32| {
            let mut bytes = good.clone();
            bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
            bytes
        };
        let cases = [
            (b"GET / HTTP/1.1\r\n".to_vec(), 1, "not a setup message"),
            (b"haulshm1".to_vec(), 1, ANOTHER_RELEASE),
            (b"haulshm5 and more".to_vec(), 1, ANOTHER_RELEASE),
            (b"haulshm".map(|_| 0).to_vec(), 1, "not a setup message"),
            (with(8, 0), 1, "neither request nor answer"),
            (with(8, 4), 1, "neither request nor answer"),
            (with(20, 5000), 1, "a segment size that is not allowed"),
            (with(20, 1 << 31), 1, "a segment size that is not allowed"),
            (with(24, 0), 1, "a segment size that is not allowed"),
            (with(24, u32::MAX), 1, "a segment size that is not allowed"),
            (with(40, 513), 1, "too much private data"),
            (with(40, u32::MAX), 1, "too much private data"),
            (good.clone(), 0, "the descriptors do not match the message"),
            (good.clone(), 2, "the descriptors do not match the message"),
            (with(28, 1), 1, "the descriptors do not match the message"),
            (with(8, 3), 1, "the descriptors do not match the message"),
            (good[..9].to_vec(), 3, "too many descriptors"),
        ];
        for (bytes, count, expected) in cases {
            assert_eq!(PartialHello::default().take(&bytes, fds(count)).unwrap_err(), expected);
        }
    }

    #[test]
    fn no_message_is_longer_than_the_longest() {
        let mut incoming = PartialHello::default();
        let bytes = hello(Kind::Ask, None, &[1; PRIVATE_DATA_MAX]).encode();
        assert!(incoming.take(&bytes[..bytes.len() - 1], fds(1)).unwrap().is_none());
        incoming.take(&[9; 100_000], Vec::new()).unwrap().unwrap();
        assert!(incoming.bytes.len() <= LENGTH_MAX);
    }
}
