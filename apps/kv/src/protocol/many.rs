//! The arguments and results of MGET and MPUT.
//!
//! The arguments are an array with an element for each key. So are the results, in the same order. Each value is a
//! DDP-eligible item: the value of the first key takes the first chunk, and so on. The chunk of a key without a value stays
//! unused.

use haulage_proto::chunk::{Item, PayloadReader};
use haulage_proto::xdr::{Truncated, Writer};

use super::{BadReply, Key, OK, Refusal, TOO_LONG, Value, opaque_len};

/// Most keys of one Call: each value may have a chunk.
pub const KEYS_MAX: usize = CHUNKS_MAX as usize;

/// Most chunks of the values of one Call.
pub const CHUNKS_MAX: u32 = 4;

/// Maximum length of the results of MGET and MPUT without the values, in octets: the number of answers; then for each a
/// status with a hyper, or with the length of a value.
pub const RESULTS_MAX: u32 = 4 + CHUNKS_MAX * ANSWER_MAX;

/// Maximum length of one answer without its value, in octets.
pub const ANSWER_MAX: u32 = 4 + 8;

/// The answer of MGET for one key: its status, and what is behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// 0, followed by `opaque value<>`, which is DDP-eligible.
    Value(Item<'a>),
    /// 5, followed by an unsigned hyper: the value has neither room in its chunk nor in the message. It can be fetched by
    /// GET, or with more room.
    TooLong {
        /// Octets of the value.
        length: u64,
    },
    /// Any other status.
    Refused(Refusal),
}

impl Found<'_> {
    /// Returns the length of the value, if there is one.
    pub fn length(&self) -> Option<u64> {
        match self {
            Self::Value(Item::Unreduced(octets)) => Some(octets.len() as u64),
            Self::Value(Item::Reduced { length }) | Self::TooLong { length } => Some(*length),
            Self::Refused(_) => None,
        }
    }
}

/// Appends the arguments of MGET to `w`.
pub fn encode_keys(keys: &[Key<'_>], w: &mut Writer<'_>) -> Result<(), Truncated> {
    w.u32(count(keys.len()))?;
    keys.iter().try_for_each(|key| w.opaque(key.bytes()))
}

/// Appends the arguments of MPUT to `w`. Of a value that has a lease of its own, only the length.
pub fn encode_pairs<'a>(
    pairs: impl ExactSizeIterator<Item = (Key<'a>, Value<'a>)>,
    w: &mut Writer<'_>,
) -> Result<(), Truncated> {
    w.u32(count(pairs.len()))?;
    for (key, value) in pairs {
        w.opaque(key.bytes())?;
        value.encode(w)?;
    }
    Ok(())
}

/// Returns the offset of each value's length word in what [`encode_pairs`] writes for these pairs, in octets.
pub fn length_offsets<'a>(
    pairs: impl Iterator<Item = (Key<'a>, Value<'a>)>,
) -> impl Iterator<Item = usize> {
    pairs.scan(4, |end, (key, value)| {
        let offset = *end + opaque_len(key.bytes().len());
        *end = offset + value.encoded_len();
        Some(offset)
    })
}

/// Decodes the results of an MGET of `asked` keys.
pub fn decode_found<'a>(
    results: PayloadReader<'a>,
    asked: usize,
) -> Result<Vec<Found<'a>>, BadReply> {
    decode(results, asked, |status, r| match status {
        OK => Ok(Found::Value(r.eligible_opaque(usize::MAX)?)),
        status => {
            r.absent()?;
            match status {
                TOO_LONG => Ok(Found::TooLong { length: r.u64()? }),
                status => Ok(Found::Refused(Refusal::decode(status, || r.u64())?)),
            }
        }
    })
}

/// Decodes the results of an MPUT of `asked` pairs.
pub fn decode_stored(
    results: PayloadReader<'_>,
    asked: usize,
) -> Result<Vec<Result<(), Refusal>>, BadReply> {
    decode(results, asked, |status, r| match status {
        OK => Ok(Ok(())),
        status => Ok(Err(Refusal::decode(status, || r.u64())?)),
    })
}

/// Decodes an array of `asked` answers, of which `each` takes what is behind the status.
fn decode<'a, T>(
    mut results: PayloadReader<'a>,
    asked: usize,
    mut each: impl FnMut(u32, &mut PayloadReader<'a>) -> Result<T, BadReply>,
) -> Result<Vec<T>, BadReply> {
    let answered = results.u32()?;
    if answered as usize != asked {
        return Err(BadReply::Count { asked, answered });
    }
    let mut answers = Vec::with_capacity(asked);
    for _ in 0..asked {
        let status = results.u32()?;
        answers.push(each(status, &mut results)?);
    }
    let end = Truncated { at: results.position() };
    if results.is_empty() { Ok(answers) } else { Err(end.into()) }
}

/// Converts a count or length of ours, which no limit lets exceed 32 bits, to the wire's.
fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
