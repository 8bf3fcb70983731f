//! Checks that every decoder round-trips valid messages octet for octet, and refuses or reproduces
//! anything else, with allocations in proportion to its length.

use haulage::sys::alloc::Counting;
use haulage_tests::Rng;
use haulage_tests::fuzz::{Codec, Kind, TARGETS, Target};
use haulage_tests::world::choices::Choices;

/// Counts the allocations of the decoders.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn codecs() -> impl Iterator<Item = (Target, Codec)> {
    TARGETS.into_iter().filter_map(|target| match target.kind {
        Kind::Codec(codec) => Some((target, codec)),
        Kind::Machine(_) => None,
    })
}

#[test]
fn every_valid_message_is_reproduced() {
    for (target, codec) in codecs() {
        for seed in 0..3000 {
            let message = (codec.valid)(&mut Choices::seeded(seed));
            let again = (codec.again)(&message);
            assert_eq!(again.as_ref(), Some(&message), "{} of seed {seed}", target.name);
        }
    }
}

#[test]
fn every_truncation_is_refused_or_reproduced() {
    for (target, codec) in codecs() {
        for seed in 0..100 {
            let message = (codec.valid)(&mut Choices::seeded(seed));
            for end in 0..message.len() {
                target.attempt(&message[..end]).unwrap_or_else(|failure| panic!("{failure}"));
            }
        }
    }
}

#[test]
fn every_changed_octet_is_refused_or_reproduced() {
    for (target, codec) in codecs() {
        for seed in 0..40 {
            let mut message = (codec.valid)(&mut Choices::seeded(seed));
            for at in 0..message.len() {
                let was = message[at];
                for bit in 0..8 {
                    message[at] = was ^ 1 << bit;
                    target.attempt(&message).unwrap_or_else(|failure| panic!("{failure}"));
                }
                message[at] = was;
            }
        }
    }
}

#[test]
fn random_octets_are_refused_or_reproduced() {
    let mut rng = Rng::new(0x0074_6f74_616c);
    for (target, _) in codecs() {
        for _ in 0..3000 {
            let length = rng.below(0..256);
            let data: Vec<_> = (0..length).map(|_| rng.next().to_be_bytes()[0]).collect();
            target.attempt(&data).unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
}
