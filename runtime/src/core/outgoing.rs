//! Replies that wait for credit.

use std::ops::Range;

use haulage_mr_pool::Local;

use super::table::CallKey;

/// A Reply that waits for credit.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// It has no chunks, and its Call is forgotten.
    Bare(Complete),
    /// The Call it answers is in the table.
    Kept(CallKey),
}

/// A message that is complete but for its credit word: `start..end` of its buffer.
#[derive(Debug)]
pub(crate) struct Complete {
    pub(crate) buffer: Local,
    start: u32,
    end: u32,
}

impl Complete {
    /// Names the message in its buffer.
    pub(crate) fn new(buffer: Local, range: Range<usize>) -> Self {
        let [start, end] = [range.start, range.end].map(|at| u32::try_from(at).unwrap_or_default());
        Self { buffer, start, end }
    }

    /// Returns where in the buffer the message is.
    pub(crate) const fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Returns the message.
    pub(crate) fn message(&self) -> &[u8] {
        self.buffer.bytes().get(self.range()).unwrap_or_default()
    }

    /// Fills in the credit word.
    pub(crate) fn set_credit(&mut self, credit: u32) {
        set_credit(
            self.buffer.bytes_mut().get_mut(self.start as usize..).unwrap_or_default(),
            credit,
        );
    }
}

/// Fills in the credit word of a message.
#[inline]
pub(crate) fn set_credit(message: &mut [u8], credit: u32) {
    if let Some(word) = message.get_mut(CREDIT_AT..CREDIT_AT + 4) {
        word.copy_from_slice(&credit.to_be_bytes());
    }
}

/// Where the credit word is in a message, in every version.
const CREDIT_AT: usize = 8;
