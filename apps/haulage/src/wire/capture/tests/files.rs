//! Formats of files, files that are cut off, and files of other kinds.

use haulage_test_support::capture::{Kind, Link, Order};

use super::*;

#[test]
fn every_format_and_link_gives_the_same_lines() {
    let mut bed = Bed::opened();
    bed.send(0, &call(5));
    bed.send(1, &reply());
    let packets = bed.packets();
    let expected = timeless(&lines(&packets));
    for format in Format::all() {
        let (text, ended) = lines_of(&format.file(&packets), &[]);
        assert_eq!(ended, Ok(()), "{format:?}");
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        assert_eq!(timeless(&lines), expected, "{format:?}");
        let decimals = if format.kind == Kind::Micro { "003000" } else { "003000000" };
        let at = format!(r#"{{"at":1700000000.{decimals},"#);
        assert!(lines[0].starts_with(&at), "{format:?}: {}", lines[0]);
    }
}

#[test]
fn a_file_that_is_cut_off_gives_the_lines_of_what_is_whole_and_says_so() {
    let mut bed = Bed::opened();
    bed.send(0, &call(5));
    let packets = bed.packets();
    let formats = Format::all().filter(|format| format.link == Link::Ethernet);
    for format in formats {
        let file = format.file(&packets);
        let whole = lines_of(&file, &[]).0;
        for length in format.head().len()..file.len() {
            let (text, ended) = lines_of(&file[..length], &[]);
            assert!(whole.starts_with(&text) && text.len() < whole.len());
            // Between two records nothing is missing that anybody could know of.
            if let Err(failure) = ended {
                let says = failure.to_string();
                assert!(says.contains("is cut off: it ends within a packet, after"), "{says}");
            } else {
                let (_, more) = lines_of(&file[..length + 1], &[]);
                assert!(more.is_err(), "{length}");
            }
        }
    }
}

#[test]
fn a_packet_is_read_before_the_next_one_is_there() {
    let bed = Bed::opened();
    let format = Format::USUAL;
    let packets = bed.packets();
    let mut octets = format.head();
    let ends: Vec<_> = (0..)
        .zip(&packets)
        .map(|(index, packet)| {
            octets.extend(format.record(index, packet));
            octets.len()
        })
        .collect();
    // The reader panics if it is asked for more than it has been told to give.
    struct Metered<'a>(&'a [u8], usize);
    impl Read for Metered<'_> {
        fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
            assert!(self.1 > 0, "asked for octets that are not needed yet");
            let count = self.1.min(room.len()).min(7);
            room[..count].copy_from_slice(&self.0[..count]);
            (self.0, self.1) = (&self.0[count..], self.1 - count);
            Ok(count)
        }
    }
    let mut capture = Capture::open(Metered(&octets, 24), "it").unwrap();
    let mut given = 24;
    for end in ends {
        assert!(capture.must_wait());
        capture.meter().1 += end - given;
        given = end;
        assert!(capture.next_packet().unwrap().is_some());
    }
}

#[test]
fn packets_whose_length_the_device_fills_in_later_are_read() {
    let mut bed = Bed::opened();
    bed.send(0, &call(5));
    let mut packets = bed.packets();
    let expected = lines(&packets);
    for packet in &mut packets {
        // The total length of IP.
        packet[2..4].fill(0);
    }
    assert_eq!(lines(&packets), expected);
}

#[test]
fn packets_captured_in_part_are_read_as_far_as_they_go() {
    let mut bed = Bed::opened();
    bed.send(0, &call(5));
    bed.send(0, &call(6));
    let mut packets = bed.packets();
    let cut = packets[5].len() - 10;
    packets[5].truncate(cut);
    let lines = lines(&packets);
    assert_eq!(lines.len(), 4, "{lines:#?}");
    assert!(
        lines[2].contains("\"error\":\"10 bytes are missing from the capture, all of one FPDU")
    );
    assert!(lines[3].contains("\"proc\":6"), "{}", lines[3]);
}

#[test]
fn interfaces_of_pcapng_have_their_own_clocks_and_links() {
    let mut bed = Bed::opened();
    bed.send(0, &call(5));
    let packets = bed.packets();
    let format = Format { kind: Kind::Next, order: Order::Little, link: Link::Ip };
    let mut file = format.head();
    // A second interface, in 1/1024 s and 100 s late, and a third of a link that is not known here.
    file.extend(block(
        1,
        &[
            101, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 0x8a, 0, 0, 0, 14, 0, 8, 0, 100, 0, 0, 0, 0, 0,
            0, 0,
        ],
    ));
    file.extend(block(1, &[105, 0, 0, 0, 0, 0, 0, 0]));
    for packet in &packets {
        for interface in [2, 1] {
            let length = u32::try_from(packet.len()).unwrap();
            let words = [interface, 0, 2048, length, length];
            let mut body: Vec<u8> =
                words.iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
            body.extend(packet);
            file.extend(block(6, &body));
        }
    }
    let (text, ended) = lines_of(&file, &[]);
    assert_eq!((ended, text.lines().count()), (Ok(()), 3));
    assert!(text.starts_with("{\"at\":102.000000,"), "{text}");
}

/// Makes a little-endian block of pcapng.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padding = vec![0; body.len().wrapping_neg() & 3];
    let length = u32::try_from(body.len() + padding.len() + 12).unwrap().to_le_bytes();
    [&kind.to_le_bytes()[..], &length, body, &padding, &length].concat()
}

#[test]
fn a_file_of_another_kind_is_refused_in_words() {
    let odd_link = {
        let mut file = Format::USUAL.head();
        file[20] = 105;
        file
    };
    for (octets, says) in [
        (&b""[..], "the capture is empty, and no capture of tcpdump or Wireshark"),
        (
            b"0000000100000002\n",
            "the capture is text, and no capture of tcpdump or Wireshark; messages in hex are decoded without --pcap",
        ),
        (b"\x1f\x8b\x08\0", "the capture is compressed: decompress it with gzip -dc"),
        (b"\x28\xb5\x2f\xfd", "the capture is compressed: decompress it with zstd -dc"),
        (b"snoop\0\0\0", "the capture is a capture of snoop: convert it with editcap"),
        (
            b"\x7fELF\x02",
            "the capture is no capture: pcap or pcapng, as `tcpdump -w` and Wireshark write",
        ),
        (
            &odd_link,
            "the capture has packets of link type 105, which are not known here: capture on an Ethernet or loopback \
             device, or on `any`",
        ),
    ] {
        let (text, ended) = lines_of(octets, &[]);
        assert_eq!((text.as_str(), ended), ("", Err(Failure::failed(says))));
    }
}

#[test]
fn a_length_that_no_packet_has_is_refused_before_it_is_waited_for() {
    let mut file = Format::USUAL.file(&Bed::opened().packets());
    let whole = lines_of(&file, &[]).0;
    file.extend([0; 8]);
    file.extend((1_u32 << 20).to_le_bytes());
    file.extend([0; 4]);
    let (text, ended) = lines_of(&file, &[]);
    assert_eq!(text, whole);
    let says = ended.unwrap_err().to_string();
    assert!(says.starts_with("the capture is damaged after 5 packets, or has one of"), "{says}");
}
