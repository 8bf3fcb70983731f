//! MOUNT version 3 (RFC 1813 appendix I) over TCP, as NFS clients speak it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use haulage_proto::rpc::record::Mark;
use haulage_proto::rpc::{AcceptStat, AuthSys, CallHeader, Credential, ReplyBody, ReplyHeader};
use haulage_proto::xdr::{Reader, Writer};
use haulage_tests::link::PATIENCE;

use super::Outcome;
use super::nfs::{FileHandle, HANDLE_MAX};

/// Returns the file handle of an exported directory.
pub(crate) fn root_of(server: SocketAddr, path: &str) -> Outcome<FileHandle> {
    let io = |error: std::io::Error| format!("MOUNT: {error}");
    let mut stream = TcpStream::connect(server).map_err(io)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(io)?;
    stream.write_all(&call(path)?).map_err(io)?;

    let mut mark = [0; Mark::WIRE_LEN];
    stream.read_exact(&mut mark).map_err(io)?;
    let mark = Mark::decode(mark);
    if !mark.is_last() || mark.length() > REPLY_MAX {
        return Err("MOUNT: a reply of unlikely length".to_owned());
    }
    let mut reply = vec![0; mark.length() as usize];
    stream.read_exact(&mut reply).map_err(io)?;

    let (header, at) = ReplyHeader::decode(&reply).map_err(|fault| format!("MOUNT: {fault:?}"))?;
    if header.body != ReplyBody::Accepted(AcceptStat::Success) {
        return Err(format!("MOUNT: {:?}", header.body));
    }
    let mut results = Reader::new(reply.get(at..).unwrap_or_default());
    match results.u32() {
        Ok(0) => {}
        status => return Err(format!("MOUNT: status {status:?}")),
    }
    let handle = results.opaque(HANDLE_MAX).map_err(|e| format!("MOUNT: {e}"))?;
    Ok(handle.to_vec())
}

fn call(path: &str) -> Outcome<Vec<u8>> {
    let mut room = [0; 512];
    let mut w = Writer::new(&mut room);
    let root = Credential::Sys(AuthSys::new(0, b"lab", 0, 0));
    let header = CallHeader { credential: root, ..CallHeader::new(1, PROGRAM, VERSION, MNT) };
    header.encode(&mut w).and_then(|()| w.opaque(path.as_bytes())).map_err(|e| e.to_string())?;
    let mark = u32::try_from(w.position()).ok().and_then(Mark::last);
    Ok([&mark.ok_or("the path is too long")?.encode(), w.written()].concat())
}

const PROGRAM: u32 = 100_005;
const VERSION: u32 = 3;
const MNT: u32 = 1;
const REPLY_MAX: u32 = 4096;
