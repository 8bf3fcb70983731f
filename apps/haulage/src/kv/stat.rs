//! The statistics of a key-value server.

use haulage::pool::{PageKind, PageReport};
use haulage_proto::xdr::{Reader, Truncated, Writer};

use crate::output::json;
use crate::output::table::{self, Align};

/// The statistics of `kv stat`. Memory is in octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Servers the keys are spread over.
    pub shards: u64,
    /// Keys stored.
    pub keys: u64,
    /// Octets of all values.
    pub value_bytes: u64,
    /// Maximum octets of all values.
    pub value_bytes_max: u64,
    /// The `--memory` of the server, for values and index.
    pub memory_bytes: u64,
    /// VmRSS and HugetlbPages of the process.
    pub resident_bytes: u64,
    /// Memory that connections hold beyond the shared receive buffers.
    pub connection_bytes: u64,
    /// Open connections, including the client's own.
    pub connections: u64,
    /// Leases readable and writable by the server alone.
    pub leases_local: u64,
    /// Leases any number of replies may be sent from.
    pub leases_shared: u64,
    /// Leases owned by a posted work request.
    pub leases_posted: u64,
    /// Leases a peer may touch.
    pub leases_exposed: u64,
    /// Registrations in flight.
    pub registrations: u64,
    /// Registrations whose lease was dropped while exposed.
    pub orphans: u64,
    /// Handles invalidated by a peer's Send with Invalidate.
    pub invalidations_remote: u64,
    /// Handles invalidated by the server itself.
    pub invalidations_local: u64,
    /// Octets of payload the server's user space copied.
    pub copied_user: u64,
    /// Octets the system copied between the server's memory and its sockets.
    pub copied_system: u64,
    /// Registered memory in pages of 1 GiB.
    pub pages_1g: u64,
    /// Registered memory in pages of 2 MiB.
    pub pages_2m: u64,
    /// Registered memory in transparent huge pages.
    pub pages_thp: u64,
    /// Registered memory in pages of 4 KiB.
    pub pages_4k: u64,
}

impl Stat {
    /// Decodes the statistics.
    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, Truncated> {
        let mut stat = Self::default();
        for figure in stat.figures_mut() {
            *figure = r.u64()?;
        }
        Ok(stat)
    }

    /// Appends the statistics to `w`.
    pub(super) fn encode(mut self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        self.figures_mut().into_iter().try_for_each(|figure| w.u64(*figure))
    }

    /// Sets the page counters of the registered memory.
    pub fn set_pages(&mut self, report: &PageReport) {
        let (bytes, huge) = (report.bytes as u64, report.huge_bytes as u64);
        match report.kind {
            PageKind::Gigantic => self.pages_1g = bytes,
            PageKind::Huge => self.pages_2m = bytes,
            // The system decides which part gets huge pages.
            PageKind::Transparent => {
                (self.pages_thp, self.pages_4k) = (huge, bytes.saturating_sub(huge));
            }
            PageKind::Small | PageKind::Heap => self.pages_4k = bytes,
        }
    }

    /// Returns the statistics as JSON.
    pub fn to_json(&self) -> String {
        json::object(|o| {
            o.count("shards", self.shards).count("keys", self.keys);
            o.count("value_bytes", self.value_bytes);
            o.count("value_bytes_max", self.value_bytes_max);
            o.count("memory_bytes", self.memory_bytes);
            o.count("resident_bytes", self.resident_bytes);
            o.count("connection_bytes", self.connection_bytes);
            o.count("connections", self.connections);
            o.object("leases", |o| {
                o.count("local", self.leases_local).count("shared", self.leases_shared);
                o.count("posted", self.leases_posted).count("exposed", self.leases_exposed);
            });
            o.count("registrations", self.registrations).count("orphans", self.orphans);
            o.object("invalidations", |o| {
                o.count("remote", self.invalidations_remote);
                o.count("local", self.invalidations_local);
            });
            o.object("pages", |o| {
                o.count("1g", self.pages_1g).count("2m", self.pages_2m);
                o.count("thp", self.pages_thp).count("4k", self.pages_4k);
            });
            o.object("copies", |o| {
                o.count("user", self.copied_user).count("system", self.copied_system);
            });
        })
    }

    /// Returns the statistics as a table with columns for counts and for octets.
    pub fn to_text(&self) -> String {
        let pages = [
            ("memory in 1 GiB pages", self.pages_1g),
            ("memory in 2 MiB pages", self.pages_2m),
            ("memory in transparent huge pages", self.pages_thp),
            ("memory in 4 KiB pages", self.pages_4k),
        ];
        let count =
            |what: &str, count: u64| [what, &count.to_string(), ""].map(str::to_owned).to_vec();
        let octets =
            |what, octets: u64| [what, "", &octets.to_string()].map(str::to_owned).to_vec();
        let mut rows = vec![
            count("shards", self.shards),
            count("keys", self.keys),
            octets("values", self.value_bytes),
            octets("values that fit", self.value_bytes_max),
            octets("memory for values and index", self.memory_bytes),
            octets("resident memory", self.resident_bytes),
            count("connections", self.connections),
            octets("memory of connections", self.connection_bytes),
            count("leases, local", self.leases_local),
            count("leases, shared", self.leases_shared),
            count("leases, posted", self.leases_posted),
            count("leases, exposed", self.leases_exposed),
            count("leases, orphaned", self.orphans),
            count("registrations", self.registrations),
            count("invalidations by peers", self.invalidations_remote),
            count("invalidations by us", self.invalidations_local),
            octets("copied in user space", self.copied_user),
            octets("copied by the system", self.copied_system),
        ];
        let pages = pages.into_iter().filter(|(_, bytes)| *bytes > 0);
        rows.extend(pages.map(|(kind, bytes)| octets(kind, bytes)));
        let columns = [("figure", Align::Left), ("count", Align::Right), ("bytes", Align::Right)];
        table::layout(&columns, &rows)
    }

    /// Returns the statistics in their order on the wire.
    fn figures_mut(&mut self) -> [&mut u64; 22] {
        [
            &mut self.shards,
            &mut self.keys,
            &mut self.value_bytes,
            &mut self.value_bytes_max,
            &mut self.memory_bytes,
            &mut self.resident_bytes,
            &mut self.connection_bytes,
            &mut self.connections,
            &mut self.leases_local,
            &mut self.leases_shared,
            &mut self.leases_posted,
            &mut self.leases_exposed,
            &mut self.registrations,
            &mut self.orphans,
            &mut self.invalidations_remote,
            &mut self.invalidations_local,
            &mut self.pages_1g,
            &mut self.pages_2m,
            &mut self.pages_thp,
            &mut self.pages_4k,
            &mut self.copied_user,
            &mut self.copied_system,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_octets_have_columns_of_their_own() {
        let stat = Stat { keys: 3, value_bytes: 10_000, pages_2m: 4 << 20, ..Stat::default() };
        let text = stat.to_text();
        let mut lines = text.lines();
        let title = lines.next().unwrap();
        let (count, bytes) = (title.find("count").unwrap() + 5, title.len());
        for line in lines {
            let counts = ["shards", "keys", "connections", "leases", "registrations", "invalid"];
            let end = if counts.iter().any(|it| line.starts_with(it)) { count } else { bytes };
            assert_eq!(line.len(), end, "{line:?} in {text}");
        }
        assert!(text.contains(" 10000\n") && text.contains(" 4194304\n"), "{text}");
    }

    #[test]
    fn json_has_the_keys_of_the_contract_in_their_order() {
        let mut stat = Stat::default();
        (1..).zip(stat.figures_mut()).for_each(|(n, figure)| *figure = n);
        assert_eq!(
            stat.to_json(),
            r#"{"shards":1,"keys":2,"value_bytes":3,"value_bytes_max":4,"memory_bytes":5,"#
                .to_owned()
                + r#""resident_bytes":6,"connection_bytes":7,"connections":8,"#
                + r#""leases":{"local":9,"shared":10,"posted":11,"exposed":12},"#
                + r#""registrations":13,"orphans":14,"invalidations":{"remote":15,"local":16},"#
                + r#""pages":{"1g":17,"2m":18,"thp":19,"4k":20},"copies":{"user":21,"system":22}}"#
        );
    }
}
