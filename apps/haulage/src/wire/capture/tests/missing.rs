//! Captures that lack packets, or the beginning of a connection.

use super::*;

/// A connection with some traffic, and the place of the segments behind its handshake.
fn busy() -> (Bed, usize) {
    let mut bed = Bed::opened();
    let start = bed.segments.len();
    for procedure in 0..3 {
        bed.send(0, &call(procedure));
        bed.send(1, &reply());
    }
    (bed, start)
}

fn says(line: &str, text: &str) {
    assert!(line.contains(text), "{line}");
}

#[test]
fn a_lost_segment_ends_what_can_be_read_of_one_end_and_a_new_connection_is_read() {
    let (mut bed, start) = busy();
    let lost = bed.segments.remove(start).payload.len();
    let (again, _) = busy();
    // The same ports, and other numbers.
    let segments = again.segments.into_iter().map(|mut segment| {
        segment.sequence = segment.sequence.wrapping_add(77_777);
        segment.acknowledged = segment.acknowledged.wrapping_add(77_777);
        segment
    });
    bed.segments.extend(segments);
    let lines = bed.lines();
    let kinds: Vec<_> = lines
        .iter()
        .map(|line| {
            let found = ["mpa_request", "mpa_reply", "CALL_INLINE", "REPLY_INLINE", "error"];
            *found.iter().find(|kind| line.contains(*kind)).unwrap()
        })
        .collect();
    let call_and_reply = ["CALL_INLINE", "REPLY_INLINE"];
    let expected: Vec<_> = [
        &["mpa_request", "mpa_reply", "REPLY_INLINE", "REPLY_INLINE", "REPLY_INLINE", "error"][..],
        &["mpa_request", "mpa_reply"],
        &call_and_reply.repeat(3),
    ]
    .concat();
    assert_eq!(kinds, expected);
    says(
        &lines[5],
        &format!(
            "\"error\":\"{lost} bytes are missing from the capture, so where the next FPDU begins is unknown: nothing \
             more can be read of what this end sends on this connection\",\"report\":null}}"
        ),
    );
}

#[test]
fn octets_lost_within_an_fpdu_cost_its_message_alone() {
    let (mut bed, start) = busy();
    // The first octets of the FPDU were captured.
    bed.segments[start].payload.truncate(30);
    let lines = bed.lines();
    assert_eq!(lines.len(), 2 + 6, "{lines:#?}");
    let told = lines.iter().find(|line| line.contains("error")).unwrap();
    says(
        told,
        "bytes are missing from the capture, all of one FPDU: what it belongs to is not shown",
    );
    assert_eq!(lines.iter().filter(|line| line.contains("CALL_INLINE")).count(), 2);
}

#[test]
fn a_loss_is_told_once_it_is_certain_and_not_before() {
    let (mut bed, start) = busy();
    let lost = bed.segments.remove(start);
    // Nobody has acknowledged it, and it comes late.
    for segment in &mut bed.segments[start..] {
        segment.acknowledged = bed.tcp.bare(1 - usize::from(segment.from == SERVER), 0).sequence;
        segment.acknowledged = lost.sequence;
    }
    let mut late = bed.segments.clone();
    late.push(lost);
    assert_eq!(lines(&packets(&late)).iter().filter(|line| line.contains("error")).count(), 0);
    // It was acknowledged, and many packets later it is not there.
    let (mut bed, start) = busy();
    bed.segments.remove(start);
    for _ in 0..100 {
        bed.segments.push(bed.tcp.bare(1, ACK));
    }
    let told = bed.lines().into_iter().find(|line| line.contains("error")).unwrap();
    // The Reply at 5 ms is the first to acknowledge it, and 64 more packets are waited for.
    says(&told, "{\"at\":1700000000.069000,");
}

#[test]
fn octets_that_nobody_captured_at_the_end_are_told() {
    let (mut bed, _) = busy();
    let last = bed.segments.pop().unwrap();
    assert_eq!(last.from, SERVER);
    bed.segments.push(bed.tcp.bare(0, ACK));
    let lines = bed.lines();
    says(lines.last().unwrap(), &format!("{} bytes are missing", last.payload.len()));
    // FIN is no octet.
    let (mut bed, _) = busy();
    let count = bed.lines().len();
    bed.segments.push(bed.tcp.bare(0, FIN | ACK));
    let mut answer = bed.tcp.bare(1, FIN | ACK);
    answer.acknowledged = answer.acknowledged.wrapping_add(1);
    bed.segments.push(answer);
    assert_eq!(bed.lines().len(), count);
    bed.segments.push(bed.tcp.bare(1, RST));
    assert_eq!(bed.lines().len(), count);
}

#[test]
fn a_connection_that_began_before_the_capture_is_told_of_if_its_port_was_asked_for() {
    let (bed, start) = busy();
    let behind = packets(&bed.segments[start..]);
    assert_eq!(lines(&behind), Vec::<String>::new());
    let told = lines_with(&behind, &[20_050]);
    assert_eq!(told.len(), 1, "{told:?}");
    says(&told[0], "the connection began before the capture");
    // With its MPA Request it begins well enough.
    assert_eq!(timeless(&lines(&packets(&bed.segments[3..]))), timeless(&bed.lines()));
    // So it does without the first SYN, and without its answer.
    for without in [0, 1] {
        let mut segments = bed.segments.clone();
        segments.remove(without);
        assert_eq!(timeless(&lines(&packets(&segments))), timeless(&bed.lines()));
    }
}

#[test]
fn a_repeated_syn_begins_nothing_anew() {
    let (bed, start) = busy();
    let expected = timeless(&bed.lines());
    for (again, at) in [(0, 1), (0, start + 2), (1, 3), (1, start + 2)] {
        let mut segments = bed.segments.clone();
        segments.insert(at, bed.segments[again].clone());
        assert_eq!(timeless(&lines(&packets(&segments))), expected, "{again} at {at}");
    }
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut table = table::Table::default();
    let mut forgotten = Vec::new();
    for key in 0..table::ENTRIES_MAX + 3 {
        table.put(key, ());
        table.get(&1);
        forgotten.extend(table.forget().map(|(key, ())| key));
    }
    assert_eq!(forgotten, [0, 2, 3]);
    table.weigh(&1, table::OCTETS_MAX);
    assert_eq!(table.forget(), None);
    table.weigh(&4, 1);
    assert_eq!(table.forget().map(|(key, ())| key), Some(4));
    assert_eq!(table.forget(), None);

    // Octets behind a hole wait for it, but not without end.
    let mut bed = Bed::opened();
    let hole = bed.tcp.send(0, &[0; 100]);
    let held = (0..2000).map(|_| bed.tcp.send(0, &[0; 1000])).collect::<Vec<_>>();
    bed.segments.extend(held);
    let lines = bed.lines();
    assert_eq!(lines.len(), 3, "{lines:#?}");
    says(&lines[2], &format!("{} bytes are missing", hole.payload.len()));
    let at = serde_json::from_str::<Value>(&lines[2]).unwrap()["at"].as_f64().unwrap();
    assert!((at - 1_700_000_000.0) < 1.2, "after 1 MiB, not after 2: {at}");
}

#[test]
fn too_many_connections_at_once_are_told_of() {
    let bed = Bed::opened();
    let mut segments = bed.segments.clone();
    for port in 0..1024 {
        segments.push(Connection::open([([192, 0, 2, 9], 1000 + port), SERVER]).1.remove(0));
    }
    assert!(segments.iter().all(|segment| segment.flags & (SYN | ACK) != 0));
    let lines = lines(&packets(&segments));
    assert_eq!(lines.len(), 3);
    says(&lines[2], "too many connections at once");
}
