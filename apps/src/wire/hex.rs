//! Octets as digits.

use super::refusal::Refusal;

/// Reads an even number of hex digits of either case.
pub fn decode(digits: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut octets = Vec::with_capacity(digits.len() / 2);
    for (at, pair) in digits.chunks(2).enumerate() {
        let value = match *pair {
            [high, low] => value(high).zip(value(low)),
            _ => return Err(Refusal::silent("half an octet of hex", at)),
        };
        let (high, low) = value.ok_or(Refusal::silent("not a hex digit", at))?;
        octets.push(high << 4 | low);
    }
    Ok(octets)
}

/// Writes octets in lower case.
pub fn encode(octets: &[u8]) -> String {
    let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
    octets.iter().flat_map(|octet| [digit(octet >> 4), digit(octet & 15)]).collect()
}

fn value(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_octet_survives_the_round_trip() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(encode(&all).as_bytes()).unwrap(), all);
        assert_eq!(encode(&[0, 0x9a, 0xff]), "009aff");
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
