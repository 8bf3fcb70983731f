//! Other file systems that are mounted below the exported directory: each is shown as an empty directory.

use std::fs;

use nfs3_client::nfs3_types::nfs3::nfsstat3::*;
use nfs3_client::nfs3_types::nfs3::*;

use crate::bed::{Bed, Export, Kind, Namespaces, STRANGER, TRUSTING, User};
use crate::client::{Client, Ended, mode, now};

/// Mounts with a file in it, on a directory with another; a bind mount on a file; and one whose file system never
/// answers, as that of a server that is gone: it is FUSE's, and nobody reads what it asks.
const MOUNTS: &str = "mount -t tmpfs none dir/inner && touch dir/inner/hidden && \
    mount --bind dir/inner/hidden dir/file && exec 9<>/dev/fuse && \
    mount -i -t fuse -o fd=9,rootmode=40000,user_id=0,group_id=0 none dir/silent";

/// The names in `dir` where something is mounted.
const MOUNTED: [&str; 3] = ["file", "inner", "silent"];

/// Runs a test in each kind of namespaces that can be made here, in which `dir` has `covered` beside what is mounted.
fn each(test: impl Fn(&mut Bed)) {
    // In a user namespace the system opens no file by its file system's handle.
    for flags in ["-m", "-Urm"] {
        let kind = Kind { export: Export::Directory, user: User::Tester };
        let mut bed = Bed::new(kind, &[]);
        let dir = bed.server.path("dir");
        for made in ["", "inner", "silent", "inner/covered"] {
            fs::create_dir(dir.join(made)).unwrap();
        }
        fs::write(dir.join("file"), b"covered").unwrap();
        let namespaces = Namespaces { flags, mounts: MOUNTS };
        if !namespaces.can_be_made(dir.parent().unwrap()) {
            eprintln!("skipped: this machine lets its users mount nothing by `unshare {flags}`");
            continue;
        }
        eprintln!("{namespaces:?}");
        restart(&mut bed, Some(namespaces));
        test(&mut bed);
    }
}

fn restart(Bed { server, client, .. }: &mut Bed, namespaces: Option<Namespaces>) {
    server.namespaces = namespaces;
    server.restart(TRUSTING);
    *client = Client::new(server, (0, 0));
}

/// Returns the names of a directory with their numbers, which its list and its long list agree on.
fn list(client: &mut Client, dir: &nfs_fh3) -> Vec<(String, u64)> {
    let name = |name: &filename3<'_>| String::from_utf8(name.as_ref().to_vec()).unwrap();
    let (dir, cookie, cookieverf) = (dir.clone(), 0, cookieverf3::default());
    let asked = READDIRPLUS3args { dir, cookie, cookieverf, dircount: 8192, maxcount: 32768 };
    let Nfs3Result::Ok(long) = now(client.nfs.readdirplus(&asked)).unwrap() else {
        panic!("it can be listed")
    };
    let READDIRPLUS3args { dir, cookie, cookieverf, .. } = asked;
    let asked = READDIR3args { dir, cookie, cookieverf, count: 8192 };
    let Nfs3Result::Ok(short) = now(client.nfs.readdir(&asked)).unwrap() else {
        panic!("it can be listed")
    };
    assert!(long.reply.eof && short.reply.eof);
    for entry in &long.reply.entries.0 {
        let (Nfs3Option::Some(file), Nfs3Option::Some(told)) =
            (&entry.name_handle, &entry.name_attributes)
        else {
            panic!("{entry:?}")
        };
        assert_eq!(told.fileid, entry.fileid, "{entry:?}");
        client.check(file, &entry.name_attributes);
    }
    let long = long.reply.entries.0.iter().map(|entry| (name(&entry.name), entry.fileid));
    let short = short.reply.entries.0.iter().map(|entry| (name(&entry.name), entry.fileid));
    let (long, mut short): (Vec<_>, Vec<_>) = (long.collect(), short.collect());
    assert_eq!(long, short);
    short.sort();
    short
}

#[test]
fn what_is_mounted_below_is_an_empty_directory() {
    each(|Bed { server, client, root }| {
        let dir = client.lookup(root, "dir").unwrap();
        let outer = client.attributes(&dir).unwrap();
        let listed = list(client, &dir);
        let names: Vec<_> = listed.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, [".", "..", "file", "inner", "silent"]);
        for name in MOUNTED {
            let inner = client.lookup(&dir, name).unwrap();
            let told = client.attributes(&inner).unwrap();
            assert!(matches!(told.type_, ftype3::NF3DIR), "{name}: {told:?}");
            assert_eq!((told.mode, told.nlink, told.fsid), (0o555, 2, outer.fsid), "{name}");
            assert!(listed.contains(&(name.to_owned(), told.fileid)), "{name} in {listed:?}");
            let own = [(".".to_owned(), told.fileid), ("..".to_owned(), outer.fileid)];
            assert_eq!(list(client, &inner), own, "{name}");
            for below in ["hidden", "covered"] {
                assert_eq!(client.lookup(&inner, below), Err(NFS3ERR_NOENT), "{name}");
            }
            assert_eq!(client.lookup(&inner, "."), Ok(inner.clone()));
            assert_eq!(client.lookup(&inner, ".."), Ok(dir.clone()));
            assert_eq!(client.mount(&format!("/dir/{name}")).unwrap(), inner);
            let mut stranger = Client::new(server, STRANGER);
            for client in [&mut *client, &mut stranger] {
                let may = ACCESS3_READ | ACCESS3_LOOKUP;
                assert_eq!(client.access(&inner, 0x3f), Ok(may), "{name}");
            }
        }
    });
}

#[test]
fn nobody_changes_a_place_where_something_is_mounted() {
    each(|Bed { server, client, root }| {
        let file = client.file(root, "plain", 0o666);
        let outer = client.lookup(root, "dir").unwrap();
        let mut stranger = Client::new(server, STRANGER);
        for name in MOUNTED {
            let dir = client.lookup(&outer, name).unwrap();
            for client in [&mut *client, &mut stranger] {
                let how = createhow3::UNCHECKED(sattr3::default());
                let special = mknoddata3::NF3FIFO(sattr3::default());
                let stable = stable_how::FILE_SYNC;
                let ended: [Ended<()>; 11] = [
                    client.set(&dir, mode(0o777), sattrguard3::None),
                    client.write(&dir, 0, b"octets", stable).map(drop),
                    client.create(&dir, "new", how).map(drop),
                    client.mkdir(&dir, "new", 0o777).map(drop),
                    client.symlink(&dir, "new", b"to").map(drop),
                    client.mknod(&dir, "new", special).map(drop),
                    client.remove(&dir, "hidden"),
                    client.rmdir(&dir, "covered"),
                    client.rename((&dir, "hidden"), (root, "hidden")),
                    client.rename((root, "plain"), (&dir, "new")),
                    client.link(&file, &dir, "new"),
                ];
                assert_eq!(ended, [Err(NFS3ERR_ROFS); 11], "{name}");
            }
            // A name on which something is mounted can be neither removed nor replaced.
            assert_eq!(client.rmdir(&outer, name), Err(NFS3ERR_ACCES), "{name}");
            assert_eq!(client.remove(&outer, name), Err(NFS3ERR_ISDIR), "{name}");
            assert_eq!(client.mkdir(&outer, name, 0o777), Err(NFS3ERR_EXIST), "{name}");
            let how = createhow3::GUARDED(sattr3::default());
            assert_eq!(client.create(&outer, name, how), Err(NFS3ERR_EXIST), "{name}");
            assert_eq!(client.link(&file, &outer, name), Err(NFS3ERR_EXIST), "{name}");
            let moved = client.rename((&outer, name), (root, "moved"));
            assert_eq!(moved, Err(NFS3ERR_ACCES), "{name}");
            client.mkdir(root, "other", 0o777).unwrap();
            let replaced = client.rename((root, "other"), (&outer, name));
            assert!(matches!(replaced, Err(NFS3ERR_ACCES | NFS3ERR_EXIST)), "{name}: {replaced:?}");
            client.rmdir(root, "other").unwrap();
            assert_eq!(client.lookup(&outer, name), Ok(dir));
        }
    });
}

#[test]
fn the_handle_of_a_place_lasts_while_something_is_mounted_there() {
    each(|bed| {
        let dir = bed.client.lookup(&bed.root, "dir").unwrap();
        let of_all = |client: &mut Client| MOUNTED.map(|name| client.lookup(&dir, name).unwrap());
        let stand_ins = of_all(&mut bed.client);
        let with = bed.server.namespaces;
        restart(bed, with);
        for stand_in in &stand_ins {
            assert!(bed.client.attributes(stand_in).is_ok());
        }
        assert_eq!(of_all(&mut bed.client), stand_ins);
        // Without the mounts, the covered files are there, under handles of their own.
        restart(bed, None);
        for stand_in in &stand_ins {
            let ended = bed.client.attributes(stand_in).map(drop);
            assert_eq!(ended, Err(NFS3ERR_STALE));
        }
        let covered = of_all(&mut bed.client);
        assert!(bed.client.lookup(&covered[1], "covered").is_ok());
        restart(bed, with);
        for covered in &covered {
            // A covered file is opened by its handle or is stale; JUKEBOX would have clients ask for ever.
            let ended = bed.client.attributes(covered).map(drop);
            assert_ne!(ended, Err(NFS3ERR_JUKEBOX));
        }
        assert_eq!(of_all(&mut bed.client), stand_ins);
    });
}
