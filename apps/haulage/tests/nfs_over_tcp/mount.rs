//! MOUNT version 3: NULL, MNT, DUMP, UMNT, UMNTALL and EXPORT.

use nfs3_client::nfs3_types::mount::{dirpath, mountstat3};
use nfs3_client::nfs3_types::xdr_codec::Opaque;
use nfs3_client::{MountError, RpcError};

use crate::bed::{Bed, Kind, ROOT, Server, each};
use crate::client::{Client, now};

fn path(path: &str) -> dirpath<'_> {
    dirpath(Opaque::borrowed(path.as_bytes()))
}

/// Returns the number of a status; the client's own cannot be compared.
fn refused(client: &mut Client, path: &str) -> u32 {
    client.mount(path).unwrap_err() as u32
}

/// Returns who mounted what, as far as the server knows.
fn dump(client: &mut Client) -> Vec<(String, String)> {
    let mounts = now(client.mounts.dump()).unwrap().0.into_iter();
    let text = |opaque: Opaque<'_>| String::from_utf8(opaque.into_owned()).unwrap();
    mounts.map(|mount| (text(mount.ml_hostname.0), text(mount.ml_directory.0))).collect()
}

/// Returns what is exported, and to whom.
fn exports(client: &mut Client) -> Vec<(String, Vec<String>)> {
    let exports = now(client.mounts.export()).unwrap().0.into_iter();
    let text = |opaque: Opaque<'_>| String::from_utf8(opaque.into_owned()).unwrap();
    exports
        .map(|export| {
            let groups = export.ex_groups.0.into_iter().map(|group| text(group.0)).collect();
            (text(export.ex_dir.0), groups)
        })
        .collect()
}

#[test]
fn directories_are_mounted_by_their_paths() {
    each(|bed| {
        let (mut stranger, is_told) = (bed.stranger(), bed.tells_users_apart());
        let Bed { client, root, .. } = bed;
        now(client.mounts.null()).unwrap();
        let dir = client.mkdir(root, "dir", 0o700).unwrap();
        let sub = client.mkdir(&dir, "sub", 0o755).unwrap();
        client.file(&dir, "file", 0o600);
        client.symlink(root, "link", b"dir").unwrap();
        for (path, expected) in [("/", &*root), ("/dir", &dir), ("/dir/sub", &sub)] {
            assert_eq!(client.mount(path).ok().as_ref(), Some(expected), "{path}");
        }
        let longest = format!("/{}", "n".repeat(256));
        for (path, status) in [
            ("/none", mountstat3::MNT3ERR_NOENT),
            ("/dir/none", mountstat3::MNT3ERR_NOENT),
            ("/dir/file", mountstat3::MNT3ERR_NOTDIR),
            ("/dir/file/name", mountstat3::MNT3ERR_NOTDIR),
            ("/link", mountstat3::MNT3ERR_NOTDIR),
            ("dir", mountstat3::MNT3ERR_INVAL),
            (&longest, mountstat3::MNT3ERR_NAMETOOLONG),
        ] {
            assert_eq!(refused(client, path), status as u32, "{path}");
        }
        // Longer than a path may be on the wire.
        let ended = now(client.mounts.mnt(path(&format!("/{}", "n/".repeat(512)))));
        assert!(matches!(ended, Err(MountError::Rpc(RpcError::GarbageArgs))), "{ended:?}");
        match stranger.mount("/dir/sub") {
            Ok(found) => assert!(!is_told && found == sub),
            Err(status) => {
                assert!(is_told);
                assert_eq!(status as u32, mountstat3::MNT3ERR_ACCES as u32);
            }
        }
    });
}

#[test]
fn mounts_are_listed_until_they_end() {
    each(|Bed { client, root, .. }| {
        for name in ["a", "b", "c"] {
            client.mkdir(root, name, 0o700).unwrap();
            client.mount(&format!("/{name}")).unwrap();
            // A second MNT of the same path adds no entry.
            client.mount(&format!("/{name}")).unwrap();
        }
        assert!(client.mount("/none").is_err());
        let ours = |paths: &[&str]| -> Vec<_> {
            paths.iter().map(|path| ("127.0.0.1".to_owned(), (*path).to_owned())).collect()
        };
        assert_eq!(dump(client), ours(&["/", "/a", "/b", "/c"]));
        now(client.mounts.umnt(path("/b"))).unwrap();
        now(client.mounts.umnt(path("/none"))).unwrap();
        assert_eq!(dump(client), ours(&["/", "/a", "/c"]));
        now(client.mounts.umntall()).unwrap();
        assert_eq!(dump(client), []);
        assert_eq!(exports(client), [("/".to_owned(), vec![])]);
    });
}

#[test]
fn only_allowed_clients_mount() {
    for kind in Kind::all() {
        let here = Server::start(kind, &["--allow", "127.0.0.0/8", "--allow", "192.0.2.0/24"]);
        let mut client = Client::new(&here, ROOT);
        assert!(client.mount("/").is_ok());
        let networks = ["127.0.0.0/8", "192.0.2.0/24"].map(str::to_owned).to_vec();
        assert_eq!(exports(&mut client), [("/".to_owned(), networks)]);

        let elsewhere = Server::start(kind, &["--allow", "192.0.2.0/24"]);
        let mut client = Client::new(&elsewhere, ROOT);
        now(client.mounts.null()).unwrap();
        assert_eq!(refused(&mut client, "/"), mountstat3::MNT3ERR_ACCES as u32);
        // Any other Call of a client that no --allow names ends its connection without a Reply.
        assert!(matches!(now(client.nfs.null()), Err(RpcError::Io(_))));
        assert!(matches!(now(client.mounts.dump()), Err(RpcError::Io(_))));
    }
}
