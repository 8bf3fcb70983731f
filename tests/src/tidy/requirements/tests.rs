use super::*;

// The ids belong to a specification that does not exist, so nothing here is a citation in the real
// table.

/// Returns the complaints about one row, beside code that obeys it and tests it.
fn check(row: &str) -> Vec<String> {
    check_all(HEADER, row, CODE)
}

fn check_all(header: &str, rows: &str, code: &str) -> Vec<String> {
    let table = format!("{header}\n{rows}\n");
    let tree = [(TABLE, table.as_str()), ("proto/src/v2/credit.rs", code)];
    coverage(&Workspace::of(&tree)).into_iter().map(|breach| breach.what).collect()
}

#[test]
fn a_row_names_a_test_that_exists() {
    assert!(check(GOOD).is_empty());
    let what = "EX-1-1 names `proto::v2::credit::tests::f`, which is no test";
    assert_eq!(check(&GOOD.replace("holds", "f")), [what]);
    let two = format!("{GOOD}; proto::v2::credit::tests::g");
    assert_eq!(check(&two), ["EX-1-1 names `proto::v2::credit::tests::g`, which is no test"]);
    assert_eq!(check("EX-1-1\tMUST\ttest\tlibrary\t"), ["EX-1-1 names no test"]);
}

#[test]
fn every_part_of_its_name_counts() {
    for name in [
        "holds",
        "tests::holds",
        "proto::credit::tests::holds",
        "proto::credit::v2::tests::holds",
        "proto::v1::credit::tests::holds",
        "proto::v2::credit::holds",
        "runtime::v2::credit::tests::holds",
        "haulage_proto::v2::credit::tests::holds",
    ] {
        let row = format!("EX-1-1\tMUST\ttest\tlibrary\t{name}");
        assert_eq!(check(&row), [format!("EX-1-1 names `{name}`, which is no test")]);
    }
}

#[test]
fn tests_are_named_after_where_they_are() {
    let test = "#[test]\n#[should_panic]\nfn a() {}\n";
    let inline = format!("mod tests {{\nmod inner {{ {test} }}\n{test}}}\n");
    let tree = [
        ("proto/src/lib.rs", inline.as_str()),
        ("proto/src/v2/credit/tests.rs", test),
        ("mr-pool/src/tests.rs", test),
        ("runtime/tests/host_auth.rs", test),
        ("tests/tests/world.rs", test),
        ("tests/src/world.rs", inline.as_str()),
    ];
    let names = [
        "mr_pool::tests::a",
        "proto::tests::a",
        "proto::tests::inner::a",
        "proto::v2::credit::tests::a",
        "runtime::tests::host_auth::a",
        "tests::world::a",
        "tests::world::tests::a",
        "tests::world::tests::inner::a",
    ];
    let found = tests(&Workspace::of(&tree));
    assert!(found.keys().eq(names), "{found:?}");
    assert_eq!(found["mr_pool::tests::a"], "mr-pool/src/tests.rs");
}

#[test]
fn what_does_not_run_is_no_test() {
    let code = CODE.replace("#[test]", "#[test]\n#[ignore = \"slow\"]");
    let what = "EX-1-1 names `proto::v2::credit::tests::holds`, which is no test";
    assert_eq!(check_all(HEADER, GOOD, &code), [what]);
    assert_eq!(check_all(HEADER, GOOD, &CODE.replace("#[test]", "// #[test]")), [what]);
    let code = CODE.replace("fn holds() {", "fn around() { fn holds() {}");
    assert_eq!(check_all(HEADER, GOOD, &code), [what]);
}

#[test]
fn code_cites_what_is_tested_and_nothing_unknown() {
    let code = CODE.replace("[EX", "[EY");
    assert_eq!(check_all(HEADER, GOOD, &code), ["EX-1-1 is cited by no code"]);
    let code = format!("{}// [EX-1-1]\n", CODE.replacen("// [EX-1-1] so", "", 1));
    assert_eq!(check_all(HEADER, GOOD, &code), ["EX-1-1 is cited by no code"], "but by its test");
    let code = CODE.replace("-1-1]", "-1-1, EX-1-2]");
    let what = "cites EX-1-2, which has no row in proto/REQUIREMENTS.tsv";
    assert_eq!(check_all(HEADER, GOOD, &code), [what]);
}

#[test]
fn a_test_does_not_obey() {
    let code = CODE.replace("[EX-1-1]", "");
    let of_test = ("proto/src/v2/credit/tests.rs", "// [EX-1-1]\nfn f() {}\n");
    let table = format!("{HEADER}\n{GOOD}\n");
    let tree = [(TABLE, table.as_str()), ("proto/src/v2/credit.rs", &code), of_test];
    let found = coverage(&Workspace::of(&tree));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].what, "EX-1-1 is cited by no code");
}

#[test]
fn what_is_not_tested_has_a_reason() {
    for status in ["exception", "not-applicable"] {
        for reason in ["", "none", "see above"] {
            let row = format!("EX-1-1\tMUST\t{status}\t-\t{reason}");
            assert_eq!(check(&row), ["EX-1-1 gives no reason"]);
        }
        assert!(
            check(&format!("EX-1-1\tMUST NOT\t{status}\t-\tno provider can do that")).is_empty()
        );
    }
}

#[test]
fn a_row_holds_in_the_outermost_layer_that_its_tests_drive() {
    let test = "#[test]\nfn a() {}\n";
    let all = [
        ("proto::tests::a", "library"),
        ("tests::world::a", "library"),
        ("runtime::tests::host_auth::a", "runtime"),
        ("tests::hostile::two::a", "runtime"),
        ("apps::haulage::tests::command::a", "command"),
    ];
    let check = |holds_in: &str, names: &str| {
        let table = format!("{HEADER}\nEX-1-1\tMUST\ttest\t{holds_in}\t{names}\n");
        let tree = [
            (TABLE, table.as_str()),
            ("proto/src/v2/credit.rs", CODE),
            ("proto/src/tests.rs", test),
            ("runtime/tests/host_auth.rs", test),
            ("apps/haulage/tests/command.rs", test),
            ("tests/tests/world.rs", test),
            ("tests/tests/hostile/two.rs", test),
            ("tests/tests/tidy.rs", test),
        ];
        let found = coverage(&Workspace::of(&tree));
        found.into_iter().map(|breach| breach.what).collect::<Vec<_>>()
    };
    for (at, (name, shown)) in all.into_iter().enumerate() {
        for (inner, _) in &all[..=at] {
            let names = format!("{name} {inner}");
            assert_eq!(check(shown, &names), [""; 0]);
            for other in ["library", "runtime", "command", "-"].into_iter().filter(|o| *o != shown)
            {
                let what = format!("EX-1-1 holds in `{other}`, but its tests show `{shown}`");
                assert_eq!(check(other, &names), [what]);
            }
        }
    }
    let what = "EX-1-1 names `tests::tidy::a`, which drives no layer";
    assert_eq!(check("library", "tests::tidy::a"), [what]);
}

#[test]
fn only_tests_of_the_outermost_layer_show_that_a_sentence_holds_there() {
    let table = format!(
        "{HEADER}\n\
        EX-1-1\tMUST\ttest\truntime\tproto::tests::a tests::hostile::a\n\
        EX-1-2\tMUST\ttest\tlibrary\tproto::tests::a\n\
        EX-1-3\tMUST\texception\t-\tno provider can do that\n"
    );
    let test = "#[test]\nfn a() {}\n";
    let tree =
        [(TABLE, table.as_str()), ("proto/src/tests.rs", test), ("tests/tests/hostile.rs", test)];
    let rows: Vec<_> = tested(&Workspace::of(&tree))
        .into_iter()
        .map(|row| (row.id, row.holds_in, row.tests.into_iter().map(|t| t.name).collect()))
        .collect();
    assert_eq!(
        rows,
        [
            ("EX-1-1".into(), Layer::Runtime, vec!["tests::hostile::a".to_owned()]),
            ("EX-1-2".into(), Layer::Library, vec!["proto::tests::a".to_owned()]),
        ]
    );
}

#[test]
fn what_is_not_tested_holds_nowhere() {
    let row = "EX-1-1\tMUST\texception\tlibrary\tno provider can do that";
    assert_eq!(check(row), ["EX-1-1 is not tested, but holds in `library`"]);
}

#[test]
fn nothing_is_open_unknown_or_said_twice() {
    assert_eq!(check("EX-1-1\tMAY\topen\t-\t"), ["EX-1-1 is still open"]);
    assert_eq!(check("EX-1-1\tMUST\tmaybe\t-\t"), ["EX-1-1 has the unknown status `maybe`"]);
    let what = "EX-1-1 has the unknown level `must`";
    assert_eq!(check(&GOOD.replace("MUST", "must")), [what]);
    assert_eq!(check(&format!("{GOOD}\n{GOOD}")), ["EX-1-1 has a second row"]);
}

#[test]
fn the_table_is_there_and_is_a_table() {
    let none = coverage(&Workspace::of(&[("proto/src/v2/credit.rs", CODE)]));
    assert_eq!(none, [Breach::of_file(TABLE, "is missing")]);
    let what = "does not begin with `id\\tlevel\\tstatus\\tholds_in\\twhere`";
    assert_eq!(check_all("# id level status where", GOOD, CODE), [what]);
    let what = "EX-1-1 does not have the cells of the header";
    assert_eq!(check(&format!("{GOOD}\tand more")), [what]);
    assert!(check(&format!("{GOOD}\n")).contains(&" does not have the cells of the header".into()));
}

const GOOD: &str = "EX-1-1\tMUST\ttest\tlibrary\tproto::v2::credit::tests::holds";

/// Code that obeys a sentence, and a test of it.
const CODE: &str =
    "// [EX-1-1] so\nfn f() {}\n#[cfg(test)]\nmod tests {\nfn g() {}\n#[test]\nfn holds() {}\n}\n";
