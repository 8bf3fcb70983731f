//! Calls over TCP of one turn.

use std::sync::mpsc;

use super::super::tcp::{TcpCall, TcpCaller};
use super::*;
use crate::trust::Host;

#[test]
fn a_call_over_tcp_that_lists_has_a_turn_for_itself_behind_the_others() {
    let mut world = World::new(Versions::OnlyOne, Admission::default());
    let root = world.root();
    let list = nfs3::arguments::ReadDir {
        dir: handle(&root),
        cookie: 0,
        verifier: nfs3::Verifier(0),
        count: 4096,
    };
    let begin = |xid, arguments: Arguments<'_>| {
        let (caller, reply) = mpsc::channel();
        let procedure = (nfs3::PROGRAM, nfs3::VERSION, arguments.procedure().number());
        let record = record(xid, procedure, |w| arguments.encode(w)).split_off(Mark::WIRE_LEN);
        let connection = Connection::Tcp(u64::from(xid));
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 700));
        let (host, caller) = (Host::Here, TcpCaller(caller));
        let call = TcpCall { connection, record, peer, host, caller };
        world.calls.send(FromTcp::Call(call)).unwrap();
        reply
    };
    let lists = [1, 2].map(|xid| begin(xid, Arguments::ReadDir(list)));
    let nulls = [3, 4].map(|xid| begin(xid, Arguments::Null));
    for listed in [1, 2] {
        world.server.turn(world.now);
        if listed == 1 {
            assert!(nulls.iter().all(|reply| reply.try_recv().is_ok()), "they wait for none");
        }
        let answered = lists.iter().filter(|reply| reply.try_recv().is_ok()).count();
        assert_eq!(answered, 1, "turn {listed}");
    }
}
