//! The command `haulage kv serve`.

use std::net::SocketAddr;

use haulage::core::Cx;
use haulage::cores;
use haulage::limits::{ITEM_MAX, Limits};
use haulage_kv::index::Seed;
use haulage_kv::service::KvService;
use haulage_store::crowd::Listener;

use crate::cli::ServeKv;
use crate::cli::bytes;
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
    if memory < MEMORY_MIN || memory < value_max {
        let least = bytes::format(MEMORY_MIN.max(value_max) as u64);
        return Err(Failure::usage(format!(
            "--memory is too small: at least {least}, and no less than --value-max"
        )));
    }
    let keys_max = options.index_share.of(memory) / KvService::OCTETS_PER_KEY;
    let keys_max = u32::try_from(keys_max).unwrap_or(u32::MAX);
    let rpcbind = registration::prepare(&options.register, options.core.provider)?;
    let thread = serving::one_core("kv-core", &options.core, output)?;
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
    let limits =
        server_limits(&options.peers, open_files::connections(options.connections, 0, output)?);
    let limits = options.core.versions.server(limits, memory);
    let limits = Limits { calls_out_max: KvService::CALLS_OUT_MAX, ..limits };
    let crc = options.core.crc;
    let (asking, questions) = http::way();
    let core = cores::start(thread, move || {
        let room = memory.saturating_sub(KvService::index_octets_max(keys_max));
        let asked = Some(memory as u64);
        let node = NodeConfig { asked, crc, hosts: auth, ..NodeConfig::new(room, limits) };
        // The pool is allocated by now; the rest of the memory is for the index.
        let (mut core, notes) = node.build::<P, _>(|_, _| {
            node.wanted().check_rest(KvService::index_octets_max(keys_max))?;
            let service = KvService::new(keys_max, seed, value_max, memory as u64);
            Ok(Metered::new(service, questions))
        })?;
        let bound = serving::listen(&mut core, &addresses)?;
        let waker = core.waker();
        Ok::<_, Failure>((core, (bound, notes, waker)))
    })?;
    let (bound, notes, waker) = &core.started;
    notes.tell(output);
    let metrics = serving::metrics(options.metrics.as_ref(), &asking, std::slice::from_ref(waker))?;
    let registration = Registration::begin(rpcbind, NamedProgram::KV.over_rdma(*bound), output)?;
    let line = serving::ready_at(*bound, metrics.as_ref().map(Listener::address), output);
    serving::ready(&line, output)?;
    termination.wait(core.into(), registration, metrics, output)
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
        let others = [
            one("haulage_kv_keys", "Keys stored.", self.keys_count()),
            one("haulage_kv_keys_max", "Keys that the index has room for.", self.keys_max()),
            one("haulage_kv_value_bytes", "Octets of all values.", self.value_bytes()),
            one(
                "haulage_kv_value_bytes_max",
                "Octets that all values may have.",
                self.value_bytes_max(cx),
            ),
            one(
                "haulage_kv_memory_bytes",
                "Octets of memory for values and index together.",
                self.memory(),
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
