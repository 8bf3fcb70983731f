//! The system's information about its memory, and the conclusions for a region.

use std::fs;
use std::io;
use std::path::Path;

use super::pages::{Declined, PageKind};
use crate::allowance::{Allowance, GroupLimit, field, number_in};
use crate::size::{MIB_2, Octets};

/// The system's information about its memory. A field is `None` if the system does not provide it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Machine {
    /// The size of the default huge page, in octets.
    pub(super) huge_size: Option<usize>,
    /// The memory that this process can take without swapping, in octets.
    pub(super) available: Option<usize>,
    /// The setting of transparent huge pages.
    pub(super) transparent: Option<String>,
    /// The reserved 2 MiB pages.
    pub(super) huge: Option<Reserved>,
    /// The reserved 1 GiB pages.
    pub(super) gigantic: Option<Reserved>,
}

/// The reserved huge pages of one size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reserved {
    /// The number of pages that the administrator reserved.
    pub(super) total: usize,
    /// The number of pages that are neither in use nor promised to a mapping.
    pub(super) free: usize,
    /// The octets that the control groups leave to this process, if they have a limit.
    pub(super) left: Option<usize>,
    /// The file that sets `total`.
    pub(super) file: String,
}

impl Machine {
    /// Reads the information from the system; that about huge pages for `node`, if one is given.
    pub(super) fn read(node: Option<u32>) -> Self {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let allowance = Allowance::here();
        Self {
            huge_size: field(&meminfo, "Hugepagesize:"),
            available: allowance.available,
            transparent: fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok(),
            huge: Reserved::read(2048, node, allowance.huge),
            gigantic: Reserved::read(1 << 20, node, allowance.gigantic),
        }
    }

    /// Returns why a kind of pages cannot be used, if that is known before trying it.
    pub(super) fn refuses(&self, kind: PageKind, bytes: usize) -> Option<Declined> {
        let reason = match kind {
            PageKind::Heap => return None,
            _ if !bytes.is_multiple_of(kind.size()) => {
                format!("{} is not a multiple of {}", Octets(bytes), Octets(kind.size()))
            }
            // Touching a page beyond the control group's limit would end the process.
            PageKind::Gigantic | PageKind::Huge
                if self.left(kind).is_some_and(|left| left < bytes) =>
            {
                let left = self.left(kind).unwrap_or_default() / kind.size();
                format!("{} needed, the control group leaves {left}", bytes / kind.size())
            }
            PageKind::Gigantic => match self.gigantic {
                Some(_) => return None,
                None => "the machine has none".to_owned(),
            },
            // The check also avoids `hugepage_rs`, which panics if it cannot read the size.
            PageKind::Huge => match self.huge_size {
                Some(MIB_2) => return None,
                Some(size) => format!("the machine's huge pages are of {}", Octets(size)),
                None => "the machine has none".to_owned(),
            },
            PageKind::Transparent if self.transparent.is_none() => {
                "the machine has none".to_owned()
            }
            PageKind::Transparent if self.transparent_off() => "they are switched off".to_owned(),
            // Filling the region would end in the hands of the out-of-memory killer.
            PageKind::Transparent | PageKind::Small => match self.available {
                Some(available) if bytes > available => {
                    format!("{} is available", Octets(available >> 20 << 20))
                }
                _ => return None,
            },
        };
        Some(Declined { kind, reason, command: self.command(kind, bytes) })
    }

    /// Returns why a kind of pages could not be used, after it failed with `error`.
    pub(super) fn explain(&self, kind: PageKind, bytes: usize, error: &io::Error) -> Declined {
        let reason = match self.reserved(kind) {
            Some(reserved) if reserved.free < bytes / kind.size() => {
                format!("{} needed, {} free", bytes / kind.size(), reserved.free)
            }
            // The memory is a file without a name.
            _ if error.kind() == io::ErrorKind::FileTooLarge => {
                "the limit of file sizes (ulimit -f, LimitFSIZE=) is lower".to_owned()
            }
            _ => error.to_string(),
        };
        Declined { kind, reason, command: self.command(kind, bytes) }
    }

    /// Returns the command that makes a kind of pages usable.
    fn command(&self, kind: PageKind, bytes: usize) -> Option<String> {
        match kind {
            PageKind::Gigantic | PageKind::Huge
                if self.left(kind).is_some_and(|left| left < bytes) =>
            {
                None
            }
            PageKind::Gigantic | PageKind::Huge if bytes.is_multiple_of(kind.size()) => {
                let Reserved { total, free, file, .. } = self.reserved(kind)?;
                let pages = total + (bytes / kind.size()).saturating_sub(*free);
                Some(match file.strip_prefix("/sys/kernel/mm/hugepages/hugepages-2048kB/") {
                    Some(_) if self.huge_size == Some(MIB_2) => {
                        format!("sysctl -w vm.nr_hugepages={pages}")
                    }
                    _ => format!("echo {pages} > {file}"),
                })
            }
            PageKind::Transparent if self.transparent_off() => {
                Some("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled".to_owned())
            }
            _ => None,
        }
    }

    fn reserved(&self, kind: PageKind) -> Option<&Reserved> {
        match kind {
            PageKind::Gigantic => self.gigantic.as_ref(),
            PageKind::Huge => self.huge.as_ref(),
            _ => None,
        }
    }

    /// Returns the octets in pages of a kind that the control groups leave, if they have a limit.
    fn left(&self, kind: PageKind) -> Option<usize> {
        self.reserved(kind)?.left
    }

    fn transparent_off(&self) -> bool {
        self.transparent.as_ref().is_some_and(|switch| switch.contains("[never]"))
    }
}

impl Reserved {
    fn read(kib: usize, node: Option<u32>, limit: Option<GroupLimit>) -> Option<Self> {
        let root = match node {
            Some(node) => format!("/sys/devices/system/node/node{node}/hugepages"),
            None => "/sys/kernel/mm/hugepages".to_owned(),
        };
        let directory = Path::new(&root).join(format!("hugepages-{kib}kB"));
        let file = directory.join("nr_hugepages");
        let free: usize = number_in(&directory.join("free_hugepages"))?;
        // Pages that are promised but not in use yet. The files of a NUMA node do not tell them.
        let promised = number_in(&directory.join("resv_hugepages")).unwrap_or(0);
        Some(Self {
            total: number_in(&file)?,
            free: free.saturating_sub(promised),
            left: limit.map(|limit| limit.left),
            file: file.display().to_string(),
        })
    }
}

/// Returns the number of octets in huge pages among the `length` octets from `start`, as in
/// `/proc/self/smaps`.
///
/// If the system has merged the mapping with a neighbour, the number covers both.
pub(super) fn huge_bytes(smaps: &str, start: usize, length: usize) -> usize {
    let lines = smaps.lines().skip_while(|line| !covers(line, start)).skip(1);
    // A mapping is anonymous memory or a memfd, so at most one of the fields is not zero.
    let fields = ["AnonHugePages:", "ShmemPmdMapped:"];
    let own = lines.take_while(|line| !opens(line));
    let huge =
        own.filter_map(|line| fields.iter().find_map(|name| field(line, name))).sum::<usize>();
    huge.min(length)
}

/// Returns whether a line is the header of a mapping: other lines are fields, whose names end with
/// a colon.
fn opens(line: &str) -> bool {
    !line.split(' ').next().is_some_and(|name| name.ends_with(':'))
}

/// Returns whether a line is the header of the mapping that contains `address`.
pub(super) fn covers(line: &str, address: usize) -> bool {
    let range = line.split(' ').next().and_then(|range| range.split_once('-'));
    let parse = |digits| usize::from_str_radix(digits, 16).ok();
    range
        .and_then(|(start, end)| Some(parse(start)? <= address && address < parse(end)?))
        .unwrap_or(false)
}
