//! Fields and their values, and how they display: as JSON.

use alloc::vec::Vec;
use core::fmt::{self, Write};

/// The fields of a header, in the order of the header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields<'a>(Vec<(&'static str, Value<'a>)>);

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Nothing: an optional part that is not there.
    Null,
    /// A flag.
    Flag(bool),
    /// A number.
    Number(u64),
    /// An offset, whose every bit counts: it displays as a string of digits from 2^53, since many programs read a number
    /// of JSON as a double.
    Exact(u64),
    /// A name that a specification gives.
    Name(&'static str),
    /// Octets, which display as hex.
    Octets(&'a [u8]),
    /// Values.
    List(Vec<Self>),
    /// A structure.
    Fields(Fields<'a>),
}

impl<'a> Fields<'a> {
    /// Creates a description of no fields, to be filled by `fill`.
    pub fn new(fill: impl FnOnce(&mut Self)) -> Self {
        let mut fields = Self::default();
        fill(&mut fields);
        fields
    }

    /// Adds a field.
    pub fn add(&mut self, name: &'static str, value: Value<'a>) -> &mut Self {
        self.0.push((name, value));
        self
    }

    /// Adds a number.
    pub fn number(&mut self, name: &'static str, number: impl Into<u64>) -> &mut Self {
        self.add(name, Value::Number(number.into()))
    }

    /// Adds a name.
    pub fn name(&mut self, name: &'static str, value: &'static str) -> &mut Self {
        self.add(name, Value::Name(value))
    }

    /// Adds octets.
    pub fn octets(&mut self, name: &'static str, octets: &'a [u8]) -> &mut Self {
        self.add(name, Value::Octets(octets))
    }

    /// Adds values.
    pub fn list(
        &mut self,
        name: &'static str,
        values: impl IntoIterator<Item = Value<'a>>,
    ) -> &mut Self {
        self.add(name, Value::List(values.into_iter().collect()))
    }

    /// Adds a structure, to be filled by `fill`.
    pub fn fields(&mut self, name: &'static str, fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.add(name, Value::Fields(Self::new(fill)))
    }

    /// Returns the fields with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Value<'a>)> {
        self.0.iter().map(|(name, value)| (*name, value))
    }

    /// Returns the value of a field.
    pub fn get(&self, name: &str) -> Option<&Value<'a>> {
        self.iter().find_map(|(known, value)| (known == name).then_some(value))
    }
}

impl<'a> Value<'a> {
    /// Creates a structure, to be filled by `fill`.
    pub fn of_fields(fill: impl FnOnce(&mut Fields<'a>)) -> Self {
        Self::Fields(Fields::new(fill))
    }
}

impl fmt::Display for Fields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('{')?;
        for (index, (name, value)) in self.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}\"{name}\":{value}")?;
        }
        f.write_char('}')
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Flag(flag) => flag.fmt(f),
            Self::Exact(number) if *number > EXACT_MAX => write!(f, "\"{number}\""),
            Self::Number(number) | Self::Exact(number) => number.fmt(f),
            // No name of a specification has a character that JSON escapes.
            Self::Name(name) => write!(f, "\"{name}\""),
            Self::Octets(octets) => {
                f.write_char('"')?;
                octets.chunks(PIECE).try_for_each(|piece| write_hex(f, piece))?;
                f.write_char('"')
            }
            Self::List(values) => {
                f.write_char('[')?;
                for (index, value) in values.iter().enumerate() {
                    let separator = if index == 0 { "" } else { "," };
                    write!(f, "{separator}{value}")?;
                }
                f.write_char(']')
            }
            Self::Fields(fields) => fields.fmt(f),
        }
    }
}

/// Writes at most [`PIECE`] octets in lower-case hex.
fn write_hex(f: &mut fmt::Formatter<'_>, piece: &[u8]) -> fmt::Result {
    let mut digits = [0; 2 * PIECE];
    let (pairs, _) = digits.as_chunks_mut::<2>();
    for (pair, octet) in pairs.iter_mut().zip(piece) {
        *pair = [digit(octet >> 4), digit(octet & 0x0f)];
    }
    let written = digits.get(..piece.len().saturating_mul(2)).unwrap_or_default();
    f.write_str(str::from_utf8(written).unwrap_or_default())
}

/// Returns the hex digit of a number below 16.
const fn digit(nibble: u8) -> u8 {
    match nibble {
        0..=9 => nibble.wrapping_add(b'0'),
        _ => nibble.wrapping_add(b'a' - 10),
    }
}

/// The greatest integer below which a double holds every integer.
const EXACT_MAX: u64 = (1 << 53) - 1;
/// Octets whose digits are written at once.
const PIECE: usize = 64;
