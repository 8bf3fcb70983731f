//! Parsing of JSON descriptions, which must hold exactly the fields of their message.

use haulage_proto::xdr::Truncated;
use serde_json::{Map, Value};
use thiserror::Error;

use super::lines::MESSAGE_MAX;
use super::unique::Unique;

/// The reason that a description cannot be encoded: the field, and its error.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Complaint(String);

impl Complaint {
    /// Creates an error about the description as a whole.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Creates an error about the length of the description or of its message.
    pub fn too_long() -> Self {
        Self::new(format!("longer than a message of {MESSAGE_MAX} bytes"))
    }
}

impl From<Truncated> for Complaint {
    /// Converts the error of a full buffer, which holds the longest message.
    fn from(_: Truncated) -> Self {
        Self::too_long()
    }
}

/// An object whose members are taken one by one.
#[derive(Debug)]
pub struct Object {
    /// The path of the object in the description; empty for the description itself.
    path: String,
    members: Map<String, Value>,
}

impl Object {
    /// Parses a description.
    pub fn parse(line: &[u8]) -> Result<Self, Complaint> {
        let unique: Unique = serde_json::from_slice(line).map_err(|error| {
            let what = if error.is_data() { "" } else { "not JSON: " };
            Complaint::new(format!("{what}{}", column_only(&error)))
        })?;
        Field { path: String::new(), value: unique.0 }.object()
    }

    /// Takes a member that must be there.
    pub fn take(&mut self, key: &str) -> Result<Field, Complaint> {
        let path = self.path_of(key);
        match self.members.remove(key) {
            Some(value) => Ok(Field { path, value }),
            None => Err(Complaint(format!("{path}: missing"))),
        }
    }

    /// Takes one word.
    pub fn u32(&mut self, key: &str) -> Result<u32, Complaint> {
        self.take(key)?.u32()
    }

    /// Returns whether a member is there.
    pub fn has(&self, key: &str) -> bool {
        self.members.contains_key(key)
    }

    /// Fails if a member was not taken.
    pub fn end(self) -> Result<(), Complaint> {
        let Some(key) = self.members.keys().next() else { return Ok(()) };
        // Escaped, since an error is one line.
        Err(Complaint(format!("{}: unknown here", self.path_of(&key.escape_debug().to_string()))))
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

/// A value with its path in the description.
#[derive(Debug)]
pub struct Field {
    path: String,
    value: Value,
}

impl Field {
    /// Returns a word.
    pub fn u32(self) -> Result<u32, Complaint> {
        let word = self.value.as_u64().and_then(|value| u32::try_from(value).ok());
        word.ok_or_else(|| self.is_not("an integer from 0 to 4294967295"))
    }

    /// Returns a 64-bit word, which may also be a string of digits: some writers of JSON lose integers beyond 2^53.
    pub fn u64(self) -> Result<u64, Complaint> {
        let value = match &self.value {
            Value::String(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.parse().ok()
            }
            value => value.as_u64(),
        };
        value.ok_or_else(|| self.is_not("an integer from 0 to 18446744073709551615"))
    }

    /// Returns octets given in hex.
    pub fn octets(self) -> Result<Vec<u8>, Complaint> {
        let octets = self.value.as_str().and_then(|digits| hex::decode(digits).ok());
        octets.ok_or_else(|| self.is_not("a string of whole octets in hex"))
    }

    /// Returns the text, or an empty one for other types, which matches no known name.
    pub fn as_text(&self) -> &str {
        self.value.as_str().unwrap_or_default()
    }

    /// Returns an integer, if it is one.
    pub fn as_u64(&self) -> Option<u64> {
        self.value.as_u64()
    }

    /// Returns the elements of an array.
    pub fn elements(self) -> Result<impl ExactSizeIterator<Item = Self>, Complaint> {
        let path = self.path;
        match self.value {
            Value::Array(values) => Ok(values
                .into_iter()
                .enumerate()
                .map(move |(index, value)| Self { path: format!("{path}[{index}]"), value })),
            _ => Err(Complaint(format!("{path}: not an array"))),
        }
    }

    /// Returns an object.
    pub fn object(self) -> Result<Object, Complaint> {
        match self.value {
            Value::Object(members) => Ok(Object { path: self.path, members }),
            _ => Err(self.is_not("an object")),
        }
    }

    /// Returns `None` for `null`.
    pub fn nullable(self) -> Option<Self> {
        (!self.value.is_null()).then_some(self)
    }

    /// Creates the error that the value is not a `what`.
    pub fn is_not(&self, what: &str) -> Complaint {
        let separator = if self.path.is_empty() { "" } else { ": " };
        Complaint(format!("{}{separator}not {what}", self.path))
    }
}

/// Returns the message of a JSON parser's error with its column. The line number is left out: each input line is parsed
/// by itself, so it is always 1.
fn column_only(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or_default().to_owned();
    format!("{what} at column {}", error.column())
}
