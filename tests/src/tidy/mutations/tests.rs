use super::*;

/// Returns the complaints about the markers of a workspace with two sentences, `EX-1-1` of the library and `EX-1-2` of
/// the runtime, where `path` begins with `text`.
fn check(path: &str, text: &str) -> Vec<String> {
    let found = mutations(&tree(path, text));
    found.iter().map(|breach| format!("{}:{}: {}", breach.path, breach.line, breach.what)).collect()
}

fn tree(path: &str, text: &str) -> Workspace {
    let rows = "id\tlevel\tstatus\tholds_in\twhere\n\
        EX-1-1\tMUST\ttest\tlibrary\tproto::v2::tests::holds\n\
        EX-1-2\tMUST\ttest\truntime\tproto::v2::tests::holds tests::sim::holds\n\
        EX-1-3\tMUST\texception\t-\tno provider can do that\n\
        EX-1-5\tMUST\ttest\truntime\truntime::provider::verbs::tests::holds\n";
    let files = [
        (TABLE, rows),
        ("proto/src/lib.rs", "pub mod v2;\n#[cfg(test)]\npub(crate) mod testing;\n"),
        ("proto/src/testing.rs", "a\n"),
        ("proto/src/testing/inner.rs", "a\n"),
        ("proto/src/v2.rs", "a\n#[cfg(test)]\nmod tests;\n"),
        ("proto/src/v2/tests.rs", "#[test]\nfn holds() {}\na\n"),
        ("tests/tests/sim.rs", "#[test]\nfn holds() {}\na\n"),
        ("runtime/src/lib.rs", "a\n#[cfg(test)]\nmod testing;\n"),
        ("runtime/src/testing.rs", "a\n"),
        ("runtime/src/provider/verbs/tests.rs", "#[test]\nfn holds() {}\n"),
        ("apps/kv/src/lib.rs", "a\n"),
    ];
    let files = files.map(|(name, rest)| {
        (name, if name == path { format!("{text}{rest}") } else { rest.to_owned() })
    });
    let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    Workspace::of(&files)
}

#[test]
fn a_marker_belongs_to_a_row_with_tests() {
    assert_eq!(check("proto/src/v2.rs", "//~ EX-1-1: `g` -> `h`\ng();\n"), [""; 0]);
    for id in ["EX-1-3", "EX-1-4", "EX-1-5"] {
        let what =
            format!("proto/src/v2.rs:2: the marker breaks {id}, which is not a row with tests");
        assert_eq!(
            check("proto/src/v2.rs", &format!("f();\n//~ {id}: `g` -> `h`\ng();\n")),
            [what]
        );
    }
}

#[test]
fn a_row_with_tests_has_markers_that_fit_together() {
    let wrong = |text: &str| {
        let found = unmutated(&tree("proto/src/v2.rs", text)).into_iter();
        found.map(|Breach { path, what, .. }| format!("{path}: {what}")).collect::<Vec<_>>()
    };
    let none = ["EX-1-1", "EX-1-2"].map(|id| format!("{TABLE}: no marker breaks {id}"));
    assert_eq!(wrong(""), none);
    assert_eq!(wrong("//~ EX-1-1: `h` -> `i`\ng();\n"), none);
    assert_eq!(wrong("//~ EX-1-1: `g` -> `h`\ng();\n"), none[1..]);
    let other = "//~ EX-1-2: `g` -> `h`\ng(1);\n";
    assert_eq!(wrong(&format!("{other}//~ EX-1-1: `g` -> `i`\ng();\n")), [""; 0]);
    let two = "//~ EX-1-1: `g(` -> `h(`\n//~ EX-1-1: `g(2` -> `h(3`\ng(2);\n";
    assert_eq!(wrong(&format!("{other}{two}")), [""; 0], "each is applied on its own");
    assert_eq!(
        wrong(&format!("{other}{}", two.replace("`\n", "` together\n"))),
        [format!("{TABLE}: two markers of EX-1-1 overlap")]
    );
}

#[test]
fn a_marker_can_be_applied_and_is_there_once() {
    let found = |text: &str| check("proto/src/v2.rs", text);
    let once = "proto/src/v2.rs:1: the marker does not find its text on the left exactly once in the line of code below it";
    assert_eq!(found("//~ EX-1-1: `h` -> `i`\ng();\n"), [once]);
    assert_eq!(found("//~ EX-1-1: `g` -> `i`\ng(g());\n"), [once]);
    assert_eq!(found("//~ EX-1-1: g -> i\ng();\n").len(), 1);
    let at_end = check("proto/src/testing.rs", "//~ EX-1-1: `g` -> `i`\n");
    assert_eq!(at_end.len(), 1, "{at_end:?}");
    let one = "//~ EX-1-1: `g` -> `h`\ng();\n";
    let twice = "proto/src/v2.rs:3: the marker is there twice";
    assert_eq!(found(&one.repeat(2)), [twice]);
    assert_eq!(found(&format!("{one}//~ EX-1-2: `g` -> `h`\ng();\n")), [""; 0]);
    assert_eq!(found(&format!("{one}//~ EX-1-1: `g` -> `i`\ng();\n")), [""; 0]);
}

#[test]
fn a_marker_leaves_tests_and_outer_layers_alone() {
    for path in [
        "proto/src/testing.rs",
        "proto/src/testing/inner.rs",
        "proto/src/v2/tests.rs",
        "runtime/src/lib.rs",
        "tests/tests/sim.rs",
    ] {
        let what = format!(
            "{path}:1: the marker breaks EX-1-1, but tests of the library do not drive this code"
        );
        assert_eq!(check(path, "//~ EX-1-1: `a` -> `b`\na\n"), [what]);
    }
    for (line, code) in [
        (3, "#[cfg(test)]\nfn h() {\n//~ EX-1-1: `g` -> `i`\n    g();\n}\n"),
        (2, "#[cfg(test)]\n//~ EX-1-1: `h` -> `i`\nfn h() {}\n"),
        (1, "//~ EX-1-1: `test` -> `any()`\n#[cfg(test)]\nmod other;\n"),
    ] {
        let what =
            format!("proto/src/v2.rs:{line}: the marker breaks EX-1-1 in what only tests see");
        assert_eq!(check("proto/src/v2.rs", code), [what]);
    }
    let behind = "#[cfg(test)]\nfn h() {\n    g();\n}\n//~ EX-1-1: `g` -> `i`\ng();\n";
    assert_eq!(check("proto/src/v2.rs", behind), [""; 0]);
}

#[test]
fn a_marker_for_the_runtime_breaks_it_or_the_library() {
    let marker = "//~ EX-1-2: `a` -> `b`\na\n";
    assert_eq!(check("runtime/src/lib.rs", marker), [""; 0]);
    assert_eq!(check("proto/src/v2.rs", marker), [""; 0]);
    for path in ["runtime/src/testing.rs", "apps/kv/src/lib.rs", "tests/tests/sim.rs"] {
        let what = format!(
            "{path}:1: the marker breaks EX-1-2, but tests of the runtime do not drive this code"
        );
        assert_eq!(check(path, marker), [what]);
    }
}
