//! Sizes in bytes, parsed and printed with KiB, MiB and GiB.

/// Parses a size: an integer, optionally followed by `KiB`, `MiB` or `GiB`.
pub fn parse(text: &str) -> Result<u64, String> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
    let (digits, unit) = units
        .iter()
        .find_map(|(name, unit)| text.strip_suffix(name).map(|digits| (digits, *unit)))
        .unwrap_or((text, 1_u64));
    // `parse` would also take a sign.
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        let wrong = "give an integer, or one with KiB, MiB or GiB behind it";
        return Err(match guess(text) {
            Some(meant) => format!("{wrong}; did you mean `{meant}`?"),
            None => wrong.to_owned(),
        });
    }
    let number = digits.parse::<u64>().ok();
    number.and_then(|n| n.checked_mul(unit)).ok_or_else(|| "that is 16 EiB or more".to_owned())
}

/// Returns the right spelling of an integer with a misspelt unit, such as `1MiB` for `1mb`.
fn guess(text: &str) -> Option<String> {
    let at = text.find(|c: char| !c.is_ascii_digit()).filter(|at| *at > 0)?;
    let (digits, unit) = text.split_at(at);
    let unit = match unit.trim_start().to_ascii_lowercase().as_str() {
        "b" | "bytes" => "",
        "k" | "kb" | "kib" => "KiB",
        "m" | "mb" | "mib" => "MiB",
        "g" | "gb" | "gib" => "GiB",
        _ => return None,
    };
    Some(format!("{digits}{unit}"))
}

/// Formats a size with the largest unit that keeps the number whole.
pub fn format(octets: u64) -> String {
    match octets {
        0 => "0 B".to_owned(),
        n if n.is_multiple_of(1 << 30) => format!("{} GiB", n >> 30),
        n if n.is_multiple_of(1 << 20) => format!("{} MiB", n >> 20),
        n if n.is_multiple_of(1 << 10) => format!("{} KiB", n >> 10),
        n => format!("{n} B"),
    }
}

/// Formats a size with the largest unit it reaches, and one decimal where the number is not whole.
pub fn rounded(octets: u64) -> String {
    let units = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let Some((name, unit)) = units.into_iter().find(|(_, unit)| octets >= *unit) else {
        return format!("{octets} B");
    };
    match (octets / unit, octets % unit) {
        (whole, 0) => format!("{whole} {name}"),
        _ => format!("{:.1} {name}", octets as f64 / unit as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_and_binary_units_are_read() {
        assert_eq!(parse("0"), Ok(0));
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("3KiB"), Ok(3 << 10));
        assert_eq!(parse("256MiB"), Ok(256 << 20));
        assert_eq!(parse("2GiB"), Ok(2 << 30));
        assert_eq!(parse("18446744073709551615"), Ok(u64::MAX));
    }

    #[test]
    fn amounts_nobody_typed_are_rounded() {
        let written = [0, 1023, 1024, 1536, 5 << 20, 37_918_243_576].map(rounded);
        assert_eq!(written, ["0 B", "1023 B", "1 KiB", "1.5 KiB", "5 MiB", "35.3 GiB"]);
    }

    #[test]
    fn anything_else_is_refused() {
        for wrong in ["", "MiB", "-1", "+1", "1.5GiB", "1 MiB", "1MB", "1mib", "1K", "0x10", "１"]
        {
            assert!(parse(wrong).unwrap_err().contains("integer"), "{wrong}");
        }
        for large in ["18446744073709551616", "17179869184GiB"] {
            assert!(parse(large).unwrap_err().contains("EiB"), "{large}");
        }
    }

    #[test]
    fn a_unit_of_another_spelling_is_understood_and_corrected() {
        for (typed, meant) in [("1MB", "1MiB"), ("64 k", "64KiB"), ("2g", "2GiB"), ("7B", "7")] {
            let error = parse(typed).unwrap_err();
            assert!(error.ends_with(&format!("did you mean `{meant}`?")), "{error}");
        }
        assert!(!parse("1TiB").unwrap_err().contains("mean"));
    }

    #[test]
    fn the_largest_whole_unit_is_written() {
        let written = [0, 1, 1023, 1024, 1536, 5 << 20, 3 << 30].map(format);
        assert_eq!(written, ["0 B", "1 B", "1023 B", "1 KiB", "1536 B", "5 MiB", "3 GiB"]);
    }
}
