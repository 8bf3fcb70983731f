//! The headers of ONC RPC messages, with the names of RFC 5531.

use super::value::{Fields, Value};
use crate::rpc::{
    AcceptStat, CallHeader, Credential, RPC_VERSION, RejectStat, ReplyBody, ReplyHeader,
};

/// Describes the header of the Call or Reply that `payload` begins with. Returns `None` if it begins with neither.
pub fn rpc(payload: &[u8]) -> Option<Fields<'_>> {
    if let Ok((call, _)) = CallHeader::decode(payload) {
        return Some(Fields::new(|line| {
            line.number("xid", call.xid).name("mtype", "CALL").number("rpcvers", RPC_VERSION);
            line.number("prog", call.program).number("vers", call.version);
            line.number("proc", call.procedure);
            line.fields("cred", |cred| identity(cred, &call.credential));
            line.fields("verf", |verf| identity(verf, &call.verifier));
        }));
    }
    let (reply, _) = ReplyHeader::decode(payload).ok()?;
    Some(Fields::new(|line| {
        line.number("xid", reply.xid).name("mtype", "REPLY");
        match reply.body {
            ReplyBody::Accepted(stat) => accepted(line.name("stat", "MSG_ACCEPTED"), stat),
            ReplyBody::Denied(stat) => denied(line.name("stat", "MSG_DENIED"), stat),
        }
    }))
}

fn identity(fields: &mut Fields<'_>, credential: &Credential<'_>) {
    match credential {
        Credential::None => _ = fields.name("flavor", "AUTH_NONE"),
        Credential::Sys(sys) => {
            fields.name("flavor", "AUTH_SYS").number("uid", sys.uid).number("gid", sys.gid);
            fields.list("gids", sys.gids().map(|gid| Value::Number(gid.into())));
        }
        Credential::Other { flavor: RPCSEC_GSS, .. } => _ = fields.name("flavor", "RPCSEC_GSS"),
        Credential::Other { flavor, .. } => _ = fields.number("flavor", *flavor),
    }
}

fn accepted(fields: &mut Fields<'_>, stat: AcceptStat) {
    let name = match stat {
        AcceptStat::Success => "SUCCESS",
        AcceptStat::ProgUnavail => "PROG_UNAVAIL",
        AcceptStat::ProgMismatch { .. } => "PROG_MISMATCH",
        AcceptStat::ProcUnavail => "PROC_UNAVAIL",
        AcceptStat::GarbageArgs => "GARBAGE_ARGS",
        AcceptStat::SystemErr => "SYSTEM_ERR",
    };
    fields.name("accept_stat", name);
    if let AcceptStat::ProgMismatch { low, high } = stat {
        fields.number("low", low).number("high", high);
    }
}

fn denied(fields: &mut Fields<'_>, stat: RejectStat) {
    match stat {
        RejectStat::RpcMismatch { low, high } => {
            fields.name("reject_stat", "RPC_MISMATCH").number("low", low).number("high", high);
        }
        RejectStat::AuthError(stat) => {
            fields.name("reject_stat", "AUTH_ERROR").number("auth_stat", stat);
        }
    }
}

/// The flavor of RPCSEC_GSS (RFC 2203).
const RPCSEC_GSS: u32 = 6;
