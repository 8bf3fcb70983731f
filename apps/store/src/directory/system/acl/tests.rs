use super::*;
use crate::access::{EXECUTE, READ, WRITE};

/// The octets of an ACL: for each entry its tag, what it allows, and whom it names.
fn octets(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut octets = 2_u32.to_le_bytes().to_vec();
    for (tag, allowed, id) in entries {
        octets.extend(tag.to_le_bytes());
        octets.extend(allowed.to_le_bytes());
        octets.extend(id.to_le_bytes());
    }
    octets
}

const NOBODY: u32 = u32::MAX;

#[test]
fn the_entry_that_names_a_caller_counts_and_else_those_of_his_groups() {
    let acl = Acl::decode(&octets(&[
        (OWNER, 7, NOBODY),
        (USER, 6, 2001),
        (USER, 0, 2000),
        (OWN_GROUP, 4, NOBODY),
        (GROUP, 2, 4000),
        (MASK, 6, NOBODY),
        (OTHER, 1, NOBODY),
    ]));
    let acl = acl.unwrap();
    for (caller, read, write, both, execute) in [
        // Who is named has that and no more, also if his groups have.
        (Caller::new(2000, 100, [4000]), false, false, false, false),
        (Caller::new(2001, 9, []), true, true, true, false),
        // One group has to allow all that is wanted.
        (Caller::new(9, 100, []), true, false, false, false),
        (Caller::new(9, 9, [4000]), false, true, false, false),
        (Caller::new(9, 100, [4000]), true, true, false, false),
        // The mask does not hold for all others.
        (Caller::new(9, 9, []), false, false, false, true),
    ] {
        let may = |wanted| acl.allows(&caller, 100, wanted);
        let has = (may(READ), may(WRITE), may(READ | WRITE), may(EXECUTE));
        assert_eq!(has, (read, write, both, execute), "{caller:?}");
    }
}

#[test]
fn a_mask_takes_from_all_who_are_named() {
    let entries = [
        (OWNER, 7, NOBODY),
        (USER, 7, 5),
        (OWN_GROUP, 7, NOBODY),
        (MASK, 1, NOBODY),
        (OTHER, 4, NOBODY),
    ];
    let acl = Acl::decode(&octets(&entries)).unwrap();
    let (named, member) = (Caller::new(5, 9, []), Caller::new(9, 100, []));
    assert!(!acl.allows(&named, 100, READ) && !acl.allows(&member, 100, READ));
    assert!(acl.allows(&named, 100, EXECUTE) && acl.allows(&member, 100, EXECUTE));
}

#[test]
fn what_is_no_acl_allows_nothing() {
    let whole = octets(&[(OWNER, 7, NOBODY), (OTHER, 7, NOBODY)]);
    for length in [0, 3, 5, 11, 19] {
        assert_eq!(Acl::decode(&whole[..length]), Err(Errno::IO), "{length}");
    }
    let mut other_version = whole.clone();
    other_version[0] = 3;
    assert_eq!(Acl::decode(&other_version), Err(Errno::IO));
    assert_eq!(Acl::decode(&octets(&[(0x40, 7, 5)])), Err(Errno::IO));
    assert!(Acl::decode(&whole).is_ok());
}

#[test]
fn a_file_is_at_rest_once_the_clock_of_its_file_system_has_moved_on() {
    let changed = Time { seconds: 100, nanoseconds: 999_000_000 };
    let is_at_rest = |milliseconds| is_at_rest(changed, Duration::from_millis(milliseconds));
    assert!(!is_at_rest(100_000) && !is_at_rest(100_999) && !is_at_rest(101_019));
    assert!(is_at_rest(101_020));
}
