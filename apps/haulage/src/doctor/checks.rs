//! The checks, one function each.

use std::io;

use haulage::core::TcpLimits;
use haulage::pool::Allowance;
use haulage::sys::cpu;

use super::finding::{Finding, State};
use super::machine::Machine;
use crate::cli::bytes;
use crate::placement::Topology;
use crate::store::export::DIRECTORY_ROOM;

/// Checks that the default provider can run.
pub(super) fn provider(machine: &Machine) -> Finding {
    let check = PROVIDER;
    match &machine.tcp {
        None => ok(check, "TCP sockets work: Haulage runs here".to_owned()),
        Some(error) => Finding {
            check,
            state: State::Missing,
            detail: format!("cannot listen on 127.0.0.1: {error}"),
            fix: machine.as_root("ip link set lo up"),
        },
    }
}

/// Checks whether the free huge pages hold the default memory of `kv serve`.
pub(super) fn hugepages(machine: &Machine) -> Finding {
    let pages = |kib: u64, what: &str| {
        machine.number(&format!("sys/kernel/mm/hugepages/hugepages-{kib}kB/{what}")).unwrap_or(0)
    };
    let (total, free) = (pages(2048, "nr_hugepages"), pages(2048, "free_hugepages"));
    let (giant, giant_free) = (pages(1 << 20, "nr_hugepages"), pages(1 << 20, "free_hugepages"));
    let transparent = machine.chosen("sys/kernel/mm/transparent_hugepage/enabled");
    let transparent = transparent.unwrap_or_else(|| "none".to_owned());

    let free_octets =
        free.saturating_mul(2 << 20).saturating_add(giant_free.saturating_mul(1 << 30));
    let state = if free_octets >= MEMORY_WANTED {
        State::Ok
    } else if free > 0 || matches!(transparent.as_str(), "always" | "madvise") {
        State::Slower
    } else {
        State::Missing
    };
    let lacking = (MEMORY_WANTED / (2 << 20)).saturating_sub(free);
    let reserve = format!("sysctl -w vm.nr_hugepages={}", total.saturating_add(lacking));
    Finding {
        check: "hugepages",
        state,
        detail: format!(
            "2 MiB: {free} of {total} free; 1 GiB: {giant_free} of {giant} free; \
             transparent: {transparent}; {} wanted",
            bytes::format(MEMORY_WANTED)
        ),
        fix: if state == State::Ok { String::new() } else { machine.as_root(&reserve) },
    }
}

/// Checks whether this process may take the default memory of `kv serve`, and names the limit of its control groups.
pub(super) fn memory(machine: &Machine) -> Finding {
    let check = "memory";
    let Allowance { available, memory, .. } = Allowance::under(&machine.root);
    let available = available.map_or(u64::MAX, |octets| octets as u64);
    let of_group = memory.map(|memory| {
        let (limit, left) = (memory.limit as u64, memory.left as u64);
        let (limit, left) = (bytes::rounded(limit), bytes::rounded(left));
        format!("the control group leaves {left} of {limit} ({})", memory.file.display())
    });
    let of_group = of_group.unwrap_or_else(|| "no limit by a control group".to_owned());
    if available >= MEMORY_WANTED {
        let rest = match available {
            u64::MAX => String::new(),
            octets => format!("{} available; ", bytes::rounded(octets)),
        };
        return ok(check, format!("{rest}{of_group}"));
    }
    let (available, wanted) = (bytes::rounded(available), bytes::format(MEMORY_WANTED));
    Finding {
        check,
        state: State::Slower,
        detail: format!("{available} available, {wanted} wanted; {of_group}"),
        fix: "free memory, give the unit or container more (MemoryMax=, docker run --memory), or serve with \
              --memory 64MiB"
            .to_owned(),
    }
}

/// Checks for a quota of CPU time, which stops a core that polls until a period is over.
pub(super) fn cpu_quota(machine: &Machine) -> Finding {
    let check = "cpu_quota";
    let Some(quota) = Allowance::under(&machine.root).cpu else {
        return ok(check, "no quota".to_owned());
    };
    let usable = machine.cpus.usable.len();
    let file = quota.file.display();
    let detail = format!("a quota of {:.2} of {usable} CPUs ({file})", quota.cpus());
    // The process cannot use more than its CPUs.
    if quota.cpus() >= usable as f64 {
        return ok(check, detail);
    }
    let period = quota.period_us as f64 / 1000.0;
    Finding {
        check,
        state: State::Slower,
        detail: format!(
            "{detail}: who has used it is stopped for the rest of each {period} ms, and cores that poll use it"
        ),
        fix: "lift it (CPUQuota= of the unit, docker run --cpus), or serve with --polling event"
            .to_owned(),
    }
}

/// Says which cores servers would take by themselves, and which they have today.
pub(super) fn server_cores(machine: &Machine) -> Finding {
    let quota = Allowance::under(&machine.root).cpu.map(|quota| quota.cpus());
    let cores = Topology::read(&machine.root, &machine.cpus, quota).server_cores();
    let detail = format!(
        "servers would take: {}; today `perf` and `kv` have one core unless --cores is given, and `store` has one",
        cores.words()
    );
    ok("server_cores", detail)
}

/// Checks the limit of locked memory, which devices and rings need.
pub(super) fn memlock(machine: &Machine) -> Finding {
    let check = "memlock";
    let Some(limit) = machine.memlock else {
        return ok(check, "no limit".to_owned());
    };
    let limit_text = bytes::format(limit);
    if machine.may_lock_anything() {
        return ok(check, format!("limit {limit_text}, not applied to this user (CAP_IPC_LOCK)"));
    }
    if limit >= MEMLOCK_WANTED {
        return ok(check, format!("limit {limit_text}"));
    }
    Finding {
        check,
        state: State::Slower,
        detail: format!("limit {limit_text}, {} wanted", bytes::format(MEMLOCK_WANTED)),
        fix: machine.as_root("prlimit --pid $$ --memlock=unlimited:unlimited"),
    }
}

/// Checks the limit of open files: each connection is one.
pub(super) fn open_files(machine: &Machine) -> Finding {
    let check = "open_files";
    let limit = machine.open_files;
    if limit >= FILES_WANTED {
        return ok(check, format!("limit {limit}"));
    }
    Finding {
        check,
        state: State::Slower,
        detail: format!("limit {limit}: each connection uses one; {FILES_WANTED} wanted"),
        fix: machine.as_root(&format!("prlimit --pid $$ --nofile={FILES_WANTED}:{FILES_WANTED}")),
    }
}

/// Checks for io_uring, without which the iWARP provider falls back to plain sockets.
pub(super) fn io_uring(machine: &Machine) -> Finding {
    let check = "io_uring";
    let Some(error) = &machine.io_uring else {
        return ok(check, "rings can be made".to_owned());
    };
    let disabled = machine.number("proc/sys/kernel/io_uring_disabled").unwrap_or(0);
    let fix = match error.kind() {
        io::ErrorKind::PermissionDenied if disabled > 0 => {
            machine.as_root("sysctl -w kernel.io_uring_disabled=0")
        }
        io::ErrorKind::PermissionDenied => {
            "docker run --security-opt seccomp=unconfined ... (a seccomp filter forbids io_uring)"
                .to_owned()
        }
        io::ErrorKind::OutOfMemory => {
            machine.as_root("prlimit --pid $$ --memlock=unlimited:unlimited")
        }
        _ => "boot a kernel of version 6.6 or newer with CONFIG_IO_URING".to_owned(),
    };
    Finding {
        check,
        state: State::Slower,
        detail: format!("no ring can be made ({error}): plain sockets are polled instead"),
        fix,
    }
}

/// Checks for isolated CPUs, on which the scheduler runs no other threads.
pub(super) fn cpu_isolation(machine: &Machine) -> Finding {
    let check = "cpu_isolation";
    let (usable, isolated) = (&machine.cpus.usable, &machine.cpus.isolated);
    let list = cpu::format_list;
    if !isolated.is_empty() {
        return ok(check, format!("isolated: {0}; use --cores {0}", list(isolated)));
    }
    let (detail, fix) = match usable.as_slice() {
        [] | [_] => (
            "one CPU: nothing is pinned, and cores sleep where polling does not pay".to_owned(),
            "give this machine or container a second CPU".to_owned(),
        ),
        [_, rest @ ..] => (
            format!(
                "{} CPUs ({}), none isolated: polling ends while others want its CPU",
                usable.len(),
                list(usable)
            ),
            format!("boot with isolcpus={0} nohz_full={0} rcu_nocbs={0}", list(rest)),
        ),
    };
    Finding { check, state: State::Slower, detail, fix }
}

/// Checks the NUMA nodes: memory should be near the core that uses it.
pub(super) fn numa(machine: &Machine) -> Finding {
    let check = "numa";
    let nodes = cpu::nodes(&machine.root);
    let balancing = machine.number("proc/sys/kernel/numa_balancing").unwrap_or(0);
    match nodes.len() {
        0 | 1 => ok(check, "one node".to_owned()),
        count if balancing == 0 => ok(check, format!("{count} nodes, memory stays where it is")),
        count => Finding {
            check,
            state: State::Slower,
            detail: format!("{count} nodes, and the kernel moves memory between them"),
            fix: machine.as_root("sysctl -w kernel.numa_balancing=0"),
        },
    }
}

/// Checks for RDMA devices, their active ports and their GIDs. The iWARP provider needs none.
pub(super) fn rdma(machine: &Machine) -> Finding {
    let check = "rdma";
    let devices = machine.names(RDMA_CLASS);
    let [first, ..] = devices.as_slice() else {
        let networks = machine.names("sys/class/net");
        let network = networks.iter().find(|name| *name != "lo").map_or("eth0", String::as_str);
        let modprobe = machine.as_root("modprobe rdma_rxe");
        let add = machine.as_root(&format!("rdma link add rxe0 type rxe netdev {network}"));
        return Finding {
            check,
            state: State::Missing,
            detail: "no RDMA device; the provider iwarp needs none".to_owned(),
            fix: format!("{modprobe} && {add}"),
        };
    };
    let ports: Vec<_> = devices.iter().flat_map(|device| ports(machine, device)).collect();
    let usable = ports.iter().any(|port| port.active && port.gids > 0);
    let told = ports.iter().map(|port| {
        format!("{} port {} {}, {} GIDs", port.device, port.number, port.state, port.gids)
    });
    let detail = told.collect::<Vec<_>>().join("; ");
    if usable {
        return ok(check, detail);
    }
    let networks = machine.names(&format!("{RDMA_CLASS}/{first}/device/net"));
    let network = networks.first().map_or("DEVICE", String::as_str);
    let fix = machine.as_root(&format!("ip link set {network} up"));
    Finding {
        check,
        state: State::Missing,
        detail: format!("no active port with a GID: {detail}"),
        fix,
    }
}

struct Port<'a> {
    device: &'a str,
    number: String,
    state: String,
    active: bool,
    gids: usize,
}

fn ports<'a>(machine: &Machine, device: &'a str) -> Vec<Port<'a>> {
    let numbers = machine.names(&format!("{RDMA_CLASS}/{device}/ports"));
    let port = |number: String| {
        let place = format!("{RDMA_CLASS}/{device}/ports/{number}");
        // `4: ACTIVE`
        let state = machine.text(&format!("{place}/state")).unwrap_or_default();
        let state = state.split_once(": ").map_or(state.as_str(), |(_, name)| name).to_owned();
        let gids = machine.names(&format!("{place}/gids"));
        let gid = |name: &String| machine.text(&format!("{place}/gids/{name}"));
        let gids = gids.iter().filter_map(gid).filter(|gid| gid.contains(|c| !"0:".contains(c)));
        Port { device, number, active: state == "ACTIVE", state, gids: gids.count() }
    };
    numbers.into_iter().map(port).collect()
}

fn ok(check: &'static str, detail: String) -> Finding {
    Finding { check, state: State::Ok, detail, fix: String::new() }
}

/// The check that decides the exit status: the default provider.
pub(super) const PROVIDER: &str = "iwarp";

/// The default memory of `kv serve`, in octets. `store serve --export DIR` takes less, with its records over TCP.
const MEMORY_WANTED: u64 = MEMORY_DEFAULT as u64;
const MEMORY_DEFAULT: usize = 256 << 20;

const _: () = assert!(DIRECTORY_ROOM + TcpLimits::DEFAULT.records_octets <= MEMORY_DEFAULT);

/// The locked memory that the rings and buffers of some tens of cores need, in octets.
const MEMLOCK_WANTED: u64 = 64 << 20;
/// Open files that a core may need: its connections, and few others.
const FILES_WANTED: u64 = 1024;

const RDMA_CLASS: &str = "sys/class/infiniband";
