//! Termination signals, in a process of their own: the flag is the process's.

use std::process::Command;
use std::time::Duration;

use haulage::sys::clock;
use haulage::sys::signal::{catch_termination, end_requested, wake_on_end};
use haulage::sys::wake::Waker;

#[test]
fn a_signal_sets_the_flag_and_wakes_those_registered_before_and_after() {
    let before = Waker::new().unwrap();
    wake_on_end(&before).unwrap();
    catch_termination().unwrap();
    assert!(!end_requested() && !signaled(&before));

    // Sent once: a second one would end this process.
    let sent = Command::new("sh").args(["-c", "kill -TERM $PPID"]).status().unwrap();
    assert!(sent.success());
    let deadline = clock::now().saturating_add(Duration::from_secs(10));
    while !end_requested() || !signaled(&before) {
        assert!(clock::now() < deadline, "the signal never arrived");
        std::thread::yield_now();
    }
    let after = Waker::new().unwrap();
    wake_on_end(&after).unwrap();
    assert!(signaled(&after));
}

/// Returns whether the waker is signaled, without clearing it.
fn signaled(waker: &Waker) -> bool {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", waker.signal_fd()))
        .expect("an open descriptor has its fdinfo");
    !info.lines().any(|l| l.split_whitespace().eq(["eventfd-count:", "0"]))
}
