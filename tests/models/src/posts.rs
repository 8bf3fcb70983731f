//! Two cores that post to a third, which sleeps when its mailbox is empty.

use std::sync::atomic::Ordering;

use loom::sync::atomic::AtomicBool;
use loom::sync::{Arc, Notify};
use loom::thread;

use crate::check;
use crate::news::News;

/// A mailbox: places that have a post each, the flag, and what ends the core's sleep.
struct Mailbox {
    posts: [AtomicBool; 2],
    news: News,
    waker: Notify,
}

impl Mailbox {
    /// Posts into a place, as `Mailbox::post` does.
    fn post(&self, place: usize) {
        self.posts[place].store(true, Ordering::Release);
        if self.news.raise() {
            self.waker.notify();
        }
    }

    fn pop(&self) -> Option<()> {
        let found = self.posts.iter().find(|post| post.load(Ordering::Acquire))?;
        found.store(false, Ordering::Relaxed);
        Some(())
    }

    /// Takes a post, as `Mailbox::take` does.
    fn take(&self) -> Option<()> {
        if !self.news.is_raised() {
            return None;
        }
        self.pop().or_else(|| self.news.lower(|| self.pop()))
    }
}

/// A core that sleeps when it has found its mailbox empty is woken for every post, although of several that come together
/// only the first wakes it.
pub fn a_core_that_sleeps_is_woken_for_every_post() {
    check(|| {
        let (posts, news, waker) = (Default::default(), News::new(), Notify::new());
        let mailbox = Arc::new(Mailbox { posts, news, waker });
        let posting = [0, 1].map(|place| {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || mailbox.post(place))
        });
        let mut taken = 0;
        while taken < 2 {
            match mailbox.take() {
                Some(()) => taken += 1,
                // Never woken, the model would stand still, which is a failure.
                None => mailbox.waker.wait(),
            }
        }
        posting.into_iter().for_each(|posting| posting.join().expect("it ends"));
        assert_eq!(mailbox.take(), None);
    });
}
