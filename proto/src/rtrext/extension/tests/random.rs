//! Random messages between random receive buffers, and random octets instead of messages.

use super::*;

/// Receive buffers of one to eight segments, some of them targetable.
fn lengths(rng: &mut Rng) -> Vec<i32> {
    let plain = [64, 128, 600][rng.below(3)];
    let others = (0..rng.below(8)).map(|_| {
        let length = i32::try_from(1 + rng.below(400)).unwrap();
        if rng.below(3) > 0 { -length } else { length }
    });
    std::iter::once(plain).chain(others.collect::<Vec<_>>()).collect()
}

/// Up to four items in a virtual stream of `length` octets.
fn items(rng: &mut Rng, length: usize) -> Vec<Item<Source>> {
    let mut items = Vec::new();
    let mut at = 4;
    for _ in 0..rng.below(5) {
        let disp = at + 4 * rng.below(1 + (length - at) / 8);
        let room = length - disp;
        if room == 0 {
            break;
        }
        let octets = rng.below(room + 1);
        let place = if rng.below(4) == 0 {
            let length = u32::try_from(octets).unwrap();
            Source::Exrw(vec![Segment { handle: Handle(7), length, offset: 0 }])
        } else {
            Source::Send
        };
        at = (disp + octets).next_multiple_of(4);
        let [disp, length] = [disp, octets].map(|octets| u32::try_from(octets).unwrap());
        items.push(Item { disp, length, place });
    }
    items
}

#[test]
fn every_message_that_can_be_arranged_arrives_as_it_was() {
    let mut rng = Rng::new(0x7274_7265_7874);
    let (mut arrived, mut continued, mut placed) = (0, 0, 0);
    for xid in 1..3000 {
        let lengths = lengths(&mut rng);
        let (client, mut server) = pair(&lengths);
        let mut stream = pair::stream(xid, 4 * (1 + rng.below(500)));
        let items = items(&mut rng, stream.len());
        let kind = Kind::Request { rsd: &[], rsbuf: 0 };
        let Ok(sent) = client.send(xid, kind, &items, &stream) else { continue };
        assert_eq!(server.take_all(&sent), Event::Complete, "{lengths:?} {items:?}");
        for item in &items {
            // Padding is not sent, and in this test no item that is to be read.
            let octets = pair::octets(item);
            let end = octets.end.next_multiple_of(4);
            let from = if item.place == Source::Send { octets.end } else { octets.start };
            stream[from..end].fill(0);
        }
        assert_eq!(server.restored(), stream, "{lengths:?} {items:?}");
        arrived += 1;
        continued += usize::from(sent.len() > 1);
        placed += usize::from(items.iter().any(|item| item.place == Source::Send));
    }
    assert!(arrived > 1000 && continued > 300 && placed > 300, "{arrived} {continued} {placed}");
}

#[test]
fn any_octets_are_taken_refused_or_dropped_and_nothing_is_out_of_bounds() {
    let mut rng = Rng::new(0x5254_5254);
    let (client, mut server) = pair(&[512, -700, -48, 300, -64]);
    let (sent, _, _) = large_request(&client);
    let (mut complete, mut refused) = (0, 0);
    for _ in 0..4000 {
        server.receives.clear();
        for message in &sent {
            let mut message = message.clone();
            for _ in 0..rng.below(3) {
                // Most changes hit the fields, which are at the front.
                let most = if rng.below(4) == 0 { message.len() } else { message.len().min(80) };
                let at = 12 + rng.below(most - 12);
                message[at] = if rng.below(2) == 0 { rng.octet() } else { rng.octet() & 7 };
            }
            if rng.below(8) == 0 {
                message.truncate(16 + rng.below(message.len() - 16));
            }
            match server.take(&message) {
                Event::Complete => {
                    complete += 1;
                    server.restored();
                }
                Event::Refused(_) => {
                    refused += 1;
                    server.receives.clear();
                }
                Event::More(_) => {}
                _ => server.receives.clear(),
            }
        }
    }
    assert!(complete > 100 && refused > 1000, "{complete} {refused}");
}
