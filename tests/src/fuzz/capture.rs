//! A capture, as `haulage wire decode --pcap` reads it.

use haulage_apps::wire::capture::lines_of;
use haulage_test_support::capture::{ACK, Connection, FIN, Format, RST, SYN, datagram};

use super::octets::{some_octets, spoil};
use crate::world::choices::Choices;

/// Checks that a file gives lines, and that a file that is cut off gives the first of them.
pub(super) fn run(data: &[u8]) {
    check(data);
    let mut choices = Choices::replayed(data);
    let formats: Vec<_> = Format::all().collect();
    let format = choices.pick(&formats);
    let mut file = format.file(&packets(&mut choices));
    if choices.one_in(2) {
        spoil(&mut choices, &mut file);
    }
    check(&file);
}

fn check(file: &[u8]) {
    let (lines, ended) = lines_of(file, &[PORT]);
    for line in lines.lines() {
        assert!(line.starts_with("{\"at\":") && line.ends_with('}'), "{line}");
    }
    if let Err(failure) = ended {
        assert!(failure.to_string().starts_with("the capture "), "{failure}");
    }
    let (fewer, _) = lines_of(&file[..file.len() / 2], &[PORT]);
    // What the end of a file tells, it tells where it ends.
    let common = lines.lines().zip(fewer.lines()).take_while(|(line, other)| line == other).count();
    let told = fewer.lines().skip(common).all(|line| line.contains("\"error\""));
    assert!(told, "a line of half the capture is not in the whole one");
}

/// Draws packets of two connections and of RoCEv2.
fn packets(choices: &mut Choices) -> Vec<Vec<u8>> {
    let ends = |port| [([192, 0, 2, 1], port), ([192, 0, 2, 2], PORT)];
    let (mut first, mut segments) = Connection::open(ends(1));
    let (mut second, opening) = Connection::open(ends(2));
    segments.extend(opening);
    segments.push(first.send(0, REQUEST));
    segments.push(first.send(1, REPLY));
    for _ in 0..choices.below(12) {
        let connection = if choices.one_in(3) { &mut second } else { &mut first };
        let sender = choices.below(2);
        segments.push(match choices.below(8) {
            0 => connection.bare(sender, choices.pick(&[SYN, SYN | ACK, FIN | ACK, RST, ACK])),
            1 => connection.send(sender, REQUEST),
            _ => connection.send(sender, &some_octets(choices, 120)),
        });
    }
    for _ in 0..choices.below(4) {
        let (from, to) = (choices.below(segments.len()), choices.below(segments.len()));
        match choices.below(3) {
            0 => segments.swap(from, to),
            1 => segments.insert(to, segments[from].clone()),
            _ => _ = segments.remove(from),
        }
    }
    let mut packets: Vec<_> = segments.iter().map(|segment| segment.packet()).collect();
    for _ in 0..choices.below(4) {
        let payload = some_octets(choices, 60);
        packets.push(datagram(([192, 0, 2, 1], 9), ([192, 0, 2, 2], 4791), &payload));
    }
    packets
}

const PORT: u16 = 20_049;
/// Frames of revision 1 without private data.
const REQUEST: &[u8] = b"MPA ID Req Frame\0\x01\0\0";
const REPLY: &[u8] = b"MPA ID Rep Frame\0\x01\0\0";
