use std::vec::Vec;

use super::*;
use crate::rtrext::structure::{BufferSegment, FLAG_TARGETABLE};
use crate::testing::Xdr;
use crate::v2::properties::PropertySet;

fn structure() -> Structure {
    let plain = BufferSegment { length: 1024, align: 1, flags: 0 };
    let target = BufferSegment { length: 4096, align: 4096, flags: FLAG_TARGETABLE };
    Structure::new(&[plain, target]).unwrap()
}

fn offer() -> Offer {
    Offer { support: 7, structure: Some(structure()), request_receive_max: 8, response_send_max: 9 }
}

#[test]
fn an_offer_is_four_properties_and_survives_the_round_trip() {
    let value = Xdr::default().words(&[5120, 2, 1, 1024, 1, 0, 1, 4096, 4096, 1]).0;
    let set = Xdr::default().propset(&[
        (0x5254_0003, &7_u32.to_be_bytes()),
        (0x5254_0005, &8_u32.to_be_bytes()),
        (0x5254_0006, &9_u32.to_be_bytes()),
        (0x5254_0004, &value),
    ]);
    let entries = offer().entries();
    let entries: Vec<_> = entries.iter().map(|(which, data)| (*which, &data[..])).collect();
    assert_eq!(Xdr::default().propset(&entries).0, set.0);
    let mut heard = Offer::default();
    let set = PropertySet::decode(&mut Reader::new(&set.0)).unwrap();
    for (which, data) in set.entries() {
        heard.apply(which, data).unwrap();
    }
    assert_eq!(heard, offer());
    let unstructured = Offer { structure: None, ..offer() };
    assert_eq!(unstructured.entries().len(), 3);
    let nothing = Offer { support: 0, ..offer() };
    assert!(nothing.entries().is_empty(), "nothing is offered");
}

#[test]
fn a_value_that_is_not_of_its_type_is_refused_and_an_empty_one_is_the_default() {
    for which in [RTRSUPP, RBSTRUCT, REQRXLIM, RESPSXLIM] {
        let mut heard = offer();
        for data in [&[0; 3][..], &[0; 5], &[0; 7], &[0; 12]] {
            assert!(heard.apply(which, data).is_err(), "{which:x} {}", data.len());
        }
        let mut heard = offer();
        heard.apply(which, &[]).unwrap();
        let default = Offer::default();
        let now = match which {
            RTRSUPP => heard.support == default.support,
            RBSTRUCT => heard.structure == default.structure,
            REQRXLIM => heard.request_receive_max == default.request_receive_max,
            _ => heard.response_send_max == default.response_send_max,
        };
        assert!(now, "{which:x}");
    }
    let mut heard = offer();
    heard.apply(3, &[1]).unwrap();
    assert_eq!(heard, offer(), "a property of version 2 is left alone");
    // [0; 8] is a structure without segments: nothing to make use of.
    heard.apply(RBSTRUCT, &[0; 8]).unwrap();
    assert_eq!(heard.structure, None);
}

#[test]
fn an_end_that_says_nothing_takes_and_sends_single_transmissions() {
    let silent = Heard::default();
    let (offered, size) = silent.buffers_of(4096);
    let of_table_3 =
        Offer { support: 0, structure: None, request_receive_max: 1, response_send_max: 1 };
    assert_eq!((*offered, size), (of_table_3, None));
    // The defaults hold even for an end that supports the whole extension.
    let theirs = Offer { support: 7, ..*offered };
    let terms = Terms::new((&offer(), &Properties::default()), (&theirs, size), 5);
    assert_eq!((terms.request_send_max, terms.response_receive_max), (1, 1));
    assert_eq!(terms.theirs, Structure::single(4096));
}

#[test]
fn nothing_is_agreed_that_one_end_has_not_offered() {
    let base = Properties::default();
    for (ours, theirs) in (0..8).flat_map(|ours| (0..8).map(move |theirs| (ours, theirs))) {
        let (ours, theirs) =
            (Offer { support: ours, ..offer() }, Offer { support: theirs, ..offer() });
        let terms = Terms::new((&ours, &base), (&theirs, None), 5);
        let both = ours.support & theirs.support;
        let allowed = [XMTREQ, XMTRESP, XMTCONT, REPTERR, 10].map(|htype| terms.allows(htype));
        let expected = [both & 1 != 0, both & 2 != 0, both & 4 != 0, both != 0, false];
        assert_eq!(allowed, expected, "{ours:?} {theirs:?}");
        let limits = [
            terms.request_send_max,
            terms.request_receive_max,
            terms.response_send_max,
            terms.response_receive_max,
        ];
        assert_eq!(limits, if both & 4 == 0 { [1; 4] } else { [8, 8, 9, 5] });
    }
}

#[test]
fn a_message_is_as_long_as_both_ends_can_have_it() {
    let base = |receive, send| Properties {
        receive_buffer_size: receive,
        send_size_max: send,
        ..Properties::default()
    };
    let single = Offer { structure: None, ..offer() };
    let max = |theirs: &Offer, receive, send| {
        Terms::new((&offer(), &base(4096, send)), (theirs, Some(receive)), 1).message_max
    };
    assert_eq!(max(&single, 8192, 65536), 8192, "what the peer receives");
    assert_eq!(max(&single, 8192, 2048), 2048, "what we send");
    assert_eq!(max(&offer(), 65536, 65536), 5120, "what its buffers hold");
    assert_eq!(max(&offer(), 4096, 65536), 4096);
    let unsaid = |theirs| Terms::new((&offer(), &base(0, 65536)), (theirs, None), 1).message_max;
    assert_eq!(
        (unsaid(&single), unsaid(&offer())),
        (4096, 5120),
        "what follows from the structure"
    );
    let terms = Terms::new((&offer(), &base(9, 9)), (&single, Some(8192)), 1);
    // Section 8.3: one segment, no target.
    assert_eq!((terms.theirs, terms.ours), (Structure::single(8192), structure()));
    assert_eq!(terms.theirs.targetable_count(), 0);
}
