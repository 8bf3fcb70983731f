//! LOOKUP, CREATE, MKDIR, SYMLINK, READLINK, MKNOD, REMOVE, RMDIR, RENAME and LINK.

use nfs3_client::nfs3_types::nfs3::nfsstat3::*;
use nfs3_client::nfs3_types::nfs3::*;
use nfs3_client::nfs3_types::rpc::opaque_auth;
use nfs3_client::rpc::RpcClient;

use crate::bed::{Bed, Export, ROOT, each};
use crate::client::{Client, Raw, Socket, at, claim, mode, now, packed, size};

const LONGEST: usize = 255;

fn link_count(client: &mut Client, file: &nfs_fh3) -> u32 {
    client.attributes(file).unwrap().nlink
}

#[test]
fn a_name_leads_to_its_file() {
    each(|Bed { client, root, .. }| {
        let dir = client.mkdir(root, "dir", 0o700).unwrap();
        let file = client.file(&dir, "file", 0o600);
        assert_eq!(client.lookup(root, "dir").as_ref(), Ok(&dir));
        assert_eq!(client.lookup(&dir, ".").as_ref(), Ok(&dir));
        assert_eq!(client.lookup(&dir, "..").as_ref(), Ok(&*root));
        assert_eq!(client.lookup(root, "..").as_ref(), Ok(&*root));
        assert_eq!(client.lookup(root, "none"), Err(NFS3ERR_NOENT));
        assert_eq!(client.lookup(&file, "file"), Err(NFS3ERR_NOTDIR));
        assert_eq!(client.lookup(root, ""), Err(NFS3ERR_ACCES));
        assert_eq!(client.lookup(root, "dir/file"), Err(NFS3ERR_ACCES));
        let [longest, longer] = [LONGEST, LONGEST + 1].map(|length| "n".repeat(length));
        assert_eq!(client.lookup(root, &longest), Err(NFS3ERR_NOENT));
        client.file(root, &longest, 0o600);
        assert_eq!(client.lookup(root, &longer), Err(NFS3ERR_NAMETOOLONG));
        assert_eq!(client.lookup(root, &"n".repeat(4096)), Err(NFS3ERR_NAMETOOLONG));
    });
}

#[test]
fn only_who_may_search_a_directory_finds_names_in_it() {
    each(|bed| {
        let (mut stranger, is_told) = (bed.stranger(), bed.tells_users_apart());
        let Bed { client, root, .. } = bed;
        let dir = client.mkdir(root, "dir", 0o700).unwrap();
        let file = client.file(&dir, "file", 0o600);
        let expected = if is_told { Err(NFS3ERR_ACCES) } else { Ok(file) };
        assert_eq!(stranger.lookup(&dir, "file"), expected);
    });
}

#[test]
fn create_says_what_happens_to_a_file_that_is_there() {
    each(|Bed { client, root, .. }| {
        let file = client.create(root, "file", createhow3::UNCHECKED(mode(0o640))).unwrap();
        let made = client.attributes(&file).unwrap();
        assert_eq!((made.type_, made.mode, made.size, made.nlink), (ftype3::NF3REG, 0o640, 0, 1));
        client.write(&file, 0, b"octets", stable_how::FILE_SYNC).unwrap();
        let again = client.create(root, "file", createhow3::UNCHECKED(sattr3::default()));
        assert_eq!(again.as_ref(), Ok(&file));
        assert_eq!(client.attributes(&file).unwrap().size, 6);
        let cut = client.create(root, "file", createhow3::UNCHECKED(size(0)));
        assert_eq!(cut.as_ref(), Ok(&file));
        assert_eq!(client.attributes(&file).unwrap().size, 0);
        let guarded = client.create(root, "file", createhow3::GUARDED(size(0)));
        assert_eq!(guarded, Err(NFS3ERR_EXIST));

        client.mkdir(root, "dir", 0o700).unwrap();
        client.symlink(root, "link", b"file").unwrap();
        for name in ["dir", "link", "."] {
            for how in [createhow3::UNCHECKED(size(0)), createhow3::GUARDED(size(0))] {
                assert_eq!(client.create(root, name, how), Err(NFS3ERR_EXIST), "{name}");
            }
        }
        let made = client.create(&file, "name", createhow3::GUARDED(mode(0o600)));
        assert_eq!(made, Err(NFS3ERR_NOTDIR));
        let longer = "n".repeat(LONGEST + 1);
        let made = client.create(root, &longer, createhow3::GUARDED(mode(0o600)));
        assert_eq!(made, Err(NFS3ERR_NAMETOOLONG));
        let made = client.create(root, "sized", createhow3::GUARDED(size(5000))).unwrap();
        assert_eq!(client.read(&made, 4999, 10), Ok((vec![0], true)));
    });
}

#[test]
fn an_exclusive_create_succeeds_again_with_its_verifier_alone() {
    each(|Bed { client, root, .. }| {
        let verifier = createverf3([0x11, 2, 3, 4, 0x15, 6, 7, 8]);
        let mut create = |verifier| client.create(root, "file", createhow3::EXCLUSIVE(verifier));
        let file = create(verifier).unwrap();
        // A client repeats the Call on another connection after its Reply was lost.
        assert_eq!(create(verifier).as_ref(), Ok(&file));
        // A verifier that differs in the last bit, or in the first bit of either half, is another.
        for (at, bit) in [(7, 1), (0, 0x80), (4, 0x80)] {
            let mut other = verifier;
            other.0[at] ^= bit;
            assert_eq!(create(other), Err(NFS3ERR_EXIST), "{other:?}");
        }
        // A client sets times and mode once it has created the file.
        let times = sattr3 {
            atime: set_atime::SET_TO_SERVER_TIME,
            mtime: set_mtime::SET_TO_SERVER_TIME,
            ..mode(0o644)
        };
        client.set(&file, times, Nfs3Option::None).unwrap();
        let again = client.create(root, "file", createhow3::EXCLUSIVE(verifier));
        assert_eq!(again, Err(NFS3ERR_EXIST));
    });
}

#[test]
fn directories_are_made_and_removed() {
    each(|Bed { client, root, .. }| {
        let links = link_count(client, root);
        let dir = client.mkdir(root, "dir", 0o750).unwrap();
        let made = client.attributes(&dir).unwrap();
        assert_eq!((made.type_, made.mode, made.nlink), (ftype3::NF3DIR, 0o750, 2));
        assert_eq!(link_count(client, root), links + 1, "its `..`");
        let file = client.file(&dir, "file", 0o600);
        assert_eq!(client.mkdir(root, "dir", 0o700), Err(NFS3ERR_EXIST));
        assert_eq!(client.mkdir(&dir, "file", 0o700), Err(NFS3ERR_EXIST));
        assert_eq!(client.mkdir(&dir, "..", 0o700), Err(NFS3ERR_EXIST));
        assert_eq!(client.mkdir(&file, "name", 0o700), Err(NFS3ERR_NOTDIR));
        assert_eq!(client.mkdir(root, &"n".repeat(256), 0o700), Err(NFS3ERR_NAMETOOLONG));

        assert_eq!(client.rmdir(root, "dir"), Err(NFS3ERR_NOTEMPTY));
        assert_eq!(client.rmdir(root, "none"), Err(NFS3ERR_NOENT));
        assert_eq!(client.rmdir(&dir, "file"), Err(NFS3ERR_NOTDIR));
        assert_eq!(client.rmdir(&file, "name"), Err(NFS3ERR_NOTDIR));
        assert_eq!(client.rmdir(&dir, "."), Err(NFS3ERR_INVAL));
        assert_eq!(client.rmdir(&dir, ".."), Err(NFS3ERR_EXIST));
        assert_eq!(client.remove(&dir, "file"), Ok(()));
        assert_eq!(client.rmdir(root, "dir"), Ok(()));
        assert_eq!(client.lookup(root, "dir"), Err(NFS3ERR_NOENT));
        assert_eq!(link_count(client, root), links);
    });
}

#[test]
fn files_are_removed_with_their_last_name() {
    each(|Bed { client, root, .. }| {
        client.mkdir(root, "dir", 0o700).unwrap();
        let file = client.file(root, "file", 0o600);
        client.link(&file, root, "second").unwrap();
        assert_eq!(client.remove(root, "dir"), Err(NFS3ERR_ISDIR));
        assert_eq!(client.remove(root, "none"), Err(NFS3ERR_NOENT));
        assert_eq!(client.remove(root, "."), Err(NFS3ERR_INVAL));
        assert_eq!(client.remove(&file, "name"), Err(NFS3ERR_NOTDIR));
        assert_eq!(client.remove(root, &"n".repeat(256)), Err(NFS3ERR_NAMETOOLONG));
        assert_eq!(client.remove(root, "file"), Ok(()));
        assert_eq!(client.lookup(root, "file"), Err(NFS3ERR_NOENT));
        assert_eq!(link_count(client, &file), 1);
        assert_eq!(client.remove(root, "second"), Ok(()));
        assert_eq!(client.attributes(&file).unwrap_err(), NFS3ERR_STALE);
    });
}

#[test]
fn a_link_is_another_name_of_the_same_file() {
    each(|Bed { client, root, .. }| {
        let dir = client.mkdir(root, "dir", 0o700).unwrap();
        let file = client.file(root, "file", 0o600);
        assert_eq!(client.link(&file, &dir, "second"), Ok(()));
        assert_eq!(client.lookup(&dir, "second").as_ref(), Ok(&file));
        assert_eq!(link_count(client, &file), 2);
        assert_eq!(client.link(&file, &dir, "second"), Err(NFS3ERR_EXIST));
        assert_eq!(client.link(&file, &dir, ".."), Err(NFS3ERR_EXIST));
        assert_eq!(client.link(&file, &file, "name"), Err(NFS3ERR_NOTDIR));
        assert_eq!(client.link(&dir, root, "name"), Err(NFS3ERR_INVAL));
        assert_eq!(client.link(&file, root, &"n".repeat(256)), Err(NFS3ERR_NAMETOOLONG));
        assert_eq!(link_count(client, &file), 2);
    });
}

#[test]
fn a_symbolic_link_holds_what_it_was_made_of() {
    each(|Bed { client, root, .. }| {
        for (name, to) in [("a", &b"../nowhere"[..]), ("b", b"\xff/ \n"), ("c", &[b'p'; 1023])] {
            let link = client.symlink(root, name, to).unwrap();
            let made = client.attributes(&link).unwrap();
            assert_eq!((made.type_, made.size), (ftype3::NF3LNK, to.len() as u64));
            assert_eq!(client.read_link(&link).as_deref(), Ok(to));
            // The server does not follow the link.
            assert_eq!(client.lookup(&link, "name"), Err(NFS3ERR_NOTDIR));
        }
        // No longer path can be looked up on Linux.
        for length in [4097, 5000, 100_000] {
            let made = client.symlink(root, "long", &vec![b'p'; length]);
            assert_eq!(made, Err(NFS3ERR_NAMETOOLONG), "{length}");
        }
        assert_eq!(client.symlink(root, "a", b"to"), Err(NFS3ERR_EXIST));
        assert_eq!(client.symlink(root, "empty", b""), Err(NFS3ERR_INVAL));
        assert_eq!(client.symlink(root, &"n".repeat(256), b"to"), Err(NFS3ERR_NAMETOOLONG));
        let file = client.file(root, "file", 0o600);
        assert_eq!(client.symlink(&file, "name", b"to"), Err(NFS3ERR_NOTDIR));
        assert_eq!(client.read_link(&file), Err(NFS3ERR_INVAL));
        assert_eq!(client.read_link(root), Err(NFS3ERR_INVAL));
    });
}

#[test]
fn special_files_are_made() {
    each(|bed| {
        let mut stranger = bed.stranger();
        let in_memory = bed.server.kind().export == Export::Memory;
        let Bed { client, root, .. } = bed;
        let open = client.mkdir(root, "open", 0o777).unwrap();
        for (name, what, kind) in [
            ("fifo", mknoddata3::NF3FIFO(mode(0o640)), ftype3::NF3FIFO),
            ("socket", mknoddata3::NF3SOCK(mode(0o640)), ftype3::NF3SOCK),
        ] {
            let made = client.mknod(root, name, what).unwrap();
            let made = client.attributes(&made).unwrap();
            assert_eq!((made.type_, made.mode), (kind, 0o640));
        }
        let fifo = || mknoddata3::NF3FIFO(mode(0o640));
        assert_eq!(client.mknod(root, "fifo", fifo()), Err(NFS3ERR_EXIST));
        assert_eq!(client.mknod(root, &"n".repeat(256), fifo()), Err(NFS3ERR_NAMETOOLONG));
        let file = client.file(root, "file", 0o600);
        assert_eq!(client.mknod(&file, "name", fifo()), Err(NFS3ERR_NOTDIR));

        let spec = || specdata3 { specdata1: 1, specdata2: 3 };
        let data = || devicedata3 { dev_attributes: mode(0o600), spec: spec() };
        for (name, what, kind) in [
            ("character", mknoddata3::NF3CHR as fn(_) -> _, ftype3::NF3CHR),
            ("block", mknoddata3::NF3BLK, ftype3::NF3BLK),
        ] {
            let refused = stranger.mknod(&open, name, what(data()));
            assert_eq!(refused, Err(NFS3ERR_PERM), "{name}");
            match client.mknod(root, name, what(data())) {
                Ok(made) => {
                    let made = client.attributes(&made).unwrap();
                    assert_eq!((made.type_, made.mode, made.rdev), (kind, 0o600, spec()));
                }
                // The server may lack CAP_MKNOD.
                Err(status) => assert_eq!((status, in_memory), (NFS3ERR_PERM, false)),
            }
        }
    });
}

#[test]
fn files_that_are_not_special_are_made_by_other_procedures() {
    each(|Bed { server, root, .. }| {
        let io = Socket::connect(server.nfs);
        let mut rpc = RpcClient::new_with_auth(io, claim(ROOT), opaque_auth::default());
        // The arguments are raw, because the client's own type for them has special files alone.
        for kind in [ftype3::NF3REG, ftype3::NF3DIR, ftype3::NF3LNK] {
            let asked = Raw([packed(&at(root, "name")), packed(&kind)].concat());
            let procedure = NFS_PROGRAM::NFSPROC3_MKNOD as u32;
            let ended: MKNOD3res = now(rpc.call(PROGRAM, VERSION, procedure, &asked)).unwrap();
            assert!(matches!(ended, Nfs3Result::Err((NFS3ERR_BADTYPE, _))), "{ended:?}");
        }
    });
}

#[test]
fn renamed_files_stay_the_same() {
    each(|Bed { client, root, .. }| {
        let [one, two] = ["one", "two"].map(|name| client.mkdir(root, name, 0o700).unwrap());
        let file = client.file(&one, "file", 0o600);
        assert_eq!(client.rename((&one, "file"), (&two, "moved")), Ok(()));
        assert_eq!(client.lookup(&one, "file"), Err(NFS3ERR_NOENT));
        assert_eq!(client.lookup(&two, "moved").as_ref(), Ok(&file));
        assert_eq!(client.rename((&two, "moved"), (&two, "again")), Ok(()));
        assert_eq!(client.lookup(&two, "again").as_ref(), Ok(&file));

        // A rename removes the file that had the new name, but between two names of one file it changes nothing.
        let replaced = client.file(&two, "replaced", 0o600);
        assert_eq!(client.rename((&two, "again"), (&two, "replaced")), Ok(()));
        assert_eq!(client.attributes(&replaced).unwrap_err(), NFS3ERR_STALE);
        client.link(&file, &two, "second").unwrap();
        assert_eq!(client.rename((&two, "second"), (&two, "replaced")), Ok(()));
        assert_eq!(link_count(client, &file), 2);

        // A directory takes its names along, and counts as a link where it is.
        let dir = client.mkdir(&one, "dir", 0o700).unwrap();
        let inner = client.file(&dir, "inner", 0o600);
        client.mkdir(&two, "empty", 0o700).unwrap();
        assert_eq!(client.rename((&one, "dir"), (&two, "empty")), Ok(()));
        assert_eq!(client.lookup(&dir, "..").as_ref(), Ok(&two));
        assert_eq!(client.lookup(&dir, "inner").as_ref(), Ok(&inner));
        assert_eq!([&one, &two].map(|dir| link_count(client, dir)), [2, 3]);
    });
}

#[test]
fn what_cannot_be_renamed_stays() {
    each(|Bed { client, root, .. }| {
        let [dir, full] = ["dir", "full"].map(|name| client.mkdir(root, name, 0o700).unwrap());
        let file = client.file(root, "file", 0o600);
        client.file(&full, "name", 0o600);
        let longer = "n".repeat(256);
        for (from, to, status) in [
            ((&*root, "none"), (&*root, "to"), NFS3ERR_NOENT),
            ((root, "file"), (&dir, &*longer), NFS3ERR_NAMETOOLONG),
            ((root, &longer), (&dir, "to"), NFS3ERR_NAMETOOLONG),
            ((root, "file"), (root, "dir"), NFS3ERR_EXIST),
            ((root, "dir"), (root, "file"), NFS3ERR_EXIST),
            ((root, "dir"), (root, "full"), NFS3ERR_EXIST),
            ((root, "dir"), (&dir, "inside"), NFS3ERR_INVAL),
            ((root, "."), (root, "to"), NFS3ERR_INVAL),
            ((root, "file"), (root, ".."), NFS3ERR_INVAL),
            ((&file, "name"), (root, "to"), NFS3ERR_NOTDIR),
            ((root, "dir"), (&file, "to"), NFS3ERR_NOTDIR),
        ] {
            assert_eq!(client.rename(from, to), Err(status), "{} to {}", from.1, to.1);
        }
        assert_eq!(client.lookup(root, "dir").as_ref(), Ok(&dir));
        assert_eq!(client.lookup(root, "file").as_ref(), Ok(&file));
    });
}

#[test]
fn names_change_only_where_the_caller_may_write() {
    each(|bed| {
        let mut stranger = bed.stranger();
        if !bed.tells_users_apart() {
            return;
        }
        let Bed { client, root, .. } = bed;
        let dir = client.mkdir(root, "dir", 0o755).unwrap();
        let sticky = client.mkdir(root, "sticky", 0o1777).unwrap();
        let file = client.file(&dir, "file", 0o666);
        client.mkdir(&dir, "sub", 0o777).unwrap();
        client.file(&sticky, "file", 0o666);
        let made = stranger.create(&dir, "name", createhow3::GUARDED(mode(0o600)));
        assert_eq!(made, Err(NFS3ERR_ACCES));
        assert_eq!(stranger.mkdir(&dir, "name", 0o700), Err(NFS3ERR_ACCES));
        assert_eq!(stranger.symlink(&dir, "name", b"to"), Err(NFS3ERR_ACCES));
        let fifo = mknoddata3::NF3FIFO(mode(0o600));
        assert_eq!(stranger.mknod(&dir, "name", fifo), Err(NFS3ERR_ACCES));
        assert_eq!(stranger.remove(&dir, "file"), Err(NFS3ERR_ACCES));
        assert_eq!(stranger.rmdir(&dir, "sub"), Err(NFS3ERR_ACCES));
        assert_eq!(stranger.link(&file, &dir, "name"), Err(NFS3ERR_ACCES));
        assert_eq!(stranger.rename((&dir, "file"), (&sticky, "to")), Err(NFS3ERR_ACCES));
        // What the sticky bit forbids is not permitted, as locally.
        assert_eq!(stranger.rename((&sticky, "file"), (&dir, "to")), Err(NFS3ERR_PERM));
        assert_eq!(stranger.remove(&sticky, "file"), Err(NFS3ERR_PERM));
        assert_eq!(stranger.link(&file, &sticky, "own"), Ok(()));
    });
}
