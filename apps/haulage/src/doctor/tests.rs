use std::path::{Path, PathBuf};
use std::{fs, io};

use super::*;
use crate::placement::Cpus;

#[test]
fn a_bare_machine_is_told_everything_it_lacks_and_how_to_get_it() {
    let tree = Tree::new("bare");
    tree.write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "10");
    tree.write("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "8");
    tree.write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]");
    tree.write("sys/devices/system/node/online", "0-1");
    tree.write("proc/sys/kernel/numa_balancing", "1");
    tree.write("proc/sys/kernel/io_uring_disabled", "2");
    tree.write("sys/class/net/lo/mtu", "65536");
    tree.write("sys/class/net/ens3/mtu", "1500");
    tree.write("proc/self/status", "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\n");
    let machine = Machine {
        memlock: Some(64 << 10),
        open_files: 256,
        io_uring: Some(io::Error::from_raw_os_error(1)),
        ..tree.machine()
    };
    let told = |check| finding(&machine, check);

    let pages = told("hugepages");
    assert_eq!(pages.state, State::Slower);
    assert_eq!(
        pages.fix, "sudo sysctl -w vm.nr_hugepages=130",
        "128 free are wanted, 2 are in use"
    );
    assert!(pages.detail.contains("8 of 10 free") && pages.detail.contains("never"));
    let memlock = told("memlock");
    assert_eq!(memlock.state, State::Slower);
    assert_eq!(memlock.fix, "sudo prlimit --pid $$ --memlock=unlimited:unlimited");
    let files = told("open_files");
    assert_eq!(files.fix, "sudo prlimit --pid $$ --nofile=1024:1024");
    assert!(files.detail.contains("256"), "{files:?}");
    assert_eq!(told("io_uring").fix, "sudo sysctl -w kernel.io_uring_disabled=0");
    assert_eq!(told("cpu_isolation").fix, "boot with isolcpus=1-3 nohz_full=1-3 rcu_nocbs=1-3");
    assert_eq!(told("numa").fix, "sudo sysctl -w kernel.numa_balancing=0");
    let rdma = told("rdma");
    assert_eq!(rdma.state, State::Missing);
    assert!(rdma.fix.ends_with("sudo rdma link add rxe0 type rxe netdev ens3"), "{}", rdma.fix);
    assert_eq!(told("iwarp").state, State::Ok, "all of that makes it slower, not impossible");
}

#[test]
fn a_prepared_machine_has_nothing_to_fix() {
    let tree = Tree::new("prepared");
    tree.write("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "2");
    tree.write("sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "1");
    tree.write("sys/devices/system/node/online", "0-1");
    tree.write("proc/sys/kernel/numa_balancing", "0");
    tree.write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
    tree.write("sys/class/infiniband/mlx5_0/ports/1/gids/0", "fe80:0000::0001");
    tree.write("sys/class/infiniband/mlx5_0/ports/1/gids/1", "0000:0000:0000:0000");
    let mut machine = tree.machine();
    machine.cpus.isolated = vec![2, 3];
    let findings = examine(&machine);
    for finding in &findings {
        assert_eq!((finding.state, finding.fix.as_str()), (State::Ok, ""), "{finding:?}");
    }
    assert!(finding(&machine, "rdma").detail.contains("mlx5_0 port 1 ACTIVE, 1 GIDs"));
    assert!(finding(&machine, "cpu_isolation").detail.ends_with("--cores 2-3"));
}

#[test]
fn a_machine_that_says_nothing_still_gets_an_answer_to_each_check() {
    let tree = Tree::new("silent");
    let findings = examine(&tree.machine());
    let checks: Vec<_> = findings.iter().map(|f| f.check).collect();
    let all = [
        "iwarp",
        "hugepages",
        "memory",
        "memlock",
        "open_files",
        "io_uring",
        "cpu_isolation",
        "cpu_quota",
        "server_cores",
        "numa",
        "rdma",
        "locks",
    ];
    assert_eq!(checks, all);
    assert_eq!(finding(&tree.machine(), "hugepages").state, State::Missing);
    for finding in findings {
        assert_eq!(finding.state == State::Ok, finding.fix.is_empty(), "{finding:?}");
        assert!(!finding.detail.is_empty());
    }
}

#[test]
fn a_capability_lifts_the_memlock_limit_and_root_needs_no_sudo() {
    let tree = Tree::new("root");
    tree.write("proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n");
    let machine = Machine { memlock: Some(1 << 16), ..tree.machine() };
    let memlock = finding(&machine, "memlock");
    assert_eq!(memlock.state, State::Ok);
    assert!(memlock.detail.contains("64 KiB") && memlock.detail.contains("CAP_IPC_LOCK"));
    assert_eq!(finding(&machine, "hugepages").fix, "sysctl -w vm.nr_hugepages=128");
}

#[test]
fn limits_of_the_control_group_are_named() {
    let tree = Tree::new("group");
    let (memory, cpu) = (finding(&tree.machine(), "memory"), finding(&tree.machine(), "cpu_quota"));
    assert_eq!((memory.state, cpu.state), (State::Ok, State::Ok));
    tree.write("proc/self/cgroup", "0::/kv.service");
    tree.write("proc/meminfo", "MemAvailable: 4194304 kB");
    tree.write("sys/fs/cgroup/kv.service/memory.max", "134217728");
    tree.write("sys/fs/cgroup/kv.service/memory.current", "67108864");
    tree.write("sys/fs/cgroup/kv.service/cpu.max", "50000 100000");
    let memory = finding(&tree.machine(), "memory");
    assert_eq!(memory.state, State::Slower);
    assert!(memory.detail.contains("leaves 64 MiB of 128 MiB"), "{}", memory.detail);
    assert!(memory.detail.contains("kv.service/memory.max"), "{}", memory.detail);
    let cpu = finding(&tree.machine(), "cpu_quota");
    assert_eq!(cpu.state, State::Slower);
    assert!(cpu.detail.contains("0.50 of 4 CPUs"), "{}", cpu.detail);
    tree.write("sys/fs/cgroup/kv.service/cpu.max", "400000 100000");
    assert_eq!(finding(&tree.machine(), "cpu_quota").state, State::Ok, "it has no more CPUs");
}

#[test]
fn the_cores_that_servers_would_take_are_named_beside_those_they_have() {
    let tree = Tree::new("cores");
    let told = |machine: &Machine| finding(machine, "server_cores");
    let cores = told(&tree.machine());
    assert_eq!((cores.state, cores.fix.as_str()), (State::Ok, ""));
    let would = "servers would take: CPUs 0-2 (one thread of each physical core, one left for the system); ";
    assert!(cores.detail.starts_with(would), "{}", cores.detail);
    let have = "today `perf` and `kv` have one core unless --cores is given, and `store` has one";
    assert!(cores.detail.ends_with(have), "{}", cores.detail);
    tree.write("proc/self/cgroup", "0::/kv.service");
    tree.write("sys/fs/cgroup/kv.service/cpu.max", "250000 100000");
    let detail = told(&tree.machine()).detail;
    assert!(
        detail.contains("take: CPUs 0-1 (") && detail.contains("quota of 2.50 CPUs allows 2)"),
        "{detail}"
    );
    for cpu in 0..4 {
        let siblings = if cpu < 2 { "0-1" } else { "2-3" };
        tree.write(
            &format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"),
            siblings,
        );
    }
    let detail = told(&tree.machine()).detail;
    assert!(detail.contains("one core, not pinned (there are two physical cores)"), "{detail}");
}

#[test]
fn a_ring_that_cannot_be_made_is_explained_by_its_error() {
    let tree = Tree::new("rings");
    for (errno, says) in [(1, "seccomp"), (12, "memlock"), (22, "6.6"), (38, "CONFIG_IO_URING")] {
        let error = Some(io::Error::from_raw_os_error(errno));
        let found = finding(&Machine { io_uring: error, ..tree.machine() }, "io_uring");
        assert_eq!(found.state, State::Slower, "plain sockets take over");
        assert!(found.fix.contains(says), "{errno}: {}", found.fix);
    }
}

#[test]
fn locks_that_hang_are_named_as_the_client_names_them() {
    let tree = Tree::new("locks");
    let fault = Some("there is no rpcbind".to_owned());
    let locks = finding(&Machine { no_locks: fault, ..tree.machine() }, "locks");
    assert_eq!(locks.state, State::Missing);
    assert!(
        locks.detail.contains("lockd: server ... not responding") && locks.fix.contains("nolock")
    );
}

#[test]
fn a_device_without_an_active_port_is_not_usable() {
    let tree = Tree::new("down");
    tree.write("sys/class/infiniband/rxe0/ports/1/state", "1: DOWN");
    tree.write("sys/class/infiniband/rxe0/ports/1/gids/0", "fe80::1");
    tree.write("sys/class/infiniband/rxe0/device/net/eth7/mtu", "1500");
    let rdma = finding(&tree.machine(), "rdma");
    assert_eq!(rdma.state, State::Missing);
    assert_eq!(rdma.fix, "sudo ip link set eth7 up");
}

#[test]
fn one_object_a_check_in_the_order_of_the_contract() {
    let finding = Finding {
        check: "numa",
        state: State::Slower,
        detail: "a \"b\"".to_owned(),
        fix: "c".to_owned(),
    };
    let expected = r#"{"check":"numa","state":"slower","detail":"a \"b\"","fix":"c"}"#;
    assert_eq!(finding.to_json(), expected);
    let text = report(&[finding]);
    assert_eq!(
        text,
        "CHECK  STATE   DETAIL\nnuma   slower  a \"b\"\n\nTo improve it:\n  numa: c\n"
    );
}

fn finding(machine: &Machine, check: &str) -> Finding {
    examine(machine).into_iter().find(|f| f.check == check).expect("every check reports")
}

/// A made-up `/proc` and `/sys`, removed at the end.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let name = format!("haulage-doctor-{name}-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        fs::create_dir_all(&root).expect("the temporary directory can be written");
        Self(root)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("a directory");
        fs::write(path, format!("{text}\n")).expect("a file");
    }

    /// A machine with four CPUs on which everything asked by system call is well.
    fn machine(&self) -> Machine {
        let cpus = Cpus { usable: vec![0, 1, 2, 3], isolated: vec![] };
        Machine {
            root: self.0.clone(),
            cpus,
            memlock: None,
            open_files: 20_000,
            io_uring: None,
            tcp: None,
            no_locks: None,
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
