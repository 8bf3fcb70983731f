//! A thread beside the core's, for work that takes longer than a turn may.
//!
//! Orders are carried out one after the other, in the order given. The thread starts with the first order and ends with
//! the provider, which waits for the order under way; those behind it are dropped.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{Builder, JoinHandle};

use crate::provider::Waker;
use crate::sys::affinity;

/// Carries out orders `O`, some of which have results `R`.
#[derive(Debug)]
pub(super) struct Helper<O, R> {
    work: fn(O) -> Option<R>,
    waker: Waker,
    started: Option<Started<O, R>>,
}

#[derive(Debug)]
struct Started<O, R> {
    orders: Sender<O>,
    results: Receiver<R>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl<O: Send + 'static, R: Send + 'static> Helper<O, R> {
    /// Prepares to carry out orders by `work`, and to wake the core for each result.
    pub(super) const fn new(waker: Waker, work: fn(O) -> Option<R>) -> Self {
        Self { work, waker, started: None }
    }

    /// Gives an order.
    ///
    /// # Errors
    ///
    /// The system has no thread for it. The order is dropped.
    pub(super) fn order(&mut self, order: O) -> io::Result<()> {
        if self.started.is_none() {
            self.started = Some(Started::new(self.waker.clone(), self.work)?);
        }
        let sent = self.started.as_ref().and_then(|started| started.orders.send(order).ok());
        sent.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    /// Returns the next result, if there is one.
    pub(super) fn next(&self) -> Option<R> {
        self.started.as_ref()?.results.try_recv().ok()
    }
}

impl<O: Send + 'static, R: Send + 'static> Started<O, R> {
    fn new(waker: Waker, work: fn(O) -> Option<R>) -> io::Result<Self> {
        let (orders, given) = mpsc::channel();
        let (done, results) = mpsc::channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = Builder::new().name("verbs-helper".to_owned()).spawn(move || {
            // If this fails, the thread shares the core's CPU, and is less useful.
            let _ = affinity::unpin();
            for order in given {
                if over.load(Ordering::Relaxed) {
                    continue;
                }
                if let Some(result) = work(order) {
                    // The provider may be about to go, and no longer wait for the result.
                    let _ = done.send(result);
                    waker.wake();
                }
            }
        })?;
        Ok(Self { orders, results, is_over, thread })
    }
}

impl<O, R> Drop for Helper<O, R> {
    fn drop(&mut self) {
        let Some(Started { orders, results, is_over, thread }) = self.started.take() else {
            return;
        };
        is_over.store(true, Ordering::Relaxed);
        drop(orders);
        // A panic of the thread has been printed; there is nothing to add.
        let _ = thread.join();
        drop(results);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    use super::*;
    use crate::sys::wake;

    #[test]
    fn orders_are_carried_out_in_turn_and_results_wake() {
        let waker = Waker::new().unwrap();
        let odd = |order: u32| (order % 2 == 1).then_some(order);
        let mut helper = Helper::new(waker.clone(), odd);
        assert_eq!(helper.next(), None, "there was no order");
        (0..6).for_each(|order| helper.order(order).unwrap());
        let mut found = Vec::new();
        loop {
            found.extend(std::iter::from_fn(|| helper.next()));
            if found.len() == 3 {
                break;
            }
            wake::wait(&waker, Duration::from_secs(10));
        }
        assert_eq!(found, [1, 3, 5]);
    }

    #[test]
    fn what_has_not_begun_when_it_ends_is_dropped_and_never_done() {
        /// Reports that it was carried out, and that it was dropped.
        struct Order(Receiver<()>, mpsc::Sender<&'static str>);
        impl Drop for Order {
            fn drop(&mut self) {
                self.1.send("dropped").unwrap();
            }
        }
        let work = |order: Order| {
            order.1.send("begun").unwrap();
            order.0.recv().ok()
        };
        let (tell, told) = mpsc::channel();
        let mut helper = Helper::new(Waker::new().unwrap(), work);
        let (go_on, wait) = sync_channel(0);
        helper.order(Order(wait, tell.clone())).unwrap();
        let (_never, wait) = sync_channel(0);
        helper.order(Order(wait, tell)).unwrap();
        assert_eq!(told.recv().unwrap(), "begun");
        let is_over = Arc::clone(&helper.started.as_ref().unwrap().is_over);
        std::thread::scope(|scope| {
            scope.spawn(move || drop(helper));
            while !is_over.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            go_on.send(()).unwrap();
        });
        assert_eq!(told.iter().collect::<Vec<_>>(), ["dropped", "dropped"]);
    }
}
