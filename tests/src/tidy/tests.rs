use super::*;

/// Returns the lines that a rule reports in one planted file.
fn objects(rule: Rule, path: &str, text: &str) -> Vec<usize> {
    rule(&Workspace::of(&[(path, text)])).iter().map(|breach| breach.line).collect()
}

#[test]
fn the_keyword_is_found_in_code_alone() {
    let text = "// unsafe\n\"unsafe\"\n#![forbid(unsafe_code)]\nunsafe { f() }\n";
    for path in
        ["apps/haulage/src/main.rs", "tests/src/lib.rs", "runtime/src/lib.rs", "runtime/src/sys.rs"]
    {
        assert_eq!(objects(unsafe_in_its_files, path, text), [4], "{path}");
    }
    assert_eq!(objects(unsafe_in_its_files, "runtime/src/sys/clock.rs", text), [0; 0]);
    assert_eq!(objects(unsafe_in_its_files, UNSAFE[0], text), [0; 0]);
}

#[test]
fn clocks_and_entropy_are_found_outside_their_modules() {
    let text = "let a = std::time::Instant::now();\nmy_getrandom();\ngetrandom::fill(&mut b);\n";
    let rule = time_and_chance_in_their_modules;
    assert_eq!(objects(rule, "runtime/src/core.rs", text), [1, 3]);
    assert_eq!(objects(rule, CLOCK[0], text), [3]);
    assert_eq!(objects(rule, ENTROPY[0], text), [1]);
    assert_eq!(objects(rule, CLOCK[0], "thread::sleep(x)"), [1]);
}

#[test]
fn what_was_left_behind_is_found_in_every_kind_of_file() {
    let note = concat!("a\n# ", "FIX", "ME later\n");
    assert_eq!(objects(leftovers, "README.md", note), [2]);
    let merge = format!("a\n{0}<< HEAD\nb {0}<< c\n", "<".repeat(5));
    assert_eq!(objects(leftovers, "README.md", &merge), [2]);
    assert_eq!(objects(leftovers, "apps/haulage/src/main.rs", "fn f() {\n    todo!()\n}"), [2]);
    assert_eq!(
        objects(leftovers, "apps/haulage/src/main.rs", "// \"todo!\"\nlet todo = 1;"),
        [0; 0]
    );
}

#[test]
fn an_ignored_test_must_say_why() {
    let text = "#[ignore]\nfn a() {}\n#[ignore = \"needs a device\"]\nfn b() {}\n";
    assert_eq!(objects(ignored_without_reason, "tests/tests/lab.rs", text), [1]);
}

#[test]
fn a_path_of_one_machine_is_found_and_a_part_of_another_path_is_not() {
    let text = format!("see {0}a/x\n\"{0}\"\n./work{0}x\n", concat!("/ho", "me/"));
    assert_eq!(objects(machine_paths, "README.md", &text), [1, 2]);
}

#[test]
fn proto_may_have_optional_and_test_dependencies_only() {
    let text = "[package]\nname = \"p\"\n[dependencies]\n# none\n[dev-dependencies]\na = \"1\"\n";
    assert_eq!(objects(proto_depends_on_nothing, "proto/Cargo.toml", text), [0; 0]);
    let text = "[dependencies]\na = { version = \"1\", optional = true }\nb = \"1\"\n";
    assert_eq!(objects(proto_depends_on_nothing, "proto/Cargo.toml", text), [3]);
    let text = "[dependencies.a]\nversion = \"1\"\n[target.'cfg(unix)'.dependencies]\nb = \"1\"\n";
    assert_eq!(objects(proto_depends_on_nothing, "proto/Cargo.toml", text), [2, 4]);
}

#[test]
fn a_file_no_mod_line_leads_to_is_an_orphan() {
    let tree = [
        ("a/Cargo.toml", "[[bin]]\npath = \"tools/run.rs\"\n"),
        ("a/src/lib.rs", "pub mod b;\nmod inline { }\n// mod lost;\n"),
        ("a/src/b.rs", "#[cfg(test)]\nmod tests;"),
        ("a/src/b/tests.rs", ""),
        ("a/src/b/lost.rs", ""),
        ("a/src/lost.rs", ""),
        ("a/tests/t.rs", "#[path = \"t/found.rs\"]\nmod found;"),
        ("a/tests/t/found.rs", ""),
        ("a/tests/t/lost.rs", ""),
        ("a/tools/run.rs", "mod with;"),
        ("a/tools/with.rs", ""),
        ("b/m/Cargo.toml", ""),
        ("b/m/src/lib.rs", "mod c;"),
        (
            "b/m/src/c.rs",
            concat!(
                "mod d { mod e; }\n#[path = \"../../../a\"]\nmod f {\n    mod g;\n",
                "    #[path = \"../b/m/h.rs\"]\n    mod h;\n}\n"
            ),
        ),
        ("b/m/src/c/d/e.rs", ""),
        ("a/g.rs", ""),
        ("b/m/h.rs", ""),
        ("b/m/src/c/g.rs", ""),
    ];
    let found = orphans(&Workspace::of(&tree));
    let paths: Vec<_> = found.iter().map(|breach| breach.path.as_str()).collect();
    let lost = ["a/src/b/lost.rs", "a/src/lost.rs", "a/tests/t/lost.rs", "b/m/src/c/g.rs"];
    assert_eq!(paths, lost);
}

#[test]
fn a_test_program_must_be_listed() {
    let manifest = "[package]\nname = \"b\"\n\n[[test]]\nname = \"a\"\n";
    let tree = [
        ("tests/Cargo.toml", manifest),
        ("tests/tests/a.rs", ""),
        ("tests/tests/b.rs", ""),
        ("tests/tests/a/part.rs", ""),
    ];
    let found = unlisted_tests(&Workspace::of(&tree));
    assert_eq!(found.iter().map(|b| b.path.as_str()).collect::<Vec<_>>(), ["tests/tests/b.rs"]);
}

#[test]
fn sizes_leave_tests_and_markers_apart() {
    let long = format!("fn f() {{\n{}}}\n", "    g();\n".repeat(FUNCTION_LINES));
    let of = |path, text: &str| sizes(&Workspace::of(&[(path, text)]));
    assert_eq!(of("a/src/b.rs", &long), ["a/src/b.rs:1: fn f, 72 lines"]);
    assert!(of("a/src/b.rs", &format!("#[cfg(test)]\nmod tests {{\n{long}}}\n")).is_empty());
    assert!(of("a/src/b/tests.rs", &long).is_empty());
    assert_eq!(of("a/src/b.rs", &"\n".repeat(FILE_LINES + 1)), ["a/src/b.rs: 401 lines"]);
    let marked = long.replacen("g();", "//~ EX-1-1: `g` -> `h`", 1);
    assert_eq!(of("a/src/b.rs", &marked), ["a/src/b.rs:1: fn f, 71 lines"]);
    let marked = "//~ a\n".repeat(FILE_LINES);
    assert!(of("a/src/b.rs", &format!("{marked}fn f() {{\n{marked}}}\n")).is_empty());
}

#[test]
fn every_reading_is_proved_by_tests_that_exist() {
    let file = ("proto/src/a.rs", "#[test]\nfn holds() {}\n#[test]\nfn breaks() {}\n");
    let complaints = |page: &str| {
        let found = readings(&Workspace::of(&[file, ("proto/READINGS.md", page)]));
        found.into_iter().map(|breach| (breach.line, breach.what)).collect::<Vec<_>>()
    };
    let entries = "| id | text |\n| E1 | a |\n| P2 | b |\n## Tests\n";
    let good = "| E1 | `proto::a::holds` | - |\n| P2 | `proto::a::holds` | `proto::a::breaks` |\n";
    assert_eq!(complaints(&format!("{entries}{good}")), []);
    let gone = "| E1 | `proto::a::held` | - |\n| P2 | - | `proto::a::breaks` |\n";
    let expected = [
        (5, "E1 names `proto::a::held`, which is no test".to_owned()),
        (0, "has no test for P2".to_owned()),
    ];
    assert_eq!(complaints(&format!("{entries}{gone}")), expected);
    assert_eq!(readings(&Workspace::of(&[file])).len(), 1, "the page is gone");
}
