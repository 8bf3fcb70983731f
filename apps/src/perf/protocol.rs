//! The RPC program of the benchmark.
//!
//! | procedure | arguments | results |
//! |---|---|---|
//! | 0 NULL | | |
//! | 1 READ | `unsigned int length` | status; if OK, `opaque data<>`, which is DDP-eligible |
//! | 2 WRITE | `opaque data<>`, which is DDP-eligible | status |
//! | 3 ECHO | `opaque data<>` | `opaque data<>`, the same |
//! | 4 FIGURES | | [`Figures`](super::figures::Figures) as unsigned hypers |
//!
//! A status is an unsigned int: 0, or 1 if the server has no memory for an item of that length.

use haulage::limits::{INLINE_SIZE, ITEM_MAX};
use haulage::service::{Binding, Eligible, Procedure as Bound};

/// The program number, out of the range left to users (RFC 5531 section 8.2).
pub const PROGRAM: u32 = 0x2048_5046;
/// The only version there is.
pub const VERSION: u32 = 1;

const _: () = assert!(PROGRAM >= 0x2000_0000 && PROGRAM <= 0x3fff_ffff);

/// What a client can ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Procedure {
    /// Nothing.
    Null = 0,
    /// An item of some length.
    Read = 1,
    /// Take an item.
    Write = 2,
    /// The same octets back, inline.
    Echo = 3,
    /// What the server spent so far.
    Figures = 4,
}

impl Procedure {
    /// Returns the procedure of that number, if there is one.
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

/// The longest payload that goes inline both ways, in octets: transport and RPC headers leave so much,
/// with a verifier of any length.
pub const ECHO_MAX: usize = INLINE_SIZE - 512;

/// What may be reduced, and how long an echo is at most.
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

/// It was done.
pub const OK: u32 = 0;
/// The server has no memory for it.
pub const NO_SPACE: u32 = 1;
