//! Allowances read from made-up `/proc` and `/sys`.

use super::*;

const MIB: usize = 1 << 20;

/// A directory that stands for `/`, removed at the end.
struct Tree(PathBuf);

impl Tree {
    /// A machine with 7 GiB available, on which this process is in the groups of `own`.
    fn new(name: &str, own: &str) -> Self {
        let name = format!("haulage-allowance-{name}-{}", std::process::id());
        let tree = Self(std::env::temp_dir().join(name));
        tree.write("proc/meminfo", "MemTotal:  9000000 kB\nMemAvailable:   7340032 kB\n");
        tree.write("proc/self/cgroup", own);
        tree
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    fn read(&self) -> Allowance {
        Allowance::under(&self.0)
    }

    fn available_mib(&self) -> Option<usize> {
        self.read().available.map(|octets| octets / MIB)
    }

    /// Returns the file that sets the limit of memory, and the limit in MiB.
    fn limit(&self) -> Option<(String, usize)> {
        let GroupLimit { limit, file, .. } = self.read().memory?;
        Some((file.strip_prefix(&self.0).unwrap().to_str().unwrap().to_owned(), limit / MIB))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_machine_that_sets_no_limit_gives_what_it_has_available() {
    let tree = Tree::new("free", "0::/user.slice/a.scope");
    for (file, text) in [("memory.max", "max"), ("memory.high", "max"), ("cpu.max", "max 100000")] {
        tree.write(&format!("sys/fs/cgroup/user.slice/a.scope/{file}"), text);
    }
    let expected = Allowance { available: Some(7 << 30), ..Allowance::default() };
    assert_eq!(tree.read(), expected);
    assert_eq!(Allowance::under(&tree.0.join("nowhere")), Allowance::default());
}

#[test]
fn the_own_group_and_each_that_it_is_in_may_have_a_limit() {
    let tree = Tree::new("unit", "0::/system.slice/kv.service");
    tree.write("sys/fs/cgroup/system.slice/kv.service/memory.max", "134217728");
    assert_eq!(tree.available_mib(), Some(128), "a unit with MemoryMax=128M");
    tree.write("sys/fs/cgroup/system.slice/memory.max", "67108864");
    assert_eq!(tree.limit(), Some(("sys/fs/cgroup/system.slice/memory.max".to_owned(), 64)));
    tree.write("sys/fs/cgroup/system.slice/kv.service/memory.high", "33554432");
    assert_eq!(tree.available_mib(), Some(32), "beyond it the kernel slows the unit down");
    tree.write("sys/fs/cgroup/memory.max", "16777216");
    assert_eq!(tree.available_mib(), Some(16), "the root is the container's own");
}

#[test]
fn what_the_group_has_taken_is_not_available_but_for_files_that_can_be_read_again() {
    let tree = Tree::new("taken", "0::/");
    tree.write("sys/fs/cgroup/memory.max", "1073741824");
    tree.write("sys/fs/cgroup/memory.current", "943718400");
    assert_eq!(tree.available_mib(), Some(124));
    tree.write("sys/fs/cgroup/memory.stat", "anon 1\nfile 209715200\ninactive_file 104857600");
    assert_eq!(tree.available_mib(), Some(224));
    tree.write("sys/fs/cgroup/memory.current", "2147483648");
    assert_eq!(tree.available_mib(), Some(0), "more than the limit, which was lowered");
}

#[test]
fn version_1_has_files_of_its_own() {
    let tree = Tree::new("old", "9:name=systemd:/\n4:memory:/unit\n2:cpu,cpuacct:/unit\n0::/unit");
    tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
    assert_eq!(tree.read().memory, None, "that is how it says that there is no limit");
    tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "134217728");
    assert_eq!(tree.available_mib(), Some(128));
    tree.write("sys/fs/cgroup/memory/unit/memory.limit_in_bytes", "67108864");
    tree.write("sys/fs/cgroup/memory/unit/memory.usage_in_bytes", "33554432");
    tree.write(
        "sys/fs/cgroup/memory/unit/memory.stat",
        "inactive_file 1\ntotal_inactive_file 1048576",
    );
    assert_eq!(tree.available_mib(), Some(33));
    tree.write("sys/fs/cgroup/cpu,cpuacct/unit/cpu.cfs_quota_us", "-1");
    tree.write("sys/fs/cgroup/cpu,cpuacct/unit/cpu.cfs_period_us", "100000");
    assert_eq!(tree.read().cpu, None);
    tree.write("sys/fs/cgroup/cpu,cpuacct/unit/cpu.cfs_quota_us", "50000");
    assert_eq!(tree.read().cpu.map(|quota| quota.cpus()), Some(0.5));
}

#[test]
fn a_group_whose_directory_is_not_seen_is_the_root_of_what_is() {
    for own in ["4:memory:/docker/0123", "4:memory:/../other", ""] {
        let tree = Tree::new("unseen", own);
        tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "134217728");
        assert_eq!(tree.available_mib(), Some(128), "{own}");
        tree.write("sys/fs/cgroup/other/memory.max", "1048576");
        assert_eq!(tree.available_mib(), Some(128), "{own}: another's");
    }
}

#[test]
fn the_least_quota_counts_and_huge_pages_have_limits_of_their_own() {
    let tree = Tree::new("quota", "0::/a/b");
    tree.write("sys/fs/cgroup/a/cpu.max", "150000 100000");
    tree.write("sys/fs/cgroup/a/b/cpu.max", "80000 50000");
    let quota = tree.read().cpu.unwrap();
    assert_eq!((quota.quota_us, quota.period_us), (150_000, 100_000));
    tree.write("sys/fs/cgroup/a/cpu.max", "1 0");
    assert_eq!(tree.read().cpu.unwrap().quota_us, 80_000, "no period is no quota");
    tree.write("sys/fs/cgroup/a/hugetlb.2MB.max", "8388608");
    tree.write("sys/fs/cgroup/a/hugetlb.2MB.current", "2097152");
    let Allowance { huge, gigantic, .. } = tree.read();
    assert_eq!((huge.unwrap().left, gigantic), (6 * MIB, None));
}

#[test]
fn this_machine_says_what_it_has() {
    assert!(Allowance::here().available.unwrap() > 0);
}
