//! What a service of a group does beside its Calls: it posts to the other cores, and may panic.

use std::cell::{Cell, RefCell};
use std::panic;
use std::rc::Rc;

use haulage::core::{CoreNumber, Cx};
use haulage::cores::post::{Mailbox, Undelivered};

use super::exercise::Ledger;
use super::mix::Event;
use crate::world::choices::Choices;

/// A service's part in its group.
#[derive(Debug)]
pub struct Fellow {
    choices: Choices,
    mailbox: Mailbox<Post>,
    /// Posts that each core's mailbox took from this core.
    sent: Vec<u64>,
    /// Posts that came from each core.
    taken: Vec<u64>,
}

/// The number of a post among those of its sender to its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Post(u64);

/// When a service is to panic: the first of its group that gets there does, and clears it.
pub type Falls = Rc<Cell<Option<Moment>>>;

/// A moment at which a service panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// While a Call is served whose arguments have been taken.
    InCall,
    /// In the turn of the service.
    InTurn,
}

/// The payload of a panic that a world asked for.
#[derive(Debug)]
pub struct Fallen;

/// Panics, without a message, if this is the moment to do so.
pub fn fall(falls: &Falls, moment: Moment) {
    if falls.get() == Some(moment) {
        falls.set(None);
        panic::resume_unwind(Box::new(Fallen));
    }
}

impl Fellow {
    /// Makes the part of the service that has `mailbox`.
    pub fn new(seed: u64, mailbox: Mailbox<Post>) -> Self {
        let nothing = vec![0; mailbox.cores()];
        let choices = Choices::seeded(seed);
        Self { choices, mailbox, sent: nothing.clone(), taken: nothing }
    }

    /// Posts to some cores, of which this may be one.
    pub fn post(&mut self, ledger: &RefCell<Ledger>) {
        for _ in 0..self.choices.below(4) {
            let to = self.choices.below(self.sent.len());
            let number = u8::try_from(to).ok().and_then(CoreNumber::new).expect("few cores");
            let post = Post(self.sent[to]);
            let event = match self.mailbox.post(number, post) {
                Ok(()) => {
                    self.sent[to] += 1;
                    Event::Posted
                }
                Err(Undelivered(back)) => {
                    assert_eq!(back, post, "another post came back");
                    Event::Undelivered
                }
            };
            ledger.borrow_mut().mix.note(event);
        }
    }

    /// Takes some of what was posted to this core. Returns whether there was anything.
    pub fn take(&mut self, cx: &Cx<'_>) -> bool {
        let most = self.choices.of(1..=3);
        let mut count = 0;
        while count < most
            && let Some((from, post)) = self.mailbox.take(cx)
        {
            count += 1;
            let expected = &mut self.taken[usize::from(from.get())];
            assert_eq!(post, Post(*expected), "posts of core {from} arrive once, in order");
            *expected += 1;
        }
        count > 0
    }

    /// Checks that every post arrived, once the services of the group have nothing more to do.
    pub fn check_all(fellows: &[&Self]) {
        for (from, sender) in fellows.iter().enumerate() {
            for (to, receiver) in fellows.iter().enumerate() {
                let (sent, taken) = (sender.sent[to], receiver.taken[from]);
                assert_eq!(sent, taken, "posts of core {from} to core {to}");
            }
        }
    }
}
