//! A page of metrics, which is written in the Prometheus text format.

use std::fmt;

/// The metrics of one core, or of all cores of a server.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    families: Vec<Family>,
}

/// The values of one metric.
#[derive(Clone, Debug)]
struct Family {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    values: Vec<Value>,
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    /// A histogram, which a server has once: those of its cores are added up.
    Histogram,
    /// A gauge of the process, which is the same on all of its cores.
    Process,
}

/// One value of a metric.
#[derive(Clone, Debug)]
struct Value {
    /// What is behind the name of the metric, in a histogram.
    suffix: &'static str,
    /// Labels as `key="value"`, with commas between them, or an empty string.
    labels: String,
    number: Number,
}

/// The number of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Count(u64),
    Seconds(f64),
    /// A moment: seconds since the epoch of Unix, of which milliseconds are of interest.
    Moment(f64),
}

impl Page {
    /// Begins a metric, of which values follow.
    pub(super) fn begin(&mut self, name: &'static str, kind: Kind, help: &'static str) {
        self.families.push(Family { name, kind, help, values: Vec::new() });
    }

    /// Adds a value to the metric that was begun last.
    pub(super) fn value(&mut self, suffix: &'static str, labels: String, number: Number) {
        if let Some(family) = self.families.last_mut() {
            family.values.push(Value { suffix, labels, number });
        }
    }

    /// Adds a metric of one value.
    pub(super) fn one(&mut self, name: &'static str, kind: Kind, help: &'static str, value: u64) {
        self.many(name, kind, help, [("", value)]);
    }

    /// Adds a metric with a value for each label.
    pub(super) fn many<L: Into<String>>(
        &mut self,
        name: &'static str,
        kind: Kind,
        help: &'static str,
        values: impl IntoIterator<Item = (L, u64)>,
    ) {
        self.begin(name, kind, help);
        for (labels, value) in values {
            self.value("", labels.into(), Number::Count(value));
        }
    }

    /// Puts the pages of several cores together, each with the number of its core, which becomes the label `core` of its
    /// values. Histograms are added up.
    #[must_use]
    pub(super) fn of_cores(pages: &[(usize, Self)]) -> Self {
        let Some((_, first)) = pages.first() else { return Self::default() };
        let families = first.families.iter().map(|family| family.of_cores(pages)).collect();
        Self { families }
    }
}

impl Family {
    /// Returns this metric of several cores, of which this is the first one's.
    fn of_cores(&self, pages: &[(usize, Page)]) -> Self {
        let each = pages.iter().filter_map(|(core, page)| {
            let same = page.families.iter().find(|family| family.name == self.name)?;
            Some((core, same))
        });
        let mut all = self.clone();
        match self.kind {
            Kind::Process => {}
            Kind::Histogram => {
                for (_, other) in each.skip(1) {
                    let both = all.values.iter_mut().zip(&other.values);
                    both.for_each(|(sum, value)| sum.number = sum.number.plus(value.number));
                }
            }
            Kind::Counter | Kind::Gauge => {
                all.values = each.flat_map(|(core, family)| family.values_of(*core)).collect();
            }
        }
        all
    }

    /// Returns the values with the label of a core.
    fn values_of(&self, core: usize) -> impl Iterator<Item = Value> {
        self.values.iter().map(move |value| {
            let comma = if value.labels.is_empty() { "" } else { "," };
            let labels = format!("{}{comma}core=\"{core}\"", value.labels);
            Value { labels, ..value.clone() }
        })
    }
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge | Self::Process => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

impl Number {
    /// Returns the sum of two numbers of one metric.
    fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Count(one), Self::Count(other)) => Self::Count(one + other),
            (Self::Seconds(one), Self::Seconds(other)) => Self::Seconds(one + other),
            (one, _) => one,
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Seconds(seconds) => seconds.fmt(f),
            Self::Moment(seconds) => write!(f, "{seconds:.3}"),
        }
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Family { name, kind, help, values } in &self.families {
            write!(f, "# HELP {name} {help}\n# TYPE {name} {}\n", kind.name())?;
            for Value { suffix, labels, number } in values {
                if labels.is_empty() {
                    writeln!(f, "{name}{suffix} {number}")?;
                } else {
                    writeln!(f, "{name}{suffix}{{{labels}}} {number}")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes the page of a core, whose numbers are multiples of `unit`.
    fn page(unit: u64) -> Page {
        let mut page = Page::default();
        page.begin("started", Kind::Process, "When.");
        page.value("", String::new(), Number::Moment(1.0));
        page.many(
            "calls_total",
            Kind::Counter,
            "Calls.",
            [("p=\"A\"", unit), ("p=\"B\"", 2 * unit)],
        );
        page.one("connections", Kind::Gauge, "Connections.", 3 * unit);
        page.begin("seconds", Kind::Histogram, "Seconds.");
        page.value("_bucket", "le=\"+Inf\"".to_owned(), Number::Count(4 * unit));
        page.value("_sum", String::new(), Number::Seconds(0.5));
        page
    }

    #[test]
    fn a_page_of_one_core_names_none() {
        assert_eq!(
            page(1).to_string(),
            "# HELP started When.\n# TYPE started gauge\nstarted 1.000\n\
             # HELP calls_total Calls.\n# TYPE calls_total counter\ncalls_total{p=\"A\"} 1\n\
             calls_total{p=\"B\"} 2\n\
             # HELP connections Connections.\n# TYPE connections gauge\nconnections 3\n\
             # HELP seconds Seconds.\n# TYPE seconds histogram\nseconds_bucket{le=\"+Inf\"} 4\n\
             seconds_sum 0.5\n"
        );
    }

    #[test]
    fn values_of_several_cores_are_labelled_and_histograms_added_up() {
        let all = Page::of_cores(&[(0, page(1)), (2, page(10))]);
        assert_eq!(
            all.to_string(),
            "# HELP started When.\n# TYPE started gauge\nstarted 1.000\n\
             # HELP calls_total Calls.\n# TYPE calls_total counter\n\
             calls_total{p=\"A\",core=\"0\"} 1\ncalls_total{p=\"B\",core=\"0\"} 2\n\
             calls_total{p=\"A\",core=\"2\"} 10\ncalls_total{p=\"B\",core=\"2\"} 20\n\
             # HELP connections Connections.\n# TYPE connections gauge\n\
             connections{core=\"0\"} 3\nconnections{core=\"2\"} 30\n\
             # HELP seconds Seconds.\n# TYPE seconds histogram\nseconds_bucket{le=\"+Inf\"} 44\n\
             seconds_sum 1\n"
        );
    }
}
