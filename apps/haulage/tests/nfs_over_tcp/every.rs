//! What holds of every procedure.

use std::fs;

use nfs3_client::nfs3_types::nfs3::nfsstat3::*;
use nfs3_client::nfs3_types::nfs3::*;
use nfs3_client::nfs3_types::xdr_codec::Opaque;

use crate::bed::{Bed, Export, Kind, each};
use crate::client::{Client, Ended, mode, now};

/// How a procedure ends for a file, or for a name in it.
type Call = fn(&mut Client, &nfs_fh3, &str) -> nfsstat3;

fn status<T>(ended: Ended<T>) -> nfsstat3 {
    ended.err().unwrap_or(NFS3_OK)
}

fn ended<T, E>(result: Nfs3Result<T, E>) -> nfsstat3 {
    match result {
        Nfs3Result::Ok(_) => NFS3_OK,
        Nfs3Result::Err((status, _)) => status,
    }
}

/// The procedures that only look.
const LOOKS: [(&str, Call); 10] = [
    ("GETATTR", |client, file, _| status(client.attributes(file))),
    ("LOOKUP", |client, dir, name| status(client.lookup(dir, name))),
    ("ACCESS", |client, file, _| status(client.access(file, ACCESS3_READ))),
    ("READLINK", |client, link, _| status(client.read_link(link))),
    ("READ", |client, file, _| status(client.read(file, 0, 1))),
    ("READDIR", |client, dir, _| {
        let cookieverf = cookieverf3::default();
        let asked = READDIR3args { dir: dir.clone(), cookie: 0, cookieverf, count: 4096 };
        ended(now(client.nfs.readdir(&asked)).unwrap())
    }),
    ("READDIRPLUS", |client, dir, _| {
        let (dir, cookieverf) = (dir.clone(), cookieverf3::default());
        let (dircount, maxcount) = (4096, 4096);
        let asked = READDIRPLUS3args { dir, cookie: 0, cookieverf, dircount, maxcount };
        ended(now(client.nfs.readdirplus(&asked)).unwrap())
    }),
    ("FSSTAT", |client, file, _| ended(now(client.nfs.fsstat(&file.clone().into())).unwrap())),
    ("FSINFO", |client, file, _| ended(now(client.nfs.fsinfo(&file.clone().into())).unwrap())),
    ("PATHCONF", |client, file, _| ended(now(client.nfs.pathconf(&file.clone().into())).unwrap())),
];

/// The procedures that may change the file, or names in it.
const CHANGES: [(&str, Call); 13] = [
    ("SETATTR", |client, file, _| status(client.set(file, mode(0o600), Nfs3Option::None))),
    ("WRITE", |client, file, _| status(client.write(file, 0, b"x", stable_how::UNSTABLE))),
    ("CREATE", |client, dir, name| {
        status(client.create(dir, name, createhow3::GUARDED(mode(0o600))))
    }),
    ("MKDIR", |client, dir, name| status(client.mkdir(dir, name, 0o700))),
    ("SYMLINK", |client, dir, name| status(client.symlink(dir, name, b"to"))),
    ("MKNOD", |client, dir, name| {
        status(client.mknod(dir, name, mknoddata3::NF3FIFO(mode(0o600))))
    }),
    ("REMOVE", |client, dir, name| status(client.remove(dir, name))),
    ("RMDIR", |client, dir, name| status(client.rmdir(dir, name))),
    ("RENAME from", |client, dir, name| {
        let root = client.mount("/").unwrap();
        status(client.rename((dir, name), (&root, "to")))
    }),
    ("RENAME to", |client, dir, name| {
        let root = client.mount("/").unwrap();
        status(client.rename((&root, "there"), (dir, name)))
    }),
    ("LINK of", |client, file, _| {
        let root = client.mount("/").unwrap();
        status(client.link(file, &root, "linked"))
    }),
    ("LINK in", |client, dir, name| {
        let root = client.mount("/").unwrap();
        let there = client.lookup(&root, "there").unwrap();
        status(client.link(&there, dir, name))
    }),
    ("COMMIT", |client, file, _| status(client.commit(file))),
];

#[test]
fn what_is_no_handle_opens_nothing() {
    each(|Bed { client, root, .. }| {
        client.file(root, "there", 0o600);
        let mut forged = root.data.to_vec();
        *forged.last_mut().unwrap() ^= 1;
        let malformed = [vec![], vec![7], vec![0; 64]].map(|octets| (octets, NFS3ERR_BADHANDLE));
        // The forged handle could be that of an earlier run of the server, whose key is gone, so it is stale.
        for (octets, expected) in malformed.into_iter().chain([(forged, NFS3ERR_STALE)]) {
            let handle = nfs_fh3 { data: Opaque::owned(octets) };
            for (name, call) in LOOKS.into_iter().chain(CHANGES) {
                let status = call(client, &handle, "name");
                assert_eq!(status, expected, "{name} of {:?}", handle.data);
            }
        }
    });
}

#[test]
fn what_was_removed_is_stale() {
    each(|Bed { client, root, .. }| {
        client.file(root, "there", 0o600);
        let (file, dir) = (client.file(root, "file", 0o600), client.mkdir(root, "dir", 0o700));
        client.remove(root, "file").unwrap();
        client.rmdir(root, "dir").unwrap();
        for gone in [file, dir.unwrap()] {
            for (name, call) in LOOKS.into_iter().chain(CHANGES) {
                assert_eq!(call(client, &gone, "name"), NFS3ERR_STALE, "{name}");
            }
        }
    });
}

#[test]
fn nothing_changes_on_an_export_that_is_read_only() {
    for kind in Kind::all() {
        let Bed { server, mut client, root } = Bed::new(kind, &["--read-only"]);
        let changes = CHANGES.into_iter().filter(|(name, _)| !name.starts_with("LINK"));
        for (name, call) in changes {
            assert_eq!(call(&mut client, &root, "name"), NFS3ERR_ROFS, "{name}");
        }
        for (name, call) in LOOKS {
            assert_ne!(call(&mut client, &root, "."), NFS3ERR_ROFS, "{name}");
        }
        let rights = client.access(&root, ACCESS3_READ | ACCESS3_MODIFY | ACCESS3_DELETE);
        assert_eq!(rights, Ok(ACCESS3_READ));
        // Files that are there can be made in a directory alone, behind the server's back.
        if kind.export == Export::Directory {
            fs::write(server.path("there"), b"octets").unwrap();
            let file = client.lookup(&root, "there").unwrap();
            assert_eq!(client.read(&file, 0, 9), Ok((b"octets".to_vec(), true)));
            for (name, call) in CHANGES {
                let (file, name_there) = match name {
                    "SETATTR" | "WRITE" | "COMMIT" | "LINK of" => (&file, "name"),
                    _ => (&root, "there"),
                };
                assert_eq!(call(&mut client, file, name_there), NFS3ERR_ROFS, "{name}");
            }
            assert_eq!(fs::read(server.path("there")).unwrap(), b"octets");
            assert_eq!(fs::read_dir(server.path("")).unwrap().count(), 1);
        }
    }
}
