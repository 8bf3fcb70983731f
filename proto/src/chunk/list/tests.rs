use crate::xdr::Writer;
use std::vec::Vec;

use super::*;
use crate::testing::Xdr;
use crate::verbs::Handle;

type Wire = (u32, u32, u64);

fn reads(entries: &[(u32, Wire)]) -> Result<Vec<(u32, usize)>, ListFault> {
    let bytes = Xdr::default().read_list(entries).words(&[0xfeed]).0;
    let mut r = Reader::new(&bytes);
    let list = ReadList::decode(&mut r)?;
    assert_eq!(r.u32(), Ok(0xfeed), "the list ends where it ends");
    assert_eq!(list.is_empty(), entries.is_empty());
    let chunks: Vec<_> = list.chunks().map(|c| (c.position(), c.segment_count())).collect();
    assert_eq!(chunks.len(), list.chunk_count() as usize);
    let segments = list.chunks().flat_map(|chunk| chunk.segments());
    assert!(segments.eq(entries.iter().map(|(_, wire)| segment(wire))));
    Ok(chunks)
}

fn writes(chunks: &[&[Wire]]) -> Result<Vec<Vec<Segment>>, ListFault> {
    let bytes = Xdr::default().write_list(chunks).words(&[0xfeed]).0;
    let mut r = Reader::new(&bytes);
    let list = WriteList::decode(&mut r)?;
    assert_eq!(r.u32(), Ok(0xfeed), "the list ends where it ends");
    assert_eq!(list.chunk_count() as usize, chunks.len());
    Ok(list.chunks().map(|chunk| chunk.segments().collect()).collect())
}

fn segment(&(handle, length, offset): &Wire) -> Segment {
    Segment { handle: Handle(handle), length, offset }
}

#[test]
fn segments_that_share_a_position_are_one_chunk() {
    let one = (9, 100, 0);
    assert_eq!(reads(&[]), Ok(Vec::new()));
    assert_eq!(reads(&[(4, one)]), Ok([(4, 1)].to_vec()));
    assert_eq!(reads(&[(4, one), (4, one), (4, one)]), Ok([(4, 3)].to_vec()));
    let three = [(4, one), (4, one), (8, one), (0xffff_fffc, one), (0xffff_fffc, one)];
    assert_eq!(reads(&three), Ok([(4, 2), (8, 1), (0xffff_fffc, 2)].to_vec()));
}

#[test]
fn positions_never_decrease() {
    let one = (9, 100, 0);
    assert_eq!(reads(&[(8, one), (4, one)]), Err(ListFault::PositionOrder { at: 28 }));
    assert_eq!(reads(&[(4, one), (8, one), (4, one)]), Err(ListFault::PositionOrder { at: 52 }));
}

#[test]
fn a_position_is_a_multiple_of_four_and_not_zero() {
    for position in [0, 1, 2, 3, 5, 6, 7, u32::MAX] {
        let fault = reads(&[(position, (9, 100, 0))]);
        assert_eq!(fault, Err(ListFault::BadPosition { at: 4 }), "{position}");
    }
    let later = reads(&[(4, (9, 100, 0)), (5, (9, 100, 0))]);
    assert_eq!(later, Err(ListFault::BadPosition { at: 28 }));
}

#[test]
fn a_segment_ends_within_the_address_space() {
    for (length, offset, fits) in [
        (0, u64::MAX, true),
        (1, u64::MAX, false),
        (1, u64::MAX - 1, true),
        (2, u64::MAX - 1, false),
    ] {
        let wire = (9, length, offset);
        let fault = |at| if fits { None } else { Some(ListFault::LengthWraps { at }) };
        assert_eq!(reads(&[(4, wire)]).err(), fault(8), "{wire:?}");
        assert_eq!(reads(&[(4, (1, 1, 1)), (4, wire)]).err(), fault(32), "{wire:?}");
        assert_eq!(writes(&[&[wire]]).err(), fault(8), "{wire:?}");
        assert_eq!(writes(&[&[(1, 1, 1), wire]]).err(), fault(24), "{wire:?}");
        assert_eq!(writes(&[&[], &[wire]]).err(), fault(16), "{wire:?}");
    }
}

#[test]
fn a_chunk_is_no_longer_than_its_length_word_can_say() {
    let most = (9, u32::MAX, 0);
    assert!(reads(&[(4, most), (4, (9, 0, 0))]).is_ok());
    assert!(reads(&[(4, most), (8, most)]).is_ok(), "each chunk counts for itself");
    assert_eq!(reads(&[(4, most), (4, (9, 1, 0))]), Err(ListFault::LengthWraps { at: 28 }));
    assert!(writes(&[&[most], &[most, (9, 0, 0)]]).is_ok());
    assert_eq!(writes(&[&[most, (9, 1, 0)]]), Err(ListFault::LengthWraps { at: 24 }));
}

#[test]
fn an_empty_chunk_and_an_unused_chunk_are_chunks() {
    let unused = [(1, 0, 64), (2, 0, 0)];
    let chunks = writes(&[&[], &unused, &[(3, 5, 0)]]).unwrap();
    let expected =
        [Vec::new(), unused.iter().map(segment).collect(), [segment(&(3, 5, 0))].to_vec()];
    assert_eq!(chunks, expected);
}

#[test]
fn a_discriminator_is_zero_or_one() {
    for word in [2, 0x0100_0000, u32::MAX] {
        let bytes = Xdr::default().words(&[word]).segment((0, 0, 0)).words(&[0, 0]).0;
        let fault = Some(ListFault::BadDiscriminator { at: 0 });
        assert_eq!(ReadList::decode(&mut Reader::new(&bytes)).err(), fault);
        assert_eq!(WriteList::decode(&mut Reader::new(&bytes)).err(), fault);
        assert_eq!(WriteList::decode_optional(&mut Reader::new(&bytes)).err(), fault);
    }
    // A bad discriminator before the second entry is found as well.
    let bytes = Xdr::default().words(&[1, 4]).segment((1, 1, 1)).words(&[2]).0;
    let fault = ListFault::BadDiscriminator { at: 24 };
    assert_eq!(ReadList::decode(&mut Reader::new(&bytes)).err(), Some(fault));
}

#[test]
fn a_count_beyond_the_bytes_is_refused_before_it_is_believed() {
    for count in [2, 3, 0x1000_0000, 0x1000_0001, u32::MAX] {
        let bytes = Xdr::default().words(&[1, count]).segment((1, 1, 1)).words(&[0]).0;
        let fault = WriteList::decode(&mut Reader::new(&bytes)).err();
        assert!(matches!(fault, Some(ListFault::Truncated(_))), "{count}: {fault:?}");
    }
}

#[test]
fn an_optional_chunk_is_there_or_not() {
    let none = Xdr::default().words(&[0, 7]).0;
    let mut r = Reader::new(&none);
    assert!(WriteList::decode_optional(&mut r).unwrap().is_none());
    assert_eq!(r.position(), 4);
    let some = Xdr::default().words(&[1]).write_chunk(&[(1, 2, 3), (4, 5, 6)]).0;
    let mut r = Reader::new(&some);
    let chunk = WriteList::decode_optional(&mut r).unwrap().unwrap();
    assert!(chunk.segments().eq([segment(&(1, 2, 3)), segment(&(4, 5, 6))]));
    assert!(r.is_empty(), "an optional chunk has no end mark");
}

#[test]
fn every_cut_list_is_truncated() {
    let one = (9, 100, 0);
    let bytes = Xdr::default().read_list(&[(4, one), (4, one), (8, one)]).0;
    for end in 0..bytes.len() {
        let fault = ReadList::decode(&mut Reader::new(&bytes[..end])).err();
        assert!(matches!(fault, Some(ListFault::Truncated(t)) if t.at <= end), "{end}: {fault:?}");
    }
    let bytes = Xdr::default().write_list(&[&[one, one], &[], &[one]]).0;
    for end in 0..bytes.len() {
        let fault = WriteList::decode(&mut Reader::new(&bytes[..end])).err();
        assert!(matches!(fault, Some(ListFault::Truncated(t)) if t.at <= end), "{end}: {fault:?}");
    }
}

#[test]
fn what_is_written_is_as_long_as_promised_and_reads_back() {
    let segments = [segment(&(1, 2, 3)), segment(&(4, 5, 6))];
    for count in 0..=segments.len() {
        let mut memory = [0; 128];
        let mut w = Writer::new(&mut memory);
        let entries = segments[..count].iter().map(|segment| (44, *segment));
        ReadList::encode(&mut w, entries).unwrap();
        assert_eq!(w.position(), ReadList::wire_len(count));
        let list = ReadList::decode(&mut Reader::new(w.written())).unwrap();
        assert!(list.chunks().flat_map(|c| c.segments()).eq(segments[..count].iter().copied()));

        for chunk in [None, Some(&segments[..count])] {
            let mut memory = [0; 128];
            let mut w = Writer::new(&mut memory);
            WriteList::encode(&mut w, chunk.map(|chunk| chunk.iter().copied())).unwrap();
            assert_eq!(w.position(), WriteList::wire_len(chunk.map(<[_]>::len)));
            let list = WriteList::decode(&mut Reader::new(w.written())).unwrap();
            assert_eq!(list.chunk_count(), u32::from(chunk.is_some()));
            let read = list.chunks().flat_map(|chunk| chunk.segments());
            assert!(read.eq(chunk.into_iter().flatten().copied()));
        }
    }
}

#[test]
fn a_version_1_list_may_begin_at_zero_and_in_any_order() {
    let entries = [(8, (1, 10, 0)), (0, (2, 20, 0)), (8, (3, 30, 0)), (8, (4, 40, 0))];
    let bytes = Xdr::default().read_list(&entries).words(&[0xfeed]).0;
    let mut r = Reader::new(&bytes);
    let list = ReadList::decode_v1(&mut r).unwrap();
    assert_eq!(r.u32(), Ok(0xfeed), "the list ends where it ends");
    assert!(list.entries().eq(entries.iter().map(|(position, s)| (*position, segment(s)))));
    assert_eq!(list.chunk_count(), 3, "runs");
    let odd = Xdr::default().read_list(&[(4, (1, 1, 1)), (6, (1, 1, 1))]).0;
    let fault = ReadList::decode_v1(&mut Reader::new(&odd)).err();
    assert_eq!(fault, Some(ListFault::BadPosition { at: 28 }));
}

#[test]
fn any_discriminator_but_zero_goes_on_in_version_1() {
    for word in [1, 2, 0x0100_0000, u32::MAX] {
        let reads = Xdr::default().words(&[word, 4]).segment((1, 2, 3)).words(&[0]).0;
        let list = ReadList::decode_v1(&mut Reader::new(&reads)).unwrap();
        assert!(list.entries().eq([(4, segment(&(1, 2, 3)))]));
        let writes = Xdr::default().words(&[word]).write_chunk(&[(1, 2, 3)]).words(&[0]).0;
        let list = WriteList::decode_v1(&mut Reader::new(&writes)).unwrap();
        assert!(list.chunks().flat_map(|c| c.segments()).eq([segment(&(1, 2, 3))]));
        let chunk = WriteList::decode_optional_v1(&mut Reader::new(&writes)).unwrap();
        assert!(chunk.unwrap().segments().eq([segment(&(1, 2, 3))]));
    }
}

#[test]
fn a_version_1_list_is_as_bounded_as_any() {
    let wraps = Xdr::default().read_list(&[(4, (1, 2, u64::MAX))]).0;
    let fault = ReadList::decode_v1(&mut Reader::new(&wraps)).err();
    assert_eq!(fault, Some(ListFault::LengthWraps { at: 8 }));
    let writes = Xdr::default().words(&[1, u32::MAX]).segment((1, 1, 1)).words(&[0]).0;
    let fault = WriteList::decode_v1(&mut Reader::new(&writes)).err();
    assert!(matches!(fault, Some(ListFault::Truncated(_))));
}
