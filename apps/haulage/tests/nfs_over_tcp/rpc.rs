//! What the RPC layer refuses, and as whom callers are served.

use nfs3_client::nfs3_types::nfs3::{self, NFS_PROGRAM, createhow3, nfsstat3};
use nfs3_client::nfs3_types::rpc::{auth_flavor, auth_stat, opaque_auth};
use nfs3_client::nfs3_types::xdr_codec::{Opaque, Void};
use nfs3_client::nfs3_types::{mount, portmap};
use nfs3_client::rpc::RpcClient;
use nfs3_client::{Nfs3Client, RpcError};

use crate::bed::{Bed, Export, Kind, NOBODY, ROOT, STRANGER, Server, User, each};
use crate::client::{Client, Raw, Socket, mode, now};

fn any() -> Server {
    Server::start(Kind { export: Export::Memory, user: User::Tester }, &[])
}

#[test]
fn null_does_nothing() {
    each(|Bed { client, .. }| now(client.nfs.null()).unwrap());
}

#[test]
fn both_programs_answer_at_both_ports() {
    let server = any();
    for at in [server.nfs, server.mount] {
        let mut rpc = RpcClient::new(Socket::connect(at));
        for program in [nfs3::PROGRAM, mount::PROGRAM] {
            let Void = now(rpc.call(program, 3, 0, &Void)).unwrap();
        }
    }
}

#[test]
fn a_call_that_is_not_understood_is_refused_and_the_connection_goes_on() {
    let server = any();
    let mut rpc = RpcClient::new(Socket::connect(server.nfs));
    let mut call = |program, version, procedure, arguments: &[u8]| {
        let arguments = Raw(arguments.to_vec());
        let ended = now(rpc.call::<_, Void>(program, version, procedure, &arguments));
        let Void = now(rpc.call(nfs3::PROGRAM, 3, 0, &Void)).unwrap();
        ended.unwrap_err().to_string()
    };
    for (program, procedures) in [(nfs3::PROGRAM, 22), (mount::PROGRAM, 6)] {
        for version in [0, 2, 4] {
            let expected = RpcError::ProgMismatch { low: 3, high: 3 }.to_string();
            assert_eq!(call(program, version, 0, b""), expected, "{program}");
        }
        assert_eq!(call(program, 3, procedures, b""), RpcError::ProcUnavail.to_string());
        // One Call lacks its arguments, and one has arguments that it should not have.
        assert_eq!(call(program, 3, 1, b""), RpcError::GarbageArgs.to_string());
        assert_eq!(call(program, 3, 0, b"four"), RpcError::GarbageArgs.to_string());
    }
    assert_eq!(call(portmap::PROGRAM, 2, 0, b""), RpcError::ProgUnavail.to_string());
    // Longer than a file handle can be.
    let handle = [&[0, 0, 0, 68][..], &[7; 68]].concat();
    let ended = call(nfs3::PROGRAM, 3, NFS_PROGRAM::NFSPROC3_GETATTR as u32, &handle);
    assert_eq!(ended, RpcError::GarbageArgs.to_string());
}

#[test]
fn values_that_the_protocol_does_not_have_are_refused() {
    let server = any();
    let mut rpc = RpcClient::new(Socket::connect(server.nfs));
    // The arguments of each Call begin with an empty handle.
    for (procedure, words) in [
        // The first bool.
        (NFS_PROGRAM::NFSPROC3_SETATTR, &[0, 2, 0, 0, 0, 0, 0, 0][..]),
        // time_how.
        (NFS_PROGRAM::NFSPROC3_SETATTR, &[0, 0, 0, 0, 0, 3, 0, 0]),
        // stable_how.
        (NFS_PROGRAM::NFSPROC3_WRITE, &[0, 0, 0, 0, 3, 0]),
        // createmode3.
        (NFS_PROGRAM::NFSPROC3_CREATE, &[0, 0, 3, 0, 0, 0, 0, 0, 0]),
        // ftype3.
        (NFS_PROGRAM::NFSPROC3_MKNOD, &[0, 0, 8]),
    ] {
        let octets = words.iter().flat_map(|word: &u32| word.to_be_bytes());
        let arguments = Raw(octets.collect());
        let ended = now(rpc.call::<_, Void>(nfs3::PROGRAM, 3, procedure as u32, &arguments));
        assert!(matches!(ended, Err(RpcError::GarbageArgs)), "{procedure}: {ended:?}");
    }
}

#[test]
fn other_credentials_are_denied() {
    let server = any();
    for (flavor, body, expected) in [
        (auth_flavor::AUTH_SHORT, &b"four"[..], auth_stat::AUTH_REJECTEDCRED),
        (auth_flavor::AUTH_DES, b"", auth_stat::AUTH_REJECTEDCRED),
        (auth_flavor::AUTH_UNIX, b"four", auth_stat::AUTH_BADCRED),
    ] {
        let credential = opaque_auth { flavor, body: Opaque::borrowed(body) };
        let none = opaque_auth::default();
        let mut nfs = Nfs3Client::new_with_auth(Socket::connect(server.nfs), credential, none);
        match now(nfs.null()) {
            Err(RpcError::Auth(stat)) => assert_eq!(stat, expected, "{flavor:?}"),
            other => panic!("{other:?}"),
        }
    }
}

/// Returns whose a file is that this client makes at the top.
fn owner_of_made(client: &mut Client, name: &str) -> Result<u32, nfsstat3> {
    let root = client.mount("/").unwrap();
    let file = client.create(&root, name, createhow3::GUARDED(mode(0o600)))?;
    Ok(client.attributes(&file)?.uid)
}

#[test]
fn files_are_those_of_who_is_believed_to_make_them() {
    for kind in Kind::all() {
        // A server that can act as others believes nobody who calls from a port above 1023.
        let unproven = |claimed| if kind.is_privileged() { NOBODY } else { claimed };
        for (options, by_root, by_stranger) in [
            (&["--insecure", "--squash", "none"][..], 0, 1000),
            (&["--insecure"], NOBODY, 1000),
            (&["--insecure", "--squash", "all"], NOBODY, NOBODY),
            (&["--insecure", "--squash", "all", "--anonuid", "77"], 77, 77),
            (&["--squash", "none"], unproven(0), unproven(1000)),
        ] {
            let server = Server::start(kind, options);
            let expected = |uid| Ok(server.owner.unwrap_or(uid));
            let made = owner_of_made(&mut Client::new(&server, ROOT), "root");
            assert_eq!(made, expected(by_root), "{kind:?} {options:?}");
            let made = owner_of_made(&mut Client::new(&server, STRANGER), "stranger");
            assert_eq!(made, expected(by_stranger), "{kind:?} {options:?}");
        }
    }
}

#[test]
fn who_claims_nothing_is_the_anonymous_user() {
    each(|Bed { server, client, .. }| {
        client.nfs = Nfs3Client::new(Socket::connect(server.nfs));
        assert_eq!(owner_of_made(client, "file"), Ok(server.owner.unwrap_or(NOBODY)));
    });
}
