//! The RPC program of the benchmark.
//!
//! | procedure | arguments | results |
//! |---|---|---|
//! | 0 NULL | | |
//! | 1 READ | `unsigned int length` | status; if OK, `opaque data<>`, which is DDP-eligible |
//! | 2 WRITE | `opaque data<>`, which is DDP-eligible | status |
//! | 3 ECHO | `opaque data<>` | `opaque data<>`, the same |
//! | 4 FIGURES | | [`CoreFigures`] as unsigned hypers |
//!
//! A status is an unsigned int: 0, or 1 if the server has no memory for an item of that length.

use haulage::core::Cx;
use haulage::limits::{INLINE_SIZE, ITEM_MAX};
use haulage::service::{Binding, Eligible, Procedure as Bound};
use haulage_kv::figures::Figures;
use haulage_proto::xdr::{Reader, Truncated, Writer};

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
    /// Returns the counters of the core that the connection is on.
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

/// A core of a server: its number, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerCore {
    /// The core's number, from zero.
    pub number: u64,
    /// Number of cores of the server.
    pub count: u64,
}

impl ServerCore {
    /// The core of a server that has one.
    pub const ONLY: Self = Self { number: 0, count: 1 };
}

/// The counters of one core of a server since it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreFigures {
    /// The resources that the core used.
    pub figures: Figures,
    /// The core.
    pub core: ServerCore,
    /// Calls that the core served.
    pub calls: u64,
}

impl CoreFigures {
    /// Reads the counters, on the core's thread.
    pub fn of(cx: &Cx<'_>, core: ServerCore) -> Self {
        Self { figures: Figures::of(cx), core, calls: cx.counters().calls_served }
    }

    /// Decodes the counters. A server that says nothing behind its [`Figures`] has one core, and does not count Calls.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, Truncated> {
        let figures = Figures::decode(r)?;
        if r.is_empty() {
            return Ok(Self { figures, core: ServerCore::ONLY, calls: 0 });
        }
        let core = ServerCore { number: r.u64()?, count: r.u64()? };
        Ok(Self { figures, core, calls: r.u64()? })
    }

    /// Appends the counters to `w`.
    pub fn encode(self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        let Self { figures, core: ServerCore { number, count }, calls } = self;
        figures.encode(w)?;
        [number, count, calls].into_iter().try_for_each(|figure| w.u64(figure))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_a_core_travel_and_a_server_without_cores_has_one() {
        let figures = Figures { cpu_ns: 7, ..Figures::default() };
        let sent = CoreFigures { figures, core: ServerCore { number: 2, count: 3 }, calls: 9 };
        let mut room = [0; 136];
        sent.encode(&mut Writer::new(&mut room)).unwrap();
        assert_eq!(CoreFigures::decode(&mut Reader::new(&room)), Ok(sent));
        for cut in 113..136 {
            assert!(CoreFigures::decode(&mut Reader::new(&room[..cut])).is_err(), "{cut}");
        }
        let old = CoreFigures::decode(&mut Reader::new(&room[..112]));
        assert_eq!(old, Ok(CoreFigures { figures, core: ServerCore::ONLY, calls: 0 }));
    }
}
