//! Upper-Layer Bindings as values (version 2, Appendix A).
//!
//! A [`Binding`] declares for each procedure of one RPC program its DDP-eligible arguments and results, their maximum
//! lengths, the maximum length of its Reply, and whether it is idempotent. Both roles obey the same declaration: a
//! Requester cannot plan a Call that reduces anything else, and a Responder refuses such a Call.

use alloc::vec::Vec;

use crate::chunk::{DataItem, Few, Kind, Reduced};

/// The Upper-Layer Binding of one RPC program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// RPC program number.
    pub program: u32,
    /// RPC program version.
    pub version: u32,
    /// The procedures, indexed by procedure number.
    pub procedures: Vec<Procedure>,
}

impl Binding {
    /// Returns whether the binding has this procedure of this program and version.
    #[inline]
    pub fn has(&self, program: u32, version: u32, procedure: u32) -> bool {
        (program, version) == (self.program, self.version) && self.procedure(procedure).is_some()
    }

    /// Returns the procedure of this number.
    #[inline]
    pub fn procedure(&self, number: u32) -> Option<&Procedure> {
        self.procedures.get(usize::try_from(number).ok()?)
    }
}

/// The binding of one procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Procedure {
    /// The human-readable name of the procedure.
    pub name: &'static str,
    /// The DDP-eligible arguments, in stream order.
    pub arguments: Vec<Eligible>,
    /// The DDP-eligible results, in stream order.
    pub results: Vec<Eligible>,
    /// The maximum length of the results in octets, without the DDP-eligible data, but with the
    /// words that stay when that data is reduced.
    pub results_max: u32,
    /// Whether the procedure never has a Reply.
    pub call_only: bool,
    /// Whether the procedure is idempotent: executing a Call twice does no harm.
    pub idempotent: bool,
}

/// A DDP-eligible data item, or a sequence of such items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eligible {
    /// The XDR type of the item.
    pub kind: Kind,
    /// The maximum length of the item in octets, without padding.
    pub length_max: usize,
    /// The most consecutive items; more than one in a procedure that is made of operations.
    pub count_max: u32,
}

impl Eligible {
    /// Declares one variable-length opaque or string of at most `length_max` octets.
    pub const fn opaque(length_max: usize) -> Self {
        Self { kind: Kind::Opaque, length_max, count_max: 1 }
    }
}

impl Procedure {
    /// Declares a procedure without DDP-eligible items, with short results and a Reply, that is not idempotent.
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

    /// Adds the next DDP-eligible argument.
    #[must_use]
    pub fn argument(mut self, eligible: Eligible) -> Self {
        self.arguments.push(eligible);
        self
    }

    /// Adds the next DDP-eligible result.
    #[must_use]
    pub fn result(mut self, eligible: Eligible) -> Self {
        self.results.push(eligible);
        self
    }

    /// Sets the maximum length of the results in octets, without the DDP-eligible data.
    #[must_use]
    pub const fn results_max(mut self, octets: u32) -> Self {
        self.results_max = octets;
        self
    }

    /// Declares that the procedure never has a Reply.
    #[must_use]
    pub const fn call_only(mut self) -> Self {
        self.call_only = true;
        self
    }

    /// Declares that the procedure is idempotent.
    #[must_use]
    pub const fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    /// Returns whether a Requester may reduce these arguments, which are in stream order.
    pub fn allows_arguments(&self, items: &[DataItem]) -> bool {
        // [V2-4.4.2-1] [V2-4.4.2-2] [V2-4.5.3.4-2] [R5666-3.4-2] [R5666-3.6-2] only items that the binding declares are
        // reduced.
        let fits = |slot: &Eligible, item: &DataItem| {
            slot.kind == item.kind() && item.length() <= slot.length_max
        };
        //~ R5666-3.4-2: `misfit` -> `self.arguments.is_empty() || misfit`
        //~ V2-4.4.2-2: `misfit` -> `self.arguments.is_empty() || misfit`
        misfit(&self.arguments, items.iter().copied(), fits).is_none()
    }

    /// Returns whether a Requester may request the reduction of results of these lengths, in order.
    pub fn allows_results(&self, lengths: &[u32]) -> bool {
        misfit(&self.results, lengths.iter().copied(), Eligible::holds).is_none()
    }

    /// Checks that a Responder may serve a Call with these reduced arguments and `write_chunks` Write chunks.
    ///
    /// # Errors
    /// See [`Violation`].
    pub fn check_call(
        &self,
        reads: impl Iterator<Item = Reduced> + Clone,
        write_chunks: u32,
    ) -> Result<(), Violation> {
        let (arguments, results) = (count(&self.arguments), self.results_count());
        if reads.clone().count() > usize::try_from(arguments).unwrap_or(usize::MAX) {
            //~ V2-7.3.1-2: `arguments` -> `arguments.max(1)`
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

    /// Returns the number of DDP-eligible results.
    pub fn results_count(&self) -> u32 {
        count(&self.results)
    }

    /// Returns the maximum length of each DDP-eligible result, in order and in octets.
    pub fn longest_results(&self) -> Few<u32> {
        let mut longest = Few::default();
        for result in &self.results {
            let length = u32::try_from(result.length_max).unwrap_or(u32::MAX);
            for _ in 0..result.count_max {
                if !longest.push(length) {
                    return longest;
                }
            }
        }
        longest
    }

    /// Returns the length of the longest unreduced Reply in octets, its RPC header included, if its
    /// DDP-eligible results have at most these lengths.
    pub fn reply_max(&self, results: &[u32]) -> u64 {
        let items = results.iter().map(|length| u64::from(*length).next_multiple_of(4));
        let rest = u64::from(self.results_max).saturating_add(REPLY_HEADER_MAX);
        items.fold(rest, u64::saturating_add)
    }
}

/// The rule of the binding that a peer's Call breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// The Call reduces more arguments than are DDP-eligible.
    Arguments {
        /// The number of DDP-eligible items.
        max: u32,
    },
    /// The Call requests the reduction of more results than are DDP-eligible.
    Results {
        /// The number of DDP-eligible items.
        max: u32,
    },
    /// The argument at this position exceeds the maximum length of every DDP-eligible argument
    /// there.
    TooLong {
        /// The position of the Read chunk.
        position: u32,
    },
}

impl Eligible {
    fn holds(&self, length: &u32) -> bool {
        usize::try_from(*length).is_ok_and(|length| length <= self.length_max)
    }
}

/// Returns the first of `items` for which no slot is left. Each item takes the first slot it fits,
/// which leaves the most slots to later items.
fn misfit<T>(
    slots: &[Eligible],
    items: impl Iterator<Item = T>,
    fits: impl Fn(&Eligible, &T) -> bool,
) -> Option<T> {
    let mut slots = slots.iter();
    let mut current = slots.next();
    let mut taken = 0;
    for item in items {
        while let Some(slot) = current
            && (taken == slot.count_max || !fits(slot, &item))
        {
            (current, taken) = (slots.next(), 0);
        }
        if current.is_none() {
            return Some(item);
        }
        taken = taken.saturating_add(1);
    }
    None
}

/// Returns the number of items that fit the slots.
fn count(slots: &[Eligible]) -> u32 {
    slots.iter().fold(0, |sum, slot| sum.saturating_add(slot.count_max))
}

/// The length of an RPC Reply header with the longest verifier (RFC 5531): XID, direction, status, flavor, length and
/// body of the verifier, accept status.
const REPLY_HEADER_MAX: u64 = 4 + 4 + 4 + 8 + 400 + 4;

/// The maximum length of results that [`Procedure::new`] assumes, in octets.
const RESULTS_MAX: u32 = 512;

#[cfg(test)]
mod tests;
