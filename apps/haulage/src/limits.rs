//! Measurements of the machine's limits: memory copies, raw TCP, and cache lines.
//!
//! # Normal operation
//! Each function measures one limit for about the time it is given, on two threads that it starts, pins and ends. It
//! leaves nothing running, so that measurements can be interleaved with other work (A, B, A, B). On virtual machines,
//! whose cores change their speed and distance, only interleaved measurements can be compared.
//!
//! Every figure is a median or a rate over many samples. Both sides of every measurement poll.

use std::io;
use std::time::Duration;

use crate::output::json;

mod memory;
mod noise;
mod pair;
mod tcp;

pub use memory::{cacheline_rtt_us, memcpy_gib_per_s};
pub use noise::Noise;
pub use pair::Pair;
pub use tcp::{
    MESSAGE_MAX, answer, tcp_file_gib_per_s, tcp_rtt_us, tcp_rtt_us_to, tcp_stream_gib_per_s,
    tcp_stream_gib_per_s_to,
};

/// The measured limits of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Rate at which one core copies into buffers that the other core uses.
    pub memcpy_gib_per_s: Option<f64>,
    /// Rate of large messages over raw TCP, received in place.
    pub tcp_stream_gib_per_s: Option<f64>,
    /// Round trip of small messages over raw TCP.
    pub tcp_rtt_us: Option<f64>,
    /// Round trip of a cache line between two cores.
    pub cacheline_rtt_us: Option<f64>,
}

impl Limits {
    /// Measures all limits on this machine, each for about `budget`, with items of `size` octets of which `depth` are
    /// in flight.
    ///
    /// # Errors
    /// The system's error, such as a thread that cannot be pinned.
    pub fn measure(pair: Pair, size: usize, depth: usize, budget: Duration) -> io::Result<Self> {
        Ok(Self {
            memcpy_gib_per_s: Some(memcpy_gib_per_s(pair, size, budget)?),
            tcp_stream_gib_per_s: Some(tcp_stream_gib_per_s(pair, size, depth, budget)?),
            tcp_rtt_us: Some(tcp_rtt_us(pair, SMALL, budget)?),
            cacheline_rtt_us: Some(cacheline_rtt_us(pair, budget)?),
        })
    }

    /// Adds the limits to an object of results; a limit that was not measured is `null`.
    pub fn write(&self, object: &mut json::Object) {
        object.measure("memcpy_gib_per_s", self.memcpy_gib_per_s, 3);
        object.measure("tcp_stream_gib_per_s", self.tcp_stream_gib_per_s, 6);
        object.measure("tcp_rtt_us", self.tcp_rtt_us, 3);
        object.measure("cacheline_rtt_us", self.cacheline_rtt_us, 3);
    }
}

/// Length of a small message, in octets.
pub const SMALL: usize = 32;

#[cfg(test)]
mod tests {
    use haulage::sys::affinity::CPUS_MAX;

    use super::*;

    const BUDGET: Duration = Duration::from_millis(20);

    #[test]
    fn every_limit_is_a_plausible_number() {
        let pair = Pair::UNPINNED;
        for (what, figure) in [
            ("memcpy", memcpy_gib_per_s(pair, 1 << 20, BUDGET)),
            ("memcpy of small blocks", memcpy_gib_per_s(pair, 64, BUDGET)),
            ("stream", tcp_stream_gib_per_s(pair, 1 << 20, 4, BUDGET)),
            ("round trip", tcp_rtt_us(pair, 64, BUDGET)),
            ("cache line", cacheline_rtt_us(pair, BUDGET)),
        ] {
            let figure = figure.unwrap();
            assert!(figure > 1e-4 && figure < 1e6, "{what}: {figure}");
        }
    }

    #[test]
    fn a_thread_that_cannot_be_placed_ends_the_measurement() {
        let nowhere = CPUS_MAX;
        for pair in [
            Pair { far: Some(nowhere), ..Pair::UNPINNED },
            Pair { near: Some(nowhere), ..Pair::UNPINNED },
        ] {
            let budget = Duration::from_secs(3600);
            let errors = [
                memcpy_gib_per_s(pair, 4096, budget),
                tcp_stream_gib_per_s(pair, 4096, 1, budget),
                tcp_rtt_us(pair, 64, budget),
                cacheline_rtt_us(pair, budget),
            ];
            for error in errors {
                assert_eq!(error.unwrap_err().kind(), io::ErrorKind::InvalidInput, "{pair:?}");
            }
        }
    }

    #[test]
    fn what_was_not_measured_is_null() {
        let limits = Limits { tcp_rtt_us: Some(7.5), ..Limits::default() };
        assert_eq!(
            json::object(|o| limits.write(o)),
            r#"{"memcpy_gib_per_s":null,"tcp_stream_gib_per_s":null,"tcp_rtt_us":7.500,"cacheline_rtt_us":null}"#
        );
    }
}
