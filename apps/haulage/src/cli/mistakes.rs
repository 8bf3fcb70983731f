//! Error messages for a wrong command line: one line, with a suggestion where a word looks misspelt.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::values::Provider;

/// Folds the parser's error into one line that also points to `--help`.
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

/// Returns the message for a provider that this build lacks, if the error is about one.
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

/// Returns the parser's context of this kind; of several texts, the last, which is the likeliest.
fn last(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text),
        ContextValue::Strings(texts) => texts.last().map(String::as_str),
        _ => None,
    }
}

const SUGGESTED: [ContextKind; 3] =
    [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
