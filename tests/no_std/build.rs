//! Links the program without the C library and its start files, so that any use of them fails to link.

fn main() {
    for argument in ["-nostartfiles", "-nostdlib"] {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
