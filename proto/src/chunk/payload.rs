//! Reading a Payload stream from which a data item may have been reduced.

use crate::xdr::{Reader, Truncated};

/// A cursor over an inline Payload stream that knows what is missing from it.
#[derive(Clone, Debug)]
pub struct PayloadReader<'a> {
    reader: Reader<'a>,
    reduced: Reduced,
}

/// What was reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reduced {
    Nothing,
    /// Of a Call: the item at this position, of this length.
    At(u32, u64),
    /// Of a Reply: the DDP-eligible item, of this length; a Write chunk has no position.
    Eligible(u32),
}

/// A DDP-eligible opaque.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// It is in the Payload stream.
    Inline(&'a [u8]),
    /// Only its length is.
    Reduced {
        /// Octets, equal to the chunk's length.
        length: u64,
    },
}

impl<'a> PayloadReader<'a> {
    /// Reads the arguments of a Call, which start at `at` of its Payload stream. `chunk` is the
    /// position and length of its Read chunk.
    pub fn call(payload: &'a [u8], at: usize, chunk: Option<(u32, u64)>) -> Self {
        let reduced =
            chunk.map_or(Reduced::Nothing, |(position, length)| Reduced::At(position, length));
        Self { reader: starting(payload, at), reduced }
    }

    /// Reads the results of a Reply, which start at `at` of its Payload stream. `reduced` is what
    /// the returned Write chunk says was written.
    pub fn reply(payload: &'a [u8], at: usize, reduced: Option<u32>) -> Self {
        let reduced = reduced.map_or(Reduced::Nothing, Reduced::Eligible);
        Self { reader: starting(payload, at), reduced }
    }

    /// Takes an unsigned integer.
    pub fn u32(&mut self) -> Result<u32, Truncated> {
        self.reader.u32()
    }

    /// Takes an unsigned hyper integer.
    pub fn u64(&mut self) -> Result<u64, Truncated> {
        self.reader.u64()
    }

    /// Takes an opaque of at most `max` octets that is never reduced.
    pub fn opaque(&mut self, max: usize) -> Result<&'a [u8], Truncated> {
        self.reader.opaque(max)
    }

    /// Takes the DDP-eligible opaque. Inline it has at most `max` octets; reduced, the length in the
    /// stream must be the chunk's, and neither octets nor padding follow.
    pub fn eligible_opaque(&mut self, max: usize) -> Result<Item<'a>, Truncated> {
        let at = self.reader.position();
        let data_at = u32::try_from(at).ok().and_then(|at| at.checked_add(4));
        let expected = match self.reduced {
            Reduced::At(position, length) if data_at == Some(position) => length,
            Reduced::Eligible(length) => u64::from(length),
            _ => return self.reader.opaque(max).map(Item::Inline),
        };
        let length = u64::from(self.reader.u32()?);
        if length != expected {
            return Err(Truncated { at });
        }
        self.reduced = Reduced::Nothing;
        Ok(Item::Reduced { length })
    }

    /// Returns whether everything was taken, the reduced item with it.
    pub fn is_empty(&self) -> bool {
        self.reader.is_empty() && self.reduced == Reduced::Nothing
    }

    /// Returns the offset of the next octet in the inline Payload stream.
    pub const fn position(&self) -> usize {
        self.reader.position()
    }

    /// Returns what has not been taken.
    pub fn rest(&self) -> &'a [u8] {
        self.reader.rest()
    }

    /// Returns the octets that were reduced from a Reply, if any were and have not been taken.
    pub const fn reduced(&self) -> Option<u32> {
        match self.reduced {
            Reduced::Eligible(length) => Some(length),
            _ => None,
        }
    }
}

fn starting(payload: &[u8], at: usize) -> Reader<'_> {
    let mut reader = Reader::new(payload);
    // The RPC header ended there, so the octets before it exist.
    let skipped = reader.take(at);
    debug_assert!(skipped.is_ok(), "arguments start within their message");
    reader
}
