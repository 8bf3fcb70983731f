//! The memory of one item, in one lease or in several.

use std::ops::Range;
use std::slice;

use crate::lease::Local;
use crate::lent::PostedSink;
use crate::pieces::{Piece, Pieces};
use crate::view::Sink;

/// The memory of one item: one lease, or several, whose octets in order are those of the item.
///
/// # Limits
/// Each lease of several but the last has whole pages, so a list of them takes one percent of their memory from the heap.
#[derive(Debug)]
pub enum Leases {
    /// One lease has all octets.
    One(Local),
    /// Each lease has a part of the octets.
    Several(Vec<Local>),
}

impl Leases {
    /// Joins the memory of several items, in order, so that one list of sinks covers all of them: [`Self::split_to`] takes them
    /// apart. Returns `None`, and the memory goes home, if one of them is missing or the heap has no room for the list.
    pub fn all(items: impl IntoIterator<Item = Option<Self>>) -> Option<Self> {
        let mut all = Vec::new();
        for item in items {
            match item? {
                Self::One(lease) => {
                    all.try_reserve(1).ok()?;
                    all.push(lease);
                }
                Self::Several(mut leases) => {
                    all.try_reserve(leases.len()).ok()?;
                    all.append(&mut leases);
                }
            }
        }
        Some(Self::Several(all))
    }

    /// Takes out the leases of the first item of `length` octets: all of them if it is the only one.
    pub fn split_to(&mut self, length: usize) -> Self {
        let Self::Several(leases) = self else {
            return std::mem::replace(self, Self::Several(Vec::new()));
        };
        let mut octets = 0;
        let mut is_of_it = |lease: &Local| {
            let is_part = octets < length;
            octets += lease.len();
            is_part
        };
        let count = leases.iter().take_while(|lease| is_of_it(lease)).count();
        let rest = leases.split_off(count);
        match std::mem::replace(leases, rest) {
            one if one.len() == 1 => {
                one.into_iter().next().map_or_else(|| Self::Several(Vec::new()), Self::One)
            }
            several => Self::Several(several),
        }
    }

    /// Shortens the item to at most `length` octets. Leases of which no octet is left go home.
    #[inline]
    pub fn truncate(&mut self, length: usize) {
        match self {
            Self::One(lease) => lease.set_len(lease.len().min(length)),
            Self::Several(leases) => {
                let mut left = length;
                leases.retain_mut(|lease| {
                    lease.set_len(lease.len().min(left));
                    left -= lease.len();
                    !lease.is_empty()
                });
            }
        }
    }

    /// Copies `octets` into the item.
    ///
    /// # Panics
    /// If the item has another length.
    pub fn copy_from_slice(&mut self, octets: &[u8]) {
        assert_eq!(self.len(), octets.len(), "as many octets as the item has");
        self.write_at(0, octets);
    }

    /// Copies `octets` into the item, from the octet `at` on.
    ///
    /// # Panics
    /// If the item has fewer octets behind that.
    pub fn write_at(&mut self, mut at: usize, octets: &[u8]) {
        let leases = match self {
            Self::One(lease) => slice::from_mut(lease),
            Self::Several(leases) => leases.as_mut_slice(),
        };
        let mut rest = octets;
        for lease in leases {
            let room = lease.bytes_mut().get_mut(at..).unwrap_or_default();
            let (part, behind) = rest.split_at(rest.len().min(room.len()));
            room[..part.len()].copy_from_slice(part);
            at = at.saturating_sub(lease.len());
            rest = behind;
        }
        assert!(rest.is_empty(), "the item has all octets");
    }

    /// Returns the lease that has all octets.
    ///
    /// # Errors
    /// Returns the leases if there are several.
    #[inline]
    pub fn into_one(self) -> Result<Local, Self> {
        match self {
            Self::One(lease) => Ok(lease),
            several @ Self::Several(_) => Err(several),
        }
    }

    /// Returns the leases, in order.
    pub fn into_vec(self) -> Vec<Local> {
        match self {
            Self::One(lease) => vec![lease],
            Self::Several(leases) => leases,
        }
    }

    /// Returns the lease that has all octets; `None` if there are several.
    #[inline]
    pub const fn one_mut(&mut self) -> Option<&mut Local> {
        match self {
            Self::One(lease) => Some(lease),
            Self::Several(_) => None,
        }
    }

    /// Returns the leases.
    #[inline]
    pub const fn as_slice(&self) -> &[Local] {
        match self {
            Self::One(lease) => slice::from_ref(lease),
            Self::Several(leases) => leases.as_slice(),
        }
    }

    /// Returns the octets, part by part.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.as_slice().iter().map(Local::bytes)
    }

    /// Returns the number of octets.
    #[inline]
    pub fn len(&self) -> usize {
        self.as_slice().iter().map(Local::len).sum()
    }

    /// Returns whether there are no octets.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.as_slice().iter().all(Local::is_empty)
    }

    /// Makes the item immutable, so that many requests can read it at once.
    ///
    /// Returns `None`, and the memory goes home, if the heap has no room for the list of the pieces.
    pub fn share(self) -> Option<Pieces> {
        let mut pieces = Pieces::default();
        let mut push = |lease: Local| pieces.push(Piece::whole(lease.share())).ok();
        match self {
            Self::One(lease) => push(lease)?,
            Self::Several(leases) => leases.into_iter().try_for_each(push)?,
        }
        Some(pieces)
    }

    /// Makes the leases the sinks of Reads.
    ///
    /// Returns `None`, and the memory goes home, if the heap has no room for the list of the sinks.
    #[inline]
    pub fn into_sinks(self) -> Option<PostedSinks> {
        Some(PostedSinks(match self {
            Self::One(lease) => Sinks::One(lease.into_sink()),
            Self::Several(mut leases) => {
                let mut sinks = Vec::new();
                sinks.try_reserve_exact(leases.len()).ok()?;
                sinks.extend(leases.drain(..).map(Local::into_sink));
                Sinks::Several { sinks, leases }
            }
        }))
    }
}

/// The leases of one item, which the local RNIC may write at any moment: the sinks of its Reads.
#[derive(Debug)]
pub struct PostedSinks(Sinks);

#[derive(Debug)]
enum Sinks {
    One(PostedSink),
    Several {
        sinks: Vec<PostedSink>,
        /// Empty, with room for the leases.
        leases: Vec<Local>,
    },
}

impl PostedSinks {
    /// Calls `each` with the views for the RNIC that cover `range`, in order: one view of each lease that has a part of
    /// it.
    #[inline]
    pub fn sinks(&mut self, range: Range<usize>, mut each: impl FnMut(Sink)) {
        match &mut self.0 {
            Sinks::One(sink) => sink.sink(range).into_iter().for_each(each),
            Sinks::Several { sinks, .. } => {
                let mut end = 0;
                for sink in sinks {
                    let start = end;
                    end += sink.len();
                    let (from, to) = (range.start.clamp(start, end), range.end.clamp(start, end));
                    if from < to {
                        sink.sink(from - start..to - start).into_iter().for_each(&mut each);
                    }
                }
            }
        }
    }

    /// Returns the number of octets.
    pub fn len(&self) -> usize {
        match &self.0 {
            Sinks::One(sink) => sink.len(),
            Sinks::Several { sinks, .. } => sinks.iter().map(PostedSink::len).sum(),
        }
    }

    /// Returns whether there are no octets.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the posted state, once the local RNIC has written the leases.
    ///
    /// # Errors
    /// Returns the leases unchanged while a view of any of them exists.
    pub fn complete(self) -> Result<Leases, Self> {
        match self.0 {
            Sinks::One(sink) => {
                sink.complete().map(Leases::One).map_err(|sink| Self(Sinks::One(sink)))
            }
            Sinks::Several { sinks, mut leases } => {
                if sinks.iter().any(|sink| sink.filled().is_none()) {
                    return Err(Self(Sinks::Several { sinks, leases }));
                }
                leases.extend(sinks.into_iter().filter_map(|sink| sink.complete().ok()));
                Ok(Leases::Several(leases))
            }
        }
    }
}

impl From<Local> for Leases {
    #[inline]
    fn from(lease: Local) -> Self {
        Self::One(lease)
    }
}

#[cfg(test)]
mod tests;
