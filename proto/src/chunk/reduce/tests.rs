use std::vec::Vec;

use super::*;
use crate::chunk::testing::{KINDS, Sample};
use crate::testing::{Rng, Xdr};

/// The reduced stream, as its sender builds it.
fn kept(stream: &[u8], reduction: &Reduction<'_>) -> Vec<u8> {
    let kept: Vec<u8> = reduction.kept().flat_map(|range| stream[range].to_vec()).collect();
    assert_eq!(kept.len(), reduction.length());
    kept
}

#[test]
fn the_length_of_an_opaque_stays_and_its_padding_goes() {
    let stream = Xdr::default().words(&[7]).opaque(b"hello").words(&[9]).0;
    let items = [DataItem::opaque(4, 5)];
    let reduction = reduce(&stream, &items).unwrap();
    assert_eq!(kept(&stream, &reduction), Xdr::default().words(&[7, 5, 9]).0);
    assert!(reduction.chunks().eq([Reduced { position: 8, length: 5 }]), "no padding in the chunk");
}

#[test]
fn the_count_of_an_array_stays_and_its_elements_go_whole() {
    // Two elements, each an array with a count of its own.
    let elements = Xdr::default().opaque(b"one").opaque(b"three").0;
    let stream =
        [Xdr::default().words(&[2]).0, elements.clone(), Xdr::default().words(&[9]).0].concat();
    let items = [DataItem::new(Kind::Array, 0, elements.len())];
    let reduction = reduce(&stream, &items).unwrap();
    assert_eq!(kept(&stream, &reduction), Xdr::default().words(&[2, 9]).0);
    let chunk = reduction.chunks().next().unwrap();
    assert_eq!((chunk.position, chunk.length as usize), (4, elements.len()));
    assert_eq!(items[0].data(), 4..4 + elements.len(), "their own counts with them");
}

#[test]
fn the_discriminator_of_optional_data_and_of_a_union_stays() {
    for (kind, word) in [(Kind::Optional, 1), (Kind::Arm, 0x77)] {
        let stream = Xdr::default().words(&[word, 1, 2, 9]).0;
        let items = [DataItem::new(kind, 0, 8)];
        let reduction = reduce(&stream, &items).unwrap();
        assert_eq!(kept(&stream, &reduction), Xdr::default().words(&[word, 9]).0);
        assert!(reduction.chunks().eq([Reduced { position: 4, length: 8 }]));
    }
    // Optional data that is absent leaves nothing to reduce.
    let stream = Xdr::default().words(&[0, 9]).0;
    let items = [DataItem::new(Kind::Optional, 0, 0)];
    let reduction = reduce(&stream, &items).unwrap();
    assert_eq!(kept(&stream, &reduction), stream);
    assert!(reduction.chunks().eq([Reduced { position: 4, length: 0 }]));
}

#[test]
fn the_arm_of_a_union_can_be_an_opaque() {
    // The discriminator and the length of the arm stay.
    let stream = Xdr::default().words(&[3]).opaque(b"data!").0;
    let items = [DataItem::opaque(4, 5)];
    let reduction = reduce(&stream, &items).unwrap();
    assert_eq!(kept(&stream, &reduction), Xdr::default().words(&[3, 5]).0);
}

#[test]
fn nothing_of_a_fixed_opaque_stays() {
    let stream = [&b"\0\0\0\x01hello\0\0\0"[..], b"\0\0\0\x09"].concat();
    let items = [DataItem::new(Kind::Fixed, 4, 5)];
    let reduction = reduce(&stream, &items).unwrap();
    assert_eq!(kept(&stream, &reduction), Xdr::default().words(&[1, 9]).0);
    assert!(reduction.chunks().eq([Reduced { position: 4, length: 5 }]));
}

#[test]
fn positions_count_in_the_unreduced_stream() {
    let stream = Xdr::default().opaque(b"first").words(&[1]).opaque(b"second").0;
    let items = [DataItem::opaque(0, 5), DataItem::opaque(16, 6)];
    let reduction = reduce(&stream, &items).unwrap();
    let positions: Vec<u32> = reduction.chunks().map(|chunk| chunk.position).collect();
    assert_eq!(positions, [4, 20], "as if the first were still there");
    assert_eq!(kept(&stream, &reduction), Xdr::default().words(&[5, 1, 6]).0);
}

#[test]
fn an_item_that_is_not_in_the_stream_is_refused() {
    let stream = Xdr::default().words(&[1, 2, 3]).opaque(b"hello").words(&[0]).0;
    let item = |kind, at, length| reduce(&stream, &[DataItem::new(kind, at, length)]).err();
    let other = Some(ReduceFault::OtherItem);
    assert_eq!(item(Kind::Opaque, 12, 5), None);
    assert_eq!(item(Kind::Opaque, 12, 4), other, "another length");
    assert_eq!(item(Kind::Opaque, 13, 5), Some(ReduceFault::Misaligned));
    assert_eq!(item(Kind::Opaque, 24, 4), Some(ReduceFault::Outside));
    assert_eq!(item(Kind::Opaque, 28, 0), Some(ReduceFault::Outside));
    assert_eq!(item(Kind::Opaque, usize::MAX & !3, usize::MAX), Some(ReduceFault::Outside));
    assert_eq!(item(Kind::Array, 0, 4), None);
    assert_eq!(item(Kind::Array, 4, 4), other, "two elements are at least two units");
    assert_eq!(item(Kind::Array, 0, 0), other, "one element is not nothing");
    assert_eq!(item(Kind::Array, 24, 0), None);
    assert_eq!(item(Kind::Array, 0, 5), Some(ReduceFault::Misaligned));
    assert_eq!(item(Kind::Optional, 0, 4), None);
    assert_eq!(item(Kind::Optional, 4, 4), other, "neither absent nor present");
    assert_eq!(item(Kind::Optional, 0, 0), other, "present, so there is data");
    assert_eq!(item(Kind::Optional, 0, 6), Some(ReduceFault::Misaligned));
    assert_eq!(item(Kind::Arm, 0, 6), Some(ReduceFault::Misaligned));
    assert_eq!(item(Kind::Fixed, 0, 29), Some(ReduceFault::Outside));
}

#[test]
fn items_are_in_order_and_apart() {
    let stream = Xdr::default().opaque(b"four").opaque(b"more").0;
    let (first, second) = (DataItem::opaque(0, 4), DataItem::opaque(8, 4));
    assert!(reduce(&stream, &[first, second]).is_ok());
    assert_eq!(reduce(&stream, &[second, first]).err(), Some(ReduceFault::Order));
    assert_eq!(reduce(&stream, &[first, first]).err(), Some(ReduceFault::Order));
    let inside = DataItem::new(Kind::Fixed, 4, 4);
    assert_eq!(reduce(&stream, &[first, inside]).err(), Some(ReduceFault::Order));
}

#[test]
fn what_stays_and_what_goes_is_the_whole_stream() {
    let mut rng = Rng::new(1);
    let mut seen = [0; KINDS.len()];
    for _ in 0..2000 {
        let sample = Sample::random(&mut rng, 6, 40);
        let reduction = reduce(&sample.stream, &sample.items).unwrap();
        let kept: usize = reduction.kept().map(|range| range.len()).sum();
        let gone: usize = sample.items.iter().map(|i| i.length().next_multiple_of(4)).sum();
        assert_eq!((kept, kept + gone), (reduction.length(), sample.stream.len()));
        for (chunk, item) in reduction.chunks().zip(&sample.items) {
            assert!(chunk.position.is_multiple_of(4));
            assert_eq!(chunk.length as usize, item.length());
            assert_eq!(chunk.position as usize, item.data().start);
            seen[KINDS.iter().position(|kind| *kind == item.kind()).unwrap()] += 1;
        }
    }
    assert!(seen.into_iter().all(|count| count > 100), "every type was there: {seen:?}");
}
