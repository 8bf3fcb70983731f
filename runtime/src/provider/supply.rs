//! Receives for queue pairs that have receive queues of their own.
//!
//! # Normal operation
//!
//! Receives that the core posts lie here until a queue pair gets them: each has as many as were reserved for it,
//! Receives and reservations both in the order they came. Receives that a queue pair did not use come back here.
//!
//! # Limits
//!
//! A core reserves no more Receives than it has posted, apart from those in messages it has not given back. So once it
//! has posted, as many lie here as queue pairs lack: let *n* be all Receives, of which *h* hold messages, *q* lie in
//! queue pairs, and *r* are reserved and not used; the core keeps *r* <= *n* - *h*. Queue pairs lack *r* - *q*, and *n*
//! - *h* - *q* are here.

use std::collections::VecDeque;

use haulage_proto::verbs::QpNum;

/// Receives that are in no queue pair, and the queue pairs that lack some.
#[derive(Debug)]
pub(super) struct Supply<R> {
    waiting: VecDeque<R>,
    /// Queue pairs that lack Receives reserved for them, and how many.
    lacking: VecDeque<(QpNum, u32)>,
    /// Receives that may still be posted.
    room: usize,
}

/// The outcome of giving a Receive to a queue pair.
#[derive(Debug)]
pub(super) enum Given<R> {
    /// The queue pair has it.
    Taken,
    /// The queue pair has no place for it now.
    Later(R),
    /// The queue pair takes no Receives any more.
    Never(R),
}

impl<R> Supply<R> {
    /// Makes room for `count` Receives, here and in queue pairs.
    pub(super) fn new(count: usize) -> Self {
        let (waiting, lacking) = (VecDeque::with_capacity(count), VecDeque::with_capacity(count));
        Self { waiting, lacking, room: count }
    }

    /// Returns how many Receives may be posted.
    pub(super) const fn room(&self) -> usize {
        self.room
    }

    /// Takes a Receive, for which there is room.
    pub(super) fn post(&mut self, receive: R) {
        self.room = self.room.saturating_sub(1);
        self.waiting.push_back(receive);
    }

    /// Reserves `count` more Receives for `qp`.
    pub(super) fn reserve(&mut self, qp: QpNum, count: u32) {
        match self.lacking.back_mut() {
            Some((last, lacks)) if *last == qp => *lacks = lacks.saturating_add(count),
            _ if count > 0 => self.lacking.push_back((qp, count)),
            _ => {}
        }
    }

    /// Notes that a Receive went back to its poster.
    pub(super) const fn used(&mut self) {
        self.room += 1;
    }

    /// Takes a Receive back that a queue pair did not use.
    pub(super) fn unused(&mut self, receive: R) {
        self.waiting.push_back(receive);
    }

    /// Drops the reservations of a queue pair that is gone.
    pub(super) fn forget(&mut self, qp: QpNum) {
        self.lacking.retain(|(other, _)| *other != qp);
    }

    /// Gives queue pairs the Receives they lack, as long as there are any and they take them.
    pub(super) fn deal(&mut self, mut give: impl FnMut(QpNum, R) -> Given<R>) {
        let mut at = 0;
        while let Some((qp, lacks)) = self.lacking.get_mut(at) {
            let Some(receive) = self.waiting.pop_front() else { return };
            match give(*qp, receive) {
                Given::Taken => *lacks -= 1,
                Given::Later(receive) => {
                    self.waiting.push_front(receive);
                    at += 1;
                    continue;
                }
                Given::Never(receive) => {
                    self.waiting.push_front(receive);
                    *lacks = 0;
                }
            }
            if *lacks == 0 {
                self.lacking.remove(at);
            }
        }
    }

    /// Drops all Receives and reservations.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.lacking.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::provider::sim::Rng;

    /// Queue pairs' own receive queues, as a device has them.
    #[derive(Debug, Default)]
    struct Device {
        queues: BTreeMap<u16, VecDeque<u32>>,
        depth: usize,
    }

    impl Device {
        fn deal(&mut self, supply: &mut Supply<u32>) {
            supply.deal(|qp, receive| {
                let depth = self.depth;
                match self.queues.get_mut(&number(qp)) {
                    None => Given::Never(receive),
                    Some(queue) if queue.len() == depth => Given::Later(receive),
                    Some(queue) => {
                        queue.push_back(receive);
                        Given::Taken
                    }
                }
            });
        }

        fn holding(&self) -> Vec<Vec<u32>> {
            self.queues.values().map(|queue| queue.iter().copied().collect()).collect()
        }
    }

    fn qp(number: u16) -> QpNum {
        QpNum::new(number, 0)
    }

    fn number(qp: QpNum) -> u16 {
        u16::try_from(qp.slot()).unwrap()
    }

    #[test]
    fn receives_go_to_those_they_are_reserved_for_in_the_order_of_both() {
        let mut supply = Supply::new(8);
        let mut device = Device { depth: 3, ..Device::default() };
        for number in [1, 2, 3] {
            device.queues.insert(number, VecDeque::new());
        }
        supply.reserve(qp(2), 1);
        supply.reserve(qp(1), 2);
        supply.reserve(qp(1), 0);
        supply.reserve(qp(9), 3);
        (0..2).for_each(|receive| supply.post(receive));
        device.deal(&mut supply);
        assert_eq!(device.holding(), [vec![1], vec![0], vec![]]);
        // A queue pair that takes no more does not keep the others from theirs; one that is gone gets none.
        supply.reserve(qp(1), 2);
        supply.reserve(qp(3), 1);
        (2..8).for_each(|receive| supply.post(receive));
        device.deal(&mut supply);
        assert_eq!(device.holding(), [vec![1, 2, 3], vec![0], vec![4]]);
        assert_eq!((supply.room(), supply.waiting.len()), (0, 3));
        device.queues.get_mut(&1).unwrap().pop_front();
        supply.used();
        device.deal(&mut supply);
        assert_eq!(device.holding()[0], [2, 3, 5]);
        // A queue pair that is gone loses its reservations.
        supply.reserve(qp(3), 2);
        supply.forget(qp(3));
        device.deal(&mut supply);
        assert_eq!(supply.waiting, [6, 7]);
        supply.reserve(qp(2), 1);
        device.deal(&mut supply);
        assert_eq!((supply.room(), supply.waiting.len(), supply.lacking.len()), (1, 1, 0));
    }

    /// A core's accounts: it reserves no more Receives than it has posted, and gives back those in messages.
    #[derive(Default)]
    struct Core {
        unreserved: u32,
        /// The Receives reserved for each queue pair and not used.
        reserved: BTreeMap<u16, u32>,
        held: Vec<u32>,
    }

    #[test]
    fn who_has_a_receive_reserved_finds_one() {
        const COUNT: u32 = 40;
        for seed in 0..200 {
            let mut random = Rng::new(seed);
            let mut supply = Supply::new(COUNT as usize);
            let mut device = Device { depth: COUNT as usize, ..Device::default() };
            let mut core = Core { unreserved: COUNT, ..Core::default() };
            (0..COUNT).for_each(|receive| supply.post(receive));
            for step in 0..400 {
                let number = u16::try_from(random.below(0..6)).unwrap();
                match random.below(0..8) {
                    // A connection begins, its Receives reserved before it has a queue.
                    0 if !device.queues.contains_key(&number) => {
                        device.queues.insert(number, VecDeque::new());
                        core.reserved.insert(number, 0);
                    }
                    // A connection ends.
                    1 => {
                        let left = device.queues.remove(&number).into_iter().flatten();
                        left.for_each(|receive| supply.unused(receive));
                        supply.forget(qp(number));
                        core.unreserved += core.reserved.remove(&number).unwrap_or(0);
                    }
                    // The core posts the Receives of messages it is done with.
                    2 | 3 => {
                        let count = u32::try_from(core.held.len()).unwrap();
                        core.unreserved += count;
                        for receive in core.held.drain(..) {
                            assert!(supply.room() > 0);
                            supply.post(receive);
                        }
                    }
                    // The core reserves more.
                    4 | 5 => {
                        if let Some(reserved) = core.reserved.get_mut(&number) {
                            let more = u32::try_from(random.below(0..8)).unwrap();
                            let more = more.min(core.unreserved);
                            core.unreserved -= more;
                            *reserved += more;
                            supply.reserve(qp(number), more);
                        }
                    }
                    // A message comes from a peer within its credit.
                    _ => {
                        if let Some(reserved) = core.reserved.get_mut(&number)
                            && *reserved > 0
                        {
                            let queue = device.queues.get_mut(&number).unwrap();
                            let found = queue.pop_front();
                            core.held.push(found.unwrap_or_else(|| {
                                panic!("seed {seed}, step {step}: no Receive for {number}")
                            }));
                            supply.used();
                            *reserved -= 1;
                        }
                    }
                }
                device.deal(&mut supply);
                let mut all: Vec<_> = device.holding().concat();
                all.extend(&supply.waiting);
                all.extend(&core.held);
                all.sort_unstable();
                assert!(all.iter().copied().eq(0..COUNT), "seed {seed}, step {step}: {all:?}");
            }
        }
    }
}
