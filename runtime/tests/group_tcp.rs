//! Groups of cores that serve one port over TCP on the loopback interface.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpStream};

use haulage::core::{Core, CoreIdentity, CoreNumber, Cx, Service, TcpLimits};
use haulage::cores::Placement;
use haulage::cores::group::{self, Group};
use haulage::limits::{LIMITS_DEFAULT, Limits};
use haulage::polling::Polling;
use haulage::pool::{PagePreference, Pool, PoolConfig};
use haulage::provider::iwarp::{Config, Iwarp};
use haulage::service::{Binding, Call, Outcome, Procedure, Program, Reply};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

const LIMITS: Limits = Limits { connections_max: 4, receives_max: 64, ..LIMITS_DEFAULT };
const PROGRAM: u32 = 0x2000_0001;
/// A record with a Call of the only procedure, without credential or arguments (RFC 5531 sections 9 and 11).
const CALL: [u32; 11] = [1 << 31 | 40, 7, 0, 2, PROGRAM, 1, 0, 0, 0, 0, 0];
/// Words of the Reply, of which the last is the number of the core.
const REPLY_WORDS: usize = 8;

/// Says on which core a Call is served.
struct Where;

impl Service for Where {
    fn programs(&self) -> Vec<Program> {
        let procedures = vec![Procedure::new("WHERE").results_max(4)];
        vec![Program::new(Binding { program: PROGRAM, version: 1, procedures })]
    }

    fn call(&mut self, cx: &mut Cx<'_>, _: Call<'_>, reply: &mut Reply) -> Outcome {
        reply.results(|w| w.u32(cx.core().get().into()));
        Outcome::Done
    }
}

/// Starts a group whose cores have so many connections each. Returns the address that its first core serves over TCP.
fn serve(cores: usize, connections_max: u32) -> (Group<Option<SocketAddr>>, SocketAddr) {
    let tcp = TcpLimits { connections_max, ..TcpLimits::DEFAULT };
    let make = move |number: CoreNumber| {
        let pool = PoolConfig {
            bytes: LIMITS.transport_bytes() + (1 << 20),
            pages: PagePreference::Heap,
            node: None,
        };
        let pool = Pool::new(&pool).map_err(io::Error::other)?;
        let identity = CoreIdentity { number, seed: 1 + u64::from(number.get()) };
        let provider = Iwarp::new(&Config::default())?;
        let mut core =
            Core::new(provider, Where, pool, LIMITS, identity).map_err(io::Error::other)?;
        let at = if number == CoreNumber::FIRST {
            Some(core.listen_tcp((Ipv4Addr::LOCALHOST, 0).into(), tcp)?)
        } else {
            core.share_tcp(tcp)?;
            None
        };
        Ok::<_, io::Error>((core, at))
    };
    let placement =
        |at| Placement { name: format!("server-{at}"), cpu: None, polling: Polling::Event };
    let group = group::start((0..cores).map(|at| (placement(at), make)).collect(), 7).unwrap();
    let at = group.started().unwrap();
    (group, at)
}

/// Connects from an address of this machine.
fn connect_from(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddrV4::new(from, 0)).unwrap();
    connect(&socket, &to).unwrap();
    TcpStream::from(socket)
}

/// Makes a Call. Returns the number of the core that served it, or nothing if the connection was closed.
fn served_by(stream: &mut TcpStream) -> io::Result<usize> {
    let call: Vec<u8> = CALL.iter().flat_map(|word| word.to_be_bytes()).collect();
    stream.write_all(&call)?;
    let mut reply = [0; 4 * REPLY_WORDS];
    stream.read_exact(&mut reply)?;
    let core = reply.last_chunk().map(|word| u32::from_be_bytes(*word)).unwrap();
    Ok(core as usize)
}

#[test]
fn connections_over_tcp_are_dealt_and_stay_on_their_cores() {
    let (group, at) = serve(4, 8);
    let mut clients = [(); 8].map(|()| connect_from(Ipv4Addr::LOCALHOST, at));
    let homes: Vec<_> = clients.iter_mut().map(|client| served_by(client).unwrap()).collect();
    let count = |core| homes.iter().filter(|home| **home == core).count();
    assert_eq!([0, 1, 2, 3].map(count), [2; 4]);
    for _ in 0..3 {
        let again: Vec<_> = clients.iter_mut().map(|client| served_by(client).unwrap()).collect();
        assert_eq!(again, homes);
    }
    group.stop().unwrap();
}

/// A core that is slow to see ends is dealt fewer, as it should be. So each round begins when all ends of the last were seen.
#[test]
fn short_connections_from_several_addresses_are_spread() {
    let (group, at) = serve(3, 64);
    let mut each = [0_usize; 3];
    for _ in 0..2_500 {
        let hosts = [1, 2, 3, 4, 5, 6, 7, 8];
        let mut clients = hosts.map(|host| connect_from(Ipv4Addr::new(127, 0, 0, host), at));
        for client in &mut clients {
            each[served_by(client).unwrap()] += 1;
            client.shutdown(Shutdown::Write).unwrap();
        }
        for client in &mut clients {
            assert_eq!(client.read(&mut [0]).unwrap(), 0, "it is closed");
        }
    }
    assert_eq!(each.iter().sum::<usize>(), 20_000);
    assert!(each.iter().all(|count| *count <= 20_000 / 3 * 11 / 10), "{each:?}");
    group.stop().unwrap();
}

#[test]
fn the_limit_of_connections_is_that_of_all_cores() {
    let (group, at) = serve(3, 2);
    // Two addresses have what the three cores take, and it is shared evenly, so that none gives way.
    let from = |number: u8| Ipv4Addr::new(127, 0, 0, 1 + number % 2);
    let mut clients: Vec<_> = (0..6).map(|number| connect_from(from(number), at)).collect();
    let mut homes: Vec<_> = clients.iter_mut().map(|client| served_by(client).unwrap()).collect();
    homes.sort_unstable();
    assert_eq!(homes, [0, 0, 1, 1, 2, 2]);
    assert!(clients.iter_mut().all(|client| served_by(client).is_ok()));
    group.stop().unwrap();
}
