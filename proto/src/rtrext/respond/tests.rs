use std::vec;
use std::vec::Vec;

use super::*;
use crate::rtrext::item::{BYSIZE, CHOICE, EXRW, NOITEM, TBSN, TOOSHORT};
use crate::testing::Xdr;
use crate::verbs::Handle;
use crate::xdr::{Reader, Writer};

fn segment(handle: u32, length: u32) -> Segment {
    Segment { handle: Handle(handle), length, offset: 0 }
}

/// Encodes the directions of a request.
fn encode(rsd: &[Directive<'_>]) -> Vec<u8> {
    let mut memory = vec![0; 1024];
    let mut w = Writer::new(&mut memory);
    let sets = rsd.iter().map(|set| {
        let items = set.items.iter().map(|item| Direction {
            minlen: item.minlen,
            place: item.place.map(|segments| segments.iter().copied()),
        });
        (set.begin, set.end, items)
    });
    Directions::encode(&mut w, sets).unwrap();
    w.written().to_vec()
}

fn follow(
    rsd: &[Directive<'_>],
    results: &[(u32, u32)],
    prefer: Prefer,
) -> Result<Answers, ErrorBody> {
    let octets = encode(rsd);
    let rsd = Directions::decode(&mut Reader::new(&octets)).unwrap();
    let results: Vec<_> = (1..)
        .zip(results)
        .map(|(nth, &(cause, length))| ResultItem { cause, disp: nth * 1000, length })
        .collect();
    Answers::new(&rsd, &results, prefer)
}

fn one(minlen: u32, place: Directed<&[Segment]>, length: u32, prefer: Prefer) -> Source {
    let items = [Direction { minlen, place }];
    let set = Directive { begin: 0, end: 8, items: &items };
    let answers = follow(&[set], &[(4, length)], prefer).unwrap();
    assert_eq!((answers.items.len(), &answers.results[..]), (1, &[Some(0)][..]));
    let item = &answers.items[0];
    assert_eq!((item.disp, item.length), (1000, length));
    item.place.clone()
}

#[test]
fn each_direction_is_followed_as_table_2_allows() {
    let memory = [segment(1, 100), segment(2, 100)];
    let by_write = |length: u32| {
        let second = length.saturating_sub(100);
        Source::Exrw(vec![segment(1, length.min(100)), segment(2, second)])
    };
    let exrw = Directed::Exrw(&memory[..]);
    let choice = Directed::Choice(&memory[..]);
    let by_size = Directed::BySize { dsdov: 64, segments: &memory[..] };
    let (send, write) = (Prefer::Send, Prefer::Write);
    assert_eq!(one(10, exrw, 10, send), by_write(10));
    assert_eq!(one(10, exrw, 150, send), by_write(150), "in order, the lengths say how much");
    assert_eq!(one(10, exrw, 9, send), Source::TooShort);
    assert_eq!(one(10, Directed::Tbsn, 10, write), Source::Send);
    assert_eq!(one(10, Directed::Tbsn, 9, write), Source::TooShort);
    assert_eq!(one(10, choice, 10, send), Source::Send);
    assert_eq!(one(10, choice, 10, write), by_write(10));
    assert_eq!(one(10, choice, 201, write), Source::Send, "no memory for so much");
    assert_eq!(one(10, by_size, 63, send), Source::Send);
    assert_eq!(one(10, by_size, 64, send), by_write(64));
    assert_eq!(one(10, by_size, 63, write), by_write(63), "if it cannot be sent");
    assert_eq!(one(10, by_size, 201, send), Source::Send, "if it cannot be written");
    assert_eq!(one(10, by_size, 9, send), Source::TooShort);
}

#[test]
fn every_answer_is_one_that_table_2_has() {
    let memory = [segment(1, 100)];
    let places = [
        Directed::Exrw(&memory[..]),
        Directed::Tbsn,
        Directed::Choice(&memory[..]),
        Directed::BySize { dsdov: 64, segments: &memory[..] },
    ];
    let code = |place: &Source| match place {
        Source::Exrw(_) => EXRW,
        Source::Send => TBSN,
        Source::TooShort => TOOSHORT,
        Source::NoItem => NOITEM,
    };
    for place in places {
        let items = [Direction { minlen: 10, place }];
        let set = [Directive { begin: 0, end: 8, items: &items }];
        for prefer in [Prefer::Send, Prefer::Write] {
            for results in [&[][..], &[(0, 0)], &[(0, 10)], &[(0, 64)], &[(0, 100)]] {
                let answers = follow(&set, results, prefer).unwrap();
                let answer = code(&answers.items[0].place);
                assert_ne!(outcome(place.code(), answer), Outcome::Invalid, "{place:?} {answer}");
            }
        }
    }
}

#[test]
fn each_result_uses_up_the_next_direction_of_its_range() {
    let items = [Direction { minlen: 8, place: Directed::Tbsn }; 2];
    let rsd = [
        Directive { begin: 40, end: 48, items: &items },
        Directive { begin: 48, end: 56, items: &items },
        Directive { begin: 64, end: 72, items: &items[..1] },
    ];
    // A result before any range, one that is too short, two for the second range and one too many, and one between
    // ranges.
    let results = [(36, 9), (40, 4), (48, 8), (50, 9), (55, 10), (60, 11)];
    let answers = follow(&rsd, &results, Prefer::Send).unwrap();
    assert_eq!(answers.results, [Some(1), None, Some(2), Some(3), None]);
    let places: Vec<_> = answers.items.iter().map(|item| item.place.clone()).collect();
    let expected = [Source::TooShort, Source::NoItem, Source::Send, Source::Send, Source::NoItem];
    assert_eq!(places, expected);
    assert_eq!(answers.excised(), 8 + 12, "with their padding");
    let none = &answers.items[1];
    assert_eq!((none.disp, none.length), (0, 0));
}

#[test]
fn memory_that_is_too_short_is_named() {
    let (large, small) = ([segment(1, 100)], [segment(2, 9)]);
    let items = [
        Direction { minlen: 0, place: Directed::Tbsn },
        Direction { minlen: 0, place: Directed::Exrw(&large[..]) },
        Direction { minlen: 0, place: Directed::Exrw(&small[..]) },
    ];
    let set = Directive { begin: 0, end: 8, items: &items };
    // [V2-7.3.4-1] [V2-7.3.4-2] [V2-7.3.4-3] the index counts only directions that have segments.
    let error = follow(&[set], &[(0, 10), (0, 10), (0, 10)], Prefer::Send).unwrap_err();
    assert_eq!(error, ErrorBody::WriteResource { chunk_index: 2, length_needed: 10 });
}

#[test]
fn ranges_are_disjoint_and_increase() {
    let judge = |ranges: &[(u32, u32)]| {
        let sets: Vec<_> =
            ranges.iter().map(|&(begin, end)| Directive { begin, end, items: &[] }).collect();
        check_directions(&Directions::decode(&mut Reader::new(&encode(&sets))).unwrap())
    };
    let bad = |value, min| Err(ReportInfo::BadOffset(OutOfRange { value, min, max: u32::MAX }));
    assert_eq!(judge(&[(0, 8), (8, 16), (20, 20), (21, 24)]), Ok(()));
    assert_eq!(judge(&[(0, 8), (4, 16)]), bad(4, 8));
    assert_eq!(judge(&[(8, 16), (0, 8)]), bad(0, 16));
    assert_eq!(judge(&[(8, 7)]), bad(7, 8));
    assert_eq!(judge(&[(20, 20), (20, 24)]), bad(20, 21), "disjoint, but not increasing");
    assert_eq!(judge(&[(u32::MAX, u32::MAX); 2]), bad(u32::MAX, u32::MAX));
}

#[test]
fn a_response_does_with_each_direction_what_it_may() {
    let memory = [segment(1, 100), segment(2, 100)];
    let items = [
        Direction { minlen: 10, place: Directed::Exrw(&memory[..]) },
        Direction { minlen: 10, place: Directed::Tbsn },
        Direction { minlen: 10, place: Directed::Choice(&memory[..]) },
        Direction { minlen: 10, place: Directed::BySize { dsdov: 1, segments: &memory[..] } },
    ];
    let sets = [
        Directive { begin: 0, end: 8, items: &items[..2] },
        Directive { begin: 8, end: 16, items: &items[2..] },
    ];
    let judge = |answers: [(u32, &[u32]); 4]| {
        let array = answers.iter().fold(Xdr::default().words(&[4]), |xdr, (length, place)| {
            xdr.words(&[0, *length]).words(place)
        });
        check_response(&sets, &Items::decode(&mut Reader::new(&array.0)).unwrap())
    };
    let written: &[u32] = &[EXRW, 2, 1, 100, 0, 0, 2, 10, 0, 0];
    let sent: &[u32] = &[TBSN, 0, 0];
    let (short, none): (&[u32], &[u32]) = (&[TOOSHORT], &[NOITEM]);
    assert_eq!(judge([(110, written), (10, sent), (10, sent), (9, short)]), Ok(()));
    assert_eq!(judge([(9, short), (9, short), (110, written), (0, none)]), Ok(()));
    assert_eq!(judge([(0, none), (0, none), (0, none), (110, written)]), Ok(()));
    let good = [(0, none); 4];
    let with = |nth: usize, answer| {
        let mut answers = good;
        answers[nth] = answer;
        judge(answers)
    };
    let forbidden = Err("a result that its direction does not allow");
    assert_eq!(with(0, (10, sent)), forbidden);
    assert_eq!(with(1, (110, written)), forbidden);
    let minlen = Err("an item placed although it is short");
    assert_eq!(with(1, (9, sent)), minlen);
    assert_eq!(with(2, (10, short)), Err("a short item that is not short"));
    let lengths = Err("segments that are not as long as their item");
    assert_eq!(with(3, (111, written)), lengths);
    let count = Err("a returned chunk has another number of segments");
    assert_eq!(with(3, (10, &[EXRW, 1, 1, 10, 0, 0])), count);
    let gap = Err("a returned chunk was not filled in order");
    assert_eq!(with(3, (11, &[EXRW, 2, 1, 10, 0, 0, 2, 1, 0, 0])), gap);
    let long = Err("a returned segment is longer than offered");
    assert_eq!(with(3, (101, &[EXRW, 2, 1, 101, 0, 0, 2, 0, 0, 0])), long);
    let few = Xdr::default().words(&[1, 0, 0, NOITEM]).0;
    let few = Items::decode(&mut Reader::new(&few)).unwrap();
    assert_eq!(check_response(&sets, &few), Err("a result for each direction"));
    let codes = items.map(|direction| direction.place.code());
    assert_eq!(codes, [EXRW, TBSN, CHOICE, BYSIZE]);
}
