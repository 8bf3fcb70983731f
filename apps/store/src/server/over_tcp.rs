//! Answering Calls over TCP, of NFS and of MOUNT.

use haulage::core::Cx;
use haulage::service::Binding;
use haulage_proto::chunk::PayloadReader;
use haulage_proto::rpc::{AcceptStat, CallHeader, ReplyBody, ReplyHeader};
use haulage_proto::xdr::{Truncated, Writer};

use super::tcp::{TcpCall, Waiting};
use super::{Caller, FLAVORS, Server, client};
use crate::backend::Backend;
use crate::program::{Ended, Origin};
use crate::service::LateReply;
use crate::trust::{GIDS_MAX, Peer};
use crate::{mount3, nfs3};

impl<B: Backend> Server<B> {
    /// Answers a Call, or keeps its caller until a later Reply.
    pub(super) fn on_tcp(&mut self, cx: &Cx<'_>, call: TcpCall) {
        let TcpCall { connection, record, peer, host, caller } = call;
        let (header, at) = match CallHeader::decode(&record) {
            Ok(decoded) => decoded,
            // A record that is no Call closes the connection.
            Err(fault) => match xid(&record).and_then(|xid| fault.reply(xid)) {
                Some(verdict) => return caller.refuse(&verdict),
                None => return caller.hang_up(),
            },
        };
        if let Err(denied) = header.credential.check(&FLAVORS) {
            return caller
                .refuse(&ReplyHeader { xid: header.xid, body: ReplyBody::Denied(denied) });
        }
        let waiting = Waiting { xid: header.xid, caller };
        let arguments = PayloadReader::call(&record, at, None);
        let bound = match header.program {
            nfs3::PROGRAM => nfs3::VERSION,
            mount3::PROGRAM => mount3::VERSION,
            _ => return waiting.refuse(AcceptStat::ProgUnavail),
        };
        if header.version != bound {
            return waiting.refuse(AcceptStat::ProgMismatch { low: bound, high: bound });
        }
        let from = (Peer::Tcp { port: peer.port(), host }, peer.ip());
        let mut gids = [[0; 4]; GIDS_MAX];
        let credential = self.gate.believed(cx.now(), from, header.credential, &mut gids);
        let header = CallHeader { credential, ..header };
        if header.program == mount3::PROGRAM {
            self.on_tcp_mount(cx, &header, arguments, peer.ip(), waiting);
        } else if self.gate.admission.admits(peer.ip()) {
            let client = client(peer.ip());
            let CallHeader { xid, procedure, .. } = header;
            let origin = Origin { client, connection, xid, credential };
            self.on_nfs(cx, &origin, procedure, arguments, waiting);
        } else {
            waiting.caller.hang_up();
        }
    }

    fn on_nfs(
        &mut self,
        cx: &Cx<'_>,
        origin: &Origin<'_>,
        procedure: u32,
        arguments: PayloadReader<'_>,
        waiting: Waiting,
    ) {
        let around = self.surroundings(cx);
        let room = room(&mut self.room, reply_max(&self.binding, procedure));
        let mut w = Writer::new(room);
        let accepted = ReplyHeader::accepted(origin.xid, AcceptStat::Success);
        if accepted.encode(&mut w).is_err() {
            return waiting.refuse(AcceptStat::SystemErr);
        }
        match self.nfs.call(around, origin, procedure, (arguments, None), &mut w) {
            Ended::Done(data) => {
                let mut written = data.iter().try_for_each(|piece| w.put(piece.bytes()));
                written = written.and_then(|()| w.pad(data.len()));
                match written {
                    Ok(()) => waiting.caller.send(w.written()),
                    Err(_) => waiting.refuse(AcceptStat::SystemErr),
                }
            }
            Ended::Failed(stat) => waiting.refuse(stat),
            Ended::Later(ticket) => {
                if let Err(Caller::Tcp(waiting)) =
                    self.keep_waiting(cx, ticket, Caller::Tcp(waiting))
                {
                    waiting.caller.hang_up();
                }
            }
        }
    }
}

impl TcpCall {
    /// Returns the procedure of a Call of NFS.
    pub(super) fn procedure(&self) -> Option<nfs3::Procedure> {
        nfs_call(&self.record).map(|(procedure, _)| procedure)
    }
}

impl Waiting {
    /// Sends a later Reply.
    pub(super) fn reply(self, memory: &mut Vec<u8>, reply: &LateReply) {
        let room = room(memory, REPLY_MIN + reply.length_max());
        self.answer(room, |w| reply.encode_inline(w));
    }

    /// Sends results.
    pub(super) fn answer(
        self,
        room: &mut [u8],
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) {
        let mut w = Writer::new(room);
        let accepted = ReplyHeader::accepted(self.xid, AcceptStat::Success);
        match accepted.encode(&mut w).and_then(|()| encode(&mut w)) {
            Ok(()) => self.caller.send(w.written()),
            Err(_) => self.refuse(AcceptStat::SystemErr),
        }
    }

    /// Sends a Reply with an error of the RPC layer.
    pub(super) fn refuse(self, stat: AcceptStat) {
        self.caller.refuse(&ReplyHeader::accepted(self.xid, stat));
    }
}

/// Returns `length` octets of `memory`, with their old content.
pub(super) fn room(memory: &mut Vec<u8>, length: usize) -> &mut [u8] {
    if memory.len() < length {
        memory.resize(length, 0);
    }
    memory
}

/// Returns the maximum length of a procedure's Reply, in octets.
fn reply_max(binding: &Binding, procedure: u32) -> usize {
    let Some(procedure) = binding.procedure(procedure) else { return REPLY_MIN };
    let data = procedure.results.iter().map(|result| result.length_max as u64).sum::<u64>();
    let longest = procedure.reply_max(&[]).saturating_add(data.next_multiple_of(4));
    usize::try_from(longest).unwrap_or(usize::MAX).max(REPLY_MIN)
}

/// Returns the octets that the Call in a record lets its Reply have beside a bounded part.
pub(super) fn reply_octets(record: &[u8]) -> usize {
    let Some((procedure, mut arguments)) = nfs_call(record) else { return 0 };
    match nfs3::Arguments::decode(procedure, &mut arguments) {
        Ok(nfs3::Arguments::Read(read)) => read.count as usize,
        Ok(nfs3::Arguments::ReadDir(list)) => list.count as usize,
        Ok(nfs3::Arguments::ReadDirPlus(list)) => list.count_max as usize,
        _ => 0,
    }
}

/// Returns the procedure and the arguments of a Call of NFS.
fn nfs_call(record: &[u8]) -> Option<(nfs3::Procedure, PayloadReader<'_>)> {
    let (header, at) = CallHeader::decode(record).ok()?;
    let procedure = nfs3::Procedure::from_number(header.procedure);
    let procedure = procedure.filter(|_| header.program == nfs3::PROGRAM)?;
    Some((procedure, PayloadReader::call(record, at, None)))
}

/// Returns the XID of a record, which may be no Call.
fn xid(record: &[u8]) -> Option<u32> {
    record.first_chunk().map(|octets| u32::from_be_bytes(*octets))
}

/// Minimum memory for a Reply, in octets. Later Replies need no more, except for the data of a READ.
const REPLY_MIN: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_says_how_long_its_reply_may_be() {
        let handle = nfs3::FileHandle::new(b"handle").unwrap();
        let read = nfs3::arguments::Read { file: handle, offset: 0, count: 1 << 20 };
        let list = nfs3::arguments::ReadDirPlus {
            dir: handle,
            cookie: 0,
            verifier: nfs3::Verifier::default(),
            count: 100,
            count_max: 4096,
        };
        for (arguments, octets) in [
            (nfs3::Arguments::Read(read), 1 << 20),
            (nfs3::Arguments::ReadDirPlus(list), 4096),
            (nfs3::Arguments::Null, 0),
        ] {
            let mut record = [0; 256];
            let mut w = Writer::new(&mut record);
            let procedure = arguments.procedure().number();
            let header = CallHeader::new(1, nfs3::PROGRAM, nfs3::VERSION, procedure);
            header.encode(&mut w).and_then(|()| arguments.encode(&mut w)).unwrap();
            assert_eq!(reply_octets(w.written()), octets);
        }
        assert_eq!(reply_octets(b"no Call"), 0);
    }
}
