use super::*;

/// A patch that changes `c` of [`FILE`] to `d`.
const PATCH: &str = "diff --git a/proto/src/ring.rs b/proto/src/ring.rs\nindex 1..2 100644\n\
    --- a/proto/src/ring.rs\n+++ b/proto/src/ring.rs\n@@ -90,3 +90,3 @@ fn f() {\n b\n-    c\n+    d\n }\n";
const FILE: &str = "a\nb\n    c\n}\ne\n";

fn applied(patch: &str, text: &str) -> Result<String, Fault> {
    Mutation::parse(patch)?.apply(text)
}

#[test]
fn a_hunk_applies_where_its_old_lines_are_whatever_their_number() {
    assert_eq!(Mutation::parse(PATCH).unwrap().path(), "proto/src/ring.rs");
    assert_eq!(applied(PATCH, FILE).unwrap(), "a\nb\n    d\n}\ne\n");
    assert_eq!(applied(PATCH, &format!("x\ny\n{FILE}")).unwrap(), "x\ny\na\nb\n    d\n}\ne\n");
}

#[test]
fn only_whole_lines_are_old_lines() {
    assert_eq!(applied(PATCH, "ab\n    c\n}\n"), Err(Fault::Missing(5)));
    assert_eq!(applied(PATCH, "b\n    c\n}}\n"), Err(Fault::Missing(5)));
    assert_eq!(applied(PATCH, "b\n    c\n} \n"), Err(Fault::Missing(5)));
    assert_eq!(applied(PATCH, "b\n  c\n}\n"), Err(Fault::Missing(5)));
}

#[test]
fn a_place_that_is_there_twice_is_none() {
    assert_eq!(applied(PATCH, &FILE.repeat(2)), Err(Fault::Ambiguous(5, 2)));
    // The two places overlap.
    let twice = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n a\n-a\n";
    assert_eq!(applied(twice, "a\na\na\n"), Err(Fault::Ambiguous(3, 2)));
}

#[test]
fn several_hunks_apply_in_their_order() {
    let two = format!("{PATCH}@@ -94 +94,2 @@\n e\n+f\n");
    assert_eq!(applied(&two, FILE).unwrap(), "a\nb\n    d\n}\ne\nf\n");
    let back = format!("{PATCH}@@ -1 +1 @@\n-a\n+f\n");
    assert_eq!(applied(&back, FILE), Err(Fault::OutOfOrder(10)));
    let over = format!("{PATCH}@@ -1 +1 @@\n-}}\n e\n");
    assert_eq!(applied(&over, FILE), Err(Fault::OutOfOrder(10)));
}

#[test]
fn a_context_line_may_have_lost_its_blank() {
    let patch = "--- a/x\n+++ b/x\n@@ -1,3 +1,2 @@\n a\n\n-b\n";
    assert_eq!(applied(patch, "a\n\nb\n").unwrap(), "a\n\n");
}

#[test]
fn what_is_no_patch_of_one_file_is_refused() {
    let fault = |patch: &str| Mutation::parse(patch).unwrap_err();
    assert_eq!(fault(""), Fault::Empty);
    assert_eq!(fault("--- a/x\n+++ b/x\n"), Fault::Empty);
    assert_eq!(fault("@@ -1 +1 @@\n-a\n+b\n"), Fault::Empty);
    assert_eq!(fault("--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n"), Fault::OtherFile(2));
    assert_eq!(fault("--- a/x\n+++ b/y\n@@ -1 +1 @@\n-a\n"), Fault::OtherFile(2));
    assert_eq!(fault(&PATCH.repeat(2)), Fault::OtherFile(10));
    assert_eq!(fault(&format!("{PATCH}\\ No newline at end of file\n")), Fault::OddLine(10));
    assert_eq!(fault("--- a/x\n+++ b/x\n@@ -1 +1 @@\n a\n"), Fault::Idle(3));
    assert_eq!(fault("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+a\n"), Fault::Idle(3));
    assert_eq!(fault("--- a/x\n+++ b/x\n@@ -1 +1 @@\n+a\n"), Fault::Idle(3));
}
