//! GETATTR, SETATTR, ACCESS, FSSTAT, FSINFO and PATHCONF.

use nfs3_client::nfs3_types::nfs3::nfsstat3::*;
use nfs3_client::nfs3_types::nfs3::*;

use crate::bed::{Bed, each};
use crate::client::{Client, mode, now, size};

const UNGUARDED: sattrguard3 = Nfs3Option::None;

fn times(atime: nfstime3, mtime: nfstime3) -> sattr3 {
    sattr3 {
        atime: set_atime::SET_TO_CLIENT_TIME(atime),
        mtime: set_mtime::SET_TO_CLIENT_TIME(mtime),
        ..sattr3::default()
    }
}

fn owner(uid: u32, gid: u32) -> sattr3 {
    sattr3 { uid: Nfs3Option::Some(uid), gid: Nfs3Option::Some(gid), ..sattr3::default() }
}

#[test]
fn attributes_are_those_of_the_file() {
    each(|bed| {
        let owner = bed.server.owner.unwrap_or(0);
        let Bed { client, root, .. } = bed;
        let dir = client.attributes(root).unwrap();
        assert_eq!(dir.type_, ftype3::NF3DIR);
        let made = client.file(root, "file", 0o640);
        client.write(&made, 0, &[7; 5000], stable_how::FILE_SYNC).unwrap();
        let file = client.attributes(&made).unwrap();
        assert_eq!((file.type_, file.mode, file.nlink), (ftype3::NF3REG, 0o640, 1));
        assert_eq!((file.uid, file.gid, file.size), (owner, owner, 5000));
        assert!(file.used > 0, "{file:?}");
        assert_eq!(file.rdev, specdata3::default());
        assert_eq!(file.fsid, dir.fsid);
        assert_ne!(file.fileid, dir.fileid);
        for time in [file.atime, file.mtime, file.ctime] {
            assert!(time.seconds > 0 && time.nseconds < 1_000_000_000, "{file:?}");
        }
    });
}

#[test]
fn attributes_are_set() {
    each(|Bed { client, root, .. }| {
        let file = client.file(root, "file", 0o600);
        client.write(&file, 0, b"0123456789", stable_how::FILE_SYNC).unwrap();
        let before = client.attributes(&file).unwrap();
        assert_eq!(client.set(&file, mode(0o421), UNGUARDED), Ok(()));
        let after = client.attributes(&file).unwrap();
        assert_eq!((after.mode, after.size, after.mtime), (0o421, 10, before.mtime));
        assert_ne!(after.ctime, before.ctime);

        assert_eq!(client.set(&file, size(4), UNGUARDED), Ok(()));
        assert_eq!(client.read(&file, 0, 99), Ok((b"0123".to_vec(), true)));
        assert_eq!(client.set(&file, size(6), UNGUARDED), Ok(()));
        assert_eq!(client.read(&file, 0, 99), Ok((b"0123\0\0".to_vec(), true)));

        let time = |seconds, nseconds| nfstime3 { seconds, nseconds };
        let (atime, mtime) = (time(1_000_000_000, 123_456_000), time(1_100_000_000, 0));
        assert_eq!(client.set(&file, times(atime, mtime), UNGUARDED), Ok(()));
        let after = client.attributes(&file).unwrap();
        assert_eq!((after.atime, after.mtime, after.mode), (atime, mtime, 0o421));
        let to_now = sattr3 { mtime: set_mtime::SET_TO_SERVER_TIME, ..sattr3::default() };
        assert_eq!(client.set(&file, to_now, UNGUARDED), Ok(()));
        let after = client.attributes(&file).unwrap();
        assert_eq!(after.atime, atime);
        assert!(after.mtime.seconds > mtime.seconds);
    });
}

#[test]
fn attributes_that_cannot_be_are_refused() {
    each(|Bed { client, root, .. }| {
        let file = client.file(root, "file", 0o600);
        assert_eq!(client.set(root, size(0), UNGUARDED), Err(NFS3ERR_INVAL));
        let link = client.symlink(root, "link", b"file").unwrap();
        assert_eq!(client.set(&link, size(0), UNGUARDED), Err(NFS3ERR_INVAL));
        assert_eq!(client.set(&file, size(u64::MAX), UNGUARDED), Err(NFS3ERR_FBIG));
        let valid = nfstime3 { seconds: 1, nseconds: 0 };
        // The last two are UTIME_NOW and UTIME_OMIT to the system.
        for nseconds in [1_000_000_000, u32::MAX, 0x3fff_ffff, 0x3fff_fffe] {
            let not = nfstime3 { seconds: 1, nseconds };
            for to in [times(not, valid), times(valid, not)] {
                let created = client.create(root, "made", createhow3::GUARDED(to.clone()));
                assert_eq!(created, Err(NFS3ERR_INVAL), "{to:?}");
                assert_eq!(client.set(&file, to, UNGUARDED), Err(NFS3ERR_INVAL), "{nseconds}");
            }
        }
        assert_eq!(client.lookup(root, "made"), Err(NFS3ERR_NOENT));
        assert_eq!(client.attributes(&file).unwrap().size, 0);
    });
}

#[test]
fn an_id_of_all_ones_names_nobody() {
    let ones = u32::MAX;
    each(|bed| {
        let mut nobody = Client::new(&bed.server, (ones, ones));
        let anonymous = bed.server.owner.unwrap_or(65_534);
        let Bed { client, root, .. } = bed;
        client.set(root, mode(0o777), UNGUARDED).unwrap();
        let file = nobody.file(root, "theirs", 0o600);
        assert_eq!(client.attributes(&file).unwrap().uid, anonymous);
        // An owner of all ones changes no owner, and lets other attributes change.
        client.write(&file, 0, b"0123456789", stable_how::FILE_SYNC).unwrap();
        let to = sattr3 { size: Nfs3Option::Some(4), ..owner(ones, ones) };
        assert_eq!(nobody.set(&file, to, UNGUARDED), Ok(()));
        let after = client.attributes(&file).unwrap();
        assert_eq!((after.uid, after.size), (anonymous, 4));
        let made = client.create(root, "made", createhow3::GUARDED(owner(ones, ones))).unwrap();
        assert_ne!(client.attributes(&made).unwrap().uid, ones);
    });
}

#[test]
fn a_guard_is_the_change_time_of_the_file_as_it_is() {
    each(|Bed { client, root, .. }| {
        let file = client.file(root, "file", 0o600);
        let first = client.attributes(&file).unwrap().ctime;
        assert_eq!(client.set(&file, mode(0o640), Nfs3Option::Some(first)), Ok(()));
        let second = client.attributes(&file).unwrap().ctime;
        assert_eq!(client.set(&file, mode(0o644), Nfs3Option::Some(first)), Err(NFS3ERR_NOT_SYNC));
        assert_eq!(client.attributes(&file).unwrap().mode, 0o640);
        assert_eq!(client.set(&file, mode(0o644), Nfs3Option::Some(second)), Ok(()));
        assert_eq!(client.attributes(&file).unwrap().mode, 0o644);
    });
}

#[test]
fn attributes_are_set_by_those_who_may() {
    each(|bed| {
        let mut stranger = bed.stranger();
        let is_told = bed.tells_users_apart();
        let Bed { client, root, .. } = bed;
        let file = client.file(root, "file", 0o644);
        if !is_told {
            // All files belong to the user who serves them.
            assert_eq!(client.set(&file, owner(1000, 1000), UNGUARDED), Err(NFS3ERR_PERM));
            return;
        }
        let time = nfstime3 { seconds: 1, nseconds: 0 };
        assert_eq!(stranger.set(&file, mode(0o666), UNGUARDED), Err(NFS3ERR_PERM));
        assert_eq!(stranger.set(&file, owner(1000, 1000), UNGUARDED), Err(NFS3ERR_PERM));
        assert_eq!(stranger.set(&file, times(time, time), UNGUARDED), Err(NFS3ERR_PERM));
        assert_eq!(stranger.set(&file, size(0), UNGUARDED), Err(NFS3ERR_ACCES));
        assert_eq!(client.set(&file, owner(1000, 1000), UNGUARDED), Ok(()));
        let given = client.attributes(&file).unwrap();
        assert_eq!((given.uid, given.gid), (1000, 1000));
        assert_eq!(stranger.set(&file, mode(0o600), UNGUARDED), Ok(()));
        // Nobody but root gives a file away, to a user or to a group of others.
        for (uid, gid) in [(0, 1000), (1000, 0), (1001, 1000), (1000, 1001)] {
            let ended = stranger.set(&file, owner(uid, gid), UNGUARDED);
            assert_eq!(ended, Err(NFS3ERR_PERM), "{uid} {gid}");
        }
        assert_eq!(stranger.set(&file, owner(1000, 1000), UNGUARDED), Ok(()));
    });
}

#[test]
fn access_is_what_the_permission_bits_give() {
    const READS: u32 = ACCESS3_READ;
    const WRITES: u32 = ACCESS3_MODIFY | ACCESS3_EXTEND;
    const SEARCHES: u32 = ACCESS3_LOOKUP;
    const RUNS: u32 = ACCESS3_EXECUTE;
    const ALL: u32 = READS | WRITES | SEARCHES | RUNS | ACCESS3_DELETE;
    each(|bed| {
        let (mut stranger, is_told) = (bed.stranger(), bed.tells_users_apart());
        let Bed { client, root, .. } = bed;
        for (bits, to_owner, to_others) in [
            (0o600, READS | WRITES, 0),
            (0o644, READS | WRITES, READS),
            (0o642, READS | WRITES, WRITES),
            (0o755, READS | WRITES | RUNS, READS | RUNS),
        ] {
            let file = client.file(root, &format!("file{bits}"), bits);
            assert_eq!(client.access(&file, ALL), Ok(to_owner), "{bits:o}");
            assert_eq!(client.access(&file, READS), Ok(READS), "only what is asked");
            let to_others = if is_told { to_others } else { to_owner };
            assert_eq!(stranger.access(&file, ALL), Ok(to_others), "{bits:o}");
        }
        let changes = WRITES | ACCESS3_DELETE;
        for (bits, to_others) in
            [(0o700, 0), (0o755, READS | SEARCHES), (0o703, SEARCHES | changes)]
        {
            let dir = client.mkdir(root, &format!("dir{bits}"), bits).unwrap();
            let to_owner = READS | SEARCHES | changes;
            assert_eq!(client.access(&dir, ALL), Ok(to_owner), "{bits:o}");
            let to_others = if is_told { to_others } else { to_owner };
            assert_eq!(stranger.access(&dir, ALL), Ok(to_others), "{bits:o}");
        }
    });
}

#[test]
fn the_file_system_says_what_it_can() {
    each(|Bed { client, root, .. }| {
        let info = now(client.nfs.fsinfo(&root.clone().into())).unwrap().unwrap();
        client.check(root, &info.obj_attributes);
        for (max, preferred, multiple) in
            [(info.rtmax, info.rtpref, info.rtmult), (info.wtmax, info.wtpref, info.wtmult)]
        {
            assert_eq!((max, preferred), (1 << 20, 1 << 20));
            assert!(multiple > 0 && max % multiple == 0);
        }
        assert!(info.dtpref >= 4096);
        assert_eq!(info.time_delta, nfstime3 { seconds: 0, nseconds: 1 });
        let all = FSF3_LINK | FSF3_SYMLINK | FSF3_HOMOGENEOUS | FSF3_CANSETTIME;
        assert_eq!(info.properties, all);
        let file = client.file(root, "file", 0o600);
        let too_far = size(info.maxfilesize.checked_add(1).unwrap());
        assert_eq!(client.set(&file, too_far, UNGUARDED), Err(NFS3ERR_FBIG));
        let full = client.write(&file, info.maxfilesize, b"x", stable_how::UNSTABLE);
        assert_eq!(full.unwrap_err(), NFS3ERR_FBIG);
    });
}

#[test]
fn the_file_system_says_how_full_it_is() {
    each(|Bed { client, root, .. }| {
        let told = now(client.nfs.fsstat(&root.clone().into())).unwrap().unwrap();
        client.check(root, &told.obj_attributes);
        assert!(told.tbytes > 0 && told.fbytes <= told.tbytes && told.abytes <= told.fbytes);
        assert!(told.ffiles <= told.tfiles && told.afiles <= told.ffiles);
        assert_eq!(told.invarsec, 0);
    });
}

#[test]
fn names_are_as_long_as_pathconf_says() {
    each(|Bed { client, root, .. }| {
        let told = now(client.nfs.pathconf(&root.clone().into())).unwrap().unwrap();
        client.check(root, &told.obj_attributes);
        assert!(told.linkmax > 1 && told.no_trunc && told.chown_restricted);
        assert!(!told.case_insensitive && told.case_preserving);
        let longest = told.name_max as usize;
        client.file(root, &"n".repeat(longest), 0o600);
        let longer = client.create(root, &"n".repeat(longest + 1), createhow3::GUARDED(mode(0)));
        assert_eq!(longer, Err(NFS3ERR_NAMETOOLONG));
        client.file(root, "Case", 0o600);
        assert_eq!(client.lookup(root, "case"), Err(NFS3ERR_NOENT));
    });
}
