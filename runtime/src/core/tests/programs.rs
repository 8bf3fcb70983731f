//! Several programs on one listener.

use std::rc::Rc;

use super::PATIENT as LIMITS;
use super::*;
use crate::core::StartError;
use crate::identity::{Identity, User};
use crate::provider::iwarp::{self, Iwarp};
use crate::provider::shm::{self, Shm};
use crate::provider::toy::{Messages, Toy};
use crate::service::ResultSource;
use crate::sys::clock;

const ITEM: usize = 3000;
/// The programs, with their versions.
const NAMES: [(u32, u32); 3] = [(0x2000_0001, 1), (0x2000_0005, 4), (0x2000_0005, 2)];

/// A service of three programs. `SAY` returns the numbers of the program, the version and the procedure, `GIVE` the
/// same with an item, and `TAKE` the same with the length of its argument.
struct Three;

const SAY: u32 = 0;
const GIVE: u32 = 1;
const TAKE: u32 = 2;

fn binding_of((program, version): (u32, u32)) -> Binding {
    let item = Eligible::opaque(ITEM);
    let procedures = vec![
        Procedure::new("SAY").idempotent(),
        Procedure::new("GIVE").result(item).results_max(16).idempotent(),
        Procedure::new("TAKE").argument(item).idempotent(),
    ];
    Binding { program, version, procedures }
}

impl Service for Three {
    fn programs(&self) -> Vec<Program> {
        let [one, two, three] = NAMES.map(|name| Program::new(binding_of(name)));
        vec![one, two.costly([SAY]), three.result_source(GIVE, ResultSource::Leased)]
    }

    fn call(&mut self, cx: &mut Cx<'_>, mut call: Call<'_>, reply: &mut Reply) -> Outcome {
        let length = match call.procedure {
            GIVE => {
                let mut lease = cx.pool().lease(ITEM).unwrap();
                lease.bytes_mut().fill(7);
                reply.item(Data::Local(lease));
                ITEM
            }
            TAKE => match call.arguments.item(ITEM) {
                Ok(Argument::Placed(leases)) => leases.len(),
                Ok(Argument::Unreduced(octets)) => octets.len(),
                other => panic!("{other:?}"),
            },
            _ => 0,
        };
        let words = [call.program, call.version, u32::try_from(length).unwrap()];
        reply.results(|results| words.into_iter().try_for_each(|word| results.u32(word)));
        Outcome::Done
    }
}

/// The Replies, by token: the numbers that they say, or why there are none.
#[derive(Default)]
struct Asker(Vec<(u64, Result<Vec<u32>, CallError>)>);

impl Service for Asker {
    fn replied(&mut self, _: &mut Cx<'_>, token: u64, finished: Finished<'_>) {
        let said = finished.results.map(|results| {
            let (words, _) = results.rest().as_chunks();
            words.iter().map(|word| u32::from_be_bytes(*word)).collect()
        });
        self.0.push((token, said));
    }
}

/// Calls each procedure of each program, in turn, on a connection for each program.
fn each_is_served<P: Provider>(versions: Versions, user: bool, make: impl Fn() -> (P, Pool)) {
    let (provider, pool) = make();
    let mut server = Core::new(provider, Three, pool, LIMITS, 7).unwrap();
    let (provider, pool) = make();
    let limits = Limits { versions, ..LIMITS };
    let mut client = Core::new(provider, Asker::default(), pool, limits, 8).unwrap();
    let at = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let identity =
        if user { Identity::User(User::new("here", 7, 7, &[])) } else { Identity::Anonymous };
    let connections = NAMES.map(|name| {
        let options = ConnectOptions::new(binding_of(name)).identity(identity.clone());
        client.connect(clock::now(), at, options).unwrap()
    });
    for round in 1..=6 {
        for (place, connection) in (0..).zip(connections) {
            let (mut cx, _) = client.cx(clock::now());
            for procedure in [SAY, GIVE, TAKE] {
                let mut asked = request(procedure);
                let lease = || cx.pool().lease(ITEM).unwrap();
                match procedure {
                    GIVE => asked.rooms = lease().into(),
                    TAKE => asked.arguments = lease().into(),
                    _ => {}
                }
                let token = place * 3 + u64::from(procedure);
                cx.call(connection, asked, token, |_| Ok(())).unwrap();
            }
        }
        let mut turns = 0;
        while client.service().0.len() < 9 * round {
            client.turn(clock::now());
            server.turn(clock::now());
            turns += 1;
            assert!(turns < 10_000_000, "{:?}", client.service().0);
        }
    }
    for (token, said) in &client.service().0 {
        let (program, version) = NAMES[usize::try_from(token / 3).unwrap()];
        let length = if token % 3 == u64::from(SAY) { 0 } else { u32::try_from(ITEM).unwrap() };
        // The results of GIVE begin with the length of the reduced item.
        let said = said.as_ref().unwrap();
        let numbers = &said[usize::from(token % 3 == u64::from(GIVE))..];
        assert_eq!(numbers, [program, version, length], "{token}");
    }
}

fn in_every_way<P: Provider>(make: impl Fn() -> (P, Pool)) {
    for versions in [Versions::OnlyTwo, Versions::OnlyOne] {
        for user in [false, true] {
            each_is_served(versions, user, &make);
        }
    }
}

fn pool(pages: PagePreference) -> Pool {
    Pool::new(&PoolConfig { bytes: 8 << 20, pages, node: None }).unwrap()
}

#[test]
fn each_program_of_a_listener_is_served_over_shared_memory() {
    in_every_way(|| {
        let pool = pool(PagePreference::Shared);
        (Shm::new(&shm::Config::default(), &pool).unwrap(), pool)
    });
}

#[test]
fn each_program_of_a_listener_is_served_over_iwarp() {
    in_every_way(|| (Iwarp::new(&iwarp::Config::default()).unwrap(), pool(PagePreference::Heap)));
}

#[test]
fn each_program_of_a_listener_is_served_over_a_provider_without_optional_abilities() {
    for messages in [Messages::Copied, Messages::Taken] {
        let net = Rc::default();
        in_every_way(|| (Toy::join(&net, messages).unwrap(), pool(PagePreference::Heap)));
    }
}

#[test]
fn a_call_of_no_program_learns_which_versions_there_are() {
    let mut world = World::with(Three, [LIMITS; 2], FabricConfig::default());
    let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 20050);
    for (token, name, expected) in [
        (1, (0x2000_0005, 3), AcceptStat::ProgMismatch { low: 2, high: 4 }),
        (2, (0x2000_0001, 2), AcceptStat::ProgMismatch { low: 1, high: 1 }),
        (3, (0x2000_0002, 1), AcceptStat::ProgUnavail),
    ] {
        world.connection = world.client.connect(world.now, at, binding_of(name)).unwrap();
        world.call(token, request(SAY));
        world.until(|w| w.ended().len() == usize::try_from(token).unwrap());
        assert_eq!(world.ended_of(token).1, Err(CallError::Rejected(expected)));
    }
}

#[test]
fn a_service_of_one_program_twice_does_not_start() {
    struct Twice;
    impl Service for Twice {
        fn programs(&self) -> Vec<Program> {
            [1, 2, 1].map(|version| Program::new(binding_of((5, version)))).into()
        }
    }
    let net = Rc::default();
    let twice = StartError::Twice { program: 5, version: 1 };
    let toy = Toy::join(&net, Messages::Taken).unwrap();
    let started = Core::new(toy, Twice, pool(PagePreference::Heap), LIMITS, 1);
    assert_eq!(started.err(), Some(twice.clone()));
    assert!(twice.to_string().contains("version 1 of program 5 twice"), "{twice}");
}
