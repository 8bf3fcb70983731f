use super::*;
use crate::codec::ListWriter;
use crate::testing::{Rng, words, written};

fn arguments(procedure: Procedure, bytes: &[u8]) -> Result<Arguments<'_>, Malformed> {
    Arguments::decode(procedure, &mut PayloadReader::call(bytes, 0, None))
}

fn results(procedure: Procedure, bytes: &[u8]) -> Result<Results<'_>, Malformed> {
    Results::decode(procedure, &mut PayloadReader::reply(bytes, 0, None))
}

#[test]
fn messages_have_these_octets() {
    let path = Path(b"/srv");
    for (procedure, sent, octets) in [
        (Procedure::Null, Arguments::Null, vec![]),
        (Procedure::Mnt, Arguments::Mnt(path), words(&[4, 0x2f73_7276])),
        (Procedure::Dump, Arguments::Dump, vec![]),
        (Procedure::Umnt, Arguments::Umnt(path), words(&[4, 0x2f73_7276])),
        (Procedure::UmntAll, Arguments::UmntAll, vec![]),
        (Procedure::Export, Arguments::Export, vec![]),
    ] {
        assert_eq!(written(|w| sent.encode(w)), octets);
        assert_eq!(arguments(procedure, &octets), Ok(sent));
    }
    let root = FileHandle::new(&[1, 2, 3, 4, 5]).unwrap();
    let mounted = Results::Mnt(Ok(Mounted { root, flavors: Flavors::SYS }));
    let (mut mounts, mut exports, mut hosts) = ([0; 64], [0; 64], [0; 64]);
    let mut list = ListWriter::new(&mut mounts);
    assert!(list.push(&Mount { host: Host(b"a"), path }));
    assert!(list.push(&Mount { host: Host(b"b"), path }));
    let dump = Results::Dump(list.finish());
    let mut list = ListWriter::new(&mut hosts);
    assert!(list.push(&Host(b"c")) && list.push(&Host(b"d")));
    let hosts = list.finish();
    let mut list = ListWriter::new(&mut exports);
    assert!(list.push(&Export { path, hosts: List::EMPTY }) && list.push(&Export { path, hosts }));
    let export = Results::Export(list.finish());
    for (procedure, sent, octets) in [
        (Procedure::Null, Results::Nothing, words(&[])),
        (Procedure::Mnt, mounted, words(&[0, 5, 0x0102_0304, 0x0500_0000, 1, 1])),
        (Procedure::Mnt, Results::Mnt(Err(Status::Acces)), words(&[13])),
        (
            Procedure::Dump,
            dump,
            words(&[1, 1, 0x6100_0000, 4, 0x2f73_7276, 1, 1, 0x6200_0000, 4, 0x2f73_7276, 0]),
        ),
        (Procedure::Umnt, Results::Nothing, words(&[])),
        (Procedure::UmntAll, Results::Nothing, words(&[])),
        (
            Procedure::Export,
            export,
            words(&[
                1,
                4,
                0x2f73_7276,
                0, // to all
                1,
                4,
                0x2f73_7276,
                1,
                1,
                0x6300_0000,
                1,
                1,
                0x6400_0000,
                0,
                0,
            ]),
        ),
    ] {
        assert_eq!(written(|w| sent.encode(w)), octets, "{procedure:?}");
        assert_eq!(results(procedure, &octets), Ok(sent));
        for end in 0..octets.len() {
            let cut = results(procedure, &octets[..end]);
            assert!(matches!(cut, Err(Malformed::Truncated(_))), "{procedure:?} cut at {end}");
        }
        let longer = [&octets[..], &[0; 4]].concat();
        let excess = Malformed::Excess { at: octets.len() };
        assert_eq!(results(procedure, &longer), Err(excess));
    }
}

#[test]
fn a_count_of_flavors_is_not_believed() {
    let claimed = words(&[0, 0, u32::MAX, 1, 2]);
    assert!(matches!(results(Procedure::Mnt, &claimed), Err(Malformed::Truncated(_))));
    let many = words(&[0, 0, 3, 1, 390_003, 6]);
    let Ok(Results::Mnt(Ok(mounted))) = results(Procedure::Mnt, &many) else {
        panic!("it is good")
    };
    assert_eq!(mounted.flavors.iter().collect::<Vec<_>>(), [1, 390_003, 6]);
    assert_eq!(format!("{:?}", mounted.flavors), "[1, 390003, 6]");
}

#[test]
fn paths_and_names_are_bounded() {
    let path = |length: u32| [words(&[length]), vec![b'/'; 1028]].concat();
    assert!(arguments(Procedure::Mnt, &path(1025)).is_err());
    let longest = [words(&[1024]), vec![b'/'; 1024]].concat();
    assert!(arguments(Procedure::Mnt, &longest).is_ok());
    let host = [words(&[1, 256]), vec![b'h'; 256], words(&[0, 0])].concat();
    assert!(results(Procedure::Dump, &host).is_err());
    let longest = [words(&[1, 255]), vec![b'h'; 256], words(&[0, 0])].concat();
    assert!(results(Procedure::Dump, &longest).is_ok());
}

#[test]
fn what_damaged_bytes_are_read_as_is_written_back_as_long() {
    let mut rng = Rng::new(8);
    let good = [
        (Procedure::Mnt, words(&[0, 5, 0x0102_0304, 0x0500_0000, 1, 1])),
        (Procedure::Dump, words(&[1, 1, 0x6100_0000, 4, 0x2f73_7276, 0])),
        (Procedure::Export, words(&[1, 4, 0x2f73_7276, 1, 1, 0x6300_0000, 0, 0])),
    ];
    let mut read = 0;
    for _ in 0..20_000 {
        let (procedure, mut bytes) = good[rng.below(good.len())].clone();
        rng.mutate(&mut bytes);
        if let Ok(results) = results(procedure, &bytes) {
            assert_eq!(written(|w| results.encode(w)).len(), bytes.len());
            read += 1;
        }
    }
    assert!(read > 100, "mutations leave some messages good: {read}");
}
