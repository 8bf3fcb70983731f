//! Links the program without the C library and its start: what is not in `core` or `alloc` is missing.

fn main() {
    for argument in ["-nostartfiles", "-nostdlib"] {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
