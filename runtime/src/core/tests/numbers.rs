//! Names of two cores of one server: neither finds anything by a name of the other.

use std::net::{Ipv4Addr, TcpStream};

use super::*;
use crate::core::common::Common;
use crate::core::{CORES_MAX, CoreIdentity, CoreNumber, TcpLimits};

/// Makes a world whose server is this core, and where one Call waits for its service.
fn world_of(core: u8) -> (World<Slow>, CallToken) {
    let fabric = Fabric::new(FabricConfig::default());
    let node = |n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
    let config = PoolConfig { bytes: 16 << 20, pages: PagePreference::Heap, node: None };
    let pool = || Pool::new(&config).unwrap();
    let [server, client] = [1, 2].map(|n| fabric.provider(node(n)).unwrap());
    let identity = CoreIdentity { number: CoreNumber::new(core).unwrap(), seed: 1 };
    let mut server = Core::new(server, Slow::default(), pool(), LIMITS, identity).unwrap();
    assert_eq!(
        (server.number(), server.cx(Instant::ZERO).0.core()),
        (identity.number, identity.number)
    );
    let mut client = Core::new(client, Caller::default(), pool(), LIMITS, 2).unwrap();
    let at = server.listen(SocketAddr::new(node(1), 20050)).unwrap();
    let connection = client.connect(Instant::ZERO, at, binding()).unwrap();
    let mut world = World { fabric, now: Instant::ZERO, server, client, connection };
    world.call(1, request(FETCH));
    world.until(|world| !world.server.service().waiting.is_empty());
    let token = world.server.service.waiting.pop_front().unwrap();
    (world, token)
}

impl World<Slow> {
    /// Connects over TCP. Returns the client's end.
    fn join_over_tcp(&mut self) -> TcpStream {
        let at = self.server.listen_tcp((Ipv4Addr::LOCALHOST, 0).into(), TcpLimits::DEFAULT);
        let stream = TcpStream::connect(at.unwrap()).unwrap();
        while self.server.inner.common.streams.len() == 0 {
            self.server.turn(self.now);
        }
        stream
    }

    /// Returns the names of the server's connections: the one over RDMA, and the one over TCP.
    fn names(&self) -> [ConnectionId; 2] {
        let Common { connections, streams, .. } = &self.server.inner.common;
        [connections.from(0).unwrap(), streams.each().next().unwrap().0].map(ConnectionId)
    }
}

#[test]
fn a_core_finds_nothing_by_the_names_that_another_gave() {
    let [(mut zero, own), (mut one, strange)] = [0, 1].map(world_of);
    let _clients = [zero.join_over_tcp(), one.join_over_tcp()];
    let theirs = one.names();
    let places = |names: [ConnectionId; 2]| names.map(|name| name.0.slot());
    assert_eq!((places(zero.names()), own.0.slot()), (places(theirs), strange.0.slot()));
    assert_eq!([own.core().get(), strange.core().get()], [0, 1]);

    let now = zero.now;
    let (mut cx, _) = zero.server.cx(now);
    assert!(cx.awaits(own) && !cx.awaits(strange));
    assert_eq!(cx.lease_result(strange, 1).err(), Some(Refusal::NoMemory));
    cx.resume(strange);
    for name in theirs {
        assert_eq!((cx.peer(name), cx.origin(name), cx.inline_room(name)), (None, None, None));
        assert_eq!((cx.peer_user(name), cx.is_connecting(name)), (None, false));
        let refused = cx.call(name, request(FETCH), 1, |_| Ok(())).map_err(|(error, _)| error);
        assert_eq!(refused, Err(CallError::Elsewhere(strange.core())));
        cx.close(name);
    }
    zero.turns(100);
    assert_eq!((zero.server.service.resumed, zero.client.service.ended.len()), (0, 0));
    assert_eq!(zero.server.inner.common.connections.len(), 1);
    assert_eq!(zero.server.inner.common.streams.len(), 1);

    zero.server.cx(now).0.resume(own);
    zero.until(|world| !world.ended().is_empty());
    assert_eq!(zero.server.service.resumed, 1);
}

#[test]
fn no_two_connections_of_a_server_have_one_number() {
    let worlds = [0, 1, CORES_MAX - 1].map(|core| {
        let (mut world, _) = world_of(core);
        let client = world.join_over_tcp();
        assert!(world.names().iter().all(|name| name.core().get() == core));
        (world, client)
    });
    let numbers = worlds.iter().flat_map(|(world, _)| world.names()).map(ConnectionId::number);
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 2 * worlds.len());
}
