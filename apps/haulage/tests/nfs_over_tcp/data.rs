//! READ, WRITE and COMMIT.

use nfs3_client::nfs3_types::nfs3::nfsstat3::*;
use nfs3_client::nfs3_types::nfs3::*;
use nfs3_client::nfs3_types::xdr_codec::Opaque;

use crate::bed::{Bed, Export, Kind, Namespaces, ROOT, STRANGER, TRUSTING, User, each};
use crate::client::{Client, Ended, now};

const STABILITIES: [stable_how; 3] =
    [stable_how::UNSTABLE, stable_how::DATA_SYNC, stable_how::FILE_SYNC];

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 7 + at / 251) % 256).unwrap()).collect()
}

#[test]
fn what_is_written_is_read() {
    each(|Bed { client, root, .. }| {
        let file = client.file(root, "file", 0o600);
        for stable in STABILITIES {
            for (offset, length) in [(0, 1), (1, 4096), (4097, 65_537), (69_634, 1 << 20)] {
                let octets = pattern(length);
                let written = client.write(&file, offset, &octets, stable).unwrap();
                assert_eq!(written.count as usize, length);
                assert!(written.committed as u32 >= stable as u32, "{written:?}");
                let count = u32::try_from(length).unwrap();
                let (read, _) = client.read(&file, offset, count).unwrap();
                assert!(read == octets, "{length} at {offset}");
            }
        }
        assert_eq!(client.attributes(&file).unwrap().size, 69_634 + (1 << 20));
        let (read, _) = client.read(&file, 0, 4).unwrap();
        assert_eq!(read, [0, 0, 7, 14]);
    });
}

#[test]
fn a_read_ends_where_the_file_does() {
    each(|Bed { client, root, .. }| {
        let file = client.file(root, "file", 0o600);
        assert_eq!(client.read(&file, 0, 10), Ok((vec![], true)));
        client.write(&file, 0, b"0123456789", stable_how::FILE_SYNC).unwrap();
        for (offset, count, octets, eof) in [
            (0, 9, &b"012345678"[..], false),
            (0, 10, b"0123456789", true),
            (0, 1 << 20, b"0123456789", true),
            (5, 2, b"56", false),
            (9, 1, b"9", true),
            (10, 1, b"", true),
            (11, 1, b"", true),
            (u64::MAX, 1, b"", true),
        ] {
            let expected = Ok((octets.to_vec(), eof));
            assert_eq!(client.read(&file, offset, count), expected, "{count} at {offset}");
        }
        // Octets between two writes are zeros.
        client.write(&file, 20_000, b"x", stable_how::FILE_SYNC).unwrap();
        let (hole, eof) = client.read(&file, 10, 19_990).unwrap();
        assert!(hole == [0; 19_990] && !eof);
    });
}

#[test]
fn a_read_gives_no_more_than_fsinfo_says() {
    each(|Bed { client, root, .. }| {
        let file = client.file(root, "file", 0o600);
        for at in [0, 1 << 20] {
            client.write(&file, at, &pattern(1 << 20), stable_how::UNSTABLE).unwrap();
        }
        let (read, eof) = client.read(&file, 0, u32::MAX).unwrap();
        assert!(read == pattern(1 << 20) && !eof);
    });
}

#[test]
fn octets_are_those_of_regular_files() {
    each(|Bed { client, root, .. }| {
        let link = client.symlink(root, "link", b"to").unwrap();
        for file in [&*root, &link] {
            assert_eq!(client.read(file, 0, 1), Err(NFS3ERR_INVAL));
            let written = client.write(file, 0, b"x", stable_how::UNSTABLE);
            assert_eq!(written.unwrap_err(), NFS3ERR_INVAL);
            assert_eq!(client.commit(file), Err(NFS3ERR_INVAL));
        }
    });
}

#[test]
fn a_write_that_cannot_be_is_refused() {
    each(|Bed { client, root, .. }| {
        let file = client.file(root, "file", 0o600);
        let far = client.write(&file, u64::MAX - 1, b"four", stable_how::UNSTABLE);
        assert_eq!(far.unwrap_err(), NFS3ERR_FBIG);
        // The count and the data disagree.
        for count in [0, 3, 5] {
            let (stable, data) = (stable_how::UNSTABLE, Opaque::borrowed(b"four"));
            let asked = WRITE3args { file: file.clone(), offset: 0, count, stable, data };
            assert_eq!(client.write_raw(&asked).unwrap_err(), NFS3ERR_INVAL, "{count}");
        }
        let nothing = client.write(&file, 10, b"", stable_how::UNSTABLE).unwrap();
        assert_eq!(nothing.count, 0);
        assert_eq!(client.attributes(&file).unwrap().size, 0);
    });
}

#[test]
fn a_full_export_says_so() {
    each(|Bed { server, client, root }| {
        if server.kind().export != Export::Memory {
            return;
        }
        let file = client.file(root, "file", 0o600);
        let octets = pattern(1 << 20);
        // Four times what the server was given.
        let refused = (0..64)
            .find_map(|at| client.write(&file, at << 20, &octets, stable_how::UNSTABLE).err());
        assert_eq!(refused, Some(NFS3ERR_NOSPC));
        // Writing goes on once there is room.
        assert_eq!(client.remove(root, "file"), Ok(()));
        let file = client.file(root, "file", 0o600);
        client.write(&file, 0, &octets, stable_how::UNSTABLE).unwrap();
    });
}

#[test]
fn files_are_for_those_that_their_permission_bits_name() {
    each(|bed| {
        let mut stranger = bed.stranger();
        if !bed.tells_users_apart() {
            return;
        }
        let Bed { client, root, .. } = bed;
        let file = client.file(root, "file", 0o644);
        client.write(&file, 0, b"x", stable_how::FILE_SYNC).unwrap();
        assert_eq!(stranger.read(&file, 0, 9), Ok((b"x".to_vec(), true)));
        let written = stranger.write(&file, 0, b"y", stable_how::FILE_SYNC);
        assert_eq!(written.unwrap_err(), NFS3ERR_ACCES);
        let secret = client.file(root, "secret", 0o600);
        assert_eq!(stranger.read(&secret, 0, 9), Err(NFS3ERR_ACCES));
    });
}

#[test]
fn verifiers_of_writes_and_commits_tell_one_run_from_the_next() {
    for kind in Kind::all() {
        let mut bed = Bed::new(kind, &[]);
        let Bed { server, client, root } = &mut bed;
        let file = client.file(root, "file", 0o600);
        let octets = pattern(100_000);
        let first = client.write(&file, 0, &octets, stable_how::UNSTABLE).unwrap();
        let second = client.write(&file, 100_000, b"more", stable_how::UNSTABLE).unwrap();
        assert_eq!(second.verf, first.verf);
        assert_eq!(client.commit(&file), Ok(first.verf));
        assert_eq!(client.commit(&file), Ok(first.verf));

        server.restart(&["--squash", "none", "--insecure"]);
        let mut client = Client::new(server, ROOT);
        let file = match kind.export {
            // A server in memory lost its files and the key of its handles.
            Export::Memory => {
                assert_eq!(client.commit(&file), Err(NFS3ERR_STALE));
                let root = client.mount("/").unwrap();
                client.file(&root, "file", 0o600)
            }
            Export::Directory => {
                let (read, eof) = client.read(&file, 0, 200_000).unwrap();
                assert!(read == [&octets[..], b"more"].concat() && eof);
                file
            }
        };
        let verifier = client.commit(&file).unwrap();
        assert_ne!(verifier, first.verf);
        let written = client.write(&file, 0, b"x", stable_how::UNSTABLE).unwrap();
        assert_eq!(written.verf, verifier);
    }
}

/// A file system of which half is kept for the superuser, in place of the exported directory.
const RESERVING: Namespaces = Namespaces {
    flags: "-m",
    mounts: "rm -f ../image && truncate -s 64M ../image && mkfs.ext4 -qF -m 50 ../image && \
        mount -o loop ../image \"$SERVED\" && chmod 1777 \"$SERVED\"",
};

/// Returns the octets that are free, and those of them that anybody gets.
fn room(client: &mut Client, root: &nfs_fh3) -> (u64, u64) {
    let told = now(client.nfs.fsstat(&root.clone().into())).unwrap().unwrap();
    (told.fbytes, told.abytes)
}

/// Writes at the end of a file until that fails.
fn fill(client: &mut Client, file: &nfs_fh3, stable: stable_how) -> Ended<()> {
    let octets = vec![0xa5; 1 << 20];
    let (file, count, mut offset) = (file.clone(), 1 << 20, client.attributes(file)?.size);
    // The number of WRITEs is bounded, by more than the file system has room for.
    for _ in 0..256 {
        let (file, data) = (file.clone(), Opaque::borrowed(&octets));
        let asked = WRITE3args { file, offset, count, stable, data };
        // The attributes in the results are not compared: the file's used octets change whenever the system writes to
        // the disk.
        match now(client.nfs.write(&asked)).unwrap() {
            Nfs3Result::Ok(written) => offset += u64::from(written.count),
            Nfs3Result::Err((status, _)) => return Err(status),
        }
    }
    Ok(())
}

#[test]
fn what_a_file_system_keeps_for_the_superuser_only_the_superuser_gets() {
    let mut bed = Bed::new(Kind { export: Export::Directory, user: User::Tester }, &[]);
    if bed.server.owner.is_some() || !RESERVING.can_be_made(&bed.server.path("")) {
        return eprintln!("skipped: nobody here mounts a file system of ext4 and acts as others");
    }
    bed.server.namespaces = Some(RESERVING);
    let ways = [&[][..], &["--direct"]].into_iter();
    for (options, stable) in ways.flat_map(|options| STABILITIES.map(|stable| (options, stable))) {
        // Each round has a new file system.
        bed.server.restart(&[TRUSTING, options].concat());
        let [mut client, mut stranger] =
            [ROOT, STRANGER].map(|user| Client::new(&bed.server, user));
        let root = client.mount("/").unwrap();
        let (free, available) = room(&mut client, &root);
        let kept = free - available;
        let file = stranger.file(&root, "file", 0o666);
        assert_eq!(fill(&mut stranger, &file, stable), Err(NFS3ERR_NOSPC), "{stable:?}");
        let (left, _) = room(&mut client, &root);
        assert!(left >= kept - kept / 10, "{left} of {kept} {stable:?} {options:?}");
        assert_eq!(fill(&mut client, &file, stable), Err(NFS3ERR_NOSPC), "{stable:?}");
        let (left, _) = room(&mut client, &root);
        assert!(left < kept / 10, "{left} of {kept} {stable:?} {options:?}");
    }
}
