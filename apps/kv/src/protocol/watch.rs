//! The program by which a server tells a client of changes: Calls in reverse direction, on the connection of the WATCH.
//!
//! | procedure | arguments | results |
//! |---|---|---|
//! | 0 NULL | | |
//! | 1 CHANGED | `unsigned hyper merged`, `bool is_over`, `Change changes<>` | |
//!
//! A change is `opaque key<512>`, and a true word with the length of the value as an unsigned hyper, or a false word if the
//! key was deleted. A watch has at most [`CALLS_MAX`] Calls under way that are not answered, and the changes of a later Call come
//! after those of an earlier one. A key that changes several times before it is told is told once, in its last state, and the others
//! are counted in `merged`. `is_over` says that the server had no room to keep what is still to be told: it is lost, and the watch
//! has ended.

use haulage::service::{Binding, Procedure};
use haulage_proto::chunk::PayloadReader;
use haulage_proto::xdr::{Truncated, Writer};

use super::{KEY_MAX, Key, PROGRAM};

/// The program number.
pub const WATCHER_PROGRAM: u32 = PROGRAM + 1;
/// The program version.
pub const WATCHER_VERSION: u32 = 1;
/// The number of the NULL procedure.
pub const NULL: u32 = 0;
/// The number of CHANGED.
pub const CHANGED: u32 = 1;

/// Calls of one watch that are not answered, at most.
pub const CALLS_MAX: usize = 8;

/// Returns the binding, which has no DDP-eligible item.
pub fn binding() -> Binding {
    let procedures = vec![Procedure::new("NULL").idempotent(), Procedure::new("CHANGED")];
    Binding { program: WATCHER_PROGRAM, version: WATCHER_VERSION, procedures }
}

/// A change of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// The key.
    pub key: Key<'a>,
    /// What was done to it.
    pub state: State,
}

/// The state of a key after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It was set.
    Set {
        /// The octets of its value.
        length: u64,
    },
    /// It was deleted.
    Deleted,
}

/// The arguments of CHANGED without the changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heading {
    /// The number of states that are not told, since another one of the same key followed too soon.
    pub merged: u64,
    /// Whether the watch has ended, and further changes are lost.
    pub is_over: bool,
}

/// Returns the most octets of a change with a key of `key` octets.
pub const fn length_max(key: usize) -> usize {
    4 + key.next_multiple_of(4) + 4 + 8
}

impl Heading {
    /// The encoded length of the arguments of CHANGED without changes, in octets.
    pub const LENGTH: usize = 8 + 4 + 4;

    /// Appends the arguments of CHANGED to `w`, of which `count` are changes.
    pub fn encode<'a>(
        self,
        count: usize,
        changes: impl Iterator<Item = (&'a [u8], State)>,
        w: &mut Writer<'_>,
    ) -> Result<(), Truncated> {
        w.u64(self.merged)?;
        w.u32(self.is_over.into())?;
        w.u32(u32::try_from(count).unwrap_or(u32::MAX))?;
        for (key, state) in changes.take(count) {
            w.opaque(key)?;
            match state {
                State::Deleted => w.u32(0)?,
                State::Set { length } => {
                    w.u32(1)?;
                    w.u64(length)?;
                }
            }
        }
        Ok(())
    }

    /// Decodes the arguments of CHANGED. Passes each change to `take`.
    pub fn decode<'a>(
        mut r: PayloadReader<'a>,
        mut take: impl FnMut(Change<'a>),
    ) -> Result<Self, Truncated> {
        let heading = Self { merged: r.u64()?, is_over: boolean(&mut r)? };
        for _ in 0..r.u32()? {
            let at = r.position();
            let key = Key::new(r.opaque(KEY_MAX)?).map_err(|_| Truncated { at })?;
            let state = match boolean(&mut r)? {
                true => State::Set { length: r.u64()? },
                false => State::Deleted,
            };
            take(Change { key, state });
        }
        if r.is_empty() { Ok(heading) } else { Err(Truncated { at: r.position() }) }
    }
}

/// Decodes a boolean (RFC 4506 section 4.4).
fn boolean(r: &mut PayloadReader<'_>) -> Result<bool, Truncated> {
    let at = r.position();
    match r.u32()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Truncated { at }),
    }
}

#[cfg(test)]
mod tests;
