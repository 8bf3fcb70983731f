use haulage_proto::xdr::Reader;

use super::*;
use crate::nfs3::{Device, Time};
use crate::testing::words;

fn file(kind: FileType, mode: u32) -> Attributes {
    Attributes {
        kind,
        mode,
        links: 1,
        uid: 100,
        gid: 200,
        size: 0,
        used: 0,
        device: Device::default(),
        fsid: 0,
        fileid: 1,
        atime: Time::default(),
        mtime: Time::default(),
        ctime: Time::default(),
    }
}

/// The caller that a policy makes of an AUTH_SYS claim.
fn squashed(squash: Squash, uid: u32, gid: u32, further: &[u32]) -> Caller {
    let count = u32::try_from(further.len()).unwrap();
    let body = [&[1, 0, uid, gid, count][..], further].concat();
    let length = u32::try_from(body.len() * 4).unwrap();
    let bytes = words(&[&[1, length][..], &body].concat());
    let credential = Credential::decode(&mut Reader::new(&bytes)).unwrap();
    let policy = Policy { squash, anonymous_uid: 65_534, anonymous_gid: 65_533 };
    policy.caller(&credential)
}

#[test]
fn claims_are_squashed_as_the_policy_says() {
    let nobody = Caller::new(65_534, 65_533, []);
    for (squash, claim, believed) in [
        (Squash::Nobody, (0, 0, &[0, 5][..]), Caller::new(0, 0, [0, 5])),
        (Squash::Nobody, (7, 8, &[9]), Caller::new(7, 8, [9])),
        (Squash::Root, (0, 8, &[9]), nobody),
        (Squash::Root, (7, 0, &[0, 9]), Caller::new(7, 65_533, [65_533, 9])),
        (Squash::Root, (7, 8, &[9]), Caller::new(7, 8, [9])),
        (Squash::All, (7, 8, &[9]), nobody),
        (Squash::Nobody, (u32::MAX, 8, &[9]), Caller::new(65_534, 8, [9])),
        (Squash::Root, (u32::MAX, u32::MAX, &[0, 9]), Caller::new(65_534, 65_533, [65_533, 9])),
    ] {
        let (uid, gid, further) = claim;
        assert_eq!(squashed(squash, uid, gid, further), believed, "{squash:?} {claim:?}");
    }
    let policy = Policy::default();
    let none = policy.caller(&Credential::None);
    assert_eq!(none, Caller::new(65_534, 65_534, []));
    let other = Credential::Other { flavor: 6, body: b"ticket" };
    assert_eq!(policy.caller(&other), none);
}

#[test]
fn only_the_first_class_that_fits_counts() {
    let wanted = [READ, WRITE, EXECUTE];
    let may = |caller: &Caller, mode| {
        let file = file(FileType::Regular, mode);
        wanted.map(|bit| caller.may(&file, bit))
    };
    let owner = Caller::new(100, 200, []);
    let member = Caller::new(101, 5, [7, 200]);
    let other = Caller::new(101, 5, [7]);
    assert_eq!(may(&owner, 0o077), [false; 3]);
    assert_eq!(may(&owner, 0o700), [true; 3]);
    assert_eq!(may(&member, 0o707), [false; 3]);
    assert_eq!(may(&member, 0o050), [true, false, true]);
    assert_eq!(may(&other, 0o770), [false; 3]);
    assert_eq!(may(&other, 0o002), [false, true, false]);
    assert!(!other.may(&file(FileType::Regular, 0o004), READ | WRITE));
}

#[test]
fn the_superuser_may_all_but_execute_what_nobody_may() {
    let root = Caller::new(0, 0, []);
    let may = |kind, mode| [READ, WRITE, EXECUTE].map(|bit| root.may(&file(kind, mode), bit));
    assert_eq!(may(FileType::Regular, 0), [true, true, false]);
    assert_eq!(may(FileType::Regular, 0o010), [true; 3]);
    assert_eq!(may(FileType::Directory, 0), [true; 3]);
}

#[test]
fn from_a_sticky_directory_owners_remove() {
    let victim = Attributes { uid: 7, ..file(FileType::Regular, 0o666) };
    let (dir, sticky) = (file(FileType::Directory, 0o777), file(FileType::Directory, 0o1777));
    for (uid, may) in [(0, true), (7, true), (100, true), (8, false)] {
        let caller = Caller::new(uid, 1, []);
        assert!(caller.may_unlink(&dir, &victim));
        assert_eq!(caller.may_unlink(&sticky, &victim), may, "{uid}");
    }
}

#[test]
fn rights_take_permissions_as_the_kind_of_file_has_them() {
    use crate::nfs3::rights::{ALL, DELETE, EXECUTE, EXTEND, LOOKUP, MODIFY, READ};
    let rights = |kind, permissions: u32| {
        let all = (0..u32::BITS).map(|bit| 1 << bit);
        let has =
            |right: &u32| permission(*right, kind).is_some_and(|wanted| wanted & !permissions == 0);
        all.filter(has).sum::<u32>()
    };
    assert_eq!(ALL, 0x3f);
    assert_eq!(rights(FileType::Directory, 7), READ | LOOKUP | MODIFY | EXTEND | DELETE);
    assert_eq!(rights(FileType::Directory, 1), LOOKUP);
    assert_eq!(rights(FileType::Regular, 7), READ | MODIFY | EXTEND | EXECUTE);
    assert_eq!(rights(FileType::Regular, 4), READ);
}
