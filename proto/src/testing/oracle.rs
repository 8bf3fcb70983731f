//! Our codecs on messages that code generated from the specifications' own XDR has encoded.
//!
//! `tests/oracle/run` writes the vectors and compares many more messages, field by field.

use std::string::String;
use std::vec;
use std::vec::Vec;

use super::vectors;
use crate::v2::properties::ConnPropKind;
use crate::xdr::{Truncated, Writer};
use crate::{rtrext, v1, v2};

#[test]
fn version_2_messages_decode_to_their_header_type_and_encode_as_they_were() {
    for (name, octets) in sections(include_str!("../../vectors/v2/oracle.hex"), 63) {
        let message =
            v2::header::decode_transport(&octets).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(v2_name(&message), name);
        assert_eq!(encoded(&octets, |w| message.encode(w)), octets, "{name}");
    }
}

#[test]
fn properties_of_the_extensions_are_of_the_type_they_were_encoded_by() {
    use rtrext::properties::{Offer, RBSTRUCT};
    let (mut offers, mut structures) = (0, 0);
    for (name, octets) in sections(include_str!("../../vectors/v2/oracle.hex"), 63) {
        let message = v2::header::decode_transport(&octets);
        let Ok(v2::header::Message::ConnProp(properties)) = message else { continue };
        for (which, data) in properties.set.entries() {
            let mut offer = Offer::default();
            offer.apply(which, data).unwrap_or_else(|e| panic!("{name}: {e:?}"));
            offers += usize::from(offer != Offer::default());
            if which == RBSTRUCT && !data.is_empty() {
                let structure = offer.structure.expect("one that makes sense");
                assert_eq!(encoded(data, |w| structure.encode(w)), data, "{name}");
                structures += 1;
            }
        }
    }
    assert!(offers > 2 && structures > 0, "{offers} offers, {structures} structures");
}

#[test]
fn version_1_messages_decode_to_their_type_and_encode_as_they_were() {
    for (name, octets) in sections(include_str!("../../vectors/v1/oracle.hex"), 18) {
        let message =
            v1::header::decode_transport(&octets).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(v1_name(&message), name);
        assert_eq!(encoded(&octets, |w| message.encode(w)), octets, "{name}");
    }
}

#[test]
fn extension_messages_decode_to_their_header_type_and_encode_as_they_were() {
    for (name, octets) in sections(include_str!("../../vectors/rtrext/oracle.hex"), 33) {
        let decoded = rtrext::header::decode(&octets);
        let (prefix, header) = decoded.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(rtrext::header_name(header.htype()), Some(name.as_str()));
        let again = encoded(&octets, |w| {
            prefix.encode(w)?;
            header.encode(w)
        });
        assert_eq!(again, octets, "{name}");
    }
}

/// Returns the `count` messages of a file, each under the name of its header type.
fn sections(text: &str, count: usize) -> Vec<(String, Vec<u8>)> {
    let named = vectors(text).into_iter().map(|(name, octets)| {
        let (kind, number) = name.split_once(' ').expect("a kind and a number");
        assert!(number.parse::<u32>().is_ok(), "{number}");
        (String::from(kind), octets)
    });
    let named: Vec<_> = named.collect();
    assert_eq!(named.len(), count);
    named
}

fn encoded(
    octets: &[u8],
    encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
) -> Vec<u8> {
    let mut room = vec![0; octets.len()];
    let mut w = Writer::new(&mut room);
    encode(&mut w).expect("as long as it was");
    w.written().to_vec()
}

fn v2_name(message: &v2::header::Message<'_>) -> &'static str {
    use v2::header::Message;
    match message {
        Message::Error { .. } => "RDMA2_ERROR",
        Message::Grant { .. } => "RDMA2_GRANT",
        Message::ConnProp(properties) if properties.kind == ConnPropKind::Final => {
            "RDMA2_CONNPROP_FINAL"
        }
        Message::ConnProp(_) => "RDMA2_CONNPROP_MIDDLE",
        Message::CallExternal(_) => "RDMA2_CALL_EXTERNAL",
        Message::CallMiddle(_) => "RDMA2_CALL_MIDDLE",
        Message::CallInline(_) => "RDMA2_CALL_INLINE",
        Message::ReplyExternal(_) => "RDMA2_REPLY_EXTERNAL",
        Message::ReplyMiddle(_) => "RDMA2_REPLY_MIDDLE",
        Message::ReplyInline(_) => "RDMA2_REPLY_INLINE",
        Message::Extended(extended) => {
            crate::rtrext::header_name(extended.prefix.htype).unwrap_or_default()
        }
    }
}

fn v1_name(message: &v1::header::Message<'_>) -> &'static str {
    use v1::header::Message;
    match message {
        Message::Msg(_) => "RDMA_MSG",
        Message::NoMsg(_) => "RDMA_NOMSG",
        Message::MsgP(..) => "RDMA_MSGP",
        Message::Done { .. } => "RDMA_DONE",
        Message::Error { .. } => "RDMA_ERROR",
    }
}
