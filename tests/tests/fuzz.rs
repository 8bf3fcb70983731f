//! Every fuzz target against the committed corpus, and against a few seeded mutations of it.
//!
//! `cargo run --profile fuzz -p haulage-tests --example fuzz` tries more mutations, and `fuzz/`
//! searches for inputs that mutations do not reach.

use std::fs;
use std::panic;

use haulage::sys::alloc::Counting;
use haulage_tests::fuzz::bound::bounded;
use haulage_tests::fuzz::mutate::Mutator;
use haulage_tests::fuzz::{TARGETS, corpus, target};

/// Counts the allocations of the targets.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn the_corpus_holds() {
    for target in TARGETS {
        let inputs = corpus::read(&target).unwrap();
        assert!(!inputs.is_empty(), "{} has no corpus", target.name);
        for (name, data) in inputs {
            let outcome = target.attempt(&data);
            outcome.unwrap_or_else(|failure| panic!("{name}: {failure}"));
        }
    }
}

#[test]
fn mutations_of_the_corpus_hold() {
    for target in TARGETS {
        let known = corpus::read(&target).unwrap().into_iter().map(|(_, data)| data).collect();
        let mut mutator = Mutator::new(known, 1);
        for _ in 0..1000 {
            target.attempt(&mutator.draw()).unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
}

#[test]
fn the_corpus_is_small_and_of_targets_that_exist() {
    let mut octets = 0;
    for directory in fs::read_dir(corpus::directory()).unwrap() {
        let name = directory.unwrap().file_name().into_string().unwrap();
        let target = target(&name).unwrap_or_else(|| panic!("no target {name}"));
        octets += corpus::read(&target).unwrap().iter().map(|(_, data)| data.len()).sum::<usize>();
    }
    assert!(octets < 1 << 20, "{octets} octets");
}

#[test]
fn a_decoder_that_allocates_too_much_is_caught() {
    let allocate = |octets: usize| {
        panic::catch_unwind(|| bounded(100, || drop(std::hint::black_box(vec![0_u8; octets]))))
    };
    assert!(allocate(1000).is_ok());
    assert!(allocate(2000).is_err(), "is the counting allocator installed?");
}
