//! What is said about a command line that makes no sense: one line, with what may have been meant.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::values::Provider;

/// Folds a complaint of the parser into one line, and names the help that says more.
pub(super) fn in_one_line(error: &clap::Error) -> String {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand
    ) {
        return "say what to do; --help lists it".to_owned();
    }
    let text = error.to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let told = lines.filter(|line| {
        !(line.is_empty() || line.starts_with("tip:") || line.starts_with("For more information"))
    });
    let told = told.collect::<Vec<_>>().join(" ");
    let mut told = told.strip_prefix("error: ").unwrap_or(&told).to_owned();
    if let Some(lacks) = lacking(error) {
        told = lacks;
    } else if let Some(meant) = SUGGESTED.into_iter().find_map(|kind| last(error, kind)) {
        told.push_str(&format!("; did you mean `{meant}`?"));
    }
    let separator = if told.ends_with('?') { "" } else { ";" };
    format!("{told}{separator} --help says more")
}

/// Returns the one of `names` that is most like `typed`, if any is like it.
pub(super) fn similar<'a>(typed: &str, names: &[&'a str]) -> Option<&'a str> {
    let likeness = names.iter().map(|name| (strsim::jaro(typed, name), *name));
    let best = likeness.max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(likeness, _)| *likeness > SIMILAR).map(|(_, name)| name)
}

/// Says that a provider is one of another build.
fn lacking(error: &clap::Error) -> Option<String> {
    let (option, name) =
        (last(error, ContextKind::InvalidArg)?, last(error, ContextKind::InvalidValue)?);
    let lacks = option.starts_with("--provider") && Provider::of_other_builds().contains(&name);
    lacks.then(|| {
        format!(
            "--provider {name}: this build lacks the feature `{name}`; it has {}",
            Provider::list()
        )
    })
}

/// Returns what the parser says of this kind; the most likely one of several.
fn last(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text),
        ContextValue::Strings(texts) => texts.last().map(String::as_str),
        _ => None,
    }
}

const SUGGESTED: [ContextKind; 3] =
    [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];

/// How alike words are of which one may have been meant for the other: as the parser has it.
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
