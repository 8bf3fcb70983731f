//! Answering Calls of MOUNT, over TCP and over RDMA.

use std::net::IpAddr;

use haulage::core::Cx;
use haulage::service::{Call, Outcome, Reply as RuntimeReply};
use haulage_mr_pool::Pieces;
use haulage_proto::chunk::PayloadReader;
use haulage_proto::rpc::{AcceptStat, CallHeader, Credential};
use haulage_proto::xdr::Writer;

use super::over_tcp::room;
use super::tcp::Waiting;
use super::{Caller, Server};
use crate::backend::{Backend, Ticket};
use crate::crowd::network;
use crate::mount3::{Arguments, Host, LIST_MAX, Procedure, Results};
use crate::mounts::{Answer, Visitor};
use crate::service::LateReply;

impl<B: Backend> Server<B> {
    /// Answers a Call that came over TCP, or keeps its caller until a later Reply.
    pub(super) fn on_tcp_mount(
        &mut self,
        cx: &Cx<'_>,
        header: &CallHeader<'_>,
        mut arguments: PayloadReader<'_>,
        client: IpAddr,
        waiting: Waiting,
    ) {
        let Some(procedure) = Procedure::from_number(header.procedure) else {
            return waiting.refuse(AcceptStat::ProcUnavail);
        };
        let Ok(arguments) = Arguments::decode(procedure, &mut arguments) else {
            return waiting.refuse(AcceptStat::GarbageArgs);
        };
        let is_allowed = self.gate.admission.admits(client);
        match arguments {
            _ if is_allowed => {}
            Arguments::Null => {}
            Arguments::Mnt(_) => self.gate.refuse_mount(client),
            // An address that may not mount does not get the list of mounts.
            _ => return waiting.caller.hang_up(),
        }
        let (around, host) = (self.surroundings(cx), host(client));
        let (host, network) = (Host(host.as_bytes()), network(client));
        let credential = header.credential;
        let visitor = Visitor { host, credential, is_allowed, network };
        match self.mounts.call(self.nfs.service_mut(), around, &visitor, &arguments) {
            Answer::Now(results) => {
                waiting.answer(room(&mut self.room, REPLY_MAX), |w| results.encode(w));
            }
            Answer::Later(ticket, mounting) => {
                self.mounting.insert(ticket, (mounting, Caller::Tcp(waiting)));
            }
        }
    }

    /// Answers a Call that came over RDMA from `client`, at once or later. Only clients that may mount connect.
    pub(super) fn on_rdma_mount(
        &mut self,
        cx: &Cx<'_>,
        client: IpAddr,
        credential: Credential<'_>,
        call: Call<'_>,
        reply: &mut RuntimeReply,
    ) -> Outcome {
        let Some(procedure) = Procedure::from_number(call.procedure) else {
            return Outcome::Failed(AcceptStat::ProcUnavail);
        };
        let (mut arguments, _) = call.arguments.into_parts();
        let Ok(arguments) = Arguments::decode(procedure, &mut arguments) else {
            return Outcome::Failed(AcceptStat::GarbageArgs);
        };
        let (around, host) = (self.surroundings(cx), host(client));
        let (host, network) = (Host(host.as_bytes()), network(client));
        let visitor = Visitor { host, credential, is_allowed: true, network };
        match self.mounts.call(self.nfs.service_mut(), around, &visitor, &arguments) {
            Answer::Now(results) => {
                reply.results(|w| results.encode(w));
                Outcome::Done
            }
            Answer::Later(ticket, mounting) => {
                self.mounting.insert(ticket, (mounting, Caller::Rdma(call.token)));
                Outcome::Later
            }
        }
    }

    /// Goes on with a Call that waited for a Reply, if one did.
    pub(super) fn go_on_mounting(&mut self, cx: &mut Cx<'_>, ticket: Ticket, reply: &LateReply) {
        let Some((mounting, caller)) = self.mounting.remove(&ticket) else { return };
        let around = self.surroundings(cx);
        match self.mounts.go_on(self.nfs.service_mut(), around, mounting, reply) {
            Answer::Now(results) => {
                let late = late(&results);
                self.hand_out(cx, caller, late);
            }
            Answer::Later(ticket, mounting) => {
                self.mounting.insert(ticket, (mounting, caller));
            }
        }
    }
}

/// Returns the text of a client's address.
fn host(client: IpAddr) -> String {
    client.to_canonical().to_string()
}

/// Encodes results that come in a later turn.
fn late(results: &Results<'_>) -> LateReply {
    let mut octets = vec![0; REPLY_MAX];
    let mut w = Writer::new(&mut octets);
    let length = results.encode(&mut w).map_or(0, |()| w.position());
    octets.truncate(length);
    LateReply::encoded(octets.into(), Pieces::default())
}

/// The most octets of a Reply: a list, and what is around it.
const REPLY_MAX: usize = LIST_MAX as usize;
