//! Two ends that call each other in any order, with Receives that come back late.

use crate::v2::continuation::Kind;

use super::*;

/// What one end owes and awaits.
#[derive(Default)]
struct Work {
    /// Received Calls that are not answered.
    owed: Vec<u32>,
    /// Our Calls that are not answered.
    unanswered: Vec<u32>,
    /// Replies that are not released.
    unreleased: Vec<u32>,
    answered: usize,
    /// Messages taken, and sent, in runs.
    in_runs: [usize; 2],
    /// Receives used and not reserved again.
    used: u32,
}

struct World {
    pair: Pair,
    work: [Work; 2],
    rng: Rng,
    next_xid: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let profile = (rng.below(2) == 0).then_some(Profile { held_max: 3, ..PROFILE });
        let config = |role| Config { profile, ..config(role) };
        let receives = 2 + u32::from(rng.octet() % 16);
        let mut pair = Pair::new(config(Role::Client), config(Role::Server), receives);
        pair.ends[SERVER].engine.announce();
        Self { pair, work: Default::default(), rng, next_xid: 1 }
    }

    fn step(&mut self) {
        let at = self.rng.below(2);
        match self.rng.below(8) {
            0 => self.call(at),
            1 => self.answer(at),
            6 => self.call_in_a_run(at),
            7 => self.answer_in_a_run(at),
            2 => self.release(at),
            3 => self.give_back(at),
            _ => self.deliver(at),
        }
    }

    fn call(&mut self, at: usize) {
        if self.pair.send(at, Class::Call, self.next_xid).is_some() {
            self.work[at].unanswered.push(self.next_xid);
            self.next_xid += 1;
        }
    }

    /// Sends some of the Calls that may be sent at once.
    fn call_in_a_run(&mut self, at: usize) {
        let lent = self.pair.ends[at].engine.lend(Class::Call, 1 + u32::from(self.rng.octet() % 8));
        let posted = u32::try_from(self.rng.below(lent.count as usize + 1)).unwrap();
        for _ in 0..posted {
            self.pair.ends[1 - at].inbox.push_back(plain(Class::Call, self.next_xid, lent.word));
            self.work[at].unanswered.push(self.next_xid);
            self.next_xid += 1;
        }
        self.work[at].in_runs[1] += posted as usize;
        self.pair.ends[at].engine.settle(Class::Call, lent, posted);
    }

    /// Answers some of the Calls that may be answered at once.
    fn answer_in_a_run(&mut self, at: usize) {
        let owed = u32::try_from(self.work[at].owed.len()).unwrap();
        // The engine also owes errors to refused Calls.
        let owed_before = self.pair.ends[at].engine.owed();
        let lent = self.pair.ends[at].engine.lend(Class::Reply, owed);
        assert!(lent.count <= owed && (lent.count == 0 || lent.word > 0));
        let posted = self.rng.below(lent.count as usize + 1);
        for xid in self.work[at].owed.drain(..posted) {
            self.pair.ends[1 - at].inbox.push_back(plain(Class::Reply, xid, lent.word));
        }
        self.work[at].in_runs[1] += posted;
        let posted = u32::try_from(posted).unwrap();
        self.pair.ends[at].engine.settle(Class::Reply, lent, posted);
        assert_eq!(self.pair.ends[at].engine.owed(), owed_before - posted);
        self.pair.drain(at);
    }

    /// Has a message taken as one of a run, if it is one that may be. Returns what it is then.
    fn take_in_a_run(&mut self, at: usize, bytes: &[u8]) -> Option<Event> {
        let unchunked = header::unchunked(bytes).filter(|_| self.rng.below(2) == 0)?;
        let engine = &mut self.pair.ends[at].engine;
        if engine.take(unchunked.kind, [unchunked]) == 0 {
            return None;
        }
        // Now and then the message cannot be acted upon after all, and comes again.
        if self.rng.below(4) == 0 {
            engine.put_back(unchunked.kind, 1);
            return None;
        }
        self.work[at].in_runs[0] += 1;
        Some(if unchunked.kind == Kind::Call { Event::Call } else { Event::Reply })
    }

    fn answer(&mut self, at: usize) {
        if self.work[at].owed.is_empty() {
            return;
        }
        let pick = self.rng.below(self.work[at].owed.len());
        let xid = self.work[at].owed[pick];
        let sent = match self.rng.below(4) {
            0 => {
                self.pair.ends[at].engine.refuse(xid, ErrorBody::Chunk);
                self.pair.drain(at);
                true
            }
            1 if at == SERVER => self.pair.ends[at]
                .engine
                .try_send_held(self.pair.now, xid)
                .map(|credit| {
                    let bytes =
                        with_lists(xid, |xdr| xdr.read_list(&[(4, CHUNK)]).words(&[0, 0]), 1);
                    let granted = [&bytes[..8], &credit.to_be_bytes(), &bytes[12..]].concat();
                    self.pair.ends[CLIENT].inbox.push_back(granted);
                })
                .is_some(),
            _ => self.pair.send(at, Class::Reply, xid).is_some(),
        };
        if sent {
            self.work[at].owed.swap_remove(pick);
        }
    }

    fn release(&mut self, at: usize) {
        if let Some(xid) = self.work[at].unreleased.pop() {
            let done = self.pair.ends[at].engine.done(xid).expect("a Reply to release");
            self.pair.control(at, done);
        }
    }

    fn give_back(&mut self, at: usize) {
        let used = core::mem::take(&mut self.work[at].used);
        self.pair.ends[at].engine.reserve(used);
        self.pair.drain(at);
    }

    fn deliver(&mut self, at: usize) {
        let Some(bytes) = self.pair.ends[at].inbox.pop_front() else { return };
        assert!(self.pair.ends[at].engine.reserved() > 0, "every message finds a Receive");
        let events = match self.take_in_a_run(at, &bytes) {
            Some(event) => vec![event],
            None => {
                self.pair.take(at, &bytes);
                self.pair.events(at)
            }
        };
        self.work[at].used += 1;
        let xid = u32::from_be_bytes(bytes[..4].try_into().unwrap());
        for event in events {
            let work = &mut self.work[at];
            match event {
                Event::Call => work.owed.push(xid),
                Event::Reply | Event::Refused { .. } => {
                    let ours = work.unanswered.iter().position(|&call| call == xid);
                    work.unanswered.swap_remove(ours.expect("one answer each"));
                    work.answered += 1;
                    let held = matches!(header::decode(&bytes), Ok(Message::Msg(rpc)) if !rpc.reads.is_empty());
                    if held && event == Event::Reply {
                        work.unreleased.push(xid);
                    }
                }
                Event::Released { done, .. } => assert!(done),
                Event::Ready | Event::Malformed { .. } | Event::Unsupported { .. } => {
                    panic!("{event:?}")
                }
            }
        }
        assert_eq!(self.pair.ends[at].closed, None);
    }

    /// Lets everything come to its end.
    fn finish(&mut self) {
        for _ in 0..1_000 {
            for at in [CLIENT, SERVER] {
                self.give_back(at);
                self.answer(at);
                self.release(at);
                self.deliver(at);
            }
        }
        for at in [CLIENT, SERVER] {
            let Work { owed, unanswered, unreleased, .. } = &self.work[at];
            assert!(owed.is_empty() && unanswered.is_empty() && unreleased.is_empty());
            assert_eq!(self.pair.ends[at].engine.owed(), 0);
            assert!(self.pair.ends[at].inbox.is_empty());
        }
        assert_eq!(self.pair.ends[SERVER].engine.poll_deadline(), None, "nothing is held");
    }
}

#[test]
fn every_call_is_answered_and_every_message_finds_a_receive() {
    let (mut answered, mut in_runs) = ([0, 0], [[0; 2]; 2]);
    for seed in 0..60 {
        let mut world = World::new(seed);
        for _ in 0..3_000 {
            world.step();
        }
        world.finish();
        for at in [CLIENT, SERVER] {
            assert!(world.work[at].answered > 0 || at == SERVER, "seed {seed}");
            answered[at] += world.work[at].answered;
            for (sum, count) in in_runs[at].iter_mut().zip(world.work[at].in_runs) {
                *sum += count;
            }
        }
    }
    let least = in_runs.iter().flatten().min();
    assert!(least.is_some_and(|count| *count > 100), "taken and sent in runs: {in_runs:?}");
    assert!(answered[CLIENT] > 5_000 && answered[SERVER] > 1_000, "{answered:?}");
}
