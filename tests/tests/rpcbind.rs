//! Registers a service with the real rpcbind, in a network and a file system of the test's own.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use haulage::rpcbind::{Endpoint, Fault, Need, Netid, Program, Registered, Rpcbind};
use haulage_test_support::namespaces::{Whereabouts, enter};

#[test]
fn a_service_is_registered_found_and_unregistered() {
    if enter("a_service_is_registered_found_and_unregistered") == Whereabouts::Inside {
        inside();
    }
}

const OURS: Program = Program { program: 0x2000_1234, version: 3 };

fn inside() {
    let at: SocketAddr = "127.0.0.1:20049".parse().unwrap();
    absent(at);

    // `rpcbind -w` returns once it listens.
    assert!(Command::new("rpcbind").arg("-w").status().unwrap().success());
    let tcp = Endpoint::Tcp("127.0.0.1:111".parse().unwrap());
    let local = Endpoint::Local("/run/rpcbind.sock".into());
    for place in [&local, &tcp] {
        registered_and_not(&Rpcbind::at(vec![place.clone()], LONG), at);
    }
    registered_and_not(&Rpcbind::here(), at);

    // Only the user that registered may unregister: over TCP rpcbind does not know the user.
    let (local, tcp) = (Rpcbind::at(vec![local], LONG), Rpcbind::at(vec![tcp], LONG));
    local.set(OURS, Netid::Rdma, at).unwrap();
    assert!(matches!(tcp.unset(OURS, Netid::Rdma), Err(Fault::NotOurs(OURS, Netid::Rdma))));
    assert!(matches!(tcp.register(OURS, at, Need::Required), Ok(Registered::Yes)));
    local.unset(OURS, Netid::Rdma).unwrap();

    addresses_over_tcp(&tcp);
}

fn absent(at: SocketAddr) {
    let Ok(Registered::Absent(fault)) = Rpcbind::here().register(OURS, at, Need::Optional) else {
        panic!("nobody has started it")
    };
    let said = "there is no rpcbind: nobody listens at /run/rpcbind.sock or 127.0.0.1:111";
    assert_eq!(fault.to_string(), said);
    let fault = Rpcbind::here().register(OURS, at, Need::Required).unwrap_err();
    assert_eq!(fault.to_string(), said);
}

fn registered_and_not(rpcbind: &Rpcbind, at: SocketAddr) {
    let at6: SocketAddr = "[::1]:20049".parse().unwrap();
    let other: SocketAddr = "127.0.0.1:65280".parse().unwrap();
    let found = |netid| rpcbind.look_up(OURS, netid).unwrap();
    assert_eq!(found(Netid::Rdma), None);
    assert!(matches!(rpcbind.register(OURS, at, Need::Required), Ok(Registered::Yes)));
    assert_eq!(found(Netid::Rdma), Some(at));
    assert_eq!(found(Netid::Rdma6), None);
    rpcbind.set(OURS, Netid::Rdma6, at6).unwrap();
    assert_eq!(found(Netid::Rdma6), Some(at6));
    assert_eq!(rpcbind.look_up(Program { version: 4, ..OURS }, Netid::Rdma).unwrap(), None);

    // Another address is refused until the first is gone, unless it replaces the first.
    assert!(matches!(rpcbind.set(OURS, Netid::Rdma, other), Err(Fault::Taken(OURS, Netid::Rdma))));
    assert!(matches!(rpcbind.register(OURS, other, Need::Optional), Ok(Registered::Yes)));
    assert_eq!(found(Netid::Rdma), Some(other));
    let any: SocketAddr = "0.0.0.0:20049".parse().unwrap();
    assert!(matches!(rpcbind.register(OURS, any, Need::Optional), Ok(Registered::Yes)));
    assert_eq!(found(Netid::Rdma), Some(at));

    let ours = || rpcbind.dump().unwrap().into_iter().filter(|entry| entry.program == OURS).count();
    assert_eq!(ours(), 2);
    rpcbind.unset(OURS, Netid::Rdma).unwrap();
    assert_eq!((found(Netid::Rdma), found(Netid::Rdma6)), (None, Some(at6)));
    rpcbind.unset(OURS, Netid::Rdma6).unwrap();
    rpcbind.unset(OURS, Netid::Rdma6).unwrap();
    assert_eq!(ours(), 0);
}

fn addresses_over_tcp(tcp: &Rpcbind) {
    let itself = Program { program: 100_000, version: 4 };
    let unknown = Program { program: 100_000, version: 9 };
    let at: SocketAddr = "127.0.0.1:111".parse().unwrap();
    assert_eq!(tcp.get_addr(itself).unwrap(), Some(at));
    assert_eq!(tcp.get_vers_addr(itself).unwrap(), Some(at));
    assert_eq!(tcp.get_addr(unknown).unwrap(), Some(at));
    assert_eq!(tcp.get_vers_addr(unknown).unwrap(), None);
    assert_eq!(tcp.get_addr(OURS).unwrap(), None);
}

/// Longer than any call to rpcbind takes.
const LONG: Duration = Duration::from_secs(60);
