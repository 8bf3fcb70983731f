use super::*;

/// Returns the complaints about the patch `name`, beside a library with one sentence, `EX-1-1`.
fn check(name: &str, patch: &str) -> Vec<String> {
    let found = mutations(&tree(&[(name, patch)]));
    found.into_iter().map(|breach| format!("{}: {}", breach.path, breach.what)).collect()
}

fn tree(patches: &[(&str, &str)]) -> Workspace {
    let rows = "id\tlevel\tstatus\tholds_in\twhere\n\
        EX-1-1\tMUST\ttest\tlibrary\tproto::v2::tests::holds\n\
        EX-1-2\tMUST\ttest\truntime\tproto::v2::tests::holds tests::sim::holds\n\
        EX-1-3\tMUST\texception\t-\tno provider can do that\n\
        EX-1-5\tMUST\ttest\truntime\truntime::provider::verbs::tests::holds\n";
    let mut files = vec![
        ("proto/REQUIREMENTS.tsv", rows),
        ("proto/src/lib.rs", "pub mod v2;\n#[cfg(test)]\npub(crate) mod testing;\n"),
        ("proto/src/testing.rs", "a\n"),
        ("proto/src/testing/inner.rs", "a\n"),
        ("proto/src/v2.rs", V2),
        ("proto/src/v2/tests.rs", "#[test]\nfn holds() {}\na\n"),
        ("tests/tests/sim.rs", "#[test]\nfn holds() {}\na\n"),
        ("runtime/src/lib.rs", "a\n#[cfg(test)]\nmod testing;\n"),
        ("runtime/src/testing.rs", "a\n"),
        ("runtime/src/provider/verbs/tests.rs", "#[test]\nfn holds() {}\n"),
        ("apps/kv/src/lib.rs", "a\n"),
    ];
    files.extend(patches);
    Workspace::of(&files)
}

const V2: &str = "fn f() {\n    g();\n}\n#[cfg(test)]\nfn h() {\n    g(1);\n}\nfn i() {\n    g(2);\n}\n\
    #[cfg(test)]\nmod tests;\n";

fn patch(path: &str, old: &str) -> String {
    format!("--- a/{path}\n+++ b/{path}\n@@ -1 +0 @@\n-{old}\n")
}

#[test]
fn a_patch_is_named_after_a_row_with_tests() {
    let good = patch("proto/src/v2.rs", "    g();");
    assert_eq!(check("proto/mutations/EX-1-1.patch", &good), [""; 0]);
    assert_eq!(
        check("proto/mutations/EX-1-1.patch", &patch("proto/src/v2.rs", "    g(2);")),
        [""; 0]
    );
    for name in ["EX-1-3.patch", "EX-1-4.patch", "EX-1-1.diff", "EX-1-1"] {
        let name = format!("{DIRECTORY}{name}");
        let what = format!("{name}: is not named after a row with tests");
        assert_eq!(check(&name, &good), [what]);
    }
}

#[test]
fn a_row_with_tests_has_a_patch() {
    let missing = |name: &str| Breach::of_file(&format!("{DIRECTORY}{name}.patch"), "is missing");
    assert_eq!(unmutated(&tree(&[])), [missing("EX-1-1"), missing("EX-1-2")]);
    let one = [("proto/mutations/EX-1-1.patch", "")];
    assert_eq!(unmutated(&tree(&one)), [missing("EX-1-2")]);
}

#[test]
fn a_patch_applies_to_the_tree() {
    let name = "proto/mutations/EX-1-1.patch";
    let gone = patch("proto/src/v2.rs", "    g(3);");
    let what = format!("{name}: line 3: the old lines of the hunk are not in the file");
    assert_eq!(check(name, &gone), [what]);
    let what = format!("{name}: names no file by `--- a/PATH`, or changes nothing in it");
    assert_eq!(check(name, "nothing"), [what]);
}

#[test]
fn a_patch_leaves_tests_and_outer_layers_alone() {
    let name = "proto/mutations/EX-1-1.patch";
    for path in [
        "proto/src/testing.rs",
        "proto/src/testing/inner.rs",
        "proto/src/v2/tests.rs",
        "proto/src/v3.rs",
        "runtime/src/lib.rs",
        "tests/tests/sim.rs",
        "proto/REQUIREMENTS.tsv",
    ] {
        let what =
            format!("{name}: patches `{path}`, which is no code that tests of the library drive");
        assert_eq!(check(name, &patch(path, "a")), [what]);
    }
    let what = format!("{name}: patches what only tests of `proto/src/v2.rs` see");
    for line in ["    g(1);", "fn h() {", "#[cfg(test)]\n-mod tests;"] {
        assert_eq!(check(name, &patch("proto/src/v2.rs", line)), [what.as_str()]);
    }
}

#[test]
fn a_patch_for_the_runtime_breaks_it_or_the_library() {
    let name = "proto/mutations/EX-1-2.patch";
    assert_eq!(check(name, &patch("runtime/src/lib.rs", "a")), [""; 0]);
    assert_eq!(check(name, &patch("proto/src/v2.rs", "    g();")), [""; 0]);
    for path in ["runtime/src/testing.rs", "apps/kv/src/lib.rs", "tests/tests/sim.rs"] {
        let what =
            format!("{name}: patches `{path}`, which is no code that tests of the runtime drive");
        assert_eq!(check(name, &patch(path, "a")), [what]);
    }
}
