//! The short way to the most common request.

use super::pair::pair;
use super::*;
use crate::rtrext::SingleItem;
use crate::rtrext::plan::SingleTransmission;
use crate::xdr::Writer;

#[test]
fn a_request_with_one_item_is_what_the_whole_decoder_finds_in_it() {
    let (client, mut server) = pair(&[96, -32, -128, -256]);
    let mut random = Rng::new(1);
    let (mut found, mut others) = (0, 0);
    for round in 0..20_000 {
        let length = 1 + round % 400;
        let stream = pair::stream(XID, 16 + usize::try_from(length).unwrap().next_multiple_of(4));
        let items = [Item { disp: 12, length, place: Source::Send }];
        let kind = Kind::Request { rsd: &[], rsbuf: 0 };
        let sent = client.send(XID, kind, &items, &stream).unwrap();
        let [mut message] = <[Vec<u8>; 1]>::try_from(sent).unwrap();
        if round >= 400 {
            for _ in 0..random.below(4) {
                let at = random.below(message.len());
                message[at] = random.octet();
            }
            let cut = random.below(2) * random.below(message.len());
            message.truncate(message.len() - cut);
        }
        let single = SingleItem::of(&message, server.ext.terms().unwrap());
        assert!(round >= 400 || single.is_some(), "{length}");
        let Some(SingleItem { chunk, payload, item }) = single else {
            others += 1;
            continue;
        };
        found += 1;
        assert_eq!(server.take(&message), Event::Complete);
        let whole = server.ext.whole().unwrap();
        let items: Vec<_> = whole.placement.items().collect();
        let [whole_item] = items[..] else { panic!("{items:?}") };
        let pieces = whole.placement.pieces(&whole_item).flat_map(|piece| piece.message);
        assert!(pieces.eq(item));
        assert!(whole.placement.payload().eq([(0, payload)]));
        assert!(whole.rsd.iter().next().is_none() && whole.dir == MessageType::Call);
        assert_eq!(chunk.position, Some(whole_item.disp));
        assert_eq!((chunk.segment.length, chunk.unchunked.xid), (whole_item.length, whole.xid));
        server.ext.release();
        server.receives.clear();
    }
    assert!(found > 1000 && others > 1000, "{found} {others}");
}

#[test]
fn a_request_in_one_transmission_is_what_the_whole_planner_makes() {
    let (client, mut server) = pair(&[96, -32, -128, -256]);
    let (mut alike, mut unfit) = (0, 0);
    for payload in [16, 40, 100, 300, 500, 640] {
        for lengths in [&[1][..], &[31], &[32], &[33], &[160], &[161], &[416], &[20, 5], &[1, 2, 3]]
        {
            let padded = |length: &u32| length.next_multiple_of(4);
            let all = payload + lengths.iter().map(padded).sum::<u32>();
            let stream = pair::stream(XID, usize::try_from(all).unwrap());
            let places = lengths.iter().scan(12, |disp, length| {
                let at = *disp;
                *disp += padded(length);
                Some((at, *length))
            });
            let places: Vec<_> = places.collect();
            let item = |(disp, length): &(u32, u32)| Item {
                disp: *disp,
                length: *length,
                place: Source::Send,
            };
            let items: Vec<_> = places.iter().map(item).collect();
            let kind = Kind::Request { rsd: &[], rsbuf: 0 };
            let sent = client.send(XID, kind, &items, &stream);
            let terms = client.ext.terms().unwrap();
            let size = usize::try_from(payload).unwrap();
            let single = SingleTransmission::new(terms, size, places.iter().copied());
            let Ok(single) = single else {
                assert!(sent.is_err() || sent.unwrap().len() > 1, "{payload} {lengths:?}");
                unfit += 1;
                continue;
            };
            let mut memory = vec![0xee; single.length()];
            let payload = pair::reduce(&items, &stream);
            let octets = items.iter().map(|item| &stream[pair::octets(item)]);
            let mut w = Writer::new(&mut memory);
            single.encode(&mut w, (XID, 9), &payload, octets).unwrap();
            assert_eq!(sent, Ok(vec![memory.clone()]), "{size} {lengths:?}");
            assert_eq!(server.take(&memory), Event::Complete);
            alike += 1;
        }
    }
    assert!(alike > 20 && unfit > 10, "{alike} {unfit}");
}
