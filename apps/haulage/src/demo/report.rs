//! The report of the demo.

use super::load::{Op, Tally};
use crate::limits::Limits;
use crate::output::json;
use crate::output::table::{self, Align};

/// The measurements of one operation at one size.
#[derive(Clone, Debug)]
pub(super) struct Row {
    op: &'static str,
    size: usize,
    rate_per_s: f64,
    gib_per_s: f64,
    p50_us: f64,
    p99_us: f64,
    copies_per_byte: f64,
    copies_user: f64,
    pub(super) verified: bool,
}

impl Row {
    /// Creates a row. `latency` was measured with one Call in flight, `rate` with several.
    pub(super) fn new(op: Op, size: usize, latency: &Tally, rate: &Tally) -> Self {
        let moved = (rate.operations * size as u64).max(1) as f64;
        let copies_user = rate.copied_user as f64 / moved;
        Self {
            op: op.name(),
            size,
            rate_per_s: rate.operations as f64 / rate.seconds().max(f64::MIN_POSITIVE),
            gib_per_s: rate.gib_per_s(),
            p50_us: latency.samples.quantile_us(0.5),
            p99_us: latency.samples.quantile_us(0.99),
            copies_per_byte: copies_user + rate.copied_system as f64 / moved,
            copies_user,
            // A wrong byte would have ended the demo.
            verified: true,
        }
    }

    /// Returns the row as JSON.
    pub(super) fn to_json(&self) -> String {
        json::object(|o| {
            o.text("op", self.op).count("size", self.size as u64);
            o.measure("rate_per_s", Some(self.rate_per_s), 1);
            o.measure("gib_per_s", Some(self.gib_per_s), 4);
            o.measure("p50_us", Some(self.p50_us), 2).measure("p99_us", Some(self.p99_us), 2);
            o.measure("copies_per_byte", Some(self.copies_per_byte), 3);
            o.flag("verified", self.verified);
            o.measure("copies_per_byte_user", Some(self.copies_user), 3);
        })
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.op.to_owned(),
            self.size.to_string(),
            format!("{:.0}", self.rate_per_s),
            format!("{:.3}", self.gib_per_s),
            format!("{:.1}", self.p50_us),
            format!("{:.1}", self.p99_us),
            format!("{:.2}", self.copies_user),
            format!("{:.2}", self.copies_per_byte - self.copies_user),
            if self.verified { "every byte" } else { "NO" }.to_owned(),
        ]
    }
}

/// The ratios of our measurements to the machine's limits, medians of pairs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ratios {
    pub(super) stream: Option<f64>,
    pub(super) rtt: Option<f64>,
}

/// Returns the report as a table, with the limits and the ratios.
pub(super) fn table(rows: &[Row], limits: &Limits, ratios: &Ratios) -> String {
    let right = Align::Right;
    let columns = [
        ("op", Align::Left),
        ("bytes", right),
        ("rate/s", right),
        ("GiB/s", right),
        ("p50 us", right),
        ("p99 us", right),
        ("copies", right),
        ("by system", right),
        ("verified", Align::Left),
    ];
    let mut text = table::layout(&columns, &rows.iter().map(Row::cells).collect::<Vec<_>>());
    text.push_str(
        "\nLatencies are of one call at a time, rates of 16 (up to 4 KiB), 8 (64 KiB) or 4 in flight.\n\
         Copies are per payload byte, both ends together, from counters: ours, and the system's\n\
         between memory and sockets, which an RDMA NIC does not need.\n\n",
    );
    let mut limit = |what: &str, figure: Option<f64>, unit: &str, ours: Option<f64>, note: &str| {
        if let Some(figure) = figure {
            text.push_str(&format!("{what}: {figure:.2} {unit}"));
            if let Some(ours) = ours {
                text.push_str(&format!("; {note} {ours:.2} of it"));
            }
            text.push('\n');
        }
    };
    let Limits { memcpy_gib_per_s, tcp_stream_gib_per_s, tcp_rtt_us, cacheline_rtt_us } = *limits;
    limit(
        "raw TCP stream of 1 MiB messages",
        tcp_stream_gib_per_s,
        "GiB/s",
        ratios.stream,
        "GET is",
    );
    limit("raw TCP round trip of 64 B", tcp_rtt_us, "us", ratios.rtt, "GET takes");
    limit("memcpy of 1 MiB", memcpy_gib_per_s, "GiB/s", None, "");
    limit("cache line round trip", cacheline_rtt_us, "us", None, "");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_all_in_bytes() {
        let row = |size| Row::new(Op::Get, size, &Tally::default(), &Tally::default());
        let ratios = Ratios { stream: None, rtt: None };
        let text = table(&[row(64), row(4 << 20)], &Limits::default(), &ratios);
        let column: Vec<_> =
            text.lines().take(3).filter_map(|line| line.split_whitespace().nth(1)).collect();
        assert_eq!(column, ["bytes", "64", "4194304"], "{text}");
    }
}
