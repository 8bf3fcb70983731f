//! Answering the Calls that came over TCP: NFS and MOUNT, whichever they ask for.

use std::net::IpAddr;

use haulage::core::Cx;
use haulage_proto::chunk::PayloadReader;
use haulage_proto::rpc::{AcceptStat, CallHeader, ReplyHeader};
use haulage_proto::xdr::{Truncated, Writer};

use super::tcp::{TcpCall, Waiting};
use super::{Caller, Server, busy, key, mount, remember};
use crate::backend::Backend;
use crate::mount3;
use crate::nfs3::{self, Arguments, Procedure};
use crate::replays::Seen;
use crate::service::{self as nfs, Answer, Reply};

impl<B: Backend> Server<B> {
    /// Answers one Call, or keeps its caller waiting.
    pub(super) fn on_tcp(&mut self, cx: &Cx<'_>, call: TcpCall) {
        let TcpCall { record, client, caller } = call;
        let (header, at) = match CallHeader::decode(&record) {
            Ok(decoded) => decoded,
            // What is no Call is answered by closing.
            Err(fault) => match xid(&record).and_then(|xid| fault.reply(xid)) {
                Some(verdict) => return caller.refuse(&verdict),
                None => return caller.hang_up(),
            },
        };
        let waiting = Waiting { xid: header.xid, caller };
        let version = |version, bound| {
            let mismatch = AcceptStat::ProgMismatch { low: bound, high: bound };
            if version == bound { Ok(()) } else { Err(mismatch) }
        };
        let verdict = match header.program {
            nfs3::PROGRAM => match version(header.version, nfs3::VERSION) {
                Ok(()) => return self.on_nfs(cx, &header, &record[at..], client, waiting),
                Err(mismatch) => mismatch,
            },
            mount3::PROGRAM => match version(header.version, mount3::VERSION) {
                Ok(()) => return self.on_mount(&header, &record[at..], waiting),
                Err(mismatch) => mismatch,
            },
            _ => AcceptStat::ProgUnavail,
        };
        waiting.refuse(verdict);
    }

    fn on_mount(&mut self, header: &CallHeader<'_>, arguments: &[u8], waiting: Waiting) {
        let Some(procedure) = mount3::Procedure::from_number(header.procedure) else {
            return waiting.refuse(AcceptStat::ProcUnavail);
        };
        let mut reader = PayloadReader::call(arguments, 0, None);
        match mount3::Arguments::decode(procedure, &mut reader) {
            Ok(arguments) => {
                let root = self.nfs.root();
                waiting.answer(&mut self.room, |w| mount::answer(&arguments, &root, w));
            }
            Err(_) => waiting.refuse(AcceptStat::GarbageArgs),
        }
    }

    fn on_nfs(
        &mut self,
        cx: &Cx<'_>,
        header: &CallHeader<'_>,
        arguments: &[u8],
        client: IpAddr,
        waiting: Waiting,
    ) {
        let Some(procedure) = Procedure::from_number(header.procedure) else {
            return waiting.refuse(AcceptStat::ProcUnavail);
        };
        let key = key(procedure, header.xid, client, arguments);
        let mut reader = PayloadReader::call(arguments, 0, None);
        let Ok(arguments) = Arguments::decode(procedure, &mut reader) else {
            return waiting.refuse(AcceptStat::GarbageArgs);
        };
        match key.map(|key| self.replays.begin(key)) {
            None | Some(Seen::New) => {}
            Some(Seen::Answered(results)) => {
                return waiting.answer(&mut self.room, |w| w.put(results));
            }
            Some(Seen::Pending) => return waiting.reply(&mut self.room, &busy()),
        }
        let around = self.surroundings(cx);
        let asked = nfs::Call { credential: header.credential, arguments, placed: None };
        match self.nfs.call(around, asked) {
            Answer::Now(reply) => {
                remember(&mut self.replays, key, &reply);
                waiting.reply(&mut self.room, &reply);
            }
            Answer::Later(ticket) => {
                self.later.insert(ticket, (Caller::Tcp(waiting), key));
            }
        }
    }
}

impl Waiting {
    /// Sends a Reply.
    pub(super) fn reply(self, room: &mut Vec<u8>, reply: &Reply<'_>) {
        let data = reply.data.len();
        self.answer_of(room, data, |w| reply.encode_inline(w));
    }

    /// Sends results.
    fn answer(
        self,
        room: &mut Vec<u8>,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) {
        self.answer_of(room, 0, encode);
    }

    /// Sends results with so many octets of data.
    fn answer_of(
        self,
        room: &mut Vec<u8>,
        data: usize,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) {
        let length = (RESULTS_MAX + data).max(room.len());
        room.resize(length, 0);
        let mut w = Writer::new(room);
        let header = ReplyHeader::accepted(self.xid, AcceptStat::Success);
        match header.encode(&mut w).and_then(|()| encode(&mut w)) {
            Ok(()) => self.caller.send(w.written()),
            Err(_) => self.refuse(AcceptStat::SystemErr),
        }
    }

    /// Says why there are no results.
    fn refuse(self, stat: AcceptStat) {
        self.caller.refuse(&ReplyHeader::accepted(self.xid, stat));
    }
}

/// Reads the XID of what may not be a Call.
fn xid(record: &[u8]) -> Option<u32> {
    record.first_chunk().map(|octets| u32::from_be_bytes(*octets))
}

/// Octets of the longest Reply but for the data of a READ: a directory listing.
const RESULTS_MAX: usize = 256 << 10;
