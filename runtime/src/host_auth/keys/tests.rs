use super::*;

/// RFC 8032 section 7.1, test 1.
const SEED: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
const PUBLIC: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
/// RFC 8032 section 7.1, test 2.
const PUBLIC_2: &str = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";

fn secret(text: &str) -> Result<String, String> {
    text.parse::<SecretKey>().map(|key| key.public().to_string()).map_err(|f| f.to_string())
}

fn known(text: &str) -> Result<KnownHosts, String> {
    text.parse::<KnownHosts>().map_err(|fault| fault.to_string())
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
fn known_hosts_are_lines_of_names_and_keys() {
    let text = format!(
        "# ours\nlab-3 {PUBLIC}\n\n\t[::1]:7\t{PUBLIC_2}\t# the other one\nlab-4 {PUBLIC}\n"
    );
    let hosts = known(&text).unwrap();
    let key: SecretKey = SEED.parse().unwrap();
    assert_eq!(hosts.get(key.public().octets()), Some(key.public()));
    assert_eq!(
        hosts.name(key.public().octets()).as_deref(),
        Some("lab-3"),
        "the first of its names"
    );
    assert_eq!(hosts.0.len(), 2);
    assert_eq!((hosts.get(&[7; 32]), hosts.name(&[7; 32]), hosts.name(b"")), (None, None, None));
    assert!(known("").unwrap().is_empty() && known("# nobody").unwrap().is_empty());
    // What one name has.
    let four = hosts.named(|name| name == "lab-4");
    assert_eq!(four.name(key.public().octets()).as_deref(), Some("lab-4"));
    assert_eq!(four.0.len(), 1);
    assert!(hosts.named(|name| name == "lab").is_empty());
}

#[test]
fn a_line_that_is_no_known_host_is_refused_with_its_number() {
    let second = |line: &str| known(&format!("lab-3 {PUBLIC}\n{line}\n")).unwrap_err();
    let host =
        "line 2: a known host is a name, a space, and its public key of 64 hexadecimal digits";
    for line in [
        format!("lab-3 {}", &PUBLIC[..62]),
        "lab-3".to_owned(),
        format!("lab-3 {PUBLIC} {PUBLIC_2}"),
        format!("lab-3 remark {PUBLIC}"),
        format!("lab\u{7}3 {PUBLIC}"),
        format!("{} {PUBLIC}", "n".repeat(256)),
    ] {
        assert_eq!(second(&line), host, "{line}");
    }
    assert!(known(&format!("{} {PUBLIC}", "n".repeat(255))).is_ok());
    // As the files of before were.
    for line in [PUBLIC.to_owned(), format!("{PUBLIC} lab-3")] {
        let first =
            "line 2: the key is first: put the name of its host in front of it, and a space";
        assert_eq!(second(&line), first);
    }
    // y = 1: the neutral element, for which anybody can make signatures; and y = 2, not on the curve.
    for digits in ["01", "02"] {
        let line = format!("lab-3 {digits}{}", "0".repeat(62));
        assert_eq!(second(&line), "line 2: not a usable Ed25519 public key");
    }
}

#[test]
fn a_public_key_prints_as_it_is_read_and_a_secret_one_not_at_all() {
    let key: SecretKey = SEED.parse().unwrap();
    let hosts = known(&format!("lab-3 {PUBLIC}")).unwrap();
    let printed = format!("{:?}", crate::host_auth::HostKeys::new(key, hosts));
    assert!(printed.contains(PUBLIC) && printed.contains("SecretKey(..)"), "{printed}");
    for part in [&SEED[..8], &SEED[56..], "9d, 61", "157, 97"] {
        assert!(!printed.contains(part), "{printed}");
    }
}
