//! Octets written as hexadecimal digits.
//!
//! In an annotated file blanks are ignored, `#` begins a remark that ends with its line, and a line that begins with
//! `==` begins a section and names it.

/// Reads octets from pairs of digits; `None` if `digits` is anything else.
pub fn octets(digits: &str) -> Option<Vec<u8>> {
    hex::decode(digits).ok()
}

/// Reads an annotated file without sections.
///
/// # Panics
/// If it holds anything but pairs of digits, or none.
pub fn vector(text: &str) -> Vec<u8> {
    let digits: String = text.lines().flat_map(digits_of).collect();
    assert!(!digits.is_empty(), "a file has digits");
    octets(&digits).unwrap_or_else(|| panic!("no pairs of digits: {digits}"))
}

/// Reads an annotated file of sections: their names and their octets.
///
/// # Panics
/// If there is no section, digits stand before the first, or one holds anything but pairs of digits.
pub fn vectors(text: &str) -> Vec<(String, Vec<u8>)> {
    let mut sections: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        if let Some(name) = without_remark(line).strip_prefix("==") {
            sections.push((name.trim().to_owned(), String::new()));
        } else {
            let mut digits = digits_of(line).peekable();
            if digits.peek().is_some() {
                sections.last_mut().expect("digits stand in a section").1.extend(digits);
            }
        }
    }
    assert!(!sections.is_empty(), "a file has sections");
    let read =
        |digits: &str| octets(digits).unwrap_or_else(|| panic!("no pairs of digits: {digits}"));
    sections.into_iter().map(|(name, digits)| (name, read(&digits))).collect()
}

fn digits_of(line: &str) -> impl Iterator<Item = char> {
    without_remark(line).chars().filter(|c| !c.is_whitespace())
}

fn without_remark(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_digits_are_octets_and_nothing_else_is() {
        assert_eq!(octets("00fF1a"), Some(vec![0, 0xff, 0x1a]));
        assert_eq!(octets(""), Some(Vec::new()));
        for wrong in ["0", "001", "0x", "+1", " 1", "é"] {
            assert_eq!(octets(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn remarks_and_blanks_mean_nothing() {
        assert_eq!(vector("# a file\n01 02 # 03\n\n  04\n"), [1, 2, 4]);
    }

    #[test]
    fn sections_are_named() {
        let text = "# a file\n== one thing # of two\n0102 # and\n03\n\n== two\nff";
        let expected = [("one thing".to_owned(), vec![1, 2, 3]), ("two".to_owned(), vec![255])];
        assert_eq!(vectors(text), expected);
    }
}
