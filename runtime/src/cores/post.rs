//! Posts: values that the services of a group's cores send each other, for what is rare.
//!
//! # Normal operation
//! A service keeps its [`Mailbox`], posts to other cores by their numbers, and takes what it was sent in its
//! [`turn`](crate::core::Service::turn). A core that sleeps is woken. A mailbox that is not used costs nothing, and one in which
//! nothing lies one look a turn.
//!
//! # Limits
//! A mailbox has room for a number of posts that is fixed when it is made. A full one is never waited for: the post comes back, and who posts says
//! what that means.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crossbeam_queue::ArrayQueue;

use self::news::News;
use crate::core::{CoreNumber, Cx};
use crate::sys::wake::Waker;

mod news;

/// The mailbox of one core, for the posts of every core of its group.
#[derive(Debug)]
pub struct Mailbox<T> {
    at: CoreNumber,
    boxes: Arc<[Slot<T>]>,
}

/// What has been sent to one core.
#[derive(Debug)]
struct Slot<T> {
    posts: ArrayQueue<(CoreNumber, T)>,
    news: News,
    /// Known once the core has looked into its mailbox.
    waker: OnceLock<Waker>,
}

/// The mailbox is full, or the group has no such core. The post comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Undelivered<T>(pub T);

impl<T> fmt::Debug for Undelivered<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Undelivered")
    }
}

/// Makes the mailboxes of a group with `cores` cores, by their numbers. Each holds at most `posts_max` posts.
pub fn mailboxes<T: Send>(cores: usize, posts_max: usize) -> Vec<Mailbox<T>> {
    let slot = |_| Slot {
        posts: ArrayQueue::new(posts_max.max(1)),
        news: News::new(),
        waker: OnceLock::new(),
    };
    let boxes: Arc<[_]> = (0..cores).map(slot).collect();
    let numbers = (0..=u8::MAX).map_while(CoreNumber::new).take(cores);
    numbers.map(|at| Mailbox { at, boxes: Arc::clone(&boxes) }).collect()
}

impl<T: Send> Mailbox<T> {
    /// Returns the number of cores in the group.
    pub fn cores(&self) -> usize {
        self.boxes.len()
    }

    /// Posts to a core, which may be this one, and wakes it.
    ///
    /// # Errors
    /// The mailbox of that core is full, or there is no such core.
    pub fn post(&self, to: CoreNumber, post: T) -> Result<(), Undelivered<T>> {
        let Some(slot) = self.boxes.get(usize::from(to.get())) else {
            return Err(Undelivered(post));
        };
        slot.posts.push((self.at, post)).map_err(|(_, post)| Undelivered(post))?;
        if slot.news.raise() {
            slot.waker.get().into_iter().for_each(Waker::wake);
        }
        Ok(())
    }

    /// Takes the next post for this core, and says which core sent it. To be called in each turn, until there is none or
    /// the turn has done enough; a turn that leaves posts says that it did something, so that the core does not sleep.
    ///
    /// # Panics
    /// If it is another core's mailbox.
    #[inline]
    pub fn take(&mut self, cx: &Cx<'_>) -> Option<(CoreNumber, T)> {
        let slot = self.boxes.get(usize::from(self.at.get()))?;
        if slot.waker.get().is_some() && !slot.news.is_raised() {
            return None;
        }
        self.take_news(cx)
    }

    #[inline(never)]
    fn take_news(&mut self, cx: &Cx<'_>) -> Option<(CoreNumber, T)> {
        assert_eq!(self.at, cx.core(), "a mailbox serves the core of its number");
        let slot = self.boxes.get(usize::from(self.at.get()))?;
        // A core makes its first turn before it first sleeps, so nobody has to wake it before.
        slot.waker.get_or_init(|| cx.waker());
        slot.posts.pop().or_else(|| slot.news.lower(|| slot.posts.pop()))
    }
}
