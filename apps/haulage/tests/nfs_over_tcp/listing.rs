//! READDIR and READDIRPLUS.

use std::collections::BTreeSet;

use nfs3_client::nfs3_types::nfs3::nfsstat3::*;
use nfs3_client::nfs3_types::nfs3::*;
use nfs3_client::nfs3_types::xdr_codec::Pack;

use crate::bed::{Bed, each};
use crate::client::{Client, Ended, now};

/// Where a listing goes on.
type From = (cookie3, cookieverf3);

const START: From = (0, cookieverf3([0; 8]));

impl Client {
    fn read_dir(
        &mut self,
        dir: &nfs_fh3,
        (cookie, cookieverf): From,
        count: u32,
    ) -> Ended<READDIR3resok<'static>> {
        let asked = READDIR3args { dir: dir.clone(), cookie, cookieverf, count };
        match now(self.nfs.readdir(&asked)).unwrap() {
            Nfs3Result::Ok(done) => {
                assert!(done.packed_size() <= count as usize, "{count}");
                self.check(dir, &done.dir_attributes);
                Ok(done)
            }
            Nfs3Result::Err((status, rest)) => {
                self.check(dir, &rest.dir_attributes);
                Err(status)
            }
        }
    }

    fn read_dir_plus(
        &mut self,
        dir: &nfs_fh3,
        (cookie, cookieverf): From,
        (dircount, maxcount): (u32, u32),
    ) -> Ended<READDIRPLUS3resok<'static>> {
        let asked = READDIRPLUS3args { dir: dir.clone(), cookie, cookieverf, dircount, maxcount };
        match now(self.nfs.readdirplus(&asked)).unwrap() {
            Nfs3Result::Ok(done) => {
                assert!(done.packed_size() <= maxcount as usize, "{maxcount}");
                let names = done.reply.entries.0.iter().map(|e| 8 + e.name.packed_size() + 8);
                assert!(names.sum::<usize>() <= dircount as usize, "{dircount}");
                self.check(dir, &done.dir_attributes);
                Ok(done)
            }
            Nfs3Result::Err((status, rest)) => {
                self.check(dir, &rest.dir_attributes);
                Err(status)
            }
        }
    }

    /// Lists a directory to its end. Calls `between` after each Reply with the names that it has.
    fn names(
        &mut self,
        dir: &nfs_fh3,
        count: u32,
        mut between: impl FnMut(&mut Self, &[String]),
    ) -> Vec<String> {
        let (mut from, mut names) = (START, Vec::new());
        loop {
            let READDIR3resok { cookieverf, reply, .. } = self.read_dir(dir, from, count).unwrap();
            let signed = reply.entries.0.iter().all(|entry| i64::try_from(entry.cookie).is_ok());
            assert!(signed, "a cookie is an offset in the client's directory");
            let these: Vec<_> = reply.entries.0.iter().map(|entry| text(&entry.name)).collect();
            between(self, &these);
            names.extend(these);
            if reply.eof {
                return names;
            }
            // A Reply without names has to be the last.
            from = (reply.entries.0.last().unwrap().cookie, cookieverf);
        }
    }
}

fn text(name: &filename3<'_>) -> String {
    String::from_utf8(name.as_ref().to_vec()).unwrap()
}

/// Makes a directory with `count` files, and returns its handle and the names of its entries.
fn full(client: &mut Client, root: &nfs_fh3, count: usize) -> (nfs_fh3, BTreeSet<String>) {
    let dir = client.mkdir(root, "full", 0o700).unwrap();
    let mut names: BTreeSet<_> = [".", ".."].map(str::to_owned).into();
    for at in 0..count {
        let name = format!("{}{at}", "n".repeat(at % 50));
        client.file(&dir, &name, 0o600);
        names.insert(name);
    }
    (dir, names)
}

#[test]
fn every_name_is_listed_once() {
    each(|Bed { client, root, .. }| {
        let (dir, expected) = full(client, root, 60);
        for count in [256, 1000, 4096, 1 << 20] {
            let mut calls = 0;
            let names = client.names(&dir, count, |_, _| calls += 1);
            assert_eq!(names.len(), expected.len(), "{count}");
            assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), expected, "{count}");
            assert!(calls > 1 || count > 1000, "{count}");
        }
        let empty = client.mkdir(root, "empty", 0o700).unwrap();
        assert_eq!(client.names(&empty, 4096, |_, _| {}), [".", ".."]);
    });
}

#[test]
fn entries_are_what_lookup_finds() {
    each(|Bed { client, root, .. }| {
        let dir = client.mkdir(root, "dir", 0o700).unwrap();
        client.file(&dir, "file", 0o600);
        client.mkdir(&dir, "sub", 0o700).unwrap();
        client.symlink(&dir, "link", b"to").unwrap();
        let reply = client.read_dir(&dir, START, 4096).unwrap().reply;
        assert_eq!((reply.entries.0.len(), reply.eof), (5, true));
        for entry in reply.entries.0 {
            let found = client.lookup(&dir, &text(&entry.name)).unwrap();
            assert_eq!(entry.fileid, client.attributes(&found).unwrap().fileid, "{entry:?}");
        }
        let reply = client.read_dir_plus(&dir, START, (4096, 4096)).unwrap().reply;
        assert_eq!((reply.entries.0.len(), reply.eof), (5, true));
        for entry in reply.entries.0 {
            let found = client.lookup(&dir, &text(&entry.name)).unwrap();
            assert_eq!(entry.fileid, client.attributes(&found).unwrap().fileid, "{entry:?}");
            assert!(entry.name_attributes.is_some(), "{entry:?}");
            client.check(&found, &entry.name_attributes);
            assert_eq!(entry.name_handle, Nfs3Option::Some(found));
        }
    });
}

#[test]
fn both_bounds_of_a_listing_with_attributes_hold() {
    each(|Bed { client, root, .. }| {
        let (dir, expected) = full(client, root, 60);
        for bounds in [(128, 1 << 16), (1 << 16, 1024), (512, 4096), (1 << 16, 1 << 16)] {
            let (mut from, mut names) = (START, Vec::new());
            loop {
                let page = client.read_dir_plus(&dir, from, bounds).unwrap();
                names.extend(page.reply.entries.0.iter().map(|entry| text(&entry.name)));
                if page.reply.eof {
                    break;
                }
                from = (page.reply.entries.0.last().unwrap().cookie, page.cookieverf);
            }
            assert_eq!(names.len(), expected.len(), "{bounds:?}");
            assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), expected, "{bounds:?}");
        }
    });
}

#[test]
fn a_cookie_lasts_while_names_come_and_go() {
    each(|Bed { client, root, .. }| {
        let (dir, expected) = full(client, root, 60);
        let mut page = 0;
        let names = client.names(&dir, 512, |client, listed| {
            page += 1;
            client.file(&dir, &format!("new{page}"), 0o600);
            // All names are removed, the last included, whose cookie says where to go on.
            for name in listed.iter().filter(|name| expected.contains(*name)) {
                if ![".", ".."].contains(&&**name) {
                    client.remove(&dir, name).unwrap();
                }
            }
        });
        assert!(page > 3, "{page}");
        let listed: BTreeSet<_> = names.iter().cloned().collect();
        assert_eq!(listed.len(), names.len());
        assert_eq!(expected.difference(&listed).collect::<Vec<_>>(), [""; 0]);
    });
}

#[test]
fn a_listing_that_cannot_go_on_is_refused() {
    each(|bed| {
        let (mut stranger, is_told) = (bed.stranger(), bed.tells_users_apart());
        let Bed { client, root, .. } = bed;
        let (dir, _) = full(client, root, 3);
        let first = client.read_dir(&dir, START, 4096).unwrap();
        let (cookie, mut verifier) = (first.reply.entries.0[3].cookie, first.cookieverf);
        // Behind the last name there is the end.
        let last = (first.reply.entries.0[4].cookie, verifier);
        let end = client.read_dir(&dir, last, 4096).unwrap().reply;
        assert!(end.entries.0.is_empty() && end.eof);
        // The end is also at the greatest offset, and above, where earlier versions saw the end of an ext4 directory.
        for above in [i64::MAX.cast_unsigned(), 0x8000_0000_0000_0001] {
            let end = client.read_dir(&dir, (above, verifier), 4096).unwrap().reply;
            assert!(end.entries.0.is_empty() && end.eof, "{above:x}");
        }
        verifier.0[0] ^= 1;
        let refused = client.read_dir(&dir, (cookie, verifier), 4096);
        assert_eq!(refused.unwrap_err(), NFS3ERR_BAD_COOKIE);
        let refused = client.read_dir_plus(&dir, (cookie, verifier), (4096, 4096));
        assert_eq!(refused.unwrap_err(), NFS3ERR_BAD_COOKIE);

        for count in [0, 16, 120] {
            let refused = client.read_dir(&dir, START, count).unwrap_err();
            assert_eq!(refused, NFS3ERR_TOOSMALL, "{count}");
            let refused = client.read_dir_plus(&dir, START, (4096, count)).unwrap_err();
            assert_eq!(refused, NFS3ERR_TOOSMALL, "{count}");
        }
        let refused = client.read_dir_plus(&dir, START, (10, 4096));
        assert_eq!(refused.unwrap_err(), NFS3ERR_TOOSMALL);
        let file = client.lookup(&dir, "0").unwrap();
        assert_eq!(client.read_dir(&file, START, 4096).unwrap_err(), NFS3ERR_NOTDIR);
        let refused = client.read_dir_plus(&file, START, (4096, 4096));
        assert_eq!(refused.unwrap_err(), NFS3ERR_NOTDIR);
        let expected = if is_told { Some(NFS3ERR_ACCES) } else { None };
        assert_eq!(stranger.read_dir(&dir, START, 4096).err(), expected);
        assert_eq!(stranger.read_dir_plus(&dir, START, (4096, 4096)).err(), expected);
    });
}

#[test]
fn who_may_not_search_a_directory_is_told_its_names_alone() {
    each(|bed| {
        let mut stranger = bed.stranger();
        if !bed.tells_users_apart() {
            return;
        }
        let Bed { client, root, .. } = bed;
        let dir = client.mkdir(root, "dir", 0o704).unwrap();
        client.file(&dir, "file", 0o600);
        let reply = stranger.read_dir_plus(&dir, START, (4096, 4096)).unwrap().reply;
        let file = reply.entries.0.iter().find(|entry| text(&entry.name) == "file").unwrap();
        assert!(file.name_handle.is_none() && file.name_attributes.is_none(), "{file:?}");
    });
}
