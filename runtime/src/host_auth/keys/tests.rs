use super::*;

/// RFC 8032 section 7.1, test 1.
const SEED: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
const PUBLIC: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
/// RFC 8032 section 7.1, test 2.
const PUBLIC_2: &str = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";

fn secret(text: &str) -> Result<String, String> {
    text.parse::<SecretKey>().map(|key| key.public().to_string()).map_err(|f| f.to_string())
}

fn known(text: &str) -> Result<KnownPeers, String> {
    text.parse::<KnownPeers>().map_err(|fault| fault.to_string())
}

#[test]
fn a_secret_key_is_one_line_of_digits() {
    for text in [SEED.to_owned(), format!("# lab-3\n\n  {}  \r\n", SEED.to_uppercase())] {
        assert_eq!(secret(&text).unwrap(), PUBLIC, "{text}");
    }
    let message = |text: &str| secret(text).unwrap_err();
    assert_eq!(message(""), "there is no key in it");
    assert_eq!(message("# nothing\n"), "there is no key in it");
    assert_eq!(message(&format!("#\n{}", &SEED[1..])), "line 2: a key is 64 hexadecimal digits");
    assert_eq!(message(&format!("{SEED} mine")), "line 1: a key is 64 hexadecimal digits");
    assert_eq!(message(&SEED.replace('d', "g")), "line 1: a key is 64 hexadecimal digits");
    assert_eq!(message(&SEED.replace('d', "+")), "line 1: a key is 64 hexadecimal digits");
    // 64 octets that are not 64 digits.
    assert_eq!(message(&SEED.replace("9d", "ä")), "line 1: a key is 64 hexadecimal digits");
    assert_eq!(message(&format!("{SEED}\n{SEED}\n")), "line 2: a second secret key");
    let not_text = text(b"# lab-3\n\n\xff").unwrap_err().to_string();
    assert_eq!(not_text, "line 3: a key is 64 hexadecimal digits");
}

#[test]
fn known_peers_are_lines_of_digits_and_remarks() {
    let peers = known(&format!("# ours\n{PUBLIC} lab-3\n\n\t{PUBLIC_2}\tthe other one\n")).unwrap();
    let key: SecretKey = SEED.parse().unwrap();
    assert_eq!(peers.get(key.public().octets()), Some(key.public()));
    assert_eq!(peers.0.len(), 2);
    assert_eq!(peers.get(&[7; 32]), None);
    assert_eq!(known("").unwrap().0.len(), 0);
    let second = |line: &str| known(&format!("{PUBLIC}\n{line}\n")).unwrap_err();
    assert_eq!(second(&PUBLIC[..62]), "line 2: a key is 64 hexadecimal digits");
    assert_eq!(second("lab-3"), "line 2: a key is 64 hexadecimal digits");
    // y = 1: the neutral element, for which anybody can make signatures; and y = 2, not on the curve.
    for digits in ["01", "02"] {
        let line = format!("{digits}{}", "0".repeat(62));
        assert_eq!(second(&line), "line 2: not a usable Ed25519 public key");
    }
}

#[test]
fn a_public_key_prints_as_it_is_read_and_a_secret_one_not_at_all() {
    let key: SecretKey = SEED.parse().unwrap();
    let printed = format!("{:?} {:?}", HostKeys { secret: key, known: known(PUBLIC).unwrap() }, ());
    assert!(printed.contains(PUBLIC) && printed.contains("SecretKey(..)"), "{printed}");
    for part in [&SEED[..8], &SEED[56..], "9d, 61", "157, 97"] {
        assert!(!printed.contains(part), "{printed}");
    }
}
