//! Metrics of a server in the Prometheus text format.
//!
//! [`Metered`] wraps a service on its core and counts its Calls. [`http`] answers `GET /metrics` on a thread of its
//! own, which asks the core to write the page.

pub mod http;
mod newcomers;
mod page;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::time::Duration;

use haulage::core::{CoreCounters, Cx, Service};
use haulage::service::{
    Binding, Call, CallError, CallToken, ConnectionId, Finished, Foreseen, Outcome, Peer, Program,
    Reply,
};
use haulage::sys::clock;
use haulage_proto::time::Instant;

use self::http::Questions;
use self::page::{Kind, Number, Page};

/// A service whose Calls are counted and timed.
#[derive(Debug)]
pub struct Metered<S> {
    inner: S,
    /// The figures of each name of a procedure: programs whose procedures have the same name share them.
    procedures: Vec<Figures>,
    /// Each program and its version, with the places of its procedures in `procedures`.
    places: Vec<((u32, u32), Vec<usize>)>,
    /// Timed Calls that have not ended, each with its procedure and when its service began.
    timed: Vec<(CallToken, usize, Instant)>,
    questions: Questions,
    /// When the service was made, since the epoch of Unix.
    started: Duration,
}

/// A service with metrics of its own.
pub trait Counted {
    /// Returns the metrics, each with its Prometheus name and help text.
    fn metrics(&self, cx: &Cx<'_>) -> Vec<Metric>;
}

/// A value of a metric of a service.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The name of the metric. That of a counter, and no other, ends in `_total`.
    pub name: &'static str,
    /// The label of this value, as `key="value"`, or an empty string. Values of one metric follow each other.
    pub label: &'static str,
    /// The help text of the metric.
    pub help: &'static str,
    /// The value: a count since the start, or how much there is now.
    pub value: u64,
}

/// The counters of one procedure.
#[derive(Clone, Debug)]
struct Figures {
    name: &'static str,
    calls: u64,
    failed: u64,
    /// Timed Calls, by the first of [`BOUNDS`] that they did not exceed; the last bucket holds the longer ones.
    buckets: [u64; BOUNDS.len() + 1],
    seconds: Duration,
}

impl<S: Service + Counted> Metered<S> {
    /// Wraps `inner`. Each sender that arrives with `questions` is sent the page.
    pub fn new(inner: S, questions: Questions) -> Self {
        let mut procedures: Vec<Figures> = Vec::new();
        let mut place = |name| {
            let known = procedures.iter().position(|figures| figures.name == name);
            known.unwrap_or_else(|| {
                procedures.push(Figures::of(name));
                procedures.len() - 1
            })
        };
        let programs = inner.programs();
        let places = programs.iter().map(|program| {
            let Binding { program, version, procedures } = program.binding();
            ((*program, *version), procedures.iter().map(|bound| place(bound.name)).collect())
        });
        let places = places.collect();
        let (timed, started) = (Vec::with_capacity(TIMED_MAX), clock::time_of_day());
        Self { inner, procedures, places, timed, questions, started }
    }

    /// Returns the place of the procedure of a Call in `procedures`.
    fn place(&self, call: &Call<'_>) -> usize {
        let name = (call.program, call.version);
        let program = self.places.iter().find(|(served, _)| *served == name);
        let place = program.and_then(|(_, places)| places.get(call.procedure as usize));
        place.copied().unwrap_or(usize::MAX)
    }

    /// Records the outcome of a Call; a timed Call that ends later is kept in `timed`.
    fn note(&mut self, procedure: usize, token: CallToken, started: Option<Instant>, how: Outcome) {
        let Some(figures) = self.procedures.get_mut(procedure) else { return };
        match (how, started) {
            (Outcome::Later, Some(started)) if self.timed.len() < TIMED_MAX => {
                self.timed.push((token, procedure, started));
            }
            (Outcome::Done, Some(started)) => figures.took(clock::now().saturating_since(started)),
            (Outcome::Failed(_), _) => figures.failed += 1,
            _ => {}
        }
    }

    fn page(&self, cx: &Cx<'_>) -> Page {
        let mut page = Page::default();
        let newcomers = &cx.moved().newcomers;
        let accepts = [
            ("rdma", newcomers.accepts),
            ("tcp", cx.tcp_counters().accepts),
            ("metrics", self.questions.failures.counts()),
        ];
        page.process(self.started);
        page.procedures(&self.procedures);
        page.core(cx);
        page.tcp(cx);
        page.newcomers(newcomers, &accepts);
        page.metrics(&self.inner.metrics(cx));
        page
    }
}

impl<S: Service + Counted> Service for Metered<S> {
    fn programs(&self) -> Vec<Program> {
        self.inner.programs()
    }

    fn callbacks(&self) -> Option<Binding> {
        self.inner.callbacks()
    }

    fn makes_room(&self) -> bool {
        self.inner.makes_room()
    }

    fn make_room(&mut self, cx: &mut Cx<'_>, octets: usize) -> bool {
        self.inner.make_room(cx, octets)
    }

    fn admits(&self, peer: SocketAddr) -> bool {
        self.inner.admits(peer)
    }

    fn identifies_peers(&self) -> bool {
        self.inner.identifies_peers()
    }

    fn has_promised(&self, connection: ConnectionId) -> bool {
        self.inner.has_promised(connection)
    }

    fn foresee<'a>(&mut self, calls: impl Iterator<Item = Foreseen<'a>>) {
        self.inner.foresee(calls);
    }

    fn opened(&mut self, cx: &mut Cx<'_>, peer: &Peer) {
        self.inner.opened(cx, peer);
    }

    fn closed(&mut self, cx: &mut Cx<'_>, peer: &Peer, why: &CallError) {
        self.inner.closed(cx, peer, why);
    }

    fn left(&mut self, cx: &mut Cx<'_>, peer: &Peer) {
        self.inner.left(cx, peer);
    }

    fn call(&mut self, cx: &mut Cx<'_>, call: Call<'_>, reply: &mut Reply) -> Outcome {
        let (procedure, token) = (self.place(&call), call.token);
        let figures = self.procedures.get_mut(procedure);
        let nth = figures.map_or(1, |figures| {
            figures.calls += 1;
            figures.calls - 1
        });
        let started = nth.is_multiple_of(TIMED_EVERY).then(clock::now);
        let how = self.inner.call(cx, call, reply);
        // There is nothing to note of the most frequent end.
        if (how, started) != (Outcome::Done, None) {
            self.note(procedure, token, started, how);
        }
        how
    }

    fn resume(&mut self, cx: &mut Cx<'_>, token: CallToken, reply: &mut Reply) -> Outcome {
        let how = self.inner.resume(cx, token, reply);
        if how != Outcome::Later
            && let Some(at) = self.timed.iter().position(|(timed, ..)| *timed == token)
        {
            let (token, procedure, started) = self.timed.swap_remove(at);
            self.note(procedure, token, Some(started), how);
        }
        how
    }

    fn replied(&mut self, cx: &mut Cx<'_>, token: u64, finished: Finished<'_>) {
        self.inner.replied(cx, token, finished);
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        let mut worked = self.inner.turn(cx);
        if let Ok(asker) = self.questions.asked.try_recv() {
            // Calls of connections that are gone never end.
            self.timed.retain(|(token, ..)| cx.awaits(*token));
            asker.answer(self.page(cx));
            worked = true;
        }
        worked
    }

    fn sleeps(&mut self) {
        self.inner.sleeps();
    }
}

impl Figures {
    /// Returns the counters of a procedure that was not called yet.
    const fn of(name: &'static str) -> Self {
        let buckets = [0; BOUNDS.len() + 1];
        Self { name, calls: 0, failed: 0, buckets, seconds: Duration::ZERO }
    }

    fn took(&mut self, time: Duration) {
        let bucket = BOUNDS.iter().position(|bound| time <= *bound).unwrap_or(BOUNDS.len());
        self.buckets[bucket] += 1;
        self.seconds += time;
    }
}

impl Page {
    fn metrics(&mut self, metrics: &[Metric]) {
        for values in metrics.chunk_by(|one, next| one.name == next.name) {
            let [Metric { name, label, help, value }, ..] = values else { continue };
            let kind = if name.ends_with("_total") { Kind::Counter } else { Kind::Gauge };
            if label.is_empty() {
                self.one(name, kind, help, *value);
            } else {
                let values = values.iter().map(|metric| (metric.label, metric.value));
                self.many(name, kind, help, values);
            }
        }
    }

    /// Writes what the process is, and since when: counts that fall were begun anew.
    fn process(&mut self, started: Duration) {
        let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
        let what = "The version of Haulage.";
        self.many("haulage_build_info", Kind::Process, what, [(version, 1)]);
        let when = "When the server was started, in seconds since the epoch of Unix.";
        self.begin("process_start_time_seconds", Kind::Process, when);
        self.value("", String::new(), Number::Moment(started.as_secs_f64()));
    }

    fn procedures(&mut self, procedures: &[Figures]) {
        let labels = |name| format!("procedure=\"{name}\"");
        let calls = procedures.iter().map(|one| (labels(one.name), one.calls));
        let help = "Calls over RDMA, by procedure.";
        self.many("haulage_calls_total", Kind::Counter, help, calls);
        let failed = procedures.iter().map(|one| (labels(one.name), one.failed));
        let help = "Calls that the RPC layer answered with an error, by procedure.";
        self.many("haulage_calls_failed_total", Kind::Counter, help, failed);
        let help = "Seconds from the start of a Call to its results; one Call in 16 is timed.";
        self.begin("haulage_call_seconds", Kind::Histogram, help);
        for Figures { name, buckets, seconds, .. } in procedures {
            let (labels, mut count) = (labels(name), 0);
            let bounds = BOUNDS.iter().map(Duration::as_secs_f64).chain([f64::INFINITY]);
            for (bound, bucket) in bounds.zip(buckets) {
                count += bucket;
                let le = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
                let labels = format!("{labels},le=\"{le}\"");
                self.value("_bucket", labels, Number::Count(count));
            }
            self.value("_sum", labels.clone(), Number::Seconds(seconds.as_secs_f64()));
            self.value("_count", labels, Number::Count(count));
        }
    }

    fn tcp(&mut self, cx: &Cx<'_>) {
        let (counter, gauge, tcp) = (Kind::Counter, Kind::Gauge, cx.tcp_counters());
        let connections = u64::from(cx.tcp_connections());
        self.one("haulage_tcp_connections", gauge, "Open connections over TCP.", connections);
        self.many(
            "haulage_tcp_connection_events_total",
            counter,
            "Connections over TCP: accepted, turned away, and of those accepted that gave way to others or were late.",
            [
                ("kind=\"accepted\"", tcp.accepted),
                ("kind=\"rejected\"", tcp.rejected),
                ("kind=\"replaced\"", tcp.replaced),
                ("kind=\"late\"", tcp.late),
            ],
        );
        self.one("haulage_tcp_calls_total", counter, "Calls received over TCP.", tcp.calls);
        self.many(
            "haulage_tcp_bytes_total",
            counter,
            "Octets of records over TCP, by direction.",
            [("direction=\"received\"", tcp.received), ("direction=\"sent\"", tcp.sent)],
        );
    }

    fn core(&mut self, cx: &Cx<'_>) {
        self.calls(cx.counters());
        self.moved(cx);
        self.connections(cx);
        self.memory(cx);
    }

    fn calls(&mut self, core: &CoreCounters) {
        let counter = Kind::Counter;
        self.many(
            "haulage_chunks_total",
            counter,
            "Chunks in the Calls received, by kind.",
            [
                ("kind=\"call\"", core.call_chunks),
                ("kind=\"read\"", core.read_chunks),
                ("kind=\"write\"", core.write_chunks),
                ("kind=\"reply\"", core.reply_chunks),
            ],
        );
        self.one(
            "haulage_arguments_along_total",
            counter,
            "Arguments that came along with the messages of their Calls.",
            core.arguments_along,
        );
        self.one(
            "haulage_results_along_total",
            counter,
            "Results that went along with the messages of their Replies.",
            core.results_sent_along,
        );
        self.one(
            "haulage_replies_held_total",
            counter,
            "Replies exposed for clients to read, until they say RDMA_DONE.",
            core.replies_held,
        );
        self.many(
            "haulage_parts_total",
            counter,
            "Messages that were a part of a continued one, by direction.",
            [
                ("direction=\"received\"", core.parts_received),
                ("direction=\"sent\"", core.parts_sent),
            ],
        );
        self.one(
            "haulage_calls_repeated_total",
            counter,
            "Calls of ours that the peer refused and that went again in another form.",
            core.calls_repeated,
        );
        self.many(
            "haulage_callbacks_total",
            counter,
            "Calls in reverse direction, from a server to a client: made by us, or by the peer and served.",
            [("by=\"us\"", core.callbacks_made), ("by=\"peer\"", core.callbacks_served)],
        );
        self.many(
            "haulage_errors_total",
            counter,
            "Errors, by kind.",
            [
                ("kind=\"call_refused\"", core.calls_refused),
                ("kind=\"message_bad\"", core.messages_bad),
                ("kind=\"reply_unmatched\"", core.replies_unmatched),
                ("kind=\"connection_rejected\"", core.connections_rejected),
                ("kind=\"host_refused\"", core.hosts_refused),
                ("kind=\"connection_replaced\"", core.connections_replaced),
                ("kind=\"connection_idle\"", core.connections_idle),
                ("kind=\"connection_slow\"", core.connections_slow),
                ("kind=\"results_misdeclared\"", core.results_misdeclared),
                ("kind=\"charge_lost\"", core.charges_lost),
            ],
        );
    }

    fn moved(&mut self, cx: &Cx<'_>) {
        let (core, moved) = (cx.counters(), cx.moved());
        let (counter, gauge) = (Kind::Counter, Kind::Gauge);
        self.many(
            "haulage_tagged_bytes_total",
            counter,
            "Octets moved by RDMA Read and Write, by direction.",
            [
                ("direction=\"received\"", moved.tagged_received),
                ("direction=\"sent\"", moved.tagged_sent),
            ],
        );
        self.many(
            "haulage_messages_total",
            counter,
            "RDMA Send messages, by direction.",
            [("direction=\"received\"", moved.receives), ("direction=\"sent\"", moved.sends)],
        );
        self.many(
            "haulage_copied_bytes_total",
            counter,
            "Octets of payload copied, by Haulage (us) or the system.",
            [
                (
                    "by=\"us\"",
                    moved.bytes_copied + core.bytes_unreduced + core.part_bytes + core.bytes_along,
                ),
                ("by=\"system\"", moved.bytes_system),
            ],
        );
        let (provider, strategy, posting) = cx.provider();
        let mut named = format!("provider=\"{provider}\",registration=\"{}\"", strategy.name());
        if let Some(posting) = posting {
            named.push_str(&format!(",posting=\"{posting}\""));
        }
        let what = "Provider, how it registers memory, and how it posts work.";
        self.many("haulage_provider_info", gauge, what, [(named, 1)]);
        self.many(
            "haulage_invalidations_total",
            counter,
            "Handles invalidated, by the peer or by us.",
            [("by=\"peer\"", moved.invalidated_remote), ("by=\"us\"", moved.invalidated_local)],
        );
    }

    fn connections(&mut self, cx: &Cx<'_>) {
        let gauge = Kind::Gauge;
        self.one(
            "haulage_connections_opened_total",
            Kind::Counter,
            "Connections opened since the start.",
            cx.counters().connections_opened,
        );
        let connections = u64::from(cx.connections());
        self.one("haulage_connections", gauge, "Open connections.", connections);
        let census = cx.census();
        self.one(
            "haulage_connections_held",
            gauge,
            "Connections that are over and whose memory the peer may still touch.",
            u64::from(census.connections_held),
        );
        self.one(
            "haulage_leases_held",
            gauge,
            "Leases of Calls that were given up, which the peer may still touch.",
            census.leases_held as u64,
        );
        self.one(
            "haulage_credits",
            gauge,
            "Receives that peers may use at once.",
            u64::from(cx.receives_reserved()),
        );
    }

    fn memory(&mut self, cx: &Cx<'_>) {
        let (gauge, gauges) = (Kind::Gauge, cx.gauges());
        self.many(
            "haulage_leases",
            gauge,
            "Leases of registered memory, by state.",
            [
                ("state=\"local\"", gauges.local),
                ("state=\"shared\"", gauges.shared),
                ("state=\"posted\"", gauges.posted),
                ("state=\"exposed\"", gauges.exposed),
            ],
        );
        self.one(
            "haulage_memory_bytes",
            gauge,
            "Octets of registered memory.",
            gauges.bytes as u64,
        );
        self.one(
            "haulage_memory_leased_bytes",
            gauge,
            "Octets of registered memory in leases: what is kept, received and under way.",
            gauges.leased_bytes as u64,
        );
        self.one(
            "haulage_memory_free_bytes",
            gauge,
            "Octets in free pages of registered memory.",
            gauges.free_bytes as u64,
        );
        self.one(
            "haulage_memory_usable_bytes",
            gauge,
            "Octets of registered memory that are of use, once the service has moved what it keeps.",
            cx.room_bytes() as u64,
        );
    }
}

/// Upper bounds of the histogram's buckets.
const BOUNDS: [Duration; 10] = [
    Duration::from_micros(1),
    Duration::from_micros(3),
    Duration::from_micros(10),
    Duration::from_micros(30),
    Duration::from_micros(100),
    Duration::from_micros(300),
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
];

/// One in this many Calls of a procedure is timed: reading the clock costs as much as a short Call.
const TIMED_EVERY: u64 = 16;

/// Maximum number of timed Calls that have not ended.
const TIMED_MAX: usize = 256;
