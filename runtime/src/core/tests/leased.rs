//! Results whose length is known only as the service is called: it leases memory for them then.

use super::*;

/// A service that answers FETCH with as many octets as it is asked for, as soon as there is memory for them.
#[derive(Debug, Default)]
struct Lender {
    waiting: VecDeque<(CallToken, usize)>,
    /// Leases that were refused because others held the memory.
    busy: u32,
    /// Leases that will never be there.
    never: u32,
}

impl Lender {
    fn lend(
        &mut self,
        cx: &mut Cx<'_>,
        (call, length): (CallToken, usize),
        reply: &mut Reply,
    ) -> Outcome {
        match cx.lease_result(call, length) {
            Ok(mut lease) => {
                lease.bytes_mut().fill(0x5a);
                reply.item(Data::Local(lease));
                Outcome::Done
            }
            Err(Refusal::Busy) => {
                self.busy += 1;
                self.waiting.push_back((call, length));
                Outcome::Later
            }
            Err(_) => {
                self.never += 1;
                Outcome::Failed(AcceptStat::SystemErr)
            }
        }
    }
}

impl Service for Lender {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn call(&mut self, cx: &mut Cx<'_>, mut call: Call<'_>, reply: &mut Reply) -> Outcome {
        let length = call.arguments.u32().unwrap() as usize;
        self.lend(cx, (call.token, length), reply)
    }

    fn resume(&mut self, cx: &mut Cx<'_>, token: CallToken, reply: &mut Reply) -> Outcome {
        let at = self.waiting.iter().position(|(call, _)| *call == token).unwrap();
        let waited = self.waiting.remove(at).unwrap();
        self.lend(cx, waited, reply)
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        self.waiting.iter().for_each(|(call, _)| cx.resume(*call));
        false
    }
}

impl World<Lender> {
    fn ask(&mut self, token: u64, length: usize, room: usize) {
        let room = self.lease(room, 0);
        let (mut cx, _) = self.client.cx(self.now);
        let asked = request(FETCH).room(room);
        let argument = u32::try_from(length).unwrap();
        cx.call(self.connection, asked, token, |w| w.u32(argument)).unwrap();
    }

    /// Returns the octets charged to connections of the server.
    fn held(&self) -> usize {
        self.server.inner.common.memory.held()
    }
}

#[test]
fn a_result_that_is_leased_as_its_call_is_served_is_charged_until_its_reply_has_left() {
    let mut world = World::with(Lender::default(), [LIMITS; 2], FabricConfig::default());
    world.ask(1, 100_000, 100_000);
    world.until(|w| w.held() > 0);
    assert_eq!(world.held(), 100_000);
    world.until(|w| w.ended().len() == 1);
    let (_, reduced, lease) = world.ended_of(1);
    assert_eq!(reduced, &Ok(100_000));
    assert_eq!(lease.as_ref().unwrap().bytes(), [0x5a; 100_000]);
    world.settle();
    world.all_home();
}

#[test]
fn results_wait_for_the_memory_that_others_hold_and_only_then_are_they_leased() {
    let length = 3 << 20;
    let mut world = World::with(Lender::default(), [LIMITS; 2], FabricConfig::default());
    // Half of the server's pool is what one client may have.
    for token in 0..4 {
        world.ask(token, length, length);
    }
    let mut most = 0;
    for _ in 0..1_000_000 {
        if world.ended().len() == 4 {
            break;
        }
        world.turns(1);
        // The service asks again in each turn, so that there is never nothing to do.
        world.now = world.now.saturating_add(Duration::from_micros(1));
        most = most.max(world.held());
    }
    for token in 0..4 {
        assert_eq!(world.ended_of(token).1, Ok(u32::try_from(length).unwrap()), "{token}");
    }
    assert!(most >= length && most <= 8 << 20, "{most}");
    assert!(world.server.service.busy > 0, "nobody has waited");
    assert_eq!((world.server.service.never, world.server.service.waiting.len()), (0, 0));
    world.settle();
    world.all_home();
}

#[test]
fn a_result_that_no_pool_holds_is_refused_at_once() {
    let mut world = World::with(Lender::default(), [LIMITS; 2], FabricConfig::default());
    world.ask(1, 64 << 20, 100);
    world.until(|w| w.ended().len() == 1);
    assert_eq!(world.ended()[0].1, Err(CallError::Rejected(AcceptStat::SystemErr)));
    assert_eq!(world.server.service.never, 1);
    world.settle();
    world.all_home();
}

#[test]
fn what_was_leased_for_a_call_whose_connection_is_lost_comes_home() {
    for moment in 0..100 {
        let mut world = World::with(Lender::default(), ONCE, FabricConfig::default());
        for token in 0..4 {
            world.ask(token, 2 << 20, 2 << 20);
        }
        world.turns(moment);
        world.lose_the_connection();
        world.until(|w| w.ended().len() == 4 && w.is_disconnected());
        world.settle();
        world.server.service.waiting.clear();
        world.all_home();
    }
}
