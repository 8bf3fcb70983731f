use haulage_proto::chunk::{Item, PayloadReader};
use haulage_proto::xdr::Truncated;

use super::binding::{Limits, binding};
use super::{Arguments, Procedure, Results};
use crate::codec::Malformed;
use crate::testing::{Rng, written};

mod captured;
mod layout;
mod random;

/// Decodes arguments without reduced items.
fn arguments(procedure: Procedure, bytes: &[u8]) -> Result<Arguments<'_>, Malformed> {
    Arguments::decode(procedure, &mut PayloadReader::call(bytes, 0, None))
}

/// Decodes results without reduced items.
fn results(procedure: Procedure, bytes: &[u8]) -> Result<Results<'_>, Malformed> {
    Results::decode(procedure, &mut PayloadReader::reply(bytes, 0, None))
}

#[test]
fn all_arguments_survive_the_round_trip() {
    let mut rng = Rng::new(1);
    for _ in 0..200 {
        for procedure in Procedure::ALL {
            let sent = random::arguments(*procedure, &mut rng);
            let bytes = written(|w| sent.encode(w));
            assert_eq!(arguments(*procedure, &bytes), Ok(sent));
            assert_eq!(sent.procedure(), *procedure);
        }
    }
}

#[test]
fn all_results_survive_the_round_trip() {
    let mut rng = Rng::new(2);
    let mut memory = vec![0; 8192];
    for _ in 0..200 {
        for procedure in Procedure::ALL {
            let sent = random::results(*procedure, &mut rng, &mut memory);
            let bytes = written(|w| sent.encode(w));
            assert_eq!(results(*procedure, &bytes), Ok(sent));
        }
    }
}

#[test]
fn every_truncation_and_every_excess_is_refused() {
    let mut rng = Rng::new(3);
    let mut memory = vec![0; 2048];
    for procedure in Procedure::ALL.iter().copied() {
        let mut bytes = written(|w| random::arguments(procedure, &mut rng).encode(w));
        for end in 0..bytes.len() {
            let cut = arguments(procedure, &bytes[..end]);
            assert!(matches!(cut, Err(Malformed::Truncated(_))), "{procedure:?} cut at {end}");
        }
        let at = bytes.len();
        bytes.extend([0; 4]);
        assert_eq!(arguments(procedure, &bytes), Err(Malformed::Excess { at }), "{procedure:?}");

        let mut bytes = written(|w| random::results(procedure, &mut rng, &mut memory).encode(w));
        for end in 0..bytes.len() {
            let cut = results(procedure, &bytes[..end]);
            assert!(matches!(cut, Err(Malformed::Truncated(_))), "{procedure:?} cut at {end}");
        }
        let at = bytes.len();
        bytes.extend([0; 4]);
        assert_eq!(results(procedure, &bytes), Err(Malformed::Excess { at }), "{procedure:?}");
    }
}

#[test]
fn what_damaged_bytes_are_read_as_survives_the_round_trip() {
    let mut rng = Rng::new(4);
    let mut memory = vec![0; 2048];
    let mut read = 0;
    for _ in 0..2_000 {
        for procedure in Procedure::ALL.iter().copied() {
            let mut bytes = written(|w| random::arguments(procedure, &mut rng).encode(w));
            rng.mutate(&mut bytes);
            if let Ok(arguments) = arguments(procedure, &bytes) {
                let again = written(|w| arguments.encode(w));
                assert_eq!(super::tests::arguments(procedure, &again), Ok(arguments));
                read += 1;
            }
            let mut bytes =
                written(|w| random::results(procedure, &mut rng, &mut memory).encode(w));
            rng.mutate(&mut bytes);
            if let Ok(results) = results(procedure, &bytes) {
                let again = written(|w| results.encode(w));
                // Only lengths are compared: the decoder does not judge octets of padding, and a list keeps them.
                assert_eq!(again.len(), bytes.len());
                read += 1;
            }
        }
    }
    assert!(read > 1_000, "mutations leave some messages good: {read}");
}

#[test]
fn exactly_the_four_bulk_items_are_ddp_eligible() {
    let bound = binding(&LIMITS);
    assert_eq!((bound.program, bound.version), (100_003, 3));
    assert_eq!(bound.procedures.len(), 22);
    let eligible = |items: &[haulage_proto::rpc::Eligible]| {
        items.iter().map(|item| item.length_max).collect::<Vec<_>>()
    };
    for procedure in &bound.procedures {
        let expected: (&[usize], &[usize]) = match procedure.name {
            "READ" => (&[], &[1 << 20]),
            "WRITE" => (&[1 << 19], &[]),
            "READLINK" => (&[], &[4096]),
            "SYMLINK" => (&[4096], &[]),
            _ => (&[], &[]),
        };
        let found = (eligible(&procedure.arguments), eligible(&procedure.results));
        assert_eq!((&found.0[..], &found.1[..]), expected, "{}", procedure.name);
    }
    let twice: Vec<_> = bound.procedures.iter().filter(|p| !p.idempotent).map(|p| p.name).collect();
    let harmful = [
        "SETATTR", "WRITE", "CREATE", "MKDIR", "SYMLINK", "MKNOD", "REMOVE", "RMDIR", "RENAME",
        "LINK",
    ];
    assert_eq!(twice, harmful);
}

#[test]
fn the_longest_results_are_as_long_as_the_binding_says() {
    let bound = binding(&LIMITS);
    for procedure in Procedure::ALL.iter().copied() {
        let declared = bound.procedure(procedure.number()).unwrap();
        // The caller bounds the results of READDIR and READDIRPLUS.
        if matches!(procedure, Procedure::ReadDir | Procedure::ReadDirPlus) {
            assert_eq!(declared.results_max, 4 + LIMITS.readdir_max);
            continue;
        }
        let longest = written(|w| random::longest_results(procedure).encode(w));
        assert_eq!(longest.len(), declared.results_max as usize, "{procedure:?}");
    }
}

#[test]
fn reduced_items_leave_their_lengths_behind() {
    let mut rng = Rng::new(5);
    for (procedure, length) in [(Procedure::Write, 5001_u32), (Procedure::Symlink, 4001)] {
        let item = Item::Reduced { length: u64::from(length) };
        let sent = random::with_argument(procedure, item, &mut rng);
        let bytes = written(|w| sent.encode(w));
        let position = u32::try_from(bytes.len()).unwrap();
        let chunk = Some((position, u64::from(length)));
        let mut r = PayloadReader::call(&bytes, 0, chunk);
        assert_eq!(Arguments::decode(procedure, &mut r), Ok(sent));
        // A chunk that belongs elsewhere is refused.
        for (position, length) in [(position - 4, length), (position, length + 4)] {
            let chunk = Some((position, u64::from(length)));
            let mut r = PayloadReader::call(&bytes, 0, chunk);
            assert!(Arguments::decode(procedure, &mut r).is_err());
        }
    }
    for (procedure, length) in [(Procedure::Read, 5001_u32), (Procedure::ReadLink, 4001)] {
        let sent = random::with_result(procedure, Item::Reduced { length: u64::from(length) });
        let bytes = written(|w| sent.encode(w));
        let mut r = PayloadReader::reply(&bytes, 0, Some(length));
        assert_eq!(Results::decode(procedure, &mut r), Ok(sent));
        let mut r = PayloadReader::reply(&bytes, 0, Some(length + 4));
        assert!(Results::decode(procedure, &mut r).is_err());
    }
}

#[test]
fn a_refusal_tells_its_status_and_nothing_else() {
    for procedure in Procedure::ALL.iter().copied().filter(|p| *p != Procedure::Null) {
        let refusal = Results::refusal(procedure, super::Status::Jukebox);
        let bytes = written(|w| refusal.encode(w));
        assert_eq!(results(procedure, &bytes), Ok(refusal));
        assert_eq!(refusal.status(), super::Status::Jukebox);
        assert_eq!(bytes[..4], 10_008_u32.to_be_bytes());
        assert!(bytes[4..].iter().all(|octet| *octet == 0), "{procedure:?}");
    }
}

#[test]
fn a_failure_leaves_the_write_chunk_unused() {
    for procedure in [Procedure::Read, Procedure::ReadLink] {
        let bytes = crate::testing::words(&[70, 0]);
        let mut r = PayloadReader::reply(&bytes, 0, Some(0));
        assert_eq!(Results::decode(procedure, &mut r).unwrap().status(), super::Status::Stale);
        let mut r = PayloadReader::reply(&bytes, 0, Some(8));
        assert!(Results::decode(procedure, &mut r).is_err(), "{procedure:?}");
    }
}

#[test]
fn neither_handles_nor_data_are_printed() {
    let handle = super::FileHandle::new(&[0x5a; 64]).unwrap();
    assert_eq!(format!("{handle:?}"), "FileHandle(..)");
    assert_eq!(super::FileHandle::new(&[0; 65]), None);
    let data = super::Data(Item::Unreduced(b"secret"));
    assert_eq!(format!("{data:?}"), "Data(6 octets)");
}

const LIMITS: Limits = Limits { read_max: 1 << 20, write_max: 1 << 19, readdir_max: 1 << 16 };
