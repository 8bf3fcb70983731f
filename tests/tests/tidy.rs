//! Checks the whole workspace against the rules of this project.

use std::path::Path;

use haulage_tests::source::Workspace;
use haulage_tests::tidy;

#[test]
fn the_workspace_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let workspace = Workspace::read(&root).unwrap();
    assert!(workspace.rust().count() > 10, "the workspace was not found");
    let grown = tidy::grown(&workspace).into_iter().map(|one| one.to_string());
    for size in grown.chain(tidy::sizes(&workspace)) {
        eprintln!("large: {size}");
    }
    let breaches: Vec<_> = tidy::breaches(&workspace).iter().map(ToString::to_string).collect();
    assert!(breaches.is_empty(), "\n{}", breaches.join("\n"));
}
