//! The place of a device, from the kernel's files: the addresses by which peers reach it, and its NUMA node.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

use crate::sys::cpu;

/// An address by which peers reach a port: an entry of its table of GIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gid {
    /// The port, from 1.
    pub port: u32,
    /// Its index in the table.
    pub index: u32,
    /// The way messages to it travel.
    pub kind: GidKind,
    /// The address, an IPv4 one if it maps to that.
    pub address: IpAddr,
}

/// The way messages to a GID travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidKind {
    /// In UDP over IP: any router takes them.
    RoceTwo,
    /// In Ethernet frames of their own, which stay in one network.
    RoceOne,
    /// On InfiniBand, or on TCP (iWARP), where the table has no effect.
    Native,
}

impl Gid {
    /// Ranks how well it serves, the lowest number first: GIDs that routers accept, of these IPv4 addresses, then IPv6
    /// ones that are valid beyond the link.
    fn rank(&self) -> u32 {
        let how = match self.kind {
            GidKind::RoceTwo | GidKind::Native => 0,
            GidKind::RoceOne => 3,
        };
        let address = match self.address {
            IpAddr::V4(_) => 0,
            IpAddr::V6(six) if six.is_unicast_link_local() => 2,
            IpAddr::V6(_) => 1,
        };
        how + address
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            GidKind::RoceTwo => ", RoCE v2",
            GidKind::RoceOne => ", RoCE v1",
            GidKind::Native => "",
        };
        write!(f, "port {} GID {} ({}{kind})", self.port, self.index, self.address)
    }
}

/// Lists the GIDs of a device, the best first.
///
/// `root` is the directory that has `sys`: `/`, except in tests.
pub(super) fn gids(root: &Path, device: &str) -> Vec<Gid> {
    let mut all = Vec::new();
    let ports = of(root, device).join("ports");
    for port in numbers(&ports) {
        let at = ports.join(port.to_string());
        let is_ethernet = read(&at.join("link_layer")).as_deref() == Some("Ethernet");
        for index in numbers(&at.join("gids")) {
            let address = read(&at.join(format!("gids/{index}")));
            let Some(address) = address.and_then(|text| text.parse::<Ipv6Addr>().ok()) else {
                continue;
            };
            let kind = match read(&at.join(format!("gid_attrs/types/{index}"))).as_deref() {
                Some("RoCE v2") => GidKind::RoceTwo,
                Some("IB/RoCE v1") if is_ethernet => GidKind::RoceOne,
                _ => GidKind::Native,
            };
            // [R5666-10-1] services and peers are named by the IP address that a GID maps; the connection manager finds
            // the GID of such an address. Empty entries of the table are zeros.
            if !address.is_unspecified() {
                all.push(Gid { port, index, kind, address: address.to_canonical() });
            }
        }
    }
    all.sort_by_key(|gid| (gid.rank(), gid.port, gid.index));
    all
}

/// Returns the NUMA node of a device, or of the interface that a software device uses; `None` if the machine does not
/// tell.
pub(super) fn node_of(root: &Path, device: &str) -> Option<usize> {
    let own = of(root, device);
    let parent = read(&own.join("parent")).unwrap_or_default();
    let interface = root.join("sys/class/net").join(parent);
    // The device of a virtual interface has no node of its own, only the one on its bus.
    let places =
        [own.join("device"), interface.join("device"), interface.join("device").join("..")];
    // -1 stands for no node.
    places.iter().map(|place| place.join("numa_node")).find_map(|place| read(&place)?.parse().ok())
}

/// Returns the NUMA node of all CPUs that this thread may run on, apart from CPUs that no node lists; `None` if they
/// are on several.
pub(super) fn own_node(root: &Path) -> Option<usize> {
    let status = fs::read_to_string(root.join("proc/thread-self/status")).ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let mut nodes = cpu::parse_list(list)?.into_iter().filter_map(|cpu| cpu::node_of(root, cpu));
    let first = nodes.next()?;
    nodes.all(|node| node == first).then_some(first)
}

fn of(root: &Path, device: &str) -> PathBuf {
    root.join("sys/class/infiniband").join(device)
}

/// Returns the numbers that name the entries of a directory, in rising order.
fn numbers(directory: &Path) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<_> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    found.sort_unstable();
    found
}

fn read(file: &Path) -> Option<String> {
    Some(fs::read_to_string(file).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with files in it, deleted when dropped.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("haulage-{name}-{}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(root)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const MLX: &str = "sys/class/infiniband/mlx5_0";

    #[test]
    fn a_routable_ipv4_name_is_preferred() {
        let port = |file: &str| format!("{MLX}/ports/1/{file}");
        let table = [
            ("fe80:0000:0000:0000:0000:0000:0000:0001", "IB/RoCE v1"),
            ("fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2"),
            ("2001:0db8:0000:0000:0000:0000:0000:0005", "RoCE v2"),
            ("0000:0000:0000:0000:0000:ffff:c000:0201", "IB/RoCE v1"),
            ("0000:0000:0000:0000:0000:ffff:c000:0201", "RoCE v2"),
            ("0000:0000:0000:0000:0000:0000:0000:0000", ""),
        ];
        let mut files = vec![(port("link_layer"), "Ethernet\n")];
        for (index, (gid, kind)) in table.iter().enumerate() {
            files.push((port(&format!("gids/{index}")), gid));
            files.push((port(&format!("gid_attrs/types/{index}")), kind));
        }
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let tree = Tree::new("gids", &files);
        let found = gids(&tree.0, "mlx5_0");
        assert_eq!(found.iter().map(|gid| gid.index).collect::<Vec<_>>(), [4, 2, 1, 3, 0]);
        assert_eq!(found[0].to_string(), "port 1 GID 4 (192.0.2.1, RoCE v2)");
        assert_eq!(gids(&tree.0, "mlx5_1"), []);
    }

    #[test]
    fn a_device_and_a_thread_have_a_node_if_the_machine_says_so() {
        let files = [
            ("sys/class/infiniband/mlx5_0/device/numa_node", "1\n"),
            ("sys/class/infiniband/mlx5_1/device/numa_node", "-1\n"),
            ("sys/class/infiniband/rxe0/parent", "eth0\n"),
            ("sys/class/net/eth0/device/numa_node", "0\n"),
            ("sys/class/infiniband/rxe1/parent", "eth1\n"),
            ("sys/class/net/eth1/device/features", "0\n"),
            ("sys/class/net/eth1/numa_node", "1\n"),
            ("sys/devices/system/node/online", "0-1\n"),
            ("sys/devices/system/node/node0/cpulist", "0-3\n"),
            ("sys/devices/system/node/node1/cpulist", "4-7\n"),
            ("proc/thread-self/status", "Name:\tx\nCpus_allowed_list:\t4,6\n"),
        ];
        let tree = Tree::new("nodes", &files);
        let of = |device| node_of(&tree.0, device);
        assert_eq!([of("mlx5_0"), of("mlx5_1")], [Some(1), None]);
        assert_eq!([of("rxe0"), of("rxe1")], [Some(0), Some(1)]);
        assert_eq!(own_node(&tree.0), Some(1));
        fs::write(tree.0.join("proc/thread-self/status"), "Cpus_allowed_list:\t3-4\n").unwrap();
        assert_eq!(own_node(&tree.0), None, "it runs on both");
        fs::write(tree.0.join("proc/thread-self/status"), "Cpus_allowed_list:\t4-9\n").unwrap();
        assert_eq!(own_node(&tree.0), Some(1), "of 8 and 9 there is no telling");
    }
}
