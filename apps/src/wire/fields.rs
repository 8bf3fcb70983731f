//! Descriptions as they are read: JSON that must hold exactly the fields of its message.

use haulage_proto::xdr::Truncated;
use serde_json::{Map, Value};
use thiserror::Error;

use super::{MESSAGE_MAX, hex};

/// Why a description cannot be encoded: the field, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Complaint(String);

impl Complaint {
    /// Complains about the description as a whole.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Complains about the length of the description, or of what it describes.
    pub fn too_long() -> Self {
        Self::new(format!("longer than a message of {MESSAGE_MAX} bytes"))
    }
}

impl From<Truncated> for Complaint {
    /// The room for a message is that of the longest.
    fn from(_: Truncated) -> Self {
        Self::too_long()
    }
}

/// An object whose members are taken one by one.
#[derive(Debug)]
pub struct Object {
    /// Where it stands in the description; empty for the description itself.
    path: String,
    members: Map<String, Value>,
}

impl Object {
    /// Reads a description.
    pub fn parse(line: &[u8]) -> Result<Self, Complaint> {
        let value: Value = serde_json::from_slice(line)
            .map_err(|error| Complaint::new(format!("not JSON: {}", column_only(&error))))?;
        Field { path: String::new(), value }.object()
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

    /// Complains if anything was not taken.
    pub fn end(self) -> Result<(), Complaint> {
        let Some(key) = self.members.keys().next() else { return Ok(()) };
        // Escaped, for a complaint is one line.
        Err(Complaint(format!("{}: unknown here", self.path_of(&key.escape_debug().to_string()))))
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

/// A value, and where it stands.
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

    /// Returns a double word, which may also be given as a string of digits: not every writer of JSON
    /// keeps integers beyond 2^53.
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
        let octets = self.value.as_str().and_then(|digits| hex::decode(digits.as_bytes()).ok());
        octets.ok_or_else(|| self.is_not("a string of whole octets in hex"))
    }

    /// Returns text; what is no text is nothing that anybody knows.
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

    /// Complains that it is not what it should be.
    pub fn is_not(&self, what: &str) -> Complaint {
        let separator = if self.path.is_empty() { "" } else { ": " };
        Complaint(format!("{}{separator}not {what}", self.path))
    }
}

/// Says what the parser found, on a line whose number only its reader knows.
fn column_only(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or_default().to_owned();
    format!("{what} at column {}", error.column())
}
