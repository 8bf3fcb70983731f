//! The command `haulage kv serve`.

use std::net::SocketAddr;

use haulage::core::{CoreNumber, Cx};
use haulage::limits::{ITEM_MAX, Limits};
use haulage_kv::index::Seed;
use haulage_kv::service::KvService;
use haulage_store::crowd::Listener;

use crate::cli::ServeKv;
use crate::cli::bytes;
use crate::cli::perf::Count;
use crate::cli::values::HostPolicy;
use crate::failure::Failure;
use crate::hosts::{NO_VERSION_ONE, ServerHosts};
use crate::metrics::{Counted, Metered, Metric, http};
use crate::node::{Carrier, NodeConfig, over, server_limits};
use crate::open_files;
use crate::output::Output;
use crate::registration::service::NamedProgram;
use crate::registration::{self, Registration};
use crate::serving::{self, Termination};

/// Serves until SIGTERM or SIGINT.
pub fn run(options: &ServeKv, output: &Output) -> Result<(), Failure> {
    over!(options.core.provider, serve, (options, output))
}

fn serve<P: Carrier>(options: &ServeKv, output: &Output) -> Result<(), Failure> {
    let value_max = usize::try_from(options.value_max.0).unwrap_or(usize::MAX);
    if !(1..=ITEM_MAX).contains(&value_max) {
        let max = bytes::format(ITEM_MAX as u64);
        return Err(Failure::usage(format!(
            "--value-max is 1 byte to {max}, the largest item one call moves"
        )));
    }
    let memory = usize::try_from(options.memory.0).unwrap_or(usize::MAX);
    let keys_max = options.index_share.of(memory) / KvService::OCTETS_PER_KEY;
    let keys_max = u32::try_from(keys_max).unwrap_or(u32::MAX);
    let rpcbind = registration::prepare(&options.register, options.core.provider)?;
    let threads = serving::cores("kv-core", &options.core, output)?;
    let count = threads.len();
    if memory < MEMORY_MIN || memory < value_max {
        let least = bytes::format(MEMORY_MIN.max(value_max) as u64);
        return Err(Failure::usage(format!(
            "--memory is too small: at least {least}, and no less than --value-max"
        )));
    }
    let addresses = options.listen.resolve(None)?;
    let hosts =
        ServerHosts::of(&options.hosts, options.core.versions.rpc_version, NO_VERSION_ONE, output)?;
    if options.hosts.host_auth != HostPolicy::Required {
        warn_if_open(&addresses, output);
    }
    serving::check(&addresses, "--listen", P::check_listen)?;
    serving::check_metrics(options.metrics.as_ref())?;
    let auth = hosts.as_ref().map(ServerHosts::auth);
    let termination = Termination::catch(hosts)?;

    let seed =
        Seed::random().map_err(|error| Failure::failed(format!("no random numbers: {error}")))?;
    let connections = open_files::connections(options.connections, 0, output)?;
    let each = Count(connections.0.div_ceil(u32::try_from(count).unwrap_or(u32::MAX)));
    let limits = server_limits(&options.peers, each);
    let limits = options.core.versions.server(limits, memory / count);
    let limits = Limits { calls_out_max: KvService::CALLS_OUT_MAX, ..limits };
    let index = KvService::index_octets_max(count, keys_max);
    let room = memory.saturating_sub(index) / count;
    let (asked, crc) = (Some((memory / count) as u64), options.core.crc);
    let mut node = NodeConfig { asked, crc, hosts: auth, ..NodeConfig::new(room, limits) };
    let (asking, questions) = http::ways(count);
    node.check()?;
    let parts = KvService::parts(count, keys_max, &seed, value_max, memory as u64);
    let parts = parts.ok_or_else(|| node.wanted().refused("there is none for the index"))?;
    if count > 1 {
        node.share::<P>(count)?;
    }
    let wanted = node.wanted();
    let services = parts.into_iter().zip(questions).map(move |(part, asked)| {
        move || {
            // The memory of this core is filled by now, and the rest is for the index.
            wanted.check_rest(index)?;
            Ok(Metered::new(KvService::of(part), asked))
        }
    });
    let cores = serving::start::<P, _, _>(threads, services, &node, move |core| {
        serving::listen(core, &addresses)
    })?;
    cores.started().notes.tell(output);
    let bound = *cores.started().listening()?;
    let wakers: Vec<_> = cores.cores().iter().map(|core| core.started.waker.clone()).collect();
    let metrics = serving::metrics(options.metrics.as_ref(), &asking, &wakers)?;
    let registration = Registration::begin(rpcbind, NamedProgram::KV.over_rdma(bound), output)?;
    let line = serving::ready_at(bound, metrics.as_ref().map(Listener::address), output);
    serving::ready(&line, output)?;
    termination.wait(cores, registration, metrics, output)
}

impl Counted for KvService {
    fn metrics(&self, cx: &Cx<'_>) -> Vec<Metric> {
        let one = |name, help, value| Metric { name, label: "", help, value };
        let (watched, answered) = (self.watched(), self.answered());
        let results = [
            ("result=\"hit\"", answered.hits),
            ("result=\"miss\"", answered.misses),
            ("result=\"stored\"", answered.stored),
            ("result=\"deleted\"", answered.deleted),
            ("result=\"no_space\"", answered.no_space),
            ("result=\"keys_full\"", answered.keys_full),
            ("result=\"too_large\"", answered.too_large),
            ("result=\"bad_key\"", answered.bad_key),
            ("result=\"watches_full\"", answered.crowded),
        ];
        let results = results.map(|(label, value)| Metric {
            name: "haulage_kv_results_total",
            label,
            help: "What became of each key in a Call, and of each watch that was refused.",
            value,
        });
        // What the cores have together is told by the first.
        let (is_first, value_bytes) = (cx.core() == CoreNumber::FIRST, self.value_bytes());
        let of_server = |value| if is_first { value } else { 0 };
        let others = [
            one("haulage_kv_keys", "Keys stored.", of_server(self.keys_count())),
            one(
                "haulage_kv_keys_max",
                "Keys that the index has room for.",
                of_server(self.keys_max()),
            ),
            one("haulage_kv_value_bytes", "Octets of all values.", of_server(value_bytes)),
            one(
                "haulage_kv_value_bytes_max",
                "Octets that all values may have.",
                self.value_bytes_max(of_server(value_bytes), self.usable_bytes(cx)),
            ),
            one(
                "haulage_kv_memory_bytes",
                "Octets of memory for values and index together.",
                of_server(self.memory()),
            ),
            one(
                "haulage_kv_watches",
                "Clients that are told of changes of keys.",
                self.watches_count(),
            ),
            one(
                "haulage_kv_moved_bytes_total",
                "Octets of keys and values moved to make room.",
                self.moved_bytes(),
            ),
            one(
                "haulage_kv_changes_told_total",
                "Changes of keys told to clients that watch them.",
                watched.told,
            ),
            one(
                "haulage_kv_changes_merged_total",
                "Changes of keys not told, since another one of the same key followed too soon, as clients were told.",
                watched.merged,
            ),
            one(
                "haulage_kv_watches_lost_total",
                "Watches ended by the server, since their clients did not take the changes.",
                watched.ended,
            ),
        ];
        results.into_iter().chain(others).collect()
    }
}

/// Warns once that every host which can reach the port can use it.
fn warn_if_open(addresses: &[SocketAddr], output: &Output) {
    if addresses.iter().any(|address| !address.ip().is_loopback()) {
        output.note(
            "there is no authentication: whoever reaches this port can read and change everything",
        );
    }
}

/// Minimum memory, in octets: less would leave no room for values.
const MEMORY_MIN: usize = 1 << 20;
