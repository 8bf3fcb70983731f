//! The RPC program of the key-value service.
//!
//! | procedure | arguments | results |
//! |---|---|---|
//! | 0 NULL | | |
//! | 1 GET | `opaque key<512>` | status; if OK, `opaque value<>`, which is DDP-eligible; if too long, an unsigned hyper |
//! | 2 PUT | `opaque key<512>`, `opaque value<>`, which is DDP-eligible | status |
//! | 3 DEL | `opaque key<512>` | status |
//! | 4 STAT | | status; if OK, the figures of [`Stat`] as unsigned hypers |
//! | 5 FIGURES | | [`Figures`](crate::figures::Figures) as unsigned hypers |
//! | 6 KEYS | `unsigned int at`, 0 to begin with | status; if OK, a list of `opaque key<512>`, and where to go on, or 0 |
//! | 7 MGET | up to four times `opaque key<512>`, as an array | for each key [`many::Found`], as an array; its values are DDP-eligible |
//! | 8 MPUT | up to four times `opaque key<512>`, `opaque value<>`, as an array; the values are DDP-eligible | for each pair a status, as an array |
//! | 9 WATCH | `opaque prefix<512>`, which may be empty | status; if OK, the server tells of changes: see [`watch`] |
//!
//! MGET, MPUT and WATCH were added later: a server that lacks them answers PROC_UNAVAIL. So was status 7: a client that does
//! not know it takes the Reply to be malformed.
//!
//! A GET that offers no Write chunk takes what has room in one message. Of a longer value the Reply has status 5 and the
//! length, so that it can be asked for with a chunk; MGET answers so for each key that has neither room in its chunk nor in
//! the message. A server of the release before continues the Reply, or refuses it as the transport does: with
//! RDMA2_ERR_REPLY_RESOURCE or ERR_CHUNK.
//!
//! A list has a true word before each item and a false word at the end. KEYS returns some keys at a time, in no
//! particular order; a key stored or deleted meanwhile may be listed or not.
//!
//! A status is an unsigned int: see [`Refusal`]. The length word of a reduced value stays in the Payload stream; its
//! octets are in a chunk.

use std::fmt;

use haulage_proto::xdr::{Reader, Truncated, Writer};
use thiserror::Error;

use crate::stat::Stat;

pub mod many;
pub mod watch;

/// The program number, out of the range left to users (RFC 5531 section 8.3).
pub const PROGRAM: u32 = 0x2048_4b56;
/// The program version.
pub const VERSION: u32 = 1;
/// Maximum length of a key, in octets.
pub const KEY_MAX: usize = 512;

const _: () = assert!(PROGRAM >= 0x2000_0000 && PROGRAM <= 0x3fff_ffff);

/// A key: 1 to 512 octets of UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key<'a>(&'a str);

impl<'a> Key<'a> {
    /// Creates a key; fails if `bytes` are not 1 to 512 octets of UTF-8.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Refusal> {
        match str::from_utf8(bytes) {
            Ok(text) if (1..=KEY_MAX).contains(&text.len()) => Ok(Self(text)),
            _ => Err(Refusal::BadKey),
        }
    }

    /// Returns the octets.
    pub const fn bytes(self) -> &'a [u8] {
        self.0.as_bytes()
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// A procedure of the key-value program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Procedure {
    /// Does nothing; checks that the server answers.
    Null = 0,
    /// Returns the value of a key.
    Get = 1,
    /// Stores a value under a key.
    Put = 2,
    /// Deletes a key.
    Del = 3,
    /// Returns the statistics of the server.
    Stat = 4,
    /// Returns the resource counters of the server, for benchmarks.
    Figures = 5,
    /// Returns some of the keys.
    Keys = 6,
    /// Returns the values of several keys.
    MGet = 7,
    /// Stores several values.
    MPut = 8,
    /// Has the server tell of changes to keys.
    Watch = 9,
}

impl Procedure {
    /// Returns the procedure with this number, if there is one.
    #[inline]
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Null,
            1 => Self::Get,
            2 => Self::Put,
            3 => Self::Del,
            4 => Self::Stat,
            5 => Self::Figures,
            6 => Self::Keys,
            7 => Self::MGet,
            8 => Self::MPut,
            9 => Self::Watch,
            _ => return None,
        })
    }
}

/// A value in the Payload stream: unreduced, or reduced to its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// The octets, in the stream.
    Unreduced(&'a [u8]),
    /// A reduced value: the stream holds only its length.
    Reduced {
        /// The number of octets.
        length: u32,
    },
}

impl Value<'_> {
    /// Returns the number of octets.
    pub fn length(&self) -> u64 {
        match self {
            Self::Unreduced(bytes) => bytes.len() as u64,
            Self::Reduced { length } => u64::from(*length),
        }
    }

    /// Returns the octets that the value takes in the stream, with its length word.
    pub const fn encoded_len(&self) -> usize {
        match self {
            Self::Unreduced(bytes) => opaque_len(bytes.len()),
            Self::Reduced { .. } => 4,
        }
    }

    /// Decodes a value, which must be the last item of the stream.
    fn decode<'a>(r: &mut Reader<'a>, carriage: Carriage) -> Result<Value<'a>, Truncated> {
        match carriage {
            Carriage::Unreduced => r.opaque(usize::MAX).map(Value::Unreduced),
            Carriage::Chunk => Ok(Value::Reduced { length: r.u32()? }),
        }
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        match self {
            Self::Unreduced(bytes) => w.opaque(bytes),
            Self::Reduced { length } => w.u32(*length),
        }
    }
}

/// Returns the octets that an opaque of `length` octets takes in a stream, with its length word.
pub(crate) const fn opaque_len(length: usize) -> usize {
    4 + length.next_multiple_of(4)
}

/// The carrier of a value's octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carriage {
    /// The Payload stream itself.
    Unreduced,
    /// A chunk.
    Chunk,
}

impl Carriage {
    /// Returns the carrier of the value in results of which `reduced` octets are in a chunk.
    pub const fn of(reduced: Option<u32>) -> Self {
        match reduced {
            None => Self::Unreduced,
            Some(_) => Self::Chunk,
        }
    }
}

/// The list of keys in a Reply to KEYS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyList<'a> {
    /// The encoded list without its end, already validated.
    list: &'a [u8],
    /// The argument of the next KEYS, if there are more keys.
    pub next: Option<u32>,
}

impl<'a> KeyList<'a> {
    /// Returns the keys.
    pub fn keys(&self) -> impl Iterator<Item = Key<'a>> + use<'a> {
        let mut r = Reader::new(self.list);
        std::iter::from_fn(move || key_of_list(&mut r).ok().flatten())
    }

    fn decode(r: &mut Reader<'a>) -> Result<Self, Truncated> {
        let (all, start) = (r.rest(), r.position());
        while key_of_list(r)?.is_some() {}
        let length = (r.position() - start).saturating_sub(4);
        let next = Some(r.u32()?).filter(|next| *next > 0);
        Ok(Self { list: all.get(..length).unwrap_or_default(), next })
    }
}

/// Decodes one item of a list of keys; `None` at the end.
fn key_of_list<'a>(r: &mut Reader<'a>) -> Result<Option<Key<'a>>, Truncated> {
    let at = r.position();
    match r.u32()? {
        0 => Ok(None),
        1 => Key::new(r.opaque(KEY_MAX)?).map(Some).map_err(|_| Truncated { at }),
        _ => Err(Truncated { at }),
    }
}

/// The reason that the server refused a Call, encoded as the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// 1: no value is stored under the key.
    #[error("no such key")]
    NotFound,
    /// 2, followed by an unsigned hyper: the value is longer than the server accepts.
    #[error("the value is larger than {max} bytes, the most that the server stores")]
    TooLarge {
        /// Maximum length of a value, in octets.
        max: u64,
    },
    /// 3: the server's memory is full, or too full for this value, whatever is moved.
    #[error(
        "the server's memory is full for a value of this size; delete keys, or raise its --memory to keep them all"
    )]
    NoSpace,
    /// 4: a key is 1 to 512 octets of UTF-8.
    #[error("a key is 1 to {KEY_MAX} bytes of UTF-8")]
    BadKey,
    /// 7, followed by an unsigned hyper: the server has as many keys as its index holds.
    #[error(
        "the server has {max} keys, the most it has an index for; delete keys, or raise its --index-share or --memory"
    )]
    KeysFull {
        /// Maximum number of keys.
        max: u64,
    },
    /// 6: the server tells as many clients of changes as it can.
    #[error(
        "{max} clients are watching the server, which has room for no more of this address; end one, then try again"
    )]
    Crowded {
        /// The number of watches of all clients.
        max: u64,
    },
}

impl Refusal {
    /// Decodes the refusal that `status` stands for. `hyper` takes an unsigned hyper behind it.
    fn decode(
        status: u32,
        hyper: impl FnOnce() -> Result<u64, Truncated>,
    ) -> Result<Self, BadReply> {
        match status {
            NOT_FOUND => Ok(Self::NotFound),
            TOO_LARGE => Ok(Self::TooLarge { max: hyper()? }),
            NO_SPACE => Ok(Self::NoSpace),
            BAD_KEY => Ok(Self::BadKey),
            CROWDED => Ok(Self::Crowded { max: hyper()? }),
            KEYS_FULL => Ok(Self::KeysFull { max: hyper()? }),
            status => Err(BadReply::Status(status)),
        }
    }

    /// Appends the status, and what is behind it, to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        match self {
            Self::NotFound => w.u32(NOT_FOUND),
            Self::TooLarge { max } => {
                w.u32(TOO_LARGE)?;
                w.u64(*max)
            }
            Self::NoSpace => w.u32(NO_SPACE),
            Self::BadKey => w.u32(BAD_KEY),
            Self::Crowded { max } => {
                w.u32(CROWDED)?;
                w.u64(*max)
            }
            Self::KeysFull { max } => {
                w.u32(KEYS_FULL)?;
                w.u64(*max)
            }
        }
    }
}

/// The results of one Call for one key, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "an answer is made and read in place, and never kept"
)]
pub enum Answer<'a> {
    /// Success without results: PUT, DEL, WATCH.
    Done,
    /// The value: GET.
    Value(Value<'a>),
    /// 5, followed by an unsigned hyper: the value has no room in the message, and the GET offered no chunk.
    TooLong {
        /// Octets of the value.
        length: u64,
    },
    /// The figures: STAT.
    Stat(Stat),
    /// Some keys: KEYS.
    Keys(KeyList<'a>),
    /// The Call was refused.
    Refused(Refusal),
}

/// A Reply that does not follow the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadReply {
    /// The Reply is too short or too long.
    #[error("malformed reply: {0}")]
    Garbage(#[from] Truncated),
    /// The status is unknown.
    #[error("the reply has the unknown status {0}")]
    Status(u32),
    /// The Reply does not have one answer for each key.
    #[error("the reply has {answered} answers for {asked} keys")]
    Count {
        /// Keys in the Call.
        asked: usize,
        /// Answers in the Reply.
        answered: u32,
    },
}

impl<'a> Answer<'a> {
    /// Decodes the results of a Reply.
    pub fn decode(
        procedure: Procedure,
        results: &'a [u8],
        carriage: Carriage,
    ) -> Result<Self, BadReply> {
        let mut r = Reader::new(results);
        let status = if procedure == Procedure::Null { OK } else { r.u32()? };
        let answer = match (status, procedure) {
            (OK, Procedure::Null | Procedure::Put | Procedure::Del | Procedure::Watch) => {
                Self::Done
            }
            (OK, Procedure::Get) => Self::Value(Value::decode(&mut r, carriage)?),
            (TOO_LONG, Procedure::Get) => Self::TooLong { length: r.u64()? },
            (OK, Procedure::Stat) => Self::Stat(Stat::decode(&mut r)?),
            (OK, Procedure::Keys) => Self::Keys(KeyList::decode(&mut r)?),
            (status, _) => Self::Refused(Refusal::decode(status, || r.u64())?),
        };
        if r.is_empty() { Ok(answer) } else { Err(Truncated { at: r.position() }.into()) }
    }

    /// Appends the results of `procedure` to `w`.
    pub fn encode(&self, procedure: Procedure, w: &mut Writer<'_>) -> Result<(), Truncated> {
        match self {
            Self::Done if procedure == Procedure::Null => Ok(()),
            Self::Done => w.u32(OK),
            Self::Value(value) => {
                w.u32(OK)?;
                value.encode(w)
            }
            Self::TooLong { length } => encode_too_long(*length, w),
            Self::Stat(stat) => {
                w.u32(OK)?;
                stat.encode(w)
            }
            Self::Keys(keys) => {
                w.u32(OK)?;
                w.put(keys.list)?;
                w.u32(0)?;
                w.u32(keys.next.unwrap_or(0))
            }
            Self::Refused(refusal) => refusal.encode(w),
        }
    }
}

/// Appends the answer for a value that is too long for its room to `w`.
pub fn encode_too_long(length: u64, w: &mut Writer<'_>) -> Result<(), Truncated> {
    w.u32(TOO_LONG)?;
    w.u64(length)
}

const OK: u32 = 0;
const NOT_FOUND: u32 = 1;
const TOO_LARGE: u32 = 2;
const NO_SPACE: u32 = 3;
const BAD_KEY: u32 = 4;
/// The status in front of the length of a value that is too long for its room: GET, MGET.
const TOO_LONG: u32 = 5;
const CROWDED: u32 = 6;
const KEYS_FULL: u32 = 7;

#[cfg(test)]
mod tests;
