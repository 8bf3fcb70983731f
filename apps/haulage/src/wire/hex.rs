//! Hex encoding of octets.

use super::refusal::Refusal;

/// Decodes an even number of hex digits of either case.
pub fn decode(digits: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut octets = Vec::with_capacity(digits.len() / 2);
    let (pairs, half) = digits.as_chunks();
    for [high, low] in pairs {
        let (Some(high), Some(low)) = (value(*high), value(*low)) else {
            return Err(Refusal::silent("not a hex digit", octets.len()));
        };
        octets.push(high << 4 | low);
    }
    if half.is_empty() {
        Ok(octets)
    } else {
        Err(Refusal::silent("half an octet of hex", octets.len()))
    }
}

/// Encodes octets in lower case.
pub fn encode(octets: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * octets.len());
    push(octets, &mut digits);
    digits
}

/// Encodes octets in lower case, as a JSON string.
pub fn quoted(octets: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * octets.len() + 2);
    digits.push('"');
    push(octets, &mut digits);
    digits.push('"');
    digits
}

fn push(octets: &[u8], digits: &mut String) {
    for octet in octets {
        digits.push(char::from(DIGITS[usize::from(octet >> 4)]));
        digits.push(char::from(DIGITS[usize::from(octet & 15)]));
    }
}

fn value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_octet_survives_the_round_trip() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(encode(&all).as_bytes()).unwrap(), all);
        assert_eq!((encode(&[0, 0x9a, 0xff]), quoted(&[1])), ("009aff".into(), "\"01\"".into()));
        assert_eq!(decode(b"9AfF").unwrap(), [0x9a, 0xff]);
    }

    #[test]
    fn what_is_not_hex_is_refused_at_the_octet_where_it_stands() {
        for (digits, says) in [
            (&b"001"[..], "half an octet of hex at byte 1"),
            (b"00zz", "not a hex digit at byte 1"),
            (b"+1", "not a hex digit at byte 0"),
            (b"00 11", "not a hex digit at byte 1"),
            (b"\xff\xff", "not a hex digit at byte 0"),
        ] {
            let refusal = decode(digits).unwrap_err();
            assert_eq!(refusal.to_json(), format!(r#"{{"error":"{says}","report":null}}"#));
        }
    }
}
