use std::vec;

use super::*;
use crate::v2::error::ErrorBody;

const fn words(kind: Kind, length_max: usize, count_max: u32) -> Eligible {
    Eligible { kind, length_max, count_max }
}

fn opaque(length: usize) -> DataItem {
    DataItem::opaque(0, length)
}

fn reads(lengths: &[u32]) -> Vec<Reduced> {
    let at = |(position, length): (u32, &u32)| Reduced { position, length: *length };
    (1_u32..).map(|n| 100 * n).zip(lengths).map(at).collect()
}

/// NFS version 3 as RFC 8267 binds it: the data of READ and WRITE, and the path names of READLINK and
/// SYMLINK.
fn nfs3() -> Binding {
    let (data, path) = (Eligible::opaque(1 << 20), Eligible::opaque(1024));
    let mut procedures: Vec<_> =
        (0..22).map(|_| Procedure::new("other").results_max(64 << 10)).collect();
    procedures[5] = Procedure::new("READLINK").result(path).idempotent();
    procedures[6] = Procedure::new("READ").result(data).idempotent();
    procedures[7] = Procedure::new("WRITE").argument(data).idempotent();
    procedures[10] = Procedure::new("SYMLINK").argument(path);
    Binding { program: 100_003, version: 3, procedures }
}

#[test]
fn only_what_is_declared_can_be_reduced() {
    let binding = nfs3();
    let procedure = |number| binding.procedure(number).unwrap();
    assert!(procedure(7).allows_arguments(&[opaque(1 << 20)]));
    assert!(!procedure(7).allows_arguments(&[opaque((1 << 20) + 1)]), "too long");
    assert!(!procedure(7).allows_arguments(&[opaque(1), opaque(1)]), "one too many");
    assert!(!procedure(6).allows_arguments(&[opaque(1)]), "a READ has no such argument");
    assert!(!procedure(7).allows_arguments(&[DataItem::new(Kind::Arm, 0, 4)]), "another type");
    assert!(procedure(6).allows_results(&[1 << 20]));
    assert!(!procedure(6).allows_results(&[(1 << 20) + 1]));
    assert!(!procedure(7).allows_results(&[1]));
    assert!(procedure(0).allows_arguments(&[]) && procedure(0).allows_results(&[]));
    assert_eq!(binding.procedure(22), None);
}

#[test]
fn items_take_their_places_in_order() {
    let compound = Procedure::new("COMPOUND")
        .argument(words(Kind::Opaque, 100, 2))
        .argument(words(Kind::Array, 40, 1))
        .argument(words(Kind::Opaque, 1000, u32::MAX));
    let array = DataItem::new(Kind::Array, 0, 8);
    assert!(compound.allows_arguments(&[opaque(100), opaque(1), array, opaque(1000)]));
    assert!(compound.allows_arguments(&[array, opaque(1)]), "places stay empty");
    assert!(compound.allows_arguments(&vec![opaque(1); 50]));
    assert!(!compound.allows_arguments(&[array, array]));
    assert!(!compound.allows_arguments(&[opaque(1000), array]), "out of order");
    assert!(!compound.allows_arguments(&[opaque(1001)]), "and found so at once");
}

#[test]
fn a_peer_that_reduces_anything_else_is_refused() {
    let binding = nfs3();
    let check = |number, lengths: &[u32], writes| {
        let procedure: &Procedure = binding.procedure(number).unwrap();
        procedure.check_call(reads(lengths).into_iter(), writes)
    };
    assert_eq!(check(7, &[1 << 20], 0), Ok(()));
    assert_eq!(check(7, &[], 0), Ok(()));
    assert_eq!(check(7, &[1, 1], 0), Err(Violation::Arguments { max: 1 }));
    assert_eq!(check(6, &[1], 0), Err(Violation::Arguments { max: 0 }));
    assert_eq!(check(7, &[(1 << 20) + 1], 0), Err(Violation::TooLong { position: 100 }));
    assert_eq!(check(6, &[], 1), Ok(()));
    assert_eq!(check(6, &[], 2), Err(Violation::Results { max: 1 }));
    assert_eq!(check(7, &[], 1), Err(Violation::Results { max: 0 }));
}

#[test]
fn a_violation_says_how_much_there_may_be() {
    for (violation, report) in [
        (Violation::Arguments { max: 2 }, ErrorBody::ReadChunks { max: 2 }),
        (Violation::Arguments { max: 0 }, ErrorBody::ReadChunks { max: 0 }),
        (Violation::Results { max: 2 }, ErrorBody::WriteChunks { max: 2 }),
        (Violation::Results { max: 0 }, ErrorBody::WriteChunks { max: 0 }),
        (Violation::TooLong { position: 8 }, ErrorBody::System),
    ] {
        assert_eq!(violation.report(), report);
    }
}

#[test]
fn the_longest_reply_counts_header_results_and_padding() {
    let read = Procedure::new("READ").result(Eligible::opaque(5001)).results_max(128);
    assert_eq!(read.reply_max(&[]), 424 + 128);
    assert_eq!(read.reply_max(&[5001]), 424 + 128 + 5004);
    assert_eq!(read.reply_max(&[u32::MAX, u32::MAX]), 424 + 128 + (2 << 32));
}

#[test]
fn a_procedure_is_answered_and_not_repeated_unless_declared() {
    let plain = Procedure::new("plain");
    assert!(!plain.call_only && !plain.idempotent);
    assert!(Procedure::new("told").call_only().call_only);
    assert!(Procedure::new("asked").idempotent().idempotent);
}
