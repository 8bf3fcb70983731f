//! Directories and files whose permission bits keep the server's own user out, or allow less than everything.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use nfs3_client::nfs3_types::nfs3::nfsstat3::*;
use nfs3_client::nfs3_types::nfs3::*;

use crate::bed::{Bed, Export, Kind, User, each};
use crate::client::{at, mode, now};

#[test]
fn a_directory_changes_though_its_owner_may_not_read_it() {
    each(|Bed { client, root, .. }| {
        for bits in [0, 0o300] {
            let name = format!("{bits:o}");
            let dir = client.mkdir(root, &name, bits).unwrap();
            assert_eq!(client.attributes(&dir).unwrap().mode, bits);
            for again in [0o755, bits] {
                client.set(&dir, mode(again), sattrguard3::None).unwrap();
                assert_eq!(client.attributes(&dir).unwrap().mode, again);
            }
            let mtime = set_mtime::SET_TO_SERVER_TIME;
            client.set(&dir, sattr3 { mtime, ..sattr3::default() }, sattrguard3::None).unwrap();
            assert_eq!(client.attributes(&dir).unwrap().mode, bits);
        }
        let dir = client.lookup(root, "300").unwrap();
        client.file(&dir, "file", 0o600);
        client.mkdir(&dir, "sub", 0).unwrap();
        client.symlink(&dir, "link", b"to").unwrap();
        client.rename((&dir, "file"), (&dir, "other")).unwrap();
        client.rename((&dir, "other"), (root, "out")).unwrap();
        let out = client.lookup(root, "out").unwrap();
        client.link(&out, &dir, "file").unwrap();
        client.remove(&dir, "file").unwrap();
        client.remove(&dir, "link").unwrap();
        client.rmdir(&dir, "sub").unwrap();
        assert_eq!(client.attributes(&dir).unwrap().mode, 0o300);
        client.rmdir(root, "300").unwrap();
    });
}

#[test]
fn a_directory_is_listed_though_its_owner_may_not_search_it() {
    each(|Bed { client, root, .. }| {
        let dir = client.mkdir(root, "dir", 0o700).unwrap();
        client.file(&dir, "file", 0o600);
        let numbers = |client: &mut crate::client::Client| {
            let (cookie, cookieverf) = (0, cookieverf3::default());
            let asked = READDIR3args { dir: dir.clone(), cookie, cookieverf, count: 4096 };
            let Nfs3Result::Ok(listed) = now(client.nfs.readdir(&asked)).unwrap() else {
                panic!("it can be listed")
            };
            let name = |entry: &entry3<'_>| (entry.name.as_ref().to_vec(), entry.fileid);
            listed.reply.entries.0.iter().map(name).collect::<Vec<_>>()
        };
        let before = numbers(client);
        assert_eq!(before.len(), 3);
        client.set(&dir, mode(0o400), sattrguard3::None).unwrap();
        assert_eq!(numbers(client), before);
    });
}

#[test]
fn what_another_user_lets_all_write_and_none_read_is_written() {
    let kind = Kind { export: Export::Directory, user: User::Nobody };
    if !Kind::all().iter().any(|other| other.user == kind.user) {
        return eprintln!("skipped: only root can make files of two users");
    }
    for options in [&[][..], &["--direct"]] {
        let Bed { server, mut client, root } = Bed::new(kind, options);
        let (dir, file) = (server.path("dir"), server.path("dir/file"));
        fs::create_dir(&dir).unwrap();
        fs::write(&file, b"before").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o222)).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o333)).unwrap();
        let dir = client.lookup(&root, "dir").unwrap();
        client.file(&dir, "made", 0o600);
        client.rename((&dir, "made"), (&dir, "moved")).unwrap();
        client.remove(&dir, "moved").unwrap();
        let file = now(client.nfs.lookup(&LOOKUP3args { what: at(&dir, "file") })).unwrap();
        let file = file.unwrap().object;
        client.write(&file, 0, &[b'x'; 4096], stable_how::UNSTABLE).unwrap();
        client.write(&file, 4096, b"after", stable_how::FILE_SYNC).unwrap();
        client.commit(&file).unwrap();
        assert_eq!(client.read(&file, 0, 1), Err(NFS3ERR_ACCES));
        let written = fs::read(server.path("dir/file")).unwrap();
        assert!(written == [&[b'x'; 4096][..], b"after"].concat());
    }
}
