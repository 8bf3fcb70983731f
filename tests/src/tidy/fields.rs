//! The objects whose fields are their own.

use super::Breach;
use crate::source::Workspace;

/// Checks that no field of these objects can be named outside their files: what they hold changes by their methods alone.
pub fn fields(workspace: &Workspace) -> Vec<Breach> {
    OBJECTS.iter().flat_map(|object| visible(workspace, object)).collect()
}

fn visible(workspace: &Workspace, &(path, name): &(&str, &str)) -> Vec<Breach> {
    let head = format!("struct {name} {{");
    let source = workspace.rust().find(|(at, _)| *at == path).map(|(_, source)| source);
    let found = source.and_then(|source| Some((source, source.code.find(&head)? + head.len())));
    let Some((source, begin)) = found else {
        return vec![Breach::of_file(path, format!("has no struct {name} with fields"))];
    };
    let end = source.code[begin..].find("\n}").map_or(source.code.len(), |end| begin + end);
    let mut breaches = Vec::new();
    let mut at = begin;
    for line in source.code[begin..end].split_inclusive('\n') {
        if line.trim_start().starts_with("pub") {
            let what = format!("a field of {name} is visible outside");
            breaches.push(Breach::at(path, &source.text, at, what));
        }
        at += line.len();
    }
    breaches
}

/// Files, each with the name of an object in it.
const OBJECTS: [(&str, &str); 10] = [
    ("runtime/src/core/connection/credits.rs", "Credits"),
    ("runtime/src/core/connection/life.rs", "Life"),
    ("runtime/src/core/connection/outbox.rs", "Outbox"),
    ("runtime/src/core/connection/session.rs", "Session"),
    ("runtime/src/core/memory.rs", "Share"),
    ("runtime/src/provider/iwarp/connection.rs", "Connection"),
    ("runtime/src/provider/iwarp/inflow.rs", "Inflow"),
    ("runtime/src/provider/iwarp/intake.rs", "Intake"),
    ("runtime/src/provider/iwarp/life.rs", "Life"),
    ("runtime/src/provider/iwarp/outflow.rs", "Outflow"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_others_can_name_is_found() {
        let found = |text: &str| {
            let found = visible(&Workspace::of(&[("a.rs", text)]), &("a.rs", "Life"));
            found.into_iter().map(|breach| (breach.line, breach.what)).collect::<Vec<_>>()
        };
        let other = "pub struct Other {\n    pub a: u8,\n}\n";
        assert_eq!(found(&format!("pub struct Life {{\n    a: u8,\n}}\n{other}")), []);
        let what = "a field of Life is visible outside".to_owned();
        let text = "pub struct Life {\n    a: u8,\n    /// The pub.\n    pub(crate) b: u8,\n}\n";
        assert_eq!(found(text), [(4, what)]);
        let what = "has no struct Life with fields".to_owned();
        assert_eq!(found(other), [(0, what)], "the list must not outlive its objects");
    }
}
