use super::*;

const FILE: &str = "proto/src/a.rs";

/// Returns the lines that the rule reports in one planted file, with the reasons.
fn complaints(path: &str, text: &str) -> Vec<(usize, String)> {
    let found = breaches(&Workspace::of(&[(path, text)]), &[], &[]);
    found.into_iter().map(|breach| (breach.line, breach.what)).collect()
}

fn lines(text: &str) -> Vec<usize> {
    complaints(FILE, text).into_iter().map(|(line, _)| line).collect()
}

#[test]
fn each_kind_of_breach_is_found() {
    let text = "\
fn tuple((a, b, c): (u8, u8, u8)) {}
impl A {
    pub(super) const fn flag(&mut self, x: u8, y: bool) {}
}
fn many(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8) {}
trait B {
    fn spread<'a, T: Fn(u8) -> [u8; 2]>(
        self: Box<Self>,
        (a, b): (u8, Vec<(u8, u8)>),
        Place { c, d }: Place,
        (e, (f, g)): (u8, (u8, u8)),
        // h: u8,
        #[allow(unused)] i: &'a [T],
    ) -> bool;
}
unsafe extern \"C\" fn pair((a, b): (u8, bool)) {}
";
    let expected = [
        (1, "fn tuple takes a tuple of 3: name the fields of a struct"),
        (3, "fn flag takes a `bool`: two cases are an enum or two functions"),
        (5, "fn many has 7 parameters, at most 6"),
        (7, "fn spread has 7 parameters, at most 6"),
        (16, "fn pair takes a `bool`: two cases are an enum or two functions"),
    ];
    assert_eq!(complaints(FILE, text), expected.map(|(line, what)| (line, what.to_owned())));
}

#[test]
fn what_only_looks_like_a_breach_passes() {
    let text = "\
fn six(&self, a: u8, b: u8, c: u8, (d, e): (u8, u8), f: u8) -> bool {}
fn generic<const N: bool, F: Fn(bool, u8) -> bool>(f: F, g: fn(bool), h: impl Fn(bool) -> bool) {}
fn nested(a: Option<bool>, b: &[(u8, u8, bool)], c: [u8; 7], d: Map<u8, (u8, u8, u8)>) {}
fn shapes(Pair::<u8>(a, b): Pair<u8>, m::Place { x: c, y }: m::Place, mut d: (&dyn A), e: ()) {}
fn body() { let f = |a: bool, b: bool| a; let (a, b, c): (u8, u8, u8) = t; }
// fn comment(a: bool) {}
const TEXT: &str = \"fn text(a: bool) {}\";
struct Field { flag: bool, call: fn(a: bool) }
";
    assert_eq!(complaints(FILE, text), []);
}

#[test]
fn tests_are_left_alone() {
    let breach = "fn f(a: bool) {}\n";
    let inline = format!("{breach}#[cfg(test)]\nmod tests {{\n{breach}}}\n{breach}");
    assert_eq!(lines(&inline), [1, 6]);
    assert_eq!(lines(&format!("#[cfg(test)]\n{breach}{breach}")), [3]);
    for path in ["proto/tests/a.rs", "tests/src/a.rs", "tests/no_std/src/a.rs", "benches/src/a.rs"]
    {
        assert_eq!(complaints(path, breach), [], "{path}");
    }
    let tree = [
        ("p/q/src/main.rs", "mod a;\n#[cfg(test)]\npub(crate) mod b;\n"),
        ("p/q/src/a.rs", "#[cfg(test)]\nmod tests;\nmod c;\n"),
        ("p/q/src/a/tests.rs", breach),
        ("p/q/src/a/tests/d.rs", breach),
        ("p/q/src/a/c.rs", breach),
        ("p/q/src/b.rs", breach),
    ];
    let found = breaches(&Workspace::of(&tree), &[], &[]);
    assert_eq!(found.iter().map(|b| b.path.as_str()).collect::<Vec<_>>(), ["p/q/src/a/c.rs"]);
}

#[test]
fn who_is_listed_passes_and_who_need_not_be_is_struck_off() {
    let text = "fn f(a: bool) {}\nfn g(a: bool) {}\nfn h(a: u8) {}\n";
    let found = |data: &[Named], remaining: &[Named]| {
        let found = breaches(&Workspace::of(&[(FILE, text)]), data, remaining);
        found.into_iter().map(|breach| (breach.line, breach.what)).collect::<Vec<_>>()
    };
    assert_eq!(found(&[(FILE, "f")], &[(FILE, "g")]), []);
    let gone = "fn h needs no exception: strike it off the list".to_owned();
    assert_eq!(found(&[(FILE, "f"), (FILE, "g")], &[(FILE, "h")]), [(0, gone)]);
    let many = "fn f(a: bool, (b, c, d): (u8, u8, u8), e: u8, g: u8, h: u8) {}\n";
    let found = |data: &[Named], remaining: &[Named]| {
        breaches(&Workspace::of(&[(FILE, many)]), data, remaining).len()
    };
    assert_eq!(found(&[], &[]), 3);
    assert_eq!(found(&[(FILE, "f")], &[]), 2, "data is a reason for a `bool` alone");
    assert_eq!(found(&[], &[(FILE, "f")]), 0);
}

#[test]
fn a_function_that_is_too_long_is_found_whatever_stands_beside_it() {
    let body = |lines: usize| "    let [a; 2] = f(|| { g(); });\n    // Said.\n\n".repeat(lines);
    let text = |lines| {
        format!(
            "fn before() -> [u8; 4];\nfn long<T>(a: T) -> [u8; 2]\nwhere\n    T: A,\n{{\n{}}}\n{}",
            body(lines),
            "fn behind() {}\n",
        )
    };
    // Its name, three lines down to the brace, and the one that ends it.
    assert_eq!(complaints(FILE, &text(LINES_MAX - 5)), []);
    let expected =
        format!("fn long has {} lines of code, at most {LINES_MAX}: part it", LINES_MAX + 1);
    assert_eq!(complaints(FILE, &text(LINES_MAX - 4)), [(2, expected)]);
}
