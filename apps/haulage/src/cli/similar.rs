//! Names that look like what was typed.

/// Returns the name most similar to `typed`, if its similarity exceeds [`SIMILAR`].
pub(super) fn similar<'a>(typed: &str, names: &[&'a str]) -> Option<&'a str> {
    let likeness = names.iter().map(|name| (strsim::jaro(typed, name), *name));
    let best = likeness.max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(likeness, _)| *likeness > SIMILAR).map(|(_, name)| name)
}

/// The least Jaro similarity of a suggestion; clap uses the same.
const SIMILAR: f64 = 0.7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_similar_that_differ_by_a_slip() {
        assert_eq!(similar("memry", &["memory", "off"]), Some("memory"));
        assert_eq!(similar("of", &["memory", "off"]), Some("off"));
        assert_eq!(similar("/srv", &["memory", "off"]), None);
        assert_eq!(similar("", &["off"]), None);
    }
}
