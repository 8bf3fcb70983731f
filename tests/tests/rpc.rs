//! RPC headers against another implementation: each side reads the messages that the other writes.
#![expect(clippy::unwrap_used, reason = "a test")]

use haulage_proto::rpc::{
    AcceptStat, AuthSys, CallHeader, Credential, RejectStat, ReplyBody, ReplyHeader,
};
use haulage_proto::xdr::{Truncated, Writer};
use haulage_tests::Rng;
use onc_rpc::auth::{AuthFlavor, AuthUnixParams};
use onc_rpc::{
    AcceptedReply, AcceptedStatus, AuthError, CallBody, MessageType, RejectedReply, RpcMessage,
};

/// A message of `onc-rpc`, borrowed from the octets it came in.
type Theirs<'a> = RpcMessage<&'a [u8], &'a [u8]>;

#[test]
fn calls_agree_whoever_writes_them() {
    let mut rng = Rng::new(1);
    for turn in 0..1_000_u32 {
        let [xid, program, version, procedure] = words(&mut rng);
        let [stamp, uid, gid, flavor] = words(&mut rng);
        // `onc-rpc` takes bodies of at most 200 octets.
        let machine = octets(&mut rng, 116);
        let gids: Vec<u32> = octets(&mut rng, 16).into_iter().map(u32::from).collect();
        let (body, arguments) = (octets(&mut rng, 200), octets(&mut rng, 40));
        let credential = match turn % 3 {
            0 => AuthFlavor::AuthNone(None),
            1 => AuthFlavor::AuthUnix(AuthUnixParams::new(
                stamp,
                &machine[..],
                uid,
                gid,
                gids.clone(),
            )),
            _ => AuthFlavor::Unknown { id: flavor | 0x100, data: &body[..] },
        };
        let verifier = AuthFlavor::AuthNone(None);
        let call = CallBody::new(program, version, procedure, credential, verifier, &arguments[..]);
        let theirs = RpcMessage::new(xid, MessageType::Call(call));
        let marked = theirs.serialise().unwrap();

        let (header, at) = CallHeader::decode(&marked[MARK_LEN..]).unwrap();
        assert_eq!((header.xid, header.program), (xid, program));
        assert_eq!((header.version, header.procedure), (version, procedure));
        assert_eq!(header.verifier, Credential::None);
        assert_eq!(marked[MARK_LEN + at..], arguments);
        match header.credential {
            Credential::None => assert_eq!(turn % 3, 0),
            Credential::Sys(sys) => {
                assert_eq!(turn % 3, 1);
                assert_eq!((sys.stamp, sys.machine), (stamp, &machine[..]));
                assert_eq!((sys.uid, sys.gid), (uid, gid));
                assert_eq!(sys.gids().collect::<Vec<_>>(), gids);
            }
            Credential::Other { flavor: number, body: carried } => {
                assert_eq!((turn % 3, number, carried), (2, flavor | 0x100, &body[..]));
            }
        }

        let ours = message(|w| header.encode(w), &arguments);
        assert_eq!(ours, marked);
        assert_eq!(Theirs::try_from(&ours[..]).unwrap(), theirs);
    }
}

#[test]
fn our_own_credential_is_read_as_it_is_meant() {
    let sys = AuthSys::new(7, b"here", 1000, 100);
    let header = CallHeader { credential: Credential::Sys(sys), ..CallHeader::new(1, 2, 3, 4) };
    let ours = message(|w| header.encode(w), &[]);
    let theirs = Theirs::try_from(&ours[..]).unwrap();
    let AuthFlavor::AuthUnix(read) = theirs.call_body().unwrap().auth_credentials() else {
        panic!("not AUTH_SYS");
    };
    assert_eq!((read.stamp(), read.machine_name()), (7, &b"here"[..]));
    assert_eq!((read.uid(), read.gid(), read.gids().unwrap_or_default()), (1000, 100, &[][..]));
}

#[test]
fn replies_agree_whoever_writes_them() {
    let results = [1, 2, 3, 4];
    let accepted = |stat, status: AcceptedStatus<&'static [u8]>| {
        let reply = AcceptedReply::new(AuthFlavor::AuthNone(None), status);
        (ReplyBody::Accepted(stat), onc_rpc::ReplyBody::Accepted(reply))
    };
    let denied = |stat, reply| (ReplyBody::Denied(stat), onc_rpc::ReplyBody::Denied(reply));
    let auth = |stat, error| denied(RejectStat::AuthError(stat), RejectedReply::AuthError(error));
    let mismatch = RejectedReply::RpcVersionMismatch { low: 2, high: 3 };
    let bodies = [
        accepted(AcceptStat::Success, AcceptedStatus::Success(&[1, 2, 3, 4])),
        accepted(AcceptStat::ProgUnavail, AcceptedStatus::ProgramUnavailable),
        accepted(
            AcceptStat::ProgMismatch { low: 3, high: 4 },
            AcceptedStatus::ProgramMismatch { low: 3, high: 4 },
        ),
        accepted(AcceptStat::ProcUnavail, AcceptedStatus::ProcedureUnavailable),
        accepted(AcceptStat::GarbageArgs, AcceptedStatus::GarbageArgs),
        accepted(AcceptStat::SystemErr, AcceptedStatus::SystemError),
        denied(RejectStat::RpcMismatch { low: 2, high: 3 }, mismatch),
        auth(1, AuthError::BadCredentials),
        auth(2, AuthError::RejectedCredentials),
        auth(3, AuthError::BadVerifier),
        auth(4, AuthError::RejectedVerifier),
        auth(5, AuthError::TooWeak),
        auth(6, AuthError::InvalidResponseVerifier),
        auth(7, AuthError::Failed),
    ];
    for (body, theirs) in bodies {
        let ours = ReplyHeader { xid: 0x1bad_cafe, body };
        let success = body == ReplyBody::Accepted(AcceptStat::Success);
        let results = if success { &results[..] } else { &[] };
        let theirs = RpcMessage::new(ours.xid, MessageType::Reply(theirs));
        let marked = theirs.serialise().unwrap();
        let at = marked.len() - MARK_LEN - results.len();
        assert_eq!(ReplyHeader::decode(&marked[MARK_LEN..]), Ok((ours, at)), "{body:?}");
        let written = message(|w| ours.encode(w), results);
        assert_eq!(written, marked, "{body:?}");
        assert_eq!(Theirs::try_from(&written[..]).unwrap(), theirs);
    }
}

/// Encodes a message with the record mark of TCP, which `onc-rpc` always expects.
fn message(encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>, rest: &[u8]) -> Vec<u8> {
    let mut room = [0; 1024];
    let mut w = Writer::new(&mut room);
    encode(&mut w).unwrap();
    w.put(rest).unwrap();
    let length = u32::try_from(w.position()).unwrap();
    [&(1 << 31 | length).to_be_bytes(), w.written()].concat()
}

fn words(rng: &mut Rng) -> [u32; 4] {
    [(); 4].map(|()| u32::try_from(rng.next() >> 32).unwrap())
}

/// Draws at most `max` octets.
fn octets(rng: &mut Rng, max: u64) -> Vec<u8> {
    (0..rng.below(0..max + 1)).map(|_| rng.next().to_be_bytes()[0]).collect()
}

/// Length of a record mark.
const MARK_LEN: usize = 4;
