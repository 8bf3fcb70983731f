//! Answering Calls of MOUNT.

use std::net::IpAddr;

use haulage::core::Cx;
use haulage::crowd::network;
use haulage::service::{Call, Outcome, Reply as RuntimeReply};
use haulage_mr_pool::Pieces;
use haulage_proto::rpc::{AcceptStat, Credential};
use haulage_proto::xdr::Writer;

use super::Server;
use crate::backend::{Backend, Ticket};
use crate::mount3::{Arguments, Host, LIST_MAX, Procedure, Results};
use crate::mounts::{Answer, Visitor};
use crate::service::LateReply;

impl<B: Backend> Server<B> {
    /// Answers a Call from `client`, at once or later. Over TCP clients connect that may not mount.
    pub(super) fn on_mount(
        &mut self,
        cx: &mut Cx<'_>,
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
        let is_allowed = self.gate.admission.admits(client);
        match arguments {
            _ if is_allowed => {}
            Arguments::Null => {}
            Arguments::Mnt(_) => self.gate.refuse_mount(client),
            // An address that may not mount does not get the list of mounts.
            _ => {
                cx.close(call.connection);
                return Outcome::Failed(AcceptStat::SystemErr);
            }
        }
        let (around, host) = (self.surroundings(cx), host(client));
        let (host, network) = (Host(host.as_bytes()), network(client));
        let visitor = Visitor { host, credential, is_allowed, network };
        match self.mounts.call(self.nfs.service_mut(), around, &visitor, &arguments) {
            Answer::Now(results) => {
                self.told.note_mount(&results);
                reply.results(|w| results.encode(w));
                Outcome::Done
            }
            Answer::Later(ticket, mounting) => {
                self.mounting.insert(ticket, (mounting, call.token));
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
                self.told.note_mount(&results);
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
