use std::string::String;
use std::vec::Vec;
use std::{format, vec};

use super::*;
use crate::rtrext::{CODE_BASE, Directed, Location};
use crate::testing::{Rng, Xdr, vectors};

/// The vectors, each named `file/section`.
fn all() -> Vec<(String, Vec<u8>)> {
    let files = [
        ("xmtreq", include_str!("../../../vectors/rtrext/xmtreq.hex")),
        ("xmtresp", include_str!("../../../vectors/rtrext/xmtresp.hex")),
        ("xmtcont", include_str!("../../../vectors/rtrext/xmtcont.hex")),
        ("repterr", include_str!("../../../vectors/rtrext/repterr.hex")),
    ];
    let named = |(file, text)| {
        let sections = vectors(text).into_iter();
        sections.map(move |(name, bytes)| (format!("{file}/{name}"), bytes))
    };
    files.into_iter().flat_map(named).collect()
}

fn vector(name: &str) -> Vec<u8> {
    all().into_iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no vector {name}")).1
}

/// Builds the message of a vector from the draft's XDR.
fn by_the_draft(name: &str) -> Vec<u8> {
    let call = |xdr: Xdr, xid, procedure| {
        xdr.words(&[xid, 0, 2, 0x2000_1234, 1, procedure]).words(&[0, 0, 0, 0])
    };
    let reply = |xdr: Xdr, xid| xdr.words(&[xid, 1, 0, 0, 0, 0]);
    let octets = |mut xdr: Xdr, octets: &[u8]| {
        xdr.0.extend(octets);
        xdr
    };
    let repterr =
        |credit, body: &[u32]| Xdr::common(0x1bad_cafe, 2, credit, 0x5254_0004).words(body);
    let (xid, other) = (0x1bad_cafe, 0x1bad_caff);
    let xdr = match name {
        "xmtreq/plain" => {
            call(Xdr::common(xid, 2, 33, 0x5254_0001).words(&[0, 0, 1, 0, 40]), xid, 0)
        }
        "xmtreq/read" => {
            let header = Xdr::common(other, 2, 34, 0x5254_0001).words(&[1, 44, 70001, 1]);
            let first = (0x00a1_b2c3, 65536, 0x12_3456_0000);
            let second = (0x00a1_b2c4, 4465, 0x12_3457_0000);
            let header = header.write_chunk(&[first, second]).words(&[0, 2, 0, 44]);
            call(header, other, 2).words(&[70001])
        }
        "xmtreq/send" => {
            let header = Xdr::common(0x1bad_cb00, 2, 35, 0x5254_0001);
            let header = header.words(&[1, 44, 6, 2, 0, 2, 0, 1]).words(&[0, 1, 0, 48]);
            octets(call(header, 0x1bad_cb00, 2).words(&[6, 42, 0]), b"hello!")
        }
        "xmtreq/directed" => {
            let header = Xdr::common(0x1bad_cb01, 2, 0xffff_fff0, 0x5254_0001);
            let header = header.words(&[0, 2, 40, 48, 1, 1024, 1]);
            let header = header.write_chunk(&[(0x00d4_e5f6, 4096, 0x7fff_0000)]);
            let header = header.words(&[48, 56, 3, 0, 2, 16, 3]);
            let header = header.write_chunk(&[(0x00d4_e5f7, 3, u64::MAX - 3)]);
            let header = header.words(&[32, 4, 8192]).write_chunk(&[]).words(&[1, 3, 56]);
            call(header, 0x1bad_cb01, 9).words(&[1, 2, 1, 3])
        }
        "xmtresp/plain" => reply(Xdr::common(xid, 2, 33, 0x5254_0002).words(&[0, 1, 24]), xid),
        "xmtresp/results" => {
            let header = Xdr::common(0x1bad_cb01, 2, 34, 0x5254_0002).words(&[4, 28, 1024, 1]);
            let header = header.write_chunk(&[(0x00d4_e5f6, 1024, 0x7fff_0000)]);
            let header = header.words(&[1056, 3, 2, 4, 1, 1]).words(&[1064, 4, 5]);
            let header = header.words(&[0, 0, 6]).words(&[2, 40]);
            reply(header, 0x1bad_cb01).words(&[1024, 3, 4, 0x2a2a_2a2a])
        }
        "xmtcont/payload" => Xdr::common(other, 2, 34, 0x5254_0003).words(&[1, 0, 4]).words(&[42]),
        "xmtcont/bulk" => {
            let header = Xdr::common(0x1bad_cb01, 2, 35, 0x5254_0003).words(&[1, 42, 0]);
            octets(header.words(&[0, 0, 0]), b"abc")
        }
        "repterr/badhmt" => repterr(33, &[other, 0, 0, 1, xid, 1, 2]).words(&[1, 0x5254_0003, 10]),
        "repterr/badomt" => {
            repterr(34, &[other, 0, 0, 1, xid, 0, 0]).words(&[2, 0x5254_0003, 0x5254_0001])
        }
        "repterr/badcont" => repterr(35, &[xid, 0, 1, 0]).words(&[3]),
        "repterr/badseq" => repterr(36, &[xid, 0, 3, 1, xid, 0, 1]).words(&[4, 2, 3]),
        "repterr/badxid" => repterr(37, &[other, 0, 1, 1, xid, 0, 0]).words(&[5, xid, other]),
        "repterr/badoff" => repterr(38, &[xid, 0, 0, 0]).words(&[6, 4096, 0, 4092]),
        "repterr/badtbsn" => repterr(39, &[xid, 1, 1, 1, xid, 1, 0]).words(&[7, 4, 0, 3]),
        "repterr/badpl" => repterr(40, &[xid, 0, 0, 0]).words(&[8, 4095, 4, 1024]),
        other => panic!("a vector without a second opinion: {other}"),
    };
    xdr.0
}

/// Writes a decoded message again.
fn again(prefix: &Prefix, header: &Header<'_>, memory: &mut [u8]) -> Result<usize, Truncated> {
    let mut w = Writer::new(memory);
    prefix.encode(&mut w)?;
    header.encode(&mut w)?;
    Ok(w.position())
}

#[test]
fn the_vectors_are_what_the_draft_describes() {
    for (name, bytes) in all() {
        assert_eq!(bytes, by_the_draft(&name), "{name}");
    }
}

#[test]
fn every_vector_is_written_again_as_it_arrived() {
    for (name, bytes) in all() {
        let (prefix, header) = decode(&bytes).unwrap_or_else(|fault| panic!("{name}: {fault:?}"));
        assert_eq!(prefix.htype, header.htype(), "{name}");
        let mut memory = vec![0xee; bytes.len()];
        assert_eq!(again(&prefix, &header, &mut memory), Ok(bytes.len()), "{name}");
        assert_eq!(memory, bytes, "{name}");
        for room in 0..bytes.len() {
            assert!(again(&prefix, &header, &mut memory[..room]).is_err(), "{name} in {room}");
        }
    }
}

#[test]
fn a_cut_header_is_reported_unless_nobody_may_be_told() {
    for (name, bytes) in all() {
        let header = bytes.len() - decode(&bytes).unwrap().1.rest().len();
        for end in 0..bytes.len() {
            let result = decode(&bytes[..end]);
            if end >= header {
                assert!(result.is_ok(), "{name} cut to {end}");
                continue;
            }
            let fault = result.expect_err(&name);
            let whole_prefix = end >= Prefix::WIRE_LEN;
            assert_eq!(fault.prefix.is_some(), whole_prefix, "{name} cut to {end}");
            // E13: whoever sent a Reply or an error is not told.
            let told = whole_prefix && (name.starts_with("xmtreq") || name.starts_with("xmtcont"));
            assert_eq!(fault.report, told.then_some(ErrorBody::BadXdr), "{name} cut to {end}");
            assert!(fault.at <= end, "{name} cut to {end}: {fault:?}");
        }
    }
}

#[test]
fn names_are_those_of_the_draft() {
    for (name, bytes) in all() {
        let (prefix, header) = decode(&bytes).unwrap();
        let (file, section) = name.split_once('/').unwrap();
        let expected = format!("ROPT_{}", file.to_uppercase());
        assert_eq!(header_name(prefix.htype), Some(&*expected), "{name}");
        if let Header::Report(report) = header {
            let expected = format!("OPTRERR_{}", section.to_uppercase());
            assert_eq!(report.info.name(), expected);
            assert!(format!("{}", report.info).starts_with(&expected));
        }
    }
    assert_eq!(header_name(4), None);
    let bytes = vector("xmtresp/results");
    let Ok((_, Header::Response(response))) = decode(&bytes) else { panic!("a response") };
    let names: Vec<_> = response.dp.iter().map(|item| item.place.name()).collect();
    assert_eq!(names, ["XMPTYPE_EXRW", "XMPTYPE_TBSN", "XMPTYPE_TOOSHORT", "XMPTYPE_NOITEM"]);
    let bytes = vector("xmtreq/directed");
    let Ok((_, Header::Request(request))) = decode(&bytes) else { panic!("a request") };
    let directions = request.rsd.iter().flat_map(|set| set.items.iter());
    let names: Vec<_> = directions.map(|direction| direction.place.name()).collect();
    assert_eq!(names, ["XMPTYPE_EXRW", "XMPTYPE_TBSN", "XMPTYPE_CHOICE", "XMPTYPE_BYSIZE"]);
}

#[test]
fn a_request_says_what_is_where_and_what_is_wanted() {
    let bytes = vector("xmtreq/send");
    let Ok((_, Header::Request(request))) = decode(&bytes) else { panic!("a request") };
    assert_eq!((request.dp.len(), request.count, request.rsbuf, request.pslen), (1, 1, 0, 48));
    let item = request.dp.iter().next().unwrap();
    let Location::Tbsn { offset, bsnum } = item.place else { panic!("by Send: {item:?}") };
    assert_eq!((item.disp, item.length, offset), (44, 6, 0));
    assert_eq!(bsnum.iter().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(&request.rest[52..], b"hello!");

    let bytes = vector("xmtreq/directed");
    let Ok((_, Header::Request(request))) = decode(&bytes) else { panic!("a request") };
    assert_eq!((request.rsd.len(), request.rsbuf), (2, 3));
    let sets: Vec<_> = request.rsd.iter().map(|set| (set.begin, set.end)).collect();
    assert_eq!(sets, [(40, 48), (48, 56)]);
    let last = request.rsd.iter().last().unwrap();
    let items: Vec<_> = last.items.iter().collect();
    assert_eq!(items.iter().map(|item| item.minlen).collect::<Vec<_>>(), [0, 16, 32]);
    assert!(matches!(items[2].place, Directed::BySize { dsdov: 8192, .. }));
    let offered = items[1].place.segments().unwrap();
    assert_eq!(offered.segments().map(|segment| segment.length).collect::<Vec<_>>(), [3]);
    assert!(items[0].place.segments().is_none());
}

#[test]
fn faults_say_which_rule_where_and_what_to_answer() {
    let request = |body: &[u32]| Xdr::common(7, 2, 9, XMTREQ).words(body).0;
    let response = |body: &[u32]| Xdr::common(7, 2, 9, XMTRESP).words(body).0;
    let report = |body: &[u32]| Xdr::common(7, 2, 9, REPTERR).words(body).0;
    let bad = Some(ErrorBody::BadXdr);
    let cases = [
        ("shorter than the common prefix", 12, None, vec![0; 15]),
        (
            "unsupported version",
            4,
            Some(ErrorBody::Vers { low: 2, high: 2 }),
            Xdr::common(7, 1, 9, XMTREQ).0,
        ),
        (
            "unsupported header type",
            12,
            Some(ErrorBody::InvalHtype),
            Xdr::common(7, 2, 9, CODE_BASE).0,
        ),
        (
            "unsupported header type",
            12,
            Some(ErrorBody::InvalHtype),
            Xdr::common(7, 2, 9, CODE_BASE + 5).0,
        ),
        // Table 1: what the XDR does not allow in an xmdp_loc, and in an xmdp_rsdloc.
        ("type of an xmdp_loc", 28, bad, request(&[1, 0, 0, 3, 0])),
        ("type of an xmdp_loc", 28, bad, request(&[1, 0, 0, 4, 0, 0])),
        ("type of an xmdp_loc", 28, bad, request(&[1, 0, 0, 0])),
        ("type of an xmdp_loc", 28, None, response(&[1, 0, 0, 3, 0])),
        ("type of an xmdp_loc", 28, None, response(&[1, 0, 0, 4, 0, 0])),
        ("type of an xmdp_rsdloc", 40, bad, request(&[0, 1, 0, 0, 1, 0, 5])),
        ("type of an xmdp_rsdloc", 40, bad, request(&[0, 1, 0, 0, 1, 0, 6])),
        ("type of an xmdp_rsdloc", 40, bad, request(&[0, 1, 0, 0, 1, 0, 7])),
        ("truncated", 36, bad, request(&[1, 0, 0, 1, u32::MAX])),
        ("truncated", 40, bad, request(&[1, 0, 0, 2, 0, u32::MAX])),
        ("truncated", 20, bad, request(&[u32::MAX])),
        (
            "segment beyond the address space",
            36,
            bad,
            request(&[1, 0, 0, 1, 1, 7, 2, u32::MAX, u32::MAX]),
        ),
        ("xmsi_dir", 20, None, report(&[7, 2, 0, 0, 3])),
        ("discriminator of optre_lead", 28, None, report(&[7, 0, 0, 2, 3])),
        ("unknown error code", 32, None, report(&[7, 0, 0, 0, 0])),
        ("unknown error code", 32, None, report(&[7, 0, 0, 0, 9])),
        ("octets after the header", 36, None, report(&[7, 0, 0, 0, 3, 0])),
    ];
    for (rule, at, told, bytes) in cases {
        let fault = decode(&bytes).expect_err(rule);
        assert_eq!((fault.rule, fault.at, fault.report), (rule, at, told));
    }
}

#[test]
fn any_octets_give_a_message_or_a_fault_and_what_is_decoded_is_written_again() {
    let mut rng = Rng::new(0x5254);
    let vectors = all();
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut bytes = vectors[rng.below(vectors.len())].1.clone();
        bytes.truncate(rng.below(bytes.len() + 1));
        for _ in 0..rng.below(4) {
            if !bytes.is_empty() {
                let at = rng.below(bytes.len());
                bytes[at] = if rng.below(2) == 0 { rng.octet() } else { rng.octet() & 3 };
            }
        }
        if let Ok((prefix, header)) = decode(&bytes) {
            accepted += 1;
            let mut memory = vec![0; bytes.len()];
            assert_eq!(again(&prefix, &header, &mut memory), Ok(bytes.len()));
            assert_eq!(memory, bytes);
        }
    }
    assert!(accepted > 1000, "{accepted}");
}

#[test]
fn what_is_printed_names_no_handle_and_no_payload() {
    for (name, bytes) in all() {
        let printed = format!("{:?}", decode(&bytes).unwrap().1);
        for handle in [0x00a1_b2c3_u32, 0x00d4_e5f6] {
            let [_, a, b, c] = handle.to_be_bytes();
            assert!(!printed.contains(&format!("{a}, {b}, {c}")), "{name}: {printed}");
            assert!(!printed.contains(&format!("{handle}")), "{name}: {printed}");
        }
        assert!(!printed.contains("104, 101, 108"), "the bulk data of {name}: {printed}");
    }
    let printed = format!("{:?}", decode(&vector("xmtreq/directed")).unwrap().1);
    assert!(printed.contains("dsdov: 8192") && printed.contains("rest_length: 56"), "{printed}");
}
