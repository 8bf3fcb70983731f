use super::machine::{Machine, Reserved, huge_bytes};
use super::*;
use crate::size::{MIB_2, Octets, PAGE};
use crate::{Pool, PoolConfig};

/// A machine with everything but reserved huge pages.
fn machine() -> Machine {
    let reserved = |kib| Reserved {
        total: 3,
        free: 1,
        left: None,
        file: format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages"),
    };
    Machine {
        huge_size: Some(MIB_2),
        available: Some(8 << 30),
        transparent: Some("always [madvise] never\n".to_owned()),
        huge: Some(reserved(2048)),
        gigantic: Some(reserved(1 << 20)),
    }
}

fn refusal(machine: &Machine, kind: PageKind, bytes: usize) -> Option<String> {
    machine.refuses(kind, bytes).map(|declined| declined.to_string())
}

#[test]
fn a_page_is_used_only_if_the_length_is_a_multiple_of_it() {
    let refused = "no 1 GiB pages: 64 MiB is not a multiple of 1 GiB";
    assert_eq!(refusal(&machine(), PageKind::Gigantic, 64 << 20).as_deref(), Some(refused));
    assert_eq!(refusal(&machine(), PageKind::Gigantic, 2 << 30), None);
    let refused = "no 2 MiB pages: 3 MiB is not a multiple of 2 MiB";
    assert_eq!(refusal(&machine(), PageKind::Huge, 3 << 20).as_deref(), Some(refused));
    for kind in [PageKind::Huge, PageKind::Transparent, PageKind::Small] {
        assert_eq!(refusal(&machine(), kind, 64 << 20), None, "{kind:?}");
    }
}

#[test]
fn what_the_machine_lacks_is_told_before_it_is_tried() {
    let bare = Machine::default();
    for kind in [PageKind::Gigantic, PageKind::Huge, PageKind::Transparent] {
        let refused = format!("no {}: the machine has none", kind.name());
        assert_eq!(refusal(&bare, kind, 1 << 30), Some(refused));
    }
    let other = Machine { huge_size: Some(512 << 20), ..machine() };
    let refused = "no 2 MiB pages: the machine's huge pages are of 512 MiB (try: ";
    assert!(refusal(&other, PageKind::Huge, 1 << 30).unwrap().starts_with(refused));
    let off = Machine { transparent: Some("always madvise [never]\n".to_owned()), ..machine() };
    let refused = "no transparent huge pages: they are switched off \
                   (try: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled)";
    assert_eq!(refusal(&off, PageKind::Transparent, 1 << 30).as_deref(), Some(refused));
}

#[test]
fn more_than_is_available_is_refused_before_it_is_filled() {
    for kind in [PageKind::Transparent, PageKind::Small] {
        assert_eq!(refusal(&machine(), kind, 8 << 30), None);
        assert!(refusal(&machine(), kind, 9 << 30).unwrap().ends_with("8 GiB is available"));
    }
}

#[test]
fn huge_pages_beyond_the_limit_of_the_control_group_are_refused_before_they_are_touched() {
    let mut machine = machine();
    machine.huge.as_mut().unwrap().left = Some(8 << 20);
    let refused = "no 2 MiB pages: 5 needed, the control group leaves 4";
    assert_eq!(refusal(&machine, PageKind::Huge, 10 << 20).as_deref(), Some(refused));
    assert_eq!(refusal(&machine, PageKind::Huge, 8 << 20), None);
    assert_eq!(refusal(&machine, PageKind::Gigantic, 2 << 30), None, "of another kind");
}

#[test]
fn the_command_reserves_what_is_missing_and_keeps_what_is_there() {
    let none = io::Error::from_raw_os_error(libc::ENOMEM);
    let explain = |kind, bytes| machine().explain(kind, bytes, &none).to_string();
    let huge = "no 2 MiB pages: 32 needed, 1 free (try: sysctl -w vm.nr_hugepages=34)";
    assert_eq!(explain(PageKind::Huge, 64 << 20), huge);
    let gigantic = "no 1 GiB pages: 2 needed, 1 free (try: \
                    echo 4 > /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages)";
    assert_eq!(explain(PageKind::Gigantic, 2 << 30), gigantic);
    assert!(
        explain(PageKind::Small, 64 << 20).contains("memory"),
        "{}",
        explain(PageKind::Small, 1)
    );
    let limited = io::Error::from_raw_os_error(libc::EFBIG);
    let limited = machine().explain(PageKind::Small, 1, &limited).to_string();
    assert!(limited.contains("the limit of file sizes (ulimit -f"), "{limited}");
}

#[test]
fn huge_octets_are_those_of_the_mapping_asked_about() {
    let smaps = "\
1000-5000 rw-p 00000000 00:00 0\nSize: 16 kB\nAnonHugePages:      8 kB\nVmFlags: rd wr dc\n\
7f0000000000-7f0000800000 rw-p 00000000 00:00 0\nSize: 8192 kB\nAnonHugePages:   6144 kB\n";
    assert_eq!(huge_bytes(smaps, 0x7f00_0000_0000, 8 << 20), 6 << 20);
    assert_eq!(huge_bytes(smaps, 0x7f00_0020_0000, 4 << 20), 4 << 20);
    assert_eq!(huge_bytes(smaps, 0x4fff, 1 << 20), 8 << 10);
    assert_eq!(huge_bytes(smaps, 0x5000, 1 << 20), 0);
}

#[test]
fn lengths_are_rounded_up_to_whole_pages() {
    use PagePreference::{Best, Heap, Small, Transparent};
    assert_eq!([Best, Transparent].map(|p| p.round_up(1)), [Some(MIB_2); 2]);
    assert_eq!([Small, Heap].map(|p| p.round_up(4097)), [Some(8192); 2]);
    assert_eq!(Heap.round_up(0), Some(PAGE));
    assert_eq!(Best.round_up(usize::MAX), None);
}

#[test]
fn octets_are_written_as_people_do() {
    let written = [100, 8 << 10, 3 << 20, 5 << 30, (1 << 30) + 1].map(|n| Octets(n).to_string());
    assert_eq!(written, ["100 octets", "8 KiB", "3 MiB", "5 GiB", "1073741825 octets"]);
}

#[test]
fn more_than_a_pool_can_manage_is_refused() {
    let config = PoolConfig { bytes: usize::MAX, pages: PagePreference::Best, node: None };
    assert_eq!(Pool::new(&config).unwrap_err(), crate::PoolError::TooLarge { bytes: usize::MAX });
}

#[cfg(not(miri))]
#[test]
fn more_than_the_machine_has_is_refused_with_the_size_asked() {
    let config = PoolConfig { bytes: 1 << 43, pages: PagePreference::Small, node: None };
    let error = Pool::new(&config).unwrap_err().to_string();
    assert!(error.starts_with("no memory for a pool of 8192 GiB: "), "{error}");
    assert!(error.contains("ask for less"), "{error}");
}

/// Returns the lines about the mapping that holds `address`.
#[cfg(not(miri))]
fn smaps_of(address: usize) -> String {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = smaps.lines().skip_while(|line| !machine::covers(line, address));
    let first = lines.next().unwrap().to_owned();
    let is_field = |line: &&str| line.split(' ').next().is_some_and(|name| name.ends_with(':'));
    lines.take_while(is_field).fold(first, |text, line| text + "\n" + line)
}

#[cfg(not(miri))]
#[test]
fn every_preference_gives_zeroed_memory_or_the_reason_for_the_next_kind() {
    for preference in [PagePreference::Best, PagePreference::Transparent, PagePreference::Small] {
        let config = PoolConfig { bytes: 4 << 20, pages: preference, node: Some(0) };
        let pool = Pool::new(&config).unwrap();
        let report = pool.pages();
        let tried: Vec<_> = report.declined.iter().map(|declined| declined.kind).collect();
        let expected: Vec<_> =
            preference.kinds().iter().copied().take_while(|kind| *kind != report.kind).collect();
        assert_eq!(tried, expected, "{report}");
        assert!(report.declined.iter().all(|declined| !declined.reason.is_empty()));
        assert!(report.to_string().starts_with(&format!("4 MiB in {}", report.kind.name())));
        assert_eq!(pool.usable(), 4 << 20);
        let lease = pool.lease(4 << 20).unwrap();
        assert!(lease.bytes().iter().all(|&byte| byte == 0));
        assert_eq!(lease.bytes().as_ptr().addr() % report.kind.size(), 0);
    }
}

#[cfg(not(miri))]
#[test]
fn a_region_is_filled_at_once_and_kept_from_children() {
    for preference in [PagePreference::Transparent, PagePreference::Small] {
        let (region, report) = Region::new(4 << 20, preference, None).unwrap();
        let about = smaps_of(region.at(0).addr().get());
        // Some sandboxes do not report the flags.
        let flags = about.lines().find(|line| line.starts_with("VmFlags:"));
        assert!(flags.is_none_or(|flags| flags.contains(" dc")), "{about}");
        let resident = crate::allowance::field(&about, "Rss:").unwrap();
        assert!(resident >= 4 << 20, "{report}: {about}");
    }
}

#[cfg(not(miri))]
#[test]
fn a_shared_region_is_a_sealed_memfd_of_its_length() {
    use std::os::fd::AsRawFd as _;

    let config = PoolConfig { bytes: 3 << 20, pages: PagePreference::Shared, node: None };
    let pool = Pool::new(&config).unwrap();
    assert_eq!(pool.usable(), 4 << 20, "rounded up, so that a huge page could map all of it");
    assert_eq!(pool.region().addr().get() % MIB_2, 0);
    let memfd = pool.memfd().expect("a memfd");
    let link = std::fs::read_link(format!("/proc/self/fd/{}", memfd.as_raw_fd())).unwrap();
    assert!(link.to_string_lossy().contains("memfd:haulage-region"), "{link:?}");
    let file = std::fs::File::from(memfd.try_clone_to_owned().unwrap());
    assert_eq!(file.metadata().unwrap().len(), 4 << 20);
    for length in [0, 2 << 20, 8 << 20] {
        assert!(file.set_len(length).is_err(), "it could be made {length} octets long");
    }
    // Others read through the memfd what is written through a lease.
    let mut lease = pool.lease(5).unwrap();
    lease.bytes_mut().copy_from_slice(b"there");
    let mut found = [0; 5];
    let offset = lease.bytes().as_ptr().addr() - pool.region().addr().get();
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, offset as u64).unwrap();
    assert_eq!(&found, b"there");
    drop(lease);
    assert!(
        Pool::new(&PoolConfig { pages: PagePreference::Small, ..config })
            .unwrap()
            .memfd()
            .is_none()
    );
}

#[cfg(not(miri))]
#[test]
fn a_region_that_cannot_be_had_takes_no_memory_of_others() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert!(Mapping::shared_huge(1 << 40).is_err(), "nobody has as many huge pages");
            }
        });
        let whole = (0..5_000).all(|_| {
            let mapping = Mapping::small(256 << 20).unwrap();
            // The advice is refused if pages of the range are not mapped.
            (0..4).all(|_| mapping.keep_from_children().is_ok())
        });
        is_over.store(true, Ordering::Relaxed);
        assert!(whole, "memory of another thread was unmapped");
    });
}
