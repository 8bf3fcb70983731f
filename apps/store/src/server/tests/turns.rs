//! Calls over TCP of one turn.

use super::*;

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
    let at = world.listen_tcp();
    let begin = |xid, arguments: Arguments<'_>| {
        let procedure = (nfs3::PROGRAM, nfs3::VERSION, arguments.procedure().number());
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(&record(xid, procedure, |w| arguments.encode(w))).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    };
    let lists = [1, 2].map(|xid| begin(xid, Arguments::ReadDir(list)));
    let nulls = [3, 4].map(|xid| begin(xid, Arguments::Null));
    let answered = |streams: &[TcpStream]| {
        streams.iter().filter(|stream| stream.peek(&mut [0]).is_ok()).count()
    };
    // The loopback interface has delivered all of them before the first turn.
    let mut first = 0;
    while first == 0 {
        world.server.turn(world.now);
        first = answered(&lists);
    }
    assert_eq!((first, answered(&nulls)), (1, 2), "they wait for none");
    world.server.turn(world.now);
    assert_eq!(answered(&lists), 2);
}
