use std::string::ToString;
use std::vec;

use super::*;
use crate::rpc::{AcceptStat, AuthSys, CallHeader, Credential, RejectStat, ReplyBody, ReplyHeader};
use crate::xdr::Writer;

#[test]
fn fields_keep_their_order_and_display_as_json() {
    let octets = [0xa5; 65];
    let fields = Fields::new(|line| {
        line.number("b", 7_u32).name("a", "NAME").add("f", Value::Flag(true)).add("n", Value::Null);
        line.list("l", [Value::Number(1), Value::of_fields(|inner| _ = inner.octets("o", &[]))]);
        line.add("x", Value::Exact((1 << 53) - 1)).add("y", Value::Exact(1 << 53));
        line.number("z", u64::MAX).octets("h", &octets);
    });
    let expected = std::format!(
        r#"{{"b":7,"a":"NAME","f":true,"n":null,"l":[1,{{"o":""}}],"x":9007199254740991,"y":"9007199254740992","z":18446744073709551615,"h":"{}"}}"#,
        "a5".repeat(65)
    );
    assert_eq!(fields.to_string(), expected);
    assert_eq!(fields.get("b"), Some(&Value::Number(7)));
    assert_eq!(fields.get("o"), None);
    assert_eq!(Fields::default().to_string(), "{}");
}

#[test]
fn rpc_headers_are_described_and_other_octets_are_not() {
    let gids = [[0, 0, 0, 4]];
    let sys = AuthSys::new(0, b"host", 1000, 100).with_gids(&gids).unwrap();
    let call = CallHeader {
        credential: Credential::Sys(sys),
        verifier: Credential::Other { flavor: 6, body: &[] },
        ..CallHeader::new(7, 100_003, 3, 1)
    };
    let described = |header: &dyn Fn(&mut Writer<'_>)| {
        let mut room = vec![0; 200];
        let mut w = Writer::new(&mut room);
        header(&mut w);
        let written = w.position();
        for length in 0..written {
            assert_eq!(rpc(&room[..length]), None, "{length} octets");
        }
        rpc(&room[..written]).unwrap().to_string()
    };
    assert_eq!(
        described(&|w| call.encode(w).unwrap()),
        r#"{"xid":7,"mtype":"CALL","rpcvers":2,"prog":100003,"vers":3,"proc":1,"cred":{"flavor":"AUTH_SYS","uid":1000,"gid":100,"gids":[4]},"verf":{"flavor":"RPCSEC_GSS"}}"#
    );
    let accepted = |stat| ReplyHeader::accepted(7, stat);
    let denied = |stat| ReplyHeader { xid: 7, body: ReplyBody::Denied(stat) };
    for (reply, rest) in [
        (accepted(AcceptStat::Success), r#""MSG_ACCEPTED","accept_stat":"SUCCESS""#),
        (
            accepted(AcceptStat::ProgMismatch { low: 2, high: 3 }),
            r#""MSG_ACCEPTED","accept_stat":"PROG_MISMATCH","low":2,"high":3"#,
        ),
        (accepted(AcceptStat::GarbageArgs), r#""MSG_ACCEPTED","accept_stat":"GARBAGE_ARGS""#),
        (
            denied(RejectStat::RpcMismatch { low: 2, high: 2 }),
            r#""MSG_DENIED","reject_stat":"RPC_MISMATCH","low":2,"high":2"#,
        ),
        (
            denied(RejectStat::AuthError(5)),
            r#""MSG_DENIED","reject_stat":"AUTH_ERROR","auth_stat":5"#,
        ),
    ] {
        let expected = std::format!(r#"{{"xid":7,"mtype":"REPLY","stat":{rest}}}"#);
        assert_eq!(described(&|w| reply.encode(w).unwrap()), expected);
    }
}

#[test]
fn a_message_of_an_unknown_version_is_refused_with_its_report() {
    let octets = [0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 10];
    let refusal = message(&octets).unwrap_err();
    assert_eq!(refusal.to_string(), "unsupported version at byte 4");
    assert_eq!(refusal.report, Some("RDMA2_ERR_VERS"));
    assert_eq!(message(&octets[..3]).unwrap_err().report, None);
}
