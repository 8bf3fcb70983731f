//! Upper-Layer Bindings as code (version 2, Appendix A).
//!
//! A [`Binding`] says of each procedure of one RPC program which of its arguments and results are
//! DDP-eligible, how long they get, how long its Reply gets, and whether it can be called twice. Both
//! roles obey the same declaration: a Requester cannot plan a Call that reduces anything else, and a
//! Responder refuses a peer that does.

use alloc::vec::Vec;

use crate::chunk::{DataItem, Kind, Reduced};

/// The Upper-Layer Binding of one RPC program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// RPC program number.
    pub program: u32,
    /// RPC program version.
    pub version: u32,
    /// Indexed by procedure number.
    pub procedures: Vec<Procedure>,
}

impl Binding {
    /// Returns whether this is a procedure of the program.
    #[inline]
    pub fn has(&self, program: u32, version: u32, procedure: u32) -> bool {
        (program, version) == (self.program, self.version) && self.procedure(procedure).is_some()
    }

    /// Returns what is bound to a procedure number.
    #[inline]
    pub fn procedure(&self, number: u32) -> Option<&Procedure> {
        self.procedures.get(usize::try_from(number).ok()?)
    }
}

/// What a binding says of one procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Procedure {
    /// For people.
    pub name: &'static str,
    /// The DDP-eligible arguments, in the order in which they can appear.
    pub arguments: Vec<Eligible>,
    /// The DDP-eligible results, in the order in which they can appear.
    pub results: Vec<Eligible>,
    /// Octets of the longest results, those that are DDP-eligible not counted; the words that stay
    /// when they are reduced do count.
    pub results_max: u32,
    /// Whether there is never a Reply.
    pub call_only: bool,
    /// Whether being carried out twice does no harm.
    pub idempotent: bool,
}

/// A DDP-eligible data item, or a row of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eligible {
    /// Its XDR type.
    pub kind: Kind,
    /// Its largest length in octets, padding not counted.
    pub length_max: usize,
    /// How many may follow each other; more than one in a procedure that is made of operations.
    pub count_max: u32,
}

impl Eligible {
    /// Declares one variable-length opaque or string.
    pub const fn opaque(length_max: usize) -> Self {
        Self { kind: Kind::Opaque, length_max, count_max: 1 }
    }
}

impl Procedure {
    /// Declares a procedure without DDP-eligible items, whose results are short and which is answered,
    /// and must not be carried out twice.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            arguments: Vec::new(),
            results: Vec::new(),
            results_max: RESULTS_MAX,
            call_only: false,
            idempotent: false,
        }
    }

    /// Declares its next DDP-eligible argument.
    #[must_use]
    pub fn argument(mut self, eligible: Eligible) -> Self {
        self.arguments.push(eligible);
        self
    }

    /// Declares its next DDP-eligible result.
    #[must_use]
    pub fn result(mut self, eligible: Eligible) -> Self {
        self.results.push(eligible);
        self
    }

    /// Declares how long its results get, the DDP-eligible ones not counted.
    #[must_use]
    pub const fn results_max(mut self, octets: u32) -> Self {
        self.results_max = octets;
        self
    }

    /// Declares that there is never a Reply.
    #[must_use]
    pub const fn call_only(mut self) -> Self {
        self.call_only = true;
        self
    }

    /// Declares that being carried out twice does no harm.
    #[must_use]
    pub const fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    /// Returns whether a Requester may reduce these arguments, which are in order.
    pub fn allows_arguments(&self, items: &[DataItem]) -> bool {
        // [V2-4.4.2-1] [V2-4.4.2-2] [V2-4.5.3.4-2] [R5666-3.4-2] [R5666-3.6-2] what is declared, and
        // nothing else.
        let fits = |slot: &Eligible, item: &DataItem| {
            slot.kind == item.kind() && item.length() <= slot.length_max
        };
        misfit(&self.arguments, items.iter().copied(), fits).is_none()
    }

    /// Returns whether a Requester may ask for results of these lengths to be reduced, in order.
    pub fn allows_results(&self, lengths: &[u32]) -> bool {
        misfit(&self.results, lengths.iter().copied(), Eligible::holds).is_none()
    }

    /// Returns whether a Responder may take a Call whose sender reduced these arguments, and offered
    /// so many Write chunks.
    ///
    /// # Errors
    /// See [`Violation`].
    pub fn check_call(
        &self,
        reads: impl Iterator<Item = Reduced> + Clone,
        write_chunks: u32,
    ) -> Result<(), Violation> {
        let (arguments, results) = (count(&self.arguments), count(&self.results));
        if reads.clone().count() > usize::try_from(arguments).unwrap_or(usize::MAX) {
            return Err(Violation::Arguments { max: arguments });
        }
        if write_chunks > results {
            return Err(Violation::Results { max: results });
        }
        match misfit(&self.arguments, reads, |slot, chunk| slot.holds(&chunk.length)) {
            Some(chunk) => Err(Violation::TooLong { position: chunk.position }),
            None => Ok(()),
        }
    }

    /// Returns how long the largest Reply is, its RPC header included and nothing reduced, when its
    /// DDP-eligible results have at most these lengths.
    pub fn reply_max(&self, results: &[u32]) -> u64 {
        let items = results.iter().map(|length| u64::from(*length).next_multiple_of(4));
        let rest = u64::from(self.results_max).saturating_add(REPLY_HEADER_MAX);
        items.fold(rest, u64::saturating_add)
    }
}

/// How a peer's Call differs from what the binding allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// More arguments are reduced than are DDP-eligible.
    Arguments {
        /// How many are.
        max: u32,
    },
    /// More results are to be reduced than are DDP-eligible.
    Results {
        /// How many are.
        max: u32,
    },
    /// The argument at this position is longer than any that is DDP-eligible there.
    TooLong {
        /// Of its chunk.
        position: u32,
    },
}

impl Eligible {
    fn holds(&self, length: &u32) -> bool {
        usize::try_from(*length).is_ok_and(|length| length <= self.length_max)
    }
}

/// Returns the first of `items` for which no slot is left. Each takes the first slot it fits, which
/// leaves the most to those after it.
fn misfit<T>(
    slots: &[Eligible],
    mut items: impl Iterator<Item = T>,
    fits: impl Fn(&Eligible, &T) -> bool,
) -> Option<T> {
    let mut slots = slots.iter().map(|slot| (slot, slot.count_max));
    let mut current = slots.next();
    items.find(|item| {
        loop {
            match &mut current {
                None => return true,
                Some((slot, left)) if *left > 0 && fits(slot, item) => {
                    *left = left.saturating_sub(1);
                    return false;
                }
                Some(_) => current = slots.next(),
            }
        }
    })
}

/// Returns how many items fit the slots.
fn count(slots: &[Eligible]) -> u32 {
    slots.iter().fold(0, |sum, slot| sum.saturating_add(slot.count_max))
}

/// Octets of an RPC Reply header with the longest verifier (RFC 5531): XID, direction, status, flavor
/// and length and body of the verifier, accept status.
const REPLY_HEADER_MAX: u64 = 4 + 4 + 4 + 8 + 400 + 4;

/// What [`Procedure::new`] assumes of results that are not DDP-eligible.
const RESULTS_MAX: u32 = 512;

#[cfg(test)]
mod tests;
