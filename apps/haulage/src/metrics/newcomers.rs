//! The metrics of peers that were lost before a core heard of them.

use std::fmt::{self, Write as _};

use haulage::provider::{Accepts, Newcomers};

use super::Page;

impl Page {
    /// Writes the handshakes that failed, and the accepts that failed, of each listener.
    pub(super) fn newcomers(
        &mut self,
        lost: &Newcomers,
        accepts: &[(&str, Accepts)],
    ) -> fmt::Result {
        self.many(
            "haulage_handshakes_failed_total",
            "counter",
            "Peers that were lost before their connection was set up, by reason.",
            &[
                ("reason=\"closed\"", lost.closed),
                ("reason=\"malformed\"", lost.malformed),
                ("reason=\"timed_out\"", lost.timed_out),
                ("reason=\"crowded_out\"", lost.crowded_out),
                ("reason=\"forbidden\"", lost.forbidden),
            ],
        )?;
        let help = "Accepts that failed, by listener and by what this machine lacked.";
        let name = "haulage_accepts_failed_total";
        self.head(name, "counter", help)?;
        for (listener, Accepts { descriptors, memory, other }) in accepts {
            for (reason, count) in
                [("descriptors", descriptors), ("memory", memory), ("other", other)]
            {
                writeln!(self.0, "{name}{{listener=\"{listener}\",reason=\"{reason}\"}} {count}")?;
            }
        }
        Ok(())
    }
}
