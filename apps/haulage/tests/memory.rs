//! What a core leaves behind: measured on the whole process, so in a process of its own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use haulage::provider::iwarp::Backend;

#[expect(dead_code, reason = "shared with the tests that also fetch")]
#[path = "kv/pair.rs"]
mod pair;

use pair::Pair;

#[test]
fn a_core_that_ends_gives_its_memory_back() {
    let resident = || haulage::sys::process::resident().unwrap().total();
    let life = || {
        let mut pair = Pair::new(Backend::Auto, 1);
        let mut value = pair.lease(4 << 20);
        value.bytes_mut().fill(1);
        pair.put(0, 0, "large", value);
        assert_eq!(pair.ended(1)[0].status, Ok(0));
        pair.shut_down();
    };
    life();
    let before = resident();
    (0..32).for_each(|_| life());
    let grown = resident().saturating_sub(before);
    assert!(grown < 128 << 20, "32 lives left {grown} bytes behind");
}
