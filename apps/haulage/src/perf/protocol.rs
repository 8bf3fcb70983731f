//! The RPC program of the benchmark.
//!
//! | procedure | arguments | results |
//! |---|---|---|
//! | 0 NULL | | |
//! | 1 READ | `unsigned int length` | status; if OK, `opaque data<>`, which is DDP-eligible |
//! | 2 WRITE | `opaque data<>`, which is DDP-eligible | status |
//! | 3 ECHO | `opaque data<>` | `opaque data<>`, the same |
//! | 4 FIGURES | | [`Figures`](haulage_kv::figures::Figures) as unsigned hypers |
//!
//! A status is an unsigned int: 0, or 1 if the server has no memory for an item of that length.

use haulage::limits::{INLINE_SIZE, ITEM_MAX};
use haulage::service::{Binding, Eligible, Procedure as Bound};

/// The program number, out of the range left to users (RFC 5531 section 8.3).
pub const PROGRAM: u32 = 0x2048_5046;
/// The program version.
pub const VERSION: u32 = 1;

const _: () = assert!(PROGRAM >= 0x2000_0000 && PROGRAM <= 0x3fff_ffff);

/// A procedure of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Procedure {
    /// Does nothing.
    Null = 0,
    /// Returns an item of a given length.
    Read = 1,
    /// Accepts an item.
    Write = 2,
    /// Returns the same octets, inline.
    Echo = 3,
    /// Returns the server's resource counters.
    Figures = 4,
}

impl Procedure {
    /// Returns the procedure with this number, if there is one.
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Null,
            1 => Self::Read,
            2 => Self::Write,
            3 => Self::Echo,
            4 => Self::Figures,
            _ => return None,
        })
    }
}

/// Maximum payload that is inline in both directions, in octets: the rest of a message after the transport and RPC
/// headers, with the longest verifier.
pub const ECHO_MAX: usize = INLINE_SIZE - 512;

/// Returns the binding: the DDP-eligible items, and the maximum length of an echo.
pub fn binding() -> Binding {
    let item = Eligible::opaque(ITEM_MAX);
    let echo_max = u32::try_from(ECHO_MAX).unwrap_or(u32::MAX) + 4;
    let procedures = vec![
        Bound::new("NULL").results_max(0).idempotent(),
        Bound::new("READ").result(item).results_max(8).idempotent(),
        Bound::new("WRITE").argument(item).results_max(4).idempotent(),
        Bound::new("ECHO").results_max(echo_max).idempotent(),
        Bound::new("FIGURES").idempotent(),
    ];
    Binding { program: PROGRAM, version: VERSION, procedures }
}

/// The status of success.
pub const OK: u32 = 0;
/// The status for an item that the server has no memory for.
pub const NO_SPACE: u32 = 1;
