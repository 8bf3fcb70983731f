use super::*;

/// Returns the files that the rule reports, with the reasons.
fn objects(tree: &[(&str, &str)]) -> Vec<String> {
    circles(&Workspace::of(tree)).iter().map(ToString::to_string).collect()
}

/// Returns the report of a circle of two children of `proto/src/lib.rs`.
fn both(one: &str, other: &str) -> Vec<String> {
    let names = |from: &str, to: &str| {
        format!("proto/src/{from}.rs:0: is in an import circle: it names proto/src/{to}.rs")
    };
    vec![names(one, other), names(other, one)]
}

const ROOT: (&str, &str) = ("proto/src/lib.rs", "pub mod a;\npub mod b;\nmod c;\n");

#[test]
fn a_circle_of_two_files_is_found_by_use_and_by_path() {
    for (a, b) in [
        ("use crate::b::B;\npub struct A(B);", "use crate::a::A;\npub struct B(A);"),
        ("use super::b::{self, B};\npub struct A(B);", "pub struct B(super::a::A);"),
        ("use crate::b;\npub struct A(b::B);", "pub fn f() { crate::a::\n    new(); }"),
        ("pub(crate) use crate::b::B;", "use crate::{a::{A as X}, c};"),
        ("use crate::b::*;\npub struct A(B);", "use crate::a::A;\npub struct B(A);"),
    ] {
        let tree = [ROOT, ("proto/src/a.rs", a), ("proto/src/b.rs", b)];
        assert_eq!(objects(&tree), both("a", "b"), "{a}\n{b}");
    }
}

#[test]
fn a_long_circle_is_found_and_what_leads_to_it_is_not_in_it() {
    let tree = [
        ("mr-pool/src/lib.rs", "mod a; mod b; mod c; mod d; mod e;"),
        ("mr-pool/src/a.rs", "use crate::b::B;"),
        ("mr-pool/src/b.rs", "use crate::c::C; use crate::e::E;"),
        ("mr-pool/src/c.rs", "use crate::a::A;"),
        ("mr-pool/src/d.rs", "use crate::a::A;"),
        ("mr-pool/src/e.rs", "pub struct E;"),
    ];
    let is_in = |file: &str| format!("mr-pool/src/{file}.rs:0: is in an import circle: ");
    let found = objects(&tree);
    assert_eq!(found.len(), 3, "{found:?}");
    for (breach, file) in found.iter().zip(["a", "b", "c"]) {
        assert!(breach.starts_with(&is_in(file)) && !breach.contains("e.rs"), "{breach}");
    }
}

#[test]
fn a_circle_in_an_app_is_found() {
    for app in ["apps/haulage", "apps/kv", "apps/store"] {
        let [root, a, b] = ["lib", "a", "b"].map(|file| format!("{app}/src/{file}.rs"));
        let tree =
            [(&*root, "mod a; mod b;"), (&*a, "use crate::b::B;"), (&*b, "use super::a::A;")];
        assert_eq!(objects(&tree).len(), 2, "{app}");
    }
}

#[test]
fn files_in_order_are_no_circle() {
    let tree = [
        ROOT,
        (
            "proto/src/a.rs",
            "use crate::b::B;\nuse std::fmt;\npub struct A(B, fmt::Error, c::Foreign);",
        ),
        ("proto/src/b.rs", "// crate::a::A\npub struct B;\n\"crate::a::A\";\nfn a() { x.a(); }"),
        ("proto/src/c.rs", "pub use crate::a::A;\npub use crate::b;"),
    ];
    assert_eq!(objects(&tree), [""; 0]);
}

#[test]
fn a_name_leads_through_re_exports_to_the_file_that_defines_it() {
    let parent = "pub mod x;\nmod y;\npub use x::X;\npub use self::y::*;\npub struct Own;";
    let tree = [
        ("proto/src/lib.rs", "pub mod a; mod b;"),
        ("proto/src/a.rs", parent),
        ("proto/src/a/x.rs", "use crate::b::B;\npub struct X(B);"),
        ("proto/src/a/y.rs", "pub enum Y { One }"),
        ("proto/src/b.rs", "use crate::a::Y;\npub struct B(Y);\nfn f() -> B { crate::a::Own }"),
    ];
    assert_eq!(objects(&tree), [""; 0], "neither x.rs nor y.rs needs a.rs, and a.rs needs none");
    let tree = [tree[0], tree[1], tree[2], tree[3], ("proto/src/b.rs", "use crate::a::X;\n")];
    assert_eq!(objects(&tree), both("a/x", "b"));
}

#[test]
fn a_reader_who_follows_a_name_goes_through_the_file_that_passes_it_on() {
    let tree = [
        ROOT,
        ("proto/src/a.rs", "mod x;\npub use x::X;\nuse crate::b::B;\npub struct A(B);"),
        ("proto/src/a/x.rs", "pub struct X;"),
        ("proto/src/b.rs", "use crate::a::X;\npub struct B(X);"),
    ];
    assert_eq!(objects(&tree), both("a", "b"));
}

#[test]
fn a_parent_is_in_a_circle_with_a_child_only_if_it_uses_what_the_child_defines() {
    let child = ("proto/src/a/x.rs", "use super::A;\npub struct X(A);");
    for (parent, is_circle) in [
        ("pub mod x;\npub use x::X;\npub struct A;", false),
        ("mod x;\npub use self::x::X;\npub struct A;\nfn x() {}", false),
        ("mod x;\npub use x::X;\npub struct A(Box<X>);", true),
        ("mod x;\nuse x::X;\npub struct A(Box<X>);", true),
        ("mod x;\npub struct A;\nfn f() { x::X::new() }", true),
    ] {
        let tree = [ROOT, ("proto/src/a.rs", parent), child];
        let expected = if is_circle { both("a", "a/x") } else { Vec::new() };
        assert_eq!(objects(&tree), expected, "{parent}");
    }
}

#[test]
fn tests_may_name_whatever_they_test() {
    let tested = "pub struct A;\n#[cfg(test)]\nuse crate::b::B;\n#[cfg(test)]\nmod tests;\n\
                  #[cfg(test)]\nmod more { fn f() { crate::b::g(); } }\nfn f() {}";
    let tree = [
        ROOT,
        ("proto/src/a.rs", tested),
        ("proto/src/a/tests.rs", "use super::*;\nuse crate::b::B;"),
        ("proto/src/b.rs", "use crate::a::A;\npub struct B(A);"),
    ];
    assert_eq!(objects(&tree), [""; 0]);
}
