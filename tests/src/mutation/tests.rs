use super::*;

/// Returns `code` as the only mutation of `EX-1-1` changes it.
fn changed(code: &str) -> Option<String> {
    let workspace = Workspace::of(&[("a.rs", code)]);
    let found = Mutation::all(&workspace);
    let [found] = &found.get("EX-1-1")?[..] else { panic!("several mutations") };
    assert_eq!(found.whole().collect::<Vec<_>>(), [("a.rs", code)]);
    Some(found.broken()?.into_iter().map(|(_, text)| text).collect())
}

/// Returns the faults of the markers in `code`.
fn faults(code: &str) -> Vec<(usize, &'static str)> {
    let faults = markers(code).into_iter().filter_map(Result::err);
    faults.map(|fault| (fault.line, fault.what)).collect()
}

#[test]
fn a_marker_replaces_a_text_in_the_line_below() {
    let code = "a(1);\n  //~ EX-1-1: `1` -> `2`\n  a(1);\na(1);\n";
    assert_eq!(changed(code).unwrap(), "a(1);\n  //~ EX-1-1: `1` -> `2`\n  a(2);\na(1);\n");
    assert_eq!(
        markers(code),
        [Ok(Marker {
            id: "EX-1-1".to_owned(),
            line: 2,
            place: 35..36,
            new: "2".to_owned(),
            is_together: false
        })]
    );
    assert!(changed("//~ EX-1-1: `b, ` -> ``\na(b, c)").unwrap().ends_with("\na(c)"));
    assert!(changed("//~ EX-1-1: `` -> `b();`\n  a();\n").unwrap().ends_with("\n  b(); a();\n"));
}

#[test]
fn comments_and_other_markers_may_be_in_between() {
    let code = "//~ EX-1-1: `1` -> `2`\n// b\n/// c 1\n//~ EX-1-2: `1` -> `3`\n#[d = 1]\na(1)\n";
    assert!(changed(code).unwrap().contains("\n#[d = 2]\na(1)\n"));
    assert!(changed("//~ EX-1-1: `a` -> `b`\n\na\n").is_none(), "an empty line is no comment");
}

#[test]
fn a_marker_may_take_several_lines() {
    let code = "//~ EX-1-1: `a` ->\n  //~   `b(\n//~     c)`\n//~ EX-1-2: `a` -> `d`\na\n";
    assert!(changed(code).unwrap().ends_with("\nb( c)\n"));
}

#[test]
fn each_marker_is_a_mutation_of_its_own() {
    let one = "//~ EX-1-1: `1` -> `2`\n//~ EX-1-1: `1` -> `3`\na(1)\n";
    let workspace = Workspace::of(&[("a.rs", one), ("b.rs", "//~ EX-1-1: `b` -> `d`\nb\n")]);
    let found = Mutation::all(&workspace);
    let changed = found["EX-1-1"].iter().map(|mutation| {
        let (path, marker) = mutation.first();
        let text = mutation.broken().unwrap().remove(0).1;
        (path, marker.line, text.lines().last().unwrap().to_owned())
    });
    let expected = [("a.rs", 1, "a(2)"), ("a.rs", 2, "a(3)"), ("b.rs", 1, "d")];
    assert_eq!(changed.collect::<Vec<_>>(), expected.map(|(p, l, text)| (p, l, text.to_owned())));
}

#[test]
fn markers_that_say_so_are_applied_together() {
    let one = [
        "//~ EX-1-1: `1` -> `2` together",
        "//~ EX-1-1: `1` -> `3`",
        "//~ EX-1-1: `` ->",
        "//~  `c;` together",
        "a(1, b)\n",
    ];
    let one = &one.join("\n");
    let other = "//~ EX-1-1: `b` -> `d` together\nb\n";
    let workspace = Workspace::of(&[("a.rs", one), ("b.rs", other), ("c.rs", "e")]);
    let found = Mutation::all(&workspace);
    assert_eq!(found.len(), 1);
    let applied = found["EX-1-1"].iter().map(|mutation| {
        let texts = mutation.broken().unwrap().into_iter();
        texts.map(|(path, text)| format!("{path}: {}", text.lines().last().unwrap())).collect()
    });
    let applied: Vec<Vec<_>> = applied.collect();
    assert_eq!(applied, [vec!["a.rs: c; a(2, b)", "b.rs: d"], vec!["a.rs: a(3, b)"]]);
    let overlapping = "//~ EX-1-1: `a b` -> `c` together\n//~ EX-1-1: `b a` -> `c` together\na b a";
    assert!(changed(overlapping).is_none());
}

#[test]
fn a_marker_that_cannot_be_applied_has_a_fault() {
    assert_eq!(faults("//~ EX-1-1: `1` -> `2`\na(1)\n"), []);
    assert_eq!(faults("//~ EX-1-1: `2` -> `1`\na(1)\na(2)\n"), [(1, NOT_ONCE)]);
    assert_eq!(faults("b\n//~ EX-1-1: `1` -> `2`\na(1, 1)\n"), [(2, NOT_ONCE)]);
    assert_eq!(faults("//~ EX-1-1: `11` -> `2`\na(111)\n"), [(1, NOT_ONCE)], "the two overlap");
    assert_eq!(faults("//~ EX-1-1: `1` -> `1`\na(1)\n"), [(1, "changes nothing")]);
    assert_eq!(faults("//~ EX-1-1: `` -> ``\na(1)\n"), [(1, "changes nothing")]);
    assert_eq!(faults("//~ EX-1-1: `` -> `a;`\n\na(1)\n"), [(1, NO_CODE)]);
    assert_eq!(faults("a\n//~ EX-1-1: `1` -> `2`\n// b\n"), [(2, NO_CODE)]);
    for odd in [
        "",
        "EX-1-1",
        "EX-1-1: ",
        "EX-1-1: `1`",
        "EX-1-1: `1` -> `2",
        "EX-1-1: 1 -> 2",
        "EX-1-1 `1` -> `2`",
        "EX-1-1: `1` => `2`",
        "EX-1-1: `1` -> `2` b",
        "EX-1-1: `1` -> `2` `3`",
        "EX-1-1: `1` -> `2`together",
        "`1` -> `2`",
    ] {
        assert_eq!(faults(&format!("//~ {odd}\na(1)\n")), [(1, NOT_A_MARKER)], "{odd}");
    }
}
