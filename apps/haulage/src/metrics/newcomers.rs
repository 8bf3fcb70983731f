//! The metrics of peers that were lost before a core heard of them.

use haulage::provider::{Accepts, Newcomers};

use super::page::{Kind, Page};

impl Page {
    /// Writes the handshakes that failed, and the accepts that failed, of each listener.
    pub(super) fn newcomers(&mut self, lost: &Newcomers, accepts: &[(&str, Accepts)]) {
        self.many(
            "haulage_handshakes_failed_total",
            Kind::Counter,
            "Peers that were lost before their connection was set up, by reason.",
            [
                ("reason=\"closed\"", lost.closed),
                ("reason=\"malformed\"", lost.malformed),
                ("reason=\"timed_out\"", lost.timed_out),
                ("reason=\"crowded_out\"", lost.crowded_out),
                ("reason=\"forbidden\"", lost.forbidden),
            ],
        );
        let each = accepts.iter().flat_map(|(listener, accepts)| {
            let Accepts { descriptors, memory, other } = *accepts;
            [("descriptors", descriptors), ("memory", memory), ("other", other)].map(
                |(reason, count)| (format!("listener=\"{listener}\",reason=\"{reason}\""), count),
            )
        });
        self.many(
            "haulage_accepts_failed_total",
            Kind::Counter,
            "Accepts that failed, by listener and by what this machine lacked.",
            each,
        );
    }
}
