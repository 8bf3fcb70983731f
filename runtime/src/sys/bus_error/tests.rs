use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use super::*;
use crate::sys::shared::Shared;
use crate::sys::shared::rogue::unsealed;

const PAGE: usize = 4096;
const MIB_2: usize = 2 << 20;

#[test]
fn pages_that_are_gone_become_zeros_and_break_their_mapping_alone() {
    let (file, other) = (unsealed(4 * PAGE), unsealed(4 * PAGE));
    let shared = Shared::open_unsealed(file.as_fd(), 4 * PAGE).unwrap();
    let untouched = Shared::open_unsealed(other.as_fd(), 4 * PAGE).unwrap();
    shared.copy_in(0, &[7; 4 * PAGE]);
    untouched.copy_in(0, &[8; 4 * PAGE]);
    let before = faults();
    file.set_len(0).unwrap();
    assert!(!shared.is_broken(), "nobody has looked yet");
    let mut octets = [1; 4 * PAGE];
    shared.copy_to(0, &mut octets);
    assert_eq!(octets, [0; 4 * PAGE]);
    assert!(shared.is_broken() && faults() > before);
    // The new pages are memory like any other.
    shared.copy_in(PAGE, &[9; PAGE]);
    shared.copy_to(0, &mut octets);
    assert_eq!([octets[PAGE - 1], octets[PAGE], octets[2 * PAGE]], [0, 9, 0]);
    untouched.copy_to(0, &mut octets);
    assert!(octets == [8; 4 * PAGE] && !untouched.is_broken());
}

#[test]
fn a_fault_replaces_no_more_than_its_part_of_a_long_mapping() {
    let length = 3 * MIB_2 + PAGE;
    let file = unsealed(length);
    let shared = Shared::open_unsealed(file.as_fd(), length).unwrap();
    for at in [0, MIB_2, 2 * MIB_2] {
        shared.copy_in(at, &[7]);
    }
    file.set_len(MIB_2 as u64).unwrap();
    let mut octet = [1];
    shared.copy_to(length - 1, &mut octet);
    assert_eq!(octet, [0]);
    shared.copy_to(MIB_2, &mut octet);
    assert_eq!(octet, [0]);
    shared.copy_to(0, &mut octet);
    assert_eq!(octet, [7], "this part was there");
}

#[test]
fn only_addresses_in_the_range_are_covered() {
    let range = Range { start: 0x10000, length: 0x5000, extent: 0x2000 };
    let cases = [
        (0xffff, None),
        (0x10000, Some((0x10000, 0x2000))),
        (0x11fff, Some((0x10000, 0x2000))),
        (0x12000, Some((0x12000, 0x2000))),
        (0x14fff, Some((0x14000, 0x1000))),
        (0x15000, None),
        (usize::MAX, None),
        (0, None),
    ];
    for (address, expected) in cases {
        assert_eq!(range.around(address), expected, "{address:#x}");
    }
    let free = Range { start: 0, length: 0, extent: 0 };
    assert_eq!(free.around(0), None);
}

#[test]
fn a_place_is_used_again_and_knows_nothing_of_its_last_guard() {
    let file = unsealed(PAGE);
    let used = USED.load(Ordering::Relaxed);
    for _ in 0..5000 {
        let mut octet = [1];
        let shared = Shared::open_unsealed(file.as_fd(), PAGE).unwrap();
        assert!(!shared.is_broken());
        file.set_len(0).unwrap();
        shared.copy_to(0, &mut octet);
        assert!(octet == [0] && shared.is_broken());
        file.set_len(PAGE as u64).unwrap();
    }
    // Tests on other threads take places, too, but not thousands.
    assert!(USED.load(Ordering::Relaxed) - used < 4000, "places were not used again");
}

#[test]
fn guards_come_and_go_while_others_fault() {
    let workers = [0_u8; 4].map(|_| {
        #[allow(clippy::disallowed_methods, reason = "the handler runs on any thread")]
        std::thread::spawn(|| {
            for _ in 0..300 {
                let file = unsealed(2 * PAGE);
                let shared = Shared::open_unsealed(file.as_fd(), 2 * PAGE).unwrap();
                shared.copy_in(0, &[5; 2 * PAGE]);
                file.set_len(PAGE as u64).unwrap();
                let mut octets = [1; 2 * PAGE];
                shared.copy_to(0, &mut octets);
                // The lost page is zero; the handler chooses how much more it replaced.
                assert!(octets[PAGE..] == [0; PAGE] && shared.is_broken());
            }
        })
    });
    workers.into_iter().for_each(|worker| worker.join().unwrap());
}

/// Runs one of the ignored tests below in a process of its own, which the test ends.
fn ends_by(test: &str) -> Option<i32> {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--nocapture", &format!("sys::bus_error::tests::{test}")])
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("running 1 test") && !said.contains("survived"), "{said}");
    output.status.signal()
}

#[test]
fn any_other_fault_ends_the_process_as_before() {
    assert_eq!(ends_by("touch_what_no_guard_covers"), Some(libc::SIGBUS));
    assert_eq!(ends_by("send_the_signal"), Some(libc::SIGBUS));
}

#[test]
#[ignore = "ends its process"]
fn touch_what_no_guard_covers() {
    install().unwrap();
    let file = unsealed(PAGE);
    let (access, flags, fd) = (libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd());
    // SAFETY: no address is asked for, so no mapping is replaced.
    let start = unsafe { libc::mmap(ptr::null_mut(), PAGE, access, flags, fd, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    file.set_len(0).unwrap();
    // SAFETY: the octet is in the mapping, which nobody writes. There is no page: the process is to end.
    let octet = unsafe { start.cast::<u8>().read_volatile() };
    eprintln!("survived {octet}");
}

#[test]
#[ignore = "ends its process"]
fn send_the_signal() {
    install().unwrap();
    // The handler of the standard library, which was there before, takes the first signal for a stack overflow that
    // will be raised again.
    for _ in 0..2 {
        // SAFETY: `raise` takes a number.
        unsafe { libc::raise(libc::SIGBUS) };
    }
    eprintln!("survived");
}
