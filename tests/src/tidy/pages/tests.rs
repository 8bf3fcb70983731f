use super::*;

/// Returns the lines and the texts of a rule's breaches.
fn objects(rule: fn(&Workspace) -> Vec<Breach>, files: &[(&str, &str)]) -> Vec<(usize, String)> {
    let found = rule(&Workspace::of(files));
    found.into_iter().map(|breach| (breach.line, breach.what)).collect()
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let page = "[a](docs/b.md) [c](docs) [d](docs/b.md#two-words) [e](https://example.org/)\n\
        [`f`](gone.md) and [g](docs/b.md#three)\n\
        ```text\n[h](gone.md)\n```\n`[i](gone.md)` [j](#top)\n# Top\n";
    let files =
        [("README.md", page), ("docs/b.md", "# Two `words`\n[up](../README.md)\n[out](../../x)\n")];
    let expected = [
        (2, "gone.md is not there".to_owned()),
        (2, "docs/b.md#three names a heading that is not there".to_owned()),
        (3, "../../x is outside".to_owned()),
    ];
    assert_eq!(objects(links, &files), expected);
}

#[test]
fn the_book_keeps_to_itself_and_lists_its_pages() {
    let page = ("docs/book/src/a.md", "[b](b.md)\n[c](../../c.md)\n[d](https://example.org/)\n");
    let files = [
        page,
        ("docs/book/src/b.md", ""),
        ("docs/book/src/SUMMARY.md", "- [A](a.md)\n"),
        ("docs/c.md", ""),
    ];
    let expected = [
        (2, "links to ../../c.md, which the built book does not hold".to_owned()),
        (0, format!("is not in {SUMMARY}")),
    ];
    assert_eq!(objects(book, &files), expected);
    assert_eq!(objects(book, &[page]), [(0, "is missing".to_owned())]);
}

#[test]
fn rust_of_the_book_that_no_doctest_runs_is_found() {
    let files = |includes| {
        let lib = ("runtime/src/lib.rs", includes);
        let page = ("docs/book/src/a.md", "```rust\nfn main() {}\n```\n");
        objects(book, &[lib, page, ("docs/book/src/SUMMARY.md", "- [A](a.md)\n")])
    };
    assert_eq!(files("#[doc = include_str!(\"../../docs/book/src/a.md\")]"), []);
    let untested = (0, "has Rust code that no doctest includes".to_owned());
    assert_eq!(files("#[doc = include_str!(\"../../docs/book/src/aa.md\")]"), [untested]);
}

#[test]
fn a_message_or_metric_that_the_code_has_not_is_found() {
    let code =
        "f(\"cannot serve {path}: {error}; \\\n     choose another\");\nm(\"haulage_leases\");\n";
    let table = "| `cannot serve ...: ...; choose another` | a |\n\
        | `cannot swerve ...` | b |\n| `cannot serve ...; choose none` | `haulage_leases{state}` |\n\
        | words | `haulage_losses` |\n";
    let summary = ("docs/book/src/SUMMARY.md", "- [T](troubleshooting.md)\n");
    let files = [("apps/haulage/src/a.rs", code), (MESSAGES, table), summary];
    let expected = [
        (2, "lists `cannot swerve ...`, which no message of the code is".to_owned()),
        (3, "lists `cannot serve ...; choose none`, which no message of the code is".to_owned()),
        (4, "names the metric `haulage_losses`, which the code has not".to_owned()),
    ];
    assert_eq!(objects(book, &files), expected);
}

#[test]
fn a_walk_meets_only_what_is_there() {
    let page = "`Core::turn` calls `Gone::turn`,\n`a/b.rs` holds `proto`, and `was_here` is not.\n";
    let code = "use proto::x;\n// was_here\nimpl Core { fn turn() {} }\n";
    let expected = [
        (1, "names `Gone`, which the code has not".to_owned()),
        (2, "names `was_here`, which the code has not".to_owned()),
    ];
    assert_eq!(objects(walks, &[("ARCHITECTURE.md", page), ("runtime/src/a.rs", code)]), expected);
}
